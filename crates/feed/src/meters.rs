//! The time of a loader, stage by stage.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

use pelton_fetch::Meters;

/// Work of one stage since the loader began. Times of several threads are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageMeters {
    /// Name of the stage: `read`, `decode`, `map`, `augment`, `collate` or `echo`.
    pub name: &'static str,
    /// Threads that serve it.
    pub threads: u64,
    /// Seconds of work.
    pub busy_s: f64,
    /// Seconds that its threads had nothing to do, or waited for room.
    pub wait_s: f64,
    /// Examples it worked on.
    pub records: u64,
    /// Bytes it put out.
    pub bytes: u64,
}

impl StageMeters {
    /// Share of its threads' time spent working, over `wall_s` seconds.
    pub fn occupancy(&self, wall_s: f64) -> f64 {
        let whole = wall_s * self.threads as f64;
        if whole > 0.0 {
            self.busy_s / whole
        } else {
            0.0
        }
    }
}

/// Counters of a loader since it began.
#[derive(Clone, Debug, Default)]
pub struct LoaderMeters {
    /// Reading, as the feed below counts it.
    pub feed: Meters,
    /// The stages in the order in which records pass them.
    pub stages: Vec<StageMeters>,
    /// Batches handed to the consumer.
    pub batches: u64,
    /// Examples returned for the first time in their epoch.
    pub fresh_examples: u64,
    /// Repeats of examples.
    pub echoed_examples: u64,
    /// Elements of batches that are padding.
    pub padded_elements: u64,
    /// All elements of batches.
    pub elements: u64,
    /// Bytes of batches.
    pub batch_bytes: u64,
    /// Examples left out as bad.
    pub skipped_examples: u64,
    /// Examples replaced by others of their batch.
    pub replaced_examples: u64,
    /// The first of them.
    pub bad_examples: Vec<crate::BadExample>,
    /// Samples that were decoded again because the memory for repeats was full.
    pub decoded_again: u64,
    /// Records read again because their repeat fell to another rank, or the run was resumed between.
    pub read_again: u64,
    /// Counters of stages, by name.
    pub counted: Vec<(&'static str, u64)>,
    /// Bytes of files that records are copied from once those are in memory.
    pub resident_bytes: u64,
    /// Seconds the consumer waited for a batch.
    pub wait_s: f64,
    /// Seconds the consumer spent between batches.
    pub compute_s: f64,
    /// Seconds from the start to the first batch.
    pub first_batch_s: f64,
    /// Wall seconds since the loader began.
    pub wall_s: f64,
}

impl LoaderMeters {
    /// The stages' counter with this name.
    pub fn counted(&self, name: &str) -> u64 {
        let of_name = self.counted.iter().filter(|(known, _)| *known == name);
        of_name.map(|(_, count)| count).sum()
    }

    /// Padding over all elements.
    pub fn padded_fraction(&self) -> f64 {
        if self.elements == 0 {
            return 0.0;
        }
        self.padded_elements as f64 / self.elements as f64
    }

    /// Whether the consumer waited, for which stage, and what would help.
    pub fn verdict(&self) -> StageVerdict {
        let busiest = self.stages.iter().max_by(|a, b| {
            a.occupancy(self.wall_s)
                .total_cmp(&b.occupancy(self.wall_s))
        });
        let waited = self.wait_s - self.first_batch_s.min(self.wait_s);
        let spent = waited + self.compute_s;
        StageVerdict {
            waiting: if spent > 0.0 { waited / spent } else { 0.0 },
            stage: busiest.copied().unwrap_or_default(),
            occupancy: busiest.map_or(0.0, |stage| stage.occupancy(self.wall_s)),
            idle_processors: self.feed.remedies.threads,
            echo: self.free_echo(),
        }
    }

    /// The echo factor up to which repeats would fill the consumer's waiting: t_up/t_down (Choi et al.,
    /// arXiv 1907.05550, section 3), on top of the one in use.
    fn free_echo(&self) -> f64 {
        let waited = self.wait_s - self.first_batch_s.min(self.wait_s);
        if self.compute_s <= 0.0 || self.fresh_examples == 0 {
            return 1.0;
        }
        let used = (self.fresh_examples + self.echoed_examples) as f64 / self.fresh_examples as f64;
        used * (waited + self.compute_s) / self.compute_s
    }
}

/// Answer to "was I input-bound, at which stage, and what would fix it?".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageVerdict {
    /// Share of the consumer's time spent waiting, the first batch aside.
    pub waiting: f64,
    /// The stage with the busiest threads.
    pub stage: StageMeters,
    /// How busy they were, 0 to 1.
    pub occupancy: f64,
    /// Whether there are processors without a thread.
    pub idle_processors: bool,
    /// The echo factor that would cost no time.
    pub echo: f64,
}

