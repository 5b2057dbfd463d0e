//! `train linear --ranks`: figures, refusals, interruptions.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Ended, Place, number};

#[test]
fn ranks_certify_what_one_rank_finds() {
    let place = Place::new();
    place.higgs(20000);
    let line =
        "train linear higgs.prow --target 1e-3 --epochs 60 --memory 300kB --cache-fraction 0";
    let alone = place.json(&format!("{line} --out alone"));
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
    for flags in ["--skip", "--cache-fraction 0.5"] {
        let line = format!("train linear higgs.prow --ranks 2 --out run {flags}");
        place.refuses(&line, 2, &["--ranks 1"]);
    }
    place.refuses(
        "train linear higgs.prow --ranks 0 --out run",
        2,
        &["--ranks 0"],
    );
    place.refuses(
        "train linear none.prow --ranks 3 --out run",
        2,
        &["none.prow"],
    );
    assert!(!place.path("run").exists());
    place.ok("train linear higgs.prow --ranks 2 --out run");
    place.refuses(
        "train linear higgs.prow --ranks 2 --out run",
        2,
        &["--resume"],
    );
}

#[test]
fn ctrl_c_saves_and_other_ranks_go_on() {
    let place = Place::new();
    place.higgs(60000);
    let line =
        "train linear higgs.prow --epochs 4 --checkpoint-every 0 --memory 600kB --cache-fraction 0";
    let mut child = place.start(&format!("{line} --ranks 3 --out run"));
    let began = Instant::now();
    while !place.path("run/checkpoint/state.safetensors").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "a checkpoint");
        assert!(child.try_wait().unwrap().is_none(), "still running");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    Ended::of(child).refused(line, 130, &["run", "--resume", "interrupted"]);
    let line = "train linear --resume --out run --ranks 2 --memory 4MB";
    let figures = place.json(line);
    assert_eq!(figures["epochs"], 4);
    assert_eq!(figures["ranks"], 2);
}
