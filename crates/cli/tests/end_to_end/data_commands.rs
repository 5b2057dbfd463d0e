//! `index`, `inspect`, `pack`, `probe` and `bench`.

use crate::command::{Place, number};

#[test]
fn index_counts_records_and_says_what_a_place_costs() {
    let place = Place::new();
    place.libsvm("train", 5000);
    for pass in 0..2 {
        let figures = place.json("index train");
        for key in ["records", "bytes", "index_bytes"] {
            assert!(figures[key].is_u64(), "{key}: {figures}");
        }
        assert_eq!(figures["records"], 5000);
        let size = std::fs::metadata(place.path("train")).unwrap().len();
        assert_eq!(figures["bytes"], size);
        assert!(number(&figures, "bytes_per_record") < 2.5, "{figures}");
        assert!(number(&figures, "scan_bytes_per_s") > 0.0);
        let source = figures["source"].as_str().unwrap();
        assert_eq!(source, if pass == 0 { "built" } else { "sidecar" });
    }
    // Several files are one data set, in the order given.
    place.libsvm("more", 300);
    assert_eq!(place.json("index train more")["records"], 5300);
    let last = place.json("inspect train more --id 5299");
    assert!(last["file"].as_str().unwrap().ends_with("more"), "{last}");
}

#[test]
fn inspect_shows_one_record_of_every_format() {
    let place = Place::new();
    place.libsvm("train", 40);
    place.ok("pack train -o train.prow");
    let text = String::from_utf8(place.read("train")).unwrap();
    let line = text.lines().nth(17).unwrap();
    let (label, features) = line.split_once(' ').unwrap();
    for data in ["train", "train.prow"] {
        let view = place.json(&format!("inspect {data} --id 17"));
        assert_eq!(view["id"], 17);
        assert_eq!(view["label"].as_f64(), label.parse().ok());
        let entries = view["entries"].as_array().unwrap();
        // The text counts from 1, packed rows from 0, and the view like its file.
        let first = if data == "train" { 1 } else { 0 };
        let said = view["indices"].as_str().unwrap();
        assert!(said.contains(&format!("from {first}")), "{view}");
        for (entry, word) in entries.iter().zip(features.split(' ')) {
            let (index, value) = word.split_once(':').unwrap();
            let index: u64 = index.parse().unwrap();
            assert_eq!(entry[0].as_u64(), Some(index - 1 + first), "{view}");
            let value: f64 = value.parse().unwrap();
            assert!((entry[1].as_f64().unwrap() - value).abs() < 1e-6, "{view}");
        }
        assert_eq!(entries.len(), 9);
    }
    let plain = place.ok("inspect train --id 17").stdout;
    assert!(plain.contains(line), "{plain}");
    assert!(plain.contains("features from 1"), "{plain}");
    place.write("zero", "1 0:5 7:6\n-1 1:1\n");
    let view = place.json("inspect zero --zero-based");
    assert_eq!(view["entries"], serde_json::json!([[0, 5.0], [7, 6.0]]));
    // Columns keep their numbers, without the label's.
    place.write("table.csv", "a,b,c\n7,1,9\n8,2,10\n");
    for (label, columns) in [("first", [2, 3]), ("b", [1, 3]), ("last", [1, 2])] {
        let view = place.json(&format!("inspect table.csv --label {label}"));
        let found = [&view["entries"][0][0], &view["entries"][1][0]];
        assert_eq!(
            found.map(|index| index.as_u64().unwrap()),
            columns,
            "{view}"
        );
    }
}

#[test]
fn packed_data_is_not_told_to_be_packed() {
    let place = Place::new();
    place.libsvm("train", 2000);
    place.ok("pack train -o train.prow");
    for command in ["bench", "train linear --overwrite --epochs 1 --out run"] {
        for _ in 0..5 {
            let figures = place.json(&format!("{command} train.prow"));
            let verdict = figures["verdict"].as_str().unwrap();
            assert!(!verdict.contains("pack"), "{verdict}");
        }
    }
}

#[test]
fn pack_replaces_nothing_but_files() {
    let place = Place::new();
    place.libsvm("train", 50);
    let made = place.shell("mkdir folder && mkfifo pipe && ln -s pipe link");
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    for (name, what) in [
        ("folder", "is a folder"),
        ("pipe", "not a regular file"),
        ("link", "not a regular file"),
    ] {
        for flag in ["", "--overwrite"] {
            let parts = [name, what, "name"];
            place.refuses(&format!("pack train -o {name} {flag}"), 2, &parts);
        }
    }
    let kept = place.shell("test -d folder && test -p pipe && test -L link");
    assert_eq!(kept.code, Some(0));
}

