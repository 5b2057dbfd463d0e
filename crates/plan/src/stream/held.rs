//! The fresh batches that batch echo repeats, kept so that a repeat does not seek.
//!
//! Queues and look-aheads move forward; a repeat asks for a batch of the window before, in any order. Fresh batches
//! are therefore made in turn from the beginning of their window, and kept while one of the window is still to
//! come: two windows of draws, which is little against the batches themselves, whose data somebody keeps.

use std::sync::{Mutex, PoisonError};

use super::batch::StreamBatch;
use crate::echo::EchoPlan;

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
    /// Copies a fresh batch of an epoch into `out`; `make` makes those that are not known.
    pub(super) fn copy(
        &self,
        echo: &EchoPlan,
        (epoch, batch): (u64, u64),
        out: &mut StreamBatch,
        make: impl Fn(u64, &mut StreamBatch),
    ) {
        let number = batch / u64::from(echo.echo().window());
        let first = echo.window(number).start;
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |window: &HeldWindow| (window.epoch, window.number) == (epoch, number);
        if !windows.iter().any(known) {
            // The earliest window is done with, and so is one of another epoch.
            windows.sort_by_key(|window| (window.epoch == epoch, window.number));
            if windows.len() == WINDOWS {
                windows.remove(0);
            }
            windows.push(HeldWindow {
                epoch,
                number,
                batches: Vec::new(),
            });
        }
        let window = windows.iter_mut().find(|window| known(window));
        let window = window.expect("it is known by now");
        while first + window.batches.len() as u64 <= batch {
            let mut fresh = StreamBatch::default();
            make(first + window.batches.len() as u64, &mut fresh);
            window.batches.push(fresh);
        }
        out.clone_from(&window.batches[(batch - first) as usize]);
    }
}
