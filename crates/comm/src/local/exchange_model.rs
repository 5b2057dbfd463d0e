//! Every interleaving of two ranks in the exchange, explored by loom: `./test loom`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::exchange::{Exchange, Route};
use crate::{CommError, EndedRank, FailedRank};

fn route(from: usize, to: usize) -> Route {
    let (context, tag) = (0, 7);
    Route {
        context,
        from,
        to,
        tag,
    }
}

/// Waits for a message as `Comm::finish` does.
fn receive<M>(exchange: &Exchange<M>, from: usize, to: usize) -> Result<M, CommError> {
    loop {
        let seen = exchange.arrivals(to);
        if let Some(message) = exchange.try_receive(route(from, to))? {
            return Ok(message);
        }
        exchange.wait(to, seen);
    }
}

/// Runs `zero` and `one` as two ranks in every interleaving.
fn model<M: 'static>(zero: fn(&Exchange<M>), one: fn(&Exchange<M>)) {
    loom::model(move || {
        let exchange = Arc::new(Exchange::new(2));
        let other = Arc::clone(&exchange);
        let thread = thread::spawn(move || one(&other));
        zero(&exchange);
        thread.join().unwrap();
    });
}

#[test]
fn no_message_is_missed_and_order_is_kept() {
    model(
        |exchange| {
            exchange.send(route(0, 1), 1);
            exchange.send(route(0, 1), 2);
        },
        |exchange| {
            assert_eq!(receive(exchange, 0, 1).unwrap(), 1);
            assert_eq!(receive(exchange, 0, 1).unwrap(), 2);
        },
    );
}

#[test]
fn a_failure_ends_a_wait() {
    model::<u8>(
        |exchange| exchange.fail(0, "broken".to_string()),
        |exchange| {
            let error = receive(exchange, 0, 1).unwrap_err();
            assert!(matches!(
                error,
                CommError::RankFailed(FailedRank { rank: 0, .. })
            ));
        },
    );
}

#[test]
fn what_was_sent_before_the_end_arrives() {
    model(
        |exchange| {
            exchange.send(route(0, 1), 1);
            exchange.end(0);
        },
        |exchange| {
            assert_eq!(receive(exchange, 0, 1).unwrap(), 1);
            let error = receive(exchange, 0, 1).unwrap_err();
            assert!(matches!(
                error,
                CommError::RankEnded(EndedRank { rank: 0, .. })
            ));
        },
    );
}

/// A window's two phases: its owner writes, shares, and writes again once the reader is done. Loom
/// reports a race if a read and a write are not ordered.
#[test]
fn fill_and_read_phases_do_not_overlap() {
    model::<Option<Arc<UnsafeCell<u8>>>>(
        |exchange| {
            let memory = Arc::new(UnsafeCell::new(0));
            memory.with_mut(|_| ());
            exchange.send(route(0, 1), Some(Arc::clone(&memory)));
            receive(exchange, 1, 0).unwrap();
            memory.with_mut(|_| ());
        },
        |exchange| {
            let memory = receive(exchange, 0, 1).unwrap().expect("shared memory");
            memory.with(|_| ());
            drop(memory);
            exchange.send(route(1, 0), None);
        },
    );
}

/// Of two failures one counts, and both ranks get the same one.
#[test]
fn one_failure_is_the_first() {
    model::<u8>(
        |exchange| {
            exchange.fail(0, "zero".to_string());
            let first = exchange.failed_rank().unwrap();
            let error = exchange.failure().unwrap_err();
            assert!(
                matches!(error, CommError::RankFailed(FailedRank { rank, .. }) if rank == first)
            );
        },
        |exchange| {
            exchange.fail(1, "one".to_string());
            let first = exchange.failed_rank().unwrap();
            let error = receive(exchange, 0, 1).unwrap_err();
            assert!(
                matches!(error, CommError::RankFailed(FailedRank { rank, .. }) if rank == first)
            );
        },
    );
}
