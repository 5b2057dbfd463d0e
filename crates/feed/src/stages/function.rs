//! Functions of one's own.

use std::any::Any;

use pelton_batch::FieldSpecs;

use crate::sample::Sample;
use crate::stage::{Appearance, Slots, Stage, StageFailure, When};

/// A function over samples. It runs on several threads.
pub trait StageFn:
    Fn(&mut Sample<'_>, &Appearance) -> Result<(), StageFailure> + Send + Sync
{
}

impl<F> StageFn for F where
    F: Fn(&mut Sample<'_>, &Appearance) -> Result<(), StageFailure> + Send + Sync
{
}

/// A function of one's own as a stage. It may change, add and take out fields, so that nothing is known of their
/// dimensions; who knows them writes a [`Stage`].
pub struct Function {
    when: When,
    function: Box<dyn StageFn>,
}

impl Function {
    /// Runs once each time an example is read.
    pub fn at_read(function: impl StageFn + 'static) -> Function {
        Function {
            when: When::Read,
            function: Box::new(function),
        }
    }

    /// Runs at each appearance of an example.
    pub fn at_appearance(function: impl StageFn + 'static) -> Function {
        Function {
            when: When::Appearance,
            function: Box::new(function),
        }
    }
}

impl Stage for Function {
    fn name(&self) -> &'static str {
        match self.when {
            When::Read => "map",
            When::Appearance => "augment",
        }
    }

    fn spec(&self, mut input: FieldSpecs) -> Result<FieldSpecs, String> {
        for field in &mut input.0 {
            field.dims = vec![None; field.dims.len()];
        }
        Ok(input)
    }

    fn when(&self) -> When {
        self.when
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        _: &mut Slots<'_>,
        at: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let when = match self.when {
            When::Read => "read",
            When::Appearance => "augmented",
        };
        (self.function)(sample, at)
            .map_err(|failure| format!("the function over {when} samples failed: {failure}").into())
    }
}
