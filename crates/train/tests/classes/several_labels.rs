//! Sparse rows whose records may have several labels, and sparse rows with one.

use std::fmt::Write;

use super::*;

const LABELS: usize = 120;
const FEATURES: usize = 360;

struct Random(u32);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % most
    }
}

/// Records with these labels: each label has three features of its own, of which most are there.
fn rows(labels: &[Vec<usize>], seed: u32) -> Vec<String> {
    let mut random = Random(seed);
    let row = |own: &Vec<usize>| {
        let mut features = vec![false; FEATURES];
        for label in own {
            for of_label in 0..3 {
                features[3 * label + of_label] |= random.below(5) > 0;
            }
        }
        features[random.below(FEATURES)] = true;
        let there = features.iter().enumerate().filter(|(_, there)| **there);
        let entries = there.map(|(at, _)| format!(" {at}:{}", 1 + at % 2));
        entries.collect::<String>()
    };
    labels.iter().map(row).collect()
}

fn lists(records: usize, seed: u32, counts: impl Fn(&mut Random) -> usize) -> Vec<Vec<usize>> {
    let mut random = Random(seed);
    let list = |_| {
        let count = counts(&mut random);
        let mut own: Vec<usize> = (0..count).map(|_| random.below(LABELS)).collect();
        own.sort_unstable();
        own.dedup();
        own
    };
    (0..records).map(list).collect()
}

