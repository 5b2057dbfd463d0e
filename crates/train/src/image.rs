//! The jobs `train image` and `train classify`: a net that classifies images or vectors.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Instant;

use pelton_comm::Comm;
use pelton_data::{
    DataConfig, DataError, Expected, HeldOut, OpenedData, PipelineTerms, PreparedPipeline, as_text,
    check_range, open,
};
use pelton_feed::settings::{some, value};
use pelton_feed::{DecodeSetting, PipelineConfig, settings};
use pelton_format::{ClassMap, Contents, Row, Schema};
use pelton_image::Pipeline;
pub use pelton_nn::nets::ImageModel;
use pelton_nn::{Flow, Net, Trainer, trainer};
use pelton_run::{Event, Manifest, RunContext, RunFolder, Set, Settings, decisive};
use serde::{Deserialize, Serialize};

use crate::class_sizes::class_sizes;
use crate::class_weights::ClassWeights;
use crate::classify::{Begin, HeadConfig};
use crate::deep::{
    ClassMeans, Fit, FitConfig, NetSummary, Optimizer, Prepared, Ready, Targets, check_memory, fit,
};
use crate::error::TrainError;

/// Multiples of the published width that a net may have.
const WIDTHS: RangeInclusive<f64> = 0.001..=1000.0;
/// Default augmentation of images: scaling from 0..255 to -1..1.
pub(crate) const PLAIN: &str = "normalise:0.5:0.5";

settings! {
    /// The configuration of `pelton train image`: what `run.toml` holds.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct ImageConfig: "Net" {
        #[serde(with = "as_text")]
        model: ImageModel = ImageModel::ResNet20, flag(One, value, help format!("Net: {}; mlp takes vectors too, none leaves them as they are, iresnet18 embeds small images for train classify", ImageModel::names())),
            "Net.";
        width: f64 = 1.0, flag(One, value), "Width of its layers, as a multiple of the published one";
        #[serde(skip_serializing_if = "Option::is_none")]
        head: Option<HeadConfig> = None, "A head over very many classes in place of the last layer.";
        #[serde(with = "as_text::option", skip_serializing_if = "Option::is_none")]
        class_weights: Option<ClassWeights> = None, flag(One, some, of "FILE", help ClassWeights::HELP),
            "What the loss of an example counts for, by its class; 1 if absent.";
        data: DataConfig = DataConfig::default(), "Training data.";
        pipeline: PipelineConfig = PipelineConfig::default(), "How records are processed into batches.";
        fit: FitConfig = FitConfig::default(), "How the net is trained.";
    }
}

impl ImageConfig {
    /// Reads a configuration: the `run.toml` of a run, or a file like it.
    pub fn read(path: &Path) -> Result<ImageConfig, TrainError> {
        crate::config::read(path)
    }
}

impl ImageConfig {
    /// The defaults of `train classify`.
    pub fn for_classify() -> ImageConfig {
        ImageConfig {
            model: ImageModel::Small,
            head: Some(HeadConfig::default()),
            ..ImageConfig::default()
        }
    }

    /// The net: it ends in logits, or in features if there is a head.
    pub fn net(&self, input: Flow, classes: usize) -> Result<Net, TrainError> {
        let out = match (&self.head, self.model, input) {
            (Some(_), ImageModel::None, Flow::Row(width)) => width,
            (Some(head), ..) => head.embedding,
            (None, ..) => classes,
        };
        if self.model == ImageModel::IResNet18 && self.head.is_none() {
            return Err(TrainError::config(
                "`model` iresnet18 ends in features and not in logits; train it with a head over classes, by train classify, or choose resnet20 or resnet50"
                    .to_string(),
            ));
        }
        let takes_vectors = matches!(self.model, ImageModel::Mlp | ImageModel::None);
        if let (Flow::Bag(_), false) = (input, self.model == ImageModel::Mlp) {
            return Err(TrainError::config(format!(
                "`model` {} does not take sparse rows; choose mlp",
                self.model
            )));
        }
        if let (Flow::Row(width), false) = (input, takes_vectors) {
            return Err(TrainError::config(format!(
                "`model` {} takes images, and the data is vectors of {width}; choose mlp, or none",
                self.model
            )));
        }
        Ok(Net {
            precision: self.fit.precision,
            ..self.model.net(input, out, self.width)?
        })
    }

    /// Settings that saved parameters and state depend on.
    pub fn decisive(&self) -> Settings {
        decisive(self, &FitConfig::CHANGING)
    }

