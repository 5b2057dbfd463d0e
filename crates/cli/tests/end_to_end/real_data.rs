//! The documented commands on real files.

use serde_json::Value;

use crate::command::{Place, number};

/// Figures that `train linear` and `eval` promise.
const TRAIN_NUMBERS: [&str; 15] = [
    "primal",
    "epochs",
    "passes",
    "wall_s",
    "prepare_s",
    "load_s",
    "compute_s",
    "overlap_s",
    "peak_rss_bytes",
    "read_amplification",
    "rl",
    "rl_exact",
    "records",
    "skipped_records",
    "test_accuracy",
];
/// Figures that may be unknown: then they are null.
const TRAIN_OPTIONAL: [&str; 3] = ["dual", "relative_gap", "relative_difference"];

fn check_train_keys(figures: &Value) {
    for key in TRAIN_NUMBERS {
        assert!(number(figures, key) >= 0.0, "{key}");
    }
    for key in TRAIN_OPTIONAL {
        let value = figures.get(key).unwrap_or_else(|| panic!("{key}"));
        assert!(value.is_null() || value.is_f64(), "{key}: {value}");
    }
    for key in ["epochs", "peak_rss_bytes", "records", "skipped_records"] {
        assert!(figures[key].is_u64(), "{key}: {}", figures[key]);
    }
    assert!(!figures["verdict"].as_str().unwrap().is_empty());
}

const ADULT: [&str; 2] = ["libsvm/a9a", "libsvm/a9a.t"];

#[test]
fn adult_trains_as_documented_and_evaluates_to_the_same_figures() {
    let place = Place::new();
    if !place.real(&ADULT) {
        return;
    }
    let trained = place.json(
        "train svm a9a --test a9a.t --cost 1 --loss hinge --order full --access window \
         --memory 64MiB --epochs 30 --seed 1 --out runs/x",
    );
    check_train_keys(&trained);
    assert_eq!(trained["records"], 32561);
    // Fewer if epochs no longer improve the weights.
    assert!(trained["epochs"].as_u64().unwrap() <= 30);
    // LIBLINEAR 2.47 with -s 3 -e 1e-6: objective 11433.3, accuracy 84.98 %.
    let dual = number(&trained, "dual");
    assert!((dual - 11433.3).abs() < 1e-3 * 11433.3, "{dual}");
    assert!(number(&trained, "primal") >= dual);
    assert!(number(&trained, "relative_gap") < 1e-3);
    assert!((number(&trained, "test_accuracy") - 0.8498).abs() < 1e-3);
    assert_eq!(number(&trained, "rl"), 1.0);

    let evaluated = place.json("eval runs/x a9a.t");
    check_train_keys(&evaluated);
    assert_eq!(evaluated["test_accuracy"], trained["test_accuracy"]);
    for name in ["model.txt", "model.safetensors"] {
        let figures = place.json(&format!("eval runs/x/{name} a9a.t"));
        assert_eq!(figures["test_accuracy"], trained["test_accuracy"], "{name}");
    }
    let on_training = place.json("eval runs/x a9a");
    let (a, b) = (number(&on_training, "primal"), number(&trained, "primal"));
    assert!((a - b).abs() <= 1e-9 * b, "{a} {b}");

    let predicted = place.ok("predict runs/x a9a.t").stdout;
    let labels = String::from_utf8(place.read("a9a.t")).unwrap();
    let mut right = 0;
    for (predicted, line) in predicted.lines().zip(labels.lines()) {
        let label: f64 = line.split(' ').next().unwrap().parse().unwrap();
        right += u64::from(predicted.parse::<f64>().unwrap() == label);
    }
    assert_eq!(predicted.lines().count(), 16281);
    assert_eq!(
        Some(right as f64 / 16281.0),
        trained["test_accuracy"].as_f64()
    );

    for file in ["run.toml", "metrics.jsonl", "summary.json", "checkpoint"] {
        assert!(place.path("runs/x").join(file).exists(), "{file}");
    }
    let metrics = String::from_utf8(place.read("runs/x/metrics.jsonl")).unwrap();
    assert_eq!(metrics.lines().count() as f64, number(&trained, "epochs"));
}

