//! The classes of records, as a pass over them meets one after another: numbers or names.

use std::collections::{BTreeMap, HashMap};

use crate::codes::Codes;
use crate::labels::bits;

/// Classes so far, in the order in which they were met.
#[derive(Default)]
pub(crate) struct ClassCodes {
    codes: Vec<u32>,
    labels: Vec<f64>,
    known: HashMap<u64, u32>,
    names: BTreeMap<String, u32>,
}

impl ClassCodes {
    /// Notes the class of the next record.
    pub(crate) fn add_number(&mut self, value: f64) {
        let next = self.labels.len() as u32;
        let code = *self.known.entry(bits(value)).or_insert(next);
        if code == next {
            self.labels.push(value + 0.0);
        }
        self.codes.push(code);
    }

    /// The same of a class that has a name.
    pub(crate) fn add_name(&mut self, name: &str) {
        let code = self.code_of(name);
        self.codes.push(code);
    }

    /// The code of a name.
    pub(crate) fn code_of(&mut self, name: &str) -> u32 {
        if let Some(code) = self.names.get(name) {
            return *code;
        }
        let next = self.names.len() as u32;
        self.names.insert(name.to_owned(), next);
        next
    }

    /// Notes the classes of the next records by such codes.
    pub(crate) fn extend(&mut self, codes: impl IntoIterator<Item = u32>) {
        self.codes.extend(codes);
    }

    /// Number of classes.
    pub(crate) fn len(&self) -> usize {
        self.labels.len().max(self.names.len())
    }

    pub(crate) fn has_numbers(&self) -> bool {
        !self.labels.is_empty()
    }

    pub(crate) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Labels, names in ascending order, and the codes.
    pub(crate) fn finish(mut self) -> (Vec<f64>, Vec<String>, Codes) {
        if self.names.is_empty() {
            return (self.labels, Vec::new(), Codes::new(self.codes));
        }
        let mut places = vec![0; self.names.len()];
        for (place, number) in (0..).zip(self.names.values()) {
            places[*number as usize] = place;
        }
        for code in &mut self.codes {
            *code = places[*code as usize];
        }
        let labels = (0..self.names.len()).map(|number| number as f64).collect();
        let names = self.names.into_keys().collect();
        (labels, names, Codes::new(self.codes))
    }
}
