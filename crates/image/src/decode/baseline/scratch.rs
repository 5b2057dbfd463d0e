//! A decoder's working memory.

use super::huffman::Table;

/// Reusable memory of decoding, including tables, which are often those of the previous image.
#[derive(Clone, Default)]
pub(crate) struct Scratch {
    /// Entropy-coded data.
    pub(super) data: Vec<u8>,
    pub(super) tables: [[Table; 4]; 2],
    pub(super) planes: [Vec<u8>; 3],
    pub(super) rows: [Vec<u8>; 4],
}
