//! The conformance suite on threads.

#![cfg(not(loom))]

use std::time::Instant;

use pelton_comm::conformance::{
    CASES, FAILURES, REASON, WITHIN, check_comm, check_ends, failing_rank,
};
use pelton_comm::{Comm, CommError, EndedRank, RankError, run_ranks};

const RANKS: [usize; 5] = [1, 2, 3, 4, 7];

fn all_cases(ranks: usize) {
    let names = run_ranks(ranks, |comm| {
        let mut names = 0;
        check_comm(&comm, |_| names += 1)?;
        Ok::<usize, CommError>(names)
    });
    assert_eq!(names.unwrap(), vec![CASES.len(); ranks]);
}

#[test]
fn one_rank() {
    all_cases(1);
}

#[test]
fn two_ranks() {
    all_cases(2);
}

#[test]
fn three_ranks() {
    all_cases(3);
}

#[test]
fn four_ranks() {
    all_cases(4);
}

#[test]
fn seven_ranks() {
    all_cases(7);
}

#[test]
fn ranks_of_a_grid() {
    for ranks in [12, 13, 27] {
        all_cases(ranks);
    }
}

#[test]
fn a_failing_rank_is_named_and_soon() {
    for ranks in RANKS {
        for case in FAILURES {
            let start = Instant::now();
            let error: RankError<CommError> =
                run_ranks(ranks, |comm| check_ends(*case, &comm)).unwrap_err();
            let (name, message) = (case.0, error.to_string());
            assert_eq!(error.rank, failing_rank(ranks), "{name}: {message}");
            assert!(message.contains(REASON), "{name}: {message}");
            assert!(start.elapsed() < WITHIN, "{name}");
        }
    }
}

/// The first failure counts, also if ranks fail at the same time or because of each other.
#[test]
fn the_error_is_that_of_the_first_that_failed() {
    for _ in 0..50 {
        let error = run_ranks(4, |comm: Comm| {
            comm.barrier()?;
            if comm.rank() >= 2 {
                let reason = format!("of rank {}", comm.rank());
                return Err(CommError::MpiUnusable { reason });
            }
            comm.barrier()
        });
        let error = error.unwrap_err();
        assert!(error.rank >= 2);
        assert!(
            error
                .to_string()
                .ends_with(&format!("of rank {}", error.rank))
        );
    }
}

#[test]
fn a_rank_that_ends_early_is_named() {
    let error = run_ranks(3, |comm: Comm| {
        if comm.rank() == 1 {
            return Ok(());
        }
        comm.receive::<u8>(1, 0, &mut [0])
    });
    let error = error.unwrap_err();
    let expected = matches!(
        error.source,
        CommError::RankEnded(EndedRank { rank: 1, .. })
    );
    assert!(expected, "{error}");
}

/// Messages sent before a rank ended still arrive.
#[test]
fn messages_outlive_their_sender() {
    let values = run_ranks(2, |comm: Comm| {
        if comm.rank() == 1 {
            comm.send(0, 0, &[42_u64])?;
            return Ok::<_, CommError>(vec![]);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        comm.receive_vec::<u64>(1, 0)
    });
    assert_eq!(values.unwrap()[0], [42]);
}

#[test]
fn ranks_that_disagree_on_a_length_hear_of_it() {
    for length in [10, 10_000] {
        let error = run_ranks(3, |comm: Comm| {
            let mut values = vec![1.0_f64; length + comm.rank() / 2];
            comm.all_reduce(&mut values, pelton_comm::Reduction::Sum)
        });
        let error = error.unwrap_err();
        let expected = matches!(error.source, CommError::LengthMismatch { .. });
        assert!(expected, "{error}");
    }
}

#[test]
fn there_is_no_job_without_ranks() {
    let error = run_ranks(0, |_| Ok::<(), CommError>(())).unwrap_err();
    assert!(matches!(
        error.source,
        CommError::NoSuchRank { size: 0, .. }
    ));
}

/// More than the address space holds.
#[test]
fn a_window_that_does_not_fit_is_an_error() {
    let error = run_ranks(2, |comm: Comm| comm.allocate(usize::MAX / 2).map(drop));
    let error = error.unwrap_err();
    assert!(
        matches!(error.source, CommError::WindowMemory { .. }),
        "{error}"
    );
}
