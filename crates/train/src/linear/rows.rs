//! The job over rows that lie in memory already, as an array does: what it takes over files that fit in memory, without
//! files, ranks and checkpoints. The same rows in the same order give the same model to the last bit.

use std::sync::Arc;

use pelton_format::{ClassMap, Layout, RowTable, Rows, Slot};
use pelton_linear::{
    Certificate, FeatureNumbering, FeatureSums, LinearError, Model, Newton, OutOfCore, Peers,
    Problem, Scaling, Simd, Weights,
};
use pelton_run::Interrupt;

use super::newton::{self, most_passes};
use super::outcome::Fitted;
use super::scaling;
use super::setup::{self, Shape};
use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;

/// What a solver found: weights, their certificate, and the epochs or passes that it took.
type Solved = (Weights, Certificate, u64);

/// Trains a linear model on the rows of some segments, which `labels` has the classes of; they are scaled in place. What
/// is in `centre` was subtracted from each feature before it became f32, for the standard scale to take in. Of the
/// configuration nothing is looked at that is about files, orders or blocks.
///
/// Errors: a bad configuration; rows of fewer than two classes or of no features; an interruption.
pub fn fit_rows(
    config: &LinearConfig,
    mut segments: Vec<Rows>,
    labels: ClassMap,
    features: usize,
    centre: Option<&[f64]>,
    interrupt: &Interrupt,
) -> Result<Fitted, TrainError> {
    super::check(config)?;
    let mut config = config.clone();
    let records: usize = segments.iter().map(Rows::len).sum();
    let shape = Shape {
        name: "the data".to_string(),
        layout: segments.first().map_or(Layout::Sparse, Rows::layout),
        records: records as u64,
        features: features as u64,
        stored: segments
            .iter()
            .map(|rows| rows.stored_values() as u64)
            .sum(),
    };
    let problem = Arc::new(setup::problem(&config, &labels, &shape)?);
    let memory = config.memory_bytes;
    setup::resolve_solver(&mut config, &problem, &shape, memory)?;
    let mut scale = None;
    if config.scale != Scaling::None {
        let mut sums = FeatureSums::new(features);
        for rows in &segments {
            (0..rows.len()).for_each(|i| sums.add_row(rows.row(i)));
        }
        scale = sums.scale(
            config.scale,
            shape.layout,
            &mut Peers::<TrainError>::alone(),
        )?;
    }
    if let Some(scale) = &scale {
        segments.iter_mut().for_each(|rows| rows.scale(scale));
    }
    let scale = scale.and_then(|scale| match centre {
        Some(centre) => scaling::moved(&scale, centre),
        None => Some(scale),
    });
    let mut rows = table(segments);
    let advice = match &scale {
        Some(_) => None,
        None => scaling::advice(&rows),
    };
    let solved = match config.solver {
        Solver::Newton => by_newton(&config, &problem, &rows, interrupt),
        _ => by_descent(&config, &problem, &mut rows, interrupt),
    };
    let (weights, certificate, epochs) = solved?;
    Ok(Fitted {
        model: Model {
            loss: config.loss,
            cost: Some(config.cost),
            class_weights: problem.class_weights().to_vec(),
            classes: labels,
            means: None,
            weights,
            scale,
            columns: None,
        },
        certificate,
        epochs,
        advice,
        notes: Vec::new(),
    })
}

/// Every row in order; its number is its id.
fn table(segments: Vec<Rows>) -> RowTable {
    let slots: Vec<Slot> = (0..)
        .zip(&segments)
        .flat_map(|(segment, rows)| (0..rows.len() as u32).map(move |row| Slot { segment, row }))
        .collect();
    let ids = (0..slots.len() as u64).collect();
    RowTable::from_parts(segments, slots, ids)
}

fn by_newton(
    config: &LinearConfig,
    problem: &Arc<Problem>,
    rows: &RowTable,
    interrupt: &Interrupt,
) -> Result<Solved, TrainError> {
    let wanted = config.target.unwrap_or(newton::WANTED);
    let mut newton = Newton::new(Arc::clone(problem), rows.len(), wanted, Simd::best());
    let most = most_passes(config, true);
    for pass in 1.. {
        newton.begin_pass();
        if !newton.add(rows, interrupt)? {
            return Err(LinearError::Interrupted { undone: false }.into());
        }
        let found = newton.end_pass(&mut Peers::<TrainError>::alone())?;
        if found.done || pass >= most {
            return Ok((newton.best().0, found.certificate, pass));
        }
    }
    unreachable!("there is a last pass")
}

fn by_descent(
    config: &LinearConfig,
    problem: &Arc<Problem>,
    rows: &mut RowTable,
    interrupt: &Interrupt,
) -> Result<Solved, TrainError> {
    let peers = &mut Peers::<TrainError>::alone();
    let options = setup::options(config, true, false);
    let mut solver = OutOfCore::new(Arc::clone(problem), rows.len() as u64, options);
    solver.end_when(Arc::clone(interrupt));
    if let Some(numbering) = FeatureNumbering::renumber(rows, problem.features(), peers)? {
        solver.renumber(Arc::new(numbering));
    }
    for epoch in 1.. {
        solver.begin_epoch(epoch - 1, false, peers)?;
        solver.train(rows, 0, peers)?;
        solver.end_epoch(peers)?;
        let (certificate, _, is_snapshot) = solver.certify(rows, peers)?;
        let reached = |target| certificate.relative_gap() <= target;
        if config.target.is_some_and(reached) || epoch >= config.epochs {
            return Ok((solver.into_weights(is_snapshot), certificate, epoch));
        }
    }
    unreachable!("there is a last epoch")
}
