//! Embeddings: the features that a finished net of `train classify` computes for its head.
//!
//! Only the feature net and the head's running mean are loaded, no class vector. Records pass through the net batch by
//! batch in the order of the files; no record is left out, not even those that the run dropped.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelton_comm::Comm;
use pelton_data::{OpenedData, PreparedPipeline};
use pelton_feed::BadExamples;
use pelton_nn::{Trainer, trainer};
use pelton_run::{Event, RunContext};
use pelton_softmax::{Logits, compared, feature_mean};
use pelton_storage::spare_memory;
use rayon::ThreadPool;

use crate::deep::{MODEL, Ready, Shards, load_parameters, thread_pool};
use crate::error::TrainError;
use crate::evaluate::{EvaluateConfig, unwritten};
use crate::finished::{Job, Labels, images, open_run, tells_no_classes};
use crate::image::{Classes, ImageConfig};

/// A finished net that computes features.
pub(crate) struct Embedder {
    config: Box<ImageConfig>,
    classes: Classes,
    net: Box<dyn Trainer>,
    mean: Vec<f32>,
    /// How the run compares features with classes.
    logits: Logits,
    pub(crate) d: usize,
    pub(crate) pool: Arc<ThreadPool>,
}

/// Data for an [`Embedder`].
pub(crate) struct Records {
    pub(crate) data: OpenedData,
    prepared: PreparedPipeline,
    labels: Labels,
}

impl Embedder {
    /// Opens a run folder.
    ///
    /// Errors: a run that is not finished, damaged, or of another job than `train classify`.
    pub(crate) fn open(run: &Path) -> Result<Embedder, TrainError> {
        let (Job::Images(mut config, classes), manifest) = open_run(run)? else {
            return Err(tells_no_classes(run));
        };
        let Some(head) = &config.head else {
            return Err(TrainError::config(format!(
                "{}: a net of `train image` has no features that are compared; train one with `pelton train classify`",
                run.display()
            )));
        };
        let logits = head.logits;
        let net = config.net(classes.input(), classes.map.len())?;
        let d = net.classes;
        let mut net = trainer(net, 0, Comm::alone());
        load_parameters(&manifest, net.as_mut())?;
        let mean = Shards::new(&manifest, MODEL).taken(feature_mean)?;
        config.pipeline.bad_examples = BadExamples::Fail;
        config.pipeline.keep_classes.clear();
        config.data.positive = None;
        let pool = Arc::new(thread_pool(config.fit.threads, &Comm::alone())?);
        Ok(Embedder {
            config,
            classes,
            net,
            mean: mean.unwrap_or_default(),
            logits,
            d,
            pool,
        })
    }

    /// Opens data, of any classes.
    pub(crate) fn records(
        &self,
        of: &EvaluateConfig,
        labels: Labels,
        context: &mut RunContext<'_>,
    ) -> Result<Records, TrainError> {
        let mut config = self.config.clone();
        if labels == Labels::Unused {
            config.data.label_file = None;
        }
        let (data, prepared) = images(of, &config, &self.classes, labels, context)?;
        Ok(Records {
            data,
            prepared,
            labels,
        })
    }

