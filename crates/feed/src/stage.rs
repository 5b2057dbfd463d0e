//! What happens to an example between storage and batch, step by step.

use std::any::Any;
use std::error::Error;

use pelton_batch::FieldSpecs;
use pelton_image::Pipeline;

use crate::sample::Sample;

/// Something that is done to every example: decoding, numbering of words, augmentation, a function of one's own.
///
/// A stage is shared by the threads that make batches; what a thread needs for itself is its [`Stage::work`].
pub trait Stage: Send + Sync {
    /// Its name in the meters: what several stages share is counted together.
    fn name(&self) -> &'static str;

    /// The fields that come out where these come in. Dimensions that vary from example to example are not known;
    /// where all of a field's are, its place in the batch is known before it is made.
    ///
    /// Errors: fields that the stage cannot work on, in a sentence that says what to do.
    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String>;

    /// How often it runs.
    fn when(&self) -> When {
        When::Read
    }

    /// Whether fields may come out that [`Stage::spec`] does not name, or fewer.
    fn is_open(&self) -> bool {
        false
    }

    /// Whether what comes out is meant to have one shape, though it is not known which.
    fn makes_one_shape(&self) -> bool {
        false
    }

    /// A digest of what must be as it was when a run goes on from a saved state. Most stages may be changed on the
    /// way.
    fn fingerprint(&self) -> Option<u64> {
        None
    }

    /// About how many bytes come out where `input` bytes come in, for examples whose size is not known.
    fn bytes(&self, input: u64) -> u64 {
        input
    }

    /// What one thread keeps from example to example, for instance memory.
    fn work(&self) -> Box<dyn Any + Send> {
        Box::new(())
    }

    /// Does it to one example. What is random must come from `at.key` alone.
    ///
    /// `slots` has the places in the batch of fields whose size is known, for the last stage; what is written there
    /// is set to [`crate::Value::Written`].
    ///
    /// Errors: what is wrong with this example; it is passed on with the record's file and place, and treated as
    /// [`crate::LoaderOptions::bad_examples`] says.
    fn run(
        &self,
        sample: &mut Sample<'_>,
        slots: &mut Slots<'_>,
        at: &Appearance,
        work: &mut dyn Any,
    ) -> Result<(), StageFailure>;

    /// The augmentation of pictures that it is, for a stage that decodes them before it: only what that looks at needs
    /// to be decoded.
    fn augmentation(&self) -> Option<&Pipeline> {
        None
    }

    /// What it counted: how often something was met that a report should tell, by name.
    fn counted(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// How often a stage runs. Those that run once a read come before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Once each time an example is read: its repeats share what came out, where echo does not repeat what was read.
    Read,
    /// At each appearance, with a key of its own. Where echo repeats what is behind all stages, also once a read.
    Appearance,
}

/// Which appearance of which example a stage is given.
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
    /// Whether this run has not met the example before.
    pub first: bool,
}

/// Why a stage failed; it is passed on with the record's place.
pub type StageFailure = Box<dyn Error + Send + Sync>;

/// Places in the batch of one example's fields, as far as sizes are known and they are still free.
#[derive(Debug, Default)]
pub struct Slots<'a> {
    places: Vec<(&'a str, &'a mut [u8])>,
    /// The augmentation that comes next, and is all that comes of what is decoded.
    pub(crate) next: Option<&'a Pipeline>,
}

impl<'a> Slots<'a> {
    /// Those of a stage before the last, which are none, where this augmentation comes next.
    pub(crate) fn before(next: Option<&'a Pipeline>) -> Slots<'a> {
        Slots {
            places: Vec::new(),
            next,
        }
    }

    pub(crate) fn push(&mut self, name: &'a str, place: &'a mut [u8]) {
        self.places.push((name, place));
    }

    /// The place of the field of this name: to be written as a whole.
    pub fn take(&mut self, name: &str) -> Option<&'a mut [u8]> {
        let i = self.places.iter().position(|(known, _)| *known == name)?;
        Some(self.places.swap_remove(i).1)
    }
}
