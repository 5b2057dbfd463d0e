//! `train linear --ranks`: figures, refusals, interruptions.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Ended, Place, number};
use crate::data::rare_features;

#[test]
fn ranks_certify_what_one_rank_finds() {
    let place = Place::new();
    place.higgs(20000);
    let line = "train svm higgs.prow --target 1e-3 --epochs 60 --memory 300kB";
    // One rank alone, with less memory, may miss the target.
    let alone = place.run(&format!("{line} --out alone --json"));
    assert!(matches!(alone.code, Some(0 | 3)), "{}", alone.stderr);
    let alone = alone.json();
    assert_eq!(alone["ranks"], 1);
    assert_eq!(alone["communication_bytes"], 0);
    for ranks in [2, 4] {
        let figures = place.json(&format!("{line} --ranks {ranks} --out ranks-{ranks}"));
        assert_eq!(figures["ranks"], ranks);
        assert!(number(&figures, "relative_gap") <= 1e-3, "{figures}");
        assert!(number(&figures, "communication_bytes") > 0.0);
        assert!(number(&figures, "communication_s") > 0.0);
        let ratio = number(&figures, "primal") / number(&alone, "primal");
        assert!((ratio - 1.0).abs() < 2e-3, "{figures}");
        for file in ["model.safetensors", "summary.json", "report.html"] {
            assert!(
                place.path(&format!("ranks-{ranks}/{file}")).exists(),
                "{file}"
            );
        }
        place.ok(&format!("eval ranks-{ranks} higgs.prow"));
    }
}

#[test]
fn what_ranks_cannot_do_is_refused() {
    let place = Place::new();
    place.higgs(1000);
    place.refuses(
        "train svm higgs.prow --ranks 0 --out run",
        2,
        &["--ranks 0"],
    );
    place.refuses("train svm none.prow --ranks 3 --out run", 2, &["none.prow"]);
    for (flags, parts) in [
        (
            "--solver coordinate-descent",
            ["coordinate-descent runs on one rank", "leave --solver out"],
        ),
        ("--order page", ["2 ranks need Newton's method", "one rank"]),
        ("--skip", ["--skip", "leave these out or use one rank"]),
    ] {
        let line = format!("train svm higgs.prow --ranks 2 {flags} --out run");
        place.refuses(&line, 2, &parts);
    }
    place.write("wide", rare_features(100));
    place.refuses(
        "train svm wide --ranks 2 --out run",
        2,
        &["at most 1024 features", "use one rank"],
    );
    assert!(!place.path("run").exists());
    place.ok("train svm higgs.prow --ranks 2 --out run");
    place.refuses("train svm higgs.prow --ranks 2 --out run", 2, &["--resume"]);
}

#[test]
fn ctrl_c_saves_and_other_ranks_go_on() {
    let place = Place::new();
    place.higgs(60000);
    let line = "train svm higgs.prow --target 1e-15 --checkpoint-every 0 --memory 600kB";
    let mut child = place.start(&format!("{line} --ranks 3 --out run"));
    let began = Instant::now();
    while !place.path("run/checkpoint/manifest.json").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "a checkpoint");
        assert!(child.try_wait().unwrap().is_none(), "still running");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    Ended::of(child).refused(line, 130, &["run", "--resume", "interrupted"]);
    let line = "train svm --resume --out run --ranks 2 --memory 4MB --target 1e-4";
    let figures = place.json(line);
    assert!(number(&figures, "relative_gap") <= 1e-4, "{figures}");
    assert_eq!(figures["ranks"], 2);
}

#[test]
fn rare_features_of_data_beyond_memory_get_other_numbers() {
    let place = Place::new();
    place.write("wide", rare_features(60_000));
    place.write("test", rare_features(500));
    let line = "train svm wide --test test --target 1e-3 --epochs 80";
    let whole = place.json(&format!("{line} --memory 1GiB --out whole"));
    assert_eq!(whole["access"], "memory");
    let counted = format!("{line} --memory 4MB --threads 1 --out counted");
    let said = place.ok(&counted).stderr;
    assert!(said.contains("features occur"), "{said}");
    let figures = place.json(&format!("{counted} --overwrite"));
    assert_ne!(figures["access"], "memory");
    assert_eq!(figures["features"], whole["features"]);
    let ratio = number(&figures, "primal") / number(&whole, "primal");
    assert!((ratio - 1.0).abs() < 2e-3, "{figures}");
    let accuracy = number(&figures, "test_accuracy");
    assert!((accuracy - number(&whole, "test_accuracy")).abs() < 0.02);
    // The model has the features' own indices.
    let evaluated = place.json("eval counted test");
    assert_eq!(number(&evaluated, "test_accuracy"), accuracy);
    // A run too short to count features resumes without counting; one that has counted resumes with it.
    for (epochs, counts) in [(2, false), (4, true)] {
        let line = "train svm wide --memory 4MB --threads 1 --out run --overwrite";
        let said = place.ok(&format!("{line} --epochs {epochs}")).stderr;
        assert_eq!(said.contains("features occur"), counts, "{said}");
        let said = place.ok("train svm --resume --out run --epochs 6").stderr;
        assert_eq!(said.contains("features occur"), counts, "{said}");
        let said = place.ok("train svm --resume --out run --epochs 8").stderr;
        assert_eq!(said.contains("features occur"), counts, "{said}");
    }
}

#[test]
fn rows_kept_as_codes_go_on() {
    let place = Place::new();
    let data = "demo:epsilon:3000 --cache-dir cache";
    let line = format!("train svm {data} --memory 1/8 --target 1e-3 --epochs 40");
    let whole = place.json(&format!("{line} --out whole"));
    assert!(number(&whole, "relative_gap") <= 1e-3, "{whole}");
    let mut child = place.start(&format!("{line} --checkpoint-every 0 --out run"));
    let began = Instant::now();
    while !place.path("run/checkpoint/manifest.json").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "a checkpoint");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    let figures = place.json("train svm --resume --out run");
    assert_eq!(figures["primal"], whole["primal"], "bit for bit");
}
