//! The conformance suite over connections. The ranks are threads here, but share no memory.

#![cfg(not(loom))]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelton_comm::conformance::{
    CASES, FAILURES, REASON, WITHIN, check_comm, check_ends, failing_rank,
};
use pelton_comm::tcp::{Job, Listener};
use pelton_comm::{Comm, CommError, Reduction};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SOON: Duration = Duration::from_secs(20);

fn listeners(ranks: usize) -> (Vec<Listener>, Vec<SocketAddr>) {
    let all: Vec<Listener> = (0..ranks).map(|_| Listener::open(HERE).unwrap()).collect();
    let addresses = all.iter().map(|one| (HERE, one.port().unwrap()).into());
    let addresses = addresses.collect();
    (all, addresses)
}

/// Runs a job on connected ranks; what each came to, by rank.
fn connected<T: Send>(
    ranks: usize,
    job: impl Fn(Comm, Job) -> Result<T, CommError> + Sync,
) -> Vec<Result<T, CommError>> {
    let (listeners, addresses) = listeners(ranks);
    thread::scope(|scope| {
        let run = |(rank, listener): (usize, Listener)| {
            let (addresses, job) = (&addresses, &job);
            scope.spawn(move || {
                let (comm, handle) = listener.connect(rank, addresses, 7, SOON)?;
                job(comm, handle)
            })
        };
        let threads: Vec<_> = listeners.into_iter().enumerate().map(run).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.collect()
    })
}

#[test]
fn all_cases() {
    for ranks in [1, 2, 3, 4, 7] {
        let counted = connected(ranks, |comm, _| {
            let mut names = 0;
            check_comm(&comm, |_| names += 1)?;
            Ok(names)
        });
        for names in counted {
            assert_eq!(names.unwrap(), CASES.len(), "{ranks} ranks");
        }
    }
}

#[test]
fn a_failing_rank_is_named_and_soon() {
    for ranks in [1, 2, 3, 4] {
        for case in FAILURES {
            let start = Instant::now();
            let results = connected(ranks, |comm, job| {
                let result = catch_unwind(AssertUnwindSafe(|| check_ends(*case, &comm)));
                let result = result.unwrap_or_else(|panic| {
                    let message = panic.downcast_ref::<String>().cloned();
                    let message = message.expect("what a panic said");
                    Err(CommError::Panicked { message })
                });
                if let Err(error) = &result {
                    job.fail(&error.to_string());
                }
                result
            });
            for (rank, result) in results.into_iter().enumerate() {
                let message = result.unwrap_err().to_string();
                let named = format!("rank {} failed", failing_rank(ranks));
                let culprit = rank == failing_rank(ranks);
                assert!(message.contains(REASON), "{}: {message}", case.0);
                assert!(culprit || message.starts_with(&named), "{message}");
            }
            assert!(start.elapsed() < WITHIN, "{}", case.0);
        }
    }
}

/// Messages sent before a rank ended arrive, and then its end.
#[test]
fn messages_outlive_their_sender() {
    let results = connected(2, |comm, _| {
        if comm.rank() == 1 {
            comm.send(0, 0, &vec![42_u64; 100_000])?;
            return Ok((0, String::new()));
        }
        thread::sleep(Duration::from_millis(50));
        let arrived = comm.receive_vec::<u64>(1, 0)?;
        let error = comm.receive_vec::<u64>(1, 0).unwrap_err();
        Ok((arrived.len(), error.to_string()))
    });
    let (arrived, error) = results.into_iter().next().unwrap().unwrap();
    assert_eq!(arrived, 100_000);
    assert!(error.starts_with("rank 1 ended while rank 0"), "{error}");
}

/// Another thread can end a wait that would never end.
#[test]
fn a_wait_can_be_ended_from_outside() {
    let results = connected(3, |comm, job| {
        if comm.rank() == 0 {
            let ends = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                job.fail("the user lost patience");
            });
            let error = comm.receive_vec::<u8>(1, 9).unwrap_err();
            ends.join().unwrap();
            return Ok(error.to_string());
        }
        let error = comm.all_reduce(&mut [1.0_f64], Reduction::Sum).unwrap_err();
        Ok(error.to_string())
    });
    for error in results {
        assert_eq!(error.unwrap(), "rank 0 failed: the user lost patience");
    }
}

