//! Runs that are interrupted or killed and resume to the model of an uninterrupted one.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Ended, Place, wait_for_handler};
use crate::data::{random_bits, wide};

const MODEL: &str = "model.safetensors";
/// Out of core, in many blocks, each with its checkpoint.
const LINE: &str = "train svm higgs.prow --epochs 4 --seed 3 --checkpoint-every 0";
const VARIANTS: [&str; 5] = [
    "--memory 1/8 --access window",
    "--memory 1/8 --access direct",
    "--memory 4MiB --access scatter --blocks 60",
    "--memory 1/8 --access window --skip",
    "--memory 2MiB --access scatter --skip",
];

/// The file of the state in the checkpoint of `run`.
fn state_of_run(place: &Place) -> String {
    let manifest: serde_json::Value =
        serde_json::from_slice(&place.read("run/checkpoint/manifest.json")).unwrap();
    let mut names = manifest["files"].as_object().unwrap().keys();
    let name = names.find(|name| name.starts_with("checkpoint/state-"));
    format!("run/{}", name.unwrap())
}

fn signal(child: &Child, signal: Signal) {
    // A child that has already ended still has its process id until waited for.
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The model of the uninterrupted run and the seconds it took.
fn uninterrupted(place: &Place, line: &str) -> (Vec<u8>, f64) {
    let began = Instant::now();
    place.ok(&format!("{line} --out whole"));
    (
        place.read(&format!("whole/{MODEL}")),
        began.elapsed().as_secs_f64(),
    )
}

/// The lines of `metrics.jsonl` without their clock readings.
fn metrics(place: &Place, run: &str) -> Vec<serde_json::Value> {
    let text = String::from_utf8(place.read(&format!("{run}/metrics.jsonl"))).unwrap();
    let lines = text.lines().map(|line| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        let object = value.as_object_mut().unwrap();
        // Data read ahead and discarded differs as well.
        for key in [
            "wall_s",
            "wait_s",
            "compute_s",
            "read_bytes",
            "used_bytes",
            "passes",
        ] {
            object.remove(key);
        }
        value
    });
    lines.collect()
}

fn check_same(place: &Place, line: &str, model: &[u8]) {
    assert!(place.read(&format!("run/{MODEL}")) == model, "{line}");
    assert_eq!(metrics(place, "run"), metrics(place, "whole"), "{line}");
}

#[test]
fn ctrl_c_saves_the_state_and_resume_reaches_the_same_model() {
    for variant in VARIANTS {
        let place = Place::new();
        place.higgs(60000);
        let line = format!("{LINE} {variant}");
        let (model, _) = uninterrupted(&place, &line);
        let mut child = place.start(&format!("{line} --out run"));
        let began = Instant::now();
        while !place.path("run/checkpoint/manifest.json").exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "a checkpoint");
            assert!(
                child.try_wait().unwrap().is_none(),
                "{variant}: still running"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        signal(&child, Signal::INT);
        Ended::of(child).refused(&line, 130, &["run", "--resume", "interrupted"]);
        assert!(!place.path("run").join(MODEL).exists());
        place.refuses("eval run higgs.prow", 2, &["run", "--resume"]);
        // The folder alone contains all settings of the run.
        place.ok("train svm --resume --out run");
        check_same(&place, &line, &model);
    }
}

