//! Samples held because they are repeated.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::sample::Sample;

/// One example that is repeated.
///
/// Holds the record's bytes until they are first decoded, and from then on the sample, as long as all such samples
/// fit their allowance; otherwise the bytes stay and are decoded again each time. The bytes also stay if echo repeats
/// records as read.
#[derive(Debug)]
pub(crate) struct HeldSample {
    pub label: u32,
    record: Mutex<Option<Arc<[u8]>>>,
    sample: OnceLock<Result<Arc<Sample<'static>>, String>>,
    allowance: Arc<Allowance>,
    taken: AtomicU64,
}

/// Bytes that decoded samples may take together.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: AtomicU64,
    /// Number of samples decoded again for lack of memory.
    pub again: AtomicU64,
}

impl Allowance {
    pub fn new(bytes: u64) -> Arc<Allowance> {
        Arc::new(Allowance {
            left: AtomicU64::new(bytes),
            again: AtomicU64::new(0),
        })
    }

    fn take(&self, bytes: u64) -> bool {
        self.left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes))
            .is_ok()
    }
}

/// The available form of a held example.
pub(crate) enum HeldState {
    /// The sample, made before.
    Sample(Arc<Sample<'static>>),
    /// The record, still to be decoded.
    Record(Arc<[u8]>),
    /// Why it could not be made.
    Failed(String),
}

impl HeldSample {
    pub fn new(label: u32, record: &[u8], allowance: &Arc<Allowance>) -> Arc<HeldSample> {
        Arc::new(HeldSample {
            label,
            record: Mutex::new(Some(record.into())),
            sample: OnceLock::new(),
            allowance: Arc::clone(allowance),
            taken: AtomicU64::new(0),
        })
    }

    pub fn get(&self) -> HeldState {
        match self.sample.get() {
            Some(Ok(sample)) => return HeldState::Sample(Arc::clone(sample)),
            Some(Err(problem)) => return HeldState::Failed(problem.clone()),
            None => {}
        }
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        match &*record {
            Some(record) => HeldState::Record(Arc::clone(record)),
            // Another thread has stored the sample since the check above.
            None => match self.sample.get() {
                Some(Ok(sample)) => HeldState::Sample(Arc::clone(sample)),
                Some(Err(problem)) => HeldState::Failed(problem.clone()),
                None => unreachable!("the record goes only when the sample is there"),
            },
        }
    }

    /// Keeps the record's samples for repeats, if memory allows.
    pub fn put(&self, sample: &Arc<Sample<'static>>) {
        let bytes = sample.data_bytes() as u64;
        if self.sample.get().is_some() {
            return;
        }
        if !self.allowance.take(bytes) {
            self.allowance.again.fetch_add(1, Relaxed);
            return;
        }
        if self.sample.set(Ok(Arc::clone(sample))).is_ok() {
            self.taken.store(bytes, Relaxed);
            *self.record.lock().unwrap_or_else(PoisonError::into_inner) = None;
        } else {
            self.allowance.left.fetch_add(bytes, Relaxed);
        }
    }

    pub fn fail(&self, problem: &str) {
        if self.sample.set(Err(problem.to_owned())).is_ok() {
            *self.record.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

impl Drop for HeldSample {
    fn drop(&mut self) {
        let taken = *self.taken.get_mut();
        self.allowance.left.fetch_add(taken, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_held_within_the_allowance() {
        let allowance = Allowance::new(10);
        let sample = Arc::new(Sample::new(&"bytes".into(), vec![1u8; 8].into()));
        let first = HeldSample::new(0, b"record", &allowance);
        let second = HeldSample::new(0, b"other", &allowance);
        assert!(matches!(first.get(), HeldState::Record(record) if &*record == b"record"));
        first.put(&sample);
        second.put(&sample);
        assert!(matches!(first.get(), HeldState::Sample(held) if Arc::ptr_eq(&held, &sample)));
        assert!(matches!(second.get(), HeldState::Record(_)), "no room");
        assert_eq!(allowance.again.load(Relaxed), 1);
        drop(first);
        second.put(&sample);
        assert!(matches!(second.get(), HeldState::Sample(_)), "room again");
        let third = HeldSample::new(0, b"bad", &allowance);
        third.fail("it is bad");
        assert!(matches!(third.get(), HeldState::Failed(problem) if problem == "it is bad"));
    }
}