impl fmt::Display for StageVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = 100.0 * self.waiting;
        if self.waiting < 0.1 {
            return write!(
                f,
                "compute-bound: the consumer waited {waiting:.0} % of the time for data"
            );
        }
        let StageMeters { name, threads, .. } = self.stage;
        let threads = match threads {
            1 => "1 thread".to_owned(),
            n => format!("{n} threads"),
        };
        write!(
            f,
            "input-bound: {name}, {threads} busy {:.0} % (the consumer waited {waiting:.0} % of the time)",
            100.0 * self.occupancy.min(1.0)
        )?;
        match name {
            "read" => write!(f, "; a faster device or more memory would help")?,
            _ if self.idle_processors => write!(f, "; more threads would help")?,
            _ => {}
        }
        // For a consumer that does no work, any factor looks free.
        if self.echo >= 1.1 && self.waiting < 0.98 {
            // Rounded down, so that the stated factor costs nothing.
            let echo = (self.echo * 10.0).floor() / 10.0;
            write!(f, "; e = {echo} would be free")?;
        }
        Ok(())
    }
}

/// Shared counters of one stage.
#[derive(Debug, Default)]
pub(crate) struct StageCounter {
    pub busy_ns: AtomicU64,
    pub records: AtomicU64,
    pub bytes: AtomicU64,
}

impl StageCounter {
    pub fn count(&self, took: Duration, records: u64, bytes: u64) {
        self.busy_ns.fetch_add(took.as_nanos() as u64, Relaxed);
        self.records.fetch_add(records, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub fn read(&self, name: &'static str, threads: u64, wait_s: f64) -> StageMeters {
        StageMeters {
            name,
            threads,
            busy_s: self.busy_ns.load(Relaxed) as f64 * 1e-9,
            wait_s,
            records: self.records.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

impl StageCounters {
    pub fn new(stages: usize) -> StageCounters {
        StageCounters {
            stages: (0..stages).map(|_| StageCounter::default()).collect(),
            collate: StageCounter::default(),
            idle_ns: AtomicU64::new(0),
        }
    }

    pub fn idle(&self, took: Duration) {
        self.idle_ns.fetch_add(took.as_nanos() as u64, Relaxed);
    }
}

/// Shared counters of the stages after reading.
#[derive(Debug)]
pub(crate) struct StageCounters {
    /// One a stage.
    pub stages: Vec<StageCounter>,
    pub collate: StageCounter,
    /// Nanoseconds that threads waited for work.
    pub idle_ns: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wait_s: f64, compute_s: f64, busy: &[(&'static str, f64)], expected: &str) {
        let stage = |&(name, busy_s): &(&'static str, f64)| StageMeters {
            name,
            threads: 2,
            busy_s,
            ..StageMeters::default()
        };
        let meters = LoaderMeters {
            wait_s: wait_s + 0.5,
            first_batch_s: 0.5,
            compute_s,
            wall_s: wait_s + compute_s + 0.5,
            fresh_examples: 100,
            stages: busy.iter().map(stage).collect(),
            ..LoaderMeters::default()
        };
        assert_eq!(meters.verdict().to_string(), expected);
    }

    #[test]
    fn the_verdict_names_the_busiest_stage_and_what_is_free() {
        let busy = [("read", 1.0), ("decode", 20.37), ("augment", 0.2)];
        check(
            5.0,
            5.0,
            &busy,
            "input-bound: decode, 2 threads busy 97 % (the consumer waited 50 % of the time); e = 2 would be free",
        );
        let busy = [("read", 20.0), ("decode", 1.0)];
        check(
            9.99,
            0.01,
            &busy,
            "input-bound: read, 2 threads busy 95 % (the consumer waited 100 % of the time); a faster device or more memory would help",
        );
        check(
            0.5,
            9.5,
            &busy,
            "compute-bound: the consumer waited 5 % of the time for data",
        );
    }
}
