//! The limit on bad records, counted over all ranks.
//!
//! A feed knows the records that its own rank skipped, and ends a rank that exceeds the limit alone. Over ranks the
//! limit applies to all skipped records, each counted once over all ranks and epochs. All ranks fail in the same call
//! with the same message. Rejected: adding up the ranks' counts, since a record that another rank takes in the next
//! epoch would count twice.
//!
//! Cost: one number from each rank per call, and the ids once their sum exceeds the limit.

use std::collections::BTreeSet;

use pelton_comm::{Comm, Reduction};
use pelton_fetch::{FetchError, Meters, OnBadRecord};
use pelton_format::Dataset;

use crate::error::DataError;
use crate::open::fetch_rows;

/// Ids of the records that any rank has skipped. All ranks call it.
pub fn met_by_all(comm: &Comm, meters: &Meters) -> Result<BTreeSet<u64>, DataError> {
    let all = comm.all_gather_ragged(&meters.skipped_ids)?;
    Ok(all.into_iter().flatten().collect())
}

/// Fails on all ranks if together they have skipped more records than `policy` allows. All ranks call it, with the
/// meters of feeds over the same `dataset`.
pub fn check_limit(
    comm: &Comm,
    policy: OnBadRecord,
    dataset: &Dataset,
    meters: &Meters,
) -> Result<(), DataError> {
    let OnBadRecord::Skip { limit: Some(limit) } = policy else {
        return Ok(());
    };
    let problem = |last| problem_of(dataset, last);
    check_limit_on(comm, Some(limit), &meters.skipped_ids, problem)
}

/// The error of a record, found by reading it again.
pub fn problem_of(dataset: &Dataset, id: u64) -> String {
    match fetch_rows(dataset, &[id]) {
        Err(error) => error.to_string(),
        // The file has been repaired meanwhile.
        Ok(_) => format!("record {id}"),
    }
}

/// The note on the skipped records `ids`; `None` if empty.
pub fn left_out(dataset: &Dataset, ids: &[u64]) -> Option<String> {
    let count = match ids.len() {
        1 => "1 record is".to_owned(),
        count => format!("{count} records are"),
    };
    let first = problem_of(dataset, *ids.first()?);
    Some(format!("{count} bad and left out; the first: {first}"))
}

/// Fails if no record was left and some were bad. `bad` are the ids that this rank found, and `first` is the first of
/// them with a known problem. All ranks call it.
pub fn check_some_left(
    comm: &Comm,
    left: u64,
    bad: &[u64],
    first: impl FnOnce() -> Option<(u64, String)>,
) -> Result<(), DataError> {
    let mut sums = [left, bad.len() as u64];
    comm.all_reduce(&mut sums, Reduction::Sum)?;
    if sums[0] > 0 || sums[1] == 0 {
        return Ok(());
    }
    let all: BTreeSet<u64> = comm.all_gather_ragged(bad)?.concat().into_iter().collect();
    let (id, problem) = first().unwrap_or((u64::MAX, String::new()));
    let ids = comm.all_gather_ragged(&[id])?.concat();
    let problems = comm.all_gather_ragged(problem.as_bytes())?;
    let first = ids.into_iter().zip(problems).min();
    let first = first.map(|(_, problem)| String::from_utf8_lossy(&problem).into_owned());
    let found = all.len() as u64;
    let first = first.unwrap_or_default();
    Err(DataError::AllBad { found, first })
}

/// Fails on all ranks if the distinct records in the ranks' `ids` exceed `limit`; `problem` describes one of them. All
/// ranks call it.
pub fn check_limit_on(
    comm: &Comm,
    limit: Option<u64>,
    ids: &[u64],
    problem: impl FnOnce(u64) -> String,
) -> Result<(), DataError> {
    let Some(limit) = limit else {
        return Ok(());
    };
    let mut sum = [ids.len() as u64];
    comm.all_reduce(&mut sum, Reduction::Sum)?;
    if sum[0] <= limit {
        return Ok(());
    }
    let ids: BTreeSet<u64> = comm.all_gather_ragged(ids)?.concat().into_iter().collect();
    let found = ids.len() as u64;
    let Some(&last) = ids.last().filter(|_| found > limit) else {
        return Ok(());
    };
    let last = problem(last);
    let error = FetchError::TooManyBadRecords { found, limit, last };
    Err(error.into())
}
