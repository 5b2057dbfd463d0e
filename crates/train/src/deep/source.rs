//! The source of a net's batches: the feed, or one continuous text with sequences that continue from batch to batch.

use std::sync::Arc;

use pelton_comm::Comm;
use pelton_data::{PipelineLoader, PreparedPipeline};
use pelton_feed::{LoaderMeters, LoaderState};
use pelton_key::Digest;
use pelton_nn::{Carry, Words};
use pelton_run::RunContext;
use serde::{Deserialize, Serialize};

use super::batch::{Ready, Targets};
use crate::error::TrainError;

/// A repeatable source of batches.
pub(crate) enum Prepared {
    /// A pipeline of the feed.
    Pipeline(Box<PreparedPipeline>),
    /// A text.
    Text(Arc<TextStream>),
}

impl Prepared {
    /// Batches of an epoch.
    pub(crate) fn steps(&self, epoch: u64) -> u64 {
        match self {
            Prepared::Pipeline(pipeline) => pipeline.plan().steps(epoch),
            Prepared::Text(text) => text.steps(),
        }
    }

    /// Records of an epoch, or words.
    pub(crate) fn records(&self) -> u64 {
        match self {
            Prepared::Pipeline(pipeline) => pipeline.plan().records(),
            Prepared::Text(text) => text.words.len() as u64,
        }
    }

    /// Identifies the data.
    pub(crate) fn fingerprint(&self) -> u64 {
        match self {
            Prepared::Pipeline(pipeline) => pipeline.fingerprint(),
            Prepared::Text(text) => {
                let words = text.words.iter().copied().map(u64::from);
                Digest::new("stage inputs").words(words).value()
            }
        }
    }

    /// Examples, or words, dropped per epoch.
    pub(crate) fn dropped(&self) -> u64 {
        match self {
            Prepared::Pipeline(pipeline) => pipeline.plan().left_out(0),
            Prepared::Text(text) => text.left_out(),
        }
    }

    /// Reads the data if it may have changed since this state was saved.
    pub(crate) fn check(
        &self,
        state: &str,
        context: &mut RunContext<'_>,
    ) -> Result<(), TrainError> {
        if let Prepared::Pipeline(pipeline) = self {
            let state = LoaderState::from_json(state)?;
            pipeline.check_state(&state, context.interrupt, context.observer)?;
        }
        Ok(())
    }

    /// Batches from the beginning, or from a state saved by [`BatchSource::state`]. All ranks call it.
    pub(crate) fn source(
        &self,
        from: Option<&str>,
        targets: Targets,
        comm: &Comm,
    ) -> Result<BatchSource, TrainError> {
        Ok(match self {
            Prepared::Pipeline(pipeline) => {
                let state = from.map(LoaderState::from_json).transpose()?;
                BatchSource::Feed(Box::new(pipeline.loader(state.as_ref(), comm)?), targets)
            }
            Prepared::Text(text) => {
                let wrong = |_| {
                    TrainError::config(
                        "the saved position in the text cannot be read; start again".to_string(),
                    )
                };
                let at = from.map(serde_json::from_str).transpose().map_err(wrong)?;
                BatchSource::Text(Arc::clone(text), at.unwrap_or_default())
            }
        })
    }
}

/// A batch and its statistics.
pub(crate) struct Next {
    pub(crate) ready: Ready,
    /// Its first records.
    pub(crate) ids: Vec<u64>,
    pub(crate) fresh: u64,
    pub(crate) echoed: u64,
}

/// Batches one after another.
pub(crate) enum BatchSource {
    Feed(Box<PipelineLoader>, Targets),
    Text(Arc<TextStream>, BatchPosition),
}

/// Epoch and step of the next batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchPosition {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
}

impl BatchSource {
    pub(crate) fn place(&self) -> BatchPosition {
        match self {
            BatchSource::Feed(loader, _) => BatchPosition {
                epoch: loader.place().epoch,
                step: loader.place().step,
            },
            BatchSource::Text(_, place) => *place,
        }
    }

    /// All ranks call it.
    pub(crate) fn state(&self, comm: &Comm) -> Result<String, TrainError> {
        Ok(match self {
            BatchSource::Feed(loader, _) => loader.state_of_all(comm)?.to_json(),
            BatchSource::Text(_, place) => serde_json::to_string(place).expect("two numbers"),
        })
    }

    /// Refuses the epoch that just ended, if its records differ from those of the first. All ranks call it.
    pub(crate) fn check_epoch(&mut self, comm: &Comm) -> Result<(), TrainError> {
        match self {
            BatchSource::Feed(loader, _) => Ok(loader.check_epoch(comm)?),
            BatchSource::Text(..) => Ok(()),
        }
    }

