//! The tables at tiny scale: properties that hold at any size, and the shape of the result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_comm::Comm;
use pelton_format::{IndexCoding, PackedShape, PackedWriter};
use pelton_plan::Order;
use pelton_run::{Interrupt, RunContext};
use pelton_train::TrainError;
use serde_json::Value;

use super::convergence::{self, Run, Training, median_epochs};
use super::data_in_memory::{DataInMemory, hold};
use super::method::Method;
use super::published::PUBLISHED;
use super::table::median;
use crate::experiment::{Experiment, SetConfig};
use crate::reproduce::reproduce;
use crate::table::{ReproduceConfig, Reproduction, Row};

/// The table, on one rank.
pub(super) fn reproduced(
    config: &ReproduceConfig,
    interrupt: &Interrupt,
) -> Result<Reproduction, TrainError> {
    let comm = Comm::alone();
    reproduce(config, RunContext::new(&comm, interrupt, &mut |_| {}))
}

fn config(name: &str, scale: f64, out: &Path) -> ReproduceConfig {
    ReproduceConfig {
        experiment: Experiment::find(name).unwrap(),
        scale,
        seeds: 1,
        out: out.to_path_buf(),
        real_data: None,
        program: None,
    }
}

fn held(name: &str, rows: u64, out: &Path) -> DataInMemory {
    let config = config("lirs-svm", 1.0, out);
    let mut set = config
        .experiment
        .sets
        .iter()
        .find(|set| set.name == name)
        .unwrap()
        .clone();
    set.rows = Some(rows);
    hold(
        &config,
        &set,
        &mut RunContext::new(&Comm::alone(), &Arc::default(), &mut |_| {}),
    )
    .unwrap()
    .unwrap()
}

fn train(held: &DataInMemory, order: Order, optimum: f64, inner: &str) -> Vec<Run> {
    let training = Training {
        order,
        unit_records: None,
        inner: inner.parse().unwrap(),
        epochs: 30,
        optimum,
        stop_at: f64::NAN,
    };
    let interrupt = Arc::default();
    convergence::runs(held, &[training], 2, &interrupt)
        .unwrap()
        .concat()
}

#[test]
fn experiments_name_the_papers_sets_and_blocks() {
    for name in ["lirs-svm", "lirs-pages", "lirs-memory"] {
        let experiment = Experiment::find(name).unwrap();
        assert_eq!(experiment.name, name);
        assert!(!experiment.sets.is_empty());
        for set in experiment
            .sets
            .iter()
            .filter(|set| set.blocks > 0 && set.rows.is_some())
        {
            let published = PUBLISHED
                .iter()
                .find(|published| published.name == set.name);
            assert_eq!(
                set.blocks,
                published.unwrap().blocks,
                "{name}: {}",
                set.name
            );
        }
    }
    assert_eq!(
        Experiment::find("deepio-order").unwrap().chunks,
        [1, 4, 16, 256]
    );
    assert_eq!(Experiment::find("lirs-dnn").unwrap().queues.len(), 4);
    assert!(Experiment::find("no-such-table").is_err());
}

#[test]
fn new_blocks_every_epoch_need_fewer_epochs_than_fixed_ones() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rows) in [
        ("webspam", 200),
        ("epsilon", 6_000),
        ("kdd", 4_000),
        ("higgs", 6_000),
    ] {
        let held = held(name, rows, folder.path());
        let optimum = convergence::optimum(&held, &Arc::default()).unwrap();
        assert!(
            optimum.relative_gap() <= 10.0 * convergence::OPTIMUM_GAP,
            "{name}: {optimum:?}"
        );
        let train = |method: Method| {
            let order = method.order(held.blocks, held.dataset().records());
            train(&held, order, optimum.primal, "until:0.1")
        };
        let fixed = train(Method::FixedBmf);
        let goal = median(fixed.iter().map(Run::best).collect());
        let epochs = median_epochs(&train(Method::LirsRow), goal);
        assert!(
            epochs.is_some_and(|epochs| epochs < 30.0),
            "{name}: {epochs:?} to {goal:e}"
        );
        // No run is below the optimum by more than its precision.
        assert!(
            fixed
                .iter()
                .flat_map(|run| &run.epochs)
                .all(|epoch| epoch.difference > -2e-5)
        );
    }
}

