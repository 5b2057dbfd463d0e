//! The search for the best cost by cross-validation: trains the models of all costs and folds together on each row
//! read; one more pass scores each record by the models that did not see it.
//!
//! Reading costs as much as for one model. The solver visits a row for each model and ends early, since the models only
//! serve the choice. An interrupted search starts over; the run folder keeps the result of a finished one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_fetch::{FetchOptions, Meters};
use pelton_linear::{Loss, Weights, predict_some};
use pelton_run::{Event, Observer, RunFolder, Set};
use pelton_storage::in_parallel;
use rayon::prelude::*;

use super::budget::Budget;
use super::division::Division;
use super::evaluation::{Scores, for_each_batch};
use super::journal::{Journal, Trained};
use super::method::Method;
use super::problem::{Shape, problem, with_folds};
use super::ranks::Ranks;
use super::resume::{KEPT, Kept};
use super::rows::Rows;
use super::task::Task;
use super::weighting::Weighting;
use crate::config::{LinearConfig, Optimum, Target};
use crate::error::TrainError;
use crate::summary::{CostFigures, SearchFigures, Tested};

/// Relative gap at which models are good enough to compare.
const NEAR: f64 = 3e-3;

/// The configuration of the search, if `config` asks for one.
pub(super) fn configured(config: &LinearConfig) -> Option<LinearConfig> {
    config.folds?;
    Some(LinearConfig {
        cost: config.listed_costs()[0],
        target: Target::Gap(config.target.gap().unwrap_or(0.0).max(NEAR)),
        optimum: Optimum::Unknown,
        ..config.clone()
    })
}

/// The task of a search over the rows of a run.
pub(super) fn task<'a>(
    config: &LinearConfig,
    is_open: bool,
    (rows, weighting): (Rows, Weighting),
    (ranks, interrupt): (Ranks<'a>, &'a pelton_run::Interrupt),
) -> Result<Task<'a>, TrainError> {
    let shape = Shape::from_data(&rows.data);
    let problem = problem(config, rows.data.dataset.labels(), &shape)?;
    let problem = with_folds(config, problem, &shape)?;
    let problem = weighting.apply(problem, &rows.data.dataset)?;
    let share = ranks.share(&rows.data.dataset);
    let budget = Budget::new(config, &rows.data, share, interrupt, &mut |_| {});
    let division = Division::new(config, &rows.data, &problem, budget)?;
    Ok(Task {
        config: config.clone(),
        is_open,
        ranks,
        interrupt,
        rows,
        problem: Arc::new(problem),
        start: None,
        weighting,
        division,
    })
}

/// Trains the models by the method of the task, scores them and returns the best cost; saves the result if the folder
/// is written.
pub(super) fn search(
    task: &Task<'_>,
    method: Box<dyn Method + '_>,
    folder: &RunFolder,
    observer: Observer<'_>,
) -> Result<SearchFigures, TrainError> {
    let began = Instant::now();
    let records = task.rows.data.dataset.records();
    let trained = train(task, method, records, observer)?;
    let found = &trained.found.solved;
    let relative_gap = found.certificate.relative_gap();
    let weights = &found.weights;
    let (scores, meters) = score(task, weights, observer)?;
    let labels = task.rows.data.dataset.labels();
    let tested: Vec<Tested> = scores.iter().map(|scores| scores.tested(labels)).collect();
    let passes = (trained.totals.rows + records) as f64 / records.max(1) as f64;
    let mut found = figures(&task.config, &tested);
    if task.problem.penalty().l1_share() > 0.0 {
        let each = task.problem.subproblems_of_model() * found.folds as usize;
        for (at, cost) in found.costs.iter_mut().enumerate() {
            let vectors = (at * each..(at + 1) * each).map(|k| weights.vector(k));
            let nonzero = vectors.flatten().filter(|weight| **weight != 0.0).count();
            cost.nonzero_weights = Some(nonzero as f64 / f64::from(found.folds));
        }
    }
    (found.relative_gap, found.passes) = (relative_gap, passes);
    found.wall_s = began.elapsed().as_secs_f64();
    task.check_bad_records(&meters)?;
    for note in rare_classes(task, &tested, found.folds) {
        observer(Event::Note(&note));
    }
    observer(Event::Note(&described(&found)));
    if folder.is_written() {
        let kept = Kept {
            data: task.rows.data.dataset.fingerprint(),
            weights: task.weighting.digest(),
            found: found.clone(),
        };
        let (number, mut files) = folder.begin(Set::Checkpoint)?;
        folder.write_json(KEPT, &kept)?;
        files.extend([folder.entry(KEPT)?]);
        folder.commit(Set::Checkpoint, number, files)?;
    }
    Ok(found)
}

