//! Blocking collectives.

use std::time::Duration;

use super::numbers::{lengths, number};
use crate::operation::grid;
use crate::{Alike, Comm, CommError, Number, Reduction, share};

pub(super) fn ranks(comm: &Comm) -> Result<(), CommError> {
    assert!(comm.rank() < comm.size());
    assert!(comm.world_rank() >= comm.rank());
    comm.check()
}

/// Late ranks delay the others: after a barrier all know what each rank reported before it.
pub(super) fn barrier(comm: &Comm) -> Result<(), CommError> {
    for late in 0..comm.size() {
        if comm.rank() == late {
            std::thread::sleep(Duration::from_millis(5));
            for other in 0..comm.size() {
                comm.send(other, 9, &[late as u64])?;
            }
        }
        comm.barrier()?;
        let message = comm.start_receive::<u64>(late, 9)?;
        assert_eq!(message.wait()?, [late as u64]);
    }
    Ok(())
}

pub(super) fn broadcast(comm: &Comm) -> Result<(), CommError> {
    for root in 0..comm.size() {
        for length in lengths(comm.size()) {
            let expected: Vec<u64> = (0..length).map(|i| number(1, root, i)).collect();
            let mut values = vec![comm.rank() as u64; length];
            if comm.rank() == root {
                values.copy_from_slice(&expected);
            }
            comm.broadcast(&mut values, root)?;
            assert_eq!(values, expected, "{length} values from {root}");
        }
    }
    Ok(())
}

pub(super) fn all_gather(comm: &Comm) -> Result<(), CommError> {
    for length in lengths(comm.size()) {
        let values: Vec<u64> = (0..length).map(|i| number(2, comm.rank(), i)).collect();
        let mut all = vec![0; length * comm.size()];
        comm.all_gather(&values, &mut all)?;
        for (place, value) in all.iter().enumerate() {
            let (rank, i) = (place / length, place % length);
            assert_eq!(*value, number(2, rank, i), "value {i} of rank {rank}");
        }
    }
    Ok(())
}

/// Rank r contributes r values in the first round, then one more, wrapping around to none.
pub(super) fn all_gather_ragged(comm: &Comm) -> Result<(), CommError> {
    let length = |round: usize, rank: usize| ((rank + round) % comm.size()) * 3;
    for round in 0..=comm.size() {
        let part = |rank| -> Vec<f32> {
            let values = 0..length(round, rank);
            values.map(|i| number(3, rank, i) as f32).collect()
        };
        let all = comm.all_gather_ragged(&part(comm.rank()))?;
        assert_eq!(all.len(), comm.size());
        for (rank, values) in all.iter().enumerate() {
            assert_eq!(values, &part(rank), "part of rank {rank}");
        }
    }
    Ok(())
}

/// The expected result of a reduction over all ranks, element by element: along each dimension of their grid in order.
pub(super) fn expected<T: Number>(
    size: usize,
    length: usize,
    reduction: Reduction,
    element: impl Fn(usize, usize) -> T,
) -> Vec<T> {
    let combine = |i| {
        let mut parts: Vec<T> = (0..size).map(|rank| element(rank, i)).collect();
        for ranks in grid(size) {
            let rest = parts.split_off(parts.len() / ranks);
            for (place, next) in rest.into_iter().enumerate() {
                let of = place % parts.len();
                parts[of] = T::combine(parts[of], next, reduction);
            }
        }
        parts[0]
    };
    (0..length).map(combine).collect()
}

/// Elements of very different sizes: their sum depends on the order of the additions.
pub(super) fn rough(rank: usize, i: usize) -> f64 {
    let bits = number(4, rank, i);
    (bits as i64 as f64) * f64::powi(2.0, (bits % 61) as i32 - 30)
}

