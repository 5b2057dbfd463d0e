//! Passes over the weights of very many classes, which belong to Python.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pelton_comm::Comm;
use pelton_softmax::{
    Active, ClassRows, HeadError, IndexArrays, IndexShape, Labels, Logits, Margin, Neighbours,
    Pass, PassGradients, Precision,
};
use pelton_train::finished::Classifier;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::ThreadPool;

use crate::error::configuration;
use crate::estimator::of_train;
use crate::interruptible::interruptible;
use crate::process::OfProcess;

type Rows<'py> = PyReadonlyArray2<'py, f32>;
/// The rows that take part, ascending, and how many classes each stands for.
type Chosen<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, f32>);
/// Of a class index: whether it compares cosines, lists that a search looks at, recall and the longest row; the class of each
/// row and the starts of the lists; means of the lists, rows and the mean of queries, which may have no rows.
type Parts<'py> = (
    (bool, usize, f64, f32),
    [Bound<'py, PyArray2<i64>>; 2],
    [Bound<'py, PyArray2<f32>>; 3],
);
/// Of a class index: nearest first, scores and numbers.
type Found<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>);
/// The sum of losses, and its gradients by the features and by the rows.
type Losses<'py> = (f64, Option<[Bound<'py, PyArray2<f32>>; 2]>);

/// Of a run: class vectors, mean and logits.
type HeadOfRun<'py> = (Bound<'py, PyArray2<f32>>, Vec<f32>, Option<(f32, [f32; 3])>);

/// Σ factor · loss of a batch over the classes that take part, and with `learns` its gradients. `several` is how many labels
/// each example has, none if one. `logits` is the scale of cosines with a margin, and none for products. None if numbers are
/// not finite, or an example has a label twice.
#[pyfunction]
#[pyo3(signature = (features, weights, labels, several, factors, active, logits, half, threads, learns))]
#[expect(clippy::too_many_arguments, reason = "those of Python's call")]
pub(crate) fn class_losses<'py>(
    py: Python<'py>,
    features: Rows<'py>,
    weights: Rows<'py>,
    labels: PyReadonlyArray1<'py, i64>,
    several: Option<PyReadonlyArray1<'py, i64>>,
    factors: PyReadonlyArray1<'py, f32>,
    active: Option<Chosen<'py>>,
    logits: Option<(f32, [f32; 3])>,
    half: bool,
    threads: usize,
    learns: bool,
) -> PyResult<Option<Losses<'py>>> {
    let d = weights.shape()[1];
    let pass = Pass {
        weights: weights.as_slice()?,
        d,
        logits: of_numbers(logits),
        precision: if half {
            Precision::Bf16
        } else {
            Precision::F32
        },
    };
    let (features, factors) = (features.as_slice()?, factors.as_slice()?);
    let classes: &[u64] = bytemuck::cast_slice(labels.as_slice()?);
    let several = several.as_ref().map(|counts| counts.as_slice());
    let labels = Labels {
        classes,
        counts: several.transpose()?.map(bytemuck::cast_slice),
    };
    let counts = match &active {
        None => None,
        Some((rows, counts)) => {
            let rows = rows.as_slice()?.iter().map(|&row| row as u32);
            Some((rows.collect::<Vec<_>>(), counts.as_slice()?))
        }
    };
    let pool = pool(threads)?;
    let mut gradients = PassGradients::default();
    let found = py.detach(|| {
        let active = match &counts {
            None => Active::All,
            Some((rows, counts)) => Active::Rows(rows, counts),
        };
        let of_rows = learns.then_some(&mut gradients);
        pool.install(|| pass.losses(features, labels, factors, active, of_rows))
    });
    match found {
        Ok(loss) if loss.is_finite() => {
            let PassGradients { features, rows } = gradients;
            let made =
                learns.then(|| Ok::<_, PyErr>([matrix(py, features, d)?, matrix(py, rows, d)?]));
            Ok(Some((loss, made.transpose()?)))
        }
        Ok(_) | Err(HeadError::NotFinite { .. } | HeadError::Twice { .. }) => Ok(None),
        Err(error) => Err(configuration(error.to_string())),
    }
}

