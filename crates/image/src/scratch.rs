//! A decoder's working memory.

use crate::huffman::Table;

/// Reusable memory of decoding, including tables, which are often those of the previous image.
#[derive(Clone, Default)]
pub(crate) struct Scratch {
    /// Entropy-coded data.
    pub(crate) data: Vec<u8>,
    pub(crate) tables: [[Table; 4]; 2],
    pub(crate) planes: [Vec<u8>; 3],
    pub(crate) rows: [Vec<u8>; 4],
}
