//! Stages: the steps that process an example between storage and batch.

use std::any::Any;
use std::error::Error;

use pelton_batch::FieldSpecs;
use pelton_image::Pipeline;

use crate::sample::Sample;

/// A step in processing every example: decoding, tokenising, augmentation, a custom function.
///
/// The threads that make batches share a stage; the state of one thread is its [`Stage::work`].
pub trait Stage: Send + Sync {
    /// Its name in the meters; stages with the same name are counted together.
    fn name(&self) -> &'static str;

    /// The output fields for these input fields. Dimensions that vary from example to example are unknown; if all of
    /// a field's are known, its slot in the batch is known before it is made.
    ///
    /// Errors: fields that the stage cannot work on, in a sentence that says what to do.
    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String>;

    /// How often it runs.
    fn when(&self) -> When {
        When::Read
    }

    /// Whether the output may have other or fewer fields than [`Stage::spec`] names.
    fn is_open(&self) -> bool {
        false
    }

    /// Whether outputs should have one shape, although it is not known beforehand.
    fn makes_one_shape(&self) -> bool {
        false
    }

    /// A digest of settings that must not change when a run resumes from a saved state. Most stages may be changed
    /// between resumes.
    fn fingerprint(&self) -> Option<u64> {
        None
    }

    /// Approximate output bytes for `input` bytes, for examples of unknown size.
    fn bytes(&self, input: u64) -> u64 {
        input
    }

    /// State of one thread between examples, for instance memory.
    fn work(&self) -> Box<dyn Any + Send> {
        Box::new(())
    }

    /// Processes one example. All randomness must come from `at.key`.
    ///
    /// `slots` has the slots in the batch for fields of known size, for the last stage; fields written there are set
    /// to [`crate::Value::Written`].
    ///
    /// Errors: the problem of this example; it is passed on with the record's file and offset, and treated as
    /// [`crate::LoaderOptions::bad_examples`] says.
    fn run(
        &self,
        sample: &mut Sample<'_>,
        slots: &mut Slots<'_>,
        at: &Appearance,
        work: &mut dyn Any,
    ) -> Result<(), StageFailure>;

    /// Most examples that it takes at once, by [`Stage::run_together`]; 1 for stages that do not gain from several.
    fn together(&self) -> usize {
        1
    }

    /// Processes several examples; the same as [`Stage::run`] for each, without slots. A loader calls it for runs of
    /// its batches, as far as examples are not repeats.
    fn run_together(
        &self,
        samples: &mut [(&mut Sample<'_>, Appearance)],
    ) -> Vec<Result<(), StageFailure>> {
        let each = samples.iter_mut();
        each.map(|(sample, at)| self.run(sample, &mut Slots::default(), at, &mut ()))
            .collect()
    }

    /// The augmentation that this stage is, so that the decoding stage before it decodes only the needed part.
    fn augmentation(&self) -> Option<&Pipeline> {
        None
    }

    /// Counters for the report, by name.
    fn counted(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// How often a stage runs. Those that run once a read come before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Once each time an example is read: its repeats share the output, unless echo repeats records as read.
    Read,
    /// At each appearance, with its own key. Once a read, too, if echo repeats the output of all stages.
    Appearance,
}

/// The appearance and example that a stage processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appearance {
    /// Record id.
    pub id: u64,
    /// Index into the data set's label list.
    pub label: u32,
    /// How often the example came out before in this epoch; 0 in stages that run once for all its copies.
    pub copy: u32,
    /// A key for the randomness of this appearance: hash of seed, epoch, example and copy.
    pub key: u64,
    /// Whether this run sees the example for the first time.
    pub first: bool,
}

/// Why a stage failed; it is passed on with the record's location.
pub type StageFailure = Box<dyn Error + Send + Sync>;

/// Free slots in the batch for one example's fields of known size.
#[derive(Debug, Default)]
pub struct Slots<'a> {
    places: Vec<(&'a str, &'a mut [u8])>,
    /// The augmentation that comes next, if it is the only use of the decoded picture.
    pub(crate) next: Option<&'a Pipeline>,
}

impl<'a> Slots<'a> {
    /// Those of a stage before the last: none, but the augmentation that comes next.
    pub(crate) fn before(next: Option<&'a Pipeline>) -> Slots<'a> {
        Slots {
            places: Vec::new(),
            next,
        }
    }

    pub(crate) fn push(&mut self, name: &'a str, place: &'a mut [u8]) {
        self.places.push((name, place));
    }

    /// The slot of the field of this name: to be written as a whole.
    pub fn take(&mut self, name: &str) -> Option<&'a mut [u8]> {
        let i = self.places.iter().position(|(known, _)| *known == name)?;
        Some(self.places.swap_remove(i).1)
    }
}