/// Of a finished run of many classes, the class vectors, the mean that is subtracted from features, which may be empty, and the
/// logits: the scale of cosines with a margin, none for products.
#[pyfunction]
pub(crate) fn head_of_run(py: Python<'_>, run: PathBuf) -> PyResult<HeadOfRun<'_>> {
    let found = py.detach(|| {
        let classifier = Classifier::open(&run)?;
        Ok((
            classifier.vectors()?,
            classifier.feature_mean()?,
            classifier,
        ))
    });
    let (vectors, mean, classifier) = found.map_err(|error| of_train(py, &error))?;
    let head = classifier.config.head.as_ref();
    let (Some(head), Some(vectors)) = (head, vectors) else {
        return Err(configuration(format!(
            "{}: has no class vectors; give a run of `pelton train classify` with a head other than mach",
            run.display()
        )));
    };
    let logits = match head.logits {
        Logits::Product => None,
        Logits::Cosine { scale, margin } => {
            Some((scale, [margin.factor, margin.angle, margin.cosine]))
        }
    };
    let d = vectors.len() / classifier.labels.len();
    Ok((matrix(py, vectors, d)?, mean, logits))
}

/// The `k` rows of the largest cosine to each row, the row itself first, `[classes, k]`.
#[pyfunction]
pub(crate) fn nearest_classes<'py>(
    py: Python<'py>,
    weights: Rows<'py>,
    k: usize,
    threads: usize,
) -> PyResult<Bound<'py, PyArray2<i64>>> {
    let (d, pool) = (weights.shape()[1], pool(threads)?);
    let rows = ClassRows::new(0, d, weights.as_slice()?.to_vec());
    let found = interruptible(py, |interrupt| {
        let stop = || interrupt.load(Ordering::Relaxed);
        pool.install(|| Neighbours::find_until(&rows, k, Precision::F32, &Comm::alone(), &stop))
    })?;
    let found = found.map_err(|error| configuration(error.to_string()))?;
    let ids = (0..rows.len()).flat_map(|row| found.of(row).iter().map(|&id| i64::from(id)));
    matrix(py, ids.collect(), found.k())
}

/// The best classes of queries, without looking at all of them (`pelton_softmax::ClassIndex`).
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct ClassIndex {
    index: pelton_softmax::ClassIndex,
    threads: usize,
}

#[pymethods]
impl ClassIndex {
    /// Of weights `[classes, d]`; by cosines, or by products. `sample` are queries of the kind to come, which decide how
    /// much is looked at; without any, the weights are. `mean` is subtracted from queries to come; it may be empty.
    #[new]
    fn new(
        py: Python<'_>,
        weights: Rows<'_>,
        is_cosine: bool,
        sample: Rows<'_>,
        mean: Vec<f32>,
        seed: u64,
        threads: usize,
    ) -> PyResult<ClassIndex> {
        let (d, pool) = (weights.shape()[1], pool(threads)?);
        let logits = of_numbers(is_cosine.then_some((1.0, [1.0, 0.0, 0.0])));
        let (weights, sample) = (weights.as_slice()?, sample.as_slice()?);
        let index = py.detach(|| {
            pool.install(|| pelton_softmax::ClassIndex::build(weights, d, logits, sample, seed))
        });
        let index = index.less(mean);
        Ok(ClassIndex { index, threads })
    }

    /// The `k` best classes of each query, best first.
    fn search<'py>(&self, py: Python<'py>, queries: Rows<'py>, k: usize) -> PyResult<Found<'py>> {
        let pool = pool(self.threads)?;
        let queries = queries.as_slice()?;
        let mut found = py.detach(|| pool.install(|| self.index.search(queries, k)));
        // Few classes, or few of them where was looked.
        found
            .iter_mut()
            .for_each(|found| found.resize(k, (u64::MAX, f32::NEG_INFINITY)));
        let each = || found.iter().flatten();
        let scores = each().map(|&(_, score)| score).collect();
        let classes = each().map(|&(class, _)| class as i64).collect();
        Ok((matrix(py, scores, k)?, matrix(py, classes, k)?))
    }