fn train(
    task: &Task<'_>,
    method: Box<dyn Method + '_>,
    records: u64,
    observer: Observer<'_>,
) -> Result<Trained, TrainError> {
    let costs = task.config.listed_costs().len();
    observer(Event::Note(&format!(
        "searching the best of {costs} costs: {} models side by side",
        task.problem.models()
    )));
    let events = &mut |event: Event<'_>| match event {
        Event::Progress { what, done, total } => observer(Event::Progress {
            what: &format!("search, {what}"),
            done,
            total,
        }),
        Event::Epoch(record) => observer(Event::Note(&format!(
            "search: {:.2} passes, gap {:.1e}",
            record.passes, record.relative_gap
        ))),
        note => observer(note),
    };
    let mut folder = RunFolder::unwritten(Path::new(""));
    let mut journal = Journal::new(&mut folder, events, task.ranks, records, Instant::now());
    method.train(&mut journal)
}

/// A model trained without one fold, and how well it predicts that fold.
struct Model {
    weights: Weights,
    scores: Scores,
}

/// How well each model predicts the records that it did not see, over all ranks.
fn score(
    task: &Task<'_>,
    weights: &Weights,
    observer: Observer<'_>,
) -> Result<(Vec<Scores>, Meters), TrainError> {
    let (problem, data) = (&task.problem, &task.rows.data);
    let (dataset, feed) = (&data.dataset, &task.division.budget.feed);
    let weights = match &task.rows.numbering {
        // Rows are read with the features' new indices.
        Some(numbering) => &numbering.narrow(weights),
        None => weights,
    };
    let (each, count) = (problem.subproblems_of_model(), problem.models());
    let folds = u64::from(task.config.folds.unwrap_or(1));
    let own = dataset.records().div_ceil(folds);
    let mut room = 0;
    let model = |model: usize| {
        let vectors = (model * each..(model + 1) * each).map(|k| weights.vector(k).to_vec());
        let memory = feed.memory_bytes / count as u64;
        let (scores, bytes) = Scores::new(problem.loss(), dataset.labels(), own, memory);
        room += bytes;
        Model {
            weights: Weights::from_vectors(weights.features(), weights.bias(), vectors.collect()),
            scores,
        }
    };
    let mut models: Vec<Model> = (0..count).map(model).collect();
    let feed = &FetchOptions {
        memory_bytes: feed.memory_bytes - room,
        ..feed.clone()
    };
    let total = dataset.records() / task.ranks.size() as u64;
    let mut done = 0;
    let meters = for_each_batch(dataset, feed, |batch| {
        let rows = &batch.rows;
        in_parallel(|| {
            models
                .par_iter_mut()
                .enumerate()
                .for_each(|(number, model)| {
                    let sees_not = |i| problem.holds_out(number, rows.id(i));
                    if !task.interrupt.load(Ordering::Relaxed) {
                        predict_some(&model.weights, rows, sees_not, |i, prediction| {
                            model.scores.add(rows.label(i), prediction);
                        });
                    }
                });
        })?;
        if task.interrupt.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        done += rows.len() as u64;
        observer(Event::Progress {
            what: "search, validation",
            done,
            total,
        });
        Ok(())
    })?;
    let mut scores: Vec<Scores> = models.into_iter().map(|model| model.scores).collect();
    if task.ranks.comm().is_some() {
        task.ranks.together(|peers| {
            scores
                .iter_mut()
                .try_for_each(|scores| scores.add_up(peers))
        })?;
    }
    Ok((scores, meters))
}

