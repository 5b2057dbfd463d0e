//! The jobs `eval` and `predict`: a trained model on data.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use pelton_data::{self as data, DataConfig, DataError, Expected, OpenedData};
use pelton_fetch::{FetchOptions, OnBadRecord};
use pelton_format::{ClassMap, KeptCells, Missing};
use pelton_linear::{Model, Prediction, Threshold, positive_class, predict, probabilities};
use pelton_run::{Event, Interrupt, RunContext, peak_rss_bytes};

use crate::error::TrainError;
use crate::linear::{Scores, decided, evaluate, for_each_batch};
use crate::summary::{LinearSummary, ThresholdFigures};
pub use crate::trained::{TrainedModel, open_model};

/// The data, and the memory for it.
#[derive(Clone, Debug)]
pub struct EvaluateConfig {
    /// Run folder or model file.
    pub model: PathBuf,
    /// The data. Settings left at their default follow the run that trained the model.
    pub data: DataConfig,
    /// Memory for the data.
    pub memory_bytes: u64,
}

impl EvaluateConfig {
    fn open(
        &self,
        any_label: bool,
        context: &mut RunContext<'_>,
    ) -> Result<(TrainedModel, OpenedData), TrainError> {
        let trained = open_model(&self.model)?;
        let mut config = self.data.clone();
        if let Some(run) = &trained.config {
            let default = DataConfig::default();
            config.zero_based |= run.data.zero_based;
            if config.label == default.label {
                config.label.clone_from(&run.data.label);
            }
            if config.header == default.header {
                config.header = run.data.header;
            }
            if config.decimal == default.decimal {
                config.decimal = run.data.decimal;
            }
            config.positive = config.positive.or_else(|| run.data.positive.clone());
            config.cache_dir = config.cache_dir.or_else(|| run.data.cache_dir.clone());
        }
        let model = &trained.model;
        let of_classes = config.positive.is_some() || config.classes.is_some();
        if model.loss.has_real_targets() && of_classes {
            return Err(TrainError::config(format!(
                "`positive` and `classes` are for classes, and {} predicts real targets (loss {}); leave them out",
                self.model.display(),
                model.loss
            )));
        }
        // Column codes say what missing cells become.
        let is_coded = model
            .columns
            .as_ref()
            .is_some_and(|schema| !schema.codes.is_empty());
        let wants_means = self.data.missing.is_some_and(Missing::has_means);
        if wants_means && is_coded {
            return Err(TrainError::config(format!(
                "`missing`: {} says itself what missing cells become; leave it out",
                self.model.display()
            )));
        }
        if wants_means && model.means.is_none() {
            return Err(TrainError::config(format!(
                "`missing` mean: {} contains no means; give `missing` zero, or a run or model.safetensors trained with `missing` mean",
                self.model.display()
            )));
        }
        let of_run = trained.config.as_ref().and_then(|run| run.data.missing);
        config.missing = config.missing.or(match model.means {
            Some(_) => Some(Missing::Mean),
            None => of_run.filter(|how| *how == Missing::Zero),
        });
        let expected = Expected {
            labels: Some(model.classes.clone()),
            any_label,
            features: model.weights.features() as u64,
            means: model.means.as_deref().map(Arc::from),
            columns: model.columns.clone(),
        };
        expected.check(&config)?;
        let scale = trained.model.scale.clone().map(Arc::new);
        let config = config.with_rows(data::row_layout(scale.as_deref(), model.columns.as_deref()));
        let config = config.with_targets(model.loss.has_real_targets());
        let opened = data::open(&config, &config.paths, Some(&expected), context)?;
        let centre = trained.model.target_centre;
        Ok((trained, opened.scaled(scale.as_ref()).centred(centre)))
    }

    /// Options for reading within the memory budget less `taken` bytes.
    fn feed(&self, opened: &OpenedData, taken: u64, interrupt: &Interrupt) -> FetchOptions {
        FetchOptions {
            interrupt: Arc::clone(interrupt),
            on_bad_record: OnBadRecord::Fail,
            device: opened.device.speed(),
            ..FetchOptions::with_memory(self.memory_bytes - taken)
        }
    }
}

/// The threshold between the two classes of a model: the given one, or its own; `None` for the sign.
fn threshold_of(model: &Model, given: Option<f64>) -> Result<Option<Threshold>, TrainError> {
    let given = given.map(|given| Threshold::given(model.loss, &model.classes, given));
    Ok(given.transpose()?.or(model.threshold))
}

