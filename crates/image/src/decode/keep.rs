//! What decoders keep.

/// What is kept of an image that holds more than RGB or grey bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Bytes,
    /// Values of 16 bits.
    Depth,
    /// Numbers, for masks, depth maps and the like: values of 16 bits, indices of palettes in place of colours, and 0 and 1 of
    /// black and white.
    Numbers,
}