#[test]
fn pack_refuses_to_replace_a_file_unless_told() {
    let place = Place::new();
    place.libsvm("train", 40);
    let figures = place.json("pack train -o train.prow");
    assert_eq!(figures["records"], 40);
    let size = std::fs::metadata(place.path("train.prow")).unwrap().len();
    assert_eq!(figures["bytes"], size);
    place.refuses(
        "pack train -o train.prow",
        2,
        &["train.prow", "--overwrite"],
    );
    place.ok("pack train -o train.prow --overwrite");
    place.refuses("pack train -o absent/train.prow", 2, &["absent/train.prow"]);
    let source = place.read("train");
    place.refuses("pack train -o train --overwrite", 2, &["train"]);
    assert_eq!(
        place.read("train"),
        source,
        "the source is not packed onto itself"
    );
}

#[test]
fn probe_measures_small_files_quickly() {
    let place = Place::new();
    let figures = place.json("probe . --size 4MiB --seconds 0.01");
    assert!(figures["points"].as_array().unwrap().len() > 4, "{figures}");
    let left = std::fs::read_dir(place.path(".")).unwrap().count();
    assert_eq!(left, 0, "the file measured is removed");
    let plain = place.ok("probe . --size 4MiB --seconds 0.01").stdout;
    assert!(plain.contains("LIRS Table 2"), "{plain}");
}

#[test]
fn bench_reports_every_figure_for_every_order_and_path() {
    let place = Place::new();
    place.libsvm("train", 20000);
    for order in [
        "full",
        "page:8192",
        "queue:1000",
        "block:20",
        "opportunistic:8:65536",
        "sequential",
    ] {
        for access in ["auto", "direct", "window", "scatter"] {
            let line = format!(
                "bench train --order {order} --access {access} --batch 256 --epochs 2 --memory 4MiB"
            );
            if access == "scatter" && !["full", "block:20"].contains(&order) {
                // Orders that read runs of neighbours do not need scatter.
                place.refuses(&line, 2, &["scatter", "use window"]);
                continue;
            }
            let figures = place.json(&line);
            for key in [
                "examples_per_s",
                "bytes_per_s",
                "read_bytes",
                "used_bytes",
                "read_amplification",
                "first_batch_s",
                "peak_rss_bytes",
                "cpu_s",
                "rl",
                "rl_exact",
            ] {
                assert!(number(&figures, key) >= 0.0, "{line}: {key}");
            }
            assert!(!figures["verdict"].as_str().unwrap().is_empty());
            assert_eq!(figures["examples"], 40000, "{line}");
            let size = std::fs::metadata(place.path("train")).unwrap().len();
            assert_eq!(figures["used_bytes"], 2 * size, "{line}");
            // The window path serves keyed orders by sweeps that reach into the next epoch with the same reads.
            let least = if order == "full" { 0.5 } else { 0.99 };
            assert!(
                number(&figures, "read_amplification") >= least,
                "{line}: {figures}"
            );
            if order == "sequential" {
                assert!(
                    number(&figures, "read_amplification") < 1.2,
                    "{line}: {figures}"
                );
                assert_eq!(number(&figures, "rl"), 0.0, "{line}");
            }
        }
    }
    place.ok("bench train --epochs 1 --cold");
}

#[test]
fn every_class_is_listed_or_counted() {
    let place = Place::new();
    let rows = |classes: usize| {
        (0..classes)
            .map(|i| format!("{i} 1:1\n"))
            .collect::<String>()
    };
    for (classes, listed) in [(1000, 1000), (70_000, 65_536)] {
        place.write("rows", rows(classes));
        let figures = place.json("index rows");
        assert_eq!(figures["classes"], classes);
        assert_eq!(figures["labels"].as_array().unwrap().len(), listed);
        assert_eq!(figures["labels_left_out"], classes - listed);
    }
    let text = place.ok("index rows").stdout;
    assert!(text.contains(" and 69900 more\n"), "{text}");
    place.write("rows", rows(101));
    let text = place.ok("index rows").stdout;
    assert!(text.contains(" and 1 more (--json lists them)"), "{text}");
}
