//! The record for each index of an order.

use std::sync::Arc;

use pelton_key::Digest;

use crate::selection::Selection;

/// The record for each index of an order.
#[derive(Debug, Clone)]
pub(crate) enum Numbering {
    /// Identity, over this many.
    All(u64),
    /// Those that a filter keeps.
    Kept(Selection),
    /// Those of a list, which may have some of them several times.
    Listed(Arc<[u64]>),
}

impl Numbering {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Numbering::All(records) => *records,
            Numbering::Kept(selection) => selection.len(),
            Numbering::Listed(ids) => ids.len() as u64,
        }
    }

    /// Replaces each number by its record. Asserts that there are such.
    pub(crate) fn to_records(&self, numbers: &mut [u64]) {
        match self {
            Numbering::All(_) => {}
            Numbering::Kept(selection) => {
                for number in numbers {
                    *number = selection.get(*number);
                }
            }
            Numbering::Listed(ids) => {
                for number in numbers {
                    *number = ids[*number as usize];
                }
            }
        }
    }

    /// Looks records up, each after the one before in few steps.
    pub(crate) fn walk(&self) -> Box<dyn Fn(u64) -> u64 + '_> {
        match self {
            Numbering::All(_) => Box::new(|number| number),
            Numbering::Kept(selection) => Box::new(selection.walk()),
            Numbering::Listed(ids) => Box::new(|number| ids[number as usize]),
        }
    }

    /// The filter.
    pub(crate) fn selection(&self) -> Option<&Selection> {
        match self {
            Numbering::Kept(selection) => Some(selection),
            _ => None,
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Numbering::All(_) => 0,
            Numbering::Kept(selection) => selection.memory_bytes(),
            Numbering::Listed(ids) => 8 * ids.len() as u64,
        }
    }

    /// 0 if every number is its record's.
    pub(crate) fn fingerprint(&self) -> u64 {
        match self {
            Numbering::All(_) => 0,
            Numbering::Kept(selection) => selection.fingerprint(),
            Numbering::Listed(ids) => Digest::new("listed records")
                .words(ids.iter().copied())
                .value(),
        }
    }
}
