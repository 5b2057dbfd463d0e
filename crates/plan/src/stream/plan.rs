//! Any step of any epoch of a stream.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::batch::StreamBatch;
use super::selection::Selection;
use super::sequence::{Sequence, Source};
use super::spec::StreamSpec;
use crate::batching::{Batching, Cuts};
use crate::echo::{Echo, EchoPlan, Echoed};
use crate::error::PlanError;
use crate::order::Order;
use crate::plan::Plan;
use crate::randomness::Randomness;
use crate::units::Units;

/// Which examples each step of each epoch uses: a pure function of what it was made from.
#[derive(Debug)]
pub struct StreamPlan {
    batches: Batches,
    selection: Option<Selection>,
    batch_echo: Echo,
    seed: u64,
    fingerprint: u64,
}

/// The fresh batches of an epoch.
#[derive(Debug)]
enum Batches {
    Runs(Runs),
}

/// Batches of neighbouring appearances.
#[derive(Debug)]
struct Runs {
    sequence: Sequence,
    /// `None` where the batches are the plan's own, of units or blocks.
    cuts: Option<Cuts>,
    /// Epoch, step and the place at which it begins.
    place: Mutex<(u64, u64, u64)>,
}

impl StreamPlan {
    /// A stream over the records `0..records`.
    pub fn new(
        records: u64,
        spec: &StreamSpec,
        selection: Option<Selection>,
        units: Option<Units>,
        length_of: Option<&dyn Fn(u64) -> u32>,
    ) -> Result<StreamPlan, PlanError> {
        let _ = length_of;
        let kept = selection.as_ref().map_or(records, Selection::len);
        let batching = match spec.drop_last {
            true => Batching::DropLast(spec.batch),
            false => Batching::Examples(spec.batch),
        };
        let plan = match units {
            Some(units) => {
                Plan::new(kept, spec.order, Batching::Examples(1), spec.seed)?;
                Plan::over_units(units, spec.order, batching, spec.seed)?
            }
            None => Plan::new(kept, spec.order, batching, spec.seed)?,
        };
        let fingerprint = plan.fingerprint();
        let own = matches!(spec.order, Order::Page { .. } | Order::Block { .. });
        let sequence = Sequence::new(Source::Plan(plan), spec.echo, spec.seed)?;
        let cuts = match own && spec.echo.is_none() {
            true => None,
            false => Some(Cuts::new(batching, sequence.appearances(), 1.0)?),
        };
        Ok(StreamPlan {
            batches: Batches::Runs(Runs {
                sequence,
                cuts,
                place: Mutex::default(),
            }),
            selection,
            batch_echo: spec.batch_echo,
            seed: spec.seed,
            fingerprint,
        })
    }
    /// Steps
    pub fn steps(&self, epoch: u64) -> u64 {
        self.batches_echoed(epoch).appearances()
    }
    fn batches_echoed(&self, epoch: u64) -> EchoPlan {
        let Batches::Runs(runs) = &self.batches;
        let _ = epoch;
        EchoPlan::of_batches(runs.steps(), self.batch_echo, self.seed).unwrap()
    }
    /// The batch
    pub fn batch(&self, epoch: u64, step: u64, out: &mut StreamBatch) {
        out.clear();
        let echo = self.batches_echoed(epoch);
        let steps = echo.appearances();
        assert!(step < steps, "step {step} of {steps} an epoch");
        let mut echoed = Vec::new();
        echo.fill(epoch, step..step + 1, &mut echoed);
        let Echoed { position, copy } = echoed[0];
        let Batches::Runs(runs) = &self.batches;
        runs.fill(epoch, position, out);
        if let Some(selection) = &self.selection {
            for draw in &mut out.draws {
                draw.id = selection.get(draw.id);
            }
        }
        if !self.batch_echo.is_none() {
            out.last = copy + 1 == echo.times_of(position);
            out.repeat_of = (copy > 0).then_some(position);
            for draw in &mut out.draws {
                draw.copy = copy;
                draw.last = out.last;
            }
        }
    }
    /// Examples of an epoch.
    pub fn examples(&self, _epoch: u64) -> u64 {
        let Batches::Runs(runs) = &self.batches;
        runs.sequence.source().examples()
    }
    /// Appearances of an epoch.
    pub fn appearances(&self, _epoch: u64) -> u64 {
        let Batches::Runs(runs) = &self.batches;
        runs.sequence.appearances()
    }
    /// Largest.
    pub fn largest_batch(&self) -> u64 {
        let Batches::Runs(runs) = &self.batches;
        match (&runs.cuts, runs.sequence.source()) {
            (None, Source::Plan(plan)) => plan.largest_step(),
            (cuts, _) => cuts.map_or(0, |cuts| cuts.longest()),
        }
    }
    /// Held.
    pub fn most_held(&self) -> u64 {
        let Batches::Runs(runs) = &self.batches;
        let window = |echo: Echo| {
            if echo.is_none() {
                0
            } else {
                2 * u64::from(echo.window())
            }
        };
        let batches = window(self.batch_echo).saturating_mul(self.largest_batch());
        (window(runs.sequence.echo().echo()) + batches).min(self.examples(0))
    }
    /// Memory.
    pub fn memory_bytes(&self) -> u64 {
        let Batches::Runs(runs) = &self.batches;
        runs.sequence.memory_bytes()
    }
    /// Draws of each part of a mixture in an epoch; empty where there is none.
    pub fn realised_mixture(&self, _epoch: u64) -> Vec<u64> {
        Vec::new()
    }
    /// Randomness of the order.
    pub fn randomness(&self) -> Option<Randomness> {
        None
    }
    /// fp
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Runs {
    fn steps(&self) -> u64 {
        match (&self.cuts, self.sequence.source()) {
            (Some(cuts), _) => cuts.steps(),
            (None, Source::Plan(plan)) => plan.steps(),
            _ => unreachable!("a mixture is cut"),
        }
    }

    fn places(&self, epoch: u64, step: u64) -> Range<u64> {
        let plan = match (&self.cuts, self.sequence.source()) {
            (Some(cuts), _) => return cuts.range(step),
            (None, Source::Plan(plan)) => plan,
            _ => unreachable!("a mixture is cut"),
        };
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let start = match *place {
            (known, next, start) if (known, next) == (epoch, step) => start,
            _ => plan.step_positions(epoch, step).start,
        };
        let end = start + plan.step_len(epoch, step);
        *place = (epoch, step + 1, end);
        start..end
    }

    fn fill(&self, epoch: u64, step: u64, out: &mut StreamBatch) {
        let places = self.places(epoch, step);
        self.sequence.fill(epoch, places, &mut out.draws);
    }
}
