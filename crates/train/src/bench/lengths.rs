//! A pass over text before a pipeline begins: the lengths of its records in tokens.

use std::sync::Arc;

use pelton_format::Dataset;
use pelton_text::Vocabulary;

use crate::error::TrainError;
use crate::event::{Interrupt, Observer};
use crate::texts::Texts;

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
        lengths[id as usize] = tokenizer.count(text) as u32 + 1;
    })? {}
    Ok(lengths)
}