#[test]
fn blocks_in_fixed_and_permuted_order_train_adult() {
    let place = Place::new();
    if !place.real(&ADULT[..1]) {
        return;
    }
    let mut gaps = Vec::new();
    for (out, flags) in [
        ("a", "--order block:40 --inner-passes 10"),
        ("b", "--order block:40:permute --inner-passes 10"),
        ("c", "--order block:40:permute --inner-passes until:0.1"),
    ] {
        let line = format!("train svm a9a {flags} --epochs 4 --out runs/{out}");
        let figures = place.json(&line);
        gaps.push(number(&figures, "relative_gap"));
        let rl = number(&figures, "rl");
        assert_eq!(rl == 0.0, out == "a", "{out}: {rl}");
    }
    assert!(gaps.iter().all(|gap| *gap < 0.5), "{gaps:?}");
    // The second and third differ only in inner passes, the first also in the order.
    assert_ne!(
        place.read("runs/a/model.txt"),
        place.read("runs/b/model.txt")
    );
}

#[test]
fn adult_packed_trains_to_the_same_model() {
    let place = Place::new();
    if !place.real(&ADULT[..1]) {
        return;
    }
    let packed = place.json("pack a9a -o a9a.prow");
    assert_eq!(packed["records"], 32561);
    place.ok("pack a9a -o delta.prow --delta");
    let flags = "--memory 4MiB --blocks 12 --epochs 2 --seed 5";
    for data in ["a9a", "a9a.prow", "delta.prow"] {
        place.ok(&format!("train svm {data} {flags} --out runs/{data}"));
    }
    let model = place.read("runs/a9a/model.safetensors");
    assert!(place.read("runs/a9a.prow/model.safetensors") == model);
    assert!(place.read("runs/delta.prow/model.safetensors") == model);
}

#[test]
fn covtype_trains_binary_and_with_seven_classes() {
    let place = Place::new();
    if !place.real(&["libsvm/covtype.20k.csv"]) {
        return;
    }
    let data = "covtype.20k.csv";
    let binary = place.json(&format!(
        "train svm {data} --positive 2 --test {data} --memory 16MiB --epochs 3 \
         --inner-passes 5 --out runs/two"
    ));
    check_train_keys(&binary);
    assert_eq!(binary["classes"], 2);

    let seven = place.json(&format!(
        "train svm {data} --test {data} --memory 2MiB --epochs 2 --inner-passes 1 \
         --out runs/seven"
    ));
    check_train_keys(&seven);
    assert_eq!(seven["classes"], 7);
    let evaluated = place.json(&format!("eval runs/seven {data}"));
    assert_eq!(evaluated["test_accuracy"], seven["test_accuracy"]);
    let predicted = place.ok(&format!("predict runs/seven {data}")).stdout;
    let text = String::from_utf8(place.read(data)).unwrap();
    let right = predicted
        .lines()
        .zip(text.lines())
        .filter(|(predicted, line)| {
            let label = line.rsplit(',').next().unwrap();
            predicted.parse::<f64>().unwrap() == label.parse::<f64>().unwrap()
        });
    let accuracy = right.count() as f64 / 20000.0;
    assert_eq!(Some(accuracy), seven["test_accuracy"].as_f64());
    let text = String::from_utf8(place.read("runs/seven/model.txt")).unwrap();
    assert!(text.contains("nr_class 7"), "{}", &text[..200]);
}

#[test]
fn columns_as_they_were_measured_are_solved_to_the_optimum() {
    let place = Place::new();
    if !place.real(&["libsvm/covtype.20k.csv"]) {
        return;
    }
    let line = "train svm covtype.20k.csv --positive 2 --solver newton";
    let whole = place.json(&format!("{line} --target 1e-4 --out whole"));
    // LIBLINEAR with its cap at 3000 passes ends at 9003.
    assert!(number(&whole, "primal") < 6750.0);
    assert!(number(&whole, "relative_gap") < 1e-4);
    // A run that ended early resumes to the same model.
    place.json(&format!("{line} --epochs 3 --out run"));
    let resumed = place.json(&format!(
        "{line} --epochs 300 --target 1e-4 --resume --out run"
    ));
    assert_eq!(resumed["primal"], whole["primal"]);
    assert_eq!(resumed["epochs"], whole["epochs"]);
    let evaluated = place.json("eval run covtype.20k.csv --positive 2");
    let difference = number(&evaluated, "primal") - number(&resumed, "primal");
    assert!(difference.abs() < 1e-5 * 6748.0, "{difference}");
}

