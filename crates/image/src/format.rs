//! Formats of images, and their first bytes.

use std::fmt;

/// The encoding of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG: baseline and progressive.
    Jpeg,
    /// PNG.
    Png,
    /// WebP, lossy and lossless.
    Webp,
    /// BMP.
    Bmp,
    /// GIF.
    Gif,
    /// PBM, PGM and PPM, as text or bytes.
    Pnm,
    /// TIFF.
    Tiff,
}

impl Format {
    /// The format of an image that begins with these bytes.
    ///
    /// ```
    /// use pelton_image::Format;
    /// assert_eq!(Format::detect(b"\x89PNG\r\n\x1a\n..."), Some(Format::Png));
    /// assert_eq!(Format::detect(b"GIF89a"), Some(Format::Gif));
    /// assert_eq!(Format::detect(b"%PDF-1.7"), None);
    /// ```
    pub fn detect(bytes: &[u8]) -> Option<Format> {
        match bytes {
            [0xFF, 0xD8, 0xFF, ..] => Some(Format::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some(Format::Png),
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'E',
                b'B',
                b'P',
                ..,
            ] => Some(Format::Webp),
            [b'B', b'M', ..] => Some(Format::Bmp),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Format::Gif),
            [b'P', b'1'..=b'6', b'#' | b' ' | b'\t' | b'\r' | b'\n', ..] => Some(Format::Pnm),
            [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Some(Format::Tiff),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::Webp => "WebP",
            Format::Bmp => "BMP",
            Format::Gif => "GIF",
            Format::Pnm => "PNM",
            Format::Tiff => "TIFF",
        })
    }
}
