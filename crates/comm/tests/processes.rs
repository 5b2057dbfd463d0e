//! The conformance suite on processes, under every launcher of this machine, and every way in which a rank can fail.

#![cfg(not(loom))]

mod launch;

use std::process::{Command, abort};
use std::thread;
use std::time::{Duration, Instant};

use pelton_comm::conformance::{CASES, FAILURES, REASON, check_comm, check_ends};
use pelton_comm::{Comm, CommError, Reduction};

use launch::{Launcher, asked_for, run_or_end, stated_size};

const SOON: Duration = Duration::from_secs(60);
const LATER: Duration = Duration::from_secs(120);

/// The ranks that the other tests start.
#[test]
fn as_rank() {
    let Some(job) = asked_for() else { return };
    run_or_end(|comm| match job.as_str() {
        "all" => succeed(&comm),
        "early" => end_early(&comm),
        "killed" => be_killed(&comm),
        "stopped" => be_stopped(&comm),
        "busy" => be_busy(&comm),
        number => check_ends(FAILURES[number.parse::<usize>().unwrap()], &comm),
    });
}

fn succeed(comm: &Comm) -> Result<(), CommError> {
    assert!([None, Some(comm.size())].contains(&stated_size()));
    check_comm(comm, |_| ())?;
    if comm.rank() == 0 {
        println!("{} cases on {} ranks", CASES.len(), comm.size());
    }
    Ok(())
}

/// Rank 1 returns while the others wait for it.
fn end_early(comm: &Comm) -> Result<(), CommError> {
    if comm.rank() == 1 {
        return Ok(());
    }
    comm.receive::<u8>(1, 0, &mut [0])
}

/// The last rank dies without a word while all are busy with a collective.
fn be_killed(comm: &Comm) -> Result<(), CommError> {
    for round in 0.. {
        if round == 100 && comm.rank() + 1 == comm.size() {
            abort();
        }
        comm.all_reduce(&mut [1.0_f64; 5000], Reduction::Sum)?;
    }
    Ok(())
}

/// The last rank stops, as by a debugger or a machine that hangs, while the others wait for it.
fn be_stopped(comm: &Comm) -> Result<(), CommError> {
    comm.barrier()?;
    if comm.rank() + 1 == comm.size() {
        let own = std::process::id().to_string();
        let stopped = Command::new("kill").args(["-STOP", &own]).status();
        assert!(stopped.expect("the program kill").success());
        // The signal may reach this thread later than the others.
        thread::sleep(LATER);
    }
    comm.barrier()
}

/// The last rank computes for four seconds without a call of its communicator.
fn be_busy(comm: &Comm) -> Result<(), CommError> {
    let began = Instant::now();
    while comm.rank() + 1 == comm.size() && began.elapsed() < Duration::from_secs(4) {
        std::hint::spin_loop();
    }
    comm.barrier()
}

#[test]
fn all_cases() {
    for launcher in Launcher::all() {
        for ranks in 1..=4 {
            let ended = launcher.start_test(ranks, "all", &[]).wait(LATER);
            ended.assert_done();
            let counted = format!("{} cases on {ranks} ranks", CASES.len());
            assert!(ended.output.contains(&counted), "{launcher}: {ended:?}");
        }
    }
}

#[test]
fn a_failing_rank_ends_all_and_is_named() {
    for launcher in Launcher::all() {
        for number in 0..FAILURES.len() {
            let ranks = 2 + number % 3;
            let job = launcher.start_test(ranks, &number.to_string(), &[]);
            let ended = job.wait(SOON);
            // The launcher may end the others before all have spoken, but one has named the culprit.
            ended.assert_failed(&[REASON, &format!("rank {}", ranks - 1)]);
        }
        let ended = launcher.start_test(3, "early", &[]).wait(SOON);
        ended.assert_failed(&["rank 1 ended while rank"]);
    }
}

#[test]
fn a_killed_rank_ends_all() {
    for launcher in Launcher::all() {
        let ended = launcher.start_test(3, "killed", &[]).wait(SOON);
        assert_ne!(ended.code, Some(0), "{launcher}: {}", ended.output);
    }
}

#[test]
fn a_stopped_rank_is_noticed_and_a_busy_one_is_not_blamed() {
    for launcher in Launcher::all() {
        let limit = |seconds| [("PELTON_HEARTBEAT_SECONDS", seconds)];
        let ended = launcher.start_test(3, "stopped", &limit("3")).wait(SOON);
        ended.assert_failed(&["rank 2 failed: no heartbeat for 3 s"]);
        let job = launcher.start_test(3, "busy", &limit("3"));
        job.wait(SOON).assert_done();
    }
}
