//! The job over rows already in memory, such as an array.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pelton_comm::Comm;
use pelton_fetch::Meters;
use pelton_format::{ClassMap, Layout, RowTable, Rows, Slot};
use pelton_linear::{FeatureSums, LinearError, Model, Scaling, alone};
use pelton_run::{Interrupt, RunFolder};

use super::check::check;
use super::choice;
use super::in_memory::InMemory;
use super::inference;
use super::journal::Journal;
use super::outcome::Fitted;
use super::problem::{Shape, problem};
use super::ranks::Ranks;
use super::scaling;
use super::weighting::Weighting;
use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;

/// Trains a linear model on the rows of `segments`, with classes in `labels`; scales the rows in place. `centre` was
/// subtracted from each feature, and `target_centre` from targets, before conversion to f32; the standard scale and the
/// intercept account for both. Settings of files, orders or blocks are ignored. The same rows from files that fit in
/// memory give the same model to the last bit.
///
/// Errors: a bad configuration; rows of fewer than two classes or without features; an interruption.
pub fn fit_rows(
    config: &LinearConfig,
    mut segments: Vec<Rows>,
    labels: ClassMap,
    features: usize,
    (centre, target_centre): (Option<&[f64]>, f64),
    interrupt: &Interrupt,
) -> Result<Fitted, TrainError> {
    check(config)?;
    if config.folds.is_some() {
        return Err(TrainError::config(
            "`folds` is for data in files; leave it out for rows in memory".to_string(),
        ));
    }
    let mut config = config.clone();
    let records: usize = segments.iter().map(Rows::len).sum();
    let stored: usize = segments.iter().map(Rows::stored_values).sum();
    let shape = Shape {
        name: "the data".to_string(),
        layout: segments.first().map_or(Layout::Sparse, Rows::layout),
        records: records as u64,
        features: features as u64,
        stored: stored as u64,
        offset: None,
    };
    let problem = problem(&config, &labels, &shape)?;
    let weighting = Weighting::of_rows(&config, shape.records)?;
    let problem = Arc::new(weighting.apply_to_rows(problem)?);
    let is_open = config.solver == Solver::Auto;
    let memory = config.memory_bytes;
    choice::choose_solver(&mut config, &problem, &shape, memory, 1)?;
    let mut scale = None;
    if config.scale != Scaling::None {
        let mut sums = FeatureSums::new(features);
        let mut weights = weighting.of_records().unwrap_or_default().iter();
        for rows in &segments {
            for i in 0..rows.len() {
                let weight = weights.next().map_or(1.0, |weight| f64::from(*weight));
                sums.add_row(rows.row(i), weight);
            }
        }
        let shifts = config.bias.is_some() && shape.layout != Layout::Sparse;
        scale = sums.scale(config.scale, &[], shifts, &mut alone::<TrainError>)?;
    }
    if let Some(scale) = &scale {
        segments.iter_mut().for_each(|rows| rows.scale(scale));
    }
    let scale = scale.and_then(|scale| match centre {
        Some(centre) => scaling::moved(&scale, centre),
        None => Some(scale),
    });
    let rows = table(segments);
    let start = config
        .given_start
        .as_ref()
        .map(|start| start.weights(&problem, &labels, &[], (scale.as_ref(), target_centre)));
    let start = start.transpose()?.map(|(start, _)| start);
    let advice = match &scale {
        Some(_) => None,
        None => scaling::advice(&rows),
    };
    let comm = Comm::alone();
    let run = InMemory {
        config: &config,
        problem: Arc::clone(&problem),
        shape,
        interrupt,
        start: start.as_ref(),
        ranks: Ranks(&comm),
        is_open,
        newton_room: memory,
        fine_room: u64::MAX,
    };
    let mut folder = RunFolder::unwritten(Path::new(""));
    let silent = &mut |_: pelton_run::Event<'_>| {};
    let (ranks, now) = (run.ranks, Instant::now());
    let mut journal = Journal::new(&mut folder, silent, ranks, records as u64, now);
    let solved = run.train(run.begin(), rows, &mut Meters::default(), &mut journal);
    let solved = solved.map_err(|error| {
        if error.is_interruption() {
            LinearError::Interrupted { undone: false }.into()
        } else {
            error
        }
    })?;
    let model = Model {
        loss: config.loss,
        cost: (weighting.digest() == 0).then_some(config.cost),
        class_weights: problem.class_weights().to_vec(),
        classes: labels,
        means: None,
        penalty: problem.penalty(),
        bias_is_free: problem.bias_is_free(),
        weights: solved.weights,
        scale,
        threshold: None,
        target_centre,
        columns: None,
    };
    let name = |at: usize| format!("feature {at}");
    let inference = solved
        .precision
        .map(|found| inference::inference(&problem, &found, records as u64, &model, name));
    Ok(Fitted {
        model,
        certificate: solved.certificate,
        epochs: journal.epochs.len() as u64,
        advice,
        notes: inference.iter().flat_map(inference::warnings).collect(),
        inference,
    })
}

/// Every row in order; its index is its id.
fn table(segments: Vec<Rows>) -> RowTable {
    let slots: Vec<Slot> = (0..)
        .zip(&segments)
        .flat_map(|(segment, rows)| (0..rows.len() as u32).map(move |row| Slot { segment, row }))
        .collect();
    let ids = (0..slots.len() as u64).collect();
    RowTable::from_parts(segments, slots, ids)
}