/// A peer without the token is sent away, whatever it sends, and the ranks connect all the same.
#[test]
fn strangers_are_sent_away() {
    let (mut listeners, addresses) = listeners(2);
    let (far, near) = (listeners.pop().unwrap(), listeners.pop().unwrap());
    let at = addresses.clone();
    let waiting = thread::spawn(move || near.connect(0, &at, 7, SOON).map(|(comm, _)| comm));
    let mut stranger = TcpStream::connect(addresses[0]).unwrap();
    stranger
        .write_all(b"GET / HTTP/1.1\r\nHost: somewhere else\r\n\r\n")
        .unwrap();
    let other = Listener::open(HERE).unwrap();
    let wrong = other.connect(1, &addresses, 8, SOON).unwrap_err();
    assert!(
        matches!(wrong, CommError::Unreachable { rank: 0, .. }),
        "{wrong}"
    );
    let (comm, _) = far.connect(1, &addresses, 7, SOON).unwrap();
    let comm_of_0 = waiting.join().unwrap().unwrap();
    comm.send(0, 0, &[5_u8]).unwrap();
    assert_eq!(comm_of_0.receive_vec::<u8>(1, 0).unwrap(), [5]);
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let (listeners, addresses) = listeners(2);
    let within = Duration::from_millis(100);
    let first = listeners.into_iter().next().unwrap();
    let error = first.connect(0, &addresses, 7, within).unwrap_err();
    let expected = format!("rank 1 cannot be reached at {}", addresses[1]);
    assert!(error.to_string().starts_with(&expected), "{error}");
}

/// Carries bytes between two ranks until `silent` is set, then swallows them: both connections stay open and silent,
/// as with a stopped process or a link that is down.
fn carry(from: TcpStream, to: TcpStream, silent: &'static AtomicBool) {
    thread::spawn(move || {
        let (mut from, mut to) = (from, to);
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            if !silent.load(Ordering::Relaxed) && to.write_all(&bytes[..read]).is_err() {
                return;
            }
        }
    });
}

/// Rank 0 as rank 1 reaches it: through a link that can go down.
fn through_a_link(to: SocketAddr, silent: &'static AtomicBool) -> SocketAddr {
    let ear = TcpListener::bind((HERE, 0)).unwrap();
    let address = ear.local_addr().unwrap();
    thread::spawn(move || {
        let near = ear.accept().unwrap().0;
        let far = TcpStream::connect(to).unwrap();
        carry(near.try_clone().unwrap(), far.try_clone().unwrap(), silent);
        carry(far, near, silent);
    });
    address
}

/// A rank that is silent on an open connection has failed, for both sides; one that computes for longer than the
/// limit is not.
#[test]
fn a_silent_rank_is_named_and_a_busy_one_is_not() {
    static SILENT: AtomicBool = AtomicBool::new(false);
    const LIMIT: Duration = Duration::from_secs(2);
    let arrived = &Barrier::new(2);
    let (listeners, addresses) = listeners(2);
    let ends = thread::scope(|scope| {
        let connect = |(rank, listener): (usize, Listener)| {
            let mut addresses = addresses.clone();
            scope.spawn(move || {
                if rank == 1 {
                    addresses[0] = through_a_link(addresses[0], &SILENT);
                }
                let listener = listener.with_silence(LIMIT);
                let (comm, _job) = listener.connect(rank, &addresses, 7, SOON).unwrap();
                // Both are known to live; now one of them is busy.
                comm.barrier().unwrap();
                if rank == 1 {
                    thread::sleep(2 * LIMIT);
                }
                comm.barrier().unwrap();
                // Not before the messages of that have arrived.
                arrived.wait();
                SILENT.store(true, Ordering::Relaxed);
                let began = Instant::now();
                let error = comm.receive_vec::<u8>(1 - rank, 0).unwrap_err();
                (error.to_string(), began.elapsed())
            })
        };
        let threads: Vec<_> = listeners.into_iter().enumerate().map(connect).collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap());
        ends.collect::<Vec<_>>()
    });
    for (rank, (error, waited)) in ends.into_iter().enumerate() {
        let begin = format!("rank {} failed: no heartbeat for 2 s; ", 1 - rank);
        assert!(error.starts_with(&begin), "rank {rank}: {error}");
        assert!(waited < SOON, "rank {rank} waited {waited:?}");
    }
}
