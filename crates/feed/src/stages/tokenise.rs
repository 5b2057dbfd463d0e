//! Text to numbers of a vocabulary.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_text::{Ends, Special, Vocabulary};

use super::TOKENS;
use super::members::{check_record, take_record};
use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure};

/// Numbers the words or bytes of a text, to the field "tokens". Of a sample of tar members the one called `.txt` is
/// taken.
pub struct Tokenise {
    vocabulary: Arc<Vocabulary>,
    ends: Ends,
    members: Vec<String>,
    name: Arc<str>,
    /// `<unk>` among the tokens of the first epoch.
    unknown: AtomicU64,
}

impl Tokenise {
    /// What [`Stage::counted`] calls the tokens that the vocabulary has no number for, or that are `<unk>` in the text.
    pub const UNKNOWN_TOKENS: &'static str = "unknown_tokens";

    /// By `vocabulary`, with what is put before and behind a sentence.
    pub fn by(vocabulary: Arc<Vocabulary>, ends: Ends) -> Tokenise {
        Tokenise {
            vocabulary,
            ends,
            members: vec!["txt".to_owned()],
            name: TOKENS.into(),
            unknown: AtomicU64::new(0),
        }
    }
}

impl Stage for Tokenise {
    fn name(&self) -> &'static str {
        "decode"
    }

    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String> {
        check_record(&input, "a vocabulary")?;
        let tokens = FieldSpec::new(TOKENS, DType::U32, &[None]);
        Ok(FieldSpecs(vec![tokens]))
    }

    /// The vocabulary, and what is put at the ends of sentences.
    fn fingerprint(&self) -> Option<u64> {
        let ends = u64::from(self.ends.begin) | u64::from(self.ends.end) << 1;
        Some(self.vocabulary.fingerprint().rotate_left(8) ^ ends)
    }

    fn bytes(&self, input: u64) -> u64 {
        4 * input
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        _: &mut Slots<'_>,
        at: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let Some(text) = take_record(sample, &self.members)? else {
            return Err("there is no text".into());
        };
        let mut tokens = sample.new_tokens();
        self.vocabulary.encode(text.bytes(), self.ends, &mut tokens);
        if at.first {
            let unknown = |token: &&u32| **token == Special::Unknown.id();
            let unknown = tokens.iter().filter(unknown).count();
            self.unknown.fetch_add(unknown as u64, Relaxed);
        }
        sample.set(&self.name, Value::Tokens(Cow::Owned(tokens)));
        Ok(())
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        vec![(Tokenise::UNKNOWN_TOKENS, self.unknown.load(Relaxed))]
    }
}