/// How well a model predicts data with labels, and its primal value if it states its cost. `threshold` decides between
/// two classes, by default the model's own.
pub fn eval(
    config: &EvaluateConfig,
    threshold: Option<f64>,
    mut context: RunContext<'_>,
) -> Result<LinearSummary, TrainError> {
    let began = Instant::now();
    let (trained, opened) = config.open(false, &mut context)?;
    let threshold = threshold_of(&trained.model, threshold)?;
    let dataset = &opened.dataset;
    let weights = &trained.model.weights;
    let problem = trained.model.problem()?;
    let (classes, records) = (&trained.model.classes, dataset.records());
    let (mut scores, room) = Scores::new(problem.loss(), classes, records, config.memory_bytes);
    let feed = config.feed(&opened, room, context.interrupt);
    let decide = threshold.as_ref();
    let evaluation = evaluate(
        dataset,
        &problem,
        weights,
        &feed,
        Some((&mut scores, decide)),
    )?;
    let test = scores.tested(classes);
    let meters = &evaluation.meters;
    Ok(LinearSummary {
        // None for a model without a cost.
        primal: (trained.model.cost).map(|_| evaluation.losses.primal(&problem, weights)),
        test_accuracy: test.classes.as_ref().map(|test| test.figures.accuracy),
        test: test.classes,
        test_targets: test.targets,
        threshold: decide.map(|threshold| {
            ThresholdFigures::from_threshold(threshold, trained.model.loss, classes)
        }),
        passes: meters.used_bytes as f64 / dataset.bytes().max(1) as f64,
        wall_s: began.elapsed().as_secs_f64(),
        prepare_s: dataset.index_report().scan_seconds,
        load_s: meters.load_s,
        compute_s: meters.compute_s,
        overlap_s: meters.overlap_s(),
        wait_s: meters.wait_s,
        peak_rss_bytes: peak_rss_bytes(),
        memory_bytes: config.memory_bytes,
        data_bytes: dataset.bytes(),
        read_bytes: meters.read_bytes,
        used_bytes: meters.used_bytes,
        read_amplification: meters.read_amplification(),
        records: dataset.records(),
        features: dataset.features(),
        classes: trained.model.classes.len() as u64,
        skipped_records: meters.skipped_records,
        ranks: 1,
        access: "window".to_string(),
        order: "sequential".to_string(),
        verdict: meters.verdict().to_string(),
        ..LinearSummary::default()
    })
}

/// The columns written for each prediction.
#[derive(Clone, Debug, Default)]
pub struct PredictionColumns {
    /// The probability of every class, for logistic models.
    pub probabilities: bool,
    /// The decision values.
    pub scores: bool,
    /// Columns of the data to copy to the output.
    pub keep: Vec<String>,
    /// Threshold between two classes; by default the model's own.
    pub threshold: Option<f64>,
}

/// Writes the predicted label or target of every row to `out`, a line each, in file order; with probabilities these
/// follow, in the order that a first line states, with tabs between. With scores or columns of the data it is CSV:
/// these columns, `label` (or `target`), `score CLASS` (of two classes only the first) and `probability CLASS`.
pub fn predict_lines(
    config: &EvaluateConfig,
    columns: &PredictionColumns,
    out: &mut dyn Write,
    mut context: RunContext<'_>,
) -> Result<(), TrainError> {
    let (trained, opened) = config.open(true, &mut context)?;
    let model = &trained.model;
    let threshold = threshold_of(model, columns.threshold)?;
    if let Some(threshold) = &threshold {
        let said = ThresholdFigures::from_threshold(threshold, model.loss, &model.classes);
        (context.observer)(Event::Note(&format!("threshold: {said}")));
    }
    let with_probabilities = columns.probabilities;
    if with_probabilities && !model.loss.has_probabilities() {
        return Err(TrainError::config(format!(
            "{}: a model of loss {} has no probabilities; train with `loss` logistic or multinomial",
            config.model.display(),
            model.loss
        )));
    }
    let labels = opened.dataset.labels();
    let mut shares = Vec::new();
    let mut failed = None;
    if columns.scores || !columns.keep.is_empty() {
        let data = (&opened, context.interrupt);
        return predict_table(config, columns, (model, threshold), data, out);
    }
    if with_probabilities {
        writeln!(out, "{}", heading(labels)).map_err(unwritten)?;
    }
    for_each_batch(
        &opened.dataset,
        &config.feed(&opened, 0, context.interrupt),
        |batch| {
            predict(&model.weights, &batch.rows, |_, prediction| {
                let prediction = decided(prediction, threshold.as_ref());
                let mut line = predicted(model, labels, &prediction);
                if with_probabilities
                    && probabilities(model.loss, prediction.values, &mut shares).is_some()
                {
                    for share in &shares {
                        line += &format!("\t{share}");
                    }
                }
                line.push('\n');
                if let Err(error) = out.write_all(line.as_bytes()) {
                    failed.get_or_insert(error);
                }
            });
            match failed.take() {
                Some(error) => Err(unwritten(error)),
                None => Ok(()),
            }
        },
    )?;
    out.flush().map_err(unwritten)
}