/// A copy of a demo with all rows of one class before those of the other.
fn sorted_by_label(held: &DataInMemory, path: PathBuf) -> SetConfig {
    let dataset = held.dataset();
    let shape = PackedShape {
        layout: dataset.layout(),
        features: dataset.features(),
        index_coding: IndexCoding::Plain,
    };
    let mut writer = PackedWriter::create(&path, shape).unwrap();
    for class in 0..2 {
        for i in (0..held.rows.len()).filter(|&i| held.rows.label(i) == class) {
            let label = dataset.labels().values()[class as usize];
            writer.push(label, held.rows.row(i)).unwrap();
        }
    }
    writer.finish().unwrap();
    SetConfig {
        name: "sorted".to_string(),
        blocks: held.blocks,
        train: Some(path.display().to_string()),
        ..SetConfig::default()
    }
}

#[test]
fn a_file_sorted_by_label_ruins_its_own_blocks_but_not_lirs() {
    let folder = tempfile::tempdir().unwrap();
    let mixed = held("kdd", 4_000, folder.path());
    let set = sorted_by_label(&mixed, folder.path().join("sorted.prow"));
    let mut config = config("lirs-svm", 1.0, folder.path());
    config.real_data = Some(folder.path().to_path_buf());
    let sorted = hold(
        &config,
        &set,
        &mut RunContext::new(&Comm::alone(), &Arc::default(), &mut |_| {}),
    )
    .unwrap()
    .unwrap();
    let optimum = convergence::optimum(&sorted, &Arc::default())
        .unwrap()
        .primal;
    let last = |held: &DataInMemory, order| {
        let runs = train(held, order, optimum, "1");
        runs[0].epochs[4].difference
    };
    let (full_sorted, full_mixed) = (last(&sorted, Order::Full), last(&mixed, Order::Full));
    let file_order = last(&sorted, Order::Sequential);
    assert!(
        file_order > 3.0 * full_sorted,
        "{file_order} against {full_sorted}"
    );
    assert!(
        full_sorted < 2.0 * full_mixed + 1e-3,
        "{full_sorted} against {full_mixed}"
    );
}

/// Every row has all keys; figures are numbers, lists, times, or text that a limit was exceeded.
fn check_shape(reproduction: &Reproduction) {
    let json = serde_json::to_value(reproduction).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        for key in ["table", "data", "method", "figure", "differs"] {
            assert!(
                row[key].as_str().is_some_and(|text| !text.is_empty()),
                "{key} of {row}"
            );
        }
        let keys = row.as_object().unwrap();
        assert!(
            keys.contains_key("published") && keys.contains_key("measured"),
            "{row}"
        );
        let valid = match &row["measured"] {
            Value::Number(_) => true,
            Value::Array(values) => values.iter().all(Value::is_number),
            Value::Object(times) => times.values().all(Value::is_number),
            Value::String(text) => text.starts_with("over "),
            _ => false,
        };
        assert!(valid, "{row}");
    }
    assert!(rows.iter().any(|row| row["published"].is_number()));
    assert!(
        reproduction
            .files
            .iter()
            .all(|file| file.metadata().unwrap().len() > 0)
    );
}

fn find<'a>(rows: &'a [Row], table: &str, data: &str, method: &str, figure: &str) -> &'a Row {
    rows.iter()
        .find(|row| {
            row.table == table
                && row.data == data
                && row.method.starts_with(method)
                && row.figure.starts_with(figure)
        })
        .unwrap_or_else(|| panic!("{table}, {data}, {method}, {figure} is missing"))
}

