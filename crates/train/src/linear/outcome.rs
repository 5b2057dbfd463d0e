//! The results of a finished run: the model in two formats (written before it is tested), the figures, and the report;
//! or only the model, for a caller without a folder.

use pelton_data::plan_of;
use pelton_format::Dataset;
use pelton_linear::{Certificate, Loss, Model, Weights};
use pelton_plan::{Batching, Order};
use pelton_run::{Entries, EpochRecord, RunError, RunFolder, Set, peak_rss_bytes};

use super::inference;
use super::journal::Trained;
use super::report::{Results, report};
use super::task::Task;
use crate::error::TrainError;
use crate::summary::{InferenceFigures, LinearSummary, SearchFigures, Tested, ThresholdFigures};
use crate::trained::MODEL_SAFETENSORS;

/// The same in LIBLINEAR's format.
const MODEL_TEXT: &str = "model.txt";

/// More labels than this cause a note: they may be numbers rather than classes.
const MANY_CLASSES: usize = 100;

/// A trained model and its certificate.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The model.
    pub model: Model,
    /// Its exact primal value, and a lower bound of the optimum.
    pub certificate: Certificate,
    /// Epochs, or passes of Newton's method or of L-BFGS.
    pub epochs: u64,
    /// Advice for easier training, if any.
    pub advice: Option<String>,
    /// Notes for the user about the data, such as columns that were left out.
    pub notes: Vec<String>,
    /// Precision of the coefficients, if there is no penalty.
    pub inference: Option<InferenceFigures>,
}

/// A finished run.
pub(super) struct Ended {
    pub trained: Trained,
    pub model: Model,
    pub test: Tested,
    pub optimum: Option<f64>,
    pub search: Option<SearchFigures>,
    pub inference: Option<InferenceFigures>,
}

/// The model for the caller.
pub(super) fn fitted(task: &Task<'_>, ended: Ended) -> Fitted {
    let dataset = &task.rows.data.dataset;
    let notes = dataset.notes().iter().cloned();
    Fitted {
        notes: notes
            .chain(many_classes(dataset, task.config.loss))
            .chain(ended.inference.iter().flat_map(inference::warnings))
            .collect(),
        inference: ended.inference,
        certificate: ended.trained.found.solved.certificate,
        epochs: ended.trained.epochs.len() as u64,
        advice: ended.trained.found.advice,
        model: ended.model,
    }
}

/// The note on data with too many labels to be classes.
pub(super) fn many_classes(dataset: &Dataset, loss: Loss) -> Option<String> {
    let classes = dataset.labels().len();
    let each = if loss.is_of_all_classes() {
        "weights for each"
    } else {
        "one model each"
    };
    (classes > MANY_CLASSES).then(|| {
        format!(
            "{classes} labels: {each}, {classes} times the work; give `positive` LABEL for one of them, or another `label` column if these are not classes"
        )
    })
}

