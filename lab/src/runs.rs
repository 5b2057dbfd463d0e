//! Tables that are runs of `pelton train` with other settings: a list of runs in a TOML file, and the figures of their
//! summaries that are shown.
//!
//! A run's configuration is the base's with what the run changes, both as in `run.toml`. Runs take turns, seed by
//! seed, so that a slow moment of the machine meets all alike, and accuracies are compared within a seed. Each
//! finished run is a line of a CSV file. A table that was interrupted continues: finished runs are read from that
//! file, and the current one resumes from its checkpoint.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use pelton_key::Digest;
use pelton_run::{Event, RunContext, RunOptions};
use pelton_train::{ImageConfig, LanguageConfig, TrainError, image, language};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toml::{Table, Value as Toml};

use crate::experiment::{Experiment, Job, RunSetting};
use crate::nets::train;
use crate::raw_runs::RawRuns;
use crate::table::{ReproduceConfig, Reproduction, Row, median, unwritable};

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

/// The settings of a run, for one seed.
fn settings(
    experiment: &Experiment,
    run: &RunSetting,
    config: &ReproduceConfig,
    seed: u64,
) -> Table {
    let mut all = merged(&experiment.base, &run.config);
    let classes = run.classes_at(config.scale).to_string();
    let mut set = |part: &str, name: &str, value: Toml| {
        let part = all.entry(part).or_insert_with(|| Toml::Table(Table::new()));
        if let Toml::Table(part) = part {
            part.insert(name.to_string(), value);
        }
    };
    set("fit", "seed", Toml::Integer(seed as i64));
    let cache = config.out.join("data").display().to_string();
    set("data", "cache_dir", Toml::String(cache));
    let paths = all.get_mut("data").and_then(|data| data.get_mut("paths"));
    for path in paths.and_then(Toml::as_array_mut).into_iter().flatten() {
        if let Toml::String(path) = path {
            *path = path.replace("{classes}", &classes);
        }
    }
    all
}

/// The settings as a configuration of a job.
fn configuration<T: DeserializeOwned>(settings: Table, method: &str) -> Result<T, TrainError> {
    Toml::Table(settings)
        .try_into()
        .map_err(|error: toml::de::Error| {
            TrainError::config(format!(
                "run {method} of the experiment is not a configuration of its job ({})",
                error.message()
            ))
        })
}

/// Identifies a run: its settings, the ranks and the network.
fn key_of(run: &RunSetting, settings: &Table) -> String {
    let text = format!("{:?} {} {:?} {settings}", run.job, run.ranks, run.link);
    let words = text.bytes().map(u64::from);
    format!("{:016x}", Digest::new(0).words(words).value())
}

/// Trains one run and gives the figures of its summary; null where the loss is not a number.
fn run_one(
    run: &RunSetting,
    settings: Table,
    folder: &Path,
    context: &RunContext<'_>,
) -> Result<Value, TrainError> {
    let folder = RunOptions {
        out: folder.to_path_buf(),
        resume: true,
        overwrite: false,
    };
    let trained = match run.job {
        Job::Classify => {
            let job: ImageConfig = configuration(settings, &run.method)?;
            train(&folder, run.ranks, run.link, context, |own| {
                image::run(&job, own)
            })?
        }
        Job::Language => {
            let job: LanguageConfig = configuration(settings, &run.method)?;
            train(&folder, run.ranks, run.link, context, |own| {
                language::run(&job, own)
            })?
        }
    };
    std::fs::remove_dir_all(&folder.out).map_err(|error| unwritable(&folder.out, &error))?;
    let value = |summary| serde_json::to_value(summary).expect("numbers and text");
    Ok(trained.summary.map_or(Value::Null, value))
}

