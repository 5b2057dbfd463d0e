//! The table at tiny scale: its shape, and counts that hold whatever the time.

use std::path::Path;

use pelton_comm::Comm;

use super::perceptron::Quality;
use super::trial::Trial;
use super::*;
use crate::Experiment;

fn config(out: &Path) -> ReproduceConfig {
    let mut experiment = Experiment::find("echo").unwrap();
    experiment.rates = vec![0.02, 0.05];
    experiment.factors = vec![1.0, 3.0];
    experiment.step_ms = 1.0;
    experiment.epochs = 1;
    ReproduceConfig {
        experiment,
        scale: 0.01,
        seeds: 1,
        out: out.to_path_buf(),
        real_data: None,
        program: None,
    }
}

fn small(out: &Path) -> Setting {
    std::fs::create_dir_all(out.join("data")).unwrap();
    setting(&config(out), &Arc::default()).unwrap()
}

#[test]
fn every_condition_is_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    std::fs::create_dir_all(folder.path().join("data")).unwrap();
    let table = echo_table(
        &config,
        &mut RunContext::new(&Comm::alone(), &Arc::default(), &mut |_| {}),
    )
    .unwrap();
    let names = [
        "e = 1",
        "e = 3, before",
        "e = 2, after",
        "e = 2, batches",
        "auto",
    ];
    for figure in [
        "time of e = 1",
        "worth",
        "fresh examples to",
        "learning rate",
    ] {
        let rows = table
            .rows
            .iter()
            .filter(|row| row.figure.starts_with(figure));
        let methods: Vec<&str> = rows.map(|row| row.method.as_str()).collect();
        assert_eq!(methods.len(), names.len(), "{figure}");
        assert!(
            methods
                .iter()
                .zip(names)
                .all(|(method, name)| method.starts_with(name))
        );
    }
    let raw = std::fs::read_to_string(&table.files[0]).unwrap();
    let lines: Vec<Vec<&str>> = raw.lines().map(|line| line.split(',').collect()).collect();
    let phase = |name: &str| lines.iter().filter(|line| line[1] == name).count();
    assert_eq!(
        (phase("target"), phase("tuning"), phase("measured")),
        (2, 10, 5)
    );
    assert!(
        table
            .notes
            .iter()
            .any(|note| note.contains("are generated"))
    );
}

#[test]
fn fixed_factors_use_each_fresh_example_so_often() {
    let folder = tempfile::tempdir().unwrap();
    let setting = small(folder.path());
    let used = setting.pictures.used.len();
    assert_eq!(used, LEAST_TRAIN);
    // Two whole epochs: every fresh example came once an epoch, and its repeats too.
    let until = Until {
        target: f64::INFINITY,
        fresh: 2 * used,
    };
    for (factor, point) in [
        (1.0, Point::Before),
        (2.0, Point::Before),
        (2.5, Point::After),
        (2.0, Point::Batches),
    ] {
        let condition = Condition::Fixed { factor, point };
        let run = Run {
            condition,
            rate: 0.02,
            seed: 3,
            paced: false,
            until,
        };
        let trial = setting.train(&run).unwrap();
        let again = setting.train(&run).unwrap();
        let seen = |trial: &Trial| -> Vec<(u64, u64, Quality)> {
            let looks = trial.looks.iter();
            looks
                .map(|look| (look.fresh, look.used, look.quality))
                .collect()
        };
        assert_eq!(seen(&trial), seen(&again), "the plan alone decides");
        assert_eq!(trial.fresh, 2 * used, "{condition:?}");
        // The last window's repeats, at the end of the second epoch, may be still to come.
        let repeats = (factor - 1.0) * used as f64;
        let open = repeats * f64::from(2 * setting.window) / used as f64;
        let most = 2.0 * repeats;
        let echoed = trial.echoed as f64;
        assert!(
            echoed <= most && echoed >= most - open,
            "{condition:?}: {echoed}"
        );
        assert!(trial.looks.len() >= 5 && trial.reached.is_none());
    }
}

#[test]
fn paced_trainings_take_the_time_of_source_and_consumer() {
    let folder = tempfile::tempdir().unwrap();
    let setting = small(folder.path());
    let until = Until {
        target: f64::INFINITY,
        fresh: setting.pictures.used.len(),
    };
    let floor_s = |trial: &Trial| {
        let batches = trial.fresh as f64 / setting.batch as f64;
        // Neighbours in one page are read together, so a few pictures may come for nothing.
        let source_s = 0.5 * batches * setting.ratio * setting.step_s;
        source_s.max(trial.steps as f64 * setting.step_s)
    };
    for condition in [
        Condition::Fixed {
            factor: 3.0,
            point: Point::Before,
        },
        Condition::Auto,
    ] {
        let run = Run {
            condition,
            rate: 0.02,
            seed: 1,
            paced: true,
            until,
        };
        let trial = setting.train(&run).unwrap();
        assert!(trial.fresh >= until.fresh);
        assert!(trial.wall_s >= floor_s(&trial), "{trial:?}");
        assert!(trial.steps * setting.batch >= trial.fresh);
        // Whether `auto` repeats depends on how busy the machine is; what is fixed does not.
        let fixed = condition != Condition::Auto;
        assert!(trial.echoed > 0 || !fixed, "{condition:?}");
    }
}

#[test]
fn experiments_without_what_is_needed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("data")).unwrap();
    let check = |change: fn(&mut Experiment)| {
        let mut config = config(folder.path());
        change(&mut config.experiment);
        let error = echo_table(
            &config,
            &mut RunContext::new(&Comm::alone(), &Arc::default(), &mut |_| {}),
        )
        .unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    for change in [
        (|e| e.factors.clear()) as fn(&mut Experiment),
        |e| e.factors[0] = 2.0,
        |e| e.rates.clear(),
        |e| e.rates[0] = f64::NAN,
        |e| e.ratio = 0.0,
        |e| e.step_ms = 0.0,
        |e| e.batches.clear(),
        |e| e.batches[0] = 0,
        |e| e.epochs = 0,
    ] {
        assert!(check(change).contains("experiments/echo.toml"));
    }
    assert!(check(|e| e.factors[1] = 1e9).contains("1000000000"));
    assert!(check(|e| e.sets.clear()).contains("no pictures"));
}
