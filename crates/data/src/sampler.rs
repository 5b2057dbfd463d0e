//! Parses the choice of records for an epoch.

use std::path::Path;

use pelton_feed::{BadExamples, SampleSetting};
use pelton_format::npy_numbers;
use pelton_plan::Sampler;
use pelton_run::RunContext;

use crate::error::DataError;
use crate::open::OpenedData;
use crate::record_classes::several_classes;

/// The data of a setting: the classes of the records, or the values in a file.
pub(crate) fn sampler_of(
    setting: &SampleSetting,
    bad_examples: BadExamples,
    opened: &OpenedData,
    context: &mut RunContext<'_>,
) -> Result<Sampler, DataError> {
    Ok(match setting {
        SampleSetting::Balanced => {
            let classes =
                several_classes(&opened.dataset, "`sample` balanced", bad_examples, context)?;
            Sampler::Classes(classes.into())
        }
        SampleSetting::Weights(file) => Sampler::Weights(npy_numbers(file)?.into()),
        SampleSetting::Ids(file) => Sampler::Ids(whole_numbers(file)?.into()),
    })
}

/// The record ids listed in a file.
fn whole_numbers(file: &Path) -> Result<Vec<u64>, DataError> {
    let whole = |number: f64| {
        if number.fract() == 0.0 && (0.0..=2_f64.powi(53)).contains(&number) {
            Ok(number as u64)
        } else {
            Err(DataError::Config(format!(
                "{}: {number} is not the index of a record; give whole numbers from 0 on",
                file.display()
            )))
        }
    };
    npy_numbers(file)?.into_iter().map(whole).collect()
}