#[test]
fn interrupted_after_every_block_the_run_reaches_the_same_model() {
    for variant in [
        "higgs.prow --memory 1MiB --blocks 7 --access window",
        "higgs.prow --memory 1MiB --order block:7:permute --access direct",
        "higgs.prow --memory 4MiB --blocks 7 --access scatter",
        "higgs.prow --memory 1MiB --blocks 7 --skip",
        "higgs.prow --memory 4MiB --blocks 7 --access scatter --skip",
        // Real targets.
        "higgs.prow --loss epsilon-insensitive --memory 1MiB --blocks 7 --access window",
        "higgs.prow --loss huber --memory 1MiB --blocks 7 --skip",
        // Quantised rows.
        "wide.csv --memory 2MiB --blocks 7 --cache-fraction 0.4",
        "wide.csv --loss squared --memory 2MiB --blocks 7 --cache-fraction 0.4",
        // The run decides which rows it keeps and skips.
        "wide.csv --memory 1/5",
    ] {
        let place = Place::new();
        place.higgs(3000);
        place.write("wide.csv", wide(3000));
        let line = format!("train svm {variant} --epochs 3 --seed 5 --inner-passes 2");
        let (model, _) = uninterrupted(&place, &line);
        let (mut ends, mut tries) = (0, 0);
        let mut saved = None;
        loop {
            let mut child = place.start(&format!("{line} --resume --out run"));
            wait_for_handler(&mut child);
            let running = child.try_wait().unwrap().is_none();
            // A session that saved nothing only had to certify.
            let now = std::fs::read(place.path("run/checkpoint/manifest.json")).ok();
            let to_train = now.is_none() || now != saved;
            saved = now;
            if running && to_train {
                // Sent before the first block is trained, it ends the run after that block.
                signal(&child, Signal::INT);
            }
            let ended = Ended::of(child);
            if ended.code == Some(0) {
                // On a busy machine the first run may end before the signal.
                tries += 1;
                if ends >= 3 || tries == 5 {
                    break;
                }
                std::fs::remove_dir_all(place.path("run")).unwrap();
                (ends, saved) = (0, None);
                continue;
            }
            ended.refused(&line, 130, &["--resume"]);
            ends += 1;
            assert!(ends < 100, "{variant}: it goes on\n{}", ended.stderr);
        }
        assert!(ends >= 3, "{variant}: {ends}");
        check_same(&place, &line, &model);
    }
}

/// One block would take minutes without the interruption.
#[test]
fn a_signal_in_the_middle_of_a_block_ends_the_run_and_resume_repeats_the_block() {
    for (variant, sent) in [
        (
            "higgs.prow --loss logistic --inner-passes 600",
            Signal::TERM,
        ),
        (
            "higgs.prow --loss logistic --inner-passes 500 --memory 3MiB --blocks 3 --skip",
            Signal::INT,
        ),
        (
            "wide.csv --loss logistic --inner-passes 3000 --memory 3MiB --blocks 2 --cache-fraction 0.2",
            Signal::INT,
        ),
    ] {
        let place = Place::new();
        place.higgs(20_000);
        place.write("wide.csv", wide(2000));
        let line = format!("train svm {variant} --epochs 2 --seed 4");
        let (model, seconds) = uninterrupted(&place, &line);
        assert!(seconds > 1.0, "{line}: {seconds} s are too short");
        let checkpoint = "run/checkpoint/manifest.json";
        let mut goes_on = line.clone();
        // In the first epoch, and after the first session.
        for _ in 0..2 {
            let mut child = place.start(&format!("{goes_on} --out run"));
            wait_for_handler(&mut child);
            std::thread::sleep(Duration::from_secs_f64(0.2 * seconds));
            assert!(child.try_wait().unwrap().is_none(), "{line}: too short");
            let before = place.path(checkpoint).exists();
            assert_eq!(
                before,
                goes_on != line,
                "{line}: no checkpoint between blocks"
            );
            signal(&child, sent);
            let began = Instant::now();
            Ended::of(child).refused(&line, 130, &["run", "--resume", "interrupted"]);
            let took = began.elapsed().as_secs_f64();
            assert!(took < 2.0, "{line}: {took} s to end");
            assert!(place.path(checkpoint).exists(), "{line}");
            goes_on = format!("{line} --resume");
        }
        place.ok(&format!("{goes_on} --out run"));
        check_same(&place, &line, &model);
    }
}

