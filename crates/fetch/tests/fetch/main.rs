//! Reading ahead, in one program, so that it is linked once.

mod changing_files;
mod fixtures;
mod resumed_shares;
mod samples;
mod sequence;
mod shares;