    /// Its trainer.
    pub fn trainer(
        &self,
        net: Net,
        classes: usize,
        comm: Comm,
    ) -> Result<Box<dyn Trainer>, TrainError> {
        match &self.head {
            Some(head) => {
                let kind = head.kind_of(&self.fit, &net, classes as u64, 1.0);
                head.trainer(net, (kind, classes as u64), &self.fit, comm)
            }
            None => Ok(trainer(net, self.fit.seed, comm)),
        }
    }
}

/// Trains a net on images and leaves its files in the run folder. All ranks call it; rank 0 writes the folder.
///
/// Errors: bad configuration or input; a failed run; an interruption, after saving the state.
pub fn run(config: &ImageConfig, mut context: RunContext<'_>) -> Result<NetSummary, TrainError> {
    let began = Instant::now();
    let mut config = context.agreed(config)?;
    config.fit.rate = Some(config.fit.rate());
    config.fit.check()?;
    config.fit.check_ranks(&config.pipeline, context.comm)?;
    check_range("width", config.width, WIDTHS)?;
    if let Some(head) = &config.head {
        head.check(&config.fit)?;
    }
    if config.pipeline.planar {
        return Err(TrainError::config(
            "`planar` puts channels first, but nets need them last; leave it out".to_string(),
        ));
    }
    if config.class_weights.is_some() && config.fit.smoothing != 0.0 {
        return Err(TrainError::config(format!(
            "`class_weights` weigh the right class of an example, and `smoothing` {} spreads it over all; leave one of them out",
            config.fit.smoothing
        )));
    }
    let context = &mut context;
    let data = open(&config.data.for_nets(), &config.data.paths, None, context)?;
    if let Some(image) = data.dataset.fields().get("image")
        && let Some([height, width, channels]) = image.known().as_deref()
    {
        channels_last(*height, *width, *channels)?;
    }
    let pipeline = resolved(&config.pipeline, &data)?;
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
        ranks: None,
        among: held.as_ref().map(|held| held.training.clone()),
        sampler: None,
        lengths: None,
        by_class: true,
        vocabulary: None,
    };
    let mut training = PreparedPipeline::new(&pipeline, &terms, &data, context)?;
    training.check_has_batches()?;
    let labels = data.dataset.labels();
    let several = data.dataset.label_lists();
    if let Some(labels) = several {
        check_several(&config, labels, &config.data.paths)?;
    }
    let labels = &several.map_or_else(|| labels.clone(), |all| ClassMap::counted(all as usize));
    let classes = labels.len();
    if config.data.classes.is_none() {
        check_whole(labels, &config.data.paths)?;
    }
    let expected = Expected {
        labels: Some(labels.clone()),
        any_label: false,
        features: data.dataset.features(),
        means: None,
        columns: data.dataset.columns().cloned(),
    };
    let input = input_of(&training)?;
    if matches!(input, Flow::Row(_) | Flow::Bag(_)) && config.model == ImageModel::Small {
        config.model = ImageModel::Mlp;
    }
    let most_tested = match &config.head {
        Some(head) => head.most_tested(classes as u64),
        None => u64::MAX,
    };
    // Of a number of examples, which are among so many records and, if not all, the first of the same permutation.
    let sample = |name: &str, [examples, records]: [u64; 2], context: &mut RunContext<'_>| {
        if examples <= most_tested {
            return None;
        }
        let note = format!(
            "the {name} measures {most_tested} random ones of {examples} examples; give `test_examples` {examples} for all"
        );
        (context.observer)(Event::Note(&note));
        Some(HeldOut::sample(records, most_tested, config.fit.seed))
    };
    let mut held_out = |name: &str, paths: &[String]| -> Result<_, TrainError> {
        if paths.is_empty() {
            return Ok((None, None));
        }
        let opened = open(&config.data.for_nets(), paths, Some(&expected), context)?;
        let records = opened.dataset.records();
        let among = sample(name, [records; 2], context);
        let sampled_of = among.is_some().then_some(records);
        let measured = training.evaluation(&opened, among, context)?;
        fits(&measured, input, paths)?;
        Ok((Some(Prepared::Pipeline(Box::new(measured))), sampled_of))
    };
    let (mut validation, _) = held_out("validation", &config.fit.validation_paths())?;
    let (test, sampled_of) = match config.fit.test.as_slice() {
        [] => held_out("test", &data.test)?,
        paths => held_out("test", paths)?,
    };
    if let Some(held) = &held {
        let sampled = sample(
            "validation",
            [held.validation.len(), data.dataset.records()],
            context,
        );
        let among = sampled.as_ref().unwrap_or(&held.validation);
        let measured = training.validation(among, context)?;
        validation = Some(Prepared::Pipeline(Box::new(measured)));
    }
    let mut begin = None;
    if let Some(head) = config
        .head
        .as_ref()
        .filter(|head| head.begin == Begin::Means)
    {
        let data = Prepared::Pipeline(Box::new(training.without_chance(context)?));
        let centre = head.centre;
        begin = Some(ClassMeans { data, centre });
    }
    let class_weights = match &config.class_weights {
        Some(weights) => Some(weights.of(&data, held.as_ref(), pipeline.bad_examples, context)?),
        None => None,
    };
    let class_sizes = match (&config.head, &test) {
        (Some(_), test) if classes > 1 && (test.is_some() || several.is_some()) => {
            let (held, bad) = (held.as_ref(), pipeline.bad_examples);
            Some(class_sizes(
                &data,
                "a test by class size",
                held,
                bad,
                context,
            )?)
        }
        _ => None,
    };
    let net = config.net(input, classes)?;
    if net.normalises_batches() && training.deal_anywhere() && context.comm.size() > 1 {
        let note = format!(
            "each rank uses the records that it holds, and {} normalises over those: in files sorted by class these have few classes, which costs accuracy; leave `anywhere` out",
            config.model
        );
        (context.observer)(Event::Note(&note));
    }
    let trained = net.trained();
    let of_head = config.head.as_ref().map_or(0, |head| head.embedding);
    check_memory(trained + of_head * classes / context.comm.size())?;
    let operations = 6.0 * net.summary.multiplications as f64;
    let what = match input {
        Flow::Image(height, width, channels) => format!("{height}×{width}×{channels} images"),
        Flow::Row(width) => format!("vectors of {width}"),
        Flow::Bag(width) => format!("sparse rows of {width} features"),
        Flow::Ids => String::new(),
    };
    let note = format!(
        "{} on {what} of {classes} classes: {trained} parameters, {:.3} GFLOP each; {} records",
        config.model,
        operations / 1e9,
        data.dataset.records(),
    );
    (context.observer)(Event::Note(&note));
    let head = config.head.as_ref();
    // Of records that may have several.
    let of_labels = class_sizes.as_ref().filter(|_| several.is_some());
    let labels_each = of_labels.map_or(1.0, |sizes| {
        sizes.iter().sum::<u64>() as f64 / training.plan().records().max(1) as f64
    });
    let kind = head.map(|head| head.kind_of(&config.fit, &net, classes as u64, labels_each));
    if let Some((head, kind)) = head.zip(kind)
        && let Some(note) = head.budget_note(&config.fit, kind, classes as u64, labels_each)?
    {
        (context.observer)(Event::Note(&note));
    }
    config.fit.note_precision(context);
    if matches!(input, Flow::Bag(_)) && config.fit.optimizer == Optimizer::Sgd {
        let note = "features that few rows have learn slowly by sgd; `optimizer` adamw with `rate` 0.003 often predicts better from sparse rows";
        (context.observer)(Event::Note(note));
    }
    let comm = context.comm.duplicate().map_err(DataError::from)?;
    let trainer = match head.zip(kind) {
        Some((head, kind)) => head.trainer(net, (kind, classes as u64), &config.fit, comm)?,
        None => config.trainer(net, classes, comm)?,
    };
    let of = Fit {
        config: &config.fit,
        trainer,
        training: Prepared::Pipeline(Box::new(training)),
        validation,
        test,
        targets: Targets::Classes(classes),
        begin,
        class_weights,
        class_sizes,
        several: several.is_some(),
        sampled_of,
        rebuild: config.head.as_ref().and_then(|head| head.rebuild),
        head: kind.map(|kind| kind.to_string()),
        about: CLASSES,
        language: false,
        began,
    };
    let written = Classes {
        image: sizes(input),
        features: data.dataset.features(),
        map: labels.clone(),
        columns: data.dataset.columns().map(|columns| Schema::clone(columns)),
    };
    let settings = config.decisive();
    check_resumed(context, &settings)?;
    same_data(context, CLASSES, |file| {
        Classes::read(file).is_some_and(|before| before == written)
    })?;
    let mut folder = open_folder(&config, settings, context)?;
    if folder.is_written() {
        folder.write_json(CLASSES, &written)?;
    }
    fit(of, &mut folder, context)
}

