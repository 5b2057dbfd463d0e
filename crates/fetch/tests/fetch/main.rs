//! Reading ahead, in one program, so that it is linked once.

mod changing_files;
mod fixtures;
mod resumed_shares;
mod samples;
mod sequence;
mod shares;

/// Writers of files of records.
#[allow(dead_code)]
mod written {
    #[path = "../../../../format/tests/format/support/array_record.rs"]
    pub mod array_record;
    #[path = "../../../../format/tests/format/support/tfrecord.rs"]
    pub mod tfrecord;
}