/// The figures of finished runs by their keys, with their seconds.
fn finished(path: &Path, shown: &[String]) -> BTreeMap<String, (f64, Value)> {
    // Where there is no file yet, nothing is finished.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut all = BTreeMap::new();
    for line in text.lines().skip(1) {
        // Only the name of the method is quoted.
        let parts: Vec<&str> = line.split('"').collect();
        let [key, _, rest] = parts[..] else { continue };
        let cells: Vec<&str> = rest.split(',').skip(3).collect();
        let [seconds, values @ ..] = &cells[..] else {
            continue;
        };
        // A line that was cut short is not a finished run.
        let values: Result<Vec<Value>, _> = values
            .iter()
            .map(|cell| serde_json::from_str(cell))
            .collect();
        if let (Ok(seconds), Ok(values)) = (seconds.parse(), values)
            && values.len() == shown.len()
        {
            let figures = shown.iter().cloned().zip(values).collect();
            all.insert(
                key.trim_end_matches(',').to_string(),
                (seconds, Value::Object(figures)),
            );
        }
    }
    all
}

/// Runs all lines that are not finished and shows the figures of all.
pub(super) fn table_of_runs(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let experiment = &config.experiment;
    let shown = &experiment.shown;
    let path = config.out.join(format!("{}.csv", experiment.name));
    let mut finished = finished(&path, shown);
    let columns = format!("key,method,seed,ranks,wall_s,{}", shown.join(","));
    let mut raw = RawRuns::open(&path, &columns)?;
    let mut figures: Vec<Vec<Value>> = vec![Vec::new(); experiment.runs.len()];
    let turns =
        (0..config.seeds).flat_map(|seed| (0..experiment.runs.len()).map(move |at| (seed, at)));
    let all: Vec<(u64, usize, Table, String)> = turns
        .map(|(seed, at)| {
            let run = &experiment.runs[at];
            let settings = settings(experiment, run, config, seed);
            let key = key_of(run, &settings);
            (seed, at, settings, key)
        })
        .collect();
    let mut left = all
        .iter()
        .filter(|(.., key)| !finished.contains_key(key))
        .count();
    (context.observer)(Event::Note(&format!(
        "{}: {} runs, {} of them finished; {}",
        experiment.name,
        all.len(),
        all.len() - left,
        match experiment.minutes {
            Some(minutes) => {
                let seeds = config.seeds as f64 / experiment.seeds as f64;
                let share = left as f64 / all.len() as f64;
                let minutes = minutes * config.scale * seeds * share;
                format!("the others take about {minutes:.0} minutes on two cores")
            }
            None => "how long they take is not known before the first".to_string(),
        }
    )));
    for (seed, at, settings, key) in all {
        let run = &experiment.runs[at];
        if let Some((_, summary)) = finished.get(&key) {
            figures[at].push(summary.clone());
            continue;
        }
        (context.observer)(Event::Note(&format!("{}, seed {seed}", run.method)));
        let began = Instant::now();
        let folder = config.out.join("runs").join(&key);
        let summary = run_one(run, settings, &folder, context)?;
        let seconds = began.elapsed().as_secs_f64();
        let values = shown.iter().map(|name| format!(",{}", summary[name]));
        let (method, ranks) = (&run.method, run.ranks);
        raw.line(&[&format!(
            "{key},\"{method}\",{seed},{ranks},{seconds:.1}{}",
            values.collect::<String>()
        )])?;
        finished.insert(key, (seconds, summary.clone()));
        figures[at].push(summary);
        left -= 1;
        let mean =
            finished.values().map(|(seconds, _)| seconds).sum::<f64>() / finished.len() as f64;
        (context.observer)(Event::Note(&format!(
            "{seconds:.0} s; {left} runs to go, about {:.0} minutes",
            mean * left as f64 / 60.0
        )));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(experiment: Experiment, out: &Path) -> ReproduceConfig {
        ReproduceConfig {
            experiment,
            scale: 0.1,
            seeds: 1,
            out: out.to_path_buf(),
            real_data: None,
            program: None,
        }
    }

    #[test]
    fn runs_change_parts_of_the_base() {
        let experiment: Experiment = toml::from_str(
            "name = \"t\"\n[base.fit]\nepochs = 3\nrate = 0.5\n[base.head]\nembedding = 32\n[base.data]\npaths = [\"demo:classes:{classes}\"]\n\
             [[run]]\ntable = \"T\"\nmethod = \"m\"\nclasses = 1000\n[run.config.fit]\nrate = 0.1\n[run.config.head]\nkind = \"full\"",
        )
        .unwrap();
        let run = experiment.runs[0].clone();
        let config = config(experiment, Path::new("out"));
        let of_seed = |seed| settings(&config.experiment, &run, &config, seed);
        let job: ImageConfig = configuration(of_seed(7), "m").unwrap();
        let head = job.head.unwrap();
        assert_eq!(
            (job.fit.epochs, job.fit.rate, job.fit.seed),
            (3, Some(0.1), 7)
        );
        assert_eq!(
            (head.embedding, job.data.paths),
            (32, vec!["demo:classes:100".to_string()])
        );
        assert_ne!(key_of(&run, &of_seed(7)), key_of(&run, &of_seed(8)));
    }

    #[test]
    fn every_run_of_a_table_is_a_configuration() {
        let mut tables = 0;
        for name in Experiment::names() {
            let experiment = Experiment::find(&name).unwrap();
            tables += u32::from(!experiment.runs.is_empty());
            let config = config(experiment, Path::new("out"));
            for run in &config.experiment.runs {
                let settings = settings(&config.experiment, run, &config, 0);
                match run.job {
                    Job::Classify => {
                        let job: ImageConfig = configuration(settings, &run.method).unwrap();
                        assert!(job.head.is_some(), "{name}: {}", run.method);
                    }
                    Job::Language => {
                        configuration::<LanguageConfig>(settings, &run.method).unwrap();
                    }
                }
            }
        }
        assert!(tables >= 5, "{tables}");
    }

    #[test]
    fn a_table_continues_where_it_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let experiment: Experiment = toml::from_str(
            "name = \"t\"\nseeds = 2\nshown = [\"test_accuracy\", \"steps\"]\n[base]\nmodel = \"mlp\"\n[base.fit]\nepochs = 1\n\
             [base.head]\nembedding = 8\n[base.data]\npaths = [\"demo:classes:{classes}\"]\n\
             [[run]]\ntable = \"T\"\nmethod = \"a\"\nclasses = 100\n\
             [[run]]\ntable = \"T\"\nmethod = \"b, two epochs\"\nclasses = 100\n[run.config.fit]\nepochs = 2",
        )
        .unwrap();
        let mut config = config(experiment, folder.path());
        config.scale = 1.0;
        let interrupt = std::sync::Arc::default();
        let comm = pelton_comm::Comm::alone();
        let table = |config: &ReproduceConfig| {
            let mut notes = Vec::new();
            let observer = &mut |event: Event<'_>| {
                if let Event::Note(note) = event {
                    notes.push(note.to_string());
                }
            };
            let mut context = RunContext::new(&comm, &interrupt, observer);
            let rows = table_of_runs(config, &mut context).unwrap().rows;
            (rows, notes)
        };
        let path = folder.path().join("t.csv");
        table(&config);
        let one = std::fs::read_to_string(&path).unwrap();
        assert_eq!(one.lines().count(), 3);
        // Killed while it wrote the second line.
        std::fs::write(&path, &one[..one.len() - 4]).unwrap();
        config.seeds = 2;
        let (rows, notes) = table(&config);
        let all = std::fs::read_to_string(&path).unwrap();
        assert!(notes[0].contains("4 runs, 1 of them finished"), "{notes:?}");
        assert_eq!(all.lines().count(), 6, "the cut line stays: {all}");
        assert_eq!(rows.len(), 4);
        let (again, notes) = table(&config);
        assert!(
            notes.len() == 1 && notes[0].contains("4 of them finished"),
            "{notes:?}"
        );
        assert_eq!(again, rows);
        assert!(
            !std::fs::read_dir(folder.path().join("runs"))
                .unwrap()
                .any(|_| true)
        );
        std::fs::write(&path, "other columns\n").unwrap();
        let refused = table_of_runs(
            &config,
            &mut RunContext::new(&comm, &interrupt, &mut |_| {}),
        );
        assert!(refused.unwrap_err().to_string().contains("another table"));
    }

    #[test]
    fn intervals_are_students() {
        // t of 4 degrees of freedom is 2.776; the deviation of 1 to 5 is the root of 2.5.
        let (mean, half) = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean - 3.0).abs() < 1e-12 && (half - 2.78 * 0.5f64.sqrt()).abs() < 1e-9);
    }
}
