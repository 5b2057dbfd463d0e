//! The bad records found so far, and their limit.

use std::collections::HashSet;

use pelton_fetch::FetchError;

use crate::building::BadExample;
use crate::options::BadExamples;

/// The bad records found so far. Every epoch and every repeat finds the same ones; each counts once.
#[derive(Debug, Default)]
pub(crate) struct BadSeen(HashSet<u64>);

impl BadSeen {
    /// Adds a batch's bad records.
    ///
    /// Errors: more records than the policy allows.
    pub fn add(&mut self, bad: &[BadExample], policy: BadExamples) -> Result<(), FetchError> {
        self.0.extend(bad.iter().map(|bad| bad.id));
        let found = self.0.len() as u64;
        match (bad.last(), policy.limit()) {
            (Some(last), Some(limit)) if found > limit => Err(FetchError::TooManyBadRecords {
                found,
                limit,
                last: last.problem.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Their ids, in rising order.
    pub fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.0.iter().copied().collect();
        ids.sort_unstable();
        ids
    }
}
