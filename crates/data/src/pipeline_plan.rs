//! The plan of a pipeline: the records it keeps, the shares of files, and the batches.

use std::sync::Arc;

use pelton_feed::{BadExamples, DecodeSetting, EchoSetting, LengthSetting, PipelineConfig};
use pelton_fetch::OnBadRecord;
use pelton_format::{Contents, Dataset, npy_numbers};
use pelton_plan::{Catalog, Echo, Part, Plan, PlanSpec, Sampler, Selection};
use pelton_run::RunContext;
use pelton_text::Tokenizer;

use crate::error::DataError;
use crate::length_cache::{Counted, length_of_number, record_lengths};
use crate::open::OpenedData;
use crate::plan::units_of;
use crate::record_classes;
use crate::sampler::sampler_of;

/// The plan of a pipeline over the records in `among`; `spec` gives order, batch and seed. Lengths are those given, or
/// in tokens if there is a tokenizer.
pub(crate) fn pipeline_plan(
    config: &PipelineConfig,
    spec: PlanSpec,
    among: Option<&Selection>,
    opened: &OpenedData,
    tokenizer: Option<Tokenizer>,
    lengths: Option<&Arc<[u32]>>,
    context: &mut RunContext<'_>,
) -> Result<Plan, DataError> {
    let dataset = &opened.dataset;
    let sides = match config.decode {
        DecodeSetting::Pairs(_) => 2,
        _ => 1,
    };
    let needs_lengths = config.buckets.is_some() || config.keep_lengths.is_some();
    let lengths = match (given_lengths(config, lengths, opened, context)?, tokenizer) {
        (Some(_), _) if sides == 2 => {
            return Err(DataError::Config(
                "`lengths` gives one length a record, and `decode` pairs has two; leave one of them out"
                    .to_owned(),
            ));
        }
        (Some(_), _) if !needs_lengths => {
            return Err(DataError::Config(
                "`lengths` does nothing without `buckets` or `keep_lengths`; give one of them, or leave it out"
                    .to_owned(),
            ));
        }
        (Some(given), _) => Some(given),
        (None, Some(tokenizer)) if needs_lengths => {
            let what = Counted::Tokens(tokenizer, sides);
            Some(record_lengths(opened, what, context)?.into())
        }
        _ => None,
    };
    let ids = dataset.ids();
    let has_fields = dataset.contents() == Contents::Fields && ids.is_none();
    if config.buckets.is_some() && lengths.is_none() && has_fields {
        let fields = dataset.fields();
        return Err(DataError::Config(format!(
            "`buckets` needs a length of each record, and the records have the fields {}; say which of them counts, as in `lengths` field:{}",
            fields.names(),
            fields.0.first().map_or("NAME", |field| &*field.name)
        )));
    }
    // For other data the length is the record's size in token ids, or in bytes.
    let unit = ids.map_or(1, |dtype| dtype.bytes() as u64);
    let length_of = |id: u64| match &lengths {
        Some(lengths) => lengths[sides * id as usize],
        None => u32::try_from(dataset.locate(id).length / unit).unwrap_or(u32::MAX),
    };
    let second_length_of = |id: u64| match &lengths {
        Some(lengths) if sides == 2 => lengths[2 * id as usize + 1],
        _ => 0,
    };
    let of_classes = match config.keep_classes.as_slice() {
        [] => None,
        names => {
            let bad_examples = config.bad_examples;
            let kept = record_classes::records_of(dataset, names, bad_examples, context)?;
            Some(kept)
        }
    };
    let selection = match config.keep_lengths {
        Some(range) => Some(kept_lengths(dataset, of_classes, |id| {
            let second = sides == 1 || range.contains(second_length_of(id));
            range.contains(length_of(id)) && second
        })?),
        None => of_classes,
    };
    let selection = match (among, selection) {
        (Some(among), Some(kept)) => Some(Selection::new(dataset.records(), |id| {
            among.contains(id) && kept.contains(id)
        })),
        (among, kept) => among.cloned().or(kept),
    };
    if selection.as_ref().is_some_and(Selection::is_empty) {
        return Err(DataError::Config(
            "no record is left after those held out, or of other classes or lengths, are removed; hold out fewer, or keep more"
                .to_owned(),
        ));
    }
    let mixture = match &config.mix {
        Some(weights) => Some(parts(dataset, weights)?),
        None => None,
    };
    let sampler = match (&config.sample, spec.sampler) {
        (Some(setting), Some(_)) => {
            return Err(DataError::Config(format!(
                "`sample` {setting} and the program's sampler both choose records; give only one of them"
            )));
        }
        (Some(setting), None) => Some(sampler_of(setting, config.bad_examples, opened, context)?),
        (None, sampler) => sampler,
    };
    // Removes held-out records from a list; a list that contradicts a filter is refused later.
    let sampler = match (sampler, among) {
        (Some(Sampler::Ids(ids)), Some(among)) => {
            let takes_part = |&id: &u64| id >= among.records() || among.contains(id);
            Some(Sampler::Ids(
                ids.iter().copied().filter(takes_part).collect(),
            ))
        }
        (sampler, _) => sampler,
    };
    let units = units_of(dataset, spec.order);
    let spec = PlanSpec {
        last: config.last,
        echo: config.echo.map_or(Echo::NONE, EchoSetting::of_examples),
        batch_echo: config.echo.map_or(Echo::NONE, EchoSetting::of_batches),
        buckets: config.buckets.clone(),
        mixture,
        sampler,
        epoch_examples: config.epoch_examples,
        ..spec
    };
    let over = Catalog {
        records: dataset.records(),
        selection,
        units,
        length_of: Some(&length_of),
        second_length_of: (sides == 2).then_some(&second_length_of),
    };
    Ok(Plan::new(&spec, over)?)
}