#[test]
fn svm_rows_have_every_method_and_device() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("lirs-svm", 0.02, folder.path());
    config
        .experiment
        .sets
        .retain(|set| ["epsilon", "higgs"].contains(&set.name.as_str()));
    config.experiment.epochs = 4;
    config.seeds = 2;
    let found = reproduced(&config, &Arc::default()).unwrap();
    check_shape(&found);
    for method in Method::COMPARED {
        for inner in ["1", "3", "10", "until:0.1"] {
            let of_inner: Vec<Row> = found
                .rows
                .iter()
                .filter(|row| row.inner_passes.as_deref() == Some(inner))
                .cloned()
                .collect();
            for table in ["Table 3", "Table 4", "Figure 9"] {
                find(&of_inner, table, "higgs", method.name(), "");
            }
        }
        for device in ["HDD", "SSD", "Optane"] {
            let name = format!("{}: {device}, modelled", method.name());
            find(&found.rows, "Figure 10", "higgs", &name, "seconds");
        }
    }
    let published = find(&found.rows, "Table 3", "epsilon", "LIRS, rows", "epochs");
    assert_eq!(published.published, 12);
    let html = std::fs::read_to_string(folder.path().join("lirs-svm.html")).unwrap();
    assert!(html.contains("Figure 9: higgs") && html.contains("Figure 10: higgs"));
}

#[test]
fn reading_small_rows_by_units_is_cheaper_and_ranges_beat_two_pages() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("lirs-pages", 0.1, folder.path());
    config.experiment.epochs = 3;
    config.experiment.units = vec![0, 4096, 16384, 1 << 20];
    let found = reproduced(&config, &Arc::default()).unwrap();
    check_shape(&found);
    for data in ["kdd", "higgs"] {
        let pages = |method: &str| {
            let row = find(&found.rows, "Figure 11", data, method, "pages read over");
            row.measured.as_f64().unwrap()
        };
        let two = pages("units of 4 KiB, page after it");
        assert!((two - 2.0).abs() < 0.02, "{data}: {two}");
        // A unit of u pages, a little longer because of its last row, touches u + 1 of them.
        let ranges = pages("units of 4 KiB");
        assert!(ranges < two, "{data}: {ranges} and {two}");
        assert!(pages("units of 16 KiB") < 1.3, "{data}");
        assert!(pages("rows") > 4.0 * two, "{data}");
        let disk = find(
            &found.rows,
            "Figure 11",
            data,
            "units of 16 KiB",
            "bytes read over",
        );
        assert!(
            disk.measured.as_f64().unwrap() < 1.3,
            "{data}: {:?}",
            disk.measured
        );
    }
}

/// On a file sorted by class a short queue yields one class after the other, but full order does not.
#[test]
fn nets_learn_from_sorted_files_in_full_order_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("lirs-dnn", 0.04, folder.path());
    config.experiment.sets.retain(|set| set.rows.is_some());
    config.experiment.nets.truncate(1);
    config.experiment.queues = vec![0.0078];
    (config.experiment.epochs, config.experiment.rates) = (2, vec![1.0]);
    config.experiment.schedule = "constant".to_string();
    let net = &mut config.experiment.nets[0];
    // A batch norm begins to learn at once.
    (net.model, net.width) = ("resnet20".to_string(), 0.25);
    (net.rate, net.batch) = (0.05, 16);
    let found = reproduced(&config, &Arc::default()).unwrap();
    let loss = |method: &str| {
        let data = "resnet20 on demo:images sorted by class";
        let row = find(
            &found.rows,
            "Figure 12",
            data,
            method,
            "validation loss by epoch",
        );
        let losses = row.measured.as_array().unwrap().clone();
        assert_eq!(losses.len(), 2);
        losses[1].as_f64().unwrap()
    };
    let (full, queue) = (loss("LIRS"), loss("queue of 0.78 %"));
    assert!(full < 0.9 * queue, "{full}, {queue}");
    let row = find(
        &found.rows,
        "section 5.3.3",
        "demo:images",
        "LIRS",
        "memory of the shuffle, MB",
    );
    // 8 bytes for each of the 2 400 pictures.
    assert_eq!(row.measured, 19_200.0 / f64::from(1 << 20));
}

