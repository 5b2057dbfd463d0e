//! Text out of core is copied as packed rows before training; results do not change.

use crate::command::{Place, number};
use crate::data::{rare_features, wide};

const MODEL: &str = "model.safetensors";
const PACKED: &str = "packed rows into a scratch file";

/// The model equals that of the file from `pelton pack`, byte for byte.
#[test]
fn text_out_of_core_trains_like_its_packed_file() {
    let check = |name: &str, text: &str, flags: &str| {
        let place = Place::new();
        place.write(name, text);
        place.ok(&format!("pack {name} --out packed.prow"));
        let line = format!("--epochs 5 --seed 4 {flags}");
        let said = place
            .ok(&format!("train svm {name} --out text {line}"))
            .stderr;
        assert!(said.contains(PACKED), "{said}");
        let said = place.ok(&format!("train svm packed.prow --out packed {line}"));
        assert!(!said.stderr.contains(PACKED));
        assert!(
            place.read(&format!("text/{MODEL}")) == place.read(&format!("packed/{MODEL}")),
            "{name} {flags}"
        );
        let left = std::fs::read_dir(place.path("text")).unwrap();
        let scratch = |name: std::ffi::OsString| name.to_string_lossy().contains("scratch");
        assert!(!left.flatten().any(|entry| scratch(entry.file_name())));
    };
    check("x.csv", &wide(3000), "--memory 1MiB");
    check(
        "x.csv",
        &wide(3000),
        "--memory 1MiB --scale standard --skip",
    );
    // Features are also counted and renumbered.
    check("x.svm", &rare_features(4000), "--memory 1MiB --blocks 5");
}

#[test]
fn few_epochs_ranks_and_memory_that_holds_all_read_the_text() {
    let place = Place::new();
    place.write("x.csv", wide(3000));
    for flags in [
        "--memory 1MiB --epochs 3",
        "--memory 1MiB --epochs 5 --ranks 2",
        "--memory 64MiB --epochs 5",
        "--memory 1MiB --epochs 5 --order page",
        "--memory 1MiB --epochs 5 --device-model ssd",
    ] {
        let said = place.ok(&format!("train svm x.csv --out run --overwrite {flags}"));
        assert!(!said.stderr.contains(PACKED), "{flags}\n{}", said.stderr);
    }
}

#[test]
fn bad_records_stay_bad() {
    let place = Place::new();
    let mut text = wide(3000);
    // The second row; the first could be a header.
    let second = text.find('\n').unwrap() + 1;
    text.replace_range(second..second + 5, "what?");
    place.write("x.csv", text);
    let line = "train svm x.csv --memory 1MiB --epochs 5 --format csv";
    place.refuses(&format!("{line} --out a"), 2, &["x.csv: line 2"]);
    let figures = place.json(&format!("{line} --on-bad-record skip --out b"));
    assert_eq!(number(&figures, "skipped_records"), 1.0);
    assert_eq!(number(&figures, "records"), 3000.0);
}

#[test]
fn a_run_goes_on_from_a_copy_made_anew() {
    let place = Place::new();
    place.write("x.csv", wide(3000));
    let line = "train svm x.csv --memory 1MiB --seed 6 --checkpoint-every 0";
    place.ok(&format!("{line} --epochs 8 --out whole"));
    place.ok(&format!("{line} --epochs 5 --out run"));
    // A resumed run with too few epochs left for a copy to pay copies too: its plan is that of packed rows.
    let said = place
        .ok(&format!("{line} --epochs 8 --resume --out run"))
        .stderr;
    assert!(said.contains(PACKED), "{said}");
    assert!(place.read(&format!("run/{MODEL}")) == place.read(&format!("whole/{MODEL}")));
    let data = number(
        &serde_json::from_slice(&place.read("run/summary.json")).unwrap(),
        "data_bytes",
    );
    assert_eq!(data, wide(3000).len() as f64);
}
