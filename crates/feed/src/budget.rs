//! Divides a loader's memory.

use std::sync::Arc;

use pelton_fetch::FetchError;
use pelton_format::Dataset;
use pelton_plan::{Plan, Spread};

use crate::known_fields::KnownFields;
use crate::options::{BadExamples, LoaderOptions};
use crate::stages::Stages;
use pelton_fetch::Fetch;
use pelton_fetch::{FetchOptions, OnBadRecord};

/// Batches in progress or ready in addition to the consumer's, if memory allows: this number, or enough for
/// this many bytes, so threads do not wake for every small batch.
const MOST_ROOM: u64 = 8;
const ROOM_BYTES: u64 = 4 << 20;
const MOST_SMALL_BATCHES: u64 = 64;
const LEAST_ROOM: u64 = 2;
/// Share of the memory that the feed is given: rows taken from it keep their pane alive.
const FEED_SHARE: f64 = 0.6;
/// Bytes of a held record's entry in the table of held examples.
const HELD_ENTRY: u64 = 160;
/// Records that each reading thread can ask for together: with two threads, a device's queue of 64.
const RECORDS_IN_FLIGHT: u64 = 32;
/// Bytes of a fetch that holds little more than read buffers.
const READ_BUFFERS: f64 = (1 << 20) as f64;
/// Bytes of a step's plan for each of its records, while it waits to be read.
const PLANNED_BYTES: u64 = 64;

/// How the memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Examples of this rank's largest batch.
    pub rank_batch: u64,
    /// Batches in progress or ready.
    pub room: usize,
    /// Bytes for decoded samples that are held.
    pub samples_bytes: u64,
    /// Bytes for the feed.
    pub feed_bytes: u64,
    /// Bytes for files that stay in memory, if there is no feed.
    pub resident_bytes: u64,
    /// Most records that the fetch is ahead.
    pub look_ahead: Option<u64>,
    /// How the records of a step are spread over the files.
    pub spread: Spread,
}

impl Division {
    /// Most records that a step reads.
    pub fn most_read(&self, dataset: &Dataset) -> u64 {
        self.rank_batch.min(dataset.records().max(1))
    }
}

/// The consumers of memory.
pub(crate) struct Case<'a> {
    pub dataset: &'a Dataset,
    pub stream: &'a Plan,
    pub stages: &'a Stages,
    pub fields: &'a KnownFields,
    pub options: &'a LoaderOptions,
    /// Whether samples are read straight to their destination, without a feed.
    pub in_place: bool,
}

