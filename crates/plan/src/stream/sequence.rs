//! The appearances of an epoch, in order, before they are put into batches.
//!
//! Examples go by their numbers here, `0..kept`: the records that a selection keeps, counted.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::batch::Draw;
use super::mixture::Mixture;
use crate::echo::{Echo, EchoPlan, Echoed};
use crate::error::PlanError;
use crate::plan::Plan;

/// The appearances of an epoch: a pure function of (source, echo, epoch, place).
///
/// Entering it costs the examples of two windows of the echo. What is found out is kept for two walkers, and a
/// third that trails them.
#[derive(Debug)]
pub(super) struct Sequence {
    source: Source,
    echo: EchoPlan,
    /// Most recently used first.
    phases: Mutex<Vec<HeldPhase>>,
}

/// Where the examples of an epoch come from.
#[derive(Debug)]
pub(super) enum Source {
    Plan(Plan),
    Mixture(Mixture),
}

const PHASES: usize = 3;

/// Examples looked up at a time.
const RUN: usize = 1024;

/// The fresh examples of a window of an echo and the repeats of the one before.
#[derive(Debug)]
struct HeldPhase {
    epoch: u64,
    number: u64,
    fresh: Window,
    before: Window,
    repeats: Vec<Echoed>,
}

/// The examples at neighbouring positions.
#[derive(Debug, Default)]
struct Window {
    first: u64,
    numbers: Vec<u64>,
}

impl Source {
    /// Examples of an epoch, the same in every one.
    pub(super) fn examples(&self) -> u64 {
        match self {
            Source::Plan(plan) => plan.records(),
            Source::Mixture(mixture) => mixture.examples(),
        }
    }

    /// The examples at positions `start..start + out.len()`.
    pub(super) fn fill(&self, epoch: u64, start: u64, out: &mut [u64]) {
        match self {
            Source::Plan(plan) => plan.fill_ids(epoch, start, out),
            Source::Mixture(mixture) => mixture.fill(epoch, start, out),
        }
    }

    /// Whether [`by_number`](Self::by_number) can be asked.
    pub(super) fn is_invertible(&self) -> bool {
        match self {
            Source::Plan(plan) => plan.is_invertible(),
            Source::Mixture(_) => true,
        }
    }

    /// Shows every example of an epoch with its position, in runs of consecutive numbers.
    /// Asserts that the order has an inverse.
    pub(super) fn by_number(&self, epoch: u64, visit: impl FnMut(&[u64], &[u64])) {
        match self {
            Source::Mixture(mixture) => mixture.by_number(epoch, visit),
            Source::Plan(plan) => plan.by_number(epoch, visit),
        }
    }

    /// Shows every example of an epoch with its position, in the order that is fastest.
    pub(super) fn each(&self, epoch: u64, mut visit: impl FnMut(&[u64], &[u64])) {
        if self.is_invertible() {
            return self.by_number(epoch, visit);
        }
        let (mut numbers, mut positions) = ([0; RUN], [0; RUN]);
        for first in (0..self.examples()).step_by(RUN) {
            let len = (self.examples() - first).min(RUN as u64) as usize;
            self.fill(epoch, first, &mut numbers[..len]);
            for (slot, position) in positions[..len].iter_mut().zip(first..) {
                *slot = position;
            }
            visit(&numbers[..len], &positions[..len]);
        }
    }

    pub(super) fn is_same_every_epoch(&self) -> bool {
        match self {
            Source::Plan(plan) => plan.is_same_every_epoch(),
            Source::Mixture(_) => false,
        }
    }

    pub(super) fn fingerprint(&self) -> u64 {
        match self {
            Source::Plan(plan) => plan.fingerprint(),
            Source::Mixture(mixture) => mixture.fingerprint(),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Source::Plan(plan) => plan.memory_bytes(),
            Source::Mixture(mixture) => mixture.memory_bytes(),
        }
    }
}

