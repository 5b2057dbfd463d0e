//! The stages from a source's records to batches.

use std::sync::Arc;

use numpy::PyReadonlyArray1;
use pelton_comm::Comm;
use pelton_data::{OpenedData, PeerConfig, PipelineTerms, PreparedPipeline, Vocabulary};
use pelton_feed::{LoaderState, PipelineConfig, Stages, When, as_text};
use pelton_fetch::Access;
use pelton_format::Dataset;
use pelton_plan::{Order, Sampler, Selection};
use pelton_run::{Event, RunContext};
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use serde::Deserialize;

use crate::callable::{Callable, Labels};
use crate::error::{configuration, of_feed, of_job, of_settings};
use crate::interruptible::{interruptible, interruptible_or};
use crate::loader::{Loader, Warned};
use crate::process::OfProcess;
use crate::ranks::Ranks;
use crate::samples::Samples;
use crate::source::Source;

/// How a pipeline runs, next to what happens to records.
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
    /// Whether labels are indices of classes.
    #[serde(default)]
    by_class: bool,
    /// Memory of all ranks that the data is read through, and how many ranks there are.
    #[serde(default)]
    peers: Option<PeerConfig>,
    #[serde(default)]
    ranks: Option<usize>,
}

/// Which rank of how many, and, in a worker of another library's loader, which worker of how many.
type Share = ((u32, u32), Option<(u32, u32)>);

/// A pipeline over a source, from which loaders are taken.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Pipeline {
    prepared: OfProcess<PreparedPipeline>,
    dataset: Arc<Dataset>,
    by_class: bool,
}

/// Python's choice of records for an epoch, and their lengths.
#[derive(FromPyObject)]
enum Draws<'py> {
    #[pyo3(transparent)]
    Ids(PyReadonlyArray1<'py, u64>),
    #[pyo3(transparent)]
    Weights(PyReadonlyArray1<'py, f64>),
}

/// What Python says of the numbers of words: those of another pipeline, or a list.
#[derive(FromPyObject)]
enum Words<'py> {
    #[pyo3(transparent)]
    Of(PyRef<'py, Pipeline>),
    #[pyo3(transparent)]
    Listed(Vec<Vec<u8>>),
}

impl Words<'_> {
    fn vocabulary(&self) -> PyResult<Arc<Vocabulary>> {
        match self {
            Words::Of(pipeline) => pipeline.prepared.vocabulary().cloned().ok_or_else(|| {
                configuration(
                    "`vocabulary` is a pipeline that does not decode words; give it `decode` words",
                )
            }),
            Words::Listed(words) => {
                let vocabulary = Vocabulary::from_words(words);
                vocabulary.map(Arc::new).map_err(configuration)
            }
        }
    }
}

impl Pipeline {
    fn with_stages(&self, change: impl FnOnce(Stages) -> Stages) -> OfProcess<PreparedPipeline> {
        OfProcess::new((*self.prepared).clone().with_stages(change))
    }
}

