//! The job `train image`: a net that tells the classes of images.

use std::path::Path;
use std::time::Instant;

use pelton_data::{
    DataConfig, DataError, Expected, OpenedData, PipelineTerms, PreparedPipeline, as_text, open,
};
use pelton_feed::{DecodeSetting, PipelineConfig};
use pelton_format::{Contents, LabelMap};
use pelton_image::Pipeline;
pub use pelton_nn::nets::ImageModel;
use pelton_nn::trainer;
use pelton_run::{Event, RunContext, RunFolder};
use serde::{Deserialize, Serialize};

use crate::deep::{Fit, FitConfig, NetSummary, Prepared, Ready, Targets, fit};
use crate::error::TrainError;

/// What is done with images where nothing is said: from 0 to 255 to from -1 to 1.
const PLAIN: &str = "normalise:0.5:0.5";

/// The configuration of `pelton train image`: what `run.toml` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImageConfig {
    /// The net.
    #[serde(with = "as_text")]
    pub model: ImageModel,
    /// Width of its layers, as a multiple of the published one.
    pub width: f64,
    /// Training data.
    pub data: DataConfig,
    /// What happens to records on their way to batches.
    pub pipeline: PipelineConfig,
    /// How the net is trained.
    pub fit: FitConfig,
}

impl ImageConfig {
    /// Reads a configuration: the `run.toml` of a run, or a file like it.
    pub fn read(path: &Path) -> Result<ImageConfig, TrainError> {
        crate::config::read(path)
    }
}

impl Default for ImageConfig {
    fn default() -> ImageConfig {
        ImageConfig {
            model: ImageModel::ResNet20,
            width: 1.0,
            data: DataConfig::default(),
            pipeline: PipelineConfig::default(),
            fit: FitConfig::default(),
        }
    }
}

/// Trains a net on images and leaves its files in the run folder. All ranks call it; rank 0 writes the folder.
///
/// Errors: bad configuration or input; a failed run; an interruption, whose state is saved.
pub fn run(config: &ImageConfig, mut context: RunContext<'_>) -> Result<NetSummary, TrainError> {
    let began = Instant::now();
    config.fit.check()?;
    let context = &mut context;
    let data = open(&config.data.with_bytes(), &config.data.paths, None, context)?;
    let pipeline = resolved(&config.pipeline, &data);
    let held = config.fit.held_out(&data)?;
    let terms = PipelineTerms {
        order: config.fit.order,
        batch: Some(config.fit.batch),
        seed: config.fit.seed,
        epochs: Some(config.fit.epochs),
        memory_bytes: config.fit.memory_bytes,
        threads: config.fit.feed_threads,
        access: config.fit.access,
        cache: config.fit.cache.clone(),
        among: held.as_ref().map(|held| held.training.clone()),
    };
    let training = PreparedPipeline::new(&pipeline, &terms, &data, context)?;
    let labels = data.dataset.labels();
    let classes = labels.len();
    let expected = Expected {
        labels: labels.clone(),
        any_label: false,
        features: data.dataset.features(),
        means: None,
    };
    let image = image_size(&training)?;
    let mut held_out = |paths: &[String]| -> Result<Option<Prepared>, TrainError> {
        if paths.is_empty() {
            return Ok(None);
        }
        let opened = open(&config.data.with_bytes(), paths, Some(&expected), context)?;
        let measured = training.evaluation(&opened, context)?;
        fits(&measured, image, paths)?;
        Ok(Some(Prepared::Pipeline(Box::new(measured))))
    };
    let mut validation = held_out(&config.fit.validation_paths())?;
    let test = match config.fit.test.as_slice() {
        [] => held_out(&data.test)?,
        paths => held_out(paths)?,
    };
    if let Some(held) = &held {
        let measured = training.validation(&held.validation, context)?;
        validation = Some(Prepared::Pipeline(Box::new(measured)));
    }
    let net = config.model.net(image, classes, config.width)?;
    let trained = net.trained();
    let operations = 6.0 * net.summary.multiplications as f64;
    let note = format!(
        "{} on {}×{}×{} images of {classes} classes: {trained} parameters, {:.2} GFLOP an image; {} records",
        config.model,
        image[0],
        image[1],
        image[2],
        operations / 1e9,
        data.dataset.records(),
    );
    (context.observer)(Event::Note(&note));
    let comm = context.comm.duplicate().map_err(DataError::from)?;
    let of = Fit {
        config: &config.fit,
        trainer: trainer(net, config.fit.device, config.fit.seed, comm),
        training: Prepared::Pipeline(Box::new(training)),
        validation,
        test,
        targets: Targets::Classes(classes),
        language: false,
        began,
    };
    let written = Classes {
        image,
        features: data.dataset.features(),
        labels: labels.values().to_vec(),
        names: labels.names().to_vec(),
    };
    same_data(context, CLASSES, |file| {
        Classes::read(file).as_ref() == Some(&written)
    })?;
    let mut folder = open_folder(config, context)?;
    if folder.is_written() {
        folder.write_json(CLASSES, &written)?;
    }
    fit(of, &mut folder, context)
}

