//! Custom functions.

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

/// A custom function as a stage. It may change fields, replace them by arrays of any type and shape, add some and
/// take some out, and a field "label" that it sets replaces the class. Fields that it adds are stacked, or ragged if
/// they are bytes, unless its output is declared ([`Function::giving`]).
pub struct Function {
    when: When,
    /// The declared output, if any.
    gives: Option<FieldSpecs>,
    function: Box<dyn StageFn>,
}

impl Function {
    /// Runs once each time an example is read.
    pub fn at_read(function: impl StageFn + 'static) -> Function {
        Function {
            when: When::Read,
            gives: None,
            function: Box::new(function),
        }
    }

    /// Runs at each appearance of an example.
    pub fn at_appearance(function: impl StageFn + 'static) -> Function {
        Function {
            when: When::Appearance,
            gives: None,
            function: Box::new(function),
        }
    }

    /// If exactly these fields are the output. Fields with known dimensions are written straight into the batch;
    /// an example with another type or shape is bad.
    pub fn giving(self, fields: FieldSpecs) -> Function {
        Function {
            gives: Some(fields),
            ..self
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
        if let Some(gives) = &self.gives {
            return Ok(gives.clone());
        }
        for field in &mut input.0 {
            // A single number may become anything too.
            field.dims = vec![None; field.dims.len().max(1)];
        }
        Ok(input)
    }

    fn is_open(&self) -> bool {
        self.gives.is_none()
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
