//! The index over the class vectors of a finished run, in a file next to its model.
//!
//! Building takes a pass of k-means over all class vectors; opening reads the file, with vectors in bf16. Candidates
//! are ranked by the exact vectors, which are read from the model's own files. The file is written when an index is
//! first needed. The manifest lists it with the files of the model; an index of another model is never used.

use std::borrow::Cow;

use bytemuck::Pod;
use pelton_run::{
    CheckpointFile, Dtype, Event, Manifest, RunContext, RunError, Set, Tensor, write_checkpoint,
};
use pelton_softmax::{ClassIndex, IndexArrays, IndexShape, Logits, class_vectors, feature_mean};
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::finished::Classifier;

/// Name of the file.
const INDEX: &str = "index.safetensors";

/// The text of the file.
#[derive(Serialize, Deserialize)]
struct Text {
    logits: String,
    d: usize,
    probes: usize,
    recall: f64,
    longest: f32,
}

impl Classifier {
    /// The index over the class vectors, read from its file or built and (unless `exact`) written there; `exact`
    /// searches compare all classes. `None` of heads without class vectors.
    ///
    /// Errors: a model that cannot be read. A file that cannot be used or written gives only a note.
    pub fn index(
        &self,
        exact: bool,
        pool: &ThreadPool,
        context: &mut RunContext<'_>,
    ) -> Result<Option<ClassIndex<u16>>, TrainError> {
        let Some(head) = &self.config.head else {
            return Ok(None);
        };
        if self.rows.taken(|read| class_vectors(read, 0..1))?.is_none() {
            return Ok(None);
        }
        let (logits, classes) = (head.logits, self.labels.len());
        let path = self.run.join(INDEX);
        let mut tell = |what: &dyn std::fmt::Display| {
            (context.observer)(Event::Note(&format!("{}: {what}", path.display())));
        };
        let model = self.rows.manifest();
        let mean = self.rows.taken(feature_mean)?.unwrap_or_default();
        let saved = path.exists().then(|| {
            let index = pool.install(|| read_index(model))?;
            let is_own = index.logits() == logits && index.len() == classes;
            is_own
                .then_some(index)
                .ok_or("belongs to another model".to_string())
        });
        let index = match saved {
            Some(Ok(index)) if exact => index.without_lists(),
            Some(Ok(index)) => index,
            other => {
                if let Some(Err(why)) = &other {
                    tell(&format!("{why}; the index is built again"));
                }
                let weights = self.vectors()?.unwrap_or_default();
                let d = weights.len() / classes.max(1);
                if exact {
                    pool.install(|| ClassIndex::exact(&weights, d, logits).rounded())
                } else {
                    let seed = self.config.fit.seed;
                    let build = || ClassIndex::build(&weights, d, logits, &[], seed).rounded();
                    let index = pool.install(build);
                    match write_index(&index, model) {
                        Ok(()) => tell(&"holds the index for the next start"),
                        Err(error) => tell(&format!(
                            "cannot be written ({error}); the next start builds the index again"
                        )),
                    }
                    index
                }
            }
        };
        Ok(Some(index.less(mean)))
    }

    /// The vectors of all classes, \[classes, features\]; none of heads without class vectors.
    ///
    /// Errors: files that cannot be read.
    pub fn vectors(&self) -> Result<Option<Vec<f32>>, TrainError> {
        let all = 0..self.labels.len() as u64;
        self.rows.taken(|read| class_vectors(read, all))
    }

    /// The vector of a class.
    ///
    /// Errors: a class without one; files that cannot be read.
    pub fn vector(&self, class: u32) -> Result<Vec<f32>, TrainError> {
        let one = u64::from(class)..u64::from(class) + 1;
        let vector = self.rows.taken(|read| class_vectors(read, one))?;
        vector.ok_or_else(|| {
            TrainError::config(format!(
                "{}: has no vector of class {class}; train the run again",
                self.run.display()
            ))
        })
    }
}

fn write_index(index: &ClassIndex<u16>, model: &Manifest) -> Result<(), TrainError> {
    let (shape, arrays) = index.parts();
    let IndexShape {
        d,
        logits,
        probes,
        recall,
        longest,
    } = shape;
    let text = Text {
        logits: logits.to_string(),
        d,
        probes,
        recall,
        longest,
    };
    let text = serde_json::to_string(&text).expect("numbers and text");
    let tensors = vec![
        Tensor::new("ids", Dtype::U32, &arrays.ids),
        Tensor::new("starts", Dtype::U64, &arrays.starts),
        Tensor::new("centres", Dtype::F32, &arrays.centres),
        Tensor::new("vectors", Dtype::BF16, &arrays.rows),
    ];
    let entry = write_checkpoint(&model.path(INDEX), &text, tensors)?;
    Ok(model.with(Set::Index, INDEX, entry).write()?)
}

/// The index of a model.
///
/// Errors: the reason why it cannot be used.
fn read_index(model: &Manifest) -> Result<ClassIndex<u16>, String> {
    let found = Manifest::read(&model.path(""), Set::Index).map_err(problem)?;
    let found = found.filter(|found| found.is_with(model, INDEX));
    let found = found.ok_or("belongs to another model")?;
    parse_index(&found.arrays(INDEX).map_err(problem)?)
}

/// The index that a file holds.
pub(crate) fn parse_index(file: &CheckpointFile) -> Result<ClassIndex<u16>, String> {
    let of: Text =
        serde_json::from_str(file.text()).map_err(|_| "is not an index of classes".to_string())?;
    let logits: Logits = of.logits.parse()?;
    let arrays = IndexArrays {
        ids: whole(file, "ids", Dtype::U32)?,
        starts: whole(file, "starts", Dtype::U64)?,
        centres: whole(file, "centres", Dtype::F32)?,
        rows: whole(file, "vectors", Dtype::BF16)?,
    };
    let Text {
        d,
        probes,
        recall,
        longest,
        ..
    } = of;
    let shape = IndexShape {
        d,
        logits,
        probes,
        recall,
        longest,
    };
    ClassIndex::of_parts(shape, arrays).map_err(|why| format!("is damaged ({why})"))
}

/// An array of the file.
fn whole<T: Pod>(
    file: &CheckpointFile,
    name: &str,
    dtype: Dtype,
) -> Result<Cow<'static, [T]>, String> {
    let count = file.shape(name).map_or(0, |shape| shape.iter().product());
    let numbers = file.numbers(name, dtype, 0..count).map_err(problem)?;
    Ok(numbers.into())
}

fn problem(error: RunError) -> String {
    match error {
        RunError::Checkpoint { problem, .. } | RunError::Differs { problem, .. } => problem,
        other => other.to_string(),
    }
}
