//! The classes of records while a file is scanned: numbers or names, in order of first appearance.

use std::collections::{BTreeMap, HashMap};

use crate::record::labels::bits;
use crate::record::labels::codes::{Codes, NO_CLASS};

/// One class a record, so far.
#[derive(Default)]
pub(crate) struct ClassesSoFar {
    codes: Vec<u32>,
    labels: Vec<f64>,
    known: HashMap<u64, u32>,
    /// Codes of small whole numbers from 0 on, which are most: 1 more than the code, or 0.
    small: Vec<u32>,
    names: BTreeMap<String, u32>,
}

/// A value that is a small whole number.
#[inline]
fn small(value: f64) -> Option<usize> {
    const FEW: usize = 1 << 16;
    let whole = value as usize;
    (whole as f64 == value && whole < FEW).then_some(whole)
}

impl ClassesSoFar {
    /// How many classes there are.
    pub(crate) fn len(&self) -> usize {
        self.labels.len().max(self.names.len())
    }

    pub(crate) fn are_names(&self) -> bool {
        !self.names.is_empty()
    }

    pub(crate) fn are_numbers(&self) -> bool {
        !self.labels.is_empty()
    }

    #[inline]
    pub(crate) fn knows_number(&self, value: f64) -> bool {
        self.code_of(value).is_some()
    }

    #[inline]
    fn code_of(&self, value: f64) -> Option<u32> {
        match small(value) {
            Some(small) => self.small.get(small)?.checked_sub(1),
            None => self.known.get(&bits(value)).copied(),
        }
    }

    pub(crate) fn knows_name(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The next record has this number and no name.
    pub(crate) fn push_number(&mut self, value: f64) {
        if let Some(code) = self.code_of(value) {
            self.codes.push(code);
            return;
        }
        let code = self.labels.len() as u32;
        match small(value) {
            Some(small) => {
                self.small.resize(self.small.len().max(small + 1), 0);
                self.small[small] = code + 1;
            }
            None => {
                self.known.insert(bits(value), code);
            }
        }
        self.labels.push(value + 0.0);
        self.codes.push(code);
    }

    /// The next record has this name and no number.
    pub(crate) fn push_name(&mut self, name: &str) {
        let code = self.code_of_name(name);
        self.codes.push(code);
    }

    /// The code of a name, for [`ClassesSoFar::push_codes`].
    pub(crate) fn code_of_name(&mut self, name: &str) -> u32 {
        if let Some(code) = self.names.get(name) {
            return *code;
        }
        let next = self.names.len() as u32;
        self.names.insert(name.to_owned(), next);
        next
    }

    /// The next records have the names of these codes.
    #[cfg(feature = "columns")]
    pub(crate) fn push_codes(&mut self, codes: impl IntoIterator<Item = u32>) {
        self.codes.extend(codes);
    }

    /// The next record has no class, and its code is never used.
    pub(crate) fn push_none(&mut self) {
        self.codes.push(0);
    }

    /// The class of the next record is unknown, so it cannot be decoded.
    pub(crate) fn push_unknown(&mut self) {
        self.codes.push(NO_CLASS);
    }

    /// Labels (empty if no record had one), names in ascending order, and the codes.
    pub(crate) fn finish(mut self) -> (Vec<f64>, Vec<String>, Codes) {
        if self.names.is_empty() {
            return (self.labels, Vec::new(), Codes::new(self.codes));
        }
        let mut places = vec![0; self.names.len()];
        for (place, number) in (0..).zip(self.names.values()) {
            places[*number as usize] = place;
        }
        for code in &mut self.codes {
            *code = places.get(*code as usize).copied().unwrap_or(NO_CLASS);
        }
        let labels = (0..self.names.len()).map(|number| number as f64).collect();
        let names = self.names.into_keys().collect();
        (labels, names, Codes::new(self.codes))
    }
}
