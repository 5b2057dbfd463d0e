//! Steps of batches that worker threads read themselves, and read-ahead requests for them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::building::Building;
use crate::in_place_reads::InPlaceReads;
use crate::shared::Shared;
use crate::steps::{PlannedStep, StepPlanner};

/// Bytes that may be in flight: enough to keep a device busy. Later requests wait longer, and requests in
/// flight cannot be cancelled.
const MOST_COMING_BYTES: u64 = 32 << 20;

/// Steps from the plan, with the records of coming ones requested.
pub(crate) struct ReadAheadSteps {
    planner: StepPlanner,
    /// Steps that have not begun, and the bytes in flight for each.
    steps: VecDeque<(PlannedStep, u64)>,
    /// Batches that wait for such bytes, the oldest first.
    waiting: VecDeque<(Arc<Building>, u64)>,
}

impl ReadAheadSteps {
    pub fn new(planner: StepPlanner) -> ReadAheadSteps {
        ReadAheadSteps {
            planner,
            steps: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    /// The next step, and its bytes in flight; `None` if there is none or it is no longer needed.
    pub fn next(&mut self, reads: &InPlaceReads, shared: &Shared) -> Option<(PlannedStep, u64)> {
        while self.steps.is_empty() && self.coming_bytes() >= MOST_COMING_BYTES {
            let (oldest, _) = self.waiting.front()?;
            if !shared.wait_until_made(oldest) {
                return None;
            }
        }
        let mut records: usize = self.steps.iter().map(|(step, _)| step.draws.len()).sum();
        while self.steps.is_empty()
            || records < reads.asked_records && self.coming_bytes() < MOST_COMING_BYTES
        {
            let Some(step) = self.planner.next_step() else {
                break;
            };
            records += step.draws.len();
            let bytes = reads.ask_for(&step, || shared.is_closed());
            self.steps.push_back((step, bytes));
        }
        self.steps.pop_front()
    }

    /// Records that a batch was started, with this many bytes in flight.
    pub fn began(&mut self, batch: Arc<Building>, bytes: u64) {
        if bytes > 0 {
            self.waiting.push_back((batch, bytes));
        }
    }

    fn coming_bytes(&mut self) -> u64 {
        self.waiting.retain(|(batch, _)| !batch.is_handed_in());
        let waiting = self.waiting.iter().map(|(_, bytes)| bytes);
        waiting
            .chain(self.steps.iter().map(|(_, bytes)| bytes))
            .sum()
    }
}