/// The error of an interrupted search.
pub(super) fn stopped() -> TrainError {
    TrainError::stopped("searching the best cost, before training began")
}

/// The name of the figure that decides for a loss, and whether larger is better.
fn deciding(loss: Loss) -> (&'static str, bool) {
    if loss == Loss::Poisson {
        ("poisson_deviance", false)
    } else if loss.has_real_targets() {
        ("mse", false)
    } else if loss.has_probabilities() {
        ("log_loss", false)
    } else {
        ("accuracy", true)
    }
}

/// The deciding figure of a model.
fn figure(name: &str, tested: &Tested) -> f64 {
    let classes = tested.classes.as_ref().map(|test| &test.figures);
    let targets = tested.targets.as_ref();
    let found = match name {
        "log_loss" => classes.and_then(|figures| figures.log_loss),
        "accuracy" => classes.map(|figures| figures.accuracy),
        "poisson_deviance" => targets.and_then(|figures| figures.poisson_deviance),
        _ => targets.map(|figures| figures.rmse * figures.rmse),
    };
    found.unwrap_or(f64::NAN)
}

/// The figures of all costs, of models in the order of [`with_folds`].
fn figures(config: &LinearConfig, tested: &[Tested]) -> SearchFigures {
    let (name, more_is_better) = deciding(config.loss);
    let folds = config.folds.unwrap_or(1);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let of_cost = |(&cost, tested): (&f64, &[Tested])| {
        let by_fold: Vec<f64> = tested.iter().map(|tested| figure(name, tested)).collect();
        let middle = mean(&by_fold);
        let squares: Vec<f64> = by_fold.iter().map(|v| (v - middle).powi(2)).collect();
        let mean_of = |of: &dyn Fn(&Tested) -> Option<f64>| {
            let values: Option<Vec<f64>> = tested.iter().map(of).collect();
            values.map(|values| mean(&values))
        };
        let of_classes =
            |tested: &Tested| tested.classes.as_ref().map(|test| test.figures.accuracy);
        CostFigures {
            cost,
            mean: middle,
            deviation: mean(&squares).sqrt(),
            by_fold,
            accuracy: mean_of(&of_classes),
            auc: mean_of(&|tested| tested.classes.as_ref()?.figures.auc),
            r2: mean_of(&|tested| tested.targets.as_ref()?.r2),
            nonzero_weights: None,
        }
    };
    let of_costs = config
        .listed_costs()
        .iter()
        .zip(tested.chunks(folds as usize));
    let costs: Vec<CostFigures> = of_costs.map(of_cost).collect();
    // Less is better; NaN is the worst.
    let worth = |cost: &CostFigures| match cost.mean {
        mean if mean.is_nan() => f64::INFINITY,
        mean if more_is_better => -mean,
        mean => mean,
    };
    let order = |a: &&CostFigures, b: &&CostFigures| {
        worth(a)
            .total_cmp(&worth(b))
            .then(a.cost.total_cmp(&b.cost))
    };
    SearchFigures {
        figure: name.to_string(),
        folds,
        best: costs
            .iter()
            .min_by(order)
            .map_or(config.cost, |best| best.cost),
        costs,
        ..SearchFigures::default()
    }
}

/// Notes on classes with fewer records than there are folds.
fn rare_classes(task: &Task<'_>, tested: &[Tested], folds: u32) -> Vec<String> {
    let labels = task.rows.data.dataset.labels();
    let records = |class: usize| -> u64 {
        let of_folds = tested.iter().take(folds as usize);
        let of_classes = of_folds.filter_map(|tested| tested.classes.as_ref());
        of_classes
            .map(|test| test.figures.by_class[class].records)
            .sum()
    };
    let classes = 0..labels.len() * usize::from(!task.config.loss.has_real_targets());
    let counted = classes.map(|class| (class, records(class)));
    let rare = counted.filter(|(_, records)| *records < u64::from(folds));
    rare.map(|(class, records)| {
        format!(
            "class {} has {records} records for {folds} folds: some have none of it to validate by, and a model may have none to train on; give fewer `folds` or more records",
            labels.describe(class as u32)
        )
    })
    .collect()
}

