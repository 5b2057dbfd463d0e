//! What happens to the records of a source on their way to batches.

use pelton_comm::Comm;
use pelton_data::{DataError, PipelineTerms, PreparedPipeline};
use pelton_feed::{FeedError, LoaderState, PipelineConfig, as_text};
use pelton_fetch::Access;
use pelton_plan::Order;
use pelton_run::{Event, RunContext};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::error::{of_feed, of_job, of_settings};
use crate::interruptible::interruptible;
use crate::loader::Loader;
use crate::samples::Samples;
use crate::source::Source;

/// How a pipeline runs, beside what happens to records.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    #[serde(with = "as_text")]
    order: Order,
    batch: Option<u64>,
    seed: u64,
    memory_bytes: u64,
    threads: usize,
    #[serde(with = "as_text")]
    access: Access,
    rank: u32,
    world_size: u32,
}

/// A pipeline over a source, from which loaders are taken.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Pipeline {
    prepared: PreparedPipeline,
}

#[pymethods]
impl Pipeline {
    /// Prepares the pipeline that a configuration in JSON describes; words and lengths are counted where it needs them.
    #[new]
    fn new(py: Python<'_>, source: &Source, config: &str, terms: &str) -> PyResult<Pipeline> {
        let config: PipelineConfig =
            serde_json::from_str(config).map_err(|error| of_settings(&error))?;
        let terms: Terms = serde_json::from_str(terms).map_err(|error| of_settings(&error))?;
        let job = PipelineTerms {
            order: terms.order,
            among: None,
            sampler: None,
            lengths: None,
            batch: terms.batch,
            seed: terms.seed,
            epochs: None,
            memory_bytes: terms.memory_bytes,
            threads: terms.threads,
            access: terms.access,
            cache: None,
        };
        let opened = &source.opened;
        let prepared = interruptible(py, |interrupt| {
            let comm = Comm::alone();
            let observer = &mut |_: Event<'_>| {};
            let mut context = RunContext::new(&comm, interrupt, observer);
            PreparedPipeline::new(&config, &job, opened, &mut context)
        })?;
        let prepared = prepared.map_err(|error| of_job(py, &error))?;
        let prepared = prepared.with_share(terms.rank, terms.world_size);
        Ok(Pipeline { prepared })
    }

    /// Steps of an epoch.
    fn steps(&self, epoch: u64) -> u64 {
        self.prepared.plan().steps(epoch)
    }

    /// Examples of an epoch over all ranks, without repeats.
    #[getter]
    fn examples(&self) -> u64 {
        self.prepared.plan().examples()
    }

    /// Examples that each epoch leaves out, as `drop_last` does.
    #[getter]
    fn left_out(&self) -> u64 {
        self.prepared.plan().left_out()
    }

    /// Record ids that all ranks together use in a step, computed without reading.
    fn step_ids(&self, py: Python<'_>, epoch: u64, step: u64) -> PyResult<Vec<u64>> {
        let plan = self.prepared.plan();
        if step >= plan.steps(epoch) {
            let sentence = format!(
                "epoch {epoch} has {} steps, no step {step}",
                plan.steps(epoch)
            );
            return Err(pyo3::exceptions::PyIndexError::new_err(sentence));
        }
        Ok(py.detach(|| plan.step_ids(epoch, step)))
    }

    /// The randomness level of the order, and the exact one.
    #[getter]
    fn randomness(&self) -> (f64, f64) {
        let randomness = self.prepared.plan().randomness();
        (randomness.rl, randomness.rl_exact)
    }

    /// The words of the vocabulary that text is decoded with, in the order of their numbers.
    #[getter]
    fn vocabulary(&self) -> Option<Vec<String>> {
        let vocabulary = self.prepared.vocabulary()?;
        let word = |id| vocabulary.token(id).unwrap_or_default();
        let words = (0..vocabulary.size()).map(|id| String::from_utf8_lossy(word(id)).into_owned());
        Some(words.collect())
    }

    /// Samples by number, as the loaders make them.
    fn samples(&self, py: Python<'_>) -> PyResult<Samples> {
        let samples = self.prepared.samples();
        let samples = samples.map_err(|error| of_job(py, &error))?;
        Ok(Samples { samples })
    }

    /// A loader from a step of an epoch, or from a state that one of this pipeline saved.
    #[pyo3(signature = (epoch, step, state=None))]
    fn loader(
        &self,
        py: Python<'_>,
        epoch: u64,
        step: u64,
        state: Option<&str>,
    ) -> PyResult<Loader> {
        let state = state.map(LoaderState::from_json).transpose();
        let state = state.map_err(|error| of_feed(py, &error))?;
        let loader = py.detach(|| match state {
            Some(state) => self.prepared.loader(Some(&state), &Comm::alone()),
            None => self.prepared.loader_at(epoch, step, &Comm::alone()),
        });
        let loader = loader.map_err(|error| match &error {
            DataError::Feed(error @ FeedError::State(_)) => of_feed(py, error),
            error => of_job(py, error),
        })?;
        Ok(Loader::new(loader))
    }
}
