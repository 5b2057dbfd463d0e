//! Why a file cannot be opened in any format.

use std::path::PathBuf;

/// Why the format of a file cannot be told, or the file not be read as it is compressed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecognitionError {
    /// Neither name nor content tells the format.
    #[error("{}: is in no known format; name one with `format`, or check that it is the right file", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// Compressed in a way that is not read.
    #[error("{}: is compressed with {codec}, which is not read; decompress it, or compress it with gzip or zstd", path.display())]
    UnreadCodec {
        /// The file.
        path: PathBuf,
        /// What it is compressed with.
        codec: &'static str,
    },
    /// Compressed data of a format that is read in place.
    #[error("{}: holds compressed {kind}, which is read in place only; decompress it first", path.display())]
    CompressedBinary {
        /// The file.
        path: PathBuf,
        /// The format's name.
        kind: &'static str,
    },
}