/// The table of the costs, and which is best.
pub(super) fn described(found: &SearchFigures) -> String {
    let name = match found.figure.as_str() {
        "log_loss" => "log loss",
        "mse" => "squared error",
        "poisson_deviance" => "Poisson deviance",
        other => other,
    };
    let of = |of: fn(&CostFigures) -> Option<f64>| found.costs.iter().map(of).collect();
    let mut others: Vec<(&str, Vec<Option<f64>>)> = vec![
        ("accuracy", of(|cost| cost.accuracy)),
        ("AUC", of(|cost| cost.auc)),
        ("R²", of(|cost| cost.r2)),
        ("weights", of(|cost| cost.nonzero_weights)),
    ];
    others.retain(|(other, values)| *other != name && values.iter().any(Option::is_some));
    let mut text = format!(
        "cross-validation over {} folds: {:.2} passes, {:.1} s, models at most {:.1e} from their optima\n  {:>10}  {name:>16} ± deviation",
        found.folds, found.passes, found.wall_s, found.relative_gap, "cost"
    );
    for (other, _) in &others {
        text += &format!("  {other:>9}");
    }
    for (at, cost) in found.costs.iter().enumerate() {
        let (mean, deviation) = (cost.mean, cost.deviation);
        text += &format!("\n  {:>10}  {mean:>16.6} ± {deviation:<9.6}", cost.cost);
        for (_, values) in &others {
            text += &match values[at] {
                // Larger numbers need no digits.
                Some(value) if value >= 100.0 => format!("  {value:>9.0}"),
                Some(value) => format!("  {value:>9.4}"),
                None => format!("  {:>9}", "-"),
            };
        }
        if cost.cost == found.best {
            text += "  best";
        }
    }
    let costs = found.costs.iter().map(|cost| cost.cost);
    let (least, most) = costs.fold((f64::INFINITY, 0.0_f64), |(least, most), cost| {
        (least.min(cost), most.max(cost))
    });
    let end = match found.best {
        _ if least == most => return text,
        best if best == least => "smallest",
        best if best == most => "largest",
        _ => return text,
    };
    text + &format!(
        "\n{} is the {end} `cost` of the list: a wider one may have a better",
        found.best
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_linear::TargetFigures;

    fn tested(rmse: f64) -> Tested {
        Tested {
            classes: None,
            targets: Some(TargetFigures {
                records: 10,
                rmse,
                ..TargetFigures::default()
            }),
            ..Tested::default()
        }
    }

    #[test]
    fn the_best_mean_is_picked_and_of_equals_the_smaller_cost() {
        let check = |costs: &[f64], rmses: &[f64], best: f64, says: Option<&str>| {
            let config = LinearConfig {
                loss: Loss::Squared,
                costs: costs.to_vec(),
                folds: Some(2),
                ..LinearConfig::default()
            };
            let tested: Vec<Tested> = rmses.iter().map(|&rmse| tested(rmse)).collect();
            let found = figures(&config, &tested);
            assert_eq!(found.best, best);
            let text = described(&found);
            match says {
                Some(says) => assert!(text.contains(says), "{text}"),
                None => assert!(!text.contains("wider"), "{text}"),
            }
            found
        };
        let three = [10.0, 1.0, 0.1];
        let found = check(&three, &[3.0, 4.0, 1.0, 3.0, 2.0, 4.0], 1.0, None);
        assert_eq!((found.costs[1].mean, found.costs[1].deviation), (5.0, 4.0));
        check(&three, &[2.0; 6], 0.1, Some("0.1 is the smallest"));
        let is_lost = f64::NAN;
        let rmses = [1.0, 1.0, is_lost, 0.0, 2.0, 2.0];
        check(&three, &rmses, 10.0, Some("10 is the largest"));
        check(&[0.5], &[1.0, 2.0], 0.5, None);
    }
}