/// Refuses what data with several labels for an example cannot use.
fn check_several(config: &ImageConfig, labels: u64, paths: &[String]) -> Result<(), TrainError> {
    let paths = paths.join(", ");
    if labels < 2 {
        return Err(TrainError::config(format!(
            "{paths}: states {labels} labels; a net needs two or more"
        )));
    }
    if config.head.is_none() {
        return Err(TrainError::config(format!(
            "{paths}: records may have several labels; use train classify, whose head takes them"
        )));
    }
    if config.class_weights.is_some() {
        return Err(TrainError::config(format!(
            "{paths}: records may have several labels, and `class_weights` weigh examples by their only one; leave it out"
        )));
    }
    Ok(())
}

/// Refuses data with several labels for an example, if a finished net of these classes cannot measure it; none is measured
/// without classes.
pub(crate) fn check_lists(
    data: &OpenedData,
    config: &ImageConfig,
    classes: Option<&ClassMap>,
) -> Result<(), TrainError> {
    let can_measure = classes.is_none_or(|map| config.head.is_some() && map.is_count());
    if can_measure || data.dataset.label_lists().is_none() {
        return Ok(());
    }
    Err(TrainError::config(format!(
        "{}: records may have several labels, which are numbers; this takes a net that train classify made of such data",
        data.paths[0].display()
    )))
}

