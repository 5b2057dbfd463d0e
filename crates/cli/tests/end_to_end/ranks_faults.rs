//! Faults while several ranks train or read: one clear sentence, and all of them end.

use std::time::{Duration, Instant};

use crate::command::{Ended, Place, number};
use crate::data::libsvm;

/// 6000 rows of text; those at `lines`, from 1 on, cannot be read.
fn damaged(place: &Place, name: &str, lines: &[usize]) {
    let text = libsvm(6000);
    let rows = text.lines().enumerate().map(|(at, row)| {
        let row = if lines.contains(&(at + 1)) {
            "1 x:y"
        } else {
            row
        };
        format!("{row}\n")
    });
    place.write(name, rows.collect::<String>());
}

/// Each of four ranks meets one or two bad records, fewer than any limit here.
#[test]
fn bad_records_are_counted_over_all_ranks() {
    let place = Place::new();
    damaged(&place, "bad", &[101, 2501, 4001, 5901]);
    place.libsvm("good", 1000);
    let over = &[
        "4 records could not be read or decoded, over the limit of 3",
        "bad: line 5901",
        "write index:value",
    ];
    for memory in ["64MiB", "1MB"] {
        let line =
            format!("train svm bad --epochs 2 --memory {memory} --overwrite --out run --ranks");
        place.refuses(
            &format!("{line} 4"),
            2,
            &["bad: line ", "write index:value"],
        );
        for ranks in [2, 4] {
            place.refuses(&format!("{line} {ranks} --on-bad-record skip:3"), 2, over);
            let figures = place.json(&format!("{line} {ranks} --on-bad-record skip:4"));
            assert_eq!(figures["skipped_records"], 4, "{figures}");
        }
    }
    let line =
        "train svm good --test bad --epochs 1 --overwrite --out run --ranks 4 --on-bad-record";
    place.refuses(&format!("{line} skip:3"), 2, over);
    place.ok(&format!("{line} skip:4"));
    for flags in ["", " --cache peers"] {
        let line = format!("bench bad --ranks 4{flags} --epochs 2 --on-bad-record");
        place.refuses(&format!("{line} skip:3"), 2, &[over[0], "bad: line "]);
        assert_eq!(place.json(&format!("{line} skip:4"))["skipped_records"], 4);
    }
}

/// Trains on three ranks until there is a checkpoint, changes the file and returns how the run ended.
fn changed(place: &Place, change: impl FnOnce(&std::path::Path)) -> Ended {
    place.higgs(60000);
    let line = "train svm higgs.prow --ranks 3 --epochs 1000 --target 1e-15 --checkpoint-every 0 \
                --memory 600kB --out run";
    let child = place.start(line);
    let began = Instant::now();
    while !place.path("run/checkpoint/manifest.json").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "a checkpoint");
        std::thread::sleep(Duration::from_millis(2));
    }
    change(&place.path("higgs.prow"));
    let changed = Instant::now();
    let ended = Ended::of(child);
    assert!(
        changed.elapsed() < Duration::from_secs(30),
        "all ranks end soon"
    );
    ended
}

#[test]
fn a_file_that_vanishes_or_shrinks_ends_all_ranks() {
    let place = Place::new();
    let ended = changed(&place, |path| std::fs::remove_file(path).unwrap());
    ended.refused(
        "a file that vanishes",
        2,
        &["higgs.prow", "no such file", "check the path"],
    );
    let place = Place::new();
    let ended = changed(&place, |path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(1_000_000).unwrap();
    });
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
    let parts = ["higgs.prow", "again"];
    let ended = Ended {
        code: Some(1),
        ..ended
    };
    ended.refused("a file that shrinks", 1, &parts);
}

