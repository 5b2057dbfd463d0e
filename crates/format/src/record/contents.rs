//! The contents of rows.

use std::fmt;

/// The contents of the rows of a data set: features, or a string of bytes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contents {
    /// Numbers to train on: dense or sparse rows.
    #[default]
    Features,
    /// A picture of `height` × `width` × `channels` unsigned bytes, row after row.
    Pixels {
        /// Rows of the picture.
        height: u32,
        /// Pixels a row.
        width: u32,
        /// Values a pixel.
        channels: u32,
        /// Planar: all values of one channel before the next; otherwise channels are interleaved.
        planar: bool,
    },
    /// An encoded image as its file holds it.
    Image,
    /// One line of text without its line end, in the encoding of the file.
    Text,
    /// A run of this many words and newlines of a text, unconverted; the last one of a file may have fewer.
    Tokens {
        /// Tokens of a run.
        length: u32,
    },
    /// A run of this many bytes of any kind; the last one of a file may be shorter.
    Bytes {
        /// Bytes of a run.
        length: u32,
    },
    /// A range of a tar file with the members of one sample: see [`members`](crate::members).
    Members,
    /// Several named arrays: see [`Dataset::record_fields`](crate::Dataset::record_fields) and
    /// [`Dataset::fields`](crate::Dataset::fields).
    Fields,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contents::Features => f.write_str("features"),
            Contents::Pixels {
                height,
                width,
                channels,
                ..
            } => write!(f, "pictures of {height} × {width} × {channels} bytes"),
            Contents::Image => f.write_str("encoded images"),
            Contents::Text => f.write_str("lines of text"),
            Contents::Tokens { length } => write!(f, "runs of {length} tokens of text"),
            Contents::Bytes { length } => write!(f, "runs of {length} bytes"),
            Contents::Members => f.write_str("samples of tar members"),
            Contents::Fields => f.write_str("named arrays"),
        }
    }
}
