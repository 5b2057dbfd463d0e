//! Collects the classes of samples during the walk over a tar file: numbers in members `cls`, or the value of a key
//! of members `json`.

use std::collections::HashMap;

use crate::locate::tar::walk::Entry;
use crate::record::error::{Fault, FormatError, FormatErrorKind, excerpt};
use crate::record::json::{JsonClass, JsonKey, json_class};
use crate::record::labels::codes::{Codes, NO_CLASS};
use crate::record::labels::{LABEL_LIMIT, MOST_LABELS, bits, too_many_labels};
use crate::record::numbers::parse::parse_f64;

/// Longest member `cls`.
const MOST_CLASS_BYTES: u64 = 64;
/// Longest member `json` to search for a class.
const MOST_JSON_BYTES: u64 = 16 << 20;

/// The error for a sample without a class in its member `json`.
fn no_label(sample: &[u8], fault: Fault) -> FormatError {
    FormatError::new(format!("sample {}: {fault}", excerpt(sample)))
        .of_kind(FormatErrorKind::Record)
}

/// Classes so far.
pub(crate) struct TarClasses<'a> {
    key: Option<&'a JsonKey>,
    /// One a sample.
    codes: Vec<u32>,
    /// Numbers in order of first appearance; 0 is first, for samples without a class.
    labels: Vec<f64>,
    known: HashMap<u64, u32>,
    /// Names with their ids, in order of first appearance.
    names: HashMap<String, u32>,
    /// Whether the last sample states its class.
    has_class: bool,
    /// Whether some sample does.
    any: bool,
    /// The kind of the first class: an integer or a string.
    kind: Option<&'static str>,
}

/// The classes of a file.
pub(crate) struct ClassesFound {
    /// Empty if no sample states a class.
    pub(crate) labels: Vec<f64>,
    /// If classes have names, one a label, in ascending order.
    pub(crate) names: Vec<String>,
    pub(crate) codes: Codes,
}

impl<'a> TarClasses<'a> {
    pub(crate) fn new(key: Option<&'a JsonKey>) -> TarClasses<'a> {
        TarClasses {
            key,
            codes: Vec::new(),
            labels: vec![0.0],
            known: HashMap::from([(bits(0.0), 0)]),
            names: HashMap::new(),
            has_class: true,
            any: false,
            kind: None,
        }
    }

    /// A sample starts.
    pub(crate) fn begin(&mut self) {
        self.has_class = false;
        self.codes.push(0);
    }

    /// How many bytes of a member of `size` bytes contain the class; `None` if another member has it.
    pub(crate) fn bytes_of(&self, extension: &[u8], size: u64) -> Option<u64> {
        let (member, most) = match self.key {
            Some(_) => (&b"json"[..], MOST_JSON_BYTES),
            None => (&b"cls"[..], MOST_CLASS_BYTES),
        };
        extension
            .eq_ignore_ascii_case(member)
            .then_some(size.min(most))
    }

    /// Takes the class from the first bytes of a member of the last sample; the member has `entry.size` bytes.
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        entry: &Entry,
        member: &[u8],
        sample: &[u8],
    ) -> Result<(), FormatError> {
        let size = entry.size;
        let code = match self.key {
            Some(key) => {
                { self.of_json(bytes, size, key) }.map_err(|fault| no_label(sample, fault))?
            }
            None => match parse_f64(bytes.trim_ascii()) {
                Ok(value) if size <= MOST_CLASS_BYTES && value.abs() < LABEL_LIMIT => {
                    self.number(value)
                }
                found_number => {
                    let (found, member) = (excerpt(bytes), excerpt(member));
                    let why = match found_number {
                        Ok(_) if size <= MOST_CLASS_BYTES => "not below 2^53 in magnitude",
                        _ => "not a number",
                    };
                    let what = format!(
                        "member {member} holds {found:?}, which is {why}; write classes as numbers"
                    );
                    let error = FormatError::malformed(entry.data, what);
                    return Err(error.of_kind(FormatErrorKind::Record));
                }
            },
        };
        if self.labels.len().max(self.names.len()) > MOST_LABELS {
            return Err(too_many_labels(MOST_LABELS));
        }
        if let Some(last) = self.codes.last_mut() {
            *last = code;
        }
        (self.has_class, self.any) = (true, true);
        Ok(())
    }

    fn number(&mut self, value: f64) -> u32 {
        let next = self.labels.len() as u32;
        let code = *self.known.entry(bits(value)).or_insert(next);
        if code == next {
            self.labels.push(value + 0.0);
        }
        code
    }

    fn of_json(&mut self, json: &[u8], size: u64, key: &JsonKey) -> Result<u32, Fault> {
        if size > MOST_JSON_BYTES {
            return Err(Fault::new(format!(
                "its member .json has {size} bytes, and up to {MOST_JSON_BYTES} are read for a class; keep the class in a member .cls"
            )));
        }
        let class = json_class(json, key)?;
        let found = class.kind();
        let expected = *self.kind.get_or_insert(found);
        if found != expected {
            return Err(Fault::new(format!(
                "{key} of its member .json is {found}, but samples before it have {expected}; write all classes alike"
            )));
        }
        Ok(match class {
            JsonClass::Number(number) => self.number(number as f64),
            JsonClass::Name(name) => {
                let next = self.names.len() as u32;
                *self.names.entry(name).or_insert(next)
            }
        })
    }

    /// Ends the last sample; returns whether it states a class.
    pub(crate) fn end_sample(&self, sample: &[u8]) -> Result<bool, FormatError> {
        match self.key {
            Some(key) if !self.has_class => {
                let what = format!(
                    "has no member .json, where `label` json:{key} looks for its class; add one, or leave `label` out"
                );
                Err(no_label(sample, Fault::new(what)))
            }
            _ => Ok(self.has_class),
        }
    }

    /// The last sample is damaged or states no class that can be read.
    pub(crate) fn forget(&mut self) {
        if let Some(last) = self.codes.last_mut() {
            *last = NO_CLASS;
        }
        // It counts as unlabelled only if all are.
        self.has_class = self.any;
    }

    pub(crate) fn finish(mut self) -> ClassesFound {
        if !self.names.is_empty() {
            return self.named();
        }
        // Class 0 is listed first for samples without a class; if no sample has it, it is dropped.
        if !self.any {
            self.labels.clear();
        } else if !self.codes.contains(&0) && self.labels.len() > 1 {
            self.labels.remove(0);
            for code in self.codes.iter_mut().filter(|code| **code != NO_CLASS) {
                *code -= 1;
            }
        }
        ClassesFound {
            labels: self.labels,
            names: Vec::new(),
            codes: Codes::new(self.codes),
        }
    }

    /// Sorts names, as those of folders are, independent of the order of the samples.
    fn named(mut self) -> ClassesFound {
        let mut names: Vec<(String, u32)> = self.names.into_iter().collect();
        names.sort_unstable();
        let mut places = vec![0; names.len()];
        for (place, (_, met)) in (0..).zip(&names) {
            places[*met as usize] = place;
        }
        for code in &mut self.codes {
            *code = places.get(*code as usize).copied().unwrap_or(NO_CLASS);
        }
        ClassesFound {
            labels: (0..names.len()).map(|class| class as f64).collect(),
            names: names.into_iter().map(|(name, _)| name).collect(),
            codes: Codes::new(self.codes),
        }
    }
}
