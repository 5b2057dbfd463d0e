//! The table at tiny scale: its shape, and counts that do not depend on time.

use std::path::Path;
use std::sync::Arc;

use pelton_comm::Comm;

use super::trial::Trial;
use super::*;
use crate::experiment::Experiment;

fn config(out: &Path) -> ReproduceConfig {
    std::fs::create_dir_all(out.join("data")).unwrap();
    let mut experiment = Experiment::find("echo").unwrap();
    experiment.rates = vec![1.0];
    experiment.epochs = 1;
    experiment.sets.retain(|set| set.rows.is_some());
    experiment.texts.retain(|set| set.rows.is_some());
    let echoes = ["none", "before:3", "auto", "read:2", "after:2", "batch:2"];
    let [pictures, sentences, _] = &mut experiment.nets[..] else {
        panic!("three nets")
    };
    (pictures.width, pictures.batch) = (0.1, 16);
    pictures.echoes = echoes.map(str::to_string).to_vec();
    pictures.waits = ["none", "before:3"].map(str::to_string).to_vec();
    pictures.known = None;
    (sentences.width, sentences.batch) = (0.04, 16);
    sentences.echoes.truncate(2);
    experiment.nets.truncate(2);
    ReproduceConfig {
        experiment,
        scale: 0.01,
        seeds: 1,
        out: out.to_path_buf(),
        real_data: None,
        program: None,
    }
}

fn table(config: &ReproduceConfig) -> Result<Reproduction, TrainError> {
    let (comm, quiet) = (Comm::alone(), &mut |_: Event<'_>| {});
    echo_table(config, &mut RunContext::new(&comm, &Arc::default(), quiet))
}

fn workload(config: &ReproduceConfig) -> Workload {
    let (comm, quiet) = (Comm::alone(), &mut |_: Event<'_>| {});
    let interrupt = Arc::default();
    let context = &mut RunContext::new(&comm, &interrupt, quiet);
    Workload::new(config, &config.experiment.nets[0], context).unwrap()
}

#[test]
fn every_condition_is_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let table = table(&config).unwrap();
    for (net, data) in [(0, "resnet20 on demo:images"), (1, "lstm on demo:text")] {
        let echoes = &config.experiment.nets[net].echoes;
        for figure in ["fresh examples to the target", "learning rate, tuned"] {
            let is_it = |row: &&crate::table::Row| row.figure == figure && row.data == data;
            let methods: Vec<&String> = table
                .rows
                .iter()
                .filter(is_it)
                .map(|row| &row.method)
                .collect();
            assert_eq!(
                methods,
                echoes.iter().collect::<Vec<_>>(),
                "{figure} {data}"
            );
        }
    }
    let raw = std::fs::read_to_string(&table.files[0]).unwrap();
    let phase = |name: &str| raw.lines().filter(|line| line.contains(name)).count();
    assert_eq!(
        (phase(",target,"), phase(",tuning,"), phase(",measured,")),
        (2 + 1, 8, 8),
        "with the line of names: {raw}"
    );
    // Trainings of auto, and those that also run in real time.
    assert_eq!((phase(",real,"), phase(",waited,")), (4, 2), "{raw}");
    // Again, from saved trainings.
    let again = self::table(&config).unwrap();
    assert_eq!(again.rows, table.rows);
}

#[test]
fn fixed_factors_use_each_fresh_example_so_often_and_the_same_way_in_real_time() {
    let folder = tempfile::tempdir().unwrap();
    let workload = workload(&config(folder.path()));
    assert_eq!(workload.budget, 200);
    // Two whole epochs: every fresh example came once an epoch, and its repeats too.
    let until = Until {
        target: f64::INFINITY,
        least: 400,
        most: 400,
    };
    for echo in ["none", "before:2", "after:2.5", "read:2", "batch:2"] {
        let condition: Condition = echo.parse().unwrap();
        let mut run = Run {
            condition,
            rate: 0.05,
            seed: 3,
            paced: false,
            until,
        };
        let trial = workload.train(&run).unwrap();
        run.paced = true;
        let paced = workload.train(&run).unwrap();
        let seen = |trial: &Trial| -> Vec<(u64, u64, f64)> {
            let looks = trial.looks.iter();
            looks
                .map(|look| (look.fresh, look.used, look.quality))
                .collect()
        };
        assert_eq!(seen(&trial), seen(&paced), "{echo}: the plan alone decides");
        assert_eq!(trial.end.fresh, 400, "{echo}");
        let factor: f64 = echo
            .split_once(':')
            .map_or(1.0, |(_, factor)| factor.parse().unwrap());
        // The last window's repeats, at the end of the second epoch, may still be missing.
        let open = 2.0 * (factor - 1.0) * f64::from(workload.window);
        let used = trial.end.used as f64;
        assert!(
            used <= 400.0 * factor && used >= 400.0 * factor - open,
            "{echo}: {used}"
        );
        assert!(trial.looks.len() >= 5 && trial.reached.is_none());
        // Neighbours are read together, so a few pictures may cost no time.
        let floor_s = 0.5 * workload.modelled_s(400.0, 0.0);
        assert!(paced.end.seconds >= floor_s, "{echo}: {paced:?}");
    }
}

#[test]
fn auto_repeats_while_the_source_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut workload = workload(&config(folder.path()));
    // The source is slower than the net under any load of the machine.
    workload.ratio = 20.0;
    let until = Until {
        target: f64::INFINITY,
        least: 200,
        most: 200,
    };
    let run = Run {
        condition: "auto".parse().unwrap(),
        rate: 0.05,
        seed: 1,
        paced: true,
        until,
    };
    let trial = workload.train(&run).unwrap();
    assert!(
        trial.end.fresh >= 200 && trial.end.used > 2 * trial.end.fresh,
        "{trial:?}"
    );
}

#[test]
fn experiments_without_what_is_needed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let check = |change: fn(&mut Experiment)| {
        let mut config = config(folder.path());
        change(&mut config.experiment);
        let error = table(&config).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    for change in [
        (|e| e.nets[0].echoes.clear()) as fn(&mut Experiment),
        |e| e.nets[0].echoes[0] = "before:2".to_string(),
        |e| e.nets[0].echoes[1] = "before".to_string(),
        |e| e.rates.clear(),
        |e| e.rates[0] = f64::NAN,
        |e| e.ratio = 0.0,
        |e| e.nets[0].batch = 0,
        |e| e.nets[0].width = 0.0,
        |e| e.epochs = 0,
        |e| e.nets[0].waits = vec!["before:7".to_string()],
    ] {
        assert!(check(change).contains("experiments/echo.toml"));
    }
    assert!(check(|e| e.sets.clear()).contains("no pictures"));
    assert!(check(|e| e.texts.clear()).contains("no text"));
    assert!(check(|e| e.nets[0].model = "perceptron".to_string()).contains("lstm"));
}
