//! `PELTON_LOG`.

use crate::command::{Ended, Place};

fn run_with(place: &Place, log: &str, line: &str) -> Ended {
    let mut command = place.command(line);
    Ended::from(command.env("PELTON_LOG", log).output().unwrap())
}

#[test]
fn decisions_are_logged_on_standard_error_when_asked_for() {
    let place = Place::new();
    place.libsvm("train", 3000);
    let line = "train svm train --memory 400KiB --epochs 2 --json --overwrite --out run";
    let ended = run_with(&place, "debug", line).succeeded(line);
    ended.json();
    for part in [
        "pelton_format",
        "index written",
        "access path",
        "memory divided",
        "checkpoint written",
    ] {
        assert!(ended.stderr.contains(part), "{part} in\n{}", ended.stderr);
    }
    let ended = run_with(&place, "pelton_format=debug", line).succeeded(line);
    assert!(ended.stderr.contains("index read"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("checkpoint"), "{}", ended.stderr);
    // A sidecar of another file is rebuilt, and the log says so.
    place.libsvm("train", 3001);
    let ended = run_with(&place, "debug", "index train").succeeded(line);
    assert!(ended.stderr.contains("made again"), "{}", ended.stderr);
    for log in ["", "off"] {
        let ended = run_with(&place, log, line).succeeded(line);
        assert!(!ended.stderr.contains("pelton_"), "{}", ended.stderr);
    }
}

#[test]
fn a_level_that_is_none_is_refused() {
    let place = Place::new();
    place.libsvm("train", 50);
    for log in ["loud", "feed=debug"] {
        let ended = run_with(&place, log, "index train");
        ended.refused("index train", 2, &["PELTON_LOG", log, "debug"]);
    }
}