#[pymethods]
impl Pipeline {
    /// Prepares the pipeline that a configuration in JSON describes; words and lengths are counted where it needs them.
    ///
    /// `draws` are the ids of an epoch (uint64) or a weight for every record (float64); `lengths` one for every
    /// record; `words` is the pipeline whose vocabulary it uses, or a list of words; `among` says of every record whether
    /// it takes part.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    #[pyo3(signature = (source, config, terms, draws=None, lengths=None, words=None, among=None))]
    fn new(
        py: Python<'_>,
        source: &Source,
        config: &str,
        terms: &str,
        draws: Option<Draws<'_>>,
        lengths: Option<PyReadonlyArray1<'_, u32>>,
        words: Option<Words<'_>>,
        among: Option<PyReadonlyArray1<'_, bool>>,
    ) -> PyResult<Pipeline> {
        let config: PipelineConfig =
            serde_json::from_str(config).map_err(|error| of_settings(&error))?;
        let terms: Terms = serde_json::from_str(terms).map_err(|error| of_settings(&error))?;
        let job = PipelineTerms {
            order: terms.order,
            among: match &among {
                Some(kept) => {
                    let kept = kept.as_slice()?;
                    Some(Selection::new(kept.len() as u64, |id| kept[id as usize]))
                }
                None => None,
            },
            sampler: match draws {
                Some(Draws::Ids(ids)) => Some(Sampler::Ids(ids.as_slice()?.into())),
                Some(Draws::Weights(weights)) => Some(Sampler::Weights(weights.as_slice()?.into())),
                None => None,
            },
            lengths: match &lengths {
                Some(lengths) => Some(lengths.as_slice()?.into()),
                None => None,
            },
            batch: terms.batch,
            seed: terms.seed,
            epochs: None,
            memory_bytes: terms.memory_bytes,
            threads: terms.threads,
            access: terms.access,
            cache: terms.peers,
            ranks: terms.ranks,
            by_class: terms.by_class,
            vocabulary: words.map(|words| words.vocabulary()).transpose()?,
        };
        let opened: &OpenedData = &source.opened;
        let prepared = interruptible(py, |interrupt| {
            let comm = Comm::alone();
            let observer = &mut |_: Event<'_>| {};
            let mut context = RunContext::new(&comm, interrupt, observer);
            PreparedPipeline::new(&config, &job, opened, &mut context)
        })?;
        let prepared = prepared.map_err(|error| of_job(py, &error))?;
        Ok(Pipeline {
            prepared: OfProcess::new(prepared),
            dataset: Arc::clone(&source.opened.dataset),
            by_class: terms.by_class,
        })
    }

    /// The same with a caller of functions after its stages, once a read or at each appearance.
    /// `whole_labels` says whether labels are whole numbers; it is none where records have none but among their fields.
    fn with_functions(
        &self,
        caller: &Bound<'_, PyAny>,
        at_read: bool,
        whole_labels: Option<bool>,
    ) -> PyResult<Pipeline> {
        let dataset = Arc::clone(&self.dataset);
        let stage = Callable {
            caller: PyWeakrefReference::new(caller)?.unbind(),
            when: if at_read {
                When::Read
            } else {
                When::Appearance
            },
            together: caller.getattr("together")?.extract()?,
            labels: whole_labels.map(|whole| Labels {
                dataset: Arc::clone(&dataset),
                by_class: self.by_class,
                whole,
            }),
            makes: None,
        };
        Ok(Pipeline {
            prepared: self.with_stages(|stages| stages.inserted(Arc::new(stage))),
            dataset,
            by_class: self.by_class,
        })
    }

