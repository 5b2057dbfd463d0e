//! Runs a job on threads and reports which rank failed.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use crate::local::exchange::Exchange;
use crate::local::link::{Link, Message};
use crate::local::network::Network;
use crate::{Comm, CommError, RankError};

/// Runs `job` on `ranks` threads, each with its own [`Comm`], and returns what each returned, by rank.
///
/// A rank that returns an error or panics ends the waits of all others with
/// [`CommError::RankFailed`]; the error returned here is that of the rank that failed first. Ranks that
/// compute continue until they next wait, so the job ends as soon as the slowest of them does.
///
/// ```
/// use pelton_comm::{CommError, Reduction, run_ranks};
///
/// let sums = run_ranks(4, |comm| {
///     let mut values = [comm.rank() as f64, 1.0];
///     comm.all_reduce(&mut values, Reduction::Sum)?;
///     Ok::<_, CommError>(values)
/// });
/// assert_eq!(sums.unwrap(), [[6.0, 4.0]; 4]);
/// ```
///
/// Errors: the first failing rank's; [`CommError::NoSuchRank`] if `ranks` is 0.
pub fn run_ranks<T, E, F>(ranks: usize, job: F) -> Result<Vec<T>, RankError<E>>
where
    T: Send,
    E: fmt::Display + From<CommError> + Send,
    F: Fn(Comm) -> Result<T, E> + Sync,
{
    run_ranks_over(None, ranks, job)
}

/// [`run_ranks`] over a modelled network with this many bytes a second into and out of each rank. A message
/// arrives when such a network would have delivered it, without latency, and the receiver waits until then. Windows
/// are not modelled.
///
/// Errors: as [`run_ranks`]. Panics if the rate is not above 0.
pub fn run_ranks_over<T, E, F>(
    bytes_per_s: Option<f64>,
    ranks: usize,
    job: F,
) -> Result<Vec<T>, RankError<E>>
where
    T: Send,
    E: fmt::Display + From<CommError> + Send,
    F: Fn(Comm) -> Result<T, E> + Sync,
{
    assert!(bytes_per_s.is_none_or(|rate| rate > 0.0), "rate of a link");
    if ranks == 0 {
        let source = CommError::NoSuchRank { rank: 0, size: 0 }.into();
        return Err(RankError { rank: 0, source });
    }
    let exchange = Arc::new(Exchange::new(ranks));
    let members: Arc<[usize]> = (0..ranks).collect();
    let shelf = Arc::default();
    let network = bytes_per_s.map(|rate| Arc::new(Network::new(ranks, rate)));
    let one = |rank| {
        let link = Link {
            exchange: Arc::clone(&exchange),
            context: 0,
            rank,
            members: Arc::clone(&members),
            sent_bytes: Cell::new(0),
            shelf: Arc::clone(&shelf),
            network: network.clone(),
            early: RefCell::default(),
        };
        run_one(rank, &exchange, || job(Comm::new(Box::new(link))))
    };
    let mut results: Vec<Option<Result<T, E>>> = thread::scope(|scope| {
        let spawned: Vec<_> = (0..ranks)
            .map(|rank| {
                let name = format!("rank {rank}");
                let thread = thread::Builder::new().name(name);
                let spawned = thread.spawn_scoped(scope, move || one(rank));
                if let Err(error) = &spawned {
                    exchange.fail(rank, format!("no thread can be started: {error}"));
                }
                spawned.ok()
            })
            .collect();
        // A rank's panic is caught in its thread, so a thread always has a result.
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().ok();
        spawned
            .into_iter()
            .map(|thread| thread.and_then(join))
            .collect()
    });
    if let Some(rank) = exchange.failed_rank() {
        let source = match results[rank].take() {
            Some(Err(error)) => error,
            // Its thread could not be started.
            _ => exchange.failure().err().map_or_else(
                || CommError::NoSuchRank { rank, size: ranks }.into(),
                E::from,
            ),
        };
        return Err(RankError { rank, source });
    }
    // No rank failed, so all have returned a value.
    Ok(results.into_iter().flatten().flatten().collect())
}

/// Runs one rank; its failure becomes known to all before its thread ends.
fn run_one<T, E: fmt::Display + From<CommError>>(
    rank: usize,
    exchange: &Exchange<Message>,
    job: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    // A panicking rank leaves only its own data incomplete; others see only whole messages.
    let result = catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| {
        Err(CommError::Panicked {
            message: panic_message(&*panic),
        }
        .into())
    });
    match &result {
        Ok(_) => exchange.end(rank),
        Err(error) => exchange.fail(rank, error.to_string()),
    }
    result
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn ranks_of_a_process_make_things_once() {
        for ranks in [1, 2, 5] {
            let made = AtomicUsize::new(0);
            let seen = run_ranks(ranks, |comm| {
                let make = |value: u64| {
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, CommError>(Arc::new(value))
                };
                Ok::<_, CommError>((comm.once("7", || make(7))?, comm.once("8", || make(8))?))
            });
            let seen = seen.unwrap();
            assert_eq!(made.into_inner(), 2);
            assert!(
                seen.iter()
                    .all(|(first, second)| (**first, **second) == (7, 8))
            );
            assert_eq!(Arc::strong_count(&seen[0].0), ranks);
        }
        let failed = run_ranks(3, |comm| {
            comm.once("", || {
                Err::<u8, _>(CommError::NoSuchRank { rank: 9, size: 3 })
            })
        });
        assert_eq!(failed.unwrap_err().rank, 0);
        assert_eq!(Comm::alone().once("", || Ok::<_, CommError>(3)).unwrap(), 3);
        // Each rank gets its own object.
        let parts = run_ranks(4, |comm| {
            let part = comm.rank() % 2;
            comm.once(&part.to_string(), || Ok::<_, CommError>(part))
        });
        assert_eq!(parts.unwrap(), [0, 1, 0, 1]);
    }
}
