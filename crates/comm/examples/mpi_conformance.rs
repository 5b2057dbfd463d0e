//! The conformance suite on processes; run by `./test mpi`.
//!
//! ```text
//! mpirun -n 4 mpi_conformance              all cases that must succeed
//! mpirun -n 4 mpi_conformance failure 2    a job whose last rank fails; exits with 70
//! mpirun -n 4 mpi_conformance early        a job one of whose ranks ends too soon; exits with 70
//! mpirun -n 4 mpi_conformance killed       a job whose last rank is killed; the launcher ends it
//! mpirun -n 4 mpi_conformance stopped      a job whose last rank stops; exits with 70 after the limit for silence
//! mpirun -n 4 mpi_conformance busy         a job whose last rank computes for longer than that limit
//! mpi_conformance count                    how many jobs there are that fail
//! ```

use std::io::Write;
use std::process::{Command, abort, exit};
use std::time::{Duration, Instant};

use pelton_comm::conformance::{CASES, FAILURES, check_comm, check_ends};
use pelton_comm::{Comm, CommError, RankError, Reduction, launched, mpi};

/// Exit code of a job with a rank that failed as intended.
const FAILED: i32 = 70;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [] => mpi::run(succeed),
        ["count"] => {
            println!("{}", FAILURES.len());
            Ok(())
        }
        ["failure", number] => {
            let number: usize = number.parse().expect("the number of a case");
            mpi::run(|comm| check_ends(FAILURES[number], &comm))
        }
        ["early"] => mpi::run(end_early),
        ["killed"] => mpi::run(be_killed),
        ["stopped"] => mpi::run(be_stopped),
        ["busy"] => mpi::run(be_busy),
        _ => panic!("unknown arguments {arguments:?}"),
    };
    if let Err(error) = result {
        fail(&error);
    }
}

fn succeed(comm: Comm) -> Result<(), CommError> {
    let launched = launched().map_or(Some(1), |launched| launched.size);
    assert_eq!(launched, Some(comm.size()));
    let first = comm.rank() == 0;
    check_comm(&comm, |name| {
        if first {
            println!("{name}");
        }
    })?;
    if first {
        println!("{} cases passed on {} ranks", CASES.len(), comm.size());
    }
    Ok(())
}

/// Rank 1 returns while the others wait for it.
fn end_early(comm: Comm) -> Result<(), CommError> {
    if comm.rank() == 1 {
        return Ok(());
    }
    comm.receive::<u8>(1, 0, &mut [0])
}

/// The last rank dies without a word while all are busy with a collective.
fn be_killed(comm: Comm) -> Result<(), CommError> {
    for round in 0.. {
        if round == 100 && comm.rank() + 1 == comm.size() {
            abort();
        }
        comm.all_reduce(&mut [1.0_f64; 5000], Reduction::Sum)?;
    }
    Ok(())
}

/// The last rank stops, as by a debugger or a machine that hangs, while the others wait for it.
fn be_stopped(comm: Comm) -> Result<(), CommError> {
    comm.barrier()?;
    if comm.rank() + 1 == comm.size() {
        let own = std::process::id().to_string();
        let stopped = Command::new("kill").args(["-STOP", &own]).status();
        assert!(stopped.expect("the program kill").success());
    }
    comm.barrier()
}

/// The last rank computes for four seconds without a call of its communicator.
fn be_busy(comm: Comm) -> Result<(), CommError> {
    let began = Instant::now();
    while comm.rank() + 1 == comm.size() && began.elapsed() < Duration::from_secs(4) {
        std::hint::spin_loop();
    }
    comm.barrier()
}

fn fail(error: &RankError<CommError>) {
    // In one write, because the ranks share a terminal.
    let line = format!("{error}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("standard error");
    mpi::abort(FAILED);
    exit(FAILED);
}
