//! `reproduce`: refusals, and that Ctrl-C ends it.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Ended, Place, wait_for_handler};

#[test]
fn what_is_no_table_is_refused_with_a_remedy() {
    let place = Place::new();
    for (flags, parts) in [
        ("nothing", ["nothing", "lirs-svm"]),
        ("lirs-svm --seeds 1001", ["--seeds 1001", "1 to 1000"]),
        (
            "lirs-svm --real-data absent",
            ["--real-data absent", "is not a folder"],
        ),
        ("lirs-svm --only nothing", ["--only nothing", "kdd"]),
    ] {
        place.refuses(
            &format!("reproduce {flags} --out tables --noisy"),
            2,
            &parts,
        );
    }
}

#[test]
fn ctrl_c_ends_a_table_soon_and_leaves_no_half_file() {
    let place = Place::new();
    for (name, scale) in [
        ("lirs-svm", 1.0),
        ("lirs-pages", 1.0),
        ("lirs-memory", 100.0),
    ] {
        let line = format!("reproduce {name} --scale {scale} --out tables --noisy");
        let mut child = place.start(&line);
        wait_for_handler(&mut child);
        std::thread::sleep(Duration::from_millis(150));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let began = Instant::now();
        Ended::of(child).refused(&line, 130, &["interrupted"]);
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{line}: ends soon"
        );
        for entry in std::fs::read_dir(place.path("tables/data")).unwrap() {
            let name = entry.unwrap().file_name();
            let whole = !name.to_string_lossy().starts_with('.');
            assert!(whole, "{name:?} is half a file");
        }
    }
}

#[test]
fn what_is_finished_is_not_measured_again() {
    for (line, runs, of_one) in [
        ("lirs-svm --only kdd --scale 0.01", "lirs-svm-runs.csv", 30),
        (
            "deepio-bandwidth --only records:4096 --scale 0.05",
            "deepio-bandwidth-runs.csv",
            1,
        ),
    ] {
        let place = Place::new();
        let line = format!("reproduce {line} --seeds 1 --out tables --noisy");
        let read = |name: &str| std::fs::read_to_string(place.path("tables").join(name)).unwrap();
        place.json(&line);
        let measured = read(runs);
        // A truncated line is measured again; it is the last one.
        let kept = read("trainings.jsonl");
        let cut = kept.trim_end().len() - 9;
        std::fs::write(place.path("tables/trainings.jsonl"), &kept[..cut]).unwrap();
        place.json(&line);
        let again = read(runs);
        let differ = measured.lines().zip(again.lines());
        let differ = differ.filter(|(before, now)| before != now).count();
        assert!(
            differ <= of_one,
            "{line}: {differ} lines were measured again"
        );
        let lines = measured.lines().count();
        assert_eq!(again.lines().count(), lines);
        assert!(lines > 10 * of_one, "{line}: {lines} lines are few");
        assert!(place.path("tables/charts").is_dir());
    }
}

#[test]
fn times_are_not_taken_next_to_other_work() {
    let spin = || {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "while :; do :; done"]).spawn().unwrap()
    };
    let count = std::thread::available_parallelism().unwrap();
    let others: Vec<_> = (0..count.get()).map(|_| spin()).collect();
    let place = Place::new();
    place.refuses(
        "reproduce topk --out tables",
        2,
        &["other work takes", "--noisy"],
    );
    for mut other in others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