/// Refuses labels that look like measurements.
pub(crate) fn check_whole(labels: &ClassMap, paths: &[String]) -> Result<(), TrainError> {
    if labels.is_count() {
        return Ok(());
    }
    match labels.values().iter().find(|value| value.fract() != 0.0) {
        Some(value) => Err(TrainError::config(format!(
            "{}: has the label {value}, but nets need classes, which are whole numbers or names; name the `label` column, or list the labels in `classes`",
            paths.join(", ")
        ))),
        None => Ok(()),
    }
}

/// The pipeline with open settings filled in.
///
/// Errors: records without images or vectors.
pub(crate) fn resolved(
    config: &PipelineConfig,
    data: &OpenedData,
) -> Result<PipelineConfig, TrainError> {
    let mut pipeline = config.clone();
    let fields = data.dataset.record_fields().specs();
    let is_input = |name: &str| {
        name.starts_with("image") || name == "features" || name == Row::SPARSE_FIELDS[0]
    };
    if pipeline.decode == DecodeSetting::None
        && data.dataset.contents() == Contents::Fields
        && !fields.0.iter().any(|field| is_input(&field.name))
    {
        return Err(TrainError::config(format!(
            "{}: has the fields {}, but a net reads image (pictures as bytes) or features (vectors), and label; save the arrays under these names, or give `decode` if pictures are encoded",
            data.paths[0].display(),
            fields.names()
        )));
    }
    // Encoded images must be decoded.
    if pipeline.decode == DecodeSetting::None && needs_decoding(data.dataset.contents()) {
        pipeline.decode = DecodeSetting::Image("image".to_string());
    }
    let is_there = |name: &str| data.dataset.fields().get(name).is_some();
    let vectors = is_there("features") || is_there(Row::SPARSE_FIELDS[0]);
    if pipeline.augment.is_none() && !vectors {
        let plain: Result<Pipeline, _> = PLAIN.parse();
        pipeline.augment = plain.ok();
    }
    Ok(pipeline)
}

/// File of the run folder with the input and classes of a net for images.
pub(crate) const CLASSES: &str = "classes.json";

/// The content of that file.
#[derive(PartialEq, Serialize, Deserialize)]
pub(crate) struct Classes {
    /// Height, width and channels of images, or the width of vectors; empty for sparse rows.
    pub(crate) image: Vec<usize>,
    /// Features of a record.
    pub(crate) features: u64,
    /// The classes.
    #[serde(flatten)]
    pub(crate) map: ClassMap,
    /// The columns that vectors come from, if they have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) columns: Option<Schema>,
}

impl Classes {
    /// From its file; `None` if that is missing or damaged.
    pub(crate) fn read(file: &Path) -> Option<Classes> {
        serde_json::from_slice(&pelton_storage::read_file(file).ok()?).ok()
    }

    /// The input of the net.
    pub(crate) fn input(&self) -> Flow {
        match self.image[..] {
            [height, width, channels] => Flow::Image(height, width, channels),
            [] => Flow::Bag(self.features as usize),
            ref vector => Flow::Row(vector.iter().product()),
        }
    }
}

