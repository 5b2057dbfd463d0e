//! Data echoing: uses examples several times on a source that takes R = 6 times as long as a training step.
//!
//! The paper trains ResNet-50 on ImageNet from cloud storage and reaches its target in 3.25 times less time with each
//! example used five times; and it counts the fresh examples that five workloads need if each is used twice, before
//! augmentation, after it, or as batches. Here ResNet-20 learns small pictures, and an LSTM and a Transformer learn
//! sentences, through the usual loader, at the paper's R.
//!
//! * `source`: the slow source;
//! * `workload`: nets and their data;
//! * `trial`: one training, in real time or as fast as it can;
//! * `tuning`: the target, and the learning rate of each condition;
//! * `raw`: the records of each training;
//! * `figures`: the table.

mod figures;
mod raw;
mod source;
mod trial;
mod tuning;
mod workload;

use pelton_run::{Event, RunContext};
use pelton_train::TrainError;

use crate::table::{ReproduceConfig, Reproduction};
use figures::Measured;
use raw::Raw;
use trial::{Condition, Run, Until};
use workload::Workload;

/// Fresh examples over those of the target's definition, after which a training counts as failed.
const PATIENCE: f64 = 1.5;

pub(super) fn echo_table(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let conditions = checked(config)?;
    let mut raw = Raw::open(config)?;
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for (setting, conditions) in config.experiment.nets.iter().zip(conditions) {
        let mut workload = Workload::new(config, setting, context)?;
        workload.step_s = raw.step_s(&workload)?;
        let rates: Vec<f64> = config
            .experiment
            .rates
            .iter()
            .map(|x| x * setting.rate)
            .collect();
        let target = tuning::target(&workload, config.seeds, &rates, &mut raw)?;
        if let Some(known) = setting
            .known
            .filter(|known| workload.of_pictures && target < 0.5 * known)
        {
            return Err(TrainError::config(format!(
                "{}: the target would be {:.1} % where {:.1} % is known to be possible; train for more `epochs`, or on more data by a larger `scale`",
                workload.name,
                100.0 * target,
                100.0 * known
            )));
        }
        let until = Until {
            target,
            least: 0,
            most: (PATIENCE * workload.budget as f64) as u64,
        };
        let total = conditions.len() as u64 * (1 + config.seeds) + setting.waits.len() as u64;
        let mut done = 0;
        let mut advance = |what: &str| {
            done += 1;
            let what = &format!("{}: {what}", workload.name);
            (context.observer)(Event::Progress { what, done, total });
        };
        let mut measured = Vec::new();
        for condition in conditions {
            let tuned = tuning::tune(&workload, config.seeds, condition, &rates, until, &mut raw)?;
            advance("choosing learning rates");
            measured.push(Measured {
                condition,
                tuned,
                trials: Vec::new(),
                waited: None,
            });
        }
        let until = Until {
            least: workload.budget,
            ..until
        };
        // Seed by seed, so that other load on the machine affects all conditions equally.
        for seed in 0..config.seeds {
            for each in &mut measured {
                let run = Run {
                    condition: each.condition,
                    rate: each.tuned.rate,
                    seed,
                    paced: each.condition.is_auto(),
                    until,
                };
                each.trials.push(raw.trained(&workload, "measured", &run)?);
                advance("training");
            }
        }
        for each in &mut measured {
            if !setting.waits.contains(&each.condition.to_string()) {
                continue;
            }
            let run = Run {
                condition: each.condition,
                rate: each.tuned.rate,
                seed: 0,
                paced: true,
                until,
            };
            each.waited = Some(raw.trained(&workload, "waited", &run)?);
            advance("training while the source is waited for");
        }
        rows.extend(figures::rows(&workload, &measured));
        notes.extend(figures::notes(config, &workload, target, &rates, &measured));
    }
    notes.push(figures::PUBLISHED.to_string());
    Ok(Reproduction {
        name: config.experiment.name.clone(),
        rows,
        notes,
        files: vec![raw.path()],
    })
}

/// The conditions of each net; refuses an experiment without what this table needs.
fn checked(config: &ReproduceConfig) -> Result<Vec<Vec<Condition>>, TrainError> {
    let experiment = &config.experiment;
    let wrong = |what: &str| {
        TrainError::config(format!(
            "echo: {what}; compare the experiment with experiments/echo.toml"
        ))
    };
    let within = |value: f64, least: f64, most: f64| (least..=most).contains(&value);
    if experiment.rates.is_empty() || !experiment.rates.iter().all(|&x| within(x, 1e-6, 1e6)) {
        return Err(wrong("`rates` must be numbers above 0"));
    }
    if !within(experiment.ratio, 1.0, 1000.0) || !within(experiment.epochs as f64, 1.0, 100.0) {
        return Err(wrong(
            "`ratio` is from 1 to 1000 and `epochs` from 1 to 100",
        ));
    }
    let of_net = |net: &crate::experiment::NetSetting| {
        let conditions: Result<Vec<Condition>, String> =
            net.echoes.iter().map(|echo| echo.parse()).collect();
        let conditions = conditions.map_err(|error| wrong(&error))?;
        let fits = conditions.first() == Some(&Condition(None))
            && net.waits.iter().all(|echo| net.echoes.contains(echo))
            && (1..=1024).contains(&net.batch)
            && within(net.rate, 1e-9, 1e3)
            && within(net.width, 0.01, 10.0);
        if fits {
            Ok(conditions)
        } else {
            Err(wrong(
                "a net has `echoes` that begin with none, `waits` among them, a batch from 1 to 1024, a rate above 0 and a width from 0.01 to 10",
            ))
        }
    };
    experiment.nets.iter().map(of_net).collect()
}

#[cfg(test)]
mod tests;