#[test]
fn higgs_with_a_named_label_column() {
    let place = Place::new();
    if !place.real(&["higgs/higgs.11k.csv"]) {
        return;
    }
    let figures = place.json(
        "train svm higgs.11k.csv --label label --test higgs.11k.csv --epochs 5 --bias 1 \
         --loss logistic --memory 1MiB --out runs/h",
    );
    check_train_keys(&figures);
    assert_eq!(
        (&figures["records"], &figures["features"]),
        (&10984.into(), &28.into())
    );
    assert!(number(&figures, "test_accuracy") > 0.6);
    assert!(number(&figures, "relative_gap") < 0.05);
    let text = place
        .ok("predict runs/h higgs.11k.csv --probabilities")
        .stdout;
    for line in text.lines().skip(1).take(100) {
        let words: Vec<f64> = line.split('\t').map(|word| word.parse().unwrap()).collect();
        assert_eq!(words.len(), 3, "{line}");
        assert!((words[1] + words[2] - 1.0).abs() < 2e-6, "{line}");
    }
    place.refuses(
        "train svm higgs.11k.csv --label nonsense",
        2,
        &["higgs.11k.csv", "nonsense", "label"],
    );
}

#[test]
fn compressed_text_is_read_by_way_of_the_cache_folder() {
    let place = Place::new();
    let (train, test) = ("libsvm/imdb.train.libsvm.gz", "libsvm/imdb.test.libsvm.gz");
    if !place.real(&[train, test]) {
        return;
    }
    let line = "train svm imdb.train.libsvm.gz --test imdb.test.libsvm.gz --memory 8MiB \
                --epochs 2 --inner-passes 3 --out runs/i --json";
    let ended = place.ok(line);
    assert!(ended.stderr.contains("decompressed to"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("/cache/"),
        "in PELTON_CACHE\n{}",
        ended.stderr
    );
    let figures = ended.json();
    check_train_keys(&figures);
    assert!(number(&figures, "test_accuracy") > 0.8);
    let bound = 8.0 * 1024.0 * 1024.0 + 25000.0 * 4.0 + 4.0 * 87170.0 + 64.0 * 1024.0 * 1024.0;
    assert!(number(&figures, "peak_rss_bytes") < bound);
    let again = place.ok("eval runs/i imdb.test.libsvm.gz --json");
    assert_eq!(again.json()["test_accuracy"], figures["test_accuracy"]);
}

/// Pixels of Debian's package of Fashion-MNIST, to the known accuracy of linear models.
#[test]
fn pictures_of_clothes_train() {
    let folder = std::path::Path::new("/usr/share/datasets/fashion-mnist");
    if !folder.is_dir() {
        eprintln!(
            "SKIPPED: {} is missing; install dataset-fashion-mnist",
            folder.display()
        );
        return;
    }
    let place = Place::new();
    let folder = folder.display();
    let line = format!(
        "train svm {folder}/train-images-idx3-ubyte.gz --test {folder}/t10k-images-idx3-ubyte.gz \
         --cost 0.01 --target 1e-2 --memory 64MiB --out run"
    );
    let figures = place.json(&line);
    assert_eq!(
        (&figures["features"], &figures["classes"]),
        (&784.into(), &10.into())
    );
    assert!(number(&figures, "test_accuracy") > 0.82, "{figures}");
    let again = place.json(&format!("eval run {folder}/t10k-images-idx3-ubyte.gz"));
    assert_eq!(again["test_accuracy"], figures["test_accuracy"]);
}
