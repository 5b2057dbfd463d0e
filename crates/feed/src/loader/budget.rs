//! Divides a loader's memory.

use pelton_format::Dataset;
use pelton_plan::StreamPlan;

use super::building::Slots;
use super::options::LoaderOptions;
use super::shared::fixed_slots;
use super::stages::{Decode, Stages};
use crate::error::FeedError;

/// Batches that are under way or ready besides the one the consumer has, where memory allows: so many, or
/// as many as make up so many bytes, so that threads do not wake for every small batch.
const MOST_ROOM: u64 = 8;
const ROOM_BYTES: u64 = 4 << 20;
const MOST_SMALL_BATCHES: u64 = 64;
const LEAST_ROOM: u64 = 2;
/// Share of what the feed may hold that it is told: rows taken from it keep the pane they lie in.
const FEED_SHARE: f64 = 0.6;
/// Bytes beside a held record: its entry in the table of held examples.
const HELD_ENTRY: u64 = 160;
/// Records that the feed is ahead, in bytes, where memory allows more: what a deep queue of reads needs.
const LOOK_AHEAD_BYTES: u64 = 64 << 20;

/// How the memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Examples of this rank's largest batch.
    pub rank_batch: u64,
    /// Batches under way or ready.
    pub room: usize,
    /// Bytes for decoded samples that are held.
    pub samples_bytes: u64,
    /// Bytes for the feed.
    pub feed_bytes: u64,
    /// Bytes for mapped files, where there is no feed.
    pub map_bytes: u64,
    /// Records that the feed is ahead.
    pub look_ahead: u64,
}

impl Division {
    pub fn new(
        dataset: &Dataset,
        stream: &StreamPlan,
        stages: &Stages,
        options: &LoaderOptions,
    ) -> Result<Division, FeedError> {
        let memory = options.memory_bytes;
        let ranks = u64::from(options.world_size);
        let rank_batch = stream.largest_batch().div_ceil(ranks).max(1);
        let record = mean_record(dataset);
        let sample = sample_bytes(dataset, stages, record);
        let batch = rank_batch * (sample + record);
        let most_room = (ROOM_BYTES / batch.max(1)).clamp(MOST_ROOM, MOST_SMALL_BATCHES);
        let held_examples = match options.auto_echo {
            Some(auto) => u64::from(auto.window) + rank_batch * most_room,
            None => stream.most_held().div_ceil(ranks),
        };
        let held_is_batches = !stream.batch_echo().is_none();
        let held = match held_is_batches {
            true => held_examples * sample,
            false => held_examples * (record + HELD_ENTRY),
        };
        // One batch is the consumer's.
        let least = held + (LEAST_ROOM + 1) * batch + stream.memory_bytes();
        let left = memory.saturating_sub(least);
        let feed_least = 2 * rank_batch * (record + 32) + (1 << 18);
        if left < (feed_least as f64 / FEED_SHARE) as u64 {
            return Err(FeedError::BudgetTooSmall {
                budget: memory,
                needed: least + (feed_least as f64 / FEED_SHARE) as u64 + memory / 64,
                what: format!(
                    "three batches of {rank_batch} examples (about {sample} bytes each), {}reading ahead",
                    match held_examples {
                        0 => String::new(),
                        held => format!(
                            "{held} examples held for echo (a smaller window, as in --echo before:2:256, holds fewer), and "
                        ),
                    }
                ),
            });
        }
        let more = (left / 4 / batch.max(1)).min(most_room - LEAST_ROOM);
        let left = left - more * batch;
        let samples_bytes = match held_examples > 0 && !held_is_batches {
            true => left / 2,
            false => 0,
        };
        let map_bytes = left - samples_bytes;
        let feed_bytes = (map_bytes as f64 * FEED_SHARE) as u64;
        Ok(Division {
            rank_batch,
            room: (LEAST_ROOM + more) as usize,
            samples_bytes,
            feed_bytes,
            map_bytes,
            look_ahead: options
                .look_ahead
                .unwrap_or(LOOK_AHEAD_BYTES / record.max(1))
                .max(2 * rank_batch),
        })
    }
}

impl Division {
    /// What a feed that got too little says, of the loader's whole budget.
    pub fn of_the_whole(&self, error: FeedError, budget: u64) -> FeedError {
        match error {
            FeedError::BudgetTooSmall { needed, what, .. } => {
                let missing = needed.saturating_sub(self.feed_bytes) as f64 / FEED_SHARE;
                // What samples may take grows with the budget, and is taken from the same rest.
                let share = if self.samples_bytes > 0 { 0.5 } else { 1.0 };
                FeedError::BudgetTooSmall {
                    budget,
                    needed: budget + (missing / share * 4.0 / 3.0).ceil() as u64,
                    what: format!("batches, samples held for echo, and, to read ahead, {what}"),
                }
            }
            error => error,
        }
    }
}

fn mean_record(dataset: &Dataset) -> u64 {
    crate::sizing::pane_row_bytes(dataset)
}

/// Bytes of a sample in its batch: known, or taken from the record's length.
fn sample_bytes(dataset: &Dataset, stages: &Stages, record: u64) -> u64 {
    match (fixed_slots(dataset, stages), &stages.decode) {
        (Some(Slots::Fixed { bytes, .. }), _) => bytes as u64,
        // Encoded pictures are some ten times as large when decoded.
        (_, Decode::Image { .. }) => 10 * record,
        (_, Decode::Tokens { .. }) => 4 * record,
        _ => record,
    }
}