impl Sequence {
    pub(super) fn new(source: Source, echo: Echo, seed: u64) -> Result<Sequence, PlanError> {
        Ok(Sequence {
            echo: EchoPlan::new(source.examples(), echo, seed)?,
            source,
            phases: Mutex::default(),
        })
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn echo(&self) -> &EchoPlan {
        &self.echo
    }

    /// Appearances of an epoch.
    pub(super) fn appearances(&self) -> u64 {
        self.echo.appearances()
    }

    /// Appends the appearances at some places of an epoch, all of which exist.
    pub(super) fn fill(&self, epoch: u64, places: Range<u64>, out: &mut Vec<Draw>) {
        if self.echo.echo().is_none() {
            return self.fill_once(epoch, places, out);
        }
        let mut next = places.start;
        while next < places.end {
            let number = self.echo.phase_of(next);
            let held = self.take_phase(epoch, number);
            next = self.fill_phase(&held, next..places.end, out);
            let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
            phases.truncate(PHASES - 1);
            phases.insert(0, held);
        }
    }

    fn fill_once(&self, epoch: u64, places: Range<u64>, out: &mut Vec<Draw>) {
        let mut numbers = [0; RUN];
        let mut start = places.start;
        while start < places.end {
            let numbers = &mut numbers[..(places.end - start).min(RUN as u64) as usize];
            self.source.fill(epoch, start, numbers);
            out.extend((start..).zip(&*numbers).map(|(position, &id)| Draw {
                id,
                position,
                copy: 0,
                last: true,
            }));
            start += numbers.len() as u64;
        }
    }

    /// Appends the appearances at those of the places that lie in a phase, and returns the place after them.
    fn fill_phase(&self, held: &HeldPhase, places: Range<u64>, out: &mut Vec<Draw>) -> u64 {
        let phase = self.echo.phase(held.number);
        let end = places.end.min(phase.start + phase.len());
        let (fresh_len, len) = (phase.fresh.end - phase.fresh.start, phase.len());
        let slot = places.start - phase.start;
        let mut fresh = phase.fresh_before(slot);
        let mut repeats = slot - fresh;
        // The remainder of slot · fresh_len / len, whose quotient is the number of fresh ones before.
        let mut over = (u128::from(slot) * u128::from(fresh_len) % u128::from(len.max(1))) as u64;
        for _ in places.start..end {
            over += fresh_len;
            let echoed = if over >= len {
                over -= len;
                fresh += 1;
                Echoed {
                    position: phase.fresh.start + fresh - 1,
                    copy: 0,
                }
            } else {
                repeats += 1;
                held.repeats[repeats as usize - 1]
            };
            out.push(Draw {
                id: held.number_at(echoed.position),
                position: echoed.position,
                copy: echoed.copy,
                last: echoed.copy + 1 == self.echo.times_of(echoed.position),
            });
        }
        end
    }

    /// A phase with its examples, taken from those that are kept or made from the phase before it.
    fn take_phase(&self, epoch: u64, number: u64) -> HeldPhase {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let mut take = |number| {
            let place = |held: &HeldPhase| (held.epoch, held.number) == (epoch, number);
            let place = phases.iter().position(place);
            place.map(|place| phases.remove(place))
        };
        if let Some(held) = take(number) {
            return held;
        }
        let trailing = number.checked_sub(1).and_then(take);
        drop(phases);
        let window = |number| {
            let positions = self.echo.window(number);
            let mut numbers = vec![0; (positions.end - positions.start) as usize];
            self.source.fill(epoch, positions.start, &mut numbers);
            Window {
                first: positions.start,
                numbers,
            }
        };
        let (before, repeats) = match number.checked_sub(1) {
            Some(before) => (
                trailing.map_or_else(|| window(before), |held| held.fresh),
                self.echo.repeats(epoch, before),
            ),
            None => (Window::default(), Vec::new()),
        };
        HeldPhase {
            epoch,
            number,
            fresh: window(number),
            before,
            repeats,
        }
    }

    /// Memory it may come to hold.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes_with(self.echo.echo().window())
    }

    /// The same with another window of the echo.
    pub(super) fn memory_bytes_with(&self, window: u32) -> u64 {
        let echo = self.echo.echo();
        let held = if echo.is_none() {
            0
        } else {
            let window = u64::from(window).min(self.source.examples());
            16 * window + (16.0 * window as f64 * (echo.factor() - 1.0).ceil()) as u64
        };
        self.source.memory_bytes() + PHASES as u64 * held
    }
}

impl HeldPhase {
    fn number_at(&self, position: u64) -> u64 {
        let window = if position >= self.fresh.first && !self.fresh.numbers.is_empty() {
            &self.fresh
        } else {
            &self.before
        };
        window.numbers[(position - window.first) as usize]
    }
}
