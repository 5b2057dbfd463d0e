//! The time and the bytes of a feed, by stage.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counters of a feed since it began. Times of several threads are added up unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meters {
    /// Records handed to the consumer.
    pub records: u64,
    /// Batches handed to the consumer.
    pub batches: u64,
    /// Records left out because they could not be read or decoded.
    pub skipped_records: u64,
    /// Ids of those records, in rising order.
    pub skipped_ids: Vec<u64>,
    /// Bytes of the records that were decoded.
    pub used_bytes: u64,
    /// Bytes read from storage, scratch files included.
    pub read_bytes: u64,
    /// Ranges read from storage.
    pub reads: u64,
    /// Bytes written to scratch files.
    pub written_bytes: u64,
    /// Seconds from the start of the feed until its scratch files were ready.
    pub prepare_s: f64,
    /// Seconds that threads waited for reads, or for writes to scratch files.
    pub read_s: f64,
    /// Seconds that threads spent decoding.
    pub decode_s: f64,
    /// Wall seconds during which something was being loaded.
    pub load_s: f64,
    /// Seconds the consumer waited for a batch.
    pub wait_s: f64,
    /// Seconds the consumer spent between batches.
    pub compute_s: f64,
    /// Seconds the consumer's thread spent planning.
    pub plan_s: f64,
    /// Seconds from the start of the feed to its first batch.
    pub first_batch_s: f64,
    /// Wall seconds since the feed began.
    pub wall_s: f64,
    /// Reads in flight on average while any was: read time of all ranges over load time.
    pub mean_queue_depth: f64,
    /// Changes that could make loading faster.
    pub remedies: Remedies,
}

/// Changes that could make loading faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remedies {
    /// Packing: some of the data is text.
    pub packing: bool,
    /// More threads: there are idle processors.
    pub threads: bool,
    /// More memory or another access path: the data is not merely read once from end to end.
    pub memory: bool,
}

impl Meters {
    /// Bytes read from storage over bytes used: 1 is ideal, 0 when nothing was used.
    pub fn read_amplification(&self) -> f64 {
        ratio(self.read_bytes as f64, self.used_bytes as f64)
    }

    /// Seconds during which loading and computing happened at the same time.
    pub fn overlap_s(&self) -> f64 {
        (self.load_s - self.wait_s).clamp(0.0, self.load_s)
    }

    /// Whether the consumer waited, for which stage, and what would help.
    pub fn verdict(&self) -> Verdict {
        let waiting = ratio(self.wait_s, self.wait_s + self.compute_s);
        let stage = if self.read_s >= self.decode_s {
            "read"
        } else {
            "decode"
        };
        Verdict {
            waiting,
            stage,
            remedies: self.remedies,
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Answer to "was I input-bound, at which stage, and what would fix it?".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Share of the consumer's time spent waiting for batches, 0 to 1.
    pub waiting: f64,
    /// The stage that took most of the loading threads' time: `read` or `decode`.
    pub stage: &'static str,
    /// Changes that would help.
    pub remedies: Remedies,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.waiting;
        if self.waiting < 0.1 {
            write!(
                f,
                "compute-bound: the trainer waited {percent:.0} % of the time for data"
            )
        } else if self.stage == "read" {
            let help = if self.remedies.memory {
                "more memory, another access path or a faster device"
            } else {
                "a faster device"
            };
            write!(
                f,
                "input-bound: reading, the trainer waited {percent:.0} % of the time; {help} would help"
            )
        } else {
            let help = match (self.remedies.threads, self.remedies.packing) {
                (true, true) => "more threads or `pelton pack`",
                (true, false) => "more threads",
                (false, true) => "`pelton pack`",
                (false, false) => "a faster processor",
            };
            write!(
                f,
                "input-bound: decoding, the trainer waited {percent:.0} % of the time; {help} would help"
            )
        }
    }
}

/// The shared counters behind [`Meters`].
#[derive(Debug)]
pub struct MeterCounters {
    began: Instant,
    /// Bytes of the records that were used.
    pub used_bytes: AtomicU64,
    /// Bytes read from storage.
    pub read_bytes: AtomicU64,
    /// Ranges read from storage.
    pub reads: AtomicU64,
    written_bytes: AtomicU64,
    /// Records left out as bad.
    pub skipped_records: AtomicU64,
    read_ns: AtomicU64,
    read_depth_ns: AtomicU64,
    decode_ns: AtomicU64,
    prepare_ns: AtomicU64,
    busy: Mutex<Busy>,
    remedies: Remedies,
}

#[derive(Debug, Default)]
struct Busy {
    active: u32,
    since: Option<Instant>,
    total: Duration,
}

impl MeterCounters {
    /// Counters that begin now.
    pub fn new(remedies: Remedies) -> MeterCounters {
        MeterCounters {
            began: Instant::now(),
            used_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            skipped_records: AtomicU64::new(0),
            read_ns: AtomicU64::new(0),
            read_depth_ns: AtomicU64::new(0),
            decode_ns: AtomicU64::new(0),
            prepare_ns: AtomicU64::new(0),
            busy: Mutex::new(Busy::default()),
            remedies,
        }
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Counts one batch of reads: `ranges` ranges of `bytes` bytes together, done in `took`.
    pub fn count_read(&self, ranges: u64, bytes: u64, took: Duration) {
        self.reads.fetch_add(ranges, Relaxed);
        self.read_bytes.fetch_add(bytes, Relaxed);
        let nanoseconds = took.as_nanos() as u64;
        self.read_ns.fetch_add(nanoseconds, Relaxed);
        self.read_depth_ns.fetch_add(nanoseconds * ranges, Relaxed);
    }

    /// Counts one finished read of `bytes` bytes that was in flight for `took` while its thread
    /// worked or waited.
    pub(crate) fn count_block_read(&self, bytes: u64, took: Duration) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes, Relaxed);
        self.read_depth_ns
            .fetch_add(took.as_nanos() as u64, Relaxed);
    }