/// The lengths from the setting or the program.
fn given_lengths(
    config: &PipelineConfig,
    given: Option<&Arc<[u32]>>,
    opened: &OpenedData,
    context: &mut RunContext<'_>,
) -> Result<Option<Arc<[u32]>>, DataError> {
    let lengths: Arc<[u32]> = match (&config.lengths, given) {
        (None, None) => return Ok(None),
        (None, Some(given)) => Arc::clone(given),
        (Some(setting), Some(_)) => {
            return Err(DataError::Config(format!(
                "`lengths` {setting} and the program both give lengths; give only one of them"
            )));
        }
        (Some(LengthSetting::Field(name)), None) => {
            let fields = opened.dataset.fields();
            if opened.dataset.contents() != Contents::Fields || fields.get(name).is_none() {
                return Err(DataError::Config(format!(
                    "`lengths` field:{name}: the records have no such field, only {}; name one of these, or a file of lengths",
                    fields.names()
                )));
            }
            let on_bad_record = match config.bad_examples {
                BadExamples::Fail => OnBadRecord::Fail,
                _ => OnBadRecord::Skip { limit: None },
            };
            record_lengths(opened, Counted::Field(name, on_bad_record), context)?.into()
        }
        (Some(LengthSetting::File(file)), None) => {
            let length = |number| {
                length_of_number(number).ok_or_else(|| {
                    DataError::Config(format!(
                        "{}: {number} is not a length; give whole numbers from 0 to 4294967295",
                        file.display()
                    ))
                })
            };
            let numbers = npy_numbers(file)?.into_iter();
            numbers.map(length).collect::<Result<_, _>>()?
        }
    };
    let (found, records) = (lengths.len() as u64, opened.dataset.records());
    if found == records {
        Ok(Some(lengths))
    } else {
        Err(DataError::Config(format!(
            "{found} lengths are given for {records} records; give one for each, in their order"
        )))
    }
}

/// The records with kept lengths, among those with kept classes.
fn kept_lengths(
    dataset: &Dataset,
    of_classes: Option<Selection>,
    keeps: impl Fn(u64) -> bool,
) -> Result<Selection, DataError> {
    let of_classes = of_classes.as_ref();
    let kept = Selection::new(dataset.records(), |id| {
        of_classes.is_none_or(|kept| kept.contains(id)) && keeps(id)
    });
    if kept.is_empty() {
        let of_them = match of_classes {
            Some(_) => " of the classes that `keep_classes` keeps",
            None => "",
        };
        return Err(DataError::Config(format!(
            "no record{of_them} has a length within `keep_lengths`; give other lengths"
        )));
    }
    Ok(kept)
}

/// One part for each file.
fn parts(dataset: &Dataset, weights: &[f64]) -> Result<Vec<Part>, DataError> {
    let files = dataset.files();
    if weights.len() != files.len() {
        return Err(DataError::Config(format!(
            "`mix` has {} shares for {} files; give one share for each file, in their order",
            weights.len(),
            files.len()
        )));
    }
    Ok(files
        .iter()
        .zip(weights)
        .map(|(file, &weight)| Part {
            ids: file.first_id()..file.first_id() + file.records(),
            weight,
        })
        .collect())
}
