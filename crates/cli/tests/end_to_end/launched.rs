//! Ranks that are processes, under every launcher of this machine: training, peers' memory, and ranks that fail, are
//! killed or interrupted.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::command::{Ended, Place, number};
use crate::launch::{self, Job, Launcher};

const SOON: Duration = Duration::from_secs(60);
const LATER: Duration = Duration::from_secs(120);

/// The launchers, one after the other, each with an empty place.
fn each(test: impl Fn(&Launcher, &Place)) {
    for launcher in Launcher::all() {
        eprintln!("{launcher}");
        test(&launcher, &Place::new());
    }
}

fn start(launcher: &Launcher, place: &Place, ranks: usize, line: &str) -> Job {
    launcher.start((0..ranks).map(|_| place.command(line)).collect())
}

/// The figures of rank 0, among what all have written.
fn figures(ended: &launch::Ended) -> Value {
    let line = ended.output.lines().find(|line| line.starts_with('{'));
    let line = line.unwrap_or_else(|| panic!("{}", ended.output));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The figures of a run that reaches what it is asked for, or after its epochs does not.
fn run(launcher: &Launcher, place: &Place, ranks: usize, line: &str) -> Value {
    let line = format!("{line} --json");
    let ended = start(launcher, place, ranks, &line).wait(LATER);
    assert!([Some(0), Some(3)].contains(&ended.code), "{}", ended.output);
    figures(&ended)
}

#[test]
fn training_reaches_its_target() {
    each(|launcher, place| {
        for ranks in 2..=4 {
            let line =
                "train linear demo:higgs:20000 --memory 1/8 --target 1e-3 --overwrite --out run";
            let found = run(launcher, place, ranks, line);
            assert_eq!(found["ranks"], ranks);
            assert!(number(&found, "relative_gap") <= 1e-3, "{found}");
        }
    });
}

#[test]
fn peers_serve_every_example() {
    each(|launcher, place| {
        for flags in [
            "",
            "--peer-memory 1/4",
            "--peer-memory 1/4 --mode opportunistic --unit-bytes 16KiB",
        ] {
            let line =
                format!("bench demo:higgs:20000 --batch 100 --epochs 2 --cache peers {flags}");
            let found = run(launcher, place, 3, &line);
            assert_eq!(
                (&found["examples"], &found["ranks"]),
                (&40000.into(), &3.into())
            );
        }
    });
}

/// Sentences in buckets: each once an epoch, over however many ranks, with one state.
#[test]
fn sentences_go_on_with_another_number_of_ranks() {
    each(|launcher, place| {
        let sentence = |i: usize| {
            let words = (0..=i % 17).map(|_| format!("word{}", i * (i + 1) % 90));
            words.collect::<Vec<_>>().join(" ") + "\n"
        };
        place.write("text.txt", (0..3000).map(sentence).collect::<String>());
        for flags in [
            "",
            "--cache peers --peer-memory 1/4 --mode opportunistic:9 --unit-bytes 1KiB",
        ] {
            let files = ["state", "log", "log.1", "log.2"].map(|name| place.path(name));
            for file in &files {
                let _ = std::fs::remove_file(file);
            }
            for ranks in [3, 2] {
                let line = format!(
                    "bench text.txt --decode words --buckets auto --batch 30 --epochs {} --state state --log log {flags}",
                    5 - ranks
                );
                let found = run(launcher, place, ranks, &line);
                assert_eq!(found["fresh_examples"], (ranks - 1) * 3000, "{found}");
            }
            let logs = files[1..].iter();
            let logged = logs.map(|log| std::fs::metadata(log).unwrap().len());
            assert_eq!(logged.sum::<u64>(), 3 * 3000 * 8);
        }
    });
}

/// One of two is given something else: each command says so and trains nothing.
#[test]
fn ranks_with_other_flags_are_refused() {
    each(|launcher, place| {
        for line in [
            "train linear demo:higgs:2000 --out differs",
            "bench demo:higgs:2000",
            "bench demo:higgs:2000 --buckets none",
        ] {
            let commands = [1, 2].map(|seed| place.command(&format!("{line} --seed {seed}")));
            let ended = launcher.start(commands.into()).wait(SOON);
            assert_eq!(ended.code, Some(2), "{}", ended.output);
            let expected = "pelton: rank 1 has --seed 2, but rank 0 has 1";
            assert_eq!(
                ended.output.matches(expected).count(),
                1,
                "{}",
                ended.output
            );
            assert!(!place.path("differs").exists());
        }
    });
}

/// Hosts that share no folder: the checkpoint of rank 0 is that of the run.
#[test]
fn only_rank_0_needs_the_run_folder() {
    each(|launcher, place| {
        for epochs in [2, 4] {
            let line = |rank| {
                place.command(&format!(
                    "train linear demo:higgs:2000 --resume --out host-{rank} --epochs {epochs}"
                ))
            };
            let ended = launcher.start(vec![line(0), line(1)]).wait(SOON);
            assert!([Some(0), Some(3)].contains(&ended.code), "{}", ended.output);
            assert_eq!(
                ended.output.contains("resuming from"),
                epochs == 4,
                "{}",
                ended.output
            );
        }
        assert!(!place.path("host-1").exists());
    });
}

/// A job over rows enough that it does not end by itself.
const LONG: &str = "train linear demo:higgs:500000 --checkpoint-every 0";

#[test]
fn another_number_of_ranks_goes_on_after_one_was_killed() {
    each(|launcher, place| {
        let finish = "--memory 16MB --target 1e-4 --epochs 1000";
        let alone = place.json(&format!("{LONG} {finish} --out alone"));
        for (ranks, victim, others) in [(3, 1, 2), (2, 0, 3), (4, 3, 1)] {
            let line =
                format!("{LONG} --memory 4MB --target 1e-15 --epochs 1000 --overwrite --out run");
            let mut job = start(launcher, place, ranks, &line);
            job.wait_for("in every pass");
            std::thread::sleep(Duration::from_millis(150 * victim as u64));
            job.signal(victim, Signal::KILL);
            let ended = job.wait(SOON);
            assert_ne!(ended.code, Some(0), "{}", ended.output);
            assert!(ended.after < Duration::from_secs(30), "{:?}", ended.after);
            // Launchers of MPI end all before a rank can tell, and not all of them name the rank.
            if let Launcher::Tcp = launcher {
                let named = format!("rank {victim} failed");
                assert!(ended.output.contains(&named), "{}", ended.output);
            }
            let line = format!("{LONG} {finish} --resume --out run");
            let found = match others {
                1 => place.json(&line),
                _ => run(launcher, place, others, &line),
            };
            let ratio = number(&found, "primal") / number(&alone, "primal");
            assert!((ratio - 1.0).abs() < 1e-3, "{found}, alone {alone}");
        }
    });
}

/// A signal to one rank, in the middle of a pass, ends all soon, and the message says whether the state is saved.
#[test]
fn an_interrupted_rank_ends_all() {
    each(|launcher, place| {
        for victim in [0, 2] {
            let line =
                format!("{LONG} --target 1e-15 --epochs 1000 --memory 1GiB --overwrite --out run");
            let line = line.replace("500000", "1000000");
            let mut job = start(launcher, place, 3, &line);
            job.wait_for("all in memory");
            std::thread::sleep(Duration::from_millis(200));
            job.signal(victim, Signal::INT);
            let ended = job.wait(SOON);
            assert_eq!(ended.code, Some(130), "{}", ended.output);
            assert!(ended.after < Duration::from_secs(6), "{:?}", ended.after);
            let said = ended.output.contains("interrupted; the state is saved");
            let saved = place.path("run/checkpoint/manifest.json").exists();
            assert_eq!(said, saved, "{}", ended.output);
            let nothing = ended.output.contains("interrupted; nothing is saved yet");
            assert_eq!(nothing, !saved, "{}", ended.output);
        }
    });
}

/// Processes that cannot work together say why, each its own part.
#[test]
fn processes_that_do_not_fit_are_refused() {
    let place = Place::new();
    place.libsvm("data", 100);
    let port = "29977";
    let process = |rank: &str, size: &str| -> Command {
        let mut command = place.command("bench data --json");
        command.envs([("RANK", rank), ("WORLD_SIZE", size)]);
        command.envs([("MASTER_ADDR", "localhost"), ("MASTER_PORT", port)]);
        command
    };
    let first = process("0", "3").stderr(Stdio::piped()).spawn().unwrap();
    let expected = "has rank 1 of 2, but rank 0";
    let second = Ended::from(process("1", "2").output().unwrap());
    second.refused("the second", 1, &[expected, "the same number"]);
    Ended::of(first).refused("the first", 1, &[expected]);
    // The same rank twice.
    let waiting = [("0", "3"), ("1", "3")].map(|(rank, size)| {
        let mut command = process(rank, size);
        command.stderr(Stdio::piped()).spawn().unwrap()
    });
    std::thread::sleep(Duration::from_millis(500));
    let expected = &["two processes are rank 1"];
    let third = Ended::from(process("1", "3").output().unwrap());
    third.refused("the third", 1, expected);
    for process in waiting {
        Ended::of(process).refused("those that waited", 1, expected);
    }
}