fn written(path: &Path, labels: &[Vec<usize>], rows: &[String]) -> String {
    let mut text = format!("{} {FEATURES} {LABELS}\n", labels.len());
    for (labels, row) in labels.iter().zip(rows) {
        let labels: Vec<String> = labels.iter().map(usize::to_string).collect();
        writeln!(text, "{}{row}", labels.join(",")).unwrap();
    }
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

fn of_files(folder: &Path, training: String, kind: &str) -> ImageConfig {
    let mut config = config(folder, kind);
    config.data.paths = vec![training];
    config.fit.batch = 20;
    config.fit.rate = Some(0.1);
    config
}

/// Training and test files of records with 0 to 4 labels, and the lists of the test.
fn mixed(folder: &Path) -> (String, String, Vec<Vec<usize>>) {
    let counts = |random: &mut Random| random.below(5);
    let (training, test) = (lists(500, 1, counts), lists(97, 2, counts));
    assert!(test.iter().any(Vec::is_empty));
    let file = |name: &str, labels: &[Vec<usize>], seed| {
        written(&folder.join(name), labels, &rows(labels, seed))
    };
    (
        file("train.txt", &training, 3),
        file("test.txt", &test, 4),
        test,
    )
}

#[test]
fn the_loss_of_an_example_is_the_mean_over_its_labels() {
    let folder = tempfile::tempdir().unwrap();
    // Two labels each: the same as each example twice, with one of them.
    let mut random = Random(7);
    let pair = |at: usize| match at {
        0..60 => vec![2 * at, 2 * at + 1],
        _ => {
            let first = random.below(LABELS - 1);
            vec![first, first + 1 + random.below(LABELS - 1 - first)]
        }
    };
    let labels: Vec<Vec<usize>> = (0..300).map(pair).collect();
    let of_pairs = rows(&labels, 9);
    let single: Vec<Vec<usize>> = labels.iter().flatten().map(|&label| vec![label]).collect();
    let twice: Vec<String> = of_pairs
        .iter()
        .flat_map(|row| [row.clone(), row.clone()])
        .collect();
    let files = [
        written(&folder.path().join("pairs.txt"), &labels, &of_pairs),
        written(&folder.path().join("single.txt"), &single, &twice),
    ];
    for kind in KINDS {
        let found: Vec<Vec<f64>> = (1..)
            .zip(&files)
            .map(|(times, file)| {
                let mut config = of_files(folder.path(), file.clone(), kind);
                config.fit.order = pelton_train::Order::Sequential;
                config.fit.batch = 10 * times;
                config.fit.rate = Some(0.01);
                config.fit.epochs = 3;
                let head = config.head.as_mut().unwrap();
                head.begin = "random".parse().unwrap();
                let out = folder.path().join(format!("{kind}-{times}"));
                run(&config, &out, 1, false, None).unwrap();
                losses(&out)
            })
            .collect();
        assert_close(kind, &found[0], &found[1]);
        assert!(found[0][2] < found[0][0] - 0.1, "{kind}: {found:?}");
    }
}

#[test]
fn several_labels_are_the_same_on_ranks_and_in_a_resumed_run() {
    let folder = tempfile::tempdir().unwrap();
    let (training, test, _) = mixed(folder.path());
    for kind in KINDS {
        let mut config = of_files(folder.path(), training.clone(), kind);
        config.fit.test = vec![test.clone()];
        config.head.as_mut().unwrap().centre = false;
        let alone = folder.path().join(kind);
        let whole = run(&config, &alone, 1, false, None).unwrap();
        let ranks = whole.test_label_ranks.unwrap();
        assert!(whole.test_accuracy_by_class_size.is_none());
        let score = ranks.propensity_scored_precision.unwrap();
        assert!(
            score.iter().all(|&part| part > 0.0 && part <= 1.0),
            "{score:?}"
        );
        let expected = losses(&alone);
        for (on, micro) in [(1, 3), (2, 1), (3, 2)] {
            config.head.as_mut().unwrap().micro_batches = micro;
            let out = folder.path().join(format!("{kind}-{on}-{micro}"));
            let found = run(&config, &out, on, false, None).unwrap();
            let what = format!("{kind} on {on} ranks");
            assert_close(&what, &expected, &losses(&out));
            // All ranks' examples are counted: a few may change places by rounding.
            let of = found.test_label_ranks.unwrap();
            for (found, expected) in of.ndcg.iter().zip(ranks.ndcg) {
                assert!((found - expected).abs() < 0.05, "{what}: {of:?}");
            }
        }
        config.head.as_mut().unwrap().micro_batches = 1;
        let out = folder.path().join(format!("{kind}-resumed"));
        let stopped = run(&config, &out, 1, false, Some(7)).unwrap_err();
        assert!(stopped.to_string().contains("interrupt"), "{stopped}");
        let resumed = run(&config, &out, 1, true, None).unwrap();
        assert_eq!(losses(&out), expected, "{kind}");
        assert_eq!(resumed.test_label_ranks.unwrap(), ranks, "{kind}");
    }
}

#[test]
fn figures_of_several_labels_follow_from_the_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let (training, test, lists) = mixed(folder.path());
    let mut config = of_files(folder.path(), training, "full");
    config.fit.test = vec![test.clone()];
    config.fit.epochs = 20;
    let head = config.head.as_mut().unwrap();
    (head.logits, head.centre) = ("product".parse().unwrap(), false);
    let out = folder.path().join("out");
    let summary = run(&config, &out, 2, false, None).unwrap();
    let mut of = EvaluateConfig {
        model: out,
        data: DataConfig::default(),
        memory_bytes: 1 << 26,
    };
    of.data.paths = vec![test];
    let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
    let quiet = &mut |_: Event<'_>| ();
    let context = RunContext::new(&comm, &interrupt, quiet);
    let figures = finished::eval(&of, Some(3), context).unwrap();
    let mut lines = Vec::new();
    let quiet = &mut |_: Event<'_>| ();
    let context = RunContext::new(&comm, &interrupt, quiet);
    let all = finished::Predicted::Top(LABELS);
    finished::predict_lines(&of, all, &mut lines, context).unwrap();
    let text = String::from_utf8(lines).unwrap();
    assert_eq!(text.lines().count(), lists.len());
    let (mut hits, mut within, mut loss) = ([0.0; 3], 0.0, 0.0);
    for (line, own) in text.lines().zip(&lists) {
        let cells: Vec<f64> = line.split('\t').map(|cell| cell.parse().unwrap()).collect();
        let ranked: Vec<(usize, f64)> = cells
            .chunks(2)
            .map(|pair| (pair[0] as usize, pair[1]))
            .collect();
        let found = |most: usize| {
            ranked
                .iter()
                .take(most)
                .filter(|(class, _)| own.contains(class))
                .count()
        };
        for (hits, cut) in hits.iter_mut().zip([1, 3, 5]) {
            *hits += found(cut) as f64 / cut as f64;
        }
        within += f64::from(u8::from(found(3) > 0));
        let total: f64 = ranked.iter().map(|(_, score)| score.exp()).sum();
        let own_scores = ranked.iter().filter(|(class, _)| own.contains(class));
        let lost: f64 = own_scores.map(|(_, score)| total.ln() - score).sum();
        loss += lost / own.len().max(1) as f64;
    }
    let records = lists.len() as f64;
    let precision = hits.map(|hits| hits / records);
    let ranks = figures.test_label_ranks.clone().unwrap();
    for (found, expected) in ranks.precision.iter().zip(precision) {
        assert!((found - expected).abs() < 1e-9, "{ranks:?} {precision:?}");
    }
    // Of records of which a fifth has no label.
    assert!(precision[0] > 0.4, "it has learnt: {precision:?}");
    assert_eq!(figures.top_accuracy, Some(within / records));
    assert_eq!(figures.test_accuracy, summary.test_accuracy);
    assert!((figures.test_accuracy.unwrap() - precision[0]).abs() < 1e-9);
    // Scores are written with six decimals.
    assert!(
        (figures.test_loss - loss / records).abs() < 1e-5,
        "{} {}",
        figures.test_loss,
        loss / records
    );
    let of_run = summary.test_label_ranks.unwrap();
    let (ranks, of_run) = (
        [ranks.precision, ranks.ndcg],
        [of_run.precision, of_run.ndcg],
    );
    for (a, b) in ranks.as_flattened().iter().zip(of_run.as_flattened()) {
        assert!((a - b).abs() < 1e-12, "{ranks:?} {of_run:?}");
    }
}