#[test]
fn odd_numbers_of_ranks_and_records_are_served_or_refused() {
    let place = Place::new();
    place.write("five", "1 1:1\n-1 2:1\n1 1:2 3:1\n-1 2:.5 3:2\n1 1:.1\n");
    place.write("zero", "");
    place.libsvm("text", 1000);
    for line in ["train svm text --out run", "bench text"] {
        for ranks in ["0", "1025"] {
            let named = format!("--ranks {ranks} ");
            place.refuses(
                &format!("{line} --ranks {ranks}"),
                2,
                &[&named, "give 1 to"],
            );
        }
        for ranks in [1, 3] {
            let empty = line.replace("text", "zero");
            place.refuses(
                &format!("{empty} --ranks {ranks}"),
                2,
                &["zero: holds no records", "check"],
            );
            let among = line
                .replace("text", "text zero five")
                .replace("run", &format!("run{ranks}"));
            let among = place.ok(&format!("{among} --ranks {ranks}"));
            let note = "zero: holds no records and is left out";
            assert_eq!(among.stderr.matches(note).count(), 1, "{}", among.stderr);
        }
    }
    let line = "train svm five --target 1e-3 --optimum auto --epochs 300 --overwrite --out run";
    for flags in ["", " --memory 500kB"] {
        for ranks in [2, 9] {
            let figures = place.json(&format!("{line}{flags} --ranks {ranks}"));
            assert!(number(&figures, "relative_gap") <= 1e-3, "{figures}");
        }
    }
    for flags in ["", " --cache peers", " --cache peers --peer-memory 1/4"] {
        let figures = place.json(&format!("bench text five --ranks 9{flags}"));
        assert_eq!(figures["examples"], 1005, "{figures}");
    }
}

/// A demo set gets memory for an eighth of its size; for a tiny one, that once had no room for a row and the read
/// buffers.
#[test]
fn tiny_demo_sets_are_trained_with_the_memory_they_are_given() {
    let place = Place::new();
    for rows in [3, 50, 10_000] {
        for ranks in [1, 4] {
            let line = format!(
                "train svm demo:higgs:{rows} --target none --ranks {ranks} --overwrite --out run"
            );
            let figures = place.json(&line);
            assert!(number(&figures, "memory_bytes") < 1e6, "{figures}");
        }
    }
}

#[test]
fn the_optimum_is_the_same_on_any_number_of_ranks() {
    let place = Place::new();
    place.higgs(5000);
    place.libsvm("text", 3000);
    for (data, memory) in [("higgs.prow", "64MiB"), ("text", "64MiB"), ("text", "1MB")] {
        let mut alone = 0.0;
        for ranks in [1, 2, 4] {
            let line = format!(
                "train svm {data} --memory {memory} --target 1e-3 --optimum auto \
                 --ranks {ranks} --overwrite --out run"
            );
            let figures = place.json(&line);
            let optimum = number(&figures, "optimum");
            if ranks == 1 {
                alone = optimum;
            }
            // Computed to a relative gap of 1e-5.
            assert!((optimum / alone - 1.0).abs() <= 1e-5, "{figures}");
            let difference = number(&figures, "primal") / optimum - 1.0;
            assert!(
                (number(&figures, "relative_difference") - difference).abs() < 1e-9,
                "{figures}"
            );
            assert!((-1e-5..=1e-3).contains(&difference), "{figures}");
        }
    }
}

/// The same run sends about the same bytes (checkpoints, which are sent too, are written by the clock); more
/// ranks send more; one sends none.
#[test]
fn figures_of_communication_are_those_of_the_run() {
    let place = Place::new();
    place.higgs(5000);
    let sent = |ranks: u32| {
        let line = format!("train svm higgs.prow --epochs 3 --overwrite --out run --ranks {ranks}");
        let figures = place.json(&line);
        assert_eq!(figures["ranks"], ranks);
        let seconds = number(&figures, "communication_s");
        assert!(
            (0.0..=number(&figures, "wall_s")).contains(&seconds),
            "{figures}"
        );
        number(&figures, "communication_bytes")
    };
    let bytes = [1, 2, 2, 4].map(sent);
    assert_eq!(bytes[0], 0.0);
    assert!(
        bytes[1] > 0.0
            && (0.5..2.0).contains(&(bytes[2] / bytes[1]))
            && bytes[3] > bytes[1].max(bytes[2]),
        "{bytes:?}"
    );
    // Without checksums, the bytes read from memory equal the bytes used, and each was read from the file once.
    for flags in ["", " --anywhere"] {
        let line = format!(
            "bench higgs.prow --io buffered --epochs 3 --batch 100 --ranks 3 --cache peers{flags}"
        );
        let figures = place.json(&line);
        let [local, remote, used, backend] =
            ["local_bytes", "remote_bytes", "used_bytes", "backend_bytes"]
                .map(|key| number(&figures, key));
        assert_eq!(local + remote, used, "{figures}");
        assert_eq!(3.0 * backend, used, "{figures}");
        assert_eq!(
            (&figures["mode"], &figures["ranks"]),
            (&"ordered".into(), &3.into())
        );
    }
}
