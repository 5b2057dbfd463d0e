//! Operations that run while their rank does something else.

use super::collectives::{expected, rough};
use super::numbers::number;
use crate::{Comm, CommError, Pending, Reduction, share};

/// Many operations of all kinds at once; every rank waits for them in an order of its own.
pub(super) fn interleaved(comm: &Comm) -> Result<(), CommError> {
    const ROUNDS: usize = 40;
    let (size, rank) = (comm.size(), comm.rank());
    let length = |round: usize| (round * 97) % 1500;
    let mut started: Vec<Option<[Pending<'_, f64>; 4]>> = Vec::new();
    for round in 0..ROUNDS {
        let values: Vec<f64> = (0..length(round)).map(|i| rough(rank, i)).collect();
        started.push(Some([
            comm.start_all_reduce(values.clone(), Reduction::Sum)?,
            comm.start_reduce_scatter(values.clone(), Reduction::Max)?,
            comm.start_all_gather(values.clone())?,
            comm.start_broadcast(values, round % size)?,
        ]));
    }
    for step in 0..ROUNDS {
        // A stride without a common factor with the rounds, another one on each rank.
        let round = (step * [1, 3, 7, 9, 11, 13, 17][rank % 7] + rank) % ROUNDS;
        let [sum, largest, all, one] = started[round].take().expect("each round once");
        let length = length(round);
        while rank % 2 == 1 && !all.test() {
            std::thread::yield_now();
        }
        let root = round % size;
        let from = |rank| (0..length).map(move |i| rough(rank, i));
        assert_eq!(one.wait()?, from(root).collect::<Vec<_>>());
        assert_eq!(all.wait()?, (0..size).flat_map(from).collect::<Vec<_>>());
        let maxima = expected(size, length, Reduction::Max, rough);
        assert_eq!(largest.wait()?, maxima[share(length, rank, size)]);
        assert_eq!(sum.wait()?, expected(size, length, Reduction::Sum, rough));
    }
    Ok(())
}

/// An operation needs every rank's help while some of them wait elsewhere.
pub(super) fn between_barriers(comm: &Comm) -> Result<(), CommError> {
    for round in 0..20 {
        let values = (0..3000).map(|i| number(11, comm.rank(), i)).collect();
        let sum = comm.start_all_reduce(values, Reduction::Sum)?;
        let result = if (comm.rank() + round).is_multiple_of(2) {
            comm.barrier()?;
            sum.wait()?
        } else {
            let result = sum.wait()?;
            comm.barrier()?;
            result
        };
        let element = |rank, i| number(11, rank, i);
        assert_eq!(result, expected(comm.size(), 3000, Reduction::Sum, element));
    }
    Ok(())
}

/// A rank that does not want the result still does its part.
pub(super) fn abandoned(comm: &Comm) -> Result<(), CommError> {
    for round in 0..10 {
        let sum = comm.start_all_reduce(vec![1_u64; 2000], Reduction::Sum)?;
        if (comm.rank() + round).is_multiple_of(2) {
            drop(sum);
        } else {
            assert_eq!(sum.wait()?, vec![comm.size() as u64; 2000]);
        }
        comm.barrier()?;
    }
    Ok(())
}

/// Receptions are served in the order of their start, independently of the order of waits.
pub(super) fn receptions(comm: &Comm) -> Result<(), CommError> {
    let next = (comm.rank() + 1) % comm.size();
    let before = (comm.rank() + comm.size() - 1) % comm.size();
    for i in 0..200 {
        let first = comm.start_receive::<u64>(before, 5)?;
        let second = comm.start_receive::<u64>(before, 5)?;
        comm.send(next, 5, &[i])?;
        comm.send(next, 5, &[2, i])?;
        assert_eq!(second.wait()?, [2, i]);
        assert_eq!(first.wait()?, [i]);
    }
    Ok(())
}
