//! A head over very many classes for training in Python.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, TryLockError};

use numpy::ndarray::Array2;
use numpy::{
    IntoPyArray, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods,
};
use pelton_comm::tcp::Job;
use pelton_comm::{Alike, Comm};
use pelton_data::check_threads;
use pelton_key::mix;
use pelton_run::Interrupt;
use pelton_softmax::{HeadError, HeadOptions, Observed, Rule, Update, class_head};
use pelton_storage::spare_memory;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::{configuration, of_job};
use crate::head_failure::HeadFailure;
use crate::interruptible::interruptible_or;
use crate::listener::{Addresses, connect};
use crate::shared_head::{Piece, SharedHead};

/// This rank's classes of a head, and the threads that compute with them.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Head {
    head: Mutex<SharedHead>,
    d: usize,
    threads: rayon::ThreadPool,
    /// Where there are several ranks.
    job: Option<Job>,
    /// The process that has the threads: one forked from it has none.
    process: u32,
}

type Features<'py> = PyReadonlyArray2<'py, f32>;
type Labels<'py> = PyReadonlyArray1<'py, i64>;
type Numbers<'py> = Bound<'py, PyArray2<f32>>;
/// Mean loss, examples that are right, classes that took part, gradient of the features, ticket.
type ScoredBatch<'py> = (f64, usize, u64, Numbers<'py>, (u64, usize));

#[pymethods]
impl Head {
    /// `size` is classes and features; kind, logits and precision are `spelled` as the command has them; `ways` is
    /// whether sums are corrected, features centred, and losses weighted by class. The weights do not depend on the number
    /// of ranks.
    #[new]
    #[pyo3(signature = (size, spelled, ways, seed, threads, ranks=None))]
    fn new(
        py: Python<'_>,
        size: (u64, usize),
        spelled: (String, String, String),
        ways: (bool, bool, Option<Vec<f32>>),
        seed: u64,
        threads: usize,
        ranks: Option<Addresses<'_>>,
    ) -> PyResult<Head> {
        let (classes, d) = size;
        let (correct, centre, class_weights) = ways;
        if d == 0 || threads == 0 {
            return Err(configuration(format!(
                "{d} features and {threads} threads: there must be at least one of each"
            )));
        }
        check_threads("`threads`", threads).map_err(|error| of_job(py, &error))?;
        let sharing = ranks.as_ref().map_or(1, |ranks| ranks.2.len());
        let needed = 4 * u128::from(classes) * d as u128 / sharing as u128;
        let spare = spare_memory();
        if spare > 0 && needed > u128::from(spare) {
            return Err(configuration(format!(
                "{classes} classes of {d} features need {:.1} GB, but {:.1} GB are available; use fewer, or more ranks",
                needed as f64 / 1e9,
                spare as f64 / 1e9
            )));
        }
        let options = options(size, &spelled, (correct, centre), seed)?;
        let (kind, logits, precision) = spelled;
        let pool = pelton_storage::thread_pool(threads);
        let threads = pool.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let (comm, job) = match ranks {
            None => (Comm::alone(), None),
            Some(ranks) => {
                let (comm, job) = connect(py, &ranks, Vec::new())?;
                (comm, Some(job))
            }
        };
        let weights = class_weights.iter().flatten();
        let digest = weights.fold(0, |digest, x| mix(digest ^ u64::from(x.to_bits())));
        let own = Alike::default()
            .with("the count of classes", classes)
            .with("the count of features", d)
            .with("the kind of head", &kind)
            .with("logits", &logits)
            .with("`precision`", &precision)
            .with("`correct`", correct)
            .with("`centre`", centre)
            .with("the seed", seed)
            .with_digest("class weights with the fingerprint", digest);
        let head = py.detach(|| {
            comm.agree(&own)?;
            let others = comm.duplicate()?;
            let head = threads.install(|| class_head(&options, others))?;
            let budget = options.kind.budget(options.classes, correct).all;
            Ok::<_, HeadFailure>(SharedHead::new(head, comm, seed, class_weights, budget))
        })?;
        Ok(Head {
            head: Mutex::new(head),
            d,
            threads,
            job,
            process: std::process::id(),
        })
    }

    /// Errors: settings that no head has, of one that is made elsewhere.
    #[staticmethod]
    fn check(size: (u64, usize), spelled: (String, String, String)) -> PyResult<()> {
        let options = options(size, &spelled, (true, true), 0)?;
        options.check().map_err(configuration)
    }

