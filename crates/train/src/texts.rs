//! A pass over the texts of a data set, in the order of the files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelton_feed::{Feed, FeedOptions, pane_row_bytes};
use pelton_format::{Contents, Dataset, Row, members};
use pelton_plan::{Batching, Order, Plan};

use crate::error::TrainError;
use crate::event::{Event, Interrupt, Observer};

/// Most records of a step.
const MOST_STEP: u64 = 4096;
/// Memory of the pass, beside the longest record.
const MEMORY: u64 = 64 << 20;
/// A step takes at most this share of the memory: one is looked at while others are read.
const STEPS_IN_MEMORY: u64 = 16;

/// The texts of all records in the order of the files; of a tar sample its member `txt`.
pub(crate) struct Texts {
    feed: Feed,
    is_tar: bool,
    what: &'static str,
    interrupt: Interrupt,
}

impl Texts {
    /// Errors: records that hold no text; memory that does not hold the longest.
    pub(crate) fn new(
        dataset: &Arc<Dataset>,
        what: &'static str,
        interrupt: &Interrupt,
    ) -> Result<Texts, TrainError> {
        check_text(dataset)?;
        let fits = MEMORY / STEPS_IN_MEMORY / pane_row_bytes(dataset).max(1);
        let batching = Batching::Examples(fits.clamp(1, MOST_STEP));
        let plan = Plan::new(dataset.records(), Order::Sequential, batching, 0)?;
        let options = FeedOptions {
            end_epoch: Some(1),
            interrupt: Arc::clone(interrupt),
            ..FeedOptions::with_memory(MEMORY + 8 * dataset.record_bytes().max())
        };
        Ok(Texts {
            feed: Feed::new(Arc::clone(dataset), Arc::new(plan), &options)?,
            is_tar: dataset.contents() == Contents::Members,
            what,
            interrupt: Arc::clone(interrupt),
        })
    }

    /// Gives the texts of the next step to `with`, each with the id of its record; false after the last.
    pub(crate) fn next_step(
        &mut self,
        observer: Observer<'_>,
        mut with: impl FnMut(u64, &[u8]),
    ) -> Result<bool, TrainError> {
        let stopped = TrainError::Stopped { job: self.what };
        let total = self.feed.plan().steps();
        let batch = match self.feed.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(false),
            Err(_) if self.interrupt.load(Ordering::Relaxed) => return Err(stopped),
            Err(error) => return Err(error.into()),
        };
        for i in 0..batch.rows.len() {
            let Row::Bytes(bytes) = batch.rows.row(i) else {
                continue;
            };
            let text = match self.is_tar {
                true => members(bytes)
                    .find(|member| member.is("txt"))
                    .map(|member| member.bytes),
                false => Some(bytes),
            };
            if let Some(text) = text {
                with(batch.rows.id(i), text);
            }
        }
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(stopped);
        }
        observer(Event::Progress {
            what: self.what,
            done: batch.step + 1,
            total,
        });
        Ok(true)
    }
}

/// Refuses records in which nobody would look for words.
fn check_text(dataset: &Dataset) -> Result<(), TrainError> {
    match dataset.contents() {
        Contents::Text | Contents::Tokens { .. } | Contents::Bytes { .. } | Contents::Members => {
            Ok(())
        }
        contents => {
            let files = dataset.files().iter();
            let first = files.map(|file| file.path().display().to_string()).next();
            Err(TrainError::Config(format!(
                "{}: its records are {contents} and no text; name text or tar files, or give --format text",
                first.unwrap_or_default()
            )))
        }
    }
}
