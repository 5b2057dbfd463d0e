//! Signs of life between processes: how long a rank has been silent.
//!
//! Each rank sends one every few seconds from a separate thread, so long computations do not count as silence.
//! A rank without a heartbeat for a minute has stopped, or its machine or the link to it is down: without this
//! a wait for it would never end. Only transports between processes use it; threads of one process do not need it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::CommError;

/// Seconds of silence that end a job, to override [`LIMIT`]; the same for all ranks.
const VARIABLE: &str = "PELTON_HEARTBEAT_SECONDS";
/// Far longer than a machine swaps or a network finds another path, far shorter than a night.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest time between two signs of life.
const LONGEST: Duration = Duration::from_secs(5);
/// Signs of life within the limit, at least.
const BEATS: u32 = 12;
/// Marks a rank that is no longer waited for.
const ENDED: u64 = u64::MAX;

/// The limit that the user set, or a minute.
///
/// Errors: a value that is not a number of seconds above 0.
pub(crate) fn limit() -> Result<Duration, CommError> {
    match std::env::var_os(VARIABLE) {
        None => Ok(LIMIT),
        Some(value) => seconds(&value.to_string_lossy()),
    }
}

fn seconds(value: &str) -> Result<Duration, CommError> {
    let seconds = value.trim().parse().ok();
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit
        .filter(|limit| *limit >= Duration::from_millis(1))
        .ok_or_else(|| CommError::Setting {
            variable: VARIABLE,
            value: value.to_string(),
        })
}

/// When each rank was last heard of.
pub(crate) struct Heartbeat {
    limit: Duration,
    began: Instant,
    /// By rank, in milliseconds since `began`.
    heard: Vec<AtomicU64>,
    /// The last check for silence.
    looked: AtomicU64,
}

impl Heartbeat {
    /// For this many ranks, which may be silent until `grace` is over.
    pub(crate) fn new(ranks: usize, limit: Duration, grace: Duration) -> Heartbeat {
        let first = grace.as_millis() as u64;
        Heartbeat {
            limit,
            began: Instant::now(),
            heard: (0..ranks).map(|_| AtomicU64::new(first)).collect(),
            looked: AtomicU64::new(0),
        }
    }

    /// Time between two heartbeats, and between two checks for silence.
    pub(crate) fn every(&self) -> Duration {
        (self.limit / BEATS).clamp(Duration::from_millis(1), LONGEST)
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// `rank` has said something.
    pub(crate) fn hear(&self, rank: usize) {
        let now = self.now();
        // Also if it was not expected to report before the grace period is over.
        let unless_ended = |heard| (heard != ENDED).then_some(now);
        let relaxed = Ordering::Relaxed;
        let _ = self.heard[rank].fetch_update(relaxed, relaxed, unless_ended);
    }

    /// `rank` has said that it ends, or is known to have failed.
    pub(crate) fn end(&self, rank: usize) {
        self.heard[rank].store(ENDED, Ordering::Relaxed);
    }

    /// A rank other than `own` that was silent for too long, and a text with the possible causes.
    pub(crate) fn silent(&self, own: usize) -> Option<(usize, String)> {
        self.silent_at(self.now(), own)
    }

    fn silent_at(&self, now: u64, own: usize) -> Option<(usize, String)> {
        let limit = self.limit.as_millis() as u64;
        // A rank that did not look, since it was stopped or its machine is overloaded, cannot judge that time: messages of
        // the others are still queued.
        let gap = now.saturating_sub(self.looked.swap(now, Ordering::Relaxed));
        let lost = gap.saturating_sub(2 * self.every().as_millis() as u64);
        let later = |heard: u64| {
            let moved = heard.saturating_add(lost).min(now);
            (heard < moved).then_some(moved)
        };
        for heard in self.heard.iter().filter(|_| lost > 0) {
            let _ = heard.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        }
        let silent = |heard: &AtomicU64| {
            let heard = heard.load(Ordering::Relaxed);
            now.saturating_sub(heard) > limit
        };
        let found = (0..self.heard.len()).find(|&rank| rank != own && silent(&self.heard[rank]))?;
        let reason = format!(
            "no heartbeat for {} s; its process was stopped, or its machine or the link to it is down",
            self.limit.as_secs_f64()
        );
        Some((found, reason))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_is_found_and_who_stood_still_accuses_nobody() {
        let beats = Heartbeat::new(3, Duration::from_secs(1), Duration::from_secs(2));
        let silent = |at: u64| beats.silent_at(at, 0).map(|(rank, _)| rank);
        // Within the grace, at the limit, and beyond it.
        for at in (0..=3000).step_by(100) {
            assert_eq!(silent(at), None);
        }
        beats.heard[2].store(3200, Ordering::Relaxed);
        assert_eq!(silent(3001), Some(1));
        let reason = beats.silent_at(3001, 0).unwrap().1;
        assert!(reason.starts_with("no heartbeat for 1 s; "), "{reason}");
        beats.heard[1].store(3000, Ordering::Relaxed);
        // Two seconds on: this rank did not look in between, but for the 166 ms of two heartbeats.
        assert_eq!(silent(5001), None);
        for at in (5101..=5801).step_by(100) {
            assert_eq!(silent(at), None);
        }
        assert_eq!(silent(5901), Some(1));
        // It looks twice a second only: of that, too, 166 ms count.
        beats.heard[1].store(5901, Ordering::Relaxed);
        beats.end(2);
        for at in (6401..=8401).step_by(500) {
            assert_eq!(silent(at), None);
        }
        assert_eq!(beats.heard[1].load(Ordering::Relaxed), 5901 + 5 * 334);
        assert_eq!(silent(8501), None);
        assert_eq!(silent(8601), Some(1));
    }

    #[test]
    fn limits_are_seconds() {
        assert_eq!(seconds("90").unwrap(), Duration::from_secs(90));
        assert_eq!(seconds(" 0.5 ").unwrap(), Duration::from_millis(500));
        for wrong in ["", "0", "-1", "nan", "inf", "a minute", "1e99"] {
            let error = seconds(wrong).unwrap_err().to_string();
            let begin = format!("PELTON_HEARTBEAT_SECONDS is `{wrong}`");
            assert!(error.starts_with(&begin), "{error}");
        }
        let long = Heartbeat::new(1, Duration::from_secs(6000), Duration::ZERO);
        assert_eq!(long.every(), LONGEST);
    }
}