    /// Counts time that a thread waited for reads or writes in flight.
    pub(crate) fn count_wait(&self, took: Duration) {
        self.read_ns.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn count_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn count_decode(&self, used_bytes: u64, took: Duration) {
        self.used_bytes.fetch_add(used_bytes, Relaxed);
        self.decode_ns.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn prepared(&self) {
        self.prepare_ns
            .store(self.began.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Marks a loading task as running until the guard is dropped.
    pub fn loading(&self) -> impl Drop + '_ {
        self.change_active(true);
        Loading(self)
    }

    fn change_active(&self, enter: bool) {
        let mut busy = self.busy.lock().expect("no holder of this lock panics");
        if enter {
            busy.active += 1;
            busy.since.get_or_insert_with(Instant::now);
        } else {
            busy.active -= 1;
            if busy.active == 0
                && let Some(since) = busy.since.take()
            {
                busy.total += since.elapsed();
            }
        }
    }

    fn load_time(&self) -> Duration {
        let busy = self.busy.lock().expect("no holder of this lock panics");
        busy.total + busy.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Adds the shared counters to those the consumer keeps itself.
    pub fn fill(&self, meters: &mut Meters) {
        let seconds = |counter: &AtomicU64| counter.load(Relaxed) as f64 * 1e-9;
        meters.used_bytes = self.used_bytes.load(Relaxed);
        meters.read_bytes = self.read_bytes.load(Relaxed);
        meters.reads = self.reads.load(Relaxed);
        meters.written_bytes = self.written_bytes.load(Relaxed);
        meters.skipped_records = self.skipped_records.load(Relaxed);
        meters.read_s = seconds(&self.read_ns);
        meters.decode_s = seconds(&self.decode_ns);
        meters.prepare_s = seconds(&self.prepare_ns);
        meters.load_s = self.load_time().as_secs_f64();
        meters.mean_queue_depth = ratio(seconds(&self.read_depth_ns), meters.load_s);
        meters.wall_s = self.began.elapsed().as_secs_f64();
        meters.remedies = self.remedies;
    }
}

struct Loading<'a>(&'a MeterCounters);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.change_active(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(read_s: f64, [packing, threads, memory]: [bool; 3], expected: &str) {
        let meters = Meters {
            wait_s: 3.0,
            compute_s: 1.0,
            read_s,
            decode_s: 1.0,
            remedies: Remedies {
                packing,
                threads,
                memory,
            },
            ..Meters::default()
        };
        let said = meters.verdict().to_string();
        let (_, advice) = said.split_once("75 % of the time; ").expect("the share");
        assert_eq!(advice, format!("{expected} would help"));
    }

    #[test]
    fn only_what_can_help_is_advised() {
        check(0.0, [true, true, true], "more threads or `pelton pack`");
        check(0.0, [true, false, true], "`pelton pack`");
        check(0.0, [false, true, true], "more threads");
        check(0.0, [false, false, true], "a faster processor");
        check(2.0, [true, true, false], "a faster device");
        let all = "more memory, another access path or a faster device";
        check(2.0, [true, true, true], all);
    }
}
