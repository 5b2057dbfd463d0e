//! Files that change while they are read.

use std::time::{Duration, Instant};

use crate::command::{Ended, Place};

/// Starts training slowly (a modelled disk), waits for the first epoch to begin and changes the file.
fn check(data: &str, access: &str, change: impl FnOnce(&std::fs::File, u64), parts: &[&str]) {
    let place = Place::new();
    place.higgs(20000);
    place.libsvm("text", 20000);
    let line = format!(
        "train linear {data} --memory 1MiB --blocks 40 --epochs 400 --inner-passes 1 \
         --device-model hdd --io direct --access {access} --out run"
    );
    let child = place.start(&line);
    let began = Instant::now();
    while !place.path("run/checkpoint/manifest.json").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "an epoch ends");
        std::thread::sleep(Duration::from_millis(10));
    }
    let path = place.path(data);
    let size = std::fs::metadata(&path).unwrap().len();
    change(
        &std::fs::File::options().write(true).open(&path).unwrap(),
        size,
    );
    let ended = Ended::of(child);
    let code = ended.code.unwrap();
    assert!(code == 1 || code == 2, "{line}: {code}\n{}", ended.stderr);
    let mut all = vec![data];
    all.extend(parts);
    ended.refused(&line, code, &all);
    assert!(!place.path("run/model.txt").exists());
}

/// Only the first pass of scatter reads the files: it was refused when the model was certified, after all the work.
#[test]
fn data_that_is_touched_ends_scatter_soon() {
    let touch = |file: &std::fs::File, _| {
        let later = std::time::SystemTime::now() + Duration::from_secs(5);
        file.set_modified(later).unwrap();
    };
    let began = Instant::now();
    check(
        "higgs.prow",
        "scatter",
        touch,
        &["changed while it was read"],
    );
    check("text", "scatter", touch, &["changed while it was read"]);
    assert!(began.elapsed() < Duration::from_secs(60), "400 epochs");
}

fn shrink(file: &std::fs::File, size: u64) {
    file.set_len(size / 2).unwrap();
}

fn grow(file: &std::fs::File, size: u64) {
    file.set_len(size + 1000).unwrap();
}

#[test]
fn a_file_that_shrinks_ends_the_run() {
    check("higgs.prow", "window", shrink, &["while it was read"]);
    check("text", "window", shrink, &["while it was read"]);
    check("higgs.prow", "direct", shrink, &["while it was read"]);
    check("text", "direct", shrink, &["while it was read"]);
}

#[test]
fn a_file_that_grows_ends_the_run() {
    check("higgs.prow", "window", grow, &["changed while it was read"]);
    check("text", "window", grow, &["changed while it was read"]);
    check("higgs.prow", "direct", grow, &["changed while it was read"]);
    check("text", "direct", grow, &["changed while it was read"]);
}