    pub(crate) fn next(&mut self) -> Option<Result<Next, TrainError>> {
        match self {
            BatchSource::Feed(loader, targets) => {
                let batch = match loader.next()? {
                    Ok(batch) => batch,
                    Err(error) => return Some(Err(error.into())),
                };
                let fresh = batch.fresh();
                let echoed = batch.len() as u64 - fresh;
                let ids = batch.ids[..batch.ids.len().min(8)].to_vec();
                Some(Ready::new(batch, *targets).map(|ready| Next {
                    ready,
                    ids,
                    fresh,
                    echoed,
                }))
            }
            BatchSource::Text(text, place) => {
                let words = text.window(place.step);
                place.step += 1;
                if place.step >= text.steps() {
                    *place = BatchPosition {
                        epoch: place.epoch + 1,
                        step: 0,
                    };
                }
                let fresh = words.batch as u64;
                Some(Ok(Next {
                    ready: Ready::Words(words),
                    ids: vec![],
                    fresh,
                    echoed: 0,
                }))
            }
        }
    }

    /// Counters of the feed.
    pub(crate) fn meters(&self) -> LoaderMeters {
        match self {
            BatchSource::Feed(loader, _) => loader.meters(),
            BatchSource::Text(..) => LoaderMeters::default(),
        }
    }

    /// Ends the source. All ranks call it.
    pub(crate) fn finish(self, comm: &Comm, went_on: bool) -> Result<(), TrainError> {
        if let BatchSource::Feed(loader, _) = self {
            loader.check_bad(comm, went_on)?;
            loader.finish(comm)?;
        }
        Ok(())
    }
}

/// All words of a text, cut into rows of equal length that are read in parallel, `window` words at a time; a row
/// continues at the word after its last batch.
///
/// Memory: 4 bytes a word. The last words, fewer than there are rows, are left out.
pub(crate) struct TextStream {
    words: Vec<u32>,
    /// The word before the first.
    start: u32,
    /// Rows of all ranks.
    rows: usize,
    window: usize,
    /// Rows of this rank.
    own: std::ops::Range<usize>,
}

impl TextStream {
    /// Over `words`, for this rank.
    pub(crate) fn new(
        words: Vec<u32>,
        start: u32,
        rows: usize,
        window: usize,
        comm: &Comm,
    ) -> Result<TextStream, TrainError> {
        let rows = rows.min(words.len());
        if rows == 0 {
            return Err(TrainError::config("the text has no words".to_string()));
        }
        let (rank, ranks) = (comm.rank(), comm.size());
        Ok(TextStream {
            own: rows * rank / ranks..rows * (rank + 1) / ranks,
            words,
            start,
            rows,
            window: window.max(1),
        })
    }

    fn length(&self) -> usize {
        self.words.len() / self.rows
    }

    /// Words outside all rows.
    pub(crate) fn left_out(&self) -> u64 {
        (self.words.len() % self.rows) as u64
    }

    fn steps(&self) -> u64 {
        self.length().div_ceil(self.window) as u64
    }

    fn window(&self, step: u64) -> Words {
        let length = self.length();
        let from = step as usize * self.window;
        let steps = self.window.min(length - from);
        let mut words = Words {
            batch: self.own.len(),
            steps,
            carry: match step {
                0 => Carry::Begin,
                _ => Carry::GoOn,
            },
            ..Words::default()
        };
        for row in self.own.clone() {
            let at = row * length + from;
            let before = at.checked_sub(1).map_or(self.start, |at| self.words[at]);
            let targets = &self.words[at..at + steps];
            words.ids.push(before.into());
            words
                .ids
                .extend(targets[..steps - 1].iter().map(|&w| i64::from(w)));
            words.targets.extend(targets.iter().map(|&w| i64::from(w)));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_on_and_every_word_is_predicted_from_the_one_before() {
        let words: Vec<u32> = (10..33).collect();
        let stream = TextStream::new(words.clone(), 3, 2, 4, &Comm::alone()).unwrap();
        assert_eq!(
            (stream.length(), stream.left_out(), stream.steps()),
            (11, 1, 3)
        );
        let mut predicted = [Vec::new(), Vec::new()];
        for step in 0..stream.steps() {
            let words = stream.window(step);
            assert_eq!(
                words.carry,
                if step == 0 { Carry::Begin } else { Carry::GoOn }
            );
            for (row, predicted) in predicted.iter_mut().enumerate() {
                let at = row * words.steps..(row + 1) * words.steps;
                for (given, target) in words.ids[at.clone()].iter().zip(&words.targets[at]) {
                    assert!(
                        target - given == 1 || (*given, *target) == (3, 10),
                        "{given} {target}"
                    );
                    predicted.push(*target as u32);
                }
            }
        }
        assert_eq!(predicted.concat(), words[..22]);
    }
}