/// The class or target of a row.
fn predicted(model: &Model, labels: &ClassMap, prediction: &Prediction<'_>) -> String {
    if model.loss.has_real_targets() {
        (model.loss.prediction(prediction.values[0]) + model.target_centre).to_string()
    } else {
        labels.describe(prediction.class)
    }
}

/// Writes predictions as CSV.
fn predict_table(
    config: &EvaluateConfig,
    columns: &PredictionColumns,
    (model, threshold): (&Model, Option<Threshold>),
    (opened, interrupt): (&OpenedData, &Interrupt),
    out: &mut dyn Write,
) -> Result<(), TrainError> {
    let labels = opened.dataset.labels();
    let mut kept = match columns.keep.as_slice() {
        [] => None,
        names => Some(KeptCells::new(&opened.dataset, names).map_err(DataError::from)?),
    };
    let classes = || (0..labels.len() as u32).map(|class| labels.describe(class));
    let mut heading = columns.keep.clone();
    let is_real = model.loss.has_real_targets();
    // With two classes, the score is that of the positive one.
    let one = (model.classes.len() == 2).then(|| positive_class(&model.classes));
    heading.push(if is_real { "target" } else { "label" }.into());
    if columns.scores && is_real {
        heading.push("score".into());
    } else if columns.scores {
        let scored = classes().enumerate();
        let scored = scored.filter(|(class, _)| one.is_none_or(|one| one as usize == *class));
        heading.extend(scored.map(|(_, class)| format!("score {class}")));
    }
    if columns.probabilities {
        heading.extend(classes().map(|class| format!("probability {class}")));
    }
    writeln!(out, "{}", csv_line(&heading)).map_err(unwritten)?;
    let (mut shares, mut lines) = (Vec::new(), Vec::new());
    for_each_batch(
        &opened.dataset,
        &config.feed(opened, 0, interrupt),
        |batch| {
            lines.clear();
            predict(&model.weights, &batch.rows, |_, prediction| {
                let prediction = decided(prediction, threshold.as_ref());
                let mut cells = vec![predicted(model, labels, &prediction)];
                if columns.scores {
                    let sign = if one == Some(1) { -1.0 } else { 1.0 };
                    let score = |value: &f64| (sign * value + model.target_centre).to_string();
                    cells.extend(prediction.values.iter().map(score));
                }
                if columns.probabilities
                    && probabilities(model.loss, prediction.values, &mut shares).is_some()
                {
                    cells.extend(shares.iter().map(|share| share.to_string()));
                }
                lines.push(csv_line(&cells));
            });
            match &mut kept {
                None => lines
                    .iter()
                    .try_for_each(|line| writeln!(out, "{line}").map_err(unwritten)),
                Some(kept) => {
                    let (mut written, mut lines) = (Ok(()), lines.iter());
                    let read = kept.read(batch.rows.ids(), |_, cells| {
                        let line = lines.next().map_or("", String::as_str);
                        if written.is_ok() {
                            written = writeln!(out, "{},{line}", csv_line(cells));
                        }
                    });
                    read.map_err(DataError::from)?;
                    written.map_err(unwritten)
                }
            }
        },
    )?;
    out.flush().map_err(unwritten)
}

/// Cells with commas between; those with commas, quotes or line ends in quotes.
fn csv_line(cells: &[String]) -> String {
    let cell = |cell: &String| {
        if cell.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.clone()
        }
    };
    cells.iter().map(cell).collect::<Vec<_>>().join(",")
}

/// The first line of predictions with probabilities: `label`, then every class, with tabs between.
pub(crate) fn heading(classes: &ClassMap) -> String {
    let all = (0..classes.len() as u32).map(|class| classes.describe(class));
    let columns: Vec<String> = std::iter::once("label".to_owned()).chain(all).collect();
    columns.join("\t")
}

/// The error that results cannot be written. A closed pipe is not a failure: the reader has enough.
pub fn unwritten(source: io::Error) -> TrainError {
    match source.kind() {
        io::ErrorKind::BrokenPipe => DataError::OutputClosed.into(),
        _ => DataError::Output {
            what: "results",
            source,
        }
        .into(),
    }
}
