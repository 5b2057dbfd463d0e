//! Entry points over plain bytes, for fuzzing; not part of the interface.

use std::path::Path;
use std::sync::Arc;

use pelton_data::DataError;

use crate::buckets::{LengthSource, lengths_of};

/// The lengths in the bytes of a file.
pub fn parse_lengths(mut bytes: &[u8], source: &LengthSource) -> Result<Vec<u32>, DataError> {
    lengths_of(Path::new("memory"), &mut bytes, source, &Arc::default())
}
