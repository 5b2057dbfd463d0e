//! Jobs in which the last rank fails: the others' waits must end with an error that names it.

use std::time::{Duration, Instant};

use crate::{Comm, CommError, FailedRank, Get, Reduction};

/// A case: its name and what the job does until the last rank fails.
pub type FailureCase = (&'static str, fn(&Comm) -> Result<(), CommError>);

/// The text of the last rank's error or panic when it fails.
pub const REASON: &str = "the scales of this rank are broken";

/// The others must have ended this soon after the failure.
pub const WITHIN: Duration = Duration::from_secs(5);

/// All jobs that must fail. On one rank it is that rank that fails.
pub const FAILURES: &[FailureCase] = &[
    ("error before a barrier", |comm| {
        fail_last(comm, error)?;
        forever(|| comm.barrier())
    }),
    ("panic before an all-reduce", |comm| {
        fail_last(comm, panic)?;
        forever(|| comm.all_reduce(&mut [1.0_f64; 1000], Reduction::Sum))
    }),
    ("error after some rounds", |comm| {
        for round in 0..50 {
            let mut values = [1_u64; 700];
            comm.all_reduce(&mut values, Reduction::Sum)?;
            if round == 49 {
                fail_last(comm, error)?;
            }
        }
        forever(|| comm.broadcast(&mut [0_u8; 100], comm.size() - 1))
    }),
    ("panic with operations under way", |comm| {
        let started = (0..20).map(|_| comm.start_all_reduce(vec![1.0_f32; 5000], Reduction::Sum));
        let started: Vec<_> = started.collect::<Result<_, _>>()?;
        fail_last(comm, panic)?;
        for pending in started {
            pending.wait()?;
        }
        forever(|| comm.barrier())
    }),
    ("error while a message is awaited", |comm| {
        fail_last(comm, error)?;
        comm.receive(comm.size() - 1, 1, &mut [0_u8])
    }),
    ("panic while a window is filled", |comm| {
        let mut window = comm.allocate(1000)?;
        window.local().fill(1);
        fail_last(comm, panic)?;
        window.share(comm).map(drop)
    }),
    ("error while a window is read", |comm| {
        let window = comm.allocate(1000)?.share(comm)?;
        fail_last(comm, error)?;
        let mut buffer = [1; 10];
        forever(|| {
            let (rank, offset) = (comm.size() - 1, 0);
            let buffer = &mut buffer[..];
            window.get(&mut [Get {
                rank,
                offset,
                buffer,
            }])
        })
    }),
    ("error in a group", |comm| {
        let color = Some((comm.rank() % 2) as u64);
        let group = comm.split(color, 0)?.expect("every rank has a color");
        fail_last(comm, error)?;
        forever(|| group.barrier().and_then(|()| comm.barrier()))
    }),
];

/// The rank that fails among `size`.
pub fn failing_rank(size: usize) -> usize {
    size - 1
}

/// Runs one case and checks how it ended on this rank, unless this is the one that failed.
pub fn check_ends((name, case): FailureCase, comm: &Comm) -> Result<(), CommError> {
    let start = Instant::now();
    let result = case(comm);
    let last = failing_rank(comm.size());
    if comm.rank() == last {
        return result;
    }
    assert!(
        start.elapsed() < WITHIN,
        "{name} took {:?}",
        start.elapsed()
    );
    match &result {
        Err(CommError::RankFailed(FailedRank { rank, reason, .. })) => {
            assert!(*rank == last && reason.contains(REASON), "{name}: {reason}");
        }
        other => panic!("{name} ended with {other:?}"),
    }
    result
}

fn fail_last(comm: &Comm, fail: fn() -> Result<(), CommError>) -> Result<(), CommError> {
    if comm.rank() == failing_rank(comm.size()) {
        return fail();
    }
    Ok(())
}

fn error() -> Result<(), CommError> {
    Err(CommError::MpiUnusable {
        reason: REASON.to_string(),
    })
}

fn panic() -> Result<(), CommError> {
    panic!("{REASON}");
}

/// Repeats a step until it fails; a job that never notices would run into its time limit.
fn forever(mut step: impl FnMut() -> Result<(), CommError>) -> Result<(), CommError> {
    let start = Instant::now();
    while start.elapsed() < 2 * WITHIN {
        step()?;
        std::thread::yield_now();
    }
    Ok(())
}