/// Sentences of 1 to 12 words, the short ones more often.
fn sentences(count: usize) -> String {
    let line = |i: usize| {
        let words = 1 + (i * i * 7 + i) % 13 * (i % 5) / 5;
        let word = |j| format!("w{}", (i * 3 + j * (i % 4)) % 20);
        (0..words).map(word).collect::<Vec<_>>().join(" ")
    };
    (0..count).map(|i| line(i) + "\n").collect()
}

/// Every policy trains on the same words, with the padding counted for it.

#[test]
fn buckets_are_trained_on_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("ptb")).unwrap();
    let texts = [("train", 120), ("valid", 20)];
    let texts = texts.map(|(name, count)| (format!("ptb/ptb.{name}.txt"), sentences(count)));
    for (file, text) in &texts {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let mut config = config("buckets", 3.0, &folder.path().join("out"));
    config.real_data = Some(folder.path().to_path_buf());
    config.experiment.batches = vec![8];
    config.experiment.policies = ["none", "static:4,8", "auto", "pack:24"]
        .map(String::from)
        .to_vec();
    config.experiment.followed = vec!["auto".to_string()];
    config.experiment.epochs = 3;
    let net = &mut config.experiment.nets[0];
    (net.width, net.batch, net.rate) = (0.05, 8, 5.0);
    let found = reproduced(&config, &Arc::default()).unwrap();
    // Half of the sentences are timed and all are used for perplexity, each with its end.
    let size = |count: u64| {
        let used = super::idx::some_of(120, count);
        let all = texts[0].1.lines().zip(0..);
        let lengths = all.filter(|(_, i)| used.contains(*i));
        let lengths: Vec<usize> = lengths
            .map(|(line, _)| 1 + line.split(' ').count())
            .collect();
        let longest = lengths.iter().max().unwrap();
        (lengths.iter().sum::<usize>(), lengths.len() * longest)
    };
    let raw = std::fs::read_to_string(config.out.join("buckets-ptb-trained.csv")).unwrap();
    let mut lines = 0;
    for line in raw.lines().skip(1) {
        let (before, rest) = line.split_once('"').unwrap();
        let (policy, rest) = rest.split_once("\",").unwrap();
        let columns: Vec<&str> = rest.split(',').collect();
        let (padding_is_words, trained) = (columns[0] == "true", columns[5]);
        let (words, cells) = size(before.split(',').nth(1).unwrap().parse().unwrap());
        let expected = if padding_is_words { cells } else { words };
        assert_eq!(trained, expected.to_string(), "{line}");
        // With several ranks, the row shows rank 0.
        if before.ends_with(",1,data,") {
            let padded = columns[6].parse::<f64>().unwrap();
            let of_none = 1.0 - words as f64 / cells as f64;
            let right = match (policy, padding_is_words) {
                (_, true) => padded == 0.0,
                ("none", _) => (padded - of_none).abs() < 1e-6,
                _ => padded < 0.7 * of_none,
            };
            assert!(right, "{line}");
        }
        lines += 1;
    }
    // Three divisions, five policies and two turns, plus three epochs of one.
    assert_eq!(lines, 3 * 5 * 2 + 3);
    let row = |method, figure| {
        let data = "ptb, batches of 8";
        find(&found.rows, "Trained", data, method, figure)
            .measured
            .clone()
    };
    let losses = row("auto", "validation perplexity after");
    let losses: Vec<f64> = serde_json::from_value(losses).unwrap();
    // Far below guessing, although three epochs of few words fluctuate.
    assert!(
        losses.len() == 3 && losses.iter().all(|loss| *loss < 25.0),
        "{losses:?}"
    );
}