/// The pipeline with what is left unsaid filled in.
pub(crate) fn resolved(config: &PipelineConfig, data: &OpenedData) -> PipelineConfig {
    let mut pipeline = config.clone();
    // Encoded images are of no use as bytes.
    if pipeline.decode == DecodeSetting::None && needs_decoding(data.dataset.contents()) {
        pipeline.decode = DecodeSetting::Image("image".to_string());
    }
    if pipeline.augment.is_none() {
        let plain: Result<Pipeline, _> = PLAIN.parse();
        pipeline.augment = plain.ok();
    }
    pipeline
}

/// File of the run folder that says what a net of images is given and tells.
pub(crate) const CLASSES: &str = "classes.json";

/// What that file holds.
#[derive(PartialEq, Serialize, Deserialize)]
pub(crate) struct Classes {
    /// Height, width and channels.
    pub(crate) image: [usize; 3],
    /// Features of a record.
    pub(crate) features: u64,
    /// Labels in class order.
    pub(crate) labels: Vec<f64>,
    /// Names in class order; empty where classes have none.
    pub(crate) names: Vec<String>,
}

impl Classes {
    /// From its file; `None` where that is missing or damaged.
    pub(crate) fn read(file: &Path) -> Option<Classes> {
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }

    pub(crate) fn map(&self) -> LabelMap {
        match &self.names[..] {
            [] => LabelMap::new(self.labels.clone()),
            names => LabelMap::named(names.to_vec()),
        }
    }
}

/// Refuses to go on with a run that began with other data, as a file of its folder says.
pub(crate) fn same_data(
    context: &RunContext<'_>,
    name: &str,
    is_same: impl FnOnce(&Path) -> bool,
) -> Result<(), TrainError> {
    let file = context.folder.out.join(name);
    match context.folder.resume && file.exists() && !is_same(&file) {
        false => Ok(()),
        true => Err(TrainError::config(format!(
            "{}: the run began with other data; give that again, or begin another run with another `out`",
            file.display()
        ))),
    }
}

/// The run folder: rank 0's to write.
pub(crate) fn open_folder(
    config: &impl Serialize,
    context: &RunContext<'_>,
) -> Result<RunFolder, TrainError> {
    let options = &context.folder;
    context.comm.barrier().map_err(DataError::from)?;
    let folder = match context.comm.rank() {
        0 => RunFolder::open(&options.out, config, options.resume, options.overwrite)?,
        _ => RunFolder::of_another_rank(&options.out),
    };
    context.comm.barrier().map_err(DataError::from)?;
    Ok(folder)
}

fn needs_decoding(contents: Contents) -> bool {
    matches!(contents, Contents::Image)
}

/// Refuses images of other sizes than the net's.
pub(crate) fn fits(
    prepared: &PreparedPipeline,
    [height, width, channels]: [usize; 3],
    paths: &[String],
) -> Result<(), TrainError> {
    let found = image_size(prepared)?;
    if found == [height, width, channels] {
        return Ok(());
    }
    let [h, w, c] = found;
    Err(TrainError::config(format!(
        "{}: its images are {h}×{w}×{c}, the net takes {height}×{width}×{channels}; give images of that size, or train with an `augment` that makes all of one size, such as resize:{height}x{width}",
        paths.join(", ")
    )))
}

/// Height, width and channels of what the pipeline makes: those of its first batch.
pub fn image_size(training: &PreparedPipeline) -> Result<[usize; 3], TrainError> {
    let none = || TrainError::config("the data has no records".to_string());
    let batch = training.first_batch()?.ok_or_else(none)?;
    let Ready::Images { pixels, .. } = Ready::new(batch, Targets::Classes(usize::MAX))? else {
        return Err(none());
    };
    let sizes = &pixels.shape().dims;
    Ok([sizes[1], sizes[2], sizes[3]])
}
