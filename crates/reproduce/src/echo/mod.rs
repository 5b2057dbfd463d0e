//! Data echoing: on a source that takes R = 6 times as long as a training step, examples are used several times.
//!
//! The paper trains ResNet-50 on ImageNet from cloud storage and reaches its target in 3.25 times less time with
//! each example used five times; and it counts the fresh examples that five workloads need where each is used
//! twice, before augmentation, after it, or as batches. Here a perceptron learns small pictures through the same
//! loader that everything else uses, at the paper's R.
//!
//! * `pictures`: what is learnt;
//! * `perceptron`: what learns;
//! * `trial`: one training, in real time or as fast as it can;
//! * `tuning`: the target, and the learning rate of each condition;
//! * `figures`: the table.
//!
//! Cost: some ten minutes, nearly all of it waiting for the slow source.

mod figures;
mod perceptron;
mod pictures;
mod raw;
mod trial;
mod tuning;

use std::sync::Arc;

use pelton_run::{Event, Interrupt, RunContext};
use pelton_train::TrainError;

use super::raw_runs::RawRuns;
use crate::table::{ReproduceConfig, Reproduction};
use figures::Measured;
use pictures::Counts;
use raw::Raw;
use trial::{Condition, Point, Run, Setting, Until};

/// Pictures to train on and to test with, at scale 1.
const TRAIN: u64 = 10_000;
const TEST: u64 = 2_000;
/// Fewest of them, whatever the scale.
const LEAST_TRAIN: u64 = 320;
const LEAST_TEST: u64 = 200;
/// Fresh examples from which repeats are drawn; smaller where an epoch would have fewer than ten such windows.
const WINDOW: u64 = 512;
/// Looks at the held-out pictures while examples are used once, up to the target.
const LOOKS: u64 = 60;
/// Fresh examples over those of the target's definition, after which a training counts as failed.
const PATIENCE: f64 = 1.5;
const COLUMNS: &str = "data,phase,condition,rate,seed,target_accuracy,fresh_to_target,used_to_target,wall_s,\
                       modelled_s,accuracy_at_end,fresh,echoed,steps,late_steps,mean_step_s,run_s";

pub(super) fn echo_table(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    check(config)?;
    let setting = setting(config, context.interrupt)?;
    let mut raw = Raw {
        runs: RawRuns::create(&config.out.join("echo-runs.csv"), COLUMNS)?,
        data: setting.pictures.name.clone(),
        ratio: setting.ratio,
        step_s: setting.step_s,
        batch: setting.batch,
        target: f64::NAN,
    };
    let budget = config.experiment.epochs * setting.pictures.used.len();
    raw.target = tuning::target(&setting, config, budget, &mut raw)?;
    let until = Until {
        target: raw.target,
        fresh: (PATIENCE * budget as f64) as u64,
    };
    let conditions = conditions(&config.experiment.factors);
    let total = conditions.len() as u64 * (1 + config.seeds);
    let mut done = 0;
    let mut advance = |what: &str| {
        done += 1;
        (context.observer)(Event::Progress { what, done, total });
    };
    let mut measured = Vec::new();
    for condition in conditions {
        let tuned = tuning::tune(&setting, config, condition, until, &mut raw)?;
        advance("choosing learning rates");
        measured.push(Measured {
            condition,
            tuned,
            trials: Vec::new(),
        });
    }
    // Seed by seed, so that what else the machine does meets all conditions alike.
    for seed in 0..config.seeds {
        for each in &mut measured {
            let trial = setting.train(&Run {
                condition: each.condition,
                rate: each.tuned.rate,
                seed,
                paced: true,
                until,
            })?;
            raw.line("measured", each.condition, each.tuned.rate, seed, &trial)?;
            each.trials.push(trial);
            advance("training in real time");
        }
    }
    Ok(Reproduction {
        name: config.experiment.name.clone(),
        rows: figures::rows(&setting, &measured),
        notes: figures::notes(config, &setting, until, &measured),
        files: vec![raw.runs.path()],
    })
}

/// Refuses an experiment without what this table needs.
fn check(config: &ReproduceConfig) -> Result<(), TrainError> {
    let experiment = &config.experiment;
    let rates = &experiment.rates;
    let fits = experiment.factors.first() == Some(&1.0)
        && !rates.is_empty()
        && rates.iter().all(|rate| (1e-6..=10.0).contains(rate))
        && (1.0..=1000.0).contains(&experiment.ratio)
        && (0.1..=1000.0).contains(&experiment.step_ms)
        && (1..=100).contains(&experiment.epochs)
        && matches!(experiment.batches[..], [1..=1024]);
    match fits {
        true => Ok(()),
        false => Err(TrainError::config(
            "echo: the experiment must have `factors` that begin with 1, `rates` from 1e-6 to 10, a `ratio` from 1 to 1000, `step_ms` from 0.1 to 1000, up to 100 epochs and one number of `batches` up to 1024; compare it with experiments/echo.toml".to_string(),
        )),
    }
}

fn setting(config: &ReproduceConfig, interrupt: &Interrupt) -> Result<Setting, TrainError> {
    let experiment = &config.experiment;
    let scaled = |count: u64, least: u64| ((count as f64 * config.scale) as u64).max(least);
    let counts = Counts {
        train: scaled(TRAIN, LEAST_TRAIN),
        test: scaled(TEST, LEAST_TEST),
    };
    let pictures = pictures::find(config, counts, interrupt)?;
    let used = pictures.used.len();
    let batch = experiment.batches[0];
    Ok(Setting {
        batch,
        window: (used / 10).clamp(batch, WINDOW.max(batch)) as u32,
        look_every: (experiment.epochs * used / LOOKS).max(batch),
        step_s: experiment.step_ms * 1e-3,
        ratio: experiment.ratio,
        interrupt: Arc::clone(interrupt),
        pictures,
    })
}

/// All factors before augmentation, 2 also elsewhere, and `auto`.
fn conditions(factors: &[f64]) -> Vec<Condition> {
    let fixed = |factor, point| Condition::Fixed { factor, point };
    let mut conditions: Vec<Condition> = factors
        .iter()
        .map(|&factor| fixed(factor, Point::Before))
        .collect();
    conditions.extend([
        fixed(2.0, Point::After),
        fixed(2.0, Point::Batches),
        Condition::Auto,
    ]);
    conditions
}

#[cfg(test)]
mod tests;