    /// Scores a batch for the step; its ticket is for `backward`.
    fn score<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        labels: Labels<'py>,
    ) -> PyResult<ScoredBatch<'py>> {
        let (numbers, labels) = self.examples(&features, &labels)?;
        let scored = self.with_graph(py, |head| head.score(numbers, labels))?;
        let gradient = matrix(py, scored.gradient, self.d)?;
        let (loss, correct) = (scored.loss, scored.correct);
        Ok((loss, correct, scored.active, gradient, scored.ticket))
    }

    /// Chooses the classes of a step for several batches, by the labels of all of them.
    fn select(&self, py: Python<'_>, labels: Labels<'_>) -> PyResult<()> {
        let labels = labels.as_slice()?;
        self.with_graph(py, |head| head.select(labels))
    }

    /// Makes the batch of a ticket count in the step, `factor` times.
    fn backward(&self, py: Python<'_>, ticket: (u64, usize), factor: f32) -> PyResult<()> {
        Ok(self.run(py, |head, _| head.backward(ticket, factor))??)
    }

    /// Moves the weights by all batches that went backward: with LARS where its trust is given, with AdamW where its β₁, β₂
    /// and ε are, else with SGD. Gradients are divided by `scale`. Says that the step was taken, which a head that finds overflows may leave out.
    #[pyo3(signature = (rate, momentum, weight_decay, trust=None, scale=None, adam=None))]
    #[expect(clippy::too_many_arguments, reason = "those of Python's call")]
    fn step(
        &self,
        py: Python<'_>,
        rate: f32,
        momentum: f32,
        weight_decay: f32,
        trust: Option<f32>,
        scale: Option<f32>,
        adam: Option<(f32, f32, f32)>,
    ) -> PyResult<bool> {
        let is_rate = |rate: f32| rate.is_finite() && rate >= 0.0;
        let rates = [rate, weight_decay, trust.unwrap_or(0.0)];
        let is_scale = scale.is_none_or(|scale| scale > 0.0 && scale.is_finite());
        if !(rates.iter().all(|&rate| is_rate(rate)) && (0.0..1.0).contains(&momentum) && is_scale)
        {
            return Err(configuration(format!(
                "learning rate {rate}, momentum {momentum}, weight decay {weight_decay}, trust {}: all must be at least 0, and momentum below 1",
                rates[2]
            )));
        }
        let rule = match (trust, adam) {
            (_, Some((mean_decay, square_decay, epsilon))) => Rule::AdamW {
                mean_decay,
                square_decay,
                epsilon,
            },
            (Some(trust), None) => Rule::Lars { momentum, trust },
            (None, None) => Rule::Sgd {
                momentum,
                nesterov: false,
            },
        };
        let update = Update {
            rule,
            rate,
            weight_decay,
            scale: 1.0 / scale.unwrap_or(1.0),
        };
        self.run(py, |head, _| head.update(&update))??;
        Ok(true)
    }

    /// Scored batches that have not changed the weights are not used.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |head, _| head.forget())
    }

    /// Looks at examples before training: for the means of `classes`, or first for that of all.
    fn observe(
        &self,
        py: Python<'_>,
        features: Features<'_>,
        labels: Labels<'_>,
        classes: bool,
    ) -> PyResult<()> {
        let (numbers, labels) = self.examples(&features, &labels)?;
        let what = if classes {
            Observed::Classes
        } else {
            Observed::Mean
        };
        Ok(self.run(py, |head, _| head.observe(what, numbers, labels))??)
    }

    /// Sets the weights of each class to its mean; returns how many classes have none.
    fn begin_at_means(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.run(py, |head, _| head.begin_at_means())??)
    }

    /// What is taken off the features, if anything; one row.
    fn mean<'py>(&self, py: Python<'py>) -> PyResult<Option<Numbers<'py>>> {
        let mean = self.run(py, |head, _| head.head.mean())?;
        mean.map(|mean| matrix(py, mean, self.d)).transpose()
    }

    /// Starts an epoch: builds graph or forest from the current weights.
    fn renew(&self, py: Python<'_>) -> PyResult<()> {
        let work =
            |head: &mut SharedHead, stop: &Interrupt| head.renew(&|| stop.load(Ordering::Relaxed));
        Ok(self.run_long(py, work)??)
    }

    /// The mean loss over all classes, and how many examples are right.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        labels: Labels<'py>,
    ) -> PyResult<(f64, usize)> {
        let (numbers, labels) = self.examples(&features, &labels)?;
        Ok(self.run(py, |head, _| head.evaluate(numbers, labels))??)
    }

    /// The `k` best classes of each example, and their scores.
    fn top<'py>(
        &self,
        py: Python<'py>,
        features: Features<'py>,
        k: usize,
    ) -> PyResult<(Numbers<'py>, Bound<'py, PyArray2<i64>>)> {
        let numbers = self.features(&features)?;
        let (classes, scores) = self.run(py, |head, _| head.top(numbers, k))??;
        Ok((matrix(py, scores, k)?, matrix(py, classes, k)?))
    }

    /// The vectors of this rank's classes; none of MACH.
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Option<Numbers<'py>>> {
        let weights = self.run(py, |head, _| head.weights())?;
        weights
            .map(|weights| matrix(py, weights, self.d))
            .transpose()
    }

    /// This rank's rows of all that is saved: name, first row, rows of all ranks, and numbers.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, u64, u64, Numbers<'py>)>> {
        let blocks = self.run(py, |head, _| {
            let blocks = head.head.save(true).into_iter();
            blocks
                .map(pelton_softmax::RowBlock::into_owned)
                .collect::<Vec<_>>()
        })?;
        let blocks = blocks.into_iter().map(|block| {
            let rows = matrix(py, block.values.into_owned(), block.width)?;
            Ok((block.name, block.first, block.total, rows))
        });
        blocks.collect()
    }

    /// Takes this rank's rows from a state saved on any number of ranks, and continues from these steps and epochs.
    fn load<'py>(
        &self,
        py: Python<'py>,
        saved: Vec<(String, u64, u64, Numbers<'py>)>,
        steps: u64,
        epochs: u64,
    ) -> PyResult<()> {
        let arrays: Vec<Features<'py>> = saved.iter().map(|(.., rows)| rows.readonly()).collect();
        let pieces = saved
            .iter()
            .zip(&arrays)
            .map(|((name, first, total, _), rows)| {
                Ok(Piece {
                    name: name.clone(),
                    first: *first,
                    total: *total,
                    width: rows.shape()[1],
                    values: rows.as_slice()?,
                })
            });
        let pieces = pieces.collect::<PyResult<Vec<_>>>()?;
        let work = |head: &mut SharedHead, _: &Interrupt| {
            head.load(&pieces)?;
            (head.steps, head.epochs) = (steps, epochs);
            Ok::<_, HeadFailure>(())
        };
        Ok(self.run(py, work)??)
    }

    /// Steps and epochs so far.
    #[getter]
    fn progress(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.run(py, |head, _| (head.steps, head.epochs))
    }

    /// Address of the features that were scored last: those of a tensor, where they were not copied.
    #[getter]
    fn read_at(&self, py: Python<'_>) -> PyResult<usize> {
        self.run(py, |head, _| head.read_at)
    }

    /// Bytes of weights, momentum and graph on this rank.
    #[getter]
    fn bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |head, _| head.head.bytes())
    }
}