/// Refuses to resume a run of other data, according to a file in rank 0's folder.
pub(crate) fn same_data(
    context: &RunContext<'_>,
    name: &str,
    is_same: impl FnOnce(&Path) -> bool,
) -> Result<(), TrainError> {
    let file = context.folder.out.join(name);
    let looks = context.folder.resume && context.comm.rank() == 0;
    if looks && file.exists() && !is_same(&file) {
        Err(TrainError::config(format!(
            "{}: the run was started with other data; give that data, or start another run with another `out`",
            file.display()
        )))
    } else {
        Ok(())
    }
}

/// Refuses to resume from a checkpoint with other settings or files.
pub(crate) fn check_resumed(
    context: &RunContext<'_>,
    settings: &Settings,
) -> Result<(), TrainError> {
    if !context.folder.resume || context.comm.rank() > 0 {
        return Ok(());
    }
    match Manifest::open(&context.folder.out, Set::Checkpoint)? {
        Some(before) => Ok(before.check_settings(settings)?),
        None => Ok(()),
    }
}

/// The run folder: rank 0's to write.
pub(crate) fn open_folder(
    config: &impl Serialize,
    settings: Settings,
    context: &mut RunContext<'_>,
) -> Result<RunFolder, TrainError> {
    let options = &context.folder;
    context.comm.barrier().map_err(DataError::from)?;
    let folder = match context.comm.rank() {
        0 => RunFolder::open(&options.out, config, options.resume, options.overwrite)?,
        _ => RunFolder::unwritten(&options.out),
    };
    context.comm.barrier().map_err(DataError::from)?;
    if let Some(note) = folder.note() {
        (context.observer)(Event::Note(note));
    }
    Ok(folder.with_settings(settings))
}

fn needs_decoding(contents: Contents) -> bool {
    matches!(contents, Contents::Image)
}

/// Refuses images or vectors of other sizes than the net's.
pub(crate) fn fits(
    prepared: &PreparedPipeline,
    expected: Flow,
    paths: &[String],
) -> Result<(), TrainError> {
    let found = input_of(prepared)?;
    if found == expected {
        return Ok(());
    }
    let text = |flow| {
        sizes(flow)
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join("×")
    };
    let remedy = match expected {
        Flow::Image(height, width, _) => format!(
            "give images of that size, or train with an `augment` that resizes all images, such as resize:{height}x{width}"
        ),
        Flow::Bag(_) => "give sparse rows, as LIBSVM text has them".to_string(),
        _ => "give vectors of that length".to_string(),
    };
    Err(TrainError::config(format!(
        "{}: its records are {}, the net takes {}; {remedy}",
        paths.join(", "),
        text(found),
        text(expected)
    )))
}

/// Sizes of one example.
pub fn sizes(input: Flow) -> Vec<usize> {
    match input {
        Flow::Image(height, width, channels) => vec![height, width, channels],
        Flow::Row(width) => vec![width],
        Flow::Ids | Flow::Bag(_) => vec![],
    }
}

/// Images of this size.
///
/// Errors: few rows and many channels, that is, images with channels first.
fn channels_last(height: usize, width: usize, channels: usize) -> Result<Flow, TrainError> {
    /// Colours and transparency.
    const MOST: usize = 4;
    if height <= MOST && channels > MOST {
        return Err(TrainError::config(format!(
            "the images are {height}×{width}×{channels} as height × width × channels, but channels seem to come first; store channels last (in NumPy, x.transpose(0, 2, 3, 1))"
        )));
    }
    Ok(Flow::Image(height, width, channels))
}

/// Input sizes of the pipeline, from its first batch.
///
/// Errors: those of the pipeline; images with channels first.
pub fn input_of(training: &PreparedPipeline) -> Result<Flow, TrainError> {
    let none = || {
        let options = training.options();
        TrainError::config(format!(
            "{} records are too few for a batch on rank {} of {}; give more records or fewer `ranks`",
            training.plan().records(),
            options.rank,
            options.world_size
        ))
    };
    let batch = training.first_batch()?.ok_or_else(none)?;
    match Ready::new(batch, Targets::Classes(usize::MAX))? {
        Ready::Images { pixels, .. } => {
            let sizes = &pixels.shape().dims;
            channels_last(sizes[1], sizes[2], sizes[3])
        }
        Ready::Vectors { values, .. } => Ok(Flow::Row(values.shape().dims[1])),
        Ready::Bags(_) => Ok(Flow::Bag(training.dataset().features() as usize)),
        Ready::Words(_) => Err(none()),
    }
}
