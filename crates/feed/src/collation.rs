//! How the samples of a batch are put together, field by field.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use pelton_batch::DType;

use crate::error::FeedError;

pelton_key::names! {
    /// How the samples of a batch are collated, field by field.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Collate: "a collation" {
        /// `stack` for augmented pictures and samples of one shape by construction; `pad` for tokens; otherwise `ragged`.
        #[default]
        Auto = "auto",
        /// One after another; they must have one shape.
        Stack = "stack",
        /// Along the first dimension to one length: that of the bucket if there are buckets, otherwise the longest of the
        /// batch.
        Pad = "pad",
        /// One after another with offsets.
        Ragged = "ragged",
    }
}

/// How samples are collated: one rule for all fields, and others for some by name. As text `pad`, `pad:-100`, or
/// `auto,tokens=pad:1,boxes=ragged,multiple:8`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collation {
    all: Rule,
    fields: Vec<(Arc<str>, Rule)>,
    multiple: usize,
}

/// How one field is collated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rule {
    /// The layout.
    pub how: Collate,
    /// The padding value.
    pub fill: f64,
}

impl From<Collate> for Collation {
    fn from(how: Collate) -> Collation {
        Collation {
            all: Rule { how, fill: 0.0 },
            ..Collation::default()
        }
    }
}

impl Collation {
    /// The rule of a field.
    pub(crate) fn of(&self, name: &str) -> Rule {
        let own = self.fields.iter().find(|(known, _)| &**known == name);
        own.map_or(self.all, |(_, rule)| *rule)
    }

    /// Refuses rules for fields that samples with these do not have.
    pub(crate) fn check(&self, fields: &[&str]) -> Result<(), FeedError> {
        let mut names = self.fields.iter().map(|(name, _)| name);
        match names.find(|name| !fields.contains(&&***name)) {
            Some(name) => Err(FeedError::Stages(format!(
                "`collate` names `{name}`, and samples have no such field: they have {}",
                fields.join(", ")
            ))),
            None => Ok(()),
        }
    }

    /// The padding of a field of this type, as the bytes of an element; empty for zeros.
    pub(crate) fn fill(&self, name: &str, dtype: DType) -> Result<Vec<u8>, FeedError> {
        let fill = self.of(name).fill;
        if fill == 0.0 {
            return Ok(Vec::new());
        }
        element(dtype, fill).ok_or_else(|| {
            FeedError::Stages(format!(
                "`{name}` is {dtype}, which has no {fill} to pad with; give another number, or make the field of another type in a function"
            ))
        })
    }

    /// Whether fields without a shape in common are one after another, each sample as long as it is.
    pub(crate) fn is_ragged(&self) -> bool {
        self.fields.is_empty() && matches!(self.all.how, Collate::Auto | Collate::Ragged)
    }

    /// The length that samples are padded to if the longest has `length` elements.
    pub(crate) fn padded(&self, length: usize) -> usize {
        length.next_multiple_of(self.multiple.max(1))
    }
}

/// The bytes of a number as an element of this type; `None` if the type cannot represent it.
fn element(dtype: DType, number: f64) -> Option<Vec<u8>> {
    macro_rules! whole {
        ($kind:ty) => {{
            let made = number as $kind;
            (made as f64 == number).then(|| made.to_ne_bytes().to_vec())
        }};
    }
    match dtype {
        DType::U8 => whole!(u8),
        DType::I8 => whole!(i8),
        DType::I16 => whole!(i16),
        DType::U16 => whole!(u16),
        DType::I32 => whole!(i32),
        DType::U32 => whole!(u32),
        DType::I64 => whole!(i64),
        DType::F32 => Some((number as f32).to_ne_bytes().to_vec()),
        DType::F64 => Some(number.to_ne_bytes().to_vec()),
        // Types of half the width have whole bytes of zeros for 0 alone.
        DType::F16 | DType::BF16 => (number == 0.0).then(|| vec![0; 2]),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.how)?;
        if self.fill != 0.0 {
            write!(f, ":{}", self.fill)?;
        }
        Ok(())
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let Some((how, fill)) = text.split_once(':') else {
            let how = text.parse()?;
            return Ok(Rule { how, fill: 0.0 });
        };
        let how = how.parse()?;
        if matches!(how, Collate::Stack | Collate::Ragged) {
            return Err(format!(
                "`{text}` pads nothing; leave the number out, or use pad"
            ));
        }
        let number = fill.parse().ok().filter(|number: &f64| !number.is_nan());
        let fill = number.ok_or_else(|| format!("`{fill}` is not a number to pad with"))?;
        Ok(Rule { how, fill })
    }
}

impl fmt::Display for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.all)?;
        for (name, rule) in &self.fields {
            write!(f, ",{name}={rule}")?;
        }
        if self.multiple > 0 {
            write!(f, ",multiple:{}", self.multiple)?;
        }
        Ok(())
    }
}

impl FromStr for Collation {
    type Err = String;

    fn from_str(text: &str) -> Result<Collation, String> {
        let mut made = Collation::default();
        for (i, part) in text.split(',').enumerate() {
            if let Some((name, rule)) = part.rsplit_once('=') {
                if made.fields.iter().any(|(known, _)| **known == *name) {
                    return Err(format!("`{name}` is collated in two ways; give one"));
                }
                made.fields.push((name.into(), rule.parse()?));
            } else if let Some(multiple) = part.strip_prefix("multiple:") {
                let multiple = multiple
                    .parse()
                    .ok()
                    .filter(|most| (1..=1 << 20).contains(most));
                made.multiple = multiple.ok_or_else(|| {
                    format!("`{part}` is not a multiple of 1 to {} to pad to", 1 << 20)
                })?;
            } else if i == 0 {
                made.all = part.parse()?;
            } else {
                return Err(format!(
                    "`{part}` names no field; write FIELD=pad, or multiple:8"
                ));
            }
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in [
            "auto",
            "pad:-100",
            "auto,tokens=pad:1,boxes=ragged,multiple:8",
            "ragged,labels=auto:-100",
        ] {
            let read: Collation = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        let rules: Collation = "ragged,labels=pad:-100,multiple:8".parse().unwrap();
        assert_eq!(
            (rules.of("labels").how, rules.of("labels").fill),
            (Collate::Pad, -100.0)
        );
        assert_eq!((rules.of("x").how, rules.padded(9)), (Collate::Ragged, 16));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let check = |text: &str, said: &str| {
            let error = text.parse::<Collation>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        };
        check("padded", "auto, stack, pad or ragged");
        check("stack:1", "pads nothing");
        check("pad:x", "not a number");
        check("pad,x=pad,x=stack", "two ways");
        check("pad,multiple:0", "multiple");
        check("pad,stack", "names no field");
    }

    #[test]
    fn only_numbers_that_a_type_has_are_padding() {
        assert_eq!(
            element(DType::I64, -100.0),
            Some((-100i64).to_ne_bytes().to_vec())
        );
        assert_eq!(element(DType::U32, -100.0), None);
        assert_eq!(element(DType::U8, 0.5), None);
        assert_eq!(
            element(DType::F32, 0.5),
            Some(0.5f32.to_ne_bytes().to_vec())
        );
    }
}