    /// The same with samples kept in memory, at most `bytes` of them, as they are after its stages, or after those that run
    /// once a read.
    fn with_kept(&self, bytes: u64, at_read: bool) -> Pipeline {
        Pipeline {
            prepared: self.with_stages(|stages| stages.kept(bytes, at_read)),
            dataset: Arc::clone(&self.dataset),
            by_class: self.by_class,
        }
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

    /// Examples that an epoch leaves out, where its last batch is dropped.
    fn left_out(&self, epoch: u64) -> u64 {
        self.prepared.plan().left_out(epoch)
    }

    /// The fewest examples, or packed rows, of a batch of an epoch over all ranks.
    fn smallest_batch(&self, py: Python<'_>, epoch: u64) -> Option<u64> {
        let plan = self.prepared.plan();
        py.detach(|| plan.smallest_batch(epoch))
    }

    /// Examples of an epoch that are this rank's.
    fn share_len(&self, py: Python<'_>, epoch: u64, rank: u32, ranks: u32) -> u64 {
        let plan = self.prepared.plan();
        py.detach(|| plan.share_len(epoch, rank, ranks))
    }

    /// Record ids that all ranks together use in a step, computed without reading.
    fn step_ids(&self, py: Python<'_>, epoch: u64, step: u64) -> PyResult<Vec<u64>> {
        let plan = self.prepared.plan();
        if step >= plan.steps(epoch) {
            let sentence = format!(
                "epoch {epoch} has no step {step}, only {} steps",
                plan.steps(epoch)
            );
            return Err(pyo3::exceptions::PyIndexError::new_err(sentence));
        }
        Ok(py.detach(|| plan.step_ids(epoch, step)))
    }

    /// Names of the fields that are pictures, of several channels or one.
    #[getter]
    fn pictures(&self) -> Vec<String> {
        self.prepared.pictures()
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

    /// A fingerprint of that vocabulary, and how many words it numbers.
    #[getter]
    fn vocabulary_digest(&self) -> Option<(u64, u32)> {
        let vocabulary = self.prepared.vocabulary()?;
        Some((vocabulary.fingerprint(), vocabulary.size()))
    }

    /// Samples by number, as the loaders of a rank make them.
    fn samples(&self, py: Python<'_>, rank: u32, ranks: u32) -> PyResult<Samples> {
        let samples = (*self.prepared).clone().with_share(rank, ranks).samples();
        let samples = OfProcess::new(samples.map_err(|error| of_job(py, &error))?);
        let warned = Warned::default();
        Ok(Samples { samples, warned })
    }

    /// The state before an epoch, as JSON.
    fn state(&self, epoch: u64) -> String {
        self.prepared.state_before(epoch).to_json()
    }

    /// Refuses a state that a loader of this pipeline cannot resume from; returns notes.
    fn check_state(&self, py: Python<'_>, state: &str) -> PyResult<Vec<String>> {
        let state = LoaderState::from_json(state).map_err(|error| of_feed(py, &error))?;
        let mut notes = Vec::new();
        let mut observer = |event: Event<'_>| {
            if let Event::Note(note) = event {
                notes.push(note.to_owned());
            }
        };
        let checked = interruptible(py, |interrupt| {
            self.prepared.check_state(&state, interrupt, &mut observer)
        })?;
        checked.map_err(|error| of_job(py, &error))?;
        Ok(notes)
    }

    /// A loader from the beginning of an epoch, or from a state that one of this pipeline saved; ranks divide
    /// every batch, workers of a rank the steps, and loaders of workers end with the epoch. With `ranks`, which all call
    /// it, it reads the memory that the pipeline's settings give them; otherwise it reads in place.
    #[pyo3(signature = (epoch, share, state=None, ranks=None))]
    fn loader(
        &self,
        py: Python<'_>,
        epoch: u64,
        share: Share,
        state: Option<&str>,
        ranks: Option<&Ranks>,
    ) -> PyResult<Loader> {
        let state = state.map(LoaderState::from_json).transpose();
        let state = state.map_err(|error| of_feed(py, &error))?;
        let ((rank, size), part) = share;
        let mut prepared = (*self.prepared).clone().with_share(rank, size);
        if let Some(part) = part {
            let epoch = state.as_ref().map_or(epoch, |state| state.epoch);
            prepared = prepared.with_part(part, epoch + 1);
        }
        let open = |prepared: PreparedPipeline, comm: &Comm| match &state {
            Some(state) => prepared.loader(Some(state), comm),
            None => prepared.loader_at(epoch, comm),
        };
        let Some(ranks) = ranks else {
            let loader = py.detach(|| open(prepared.without_peers(), &Comm::alone()));
            return Ok(Loader::new(
                loader.map_err(|error| of_job(py, &error))?,
                None,
            ));
        };
        let end = || ranks.fail("interrupted");
        let opened = interruptible_or(py, end, |interrupt| {
            let comm = ranks.duplicate()?;
            let loader = open(prepared.with_interrupt(interrupt), &comm)?;
            Ok((loader, comm))
        })?;
        let (loader, comm) = opened.map_err(|error| of_job(py, &error))?;
        Ok(Loader::new(loader, Some(comm)))
    }
}
