//! Text to numbers of a vocabulary.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_text::{Ends, Special, Vocabulary, pair_sides};

use super::members::{Record, check_record, take_record};
use super::{TARGET_TOKENS, TOKENS};
use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure};

/// Numbers the words or bytes of a text, to the field "tokens"; of a pair of sentences those of the second one to
/// "target_tokens". In a tar sample it takes the `.txt` member, in a record of several fields the named one;
/// the other fields stay.
pub struct Tokenise {
    vocabulary: Arc<Vocabulary>,
    ends: Ends,
    members: Vec<String>,
    field: Option<Arc<str>>,
    /// Of the sides of a pair, or one.
    names: Vec<Arc<str>>,
    /// `<unk>` among the tokens of the first epoch.
    unknown: AtomicU64,
}

impl Tokenise {
    /// The name in [`Stage::counted`] for tokens that are not in the vocabulary, or are `<unk>` in the text.
    pub const UNKNOWN_TOKENS: &'static str = "unknown_tokens";

    /// By `vocabulary`, with the tokens before and after a sentence.
    pub fn by(vocabulary: Arc<Vocabulary>, ends: Ends) -> Tokenise {
        Tokenise {
            vocabulary,
            ends,
            members: vec!["txt".to_owned()],
            field: None,
            names: vec![TOKENS.into()],
            unknown: AtomicU64::new(0),
        }
    }

    /// The same of two sentences with a tab between them, by one vocabulary.
    pub fn pairs(self) -> Tokenise {
        Tokenise {
            names: vec![TOKENS.into(), TARGET_TOKENS.into()],
            ..self
        }
    }

    /// The text of this field.
    pub fn in_field(self, name: &str) -> Tokenise {
        Tokenise {
            field: Some(name.into()),
            ..self
        }
    }

    fn of_pairs(&self) -> bool {
        self.names.len() == 2
    }
}

impl Stage for Tokenise {
    fn name(&self) -> &'static str {
        "decode"
    }

    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String> {
        let names = self.names.iter();
        let tokens = names.map(|name| FieldSpec::new(name, DType::U32, &[None]));
        let Some(field) = &self.field else {
            check_record(&input, "a vocabulary")?;
            return Ok(FieldSpecs(tokens.collect()));
        };
        let others = input.0.into_iter().filter(|other| other.name != *field);
        Ok(FieldSpecs(others.chain(tokens).collect()))
    }

    /// The vocabulary, the tokens put at the ends of sentences, and whether there are two sentences.
    fn fingerprint(&self) -> Option<u64> {
        let ends = u64::from(self.ends.begin)
            | u64::from(self.ends.end) << 1
            | u64::from(self.of_pairs()) << 2;
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
        let record = match &self.field {
            Some(name) => match sample.remove(name) {
                Some(Value::Bytes(bytes)) => Some(Record::whole(bytes)),
                _ => None,
            },
            None => take_record(sample, &self.members)?,
        };
        let Some(text) = record else {
            return Err("there is no text".into());
        };
        let text = text.bytes();
        let sides = if self.of_pairs() {
            pair_sides(text)
                .ok_or("it has no tab between two sentences; give `pair`, or `decode` words")?
        } else {
            [text, &[]]
        };
        for (name, side) in self.names.iter().zip(sides) {
            let mut tokens = sample.new_tokens();
            self.vocabulary.encode(side, self.ends, &mut tokens);
            if at.first {
                let unknown = |token: &&u32| **token == Special::Unknown.id();
                let unknown = tokens.iter().filter(unknown).count();
                self.unknown.fetch_add(unknown as u64, Relaxed);
            }
            sample.set(name, Value::Tokens(Cow::Owned(tokens)));
        }
        Ok(())
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        vec![(Tokenise::UNKNOWN_TOKENS, self.unknown.load(Relaxed))]
    }
}