impl Case<'_> {
    /// Divides the memory.
    ///
    /// Errors: too small a budget; the error names one that suffices, and the window of the echo that fits the given
    /// one.
    pub fn divide(&self) -> Result<Division, FetchError> {
        let budget = self.options.memory_bytes;
        let what = match self.attempt(budget, None) {
            Err(FetchError::BudgetTooSmall { what, .. }) => what,
            other => return other,
        };
        let fits = |memory| self.attempt(memory, None).is_ok();
        Err(FetchError::BudgetTooSmall {
            budget,
            needed: least(budget, MOST_NAMED_BYTES, fits),
            what: match self.most_held(None) {
                0 => what,
                held => {
                    let window = self.smaller_window();
                    format!("{what}, with {held} examples held for echo{window}")
                }
            },
        })
    }

    /// Examples held for echo, or for one of another window.
    fn most_held(&self, window: Option<u32>) -> u64 {
        match self.options.auto_echo {
            Some(auto) => {
                let (rank_batch, batch) = self.batch();
                u64::from(auto.window) + rank_batch * most_room(batch)
            }
            None => {
                let ranks = u64::from(self.options.world_size);
                self.stream.most_held(window).div_ceil(ranks)
            }
        }
    }

    /// The largest window that would fit, as a setting. The order of the plan depends on it, so it is never changed
    /// silently.
    fn smaller_window(&self) -> String {
        let (stream, options) = (self.stream, self.options);
        if options.auto_echo.is_some() {
            return String::new();
        }
        let echo = stream.echo();
        let (echo, window, name) = if stream.batch_echo().is_none() {
            let window = echo.window(stream.examples());
            (echo, window, options.echo_point.to_string())
        } else {
            let echo = stream.batch_echo();
            (echo, echo.batch_window(u64::MAX), "batch".to_owned())
        };
        let too_large = |window| {
            let divided = self.attempt(options.memory_bytes, Some(window as u32));
            divided.is_err()
        };
        // The largest window that fits is one below the smallest that does not.
        match least(0, window, too_large) - 1 {
            0 => String::new(),
            window => format!(" (`echo` {name}:{}:{window} would fit)", echo.factor()),
        }
    }

    /// Examples of this rank's largest batch, and their bytes as records and samples.
    fn batch(&self) -> (u64, u64) {
        let ranks = u64::from(self.options.world_size);
        let rank_batch = self.stream.largest_batch().div_ceil(ranks).max(1);
        let record = mean_record(self.dataset);
        let sample = sample_bytes(self.stages, self.fields, record);
        (rank_batch, rank_batch * (sample + record))
    }

    /// Divides `memory` bytes, optionally with another window of the echo. The error does not name a budget that
    /// would fit.
    fn attempt(&self, memory: u64, window: Option<u32>) -> Result<Division, FetchError> {
        let held_examples = self.most_held(window);
        let (stream, options) = (self.stream, self.options);
        let (rank_batch, batch) = self.batch();
        let record = mean_record(self.dataset);
        let sample = sample_bytes(self.stages, self.fields, record);
        let most_room = most_room(batch);
        let held_is_batches = !stream.batch_echo().is_none();
        let held = if held_is_batches {
            held_examples.saturating_mul(sample)
        } else {
            held_examples.saturating_mul(record + HELD_ENTRY)
        };
        let too_small = |what| FetchError::BudgetTooSmall {
            budget: memory,
            needed: 0,
            what,
        };
        // One batch is the consumer's.
        let least = held
            .saturating_add((LEAST_ROOM + 1) * batch)
            .saturating_add(stream.memory_bytes(window));
        let left = memory.saturating_sub(least);
        let feed_least = 2 * rank_batch * (record + 32) + (1 << 18);
        if left < (feed_least as f64 / FEED_SHARE) as u64 {
            return Err(too_small(format!(
                "three batches of {rank_batch} examples (about {sample} bytes each) and reading ahead"
            )));
        }
        let more = (left / 4 / batch.max(1)).min(most_room - LEAST_ROOM);
        let left = left - more * batch;
        // If no stage runs once for all repeats, only records are held.
        let holds_samples = !held_is_batches && self.stages.once(options.echo_point) > 0;
        let samples_bytes = if held_examples > 0 && holds_samples {
            left / 2
        } else {
            0
        };
        let resident_bytes = left - samples_bytes;
        let feed_share = resident_bytes as f64 * FEED_SHARE;
        let of_records = record as f64 / (record + PLANNED_BYTES) as f64;
        // Read buffers, which are most of little memory, need no plan.
        let feed_bytes = (feed_share * of_records).max(feed_share.min(READ_BUFFERS));
        let division = Division {
            rank_batch,
            room: (LEAST_ROOM + more) as usize,
            samples_bytes,
            feed_bytes: feed_bytes as u64,
            resident_bytes,
            look_ahead: options
                .look_ahead
                .map(|records| records.max(2 * rank_batch)),
            spread: stream.spread(),
        };
        if self.in_place {
            return Ok(division);
        }
        let steps = (division.most_read(self.dataset), division.spread);
        match Fetch::fits_steps(self.dataset, steps, &division.feed_options(options)) {
            Err(FetchError::BudgetTooSmall { what, .. }) => {
                Err(too_small(format!("batches and, to read ahead, {what}")))
            }
            fits => fits.map(|()| division),
        }
    }
}

/// Largest budget that a message names.
const MOST_NAMED_BYTES: u64 = 1 << 50;

/// A number in `above + 1..=most` for which `holds` is true and false for the one before (it is assumed false
/// for `above`); the smallest such number if `holds` is monotone.
fn least(above: u64, most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (above + 1, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle
        } else {
            low = middle + 1
        }
    }
    low
}

/// The maximum number of batches in progress or ready, for batches of this size.
fn most_room(batch_bytes: u64) -> u64 {
    (ROOM_BYTES / batch_bytes.max(1)).clamp(MOST_ROOM, MOST_SMALL_BATCHES)
}

impl Division {
    /// The options of the feed, with its part of the memory.
    pub fn feed_options(&self, options: &LoaderOptions) -> FetchOptions {
        FetchOptions {
            access: options.access,
            threads: options.read_threads.max(1),
            on_bad_record: match options.bad_examples {
                BadExamples::Fail => OnBadRecord::Fail,
                // Counted by the loader, with those that cannot be decoded.
                _ => OnBadRecord::Skip { limit: None },
            },
            look_ahead: self.look_ahead,
            records_in_flight: RECORDS_IN_FLIGHT,
            interrupt: Arc::clone(&options.interrupt),
            device: options.device.speed(),
            ..FetchOptions::with_memory(self.feed_bytes)
        }
    }
}

fn mean_record(dataset: &Dataset) -> u64 {
    pelton_fetch::pane_row_bytes(dataset)
}

/// Bytes of a sample in its batch: known, or estimated by the stages from the record's length.
fn sample_bytes(stages: &Stages, fields: &KnownFields, record: u64) -> u64 {
    match fields.bytes() {
        (bytes, true) => bytes,
        (bytes, false) => {
            let made = stages
                .list()
                .iter()
                .fold(record, |bytes, stage| stage.bytes(bytes));
            bytes.max(made)
        }
    }
}
