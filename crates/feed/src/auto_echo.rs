//! Repeats while waiting: if no fresh batch is ready, a batch of recent examples is returned
//! instead, so that the echo factor follows t_up/t_down moment by moment (data echoing: Choi et al.,
//! arXiv 1907.05550, with a factor fixed beforehand).
//!
//! Repeats are drawn from the last `window` fresh examples in rounds: each round is a random order of all of
//! them, so that an example waits for all others before it comes again. Examples of the last two fresh batches
//! are skipped, and those drawn last before a round come last in it, so duplicates are a batch apart.

use std::collections::VecDeque;
use std::sync::Arc;

use pelton_key::{KeyedRng, Stage, key};
use pelton_plan::Place;

use crate::building::{BatchHeader, Building, Example, HeldExample, Made, SampleSource};
use crate::dispatch::{chunk_of, keys, send_parts};
use crate::error::FeedError;
use crate::options::{AutoEcho, EchoPoint};
use crate::shared::Shared;
use crate::worker::Tasks;

pub(crate) struct Repeats {
    auto: AutoEcho,
    seed: u64,
    /// Batches of repeats returned, over the whole run.
    batches: u64,
    /// Those begun.
    begun: u64,
    /// Examples of fresh batches, and of repeats, returned by this loader.
    fresh: u64,
    repeated: u64,
    batch: usize,
    /// The last fresh examples, oldest first, each with its number.
    window: VecDeque<HeldExample>,
    /// Fresh examples that have left the window.
    gone: u64,
    /// The rest of the round: indices of fresh examples.
    round: Vec<u64>,
    /// The numbers drawn last, two batches of them.
    drawn: VecDeque<u64>,
    spare: Option<Arc<Building>>,
}

impl Repeats {
    pub fn new(auto: AutoEcho, seed: u64, batches: u64, batch: u64) -> Repeats {
        Repeats {
            auto,
            seed,
            batches,
            begun: batches,
            fresh: 0,
            repeated: 0,
            batch: batch as usize,
            window: VecDeque::new(),
            gone: 0,
            round: Vec::new(),
            drawn: VecDeque::new(),
            spare: None,
        }
    }

    /// Batches of repeats returned over the whole run.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Fresh examples returned.
    pub fn hold(&mut self, examples: Vec<HeldExample>) {
        self.fresh += examples.len() as u64;
        self.window.extend(examples);
        while self.window.len() > self.auto.window as usize {
            self.window.pop_front();
            self.gone += 1;
        }
    }

    /// A batch of repeats in progress or ready, started now if there was none; `None` if there is nothing to repeat
    /// yet, or enough was repeated.
    pub fn prepare(
        &mut self,
        shared: &Arc<Shared>,
        tasks: &Tasks,
        place: Place,
    ) -> Option<Arc<Building>> {
        if self.spare.is_none() {
            let most = (self.auto.most - 1.0) * self.fresh as f64;
            if (self.repeated + self.batch as u64) as f64 > most {
                return None;
            }
            let drawn = self.draw();
            if drawn.is_empty() {
                return None;
            }
            self.begun += 1;
            self.spare = Some(self.begin(shared, tasks, place, drawn));
        }
        self.spare.clone()
    }

    /// The batch of repeats that was prepared, if it is ready.
    pub fn take_spare(&mut self) -> Option<Result<Made, FeedError>> {
        let made = self.spare.as_ref()?.take_made()?;
        self.spare = None;
        self.batches += 1;
        if let Ok(made) = &made {
            self.repeated += made.batch.len() as u64;
        }
        Some(made)
    }

    /// The examples of the next batch of repeats; none while the window holds less than five batches.
    fn draw(&mut self) -> Vec<HeldExample> {
        let recent = 2 * self.batch;
        if self.window.len() < recent + 3 * self.batch {
            return Vec::new();
        }
        let newest = self.gone + (self.window.len() - recent) as u64;
        let mut drawn = Vec::with_capacity(self.batch);
        let mut rounds = 0;
        while drawn.len() < self.batch && rounds < 3 {
            let Some(number) = self.round.pop() else {
                rounds += 1;
                self.round = (self.gone..newest).collect();
                let key = key(self.seed, self.begun, Stage::EchoDraw(rounds));
                KeyedRng::new(key).shuffle(&mut self.round);
                // Examples drawn just before the round started are drawn last in it.
                let drawn = &self.drawn;
                self.round.sort_by_key(|number| !drawn.contains(number));
                continue;
            };
            if let Some(i) = number.checked_sub(self.gone) {
                drawn.push(self.window[i as usize].clone());
                self.drawn.push_back(number);
            }
        }
        let kept = self.drawn.len().min(recent);
        self.drawn.drain(..self.drawn.len() - kept);
        drawn
    }

    fn begin(
        &self,
        shared: &Arc<Shared>,
        tasks: &Tasks,
        place: Place,
        drawn: Vec<HeldExample>,
    ) -> Arc<Building> {
        let again = shared.options.echo_point != EchoPoint::AfterAugment;
        let examples: Vec<Example> = drawn
            .into_iter()
            .map(|held| {
                let epoch_key = key(self.seed, held.epoch, Stage::Augment);
                // No plan counts these copies; the number of the batch identifies them.
                let copy = if again { self.begun as u32 } else { 0 };
                Example {
                    id: held.id,
                    position: held.position,
                    label: held.held.label,
                    copy: copy.max(1),
                    keys: keys(epoch_key, held.position, copy),
                    piece: None,
                    source: SampleSource::Held(held.held),
                }
            })
            .collect();
        let places = shared.places();
        let chunk = chunk_of(shared, examples.len(), &places);
        let head = BatchHeader {
            place,
            end: place,
            ends_epoch: false,
            bucket: None,
            padded_length: None,
            second_length: None,
            global_examples: examples.len() as u64 * u64::from(shared.options.world_size),
            row_draws: Vec::new(),
            fresh_batch: 0,
            keep_batch: false,
            batch_copy: 0,
            drawn: 0,
            is_repeat: false,
        };
        let building = Arc::new(Building::new(head, examples, None, places, chunk));
        send_parts(&tasks.urgent, Arc::clone(&building));
        building
    }
}
