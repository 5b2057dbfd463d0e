//! What happens to a record between storage and batch.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use pelton_format::{Contents, Dataset};
use pelton_image::Pixels;
use pelton_text::{Ends, Vocabulary};

/// One example on its way through the stages.
#[derive(Clone, Debug, PartialEq)]
pub enum Sample {
    /// Bytes of any kind: records as they are stored.
    Bytes(Vec<u8>),
    /// A picture, height × width × channels.
    Pixels(Pixels),
    /// Numbers of a vocabulary.
    Tokens(Vec<u32>),
    /// Numbers of the given shape.
    Values {
        /// Lengths of the dimensions; their product is the number of values.
        shape: Vec<usize>,
        /// The last dimension's neighbours lie side by side.
        values: Vec<f32>,
    },
}

impl Sample {
    /// What kind of sample it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Sample::Bytes(_) => "bytes",
            Sample::Pixels(_) => "a picture",
            Sample::Tokens(_) => "tokens",
            Sample::Values { .. } => "numbers",
        }
    }

    /// Bytes of its elements.
    pub fn data_bytes(&self) -> usize {
        match self {
            Sample::Bytes(bytes) => bytes.len(),
            Sample::Pixels(pixels) => pixels.data().len(),
            Sample::Tokens(tokens) => 4 * tokens.len(),
            Sample::Values { values, .. } => 4 * values.len(),
        }
    }
}

/// Which appearance of which example a user's function is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appearance {
    /// Record id.
    pub id: u64,
    /// Index into the data set's label list.
    pub label: u32,
    /// How often the example came out before in this epoch.
    pub copy: u32,
    /// A key for whatever is random about this appearance: hash of seed, epoch, example and copy.
    pub key: u64,
}

/// What a user's function returns when it fails; it is passed on with the record's place.
pub type StageFailure = Box<dyn Error + Send + Sync>;

/// A user's function over samples. It runs on several threads.
pub type SampleFn = Arc<dyn Fn(&mut Sample, &Appearance) -> Result<(), StageFailure> + Send + Sync>;

/// How the bytes of a record become a sample.
#[derive(Clone, Default)]
pub enum Decode {
    /// Bytes as they are; pictures of known shape, and rows of features, as what they are.
    #[default]
    None,
    /// JPEG, PNG or WebP, told apart by content. Of a sample of tar members the first with one of these
    /// extensions is taken.
    Image {
        /// Extensions of tar members, without the dot.
        members: Vec<String>,
        /// Most pixels of a picture; a larger one is a bad record.
        most_pixels: u64,
        /// What is done with an orientation that its EXIF data state.
        exif: Exif,
    },
    /// Text to numbers of a vocabulary.
    Tokens {
        /// Extensions of tar members, without the dot.
        members: Vec<String>,
        /// Numbers of the tokens.
        vocabulary: Arc<Vocabulary>,
        /// What is put before and behind a sentence.
        ends: Ends,
    },
    /// The bytes of one member of a tar sample.
    Member(Vec<String>),
}

impl Decode {
    /// Largest picture where nothing is said: 100 million pixels.
    pub const MOST_PIXELS: u64 = 100_000_000;

    /// Pictures of one or all of the known kinds: `jpg`, `png`, `webp` or `image`.
    pub fn image(kind: &str) -> Option<Decode> {
        let members: &[&str] = match kind {
            "jpg" | "jpeg" => &["jpg", "jpeg"],
            "png" => &["png"],
            "webp" => &["webp"],
            "image" => &["jpg", "jpeg", "png", "webp"],
            _ => return None,
        };
        Some(Decode::Image {
            members: members.iter().map(|&member| member.to_owned()).collect(),
            most_pixels: Decode::MOST_PIXELS,
            exif: Exif::default(),
        })
    }

    /// Extensions of the tar members that are decoded; empty for whole records.
    pub(crate) fn members(&self) -> &[String] {
        match self {
            Decode::None => &[],
            Decode::Image { members, .. }
            | Decode::Tokens { members, .. }
            | Decode::Member(members) => members,
        }
    }
}

impl fmt::Debug for Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decode::None => f.write_str("None"),
            Decode::Image { members, .. } => write!(f, "Image({members:?})"),
            Decode::Tokens { vocabulary, .. } => write!(f, "Tokens({})", vocabulary.tokenizer()),
            Decode::Member(members) => write!(f, "Member({members:?})"),
        }
    }
}

/// What is done with the orientation that the EXIF data of a picture state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exif {
    /// Nothing: pixels come as they are stored, as torchvision and TensorFlow have it.
    #[default]
    Ignore,
    /// The picture is turned and mirrored until it is upright.
    Apply,
}

impl fmt::Display for Exif {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exif::Ignore => "ignore",
            Exif::Apply => "apply",
        })
    }
}

impl FromStr for Exif {
    type Err = String;

    fn from_str(text: &str) -> Result<Exif, String> {
        match text {
            "ignore" => Ok(Exif::Ignore),
            "apply" => Ok(Exif::Apply),
            _ => Err(format!(
                "`{text}` is nothing to do with EXIF orientations: use ignore or apply"
            )),
        }
    }
}

/// How the samples of a batch are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Collate {
    /// `stack` for augmented pictures and where every sample has one shape by construction; `pad` for
    /// tokens; otherwise `ragged`.
    #[default]
    Auto,
    /// One after another; they must have one shape.
    Stack,
    /// Along the first dimension to one length: that of the bucket where there are buckets, otherwise the
    /// longest of the batch.
    Pad,
    /// One after another with offsets.
    Ragged,
}

impl fmt::Display for Collate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Collate::Auto => "auto",
            Collate::Stack => "stack",
            Collate::Pad => "pad",
            Collate::Ragged => "ragged",
        })
    }
}

impl FromStr for Collate {
    type Err = String;

    fn from_str(text: &str) -> Result<Collate, String> {
        Ok(match text {
            "auto" => Collate::Auto,
            "stack" => Collate::Stack,
            "pad" => Collate::Pad,
            "ragged" => Collate::Ragged,
            _ => {
                return Err(format!(
                    "`{text}` is not a way to put batches together: use auto, stack, pad or ragged"
                ));
            }
        })
    }
}

/// The stages that a record goes through, in this order.
#[derive(Clone, Default)]
pub struct Stages {
    /// Bytes to a sample: once for each time an example is read.
    pub decode: Decode,
    /// A user's function behind it, once for each time an example is read.
    pub map: Option<SampleFn>,
    /// Augmentation of pictures: for each appearance, or once where echo comes after it.
    pub augment: Option<Arc<pelton_image::Pipeline>>,
    /// A user's augmentation behind it; with it the shape of samples is not known before.
    pub map_each: Option<SampleFn>,
    /// Whether pictures are put out as all of one channel before the next.
    pub planar: bool,
    /// Samples to a batch.
    pub collate: Collate,
}

impl Stages {
    /// Whether samples are pictures when they are augmented, as far as that can be known.
    pub(crate) fn gives_pictures(&self, dataset: &Dataset) -> bool {
        matches!(self.decode, Decode::Image { .. })
            || matches!(dataset.contents(), Contents::Pixels { .. })
            || self.map.is_some()
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stages")
            .field("decode", &self.decode)
            .field("map", &self.map.is_some())
            .field("augment", &self.augment.as_ref().map(|a| a.to_string()))
            .field("map_each", &self.map_each.is_some())
            .field("collate", &self.collate)
            .finish()
    }
}
