//! The appearances of an epoch, in order, before they are put into batches.

use crate::echo::{Echo, EchoPlan, Echoes};
use crate::error::PlanError;
use crate::ids::{Examples, IdWalk};
use crate::step_batch::Draw;

/// The appearances of an epoch: a pure function of (examples, echo, epoch, index).
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) examples: Examples,
    pub(crate) echo: EchoPlan,
}

/// The appearances of an epoch from an index on.
#[derive(Debug)]
pub(crate) struct Appearances {
    epoch: u64,
    place: u64,
    ids: IdWalk,
    /// The numbers of the examples of two windows, if they are echoed.
    echoes: Option<Echoes<u64>>,
}

/// Examples looked up at a time.
const RUN: u64 = 1024;

impl Sequence {
    pub(crate) fn new(examples: Examples, echo: Echo) -> Result<Sequence, PlanError> {
        Ok(Sequence {
            echo: EchoPlan::new(examples.len, echo, examples.seed)?,
            examples,
        })
    }

    /// Appearances of an epoch.
    pub(crate) fn len(&self) -> u64 {
        self.echo.appearances()
    }

    pub(crate) fn walk(&self, epoch: u64, place: u64) -> Appearances {
        let mut walk = Appearances {
            epoch,
            place: 0,
            ids: self.examples.walk(epoch, 0),
            echoes: None,
        };
        walk.seek(self, place);
        walk
    }

    /// Memory that a walk takes, with the window of the echo or another one.
    pub(crate) fn memory_bytes(&self, window: Option<u32>) -> u64 {
        let echo = self.echo.echo();
        let examples = self.examples.len;
        let window = window
            .map_or(echo.window(examples), u64::from)
            .min(examples);
        let held = if echo.is_none() {
            0
        } else {
            16 * window + (16.0 * window as f64 * (echo.factor() - 1.0).ceil()) as u64
        };
        self.examples.ids.memory_bytes() + held
    }
}

impl Appearances {
    /// The index of the next appearance.
    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    /// Moves to an appearance of the epoch.
    pub(crate) fn seek(&mut self, sequence: &Sequence, place: u64) {
        self.place = place;
        if sequence.echo.echo().is_none() {
            self.ids.seek(place);
            return;
        }
        let echo = &sequence.echo;
        self.ids.seek(Echoes::<u64>::first_made(echo, place));
        let ids = &mut self.ids;
        let mut make = |positions, into: &mut Vec<u64>| fill(ids, positions, into);
        self.echoes = Some(Echoes::at(echo, self.epoch, place, &mut make));
    }

    /// Appends the next appearances; the epoch must have this many.
    pub(crate) fn read(&mut self, sequence: &Sequence, count: u64, out: &mut Vec<Draw>) {
        out.reserve(count as usize);
        let Appearances { ids, echoes, .. } = self;
        match echoes {
            None => {
                let mut numbers = [0; RUN as usize];
                for first in (0..count).step_by(RUN as usize) {
                    let numbers = &mut numbers[..(count - first).min(RUN) as usize];
                    let position = ids.position();
                    ids.fill(numbers);
                    out.extend((position..).zip(&*numbers).map(|(position, &id)| Draw {
                        id,
                        position,
                        copy: 0,
                        last: true,
                    }));
                }
            }
            Some(echoes) => {
                let echo = &sequence.echo;
                let mut make = |positions, into: &mut Vec<u64>| fill(ids, positions, into);
                for _ in 0..count {
                    let (echoed, id) = echoes.next(echo, self.epoch, &mut make);
                    out.push(Draw {
                        id: *id,
                        position: echoed.position,
                        copy: echoed.copy,
                        last: echoed.copy + 1 == echo.times_of(echoed.position),
                    });
                }
            }
        }
        self.place += count;
    }
}

fn fill(ids: &mut IdWalk, positions: std::ops::Range<u64>, into: &mut Vec<u64>) {
    into.resize((positions.end - positions.start) as usize, 0);
    ids.fill(into);
}
