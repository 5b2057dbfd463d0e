//! Samples kept in memory from one epoch to the next.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use pelton_batch::FieldSpecs;

use crate::sample::{Sample, Value};
use crate::stage::{Appearance, Slots, Stage, StageFailure, When};

/// Stages whose output is kept in memory by record, as far as it has room, and copied in later epochs. The output must
/// depend on the record alone, not on [`Appearance::key`].
///
/// The first samples are kept, and none gives way to another: an epoch in random order uses all equally often, so no other
/// choice would be found more often. Records are read each time, but not decoded.
pub struct Kept {
    stages: Vec<Arc<dyn Stage>>,
    samples: Mutex<HashMap<u64, Arc<[Field]>>>,
    /// Bytes that are free.
    room: AtomicU64,
    found: AtomicU64,
    /// What the stages keep between examples, for threads that are not in them.
    works: Mutex<Vec<Works>>,
}

type Field = (Arc<str>, Value<'static>);
type Works = Vec<Box<dyn Any + Send>>;
type Together<'s, 'r> = (&'s mut Sample<'r>, Appearance);

/// Bytes of a kept field besides its values, about.
const FIELD_BYTES: u64 = 128;

impl Kept {
    /// The output of `stages`, at most `bytes` of it.
    pub fn new(stages: Vec<Arc<dyn Stage>>, bytes: u64) -> Kept {
        Kept {
            stages,
            samples: Mutex::default(),
            room: AtomicU64::new(bytes),
            found: AtomicU64::new(0),
            works: Mutex::default(),
        }
    }

    /// Whether the sample was kept; then it is now that.
    fn find(&self, sample: &mut Sample<'_>, id: u64) -> bool {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = samples.get(&id).cloned() else {
            return false;
        };
        drop(samples);
        self.found.fetch_add(1, Relaxed);
        sample.set_all(kept.to_vec());
        true
    }

    fn keep(&self, sample: &Sample<'_>, id: u64) {
        let fields = sample.iter().count() as u64;
        let bytes = sample.data_bytes() as u64 + FIELD_BYTES * fields;
        let took = { &self.room }.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(bytes));
        if took.is_err() {
            return;
        }
        let owned: Arc<[Field]> = sample.copied().collect();
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.insert(id, owned).is_some() {
            self.room.fetch_add(bytes, Relaxed);
        }
    }

    fn with_works<T>(&self, run: impl FnOnce(&mut Works) -> T) -> T {
        let free = || self.works.lock().unwrap_or_else(PoisonError::into_inner);
        let works = free().pop();
        let mut works =
            works.unwrap_or_else(|| self.stages.iter().map(|stage| stage.work()).collect());
        let done = run(&mut works);
        free().push(works);
        done
    }
}

impl Stage for Kept {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String> {
        { self.stages.iter() }.try_fold(input, |fields, stage| stage.spec(fields))
    }

    fn when(&self) -> When {
        self.stages.last().map_or(When::Read, |last| last.when())
    }

    fn is_open(&self) -> bool {
        self.stages.iter().any(|stage| stage.is_open())
    }

    fn makes_one_shape(&self) -> bool {
        self.stages.iter().any(|stage| stage.makes_one_shape())
    }

    fn fingerprint(&self) -> Option<u64> {
        let digests = self.stages.iter().filter_map(|stage| stage.fingerprint());
        digests.reduce(|all, next| all.rotate_left(7) ^ next)
    }

    fn bytes(&self, input: u64) -> u64 {
        { self.stages.iter() }.fold(input, |bytes, stage| stage.bytes(bytes))
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        _: &mut Slots<'_>,
        at: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let results = self.run_together(&mut [(sample, *at)]);
        results.into_iter().next().unwrap_or(Ok(()))
    }

    fn together(&self) -> usize {
        let each = self.stages.iter().map(|stage| stage.together());
        each.max().unwrap_or(1)
    }

    fn run_together(&self, samples: &mut [Together<'_, '_>]) -> Vec<Result<(), StageFailure>> {
        let mut results: Vec<_> = samples.iter().map(|_| Ok(())).collect();
        let mut going: Vec<usize> = (0..samples.len())
            .filter(|i| {
                let (sample, at) = &mut samples[*i];
                !self.find(sample, at.id)
            })
            .collect();
        if going.is_empty() {
            return results;
        }
        self.with_works(|works| {
            for (stage, work) in self.stages.iter().zip(works) {
                let mut done = Vec::with_capacity(going.len());
                if stage.together() > 1 {
                    let mut wanted = going.iter().copied().peekable();
                    let some = samples.iter_mut().enumerate();
                    let some = some.filter(|(i, _)| wanted.next_if_eq(i).is_some());
                    let mut some: Vec<Together<'_, '_>> =
                        some.map(|(_, (sample, at))| (&mut **sample, *at)).collect();
                    for part in some.chunks_mut(stage.together()) {
                        done.extend(stage.run_together(part));
                    }
                } else {
                    for i in &going {
                        let (sample, at) = &mut samples[*i];
                        done.push(stage.run(sample, &mut Slots::default(), at, &mut **work));
                    }
                }
                let mut left = Vec::with_capacity(going.len());
                for (i, result) in going.iter().zip(done) {
                    match result {
                        Ok(()) => left.push(*i),
                        wrong => results[*i] = wrong,
                    }
                }
                going = left;
            }
        });
        for i in going {
            self.keep(samples[i].0, samples[i].1.id);
        }
        results
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        let inner = self.stages.iter().flat_map(|stage| stage.counted());
        let found = ("samples from the cache", self.found.load(Relaxed));
        inner.chain([found]).collect()
    }
}
