//! What can be wrong with an image or with what is asked of it.

use crate::Format;

/// Why an image was refused or an augmentation cannot be done. Each message is a sentence about the
/// bytes or the text alone; the one that read them adds the file and the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The first bytes belong to none of the formats.
    #[error(
        "the bytes are no JPEG, PNG or WebP image, whatever their name says: they begin with {}",
        Beginning(.begins)
    )]
    NotAnImage {
        /// The first bytes, at most eight.
        begins: Vec<u8>,
    },
    /// The image has no pixels.
    #[error("the {format} image is {width} pixels wide and {height} high, so it has none")]
    NoPixels {
        /// The format.
        format: Format,
        /// Width as declared.
        width: u32,
        /// Height as declared.
        height: u32,
    },
    /// The image declares more pixels than allowed; nothing was allocated for it.
    #[error(
        "the {format} image declares {width} x {height} pixels, more than the {most} that are allowed"
    )]
    TooManyPixels {
        /// The format.
        format: Format,
        /// Width as declared.
        width: u32,
        /// Height as declared.
        height: u32,
        /// Most pixels allowed.
        most: u64,
    },
    /// The bytes end before the image does.
    #[error("the {format} image is cut short: its {found} bytes end before the image does")]
    CutShort {
        /// The format.
        format: Format,
        /// Bytes there are.
        found: usize,
    },
    /// The image is damaged.
    #[error("the {format} image is damaged: {reason}")]
    Damaged {
        /// The format.
        format: Format,
        /// What the decoder found.
        reason: String,
    },
    /// The image is sound perhaps, but of a kind that is not decoded.
    #[error("the {format} image is of a kind that cannot be decoded: {reason}")]
    Unsupported {
        /// The format.
        format: Format,
        /// The kind.
        reason: String,
    },
    /// A part of an augmentation's text is no known stage.
    #[error(
        "augmentation '{text}' is not known: use resize:S, resize:HxW, crop:S, randomcrop:S[:PAD], \
         rrc:S[:MIN-MAX], flip[:P], jitter:B[:C[:S[:H]]], cutout:S, grey or \
         normalise[:MEANS:DEVIATIONS], with commas between stages, for instance rrc:224,flip,normalise"
    )]
    UnknownStage {
        /// The part as given.
        text: String,
    },
    /// A number of a stage is missing, superfluous or outside what it may be.
    #[error("'{text}' asks for what {stage} cannot do: {rule}")]
    BadStage {
        /// The stage as given.
        text: String,
        /// The name of the stage.
        stage: &'static str,
        /// What is allowed.
        rule: &'static str,
    },
    /// Stages stand in an order in which they cannot act.
    #[error(
        "'{stage}' cannot follow normalise, which makes floats of bytes: only cutout may come after it"
    )]
    AfterNormalise {
        /// The stage that follows.
        stage: String,
    },
    /// Normalisation states three means, and the output has one channel.
    #[error(
        "normalise has a mean for each of three channels and the output has one: give one mean and \
         deviation, for instance normalise:0.449:0.226"
    )]
    NormaliseChannels,
    /// Bytes are asked of a pipeline that normalises.
    #[error("normalise makes floats, which bytes cannot hold: ask for floats or leave it out")]
    NormaliseBytes,
    /// A random crop does not fit into the image.
    #[error(
        "randomcrop takes {side} x {side} pixels and the image has {width} x {height} with its \
         padding: resize it first"
    )]
    SmallerThanCrop {
        /// Side of the crop.
        side: u32,
        /// Width of the padded image.
        width: u32,
        /// Height of the padded image.
        height: u32,
    },
    /// A resized image would be larger than allowed.
    #[error(
        "resize would make {width} x {height} pixels of a {from_width} x {from_height} image, more \
         than {most}: give both sides, for instance resize:256x256"
    )]
    ResizedTooLarge {
        /// Width it would have.
        width: u64,
        /// Height it would have.
        height: u64,
        /// Width it has.
        from_width: u32,
        /// Height it has.
        from_height: u32,
        /// Most pixels allowed.
        most: u64,
    },
}

/// The first bytes of something, as hexadecimal digits.
struct Beginning<'a>(&'a [u8]);

impl std::fmt::Display for Beginning<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (place, byte) in self.0.iter().enumerate() {
            let gap = if place > 0 { " " } else { "" };
            write!(f, "{gap}{byte:02x}")?;
        }
        Ok(())
    }
}
