//! What decoding works in.

use super::huffman::Table;

/// Memory of decoding, used again: tables too, which are often those of the image before.
#[derive(Clone, Default)]
pub(crate) struct Scratch {
    /// Entropy-coded data.
    pub(super) data: Vec<u8>,
    pub(super) tables: [[Table; 4]; 2],
    pub(super) planes: [Vec<u8>; 3],
    pub(super) rows: [Vec<u8>; 4],
}