    /// All of it.
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Parts<'py>> {
        let (shape, arrays) = self.index.parts();
        let (d, mean) = (shape.d, self.index.mean());
        let ids = arrays.ids.iter().map(|&id| i64::from(id)).collect();
        let starts = arrays.starts.iter().map(|&start| start as i64).collect();
        let numbers = |all: &[f32]| matrix(py, all.to_vec(), d);
        Ok((
            (
                matches!(shape.logits, Logits::Cosine { .. }),
                shape.probes,
                shape.recall,
                shape.longest,
            ),
            [matrix(py, ids, 1)?, matrix(py, starts, 1)?],
            [
                numbers(&arrays.centres)?,
                numbers(&arrays.rows)?,
                numbers(mean)?,
            ],
        ))
    }

    /// From its parts.
    #[staticmethod]
    fn of_parts(
        numbers: (bool, usize, f64, f32),
        places: [PyReadonlyArray2<'_, i64>; 2],
        rows: [Rows<'_>; 3],
        threads: usize,
    ) -> PyResult<ClassIndex> {
        let (is_cosine, probes, recall, longest) = numbers;
        let [ids, starts] = &places;
        let [centres, vectors, mean] = &rows;
        let d = vectors.shape()[1];
        let wrong = |why: &str| configuration(format!("this is not the state of an index: {why}"));
        if mean.shape()[0] > 1 || rows.iter().any(|rows| rows.shape()[1] != d) {
            return Err(wrong("rows have different lengths"));
        }
        let ids = ids.as_slice()?.iter().map(|&id| u32::try_from(id).ok());
        let starts = starts.as_slice()?.iter().map(|&start| start as u64);
        let shape = IndexShape {
            d,
            logits: of_numbers(is_cosine.then_some((1.0, [1.0, 0.0, 0.0]))),
            probes,
            recall,
            longest,
        };
        let arrays = IndexArrays {
            ids: (ids.collect::<Option<Vec<u32>>>())
                .ok_or_else(|| wrong("a class is missing"))?
                .into(),
            starts: starts.collect::<Vec<u64>>().into(),
            centres: centres.as_slice()?.into(),
            rows: vectors.as_slice()?.into(),
        };
        let pool = pool(threads)?;
        let index = pool.install(|| pelton_softmax::ClassIndex::of_parts(shape, arrays));
        let index = index.map_err(wrong)?;
        let index = index.less(mean.as_slice()?.to_vec());
        Ok(ClassIndex { index, threads })
    }

    /// Numbers in a query.
    #[getter]
    fn d(&self) -> usize {
        self.index.d()
    }

    /// The share of sample queries whose best class was found.
    #[getter]
    fn recall(&self) -> f64 {
        self.index.recall()
    }
}

fn of_numbers(logits: Option<(f32, [f32; 3])>) -> Logits {
    match logits {
        None => Logits::Product,
        Some((scale, [factor, angle, cosine])) => Logits::Cosine {
            scale,
            margin: Margin {
                factor,
                angle,
                cosine,
            },
        },
    }
}

/// So many threads of this process, made once.
fn pool(threads: usize) -> PyResult<Arc<OfProcess<ThreadPool>>> {
    type Pools = Mutex<HashMap<usize, Arc<OfProcess<ThreadPool>>>>;
    static POOLS: OnceLock<Pools> = OnceLock::new();
    let mut pools =
        (POOLS.get_or_init(Default::default).lock()).unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&threads).filter(|pool| pool.is_own()) {
        return Ok(Arc::clone(pool));
    }
    let pool = pelton_storage::thread_pool(threads);
    let pool = pool.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let pool = Arc::new(OfProcess::new(pool));
    pools.insert(threads, Arc::clone(&pool));
    Ok(pool)
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
