//! Text to numbers of a vocabulary.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_text::{Ends, Vocabulary};

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
}

impl Tokenise {
    /// By `vocabulary`, with what is put before and behind a sentence.
    pub fn by(vocabulary: Arc<Vocabulary>, ends: Ends) -> Tokenise {
        Tokenise {
            vocabulary,
            ends,
            members: vec!["txt".to_owned()],
            name: TOKENS.into(),
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
        _: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let Some(text) = take_record(sample, &self.members)? else {
            return Err("there is no text".into());
        };
        let mut tokens = sample.new_tokens();
        self.vocabulary.encode(text.bytes(), self.ends, &mut tokens);
        sample.set(&self.name, Value::Tokens(Cow::Owned(tokens)));
        Ok(())
    }
}
