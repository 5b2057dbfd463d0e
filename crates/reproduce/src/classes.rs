//! Tables about heads over very many classes (seed 001): each is a list of runs of `pelton train classify`, and the
//! figures of their summaries that are shown.
//!
//! A run's configuration is the base's with what the run changes, both as in `run.toml`. Runs take turns, seed by seed,
//! so that a slow moment of the machine meets all alike, and accuracies are compared within a seed.

use pelton_run::{Event, RunContext, RunOptions};
use pelton_train::{ImageConfig, NetSummary, TrainError, image};
use serde_json::{Value, json};
use toml::{Table, Value as Toml};

use super::nets::train;
use super::raw_runs::RawRuns;
use crate::experiment::RunSetting;
use crate::table::{ReproduceConfig, Reproduction, Row, median};

/// `changes` over `base`, table by table.
fn merged(base: &Table, changes: &Table) -> Table {
    let mut all = base.clone();
    for (key, change) in changes {
        let value = match (all.get(key), change) {
            (Some(Toml::Table(old)), Toml::Table(new)) => Toml::Table(merged(old, new)),
            _ => change.clone(),
        };
        all.insert(key.clone(), value);
    }
    all
}

/// The configuration of a run, for one seed.
fn configuration(
    base: &Table,
    run: &RunSetting,
    scale: f64,
    seed: u64,
) -> Result<ImageConfig, TrainError> {
    let wrong = |error: String| {
        TrainError::config(format!(
            "run {} of the experiment is no configuration of `train classify` ({error})",
            run.method
        ))
    };
    let mut config: ImageConfig = Toml::Table(merged(base, &run.config))
        .try_into()
        .map_err(|error: toml::de::Error| wrong(error.message().to_string()))?;
    let classes = run.classes_at(scale);
    for path in &mut config.data.paths {
        *path = path.replace("{classes}", &classes.to_string());
    }
    config.fit.seed = seed;
    Ok(config)
}

/// Mean and half the width of its 95 % interval (Student's t).
fn interval(values: &[f64]) -> (f64, f64) {
    const T: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = T.get(values.len() - 2).copied().unwrap_or(1.96);
    (mean, t * (variance / n).sqrt())
}

/// Runs all lines and shows their figures.
pub(super) fn classes_table(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let experiment = &config.experiment;
    let path = config.out.join(format!("{}.csv", experiment.name));
    let columns = format!("method,seed,ranks,{}", experiment.shown.join(","));
    let mut raw = RawRuns::create(&path, &columns)?;
    let mut figures: Vec<Vec<Value>> = vec![Vec::new(); experiment.runs.len()];
    let folder = RunOptions {
        out: config.out.join("run"),
        overwrite: true,
        ..RunOptions::default()
    };
    for seed in 0..config.seeds {
        for (run, figures) in experiment.runs.iter().zip(&mut figures) {
            (context.observer)(Event::Note(&format!("{}, seed {seed}", run.method)));
            let mut job = configuration(&experiment.base, run, config.scale, seed)?;
            job.data.cache_dir = Some(config.out.join("data"));
            let trained = train(&folder, run.ranks, run.link, context, |own| {
                image::run(&job, own)
            })?;
            let summary = trained.summary.as_ref().map_or(Value::Null, shown);
            let mut line = vec![
                format!("\"{}\"", run.method),
                seed.to_string(),
                run.ranks.to_string(),
            ];
            line.extend(
                experiment
                    .shown
                    .iter()
                    .map(|name| summary[name].to_string()),
            );
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            raw.line(&line)?;
            figures.push(summary);
        }
    }
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for name in &experiment.shown {
        for (at, run) in experiment.runs.iter().enumerate() {
            let of = |figures: &Vec<Value>| -> Vec<f64> {
                figures
                    .iter()
                    .filter_map(|summary| summary[name].as_f64())
                    .collect()
            };
            let (own, first) = (of(&figures[at]), of(&figures[0]));
            rows.push(Row {
                table: run.table.clone(),
                data: format!("{} classes", run.classes_at(config.scale)),
                method: run.method.clone(),
                figure: name.clone(),
                published: run.published.get(name).map_or(Value::Null, |x| json!(x)),
                measured: match own.len() {
                    0 => Value::Null,
                    _ => json!(median(own.clone())),
                },
                differs: experiment.differs.clone(),
                ..Row::default()
            });
            let same_data = run.classes == experiment.runs[0].classes;
            if name == "test_accuracy" && at > 0 && same_data && own.len() == first.len() {
                let points: Vec<f64> = own
                    .iter()
                    .zip(&first)
                    .map(|(a, b)| 100.0 * (a - b))
                    .collect();
                let (mean, half) = interval(&points);
                notes.push(format!(
                    "{}: {mean:+.3} points against {}, 95 % interval ± {half:.3} over {} paired seeds",
                    run.method,
                    experiment.runs[0].method,
                    points.len()
                ));
            }
        }
    }
    Ok(Reproduction {
        name: experiment.name.clone(),
        rows,
        notes,
        files: vec![raw.path()],
    })
}

fn shown(summary: &NetSummary) -> Value {
    serde_json::to_value(summary).expect("numbers and text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;

    #[test]
    fn runs_change_parts_of_the_base() {
        let base: Table = "[fit]\nepochs = 3\nrate = 0.5\n[head]\nembedding = 32\n[data]\npaths = [\"demo:classes:{classes}\"]"
            .parse()
            .unwrap();
        let run: RunSetting = toml::from_str(
            "table = \"T\"\nmethod = \"m\"\nclasses = 1000\n[config.fit]\nrate = 0.1\n[config.head]\nkind = \"full\"",
        )
        .unwrap();
        let config = configuration(&base, &run, 0.1, 7).unwrap();
        let head = config.head.unwrap();
        assert_eq!(
            (config.fit.epochs, config.fit.rate, config.fit.seed),
            (3, Some(0.1), 7)
        );
        assert_eq!(
            (head.embedding, config.data.paths),
            (32, vec!["demo:classes:100".to_string()])
        );
    }

    #[test]
    fn every_built_in_run_is_a_configuration() {
        for name in [
            "knn-softmax",
            "fccs",
            "overlap",
            "sparsification",
            "classify-all",
        ] {
            let experiment = Experiment::find(name).unwrap();
            assert!(!experiment.runs.is_empty(), "{name}");
            for run in &experiment.runs {
                let config = configuration(&experiment.base, run, 1.0, 0).unwrap();
                assert!(config.head.is_some(), "{name}: {}", run.method);
            }
        }
    }

    #[test]
    fn intervals_are_students() {
        // t of 4 degrees of freedom is 2.776; the deviation of 1 to 5 is the root of 2.5.
        let (mean, half) = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean - 3.0).abs() < 1e-12 && (half - 2.78 * 0.5f64.sqrt()).abs() < 1e-9);
    }
}