fn reduce_as<T: Number>(
    comm: &Comm,
    element: impl Fn(usize, usize) -> T + Copy,
) -> Result<(), CommError> {
    for reduction in [Reduction::Sum, Reduction::Max] {
        for length in lengths(comm.size()) {
            let expected = expected(comm.size(), length, reduction, element);
            let mut values: Vec<T> = (0..length).map(|i| element(comm.rank(), i)).collect();
            comm.all_reduce(&mut values, reduction)?;
            let same = bytemuck::cast_slice::<T, u8>(&values) == bytemuck::cast_slice(&expected);
            assert!(
                same,
                "{reduction:?} of {length}: {values:?} not {expected:?}"
            );
        }
    }
    Ok(())
}

pub(super) fn all_reduce(comm: &Comm) -> Result<(), CommError> {
    reduce_as(comm, |rank, i| number(5, rank, i))?;
    reduce_as(comm, rough)?;
    reduce_as(comm, |rank, i| rough(rank, i) as f32)
}

/// The bits do not depend on which rank is late, nor on the position of an element in a vector.
pub(super) fn reduction_order(comm: &Comm) -> Result<(), CommError> {
    let expected: f64 = expected(comm.size(), 1, Reduction::Sum, rough)[0];
    for round in 0..20 {
        if round % comm.size() == comm.rank() {
            std::thread::sleep(Duration::from_micros(200));
        }
        let mut values = vec![rough(comm.rank(), 0); 100 * (round + 1)];
        comm.all_reduce(&mut values, Reduction::Sum)?;
        assert!(
            values
                .iter()
                .all(|value| value.to_bits() == expected.to_bits())
        );
    }
    Ok(())
}

pub(super) fn reduce_scatter(comm: &Comm) -> Result<(), CommError> {
    for length in lengths(comm.size()) {
        let whole = expected(comm.size(), length, Reduction::Sum, rough);
        let values: Vec<f64> = (0..length).map(|i| rough(comm.rank(), i)).collect();
        let own = comm.reduce_scatter(&values, Reduction::Sum)?;
        assert_eq!(own, whole[share(length, comm.rank(), comm.size())]);
    }
    Ok(())
}

/// Everything to one rank, nothing to the others; then rank r gets r elements.
pub(super) fn reduce_scatter_ragged(comm: &Comm) -> Result<(), CommError> {
    let to_one = |one| (0..comm.size()).map(move |rank| if rank == one { 1000 } else { 0 });
    let mut rounds: Vec<Vec<usize>> = (0..comm.size()).map(|one| to_one(one).collect()).collect();
    rounds.push((0..comm.size()).collect());
    for counts in rounds {
        let length = counts.iter().sum();
        let before: usize = counts[..comm.rank()].iter().sum();
        let whole = expected(comm.size(), length, Reduction::Max, |rank, i| {
            number(6, rank, i)
        });
        let values: Vec<u64> = (0..length).map(|i| number(6, comm.rank(), i)).collect();
        let own = comm.reduce_scatter_ragged(&values, &counts, Reduction::Max)?;
        assert_eq!(own, whole[before..before + counts[comm.rank()]]);
    }
    Ok(())
}

/// All ranks learn which rank differs, and can continue; all receive the bytes that rank 0 reads.
pub(super) fn agreement(comm: &Comm) -> Result<(), CommError> {
    let same = Alike::default().with("a setting", 1);
    comm.agree(&same)?;
    let odd = comm.size() - 1;
    let own = same.with("another", comm.rank() / odd.max(1));
    match comm.agree(&own) {
        Ok(()) => assert_eq!(comm.size(), 1),
        Err(CommError::RanksDiffer { rank, what, .. }) => {
            assert_eq!(what, "another");
            assert_eq!(rank, odd, "of {} ranks", comm.size());
        }
        Err(error) => return Err(error),
    }
    for length in [0, 1, 100_000] {
        let bytes: Vec<u8> = (0..length).map(|i| number(9, 0, i) as u8).collect();
        let read = comm.from_first(|| Ok::<_, CommError>(Some(bytes.clone())))?;
        assert_eq!(read.as_ref(), Some(&bytes));
    }
    assert_eq!(comm.from_first(|| Ok::<_, CommError>(None))?, None);
    Ok(())
}