impl Head {
    /// Features in their place, as rows of the right length.
    fn features<'a>(&self, features: &'a Features<'_>) -> PyResult<&'a [f32]> {
        let width = features.shape()[1];
        if width != self.d {
            return Err(PyValueError::new_err(format!(
                "rows of features have {width} numbers, but the head takes {}",
                self.d
            )));
        }
        Ok(features.as_slice()?)
    }

    fn examples<'a>(
        &self,
        features: &'a Features<'_>,
        labels: &'a Labels<'_>,
    ) -> PyResult<(&'a [f32], &'a [i64])> {
        let (rows, labels) = (features.shape()[0], labels.as_slice()?);
        if rows != labels.len() {
            return Err(PyValueError::new_err(format!(
                "there are {rows} rows of features and {} labels; give each row one label",
                labels.len()
            )));
        }
        Ok((self.features(features)?, labels))
    }

    /// Works without Python's lock. Where others may be waited for, Ctrl-C ends the job of all.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut SharedHead, &Interrupt) -> T + Send,
    ) -> PyResult<T> {
        if self.job.is_some() {
            return self.run_long(py, work);
        }
        let head = &mut *self.locked()?;
        Ok(py.detach(|| self.threads.install(|| work(head, &Interrupt::default()))))
    }

    /// The same, and Ctrl-C sets the flag.
    fn run_long<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut SharedHead, &Interrupt) -> T + Send,
    ) -> PyResult<T> {
        let head = &mut *self.locked()?;
        let end = || {
            if let Some(job) = &self.job {
                job.fail("interrupted");
            }
        };
        interruptible_or(py, end, |stop| self.threads.install(|| work(head, stop)))
    }

    /// Does the work; builds a graph or forest first if there is none.
    fn with_graph<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Fn(&mut SharedHead) -> Result<T, HeadFailure> + Sync,
    ) -> PyResult<T> {
        match self.run(py, |head, _| work(head))? {
            Err(HeadFailure::Head(HeadError::NotRenewed)) => {
                self.renew(py)?;
                Ok(self.run(py, |head, _| work(head))??)
            }
            done => Ok(done?),
        }
    }

    fn locked(&self) -> PyResult<MutexGuard<'_, SharedHead>> {
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(
                "this head was created before the process forked, and its threads belong to the parent; create it in the process that uses it",
            ));
        }
        match self.head.try_lock() {
            Ok(head) => Ok(head),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(
                "another thread is using this head; take turns",
            )),
        }
    }
}

/// What a head is made from; kind, logits and precision as the command spells them.
fn options(
    (classes, d): (u64, usize),
    (kind, logits, precision): &(String, String, String),
    (correct, centre): (bool, bool),
    seed: u64,
) -> PyResult<HeadOptions> {
    Ok(HeadOptions {
        kind: kind.parse().map_err(configuration)?,
        logits: logits.parse().map_err(configuration)?,
        classes,
        d,
        correct,
        centre,
        precision: precision.parse().map_err(configuration)?,
        seed,
        scratch_bytes: HeadOptions::SCRATCH_BYTES,
    })
}

/// Numbers as an array with rows of this width, without a copy.
fn matrix<T: numpy::Element>(
    py: Python<'_>,
    values: Vec<T>,
    width: usize,
) -> PyResult<Bound<'_, PyArray2<T>>> {
    let rows = values.len() / width.max(1);
    let array = Array2::from_shape_vec((rows, width), values);
    let array = array.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(array.into_pyarray(py))
}
