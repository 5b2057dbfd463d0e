//! A pass over text before a pipeline begins: its vocabulary, and the lengths of its records in tokens.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelton_feed::{Feed, FeedOptions};
use pelton_format::{Contents, Dataset, Row, members};
use pelton_plan::{Batching, Order, Plan};
use pelton_text::{Tokenizer, Vocabulary, words};

use super::stages::vocabulary_options;
use crate::error::TrainError;
use crate::event::{Event, Interrupt, Observer};

/// Records of a step.
const STEP: u64 = 4096;
/// Memory of the pass.
const MEMORY: u64 = 64 << 20;

/// The vocabulary of a data set of text.
pub(super) fn vocabulary_of(
    dataset: &Arc<Dataset>,
    tokenizer: Tokenizer,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vocabulary, TrainError> {
    let options = vocabulary_options(tokenizer);
    let failed = |error: pelton_text::TextError| TrainError::Config(error.to_string());
    if tokenizer == Tokenizer::Bytes {
        return Vocabulary::from_sentences(std::iter::empty::<&[u8]>(), &options).map_err(failed);
    }
    let mut texts = Texts::new(dataset, "counting words", interrupt)?;
    let mut failure = None;
    // The texts of a step together: words are cut at line ends as at blanks.
    let steps = std::iter::from_fn(|| {
        let mut joined = Vec::new();
        let more = texts.next_step(observer, |_, text| {
            joined.extend_from_slice(text);
            joined.push(b'\n');
        });
        match more {
            Ok(more) => more.then_some(joined),
            Err(error) => {
                failure = Some(error);
                None
            }
        }
    });
    let vocabulary = Vocabulary::from_sentences(steps, &options).map_err(failed)?;
    match failure {
        Some(error) => Err(error),
        None => Ok(vocabulary),
    }
}

/// Tokens of each record, its end counted as one.
pub(super) fn record_lengths(
    dataset: &Arc<Dataset>,
    vocabulary: &Vocabulary,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Vec<u32>, TrainError> {
    let mut lengths = vec![1_u32; dataset.records() as usize];
    let tokenizer = vocabulary.tokenizer();
    let mut texts = Texts::new(dataset, "counting tokens", interrupt)?;
    while texts.next_step(observer, |id, text| {
        let tokens = match tokenizer {
            Tokenizer::Whitespace => words(text).count(),
            _ => text.len(),
        };
        lengths[id as usize] = tokens as u32 + 1;
    })? {}
    Ok(lengths)
}

/// The texts of all records in the order of the files.
struct Texts {
    feed: Feed,
    is_tar: bool,
    what: &'static str,
    interrupt: Interrupt,
}

impl Texts {
    fn new(
        dataset: &Arc<Dataset>,
        what: &'static str,
        interrupt: &Interrupt,
    ) -> Result<Texts, TrainError> {
        let batching = Batching::Examples(STEP);
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

    /// Gives the texts of the next step to `with`; false after the last.
    fn next_step(
        &mut self,
        observer: Observer<'_>,
        mut with: impl FnMut(u64, &[u8]),
    ) -> Result<bool, TrainError> {
        let total = self.feed.plan().steps();
        let stopped = TrainError::Stopped { job: self.what };
        let Some(batch) = self.feed.next_batch()? else {
            return Ok(false);
        };
        for i in 0..batch.rows.len() {
            let Row::Bytes(bytes) = batch.rows.row(i) else {
                let text = "rows of features are no text; leave the tokeniser out";
                return Err(TrainError::Config(text.to_owned()));
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