/// Four ranks with half of the data in memory take exactly the full order in ordered mode, and another order by loads.

#[test]
fn ordered_mode_trains_nets_as_full_order_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("deepio-order", 0.03, folder.path());
    config.experiment.sets.clear();
    config.experiment.pictures.retain(|set| set.rows.is_some());
    config.experiment.memory = vec![1.0, 0.5];
    let net = &mut config.experiment.nets[0];
    // A batch norm begins to learn at once.
    (net.model, net.width) = ("resnet20".to_string(), 0.25);
    (net.rate, net.batch, net.epochs) = (0.1, 16, Some(3));
    let found = reproduced(&config, &Arc::default()).unwrap();
    check_shape(&found);
    let data = "resnet20 on demo:images sorted by class";
    let loss = |table, method| {
        let row = find(&found.rows, table, data, method, "validation loss");
        let losses = row.measured.as_array().unwrap().clone();
        assert_eq!(losses.len(), 3);
        losses[2].as_f64().unwrap()
    };
    let full = loss("Figure 7", "single pictures");
    // Ordered mode takes the same order with any share in memory.
    assert_eq!(loss("Figure 8", "memory 1/2, ordered"), full);
    assert_ne!(loss("Figure 8", "memory 1/2, opportunistic"), full);
    assert_ne!(loss("Figure 7", "constant order"), full);
    let levels = found
        .rows
        .iter()
        .filter(|row| row.figure.starts_with("randomness level RL") && row.data == data);
    for row in levels {
        let [printed, own] = [&row.published, &row.measured].map(|x| x.as_f64().unwrap());
        // Chunks of 2 and 3 of 300 pictures are 12 points apart.
        assert!((printed - own).abs() < 4.5, "{row:?}");
    }
}

#[test]
fn memory_rows_repeat_table_5_and_ours_is_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let found = reproduced(&config("lirs-memory", 0.02, folder.path()), &Arc::default()).unwrap();
    check_shape(&found);
    let imagenet = find(
        &found.rows,
        "Table 5",
        "imagenet",
        "random assignment",
        "MB",
    );
    let published_mb = imagenet.published.as_f64().unwrap();
    assert!((published_mb - 8.0 * 1_281_167.0 / f64::from(1 << 20)).abs() < 0.05);
    for set in PUBLISHED {
        let table = |name: &str, figure: &str| {
            let row = find(&found.rows, "Table 5", set.name, name, figure);
            (
                row.published.as_f64().unwrap(),
                row.measured.as_f64().unwrap(),
            )
        };
        assert_eq!(table("random assignment", "MB"), (set.tables_mb[0], 0.0));
        let (theirs, ours) = table("offset table", "bytes a row");
        assert_eq!(theirs, if set.sparse { 8.0 } else { 0.0 });
        assert!(
            if set.sparse { ours < 4.0 } else { ours == 0.0 },
            "{}: {ours}",
            set.name
        );
    }
}

