//! What decoders keep.

/// What is kept of an image that holds more than RGB or grey bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Bytes,
    /// Values of 16 bits.
    Depth,
    /// Numbers, for masks, depth maps and the like: values of 16 bits, palette indices instead of colours, and 0 and 1 for
    /// black and white.
    Numbers,
}