#[test]
fn killed_at_random_moments_the_run_reaches_the_same_model() {
    const KILLS: u64 = 8;
    for (number, variant) in VARIANTS.iter().enumerate() {
        let place = Place::new();
        place.higgs(60000);
        let line = format!("{LINE} {variant}");
        let (model, seconds) = uninterrupted(&place, &line);
        let mut state = 100 + number as u64;
        let mut killed = 0;
        for _ in 0..KILLS {
            let share = random_bits(&mut state) as f64 / u64::MAX as f64;
            let mut child = place.start(&format!("{line} --resume --out run"));
            std::thread::sleep(Duration::from_secs_f64(0.4 * seconds * share));
            if child.try_wait().unwrap().is_some() {
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            killed += 1;
        }
        assert!(killed >= 2, "{variant}: {killed} kills");
        place.ok(&format!("{line} --resume --out run"));
        check_same(&place, &line, &model);
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused_and_kept() {
    let place = Place::new();
    place.higgs(8000);
    let line = "train svm higgs.prow --out run";
    place.ok(&format!("{line} --memory 500KiB --blocks 20 --epochs 3"));
    let model = place.read(&format!("run/{MODEL}"));
    std::fs::remove_file(place.path("run").join(MODEL)).unwrap();
    let state = state_of_run(&place);
    let checkpoint = place.read(&state);
    for flags in [
        "--seed 9",
        "--order block:20",
        "--blocks 40",
        "--cost 2",
        "--loss squared-hinge",
        "--bias 1",
        "--inner-passes 3",
        "--class-weight 1=2",
        "--skip",
    ] {
        let parts = ["run", "--overwrite"];
        place.refuses(&format!("{line} --resume {flags}"), 2, &parts);
    }
    place.libsvm("other", 8000);
    place.refuses(
        "train svm other --resume --out run",
        2,
        &["run", "other data"],
    );
    // The same records read with other settings are other data.
    place.refuses(
        "train svm --resume --out run --positive -1",
        2,
        &["run", "other data"],
    );
    assert!(place.read(&state) == checkpoint);
    // The refused settings are not in the configuration of the run.
    place.ok("train svm --resume --out run --threads 1 --access direct");
    assert!(place.read(&format!("run/{MODEL}")) == model);
    for at in [20, 2000, checkpoint.len() / 2, checkpoint.len() - 3] {
        let mut bad = checkpoint.clone();
        bad[at] ^= 4;
        place.write(&state, &bad);
        let parts = [&*state, "--overwrite"];
        place.refuses(&format!("{line} --resume"), 2, &parts);
        place.write(&state, &checkpoint[..at]);
        place.refuses(&format!("{line} --resume"), 2, &parts);
    }
}

#[test]
fn a_checkpoint_of_data_read_another_way_is_refused() {
    let place = Place::new();
    let mut table = String::from("a,b,c\n");
    for row in 0..200 {
        let (a, b) = (row % 2, (row / 2) % 2);
        table += &format!("{a},{b},{}\n", (a + b) % 2);
    }
    place.write("table.csv", table);
    let line = "train svm table.csv --out run --label";
    place.ok(&format!("{line} c --epochs 1"));
    for label in ["a", "1", "first", "2"] {
        place.refuses(
            &format!("{line} {label} --resume --epochs 2"),
            2,
            &["run", "other data", "--overwrite"],
        );
    }
    // Other names of the same column.
    for (label, epochs) in [("last", 2), ("3", 3)] {
        place.ok(&format!("{line} {label} --resume --epochs {epochs}"));
    }
    place.libsvm("text", 200);
    place.ok("train svm text --epochs 1 --out text-run");
    for flag in ["--zero-based", "--positive 1"] {
        let line = format!("train svm --resume --epochs 2 --out text-run {flag}");
        place.refuses(&line, 2, &["text-run", "other data"]);
    }
    place.ok("pack text -o text.prow");
    place.refuses(
        "train svm text.prow --resume --epochs 2 --out text-run",
        2,
        &["text-run", "other data"],
    );
}

#[test]
fn any_damage_to_a_checkpoint_or_model_is_found() {
    let place = Place::new();
    place.libsvm("train", 60);
    place.ok("train svm train --epochs 2 --out run");
    let mut state = 3;
    for (name, line) in [
        (
            &*state_of_run(&place),
            "train svm --resume --epochs 3 --out run",
        ),
        ("run/model.safetensors", "eval run train"),
    ] {
        let good = place.read(name);
        for _ in 0..60 {
            let at = random_bits(&mut state) as usize % good.len();
            let mut bad = good.clone();
            bad[at] ^= 1 << (random_bits(&mut state) % 8);
            place.write(name, &bad);
            place.refuses(line, 2, &[name]);
        }
        for length in (0..good.len()).step_by(good.len() / 13 + 1) {
            place.write(name, &good[..length]);
            place.refuses(line, 2, &[name]);
        }
        place.write(name, &good);
    }
    place.write("run/run.toml", "loss = \"hin");
    for line in [
        "eval run train",
        "predict run train",
        "train svm --resume --out run",
    ] {
        place.refuses(line, 2, &["run/run.toml", "line 1"]);
    }
}

/// A demo's default of an eighth of the data once replaced the memory given to its run.
#[test]
fn a_resumed_run_of_a_demo_keeps_its_memory() {
    let place = Place::new();
    let line = "train svm demo:higgs:20000 --solver coordinate-descent";
    let memory = "--memory 1MiB --blocks 20";
    let whole = place.json(&format!("{line} {memory} --epochs 4 --out whole"));
    place.ok(&format!("{line} {memory} --epochs 2 --out run"));
    let run = place.json("train svm --resume --epochs 4 --out run");
    assert_eq!(run["memory_bytes"], whole["memory_bytes"]);
    check_same(&place, line, &place.read(&format!("whole/{MODEL}")));
    place.ok(&format!("{line} --resume --epochs 5 --out run"));
}

/// Opening a folder removes the leftovers of a process killed while writing, and no other files.
#[test]
fn half_written_files_of_killed_runs_are_removed() {
    let place = Place::new();
    place.libsvm("train", 60);
    let line = "train svm train --out run";
    place.ok(&format!("{line} --epochs 1"));
    let ours = ["run/.pelton-a1B2c3", "run/checkpoint/.pelton-ZZZZZZ"];
    let others = ["run/.pelton-notes", "run/checkpoint/.pelton-a1B2c3d"];
    for name in ours.iter().chain(&others) {
        place.write(name, "half");
    }
    for flags in ["--resume --epochs 2", "--overwrite"] {
        place.write(ours[0], "half");
        place.ok(&format!("{line} {flags}"));
        assert!(
            !ours.iter().any(|name| place.path(name).exists()),
            "{flags}"
        );
        assert!(place.path(others[0]).exists(), "{flags}");
        assert!(place.path(others[1]).exists(), "{flags}");
    }
}

#[test]
fn more_epochs_go_on_from_a_finished_run() {
    let place = Place::new();
    place.higgs(8000);
    let line = "train svm higgs.prow --memory 500KiB --blocks 20";
    place.ok(&format!("{line} --epochs 5 --out whole"));
    place.ok(&format!("{line} --epochs 2 --out run"));
    place.ok(&format!("{line} --epochs 5 --resume --out run"));
    check_same(&place, line, &place.read(&format!("whole/{MODEL}")));
}

/// Interrupts `line` once it has begun; it must end soon, say so and leave no file but `left`.
fn check_interrupted(place: &Place, line: &str, left: &[&str]) {
    let mut child = place.start(line);
    wait_for_handler(&mut child);
    std::thread::sleep(Duration::from_millis(150));
    assert!(
        child.try_wait().unwrap().is_none(),
        "{line}: too short a job"
    );
    signal(&child, Signal::INT);
    let began = Instant::now();
    Ended::of(child).refused(line, 130, &["interrupted"]);
    let took = began.elapsed().as_secs_f64();
    // A moment, on a busy machine.
    assert!(took < 5.0, "{line}: {took} s to end");
    let entries = std::fs::read_dir(place.path(".")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !left.contains(&name.as_str()))
        .collect();
    names.sort();
    assert_eq!(names, [""; 0], "{line}");
}

#[test]
fn ctrl_c_ends_every_command() {
    let place = Place::new();
    place.higgs(2_000_000);
    place.ok("train svm higgs.prow --epochs 1 --inner-passes 1 --out run");
    // A modelled disk makes every job long enough to be interrupted.
    let slow = "--device-model hdd --io direct";
    let mut left = vec!["higgs.prow", "run", "cache"];
    for line in [
        &format!("eval run higgs.prow {slow}"),
        &format!("predict run higgs.prow {slow}"),
        &format!("pack higgs.prow -o packed.prow {slow}"),
        "bench higgs.prow --epochs 100000",
        "probe . --size 64MiB --seconds 60",
        &format!("bench higgs.prow --memory 4MiB --access direct {slow}"),
        &format!("bench higgs.prow --memory 4MiB --access window {slow}"),
        &format!("train svm higgs.prow --epochs 1 --out other {slow}"),
        "train svm higgs.prow --optimum auto --memory 1/8 --cost 1000 --out solved",
    ] {
        left.extend(["other", "solved"]);
        check_interrupted(&place, line, &left);
    }
    let cached = std::fs::read_dir(place.path("cache")).unwrap();
    let cached: Vec<_> = cached.map(|entry| entry.unwrap().file_name()).collect();
    check_interrupted(&place, "index demo:higgs:50000000", &left);
    for entry in std::fs::read_dir(place.path("cache")).unwrap() {
        let name = entry.unwrap().file_name();
        let whole = !name.to_string_lossy().starts_with('.');
        assert!(whole, "{name:?} is half a file");
        assert!(cached.contains(&name), "{name:?}");
    }
}

/// Interrupts `line` when its last epoch has been saved: while the model is certified, or the test
/// data read.
fn interrupt_after_training(place: &Place, line: &str) {
    let mut child = place.start(line);
    let began = Instant::now();
    while !place.path("run/checkpoint/manifest.json").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "a checkpoint");
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        child.try_wait().unwrap().is_none(),
        "{line}: still certifying"
    );
    signal(&child, Signal::INT);
    let began = Instant::now();
    Ended::of(child).refused(line, 130, &["run", "--resume", "interrupted"]);
    let took = began.elapsed().as_secs_f64();
    assert!(took < 5.0, "{line}: {took} s to end");
    assert!(!place.path("run").join(MODEL).exists());
}

#[test]
fn ctrl_c_ends_the_pass_that_certifies_and_resume_repeats_it() {
    let place = Place::new();
    place.higgs(2_000_000);
    // Checkpoints only at ends of epochs: the first one shows that training is over.
    let line = "train svm higgs.prow --epochs 1 --inner-passes 1 --checkpoint-every 1e9 --memory 16MiB --order sequential";
    let whole = place.json(&format!("{line} --out whole --overwrite"));
    let _ = std::fs::remove_dir_all(place.path("run"));
    interrupt_after_training(
        &place,
        &format!("{line} --device-model hdd --io direct --out run"),
    );
    let run = place.json("train svm --resume --out run --device-model none --io auto");
    for key in [
        "primal",
        "dual",
        "relative_gap",
        "train_accuracy",
        "epochs",
        "passes",
    ] {
        assert_eq!(run[key], whole[key], "{key}");
    }
    check_same(&place, line, &place.read(&format!("whole/{MODEL}")));
}

#[test]
fn ctrl_c_ends_scans_and_decompression() {
    use std::io::Write;
    let place = Place::new();
    // A gigabyte with enough lines that scanning it takes a while.
    let block = "1 1:1\n-1 2:1\n".repeat(80_000);
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut file = std::fs::File::create(place.path("long")).unwrap();
    for _ in 0..1000 {
        file.write_all(block.as_bytes()).unwrap();
    }
    for _ in 0..3000 {
        packer.write_all(block.as_bytes()).unwrap();
    }
    place.write("long.gz", packer.finish().unwrap());
    let left = ["long", "long.gz", "cache"];
    check_interrupted(&place, "index long.gz", &left);
    let cached = std::fs::read_dir(place.path("cache")).unwrap().count();
    assert_eq!(cached, 0, "no half-decompressed text");
    for line in ["index long", "train svm long --out run", "inspect long"] {
        check_interrupted(&place, line, &left);
    }
}

#[test]
fn ctrl_c_ends_counting_words() {
    let place = Place::new();
    place.write("text", "one two three four\n".repeat(12_000_000));
    place.ok("index text --format text");
    let left = ["text", "text.pelton-index", "cache"];
    let slow = "--device-model hdd --io direct";
    for line in [
        &format!("vocabulary text --format text --out v {slow}"),
        &format!("bench text --format text --decode words {slow}"),
    ] {
        check_interrupted(&place, line, &left);
        let cached = std::fs::read_dir(place.path("cache"));
        assert_eq!(
            cached.map_or(0, Iterator::count),
            0,
            "nothing half-counted is kept"
        );
    }
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let place = Place::new();
    place.higgs(60000);
    let mut child = place.start(&format!(
        "{} --memory 1/8 --out run --solver coordinate-descent",
        LINE.replace("--epochs 4", "--epochs 100000")
    ));
    let began = Instant::now();
    while !place.path("run/checkpoint/manifest.json").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "a checkpoint");
        std::thread::sleep(Duration::from_millis(2));
    }
    for flag in ["--resume", "--overwrite"] {
        place.refuses(
            &format!("{LINE} --memory 1/8 --out run {flag}"),
            2,
            &["run", "another process"],
        );
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