    /// Calls `take` with the labels, if any, and the features of each batch, in the order of the records; of length 1
    /// if `logits` are cosines.
    pub(crate) fn each(
        &mut self,
        records: &Records,
        logits: Logits,
        context: &mut RunContext<'_>,
        mut take: impl FnMut(&[i64], Vec<f32>) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let (mut done, total) = (0, records.data.dataset.records());
        let (mut without_direction, mut first) = (0, 0);
        let mut loader = records.prepared.loader(None, context.comm)?;
        for _ in 0..records.prepared.plan().steps(0) {
            let Some(batch) = loader.next() else { break };
            let mut batch = batch?;
            let labels = batch.values::<i64>("label").unwrap_or_default().to_vec();
            let ids = std::mem::take(&mut batch.ids);
            let known = 0..records.data.dataset.labels().len() as i64;
            let are_known = labels.len() == ids.len() && labels.iter().all(|y| known.contains(y));
            if records.labels == Labels::OfData && !are_known {
                return Err(TrainError::config(format!(
                    "{}: records have no label; give data with labels",
                    records.data.paths[0].display()
                )));
            }
            let ready = Ready::unlabelled(&mut batch)?;
            let features = self.pool.install(|| {
                let features = self.net.logits(ready.input())?;
                Ok::<_, TrainError>(compared(&features, self.d, &self.mean, logits))
            })?;
            for (row, id) in features.chunks_exact(self.d).zip(&ids) {
                if !row.iter().all(|x| x.is_finite()) {
                    return Err(TrainError::config(format!(
                        "{}: the features of record {id} are not finite; give data like that the net was trained on",
                        records.data.paths[0].display()
                    )));
                }
                if row.iter().all(|&x| x == 0.0) {
                    first = if without_direction == 0 { *id } else { first };
                    without_direction += 1;
                }
            }
            take(&labels, features)?;
            done += ids.len() as u64;
            let what = "embedding";
            (context.observer)(Event::Progress { what, done, total });
            if context.interrupt.load(Ordering::Relaxed) {
                return Err(TrainError::stopped("embedding"));
            }
        }
        if without_direction > 0 {
            (context.observer)(Event::Note(&format!(
                "the features of {without_direction} records are 0, first those of record {first}: they have no direction, and a cosine of 0 to all others"
            )));
        }
        Ok(())
    }

    /// The features of all records, of length 1, and their labels.
    ///
    /// Errors: features larger than memory.
    pub(crate) fn all(
        &mut self,
        records: &Records,
        context: &mut RunContext<'_>,
    ) -> Result<(Vec<f32>, Vec<i64>), TrainError> {
        let count = records.data.dataset.records();
        let (needed, spare) = (4 * count * self.d as u64, spare_memory());
        if spare > 0 && needed > spare {
            return Err(TrainError::config(format!(
                "the features of {count} records take {:.1} GB, but {:.1} GB are available; give fewer records",
                needed as f64 / 1e9,
                spare as f64 / 1e9
            )));
        }
        let mut all = Vec::with_capacity(count as usize * self.d);
        let mut labels = Vec::new();
        self.each(records, Logits::default(), context, |own, features| {
            all.extend(features);
            labels.extend(own);
            Ok(())
        })?;
        Ok((all, labels))
    }
}

/// Writes the features of every record as a `.npy` file, float32 \[records, features\], as the head compares them:
/// without the running mean if the run centres them, and of length 1 if its logits are cosines.
///
/// Errors: a run that is not finished, damaged, or of another job than `train classify`; data of other sizes.
pub fn write_embeddings(
    of: &EvaluateConfig,
    out: &mut dyn Write,
    mut context: RunContext<'_>,
) -> Result<(), TrainError> {
    let context = &mut context;
    let mut embedder = Embedder::open(&of.model)?;
    let records = embedder.records(of, Labels::Unused, context)?;
    let header = npy_header(records.data.dataset.records(), embedder.d);
    out.write_all(&header).map_err(unwritten)?;
    let logits = embedder.logits;
    embedder.each(&records, logits, context, |_, features| {
        let numbers = features.iter().flat_map(|x| x.to_le_bytes());
        let bytes: Vec<u8> = numbers.collect();
        out.write_all(&bytes).map_err(unwritten)
    })
}

/// The header of a `.npy` file with `rows` rows.
fn npy_header(rows: u64, width: usize) -> Vec<u8> {
    let mut text =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    // Magic, version and length take 10 bytes; numbers begin at a multiple of 64.
    let padding = (10 + text.len() + 1).next_multiple_of(64) - 10 - text.len() - 1;
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.bytes());
    header
}
