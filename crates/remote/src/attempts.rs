//! Repeats a request as often as that may help, with pauses between.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::{Either, select};
use pelton_key::splitmix64;
use pelton_storage::{StorageError, StorageErrorKind};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::answer::LAST;
use crate::failure::{Failure, Kind};
use crate::options::RemoteOptions;

/// State that all files share.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) options: RemoteOptions,
    pub(crate) permits: Semaphore,
    /// Why some request failed until its deadline. That ends the run, so requests in flight end too, instead of
    /// waiting for their own deadlines.
    pub(crate) gave_up: watch::Sender<Option<Failure>>,
    pub(crate) interrupt: Arc<AtomicBool>,
}

/// Makes attempts until one succeeds, one fails for good, or the next would begin after `deadline`; messages use
/// `url`. Between attempts the permit is released.
pub(crate) async fn again<T>(
    limits: &Limits,
    url: &str,
    bytes: Option<Range<u64>>,
    deadline: Duration,
    attempt: impl AsyncFnMut() -> Result<T, Failure>,
) -> Result<T, StorageError> {
    let mut gave_up = limits.gave_up.subscribe();
    let of_another = async {
        let changed = gave_up.changed().await;
        let failure = changed.ok().and_then(|()| gave_up.borrow().clone());
        failure.unwrap_or_else(|| Failure::passing("nothing more is asked for"))
    };
    let attempts = attempts(limits, url, bytes.clone(), deadline, attempt);
    match select(pin!(attempts), pin!(of_another)).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right((failure, _)) => Err(error(failure, url, bytes, 1, Duration::ZERO)),
    }
}

async fn attempts<T>(
    limits: &Limits,
    url: &str,
    bytes: Option<Range<u64>>,
    deadline: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, Failure>,
) -> Result<T, StorageError> {
    let began = Instant::now();
    let mut attempts = 0;
    loop {
        let permit = limits.permits.acquire().await;
        attempts += 1;
        let left = deadline.saturating_sub(began.elapsed());
        let noted = LAST.scope(Default::default(), timeout(left, attempt()));
        let failure = match noted.await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::passing("what was asked for did not come whole"),
        };
        drop(permit);
        let pause = pause_after(attempts);
        if failure.kind != Kind::Passing || began.elapsed() + pause >= deadline {
            if failure.kind == Kind::Passing {
                limits.gave_up.send_replace(Some(failure.clone()));
            }
            return Err(error(failure, url, bytes, attempts, began.elapsed()));
        }
        tracing::debug!(url, what = %failure.what, attempts, ?pause, "asked for again");
        tokio::time::sleep(pause).await;
    }
}

/// The error for a failure after `attempts`.
pub(crate) fn error(
    failure: Failure,
    url: &str,
    bytes: Option<Range<u64>>,
    attempts: u32,
    took: Duration,
) -> StorageError {
    let Failure {
        kind,
        mut what,
        remedy,
        ..
    } = failure;
    if kind == Kind::Changed {
        return StorageError::changed(url, what);
    }
    if attempts > 1 {
        what += &format!(", after {attempts} attempts in {:.0} s", took.as_secs_f64());
    }
    let of_bytes = bytes.map_or_else(String::new, |bytes| {
        format!("bytes {} to {}: ", bytes.start, bytes.end)
    });
    let lasts = kind == Kind::Lasting;
    let what = format!("{of_bytes}{what}; {remedy}");
    StorageError::new(StorageErrorKind::Remote { lasts }, url, what)
}

/// The pause before the next attempt: twice as long each time, and different for each waiting request.
fn pause_after(attempts: u32) -> Duration {
    const FIRST: f64 = 0.1;
    const LONGEST: f64 = 10.0;
    let most = (FIRST * 2f64.powi(attempts.min(16) as i32 - 1)).min(LONGEST);
    let random = (jitter() >> 11) as f64 / (1u64 << 53) as f64;
    Duration::from_secs_f64(most * (0.5 + 0.5 * random))
}

/// Numbers that differ from call to call and from process to process.
pub(crate) fn jitter() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |now| now.as_nanos() as u64);
    splitmix64(nanoseconds ^ splitmix64(CALLS.fetch_add(1, Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_differ() {
        for (attempts, least, most) in [(1, 0.05, 0.1), (4, 0.4, 0.8), (30, 5.0, 10.0)] {
            let pauses: Vec<f64> = (0..50)
                .map(|_| pause_after(attempts).as_secs_f64())
                .collect();
            assert!(
                pauses.iter().all(|pause| (least..=most).contains(pause)),
                "{pauses:?}"
            );
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        }
    }
}
