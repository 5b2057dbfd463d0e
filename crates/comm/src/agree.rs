//! Values that must be the same on all ranks before they start: compared by name, so the error names the rank and the
//! difference.
//!
//! Every job with ranks makes this check for each of its inputs: settings, data, plan, start and parameters. The cost
//! is one all-gather of the values, some hundred bytes a rank.

use std::collections::BTreeMap;

use crate::{Comm, CommError};

/// Between a name and its value, and after a value: no setting holds them.
const NAMED: char = '\u{1f}';
const NEXT: char = '\u{1e}';

/// Named values that must be equal on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alike(Vec<(String, String)>);

impl Alike {
    /// With one more value; of several that differ the message names the first.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl ToString) -> Alike {
        self.0.push((name.into(), value.to_string()));
        self
    }

    /// [`Alike::with`] a digest of data too long for a message.
    #[must_use]
    pub fn with_digest(self, name: impl Into<String>, digest: u64) -> Alike {
        self.with(name, format!("{digest:016x}"))
    }

    fn to_text(&self) -> String {
        let entries = self.0.iter();
        entries.fold(String::new(), |text, (name, value)| {
            text + name + &NAMED.to_string() + value + &NEXT.to_string()
        })
    }
}

impl Comm {
    /// Compares `own` with the values of all other ranks. All ranks call it, and get the same answer.
    ///
    /// Errors: [`CommError::RanksDiffer`], which names a rank that has other values than most.
    pub fn agree(&self, own: &Alike) -> Result<(), CommError> {
        if self.size() == 1 {
            return Ok(());
        }
        let all = self.all_gather_ragged(own.to_text().as_bytes())?;
        if all.iter().all(|text| *text == all[0]) {
            return Ok(());
        }
        let texts: Vec<_> = all
            .iter()
            .map(|text| String::from_utf8_lossy(text))
            .collect();
        let values: Vec<BTreeMap<&str, &str>> = texts.iter().map(|text| by_name(text)).collect();
        // The names in the order in which they were given, on any rank.
        let names = texts.iter().flat_map(|text| text.split(NEXT));
        let names = names.filter_map(|entry| Some(entry.split_once(NAMED)?.0));
        let differing = names
            .map(|name| {
                (
                    name,
                    values.iter().map(|of| of.get(name).copied()).collect(),
                )
            })
            .find_map(|(name, values): (&str, Vec<Option<&str>>)| {
                odd_one(&values).map(|(odd, other)| (name, values[odd], odd, values[other], other))
            });
        let Some((what, found, odd, expected, other)) = differing else {
            // The same values in another order, which does not occur.
            return Ok(());
        };
        // No rank ends before all know, or others would hear of its end first.
        let _ = self.barrier();
        let shown = |value: Option<&str>| value.unwrap_or("none").to_string();
        Err(CommError::RanksDiffer {
            rank: self.world_rank_of(odd),
            what: what.to_string(),
            found: shown(found),
            other: self.world_rank_of(other),
            expected: shown(expected),
        })
    }

    /// Sends the result of `read` on rank 0 to all; no other rank calls it. All ranks call this. So all get files
    /// that only one rank's machine has, such as checkpoints.
    ///
    /// Errors: those of `read`; a failed rank, as others see an error of rank 0's.
    pub fn from_first<E: From<CommError>>(
        &self,
        read: impl FnOnce() -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let mut bytes = match self.rank() {
            0 => read()?,
            _ => None,
        };
        if self.size() == 1 {
            return Ok(bytes);
        }
        let mut reported = [
            bytes.is_some().into(),
            bytes.as_ref().map_or(0, Vec::len) as u64,
        ];
        self.broadcast(&mut reported, 0)?;
        if reported[0] == 1 {
            let bytes = bytes.get_or_insert_with(|| vec![0; reported[1] as usize]);
            self.broadcast(bytes, 0)?;
        }
        Ok(bytes)
    }
}

fn by_name(text: &str) -> BTreeMap<&str, &str> {
    let entries = text.split(NEXT);
    entries
        .filter_map(|entry| entry.split_once(NAMED))
        .collect()
}

/// A rank that differs from the most common value, and one that has it; `None` if all are equal. In a tie the value
/// of the lowest rank counts.
fn odd_one(values: &[Option<&str>]) -> Option<(usize, usize)> {
    let holders = |value| values.iter().filter(|other| **other == value).count();
    let usual = (0..values.len())
        .rev()
        .max_by_key(|&rank| holders(values[rank]))?;
    let odd = values.iter().position(|value| *value != values[usual])?;
    Some((odd, usual))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::run_ranks;

    /// The error on all ranks for these values of `seed`, one of them longer.
    #[track_caller]
    fn check(seeds: &[Option<u64>], expected: Option<&str>) {
        let reported = run_ranks(seeds.len(), |comm| {
            let mut own = Alike::default().with("`rate`", 0.1);
            if let Some(seed) = seeds[comm.rank()] {
                own = own.with("`seed`", seed);
            }
            let reported = comm.agree(&own.with_digest("the plan", 7));
            Ok::<_, CommError>(reported.err().map(|error| error.to_string()))
        });
        for reported in reported.unwrap() {
            assert_eq!(reported.as_deref(), expected, "{seeds:?}");
        }
    }

    #[test]
    fn the_rank_that_differs_is_named_on_all() {
        const REMEDY: &str = "give every rank the same data and settings, and start again";
        check(&[Some(1)], None);
        check(&[Some(1); 5], None);
        check(&[None; 3], None);
        let differs = |text: &str| Some(format!("{text}; {REMEDY}"));
        let text = differs("rank 1 has `seed` 2, but rank 0 has 1");
        check(&[Some(1), Some(2)], text.as_deref());
        let text = differs("rank 0 has `seed` 2, but rank 1 has 1");
        check(&[Some(2), Some(1), Some(1)], text.as_deref());
        let text = differs("rank 2 has `seed` none, but rank 0 has 3");
        check(&[Some(3), Some(3), None, Some(3)], text.as_deref());
        let text = differs("rank 1 has `seed` 3, but rank 0 has none");
        check(&[None, Some(3)], text.as_deref());
    }

    #[test]
    fn files_of_rank_0_reach_all() {
        for held in [
            None,
            Some(vec![]),
            Some((0..70_000).map(|i| i as u8).collect()),
        ] {
            let all = run_ranks(3, |comm| {
                let first = comm.rank() == 0;
                comm.from_first(|| {
                    assert!(first, "others do not read");
                    Ok::<_, CommError>(held.clone())
                })
            });
            assert_eq!(all.unwrap(), [held.clone(), held.clone(), held]);
        }
    }
}