#[test]
fn what_several_labels_cannot_do_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (training, _, _) = mixed(folder.path());
    let refused = |change: &dyn Fn(&mut ImageConfig), expected: &str| {
        let mut config = of_files(folder.path(), training.clone(), "full");
        change(&mut config);
        let out = folder.path().join("refused");
        let error = run(&config, &out, 1, false, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(&|config| config.head = None, "use train classify");
    refused(
        &|config| config.class_weights = Some("balanced".parse().unwrap()),
        "`class_weights` weigh examples by their only one",
    );
    refused(
        &|config| config.model = "resnet20".parse().unwrap(),
        "`model` resnet20 does not take sparse rows; choose mlp",
    );
}

/// LIBSVM with one label each, of far more features than a row has.
#[test]
fn sparse_rows_with_one_label_train_any_net() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(5);
    let mut text = String::new();
    for _ in 0..600 {
        let label = random.below(2);
        write!(text, "{}", ["+1", "-1"][label]).unwrap();
        let mut at = 1;
        for _ in 0..6 {
            at += 2 + 2 * random.below(4000);
            write!(text, " {}:{}", at + label, 1 + random.below(3)).unwrap();
        }
        text.push('\n');
    }
    let path = folder.path().join("rows.svm");
    std::fs::write(&path, text).unwrap();
    for head in [false, true] {
        let mut config = of_files(folder.path(), path.display().to_string(), "full");
        config.fit.epochs = 6;
        if !head {
            config.head = None;
            config.model = "mlp".parse().unwrap();
        }
        let out = folder.path().join(head.to_string());
        run(&config, &out, 2, false, None).unwrap();
        let found = losses(&out);
        assert!(found[5] < 0.8 * found[0], "{found:?}");
    }
}