/// Writes `summary.json` and `report.html`; returns the figures.
pub(super) fn write(
    folder: &mut RunFolder,
    task: &Task<'_>,
    ended: Ended,
) -> Result<LinearSummary, TrainError> {
    let Ended {
        trained,
        model,
        test,
        optimum,
        search,
        inference,
    } = ended;
    let (config, division) = (&task.config, &task.division);
    let (found, totals) = (&trained.found, &trained.totals);
    let solved = &found.solved;
    let dataset = &task.rows.data.dataset;
    let by_passes = solved.solver.is_by_passes();
    // Passes read the files in their order and ignore `order`.
    let (order, randomness) = if by_passes {
        (
            Order::Sequential,
            plan_of(dataset, Order::Sequential, Batching::Batches(1), 0)?.randomness(),
        )
    } else {
        (config.order, division.plan.randomness())
    };
    let primal = solved.certificate.primal;
    let summary = LinearSummary {
        primal: Some(primal),
        dual: Some(solved.certificate.dual),
        relative_gap: Some(solved.certificate.relative_gap()),
        relative_difference: optimum.map(|optimum| (primal - optimum) / optimum),
        optimum,
        search,
        inference,
        test_accuracy: test.classes.as_ref().map(|test| test.figures.accuracy),
        test: test.classes,
        test_targets: test.targets,
        threshold: test.threshold.map(|threshold| {
            ThresholdFigures::from_threshold(&threshold, config.loss, dataset.labels())
        }),
        train_accuracy: (!config.loss.has_real_targets()).then_some(solved.accuracy),
        nonzero_weights: Some(model.weights.nonzero()),
        epochs: trained.epochs.len() as u64,
        passes: totals.rows as f64 / dataset.records().max(1) as f64,
        wall_s: trained.wall_s,
        prepare_s: totals.prepare_s + dataset.index_report().scan_seconds,
        load_s: totals.load_s,
        compute_s: totals.compute_s,
        overlap_s: totals.overlap_s,
        wait_s: totals.wait_s,
        visits: totals.visits,
        peak_rss_bytes: peak_rss_bytes(),
        memory_bytes: division.budget.bytes,
        data_bytes: task.rows.data_bytes,
        read_bytes: totals.read_bytes,
        used_bytes: totals.used_bytes,
        written_bytes: totals.written_bytes,
        read_amplification: totals.read_bytes as f64 / totals.used_bytes.max(1) as f64,
        modelled_device_s: task.rows.data.modelled_seconds(),
        rl: randomness.rl,
        rl_exact: randomness.rl_exact,
        records: dataset.records(),
        features: task.rows.features(),
        classes: dataset.labels().len() as u64,
        skipped_records: totals.skipped_records,
        ranks: trained.ranks,
        communication_s: totals.communication_s,
        communication_bytes: totals.communication_bytes,
        access: found.access.clone(),
        order: order.to_string(),
        solver: solved.solver.to_string(),
        seed: config.seed,
        verdict: [
            Some(found.meters.verdict().to_string()),
            found.advice.clone(),
            no_better(&trained.epochs, &solved.certificate),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n"),
    };
    let found = Results {
        summary: &summary,
        roc: test.roc,
        model: &model,
        dataset,
    };
    let report = report(config, &found, &trained.epochs);
    folder.write_text("report.html", &report.to_html())?;
    folder.write_summary(&summary)?;
    Ok(summary)
}

/// A warning if training did not improve the model after its first epoch, far from the optimum.
fn no_better(epochs: &[EpochRecord], certificate: &Certificate) -> Option<String> {
    const FAR: f64 = 0.1;
    let first = epochs.first().filter(|_| epochs.len() > 1)?.primal;
    let (now, gap) = (certificate.primal, certificate.relative_gap());
    (now >= first && gap > FAR).then(|| {
        format!(
            "the objective did not fall: {first:.4e} after the first epoch, {now:.4e} at the end, up to {gap:.1} times the optimum away; give `scale` standard, more `memory`, or a lower `cost`"
        )
    })
}

/// The model of these weights.
pub(super) fn model(task: &Task<'_>, weights: Weights) -> Model {
    let dataset = &task.rows.data.dataset;
    Model {
        loss: task.config.loss,
        // The cost means nothing without the weights of the records.
        cost: (task.weighting.digest() == 0).then_some(task.config.cost),
        class_weights: task.problem.class_weights().to_vec(),
        classes: dataset.labels().clone(),
        means: dataset.means().map(|means| means.to_vec()),
        penalty: task.problem.penalty(),
        bias_is_free: task.problem.bias_is_free(),
        weights,
        scale: task.rows.scale.as_deref().cloned(),
        threshold: None,
        target_centre: task.rows.target_centre,
        columns: dataset.columns().cloned(),
    }
}

/// Writes `model.safetensors`, and `model.txt` (LIBLINEAR's format) if that format can represent it.
pub(super) fn write_model(
    folder: &RunFolder,
    task: &Task<'_>,
    model: &Model,
) -> Result<(), TrainError> {
    let interrupt = task.interrupt;
    let (number, before) = folder.begin(Set::Model)?;
    model.write_safetensors(&folder.file(MODEL_SAFETENSORS)?, interrupt)?;
    let mut files = Entries::from([folder.entry(MODEL_SAFETENSORS)?]);
    // LIBLINEAR's format allows only 32-bit integers as labels.
    let is_whole = |label: &f64| f64::from(*label as i32) == *label;
    let is_named = task.rows.data.dataset.labels_are_names();
    let is_known = model.is_in_liblinear() && !is_named;
    let text = folder.file(MODEL_TEXT)?;
    if is_known && model.classes.values().iter().all(is_whole) {
        model.write_liblinear(&text, interrupt)?;
        files.extend([folder.entry(MODEL_TEXT)?]);
    } else if before.contains_key(MODEL_TEXT) {
        std::fs::remove_file(&text).map_err(|source| RunError::io(&text, "remove", source))?;
    }
    Ok(folder.commit(Set::Model, number, files)?)
}
