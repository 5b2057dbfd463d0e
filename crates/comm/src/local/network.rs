//! A modelled network between threads: messages arrive when a link of a given rate would have carried them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Links of all ranks; each carries one message at a time in each direction.
pub(crate) struct Network {
    pub(crate) bytes_per_s: f64,
    /// By rank: when its link becomes free, for sending and for receiving.
    busy: Mutex<Vec<[Option<Instant>; 2]>>,
}

impl Network {
    pub(crate) fn new(ranks: usize, bytes_per_s: f64) -> Network {
        Network {
            bytes_per_s,
            busy: Mutex::new(vec![[None; 2]; ranks]),
        }
    }

    /// When a message that is sent at `now` has arrived.
    pub(crate) fn arrival(&self, from: usize, to: usize, bytes: usize, now: Instant) -> Instant {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = [busy[from][0], busy[to][1]].into_iter().flatten();
        let begins = begins.max().map_or(now, |free| free.max(now));
        let ends = begins + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        busy[from][0] = Some(ends);
        busy[to][1] = Some(ends);
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommError, Reduction, run_ranks, run_ranks_over};

    #[test]
    fn a_link_carries_one_message_at_a_time_each_way() {
        let network = Network::new(3, 1e6);
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert_eq!(network.arrival(0, 1, 1_000_000, start), at(1.0));
        // Rank 0 still sends; then rank 1 still receives; other directions are free.
        assert_eq!(network.arrival(0, 2, 500_000, start), at(1.5));
        assert_eq!(network.arrival(2, 1, 250_000, start), at(1.25));
        assert_eq!(network.arrival(1, 0, 2_000_000, start), at(2.0));
        assert_eq!(network.arrival(1, 0, 1_000_000, at(5.0)), at(6.0));
    }

    #[test]
    fn messages_take_their_time_and_stay_what_they_are() {
        let job = |comm: crate::Comm| {
            let mut values: Vec<u64> = (0..50_000).map(|i| i * (comm.rank() as u64 + 1)).collect();
            comm.all_reduce(&mut values, Reduction::Sum)?;
            comm.barrier()?;
            Ok::<_, CommError>((values, comm.modelled_bytes_per_s()))
        };
        let start = Instant::now();
        let slow = run_ranks_over(Some(4e6), 3, job).unwrap();
        let took = start.elapsed().as_secs_f64();
        // A third of 400 kB to each of the others, and the sums back: 4 x 133 kB out of each rank.
        assert!((0.13..1.0).contains(&took), "{took}");
        let fast = run_ranks(3, job).unwrap();
        for (slow, fast) in slow.into_iter().zip(fast) {
            assert_eq!(slow.0, fast.0);
            assert_eq!((slow.1, fast.1), (Some(4e6), None));
        }
    }

    #[test]
    fn overlap_hides_what_travels() {
        let took = |overlap: bool| {
            let start = Instant::now();
            let job = |comm: crate::Comm| {
                let pending = comm.start_all_gather(vec![0u8; 200_000])?;
                if !overlap {
                    pending.wait()?;
                    std::thread::sleep(Duration::from_millis(200));
                    return Ok::<_, CommError>(());
                }
                std::thread::sleep(Duration::from_millis(200));
                pending.wait().map(drop)
            };
            run_ranks_over(Some(1e6), 2, job).unwrap();
            start.elapsed()
        };
        let (hidden, waited) = (took(true), took(false));
        assert!(
            waited >= Duration::from_millis(400) && hidden < waited,
            "{hidden:?} {waited:?}"
        );
    }

    #[test]
    fn a_failed_rank_ends_waits() {
        let failed = run_ranks_over(Some(1e3), 2, |comm| match comm.rank() {
            0 => Err(CommError::NoSuchRank { rank: 9, size: 2 }),
            _ => comm.receive_vec::<u8>(0, 1).map(drop),
        });
        assert_eq!(failed.unwrap_err().rank, 0);
    }
}
