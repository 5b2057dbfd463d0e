//! Checks that the data has not changed since a state was saved.

use std::sync::Arc;

use pelton_comm::{Comm, Reduction};
use pelton_fetch::OnBadRecord;
use pelton_format::{ContentSum, Dataset};
use pelton_key::splitmix64;
use pelton_plan::{Place, Plan, StepBatch};
use pelton_run::{Event, Interrupt, Observer};

use crate::error::DataError;
use crate::pass::Pass;

/// A saved state's information on its data.
#[derive(Clone, Copy, Debug)]
pub struct SavedContent {
    /// The state of the files, from [`Dataset::files_state`].
    pub files: u64,
    /// Content sum of the first whole epoch.
    pub first: Option<ContentSum>,
    /// Content sum of the next batch's epoch, up to that batch.
    pub so_far: Option<ContentSum>,
    /// The next batch.
    pub place: Place,
}

/// Reads all records again if files have other times than when a state was saved, and compares content sums: that of
/// the first epoch if complete, otherwise that of the epoch so far. Files with the same times are compared at the end
/// of an epoch.
///
/// Errors: changed records; an interruption.
pub fn check_content(
    dataset: &Arc<Dataset>,
    plan: &Plan,
    saved: SavedContent,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<(), DataError> {
    if saved.files == dataset.files_state() {
        return Ok(());
    }
    let (expected, used) = match (saved.first, saved.so_far) {
        (Some(first), _) => (first, used(plan, 0, u64::MAX)),
        (None, Some(so_far)) => (so_far, used(plan, saved.place.epoch, saved.place.step)),
        (None, None) => (ContentSum { ids: 1, rows: 0 }, Used::default()),
    };
    if used.ids != expected.ids {
        observer(Event::Note(
            "files of the data have changed since the state was saved, and it does not say what was in them: if that is not the same, start again",
        ));
        return Ok(());
    }
    let mut found = ContentSum::default();
    let what = "comparing the data with what was used before";
    let mut pass = Pass::new(dataset, what, OnBadRecord::Skip { limit: None }, interrupt)?;
    while pass.next_step(observer, |batch| {
        for i in 0..batch.rows.len() {
            let id = batch.rows.id(i);
            if used.contains(id) {
                found.add(id, batch.rows.label(i), batch.rows.row(i));
            }
        }
    })? {}
    match found == expected {
        true => Ok(()),
        false => Err(dataset.other_content().into()),
    }
}

/// The sums of all ranks; `None` if any rank lacks its own.
pub fn summed(own: Option<ContentSum>, comm: &Comm) -> Result<Option<ContentSum>, DataError> {
    let ContentSum { ids, rows } = own.unwrap_or_default();
    let mut sums = [ids, rows, u64::from(own.is_none())];
    comm.all_reduce(&mut sums, Reduction::Sum)?;
    let [ids, rows, unknown] = sums;
    Ok((unknown == 0).then_some(ContentSum { ids, rows }))
}

/// The records that steps of an epoch use, each once.
#[derive(Default)]
struct Used {
    bits: Vec<u64>,
    /// As in [`ContentSum`].
    ids: u64,
}

impl Used {
    fn contains(&self, id: u64) -> bool {
        self.bits[id as usize / 64] >> (id % 64) & 1 == 1
    }
}

/// The records of the first `steps` steps of an epoch.
fn used(plan: &Plan, epoch: u64, steps: u64) -> Used {
    let mut used = Used {
        bits: vec![0; plan.records().div_ceil(64) as usize],
        ids: 0,
    };
    let mut walk = plan.walk(Place { epoch, step: 0 }, None);
    let mut batch = StepBatch::default();
    while walk.place().epoch == epoch && walk.place().step < steps && walk.next(&mut batch) {
        for (i, &id) in batch.ids.iter().enumerate() {
            let is_copy = batch.copies.get(i).is_some_and(|&copy| copy > 0);
            let goes_on = batch.pieces.get(i).is_some_and(|piece| piece.start > 0);
            if !is_copy && !goes_on {
                used.bits[id as usize / 64] |= 1 << (id % 64);
                used.ids = used.ids.wrapping_add(splitmix64(id));
            }
        }
        if batch.ends_epoch {
            break;
        }
    }
    used
}
