//! Tables that are runs of `pelton train` with other settings: a list of runs in a TOML file, and the figures of their
//! summaries to show.
//!
//! A run's configuration is the base with the run's changes, both as in `run.toml`. Runs take turns, seed by seed, so
//! that a slow moment of the machine affects all equally, and accuracies are compared within a seed.

use pelton_run::{Event, RunContext};
use pelton_train::{ImageConfig, LanguageConfig, NetEpoch, TrainError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toml::{Table, Value as Toml};

use crate::experiment::{Experiment, Kind, RunSetting};
use crate::raw_runs::RawRuns;
use crate::table::{ReproduceConfig, Reproduction, Row, difference, median};
use crate::trainings::{Job, Trained, Training, Trainings};

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

/// Replaces `{classes}` in texts by the number of classes.
fn name_classes(settings: &mut Table, classes: &str) {
    fn within(value: &mut Toml, classes: &str) {
        match value {
            Toml::String(text) => *text = text.replace("{classes}", classes),
            Toml::Array(all) => all.iter_mut().for_each(|value| within(value, classes)),
            Toml::Table(table) => name_classes(table, classes),
            _ => (),
        }
    }
    for (_, value) in settings.iter_mut() {
        within(value, classes);
    }
}

/// A value of an epoch to plot, with its name.
type OfEpoch = (&'static str, fn(&NetEpoch) -> Option<f64>);

const CURVES: [OfEpoch; 3] = [
    ("accuracy after each epoch, %", |epoch| {
        Some(100.0 * epoch.validation_accuracy?)
    }),
    ("learning rate after each epoch", |epoch| Some(epoch.rate)),
    ("examples of a step after each epoch", |epoch| {
        Some(epoch.step_examples as f64)
    }),
];

/// The median over seeds, epoch by epoch; `None` if the value is missing in any epoch.
fn curve(trained: &[Trained], of: fn(&NetEpoch) -> Option<f64>) -> Option<Vec<f64>> {
    let epochs = trained.iter().map(|one| one.epochs.len()).min()?;
    let at = |epoch: usize| -> Option<Vec<f64>> {
        trained.iter().map(|one| of(&one.epochs[epoch])).collect()
    };
    (0..epochs).map(|epoch| at(epoch).map(median)).collect()
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
    name_classes(&mut all, &classes);
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

/// One run for one seed.
fn training(run: &RunSetting, config: &ReproduceConfig, seed: u64) -> Result<Training, TrainError> {
    let settings = settings(&config.experiment, run, config, seed);
    let job = match run.job {
        Kind::Classify => Job::Images(Box::new(configuration::<ImageConfig>(
            settings,
            &run.method,
        )?)),
        Kind::Language => Job::Text(Box::new(configuration::<LanguageConfig>(
            settings,
            &run.method,
        )?)),
    };
    Ok(Training {
        job,
        ranks: run.ranks,
        link: run.link,
    })
}

/// Runs all unfinished lines and shows the figures of all.
pub(super) fn table_of_runs(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let experiment = &config.experiment;
    let shown = &experiment.shown;
    let path = config.out.join(format!("{}.csv", experiment.name));
    let columns = format!(
        "method,seed,ranks,commit,others,seconds,{}",
        shown.join(",")
    );
    let mut raw = RawRuns::create(&path, &columns)?;
    let mut trainings = Trainings::open(&config.out)?;
    let mut figures: Vec<Vec<Trained>> = vec![Vec::new(); experiment.runs.len()];
    let mut all = Vec::new();
    for seed in 0..config.seeds {
        for (at, run) in experiment.runs.iter().enumerate() {
            all.push((seed, at, training(run, config, seed)?));
        }
    }
    let mut left = all
        .iter()
        .filter(|(.., training)| !trainings.has(training))
        .count();
    (context.observer)(Event::Note(&format!(
        "{}: {} runs, {} of them finished; {}",
        experiment.name,
        all.len(),
        all.len() - left,
        match experiment.minutes {
            _ if left == 0 => "none is left".to_string(),
            Some(minutes) => {
                let seeds = config.seeds as f64 / experiment.seeds as f64;
                let share = left as f64 / all.len() as f64;
                let minutes = minutes * config.scale * seeds * share;
                format!("the others take about {minutes:.0} minutes on two cores")
            }
            None => "how long they take is not known before the first".to_string(),
        }
    )));
    let mut seconds = 0.0;
    for (seed, at, training) in all {
        let run = &experiment.runs[at];
        let is_new = !trainings.has(&training);
        if is_new {
            (context.observer)(Event::Note(&format!("{}, seed {seed}", run.method)));
        }
        let trained = trainings.train(&training, context)?;
        let figure = |name| {
            trained
                .summary
                .as_ref()
                .map_or(&Value::Null, |all| &all[name])
        };
        let values = shown.iter().map(|name| format!(",{}", figure(name)));
        let others = trained
            .others
            .map_or(String::new(), |others| format!("{others:.2}"));
        raw.line(&[&format!(
            "\"{}\",{seed},{},{},{others},{:.1}{}",
            run.method,
            run.ranks,
            trained.commit,
            trained.seconds,
            values.collect::<String>()
        )])?;
        seconds += trained.seconds;
        if is_new {
            left -= 1;
            let mean = seconds / (1 + figures.iter().map(Vec::len).sum::<usize>()) as f64;
            (context.observer)(Event::Note(&format!(
                "{:.0} s; {left} runs to go, about {:.0} minutes",
                trained.seconds,
                mean * left as f64 / 60.0
            )));
        }
        figures[at].push(trained);
    }
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for name in &experiment.shown {
        for (at, run) in experiment.runs.iter().enumerate() {
            let of = |trained: &[Trained]| -> Vec<f64> {
                let summaries = trained.iter().filter_map(|one| one.summary.as_ref());
                summaries.filter_map(|all| all[name].as_f64()).collect()
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
                let points = difference(&points, &experiment.runs[0].method);
                notes.push(format!("{}: {points}", run.method));
            }
        }
    }
    for (name, of) in CURVES {
        // Rates and steps are plotted if accuracies are.
        let followed = |trained: &[Trained]| curve(trained, CURVES[0].1).and(curve(trained, of));
        rows.extend(
            experiment
                .runs
                .iter()
                .zip(&figures)
                .filter_map(|(run, trained)| {
                    Some(Row {
                        table: run.table.clone(),
                        data: format!("{} classes", run.classes_at(config.scale)),
                        method: run.method.clone(),
                        figure: name.to_string(),
                        measured: json!(followed(trained)?),
                        differs: experiment.differs.clone(),
                        ..Row::default()
                    })
                }),
        );
    }
    Ok(Reproduction {
        name: experiment.name.clone(),
        rows,
        notes,
        files: vec![raw.path()],
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
    }

    #[test]
    fn every_run_of_a_table_is_a_configuration() {
        let mut tables = 0;
        for name in Experiment::names() {
            let experiment = Experiment::find(&name).unwrap();
            tables += u32::from(!experiment.runs.is_empty());
            let config = config(experiment, Path::new("out"));
            for run in &config.experiment.runs {
                if let Job::Images(job) = training(run, &config, 0).unwrap().job {
                    assert!(job.head.is_some(), "{name}: {}", run.method);
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
        // Killed while writing the second line.
        let kept = folder.path().join("trainings.jsonl");
        let lines = std::fs::read_to_string(&kept).unwrap();
        std::fs::write(&kept, &lines[..lines.len() - 4]).unwrap();
        config.seeds = 2;
        let (rows, notes) = table(&config);
        let all = std::fs::read_to_string(&path).unwrap();
        assert!(notes[0].contains("4 runs, 1 of them finished"), "{notes:?}");
        assert_eq!(all.lines().count(), 5, "{all}");
        // The first run was read, not repeated.
        let first = |text: &str| text.lines().nth(1).unwrap().to_string();
        assert_eq!(first(&all), first(&one));
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
    }
}
