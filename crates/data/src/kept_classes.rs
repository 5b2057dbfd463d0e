//! Which records are of the classes that a pipeline keeps.
//!
//! Most data list classes outside the records: the names of folders, tables, files of labels, the index of a tar
//! file. They cost no reading. Where records say their class themselves (CIFAR, rows of features), one pass over the
//! data finds it out; over ranks the first makes it for all.

use std::sync::Arc;

use pelton_feed::BadExamples;
use pelton_fetch::OnBadRecord;
use pelton_format::{ClassName, Dataset};
use pelton_plan::Selection;
use pelton_run::RunContext;

use crate::error::DataError;
use crate::pass::Pass;

/// Classes that a message names.
const MOST_NAMED: usize = 20;

/// The records of the named classes. A record of which the class cannot be told is kept where the policy goes on
/// with bad examples, so that it is counted as one.
pub(crate) fn records_of(
    dataset: &Arc<Dataset>,
    names: &[ClassName],
    bad_examples: BadExamples,
    context: &mut RunContext<'_>,
) -> Result<Selection, DataError> {
    let mut wanted = vec![false; dataset.labels().len()];
    for name in names {
        wanted[class_called(dataset, name)? as usize] = true;
    }
    let kept = match dataset.lists_classes() {
        true => of_listed(dataset, &wanted, bad_examples)?,
        false => of_read(dataset, &wanted, bad_examples, context)?,
    };
    let selection = Selection::new(dataset.records(), |id| {
        kept[id as usize / 64] >> (id % 64) & 1 == 1
    });
    if selection.is_empty() {
        return Err(DataError::Config(
            "no record is of a class that `keep_classes` keeps; name other classes".to_owned(),
        ));
    }
    Ok(selection)
}

fn class_called(dataset: &Dataset, name: &ClassName) -> Result<u32, DataError> {
    let labels = dataset.labels();
    labels.class_called(name).ok_or_else(|| {
        let named = labels.len().min(MOST_NAMED);
        let known: Vec<String> = (0..named as u32)
            .map(|class| labels.describe(class))
            .collect();
        let more = match labels.len() - named {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        DataError::Config(format!(
            "`keep_classes` {name}: the data has no such class; its classes are {}{more}",
            known.join(", ")
        ))
    })
}

/// A bit for every record, from what is listed.
fn of_listed(
    dataset: &Dataset,
    wanted: &[bool],
    bad_examples: BadExamples,
) -> Result<Vec<u64>, DataError> {
    let mut kept = vec![0_u64; dataset.records().div_ceil(64) as usize];
    for id in 0..dataset.records() {
        let keeps = match dataset.listed_class(id) {
            Ok(class) => class.is_some_and(|class| wanted[class as usize]),
            Err(error) if bad_examples == BadExamples::Fail => {
                return Err(pelton_fetch::FetchError::from(error).into());
            }
            Err(_) => true,
        };
        kept[id as usize / 64] |= u64::from(keeps) << (id % 64);
    }
    Ok(kept)
}

/// The same from the records themselves, read by the first rank.
fn of_read(
    dataset: &Arc<Dataset>,
    wanted: &[bool],
    bad_examples: BadExamples,
    context: &mut RunContext<'_>,
) -> Result<Vec<u64>, DataError> {
    // What is not read stays kept.
    let mut kept = vec![u64::MAX; dataset.records().div_ceil(64) as usize];
    if context.comm.rank() == 0 {
        let on_bad_record = match bad_examples {
            BadExamples::Fail => OnBadRecord::Fail,
            _ => OnBadRecord::Skip { limit: None },
        };
        let mut pass = Pass::new(
            dataset,
            "looking for classes",
            on_bad_record,
            context.interrupt,
        )?;
        while pass.next_step(context.observer, |batch| {
            for i in 0..batch.rows.len() {
                let (id, class) = (batch.rows.id(i), batch.rows.label(i));
                let keeps = wanted[class as usize];
                kept[id as usize / 64] &= !(u64::from(!keeps) << (id % 64));
            }
        })? {}
    }
    context.comm.broadcast(&mut kept, 0)?;
    Ok(kept)
}