#[test]
fn little_randomness_hurts_where_neighbours_are_alike_and_loads_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("deepio-order", 0.3, folder.path());
    config.experiment.nets.clear();
    config.experiment.sets.retain(|set| set.name == "higgs");
    config.experiment.inner_passes = vec!["until:0.1".parse().unwrap()];
    config.experiment.epochs = 6;
    // 3 450 rows have too few chunks of 256 for their blocks.
    config.experiment.chunks = vec![1, 4, 16, 64, 256];
    config.seeds = 2;
    let found = reproduced(&config, &Arc::default()).unwrap();
    check_shape(&found);
    for row in found.rows.iter().filter(|row| row.data.contains("formula")) {
        if let Some(published) = row.published.as_f64() {
            let level = row.measured.as_f64().unwrap();
            assert!((level - published).abs() < 0.6, "{row:?}");
        }
    }
    let value = |table: &str, data: &str, method: &str, figure: &str| {
        let row = find(&found.rows, table, data, method, figure);
        let last = row.measured.as_array().and_then(|values| values.last());
        last.unwrap_or(&row.measured).as_f64().unwrap()
    };
    let loads = ["memory 1,", "memory 1/2", "memory 1/4", "memory 1/8"];
    let exact = loads.map(|name| value("Figure 8", "higgs", name, "exact randomness"));
    assert!(
        exact.is_sorted_by(|a, b| a > b) && exact[0] == 100.0,
        "{exact:?}"
    );
    let level = value("Figure 8", "higgs", "memory 1/8", "randomness level");
    assert!(exact[3] <= level && level <= 100.0, "{level} {exact:?}");

    let sorted = "higgs, sorted by label";
    let difference = |table, method| value(table, sorted, method, "relative difference");
    let full = difference("Figure 7", "single records");
    let constant = difference("Figure 7", "constant order");
    assert!(constant > 5.0 * full, "{constant}, {full}");
    assert!(difference("Figure 7", "chunks of 64") > full);
    assert_eq!(difference("Figure 8", "memory 1,"), full);
    assert!(difference("Figure 8", "memory 1/8") < 3.0 * full);
    assert!(!found.rows.iter().any(|row| row.data != "11500 records, by the formula" && row.method == "chunks of 256"));
    let html = std::fs::read_to_string(folder.path().join("deepio-order.html")).unwrap();
    assert!(html.contains("Figure 8: higgs, sorted by label"));
}

#[test]
fn nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let config = config("lirs-memory", scale, folder.path());
        let result = reproduced(&config, &Arc::default());
        assert!(
            matches!(
                result,
                Err(TrainError::Data(pelton_data::DataError::Config(_)))
            ),
            "{scale}"
        );
    }
    let interrupted = Arc::new(AtomicBool::new(true));
    let mut config = config("lirs-svm", 0.01, folder.path());
    config.experiment.sets.truncate(1);
    let result = reproduced(&config, &interrupted);
    let error = result.unwrap_err();
    assert_eq!(error.exit_code(), 130, "{error}");
}

/// The lengths of the real Penn Treebank, if it exists.
#[test]
fn buckets_of_the_penn_treebank_drop_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("buckets", 1.0, folder.path());
    config.experiment.nets.clear();
    let real = std::env::var_os("PELTON_DATA").map_or("../../../shared/data".into(), PathBuf::from);
    if !real.join("ptb/ptb.train.txt").exists() {
        eprintln!(
            "SKIPPED: {} holds no ptb; name its folder in PELTON_DATA",
            real.display()
        );
        let left_out = reproduced(&config, &Arc::default()).unwrap();
        assert!(left_out.rows.is_empty());
        assert!(left_out.notes.iter().any(|note| note.contains("left out")));
        return;
    }
    config.real_data = Some(real);
    let found = reproduced(&config, &Arc::default()).unwrap();
    check_shape(&found);
    let value = |batch, policy, figure| {
        let data = format!("ptb, batches of {batch}");
        let row = find(&found.rows, "Bucketing", &data, policy, figure);
        row.measured.as_f64().unwrap()
    };
    // Counted by a second program from the same text.
    for (batch, auto, dropped) in [(32, 0.095, 2.101), (128, 0.359, 7.198)] {
        let padded = |policy| value(batch, policy, "padded cells");
        assert_eq!(padded("none"), 73.377);
        assert_eq!(padded("static"), 17.544);
        assert_eq!(padded("optimal:8"), 11.335);
        assert_eq!(padded("optimal:16"), 4.739);
        assert_eq!(padded("auto"), auto);
        assert!(padded("pack") < 0.2, "{}", padded("pack"));
        for policy in ["none", "static", "optimal:8", "optimal:16", "auto", "pack"] {
            assert_eq!(value(batch, policy, "sentences dropped"), 0.0);
        }
        assert_eq!(value(batch, "published-auto", "sentences dropped"), dropped);
    }
}
