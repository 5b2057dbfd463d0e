//! Where files are not mapped.

use std::fs::File;

use crate::RangeRead;

/// A whole file in the address space of the process; on this system there are none.
#[derive(Debug)]
pub enum MappedFile {}

impl MappedFile {
    pub(crate) fn new(_file: &File) -> Option<MappedFile> {
        None
    }

    /// Fills every range, or says that the ordinary way is to be taken for them.
    pub fn read_batch(&self, _reads: &mut [RangeRead<'_>]) -> bool {
        match *self {}
    }
}
