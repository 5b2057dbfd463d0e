//! Files that change while they are read.

use std::time::{Duration, Instant};

use crate::command::{Ended, Place};

/// Starts training slowly (a modelled disk), waits for the first epoch to begin and changes the file.
fn check(data: &str, access: &str, change: impl FnOnce(&std::fs::File, u64), parts: &[&str]) {
    let place = Place::new();
    place.higgs(20000);
    place.libsvm("text", 20000);
    let line = format!(
        "train svm {data} --memory 1MiB --blocks 40 --epochs 400 --inner-passes 1 \
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

/// Only the first pass of scatter reads the files: changed data was once refused only when certifying the model, after
/// all the work.
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

/// Changes the first byte between two samples of the fingerprint for which `suits` accepts it and the byte before; size
/// and time of the file stay.
fn change_between_samples(path: &std::path::Path, suits: impl Fn(&[u8]) -> bool) {
    let bytes = std::fs::read(path).unwrap();
    let sample = |i: usize| (bytes.len() - 4096) * i / 63;
    let (from, to) = (sample(30) + 4096, sample(31));
    assert!(to > from + 1000, "there is room between the samples");
    let at = (from..to).find(|&at| suits(&bytes[at - 1..=at])).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[bytes[at] ^ 1], at as u64).unwrap();
    file.set_modified(time).unwrap();
}

/// 93 % of the labels could once change outside the sampled blocks without ending the run.
#[test]
fn runs_do_not_resume_with_records_that_changed() {
    let is_fraction = |pair: &[u8]| pair[0] == b'.' && pair[1].is_ascii_digit();
    let out_of_core = "--memory 1MiB --blocks 10 --inner-passes 1 --epochs";
    let cases = [
        ("linear text", out_of_core),
        ("linear text", "--memory 1MiB --solver newton --epochs"),
        ("linear text", "--solver coordinate-descent --epochs"),
        (
            "image pixels.bin --format cifar10",
            "--batch 40 --model mlp --epochs",
        ),
    ];
    for (job, flags) in cases {
        let place = Place::new();
        place.libsvm("text", 20000);
        let pixel = |i: usize| {
            if i.is_multiple_of(3073) {
                i / 3073 % 10
            } else {
                i * i % 251
            }
        };
        place.write(
            "pixels.bin",
            (0..600 * 3073).map(|i| pixel(i) as u8).collect::<Vec<_>>(),
        );
        let line = format!("train {job} --out run {flags}");
        place.ok(&format!("{line} 2"));
        let (name, text) = match job.contains("text") {
            true => ("text", true),
            false => ("pixels.bin", false),
        };
        let touched = std::fs::File::options()
            .write(true)
            .open(place.path(name))
            .unwrap();
        touched.set_modified(std::time::SystemTime::now()).unwrap();
        place.ok(&format!("{line} 3 --resume"));
        change_between_samples(&place.path(name), |pair| !text || is_fraction(pair));
        place.refuses(
            &format!("{line} 4 --resume"),
            1,
            &[
                name,
                "contains other records than those that were used before",
            ],
        );
    }
}

/// A copy with one changed digit, and unchanged size and time, was once used without a note.
#[test]
fn copies_in_the_cache_that_changed_are_made_again() {
    let place = Place::new();
    place.libsvm("text", 3000);
    place.write("pairs", "a b\tc\n".repeat(3000));
    let made = place.shell("gzip text && cut -f1 pairs > left && cut -f2 pairs > right");
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    for (line, suffix) in [
        ("bench text.gz --epochs 1", ".text"),
        (
            "bench left --pair right --decode pairs --epochs 1",
            ".pelton-pairs",
        ),
        ("bench demo:images:300 --epochs 1", ".bin"),
    ] {
        let checksum = || place.json(line)["checksum"].clone();
        let before = checksum();
        let cached = std::fs::read_dir(place.path("cache")).unwrap();
        let copies = cached.map(|entry| entry.unwrap().path());
        for copy in copies.filter(|path| path.to_string_lossy().ends_with(suffix)) {
            let file = std::fs::File::options().write(true).open(&copy).unwrap();
            let time = file.metadata().unwrap().modified().unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"9", 8).unwrap();
            file.set_modified(time).unwrap();
        }
        assert_eq!(checksum(), before, "{line}");
    }
}

#[test]
fn a_cache_folder_that_others_can_write_to_is_not_used() {
    let place = Place::new();
    place.libsvm("text", 300);
    let script = "gzip text; mkdir -m 777 open; export TMPDIR=$PWD PELTON_CACHE=$PWD/open
        $PELTON bench text.gz --epochs 1 --json && ls open | wc -l";
    let ended = place.shell(script);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("others can write to it"),
        "{}",
        ended.stderr
    );
    assert!(ended.stdout.ends_with("\n0\n"), "{}", ended.stdout);
}
