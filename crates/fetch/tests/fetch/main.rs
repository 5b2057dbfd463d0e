//! Reading ahead, in one program, so that it is linked once.

mod changing_files;
mod fixtures;
mod resumed_shares;
mod samples;
mod sequence;
mod shares;

/// Writers of files of records.
#[allow(dead_code)]
#[path = "../../../format/tests/format/support"]
mod written {
    pub mod array_record;
    pub mod tfrecord;
}
