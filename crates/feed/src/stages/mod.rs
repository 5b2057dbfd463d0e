//! The stages that Pelton has, and the list of them that a loader is given.

mod augment;
mod decode_fields;
mod decode_image;
mod function;
mod kept;
mod members;
mod tokenise;

use std::fmt;
use std::sync::Arc;

use pelton_batch::FieldSpecs;
use pelton_format::Dataset;

pub use augment::AugmentImages;
pub use decode_fields::DecodeFields;
pub use decode_image::{DecodeImages, Exif};
pub use function::{Function, StageFn};
pub use kept::Kept;
pub use members::TakeMember;
pub use tokenise::Tokenise;

use crate::collation::Collation;
use crate::options::EchoPoint;
use crate::stage::{Stage, When};

/// Pictures.
pub const IMAGE: &str = "image";
/// Numbers of a vocabulary.
pub const TOKENS: &str = "tokens";
/// Those of the second sides of pairs.
pub const TARGET_TOKENS: &str = "target_tokens";
/// Rows of numbers.
pub const FEATURES: &str = "features";
/// Lines or runs of text.
pub const TEXT: &str = "text";
/// Records of any other kind, as they are stored.
pub const BYTES: &str = "bytes";
/// Tar samples, as they are stored.
pub const MEMBERS: &str = "members";
/// Classes as 64-bit integers, or numbers of single precision.
pub const LABEL: &str = "label";

/// Whether pictures with this name are masks: their pixels move with those of the picture, and are classes.
pub(crate) fn is_mask(name: &str) -> bool {
    name.starts_with("mask")
}

/// The fields that the lengths for buckets refer to, and that are padded to the length of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LengthsOf {
    /// Of the samples: every field is padded to it.
    #[default]
    Samples,
    /// One field, and only that is padded.
    Field(Arc<str>),
    /// Of something else: fields are padded to the longest of their batch.
    Other,
}

/// Whether decoded fields of this name are pictures or masks.
pub(crate) fn is_picture(name: &str) -> bool {
    name.starts_with(IMAGE) || is_mask(name)
}

/// Whether numbers with this name are boxes, which move with the pixels: rows of left, top, right and bottom.
pub(crate) fn is_box(name: &str) -> bool {
    name.starts_with("box")
}

/// Whether the name suggests positions in a picture: boxes, keypoints and others.
pub(crate) fn names_places(name: &str) -> bool {
    let name = name.to_lowercase();
    ["box", "keypoint", "landmark", "polygon"]
        .iter()
        .any(|kind| name.contains(kind))
}

/// The stages that a record goes through, in order, and how batches are collated after them.
#[derive(Clone, Default)]
pub struct Stages {
    list: Vec<Arc<dyn Stage>>,
    /// Whether pictures have channels first.
    pub(crate) planar: bool,
    /// Samples to a batch.
    pub(crate) collation: Collation,
    pub(crate) lengths_of: LengthsOf,
}

impl Stages {
    /// Appends a stage. Panics if it runs once a read and one before it at each appearance.
    pub fn then(self, stage: impl Stage + 'static) -> Stages {
        self.then_shared(Arc::new(stage))
    }

    /// The same, with a stage that the caller keeps a reference to.
    pub fn then_shared(mut self, stage: Arc<dyn Stage>) -> Stages {
        let before = self.list.last().map_or(When::Read, |last| last.when());
        assert!(
            before <= stage.when(),
            "stages that run once a read come first"
        );
        self.list.push(stage);
        self
    }

    /// Appends a stage to those that run equally often.
    pub fn inserted(mut self, stage: Arc<dyn Stage>) -> Stages {
        let at = self
            .list
            .partition_point(|known| known.when() <= stage.when());
        self.list.insert(at, stage);
        self
    }

    /// With the output of the stages so far kept in memory as far as there is room; of those that run once a read, if `at_read`.
    pub fn kept(mut self, bytes: u64, at_read: bool) -> Stages {
        let end = if at_read {
            self.at_read()
        } else {
            self.list.len()
        };
        let stages: Vec<Arc<dyn Stage>> = self.list.drain(..end).collect();
        self.list.insert(0, Arc::new(Kept::new(stages, bytes)));
        self
    }

    /// With samples collated like this.
    pub fn collated(self, collation: impl Into<Collation>) -> Stages {
        let collation = collation.into();
        Stages { collation, ..self }
    }

    /// For buckets by lengths of something other than the samples.
    pub fn with_lengths_of(self, lengths_of: LengthsOf) -> Stages {
        Stages { lengths_of, ..self }
    }

    /// Sets whether pictures that are not augmented have channels first.
    pub fn planar(self, planar: bool) -> Stages {
        Stages { planar, ..self }
    }

    /// The stages in order.
    pub fn list(&self) -> &[Arc<dyn Stage>] {
        &self.list
    }

    /// Most examples that one of them takes at once.
    pub(crate) fn together(&self) -> usize {
        let each = self.list.iter().map(|stage| stage.together());
        each.max().unwrap_or(1)
    }

    /// How many of them run once a read.
    pub(crate) fn at_read(&self) -> usize {
        self.list
            .partition_point(|stage| stage.when() == When::Read)
    }

    /// How many of them run once for all repeats of an example; the others run at each appearance.
    pub(crate) fn once(&self, point: EchoPoint) -> usize {
        match point {
            EchoPoint::Read => 0,
            EchoPoint::BeforeAugment => self.at_read(),
            EchoPoint::AfterAugment => self.list.len(),
        }
    }

    /// The output of the last stage for the records of `dataset`, without their labels.
    ///
    /// Errors: stages that do not go together, or not with this data.
    pub fn spec(&self, dataset: &Dataset) -> Result<FieldSpecs, String> {
        let first = dataset.fields();
        let mut stages = self.list.iter();
        let mut fields = stages.try_fold(first, |fields, stage| stage.spec(fields))?;
        let augmented = self.list.iter().any(|stage| stage.makes_one_shape());
        if self.planar
            && !augmented
            && let Some(image) = fields.0.iter_mut().find(|field| &*field.name == IMAGE)
        {
            image.dims.rotate_right(1);
        }
        Ok(fields)
    }

    /// A digest of settings that must not change when a run resumes.
    pub(crate) fn fingerprint(&self) -> Option<u64> {
        let mut digests = self.list.iter().filter_map(|stage| stage.fingerprint());
        let first = digests.next()?;
        // Prime and odd, so that the order of stages counts.
        Some(digests.fold(first, |all, next| {
            all.wrapping_mul(0x0000_0100_0000_01b3) ^ next
        }))
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.list.iter().map(|stage| stage.name()).collect();
        f.debug_struct("Stages")
            .field("list", &names)
            .field("planar", &self.planar)
            .field("collation", &self.collation)
            .finish()
    }
}
