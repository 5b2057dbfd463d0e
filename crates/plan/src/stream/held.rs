//! The fresh batches that batch echo repeats, kept so that a repeat does not seek.
//!
//! Queues and look-aheads move forward; a repeat asks for a batch of the window before, in any order. Fresh batches
//! are therefore made in turn from the beginning of their window, and kept while one of the window is still to
//! come: two windows of draws, which is little against the batches themselves, whose data somebody keeps.

use std::sync::{Mutex, PoisonError};

use super::batch::StreamBatch;
use crate::echo::{EchoPlan, Echoed};

/// Fresh batches of up to two windows.
#[derive(Debug, Default)]
pub(super) struct HeldBatches {
    windows: Mutex<Vec<HeldWindow>>,
}

/// The first fresh batches of a window.
#[derive(Debug)]
struct HeldWindow {
    epoch: u64,
    number: u64,
    batches: Vec<StreamBatch>,
}

const WINDOWS: usize = 2;

impl HeldBatches {
    /// Copies a batch of an epoch into `out`, as it is when it is fresh; `make` makes those that are not known.
    pub(super) fn copy(
        &self,
        echo: &EchoPlan,
        epoch: u64,
        asked: Echoed,
        out: &mut StreamBatch,
        make: impl Fn(u64, &mut StreamBatch),
    ) {
        let number = asked.position / u64::from(echo.echo().window());
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fill = |number, until| {
            let window = window_of(&mut windows, epoch, number);
            let first = echo.window(number).start;
            for batch in first + window.batches.len() as u64..until {
                let mut fresh = StreamBatch::default();
                make(batch, &mut fresh);
                window.batches.push(fresh);
            }
        };
        // Among the fresh batches of a window come repeats of all of the one before. They are made first, so
        // that whoever makes them moves forward only.
        if asked.copy > 0 {
            fill(number, echo.window(number).end);
        } else {
            if let Some(before) = number.checked_sub(1) {
                fill(before, echo.window(before).end);
            }
            fill(number, asked.position + 1);
        }
        let window = window_of(&mut windows, epoch, number);
        let place = asked.position - echo.window(number).start;
        out.clone_from(&window.batches[place as usize]);
    }
}

/// A window, which takes the place of the earliest, or of one of another epoch, where it is new.
fn window_of(windows: &mut Vec<HeldWindow>, epoch: u64, number: u64) -> &mut HeldWindow {
    let known = |window: &HeldWindow| (window.epoch, window.number) == (epoch, number);
    let place = windows.iter().position(known).unwrap_or_else(|| {
        windows.sort_by_key(|window| (window.epoch == epoch, window.number));
        if windows.len() == WINDOWS {
            windows.remove(0);
        }
        windows.push(HeldWindow {
            epoch,
            number,
            batches: Vec::new(),
        });
        windows.len() - 1
    });
    &mut windows[place]
}
