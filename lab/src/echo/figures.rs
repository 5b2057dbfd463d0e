//! The table: costs of the trainings next to published ones.

use pelton_feed::{EchoPoint, EchoSetting};
use serde_json::{Value, json};

use super::trial::{Condition, Look, Reached, Trial, best};
use super::tuning::{self, Tuned};
use super::workload::Workload;
use crate::table::{ReproduceConfig, Row};

/// A condition with its learning rate and its trainings, one a seed.
pub(super) struct Measured {
    pub condition: Condition,
    pub tuned: Tuned,
    pub trials: Vec<Trial>,
    /// A training on the slow source, in real time.
    pub waited: Option<Trial>,
}

/// The paper's results; it draws its figures without printing numbers.
pub(super) const PUBLISHED: &str = "published: 3.25 times less time with e = 5 at R = 6; with e = 2 fewer fresh examples in every workload but batches on ResNet-50, as few as almost half before augmentation; the best quality with echo is as good as without";
const PUBLISHED_GAIN: f64 = 3.25;
const GAIN: &str = "time without echo over time to the target";

/// Means over the seeds, if every seed reached the target.
#[derive(Clone, Copy)]
struct Means {
    fresh: f64,
    modelled_s: f64,
    /// Uses of an example up to the target.
    uses: f64,
}

impl Measured {
    fn means(&self, workload: &Workload) -> Option<Means> {
        let reached: Option<Vec<Reached>> = self.trials.iter().map(|trial| trial.reached).collect();
        let reached = reached.filter(|reached| !reached.is_empty())?;
        let mean = |value: &dyn Fn(&Reached) -> f64| {
            reached.iter().map(value).sum::<f64>() / reached.len() as f64
        };
        Some(Means {
            fresh: mean(&|reached| reached.fresh),
            modelled_s: mean(&|reached| workload.modelled_s(reached.fresh, reached.used)),
            uses: mean(&|reached| reached.used / reached.fresh),
        })
    }
}

/// All figures, by condition.
pub(super) fn rows(workload: &Workload, measured: &[Measured]) -> Vec<Row> {
    let means: Vec<Option<Means>> = measured.iter().map(|each| each.means(workload)).collect();
    let once = means[0];
    let row = |figure: &str, method: String, published: Value, measured: Value| {
        Row {
        table: format!("R = {}", workload.ratio),
        data: workload.name.clone(),
        method,
        figure: figure.to_string(),
        published,
        measured,
        differs: if workload.of_pictures {
"ResNet-20 on small pictures instead of ResNet-50 on ImageNet; a file that is read slowly instead of cloud storage"
} else {
"a small net on the Penn Treebank instead of a Transformer on LM1B and Common Crawl; seconds are modelled"
}
        .to_string(),
        ..Row::default()
    }
    };
    let mut rows = Vec::new();
    let mut column = |figure: &str,
                      published: &dyn Fn(Condition) -> Value,
                      value: &dyn Fn(&Measured, &Means) -> Option<f64>| {
        for (each, means) in measured.iter().zip(&means) {
            let value = match means {
                Some(means) => value(each, means).map(|value| json!(rounded(value))),
                None => Some(json!("not reached")),
            };
            if let Some(value) = value {
                let condition = each.condition;
                rows.push(row(
                    figure,
                    condition.to_string(),
                    published(condition),
                    value,
                ));
            }
        }
    };
    let nothing = |_: Condition| Value::Null;
    let gain = |condition: Condition| {
        if published_gain(workload, condition) {
            json!(PUBLISHED_GAIN)
        } else {
            Value::Null
        }
    };
    let waited = |each: &Measured| Some(each.waited.as_ref()?.reached?.seconds);
    column(&format!("{GAIN}, waited for"), &gain, &|each, _| {
        Some(waited(&measured[0])? / waited(each)?)
    });
    column("seconds to the target, waited for", &nothing, &|each, _| {
        waited(each)
    });
    column(&format!("{GAIN}, modelled"), &gain, &|_, means| {
        Some(once?.modelled_s / means.modelled_s)
    });
    column("seconds to the target, modelled", &nothing, &|_, means| {
        Some(means.modelled_s)
    });
    let fewer = |condition| published_fresh(condition);
    column(
        "fresh examples without echo over those to the target",
        &fewer,
        &|_, means| Some(once?.fresh / means.fresh),
    );
    column("fresh examples to the target", &nothing, &|_, means| {
        Some(means.fresh.round())
    });
    column("uses of an example", &nothing, &|_, means| Some(means.uses));
    column("learning rate, tuned", &nothing, &|each, _| {
        Some(each.tuned.rate)
    });
    let quality = if workload.of_pictures {
        "best accuracy, %"
    } else {
        "best perplexity"
    };
    let at = [
        (
            "fresh examples",
            (|look: &Look| look.fresh) as fn(&Look) -> u64,
        ),
        ("steps", |look: &Look| look.used),
    ];
    for (what, count) in at {
        for each in measured {
            let best = |trial: &Trial| best(&trial.looks, |look| count(look) <= workload.budget);
            let sum: f64 = each.trials.iter().map(best).sum();
            let mean = workload.shown(sum / each.trials.len() as f64);
            let figure = format!("{quality}, at equal {what}");
            rows.push(row(
                &figure,
                each.condition.to_string(),
                Value::Null,
                json!(rounded(mean)),
            ));
        }
    }
    // `auto` compared with the best fixed factor.
    let all = || measured.iter().zip(&means);
    let fixed = all().filter(|(each, _)| !each.condition.is_auto());
    let best = fixed.filter_map(|(each, means)| Some((each.condition, means.as_ref()?.modelled_s)));
    let best = best.min_by(|a, b| a.1.total_cmp(&b.1));
    let auto = all()
        .find(|(each, _)| each.condition.is_auto())
        .and_then(|(_, means)| *means);
    if let (Some((best, best_s)), Some(auto)) = (best, auto) {
        let figure = "time over that of the best fixed echo";
        let over = json!(rounded(auto.modelled_s / best_s));
        rows.push(row(
            figure,
            format!("auto against {best}"),
            Value::Null,
            over,
        ));
    }
    rows
}

/// Whether the paper prints this gain.
fn published_gain(workload: &Workload, condition: Condition) -> bool {
    let is_five = matches!(condition.0, Some(EchoSetting::Examples(echo, EchoPoint::BeforeAugment)) if echo.factor() == 5.0);
    is_five && workload.of_pictures && workload.ratio == 6.0
}

/// The paper's figure for examples used twice.
fn published_fresh(condition: Condition) -> Value {
    match condition.0 {
        Some(EchoSetting::Examples(echo, point)) if echo.factor() == 2.0 => match point {
            EchoPoint::BeforeAugment => json!("almost 2"),
            EchoPoint::AfterAugment => json!("above 1"),
            EchoPoint::Read => Value::Null,
        },
        Some(EchoSetting::Batches(echo)) if echo.factor() == 2.0 => json!("1 or more"),
        _ => Value::Null,
    }
}

/// Rounded to four decimals.
fn rounded(value: f64) -> f64 {
    (1e4 * value).round() / 1e4
}

/// Notes on all figures of a workload.
pub(super) fn notes(
    config: &ReproduceConfig,
    workload: &Workload,
    target: f64,
    rates: &[f64],
    measured: &[Measured],
) -> Vec<String> {
    let name = &workload.name;
    let unit = if workload.of_pictures {
        "% accuracy"
    } else {
        "perplexity"
    };
    let tried: Vec<String> = rates.iter().map(f64::to_string).collect();
    let edge = measured.iter().filter(|each| each.tuned.at_edge);
    let edge: Vec<String> = edge.map(|each| each.condition.to_string()).collect();
    let seeds = tuning::seeds(config.seeds);
    let mut notes = vec![
        format!("{name}: {}", workload.note),
        format!(
            "{name}: the target is {:.2} {unit} (mean of three looks in a row, {} steps from one to the next): 99 % of the best accuracy, or 101 % of the best perplexity, in the mean of {seeds} seeds within {} passes without echo at their best rate",
            workload.shown(target),
            workload.look_every,
            config.experiment.epochs
        ),
        format!(
            "{name}: of the rates {} the one whose trainings reach the target soonest, on {seeds} seeds other than the {} whose means stand here; at an end of the grid: {}",
            tried.join(", "),
            config.seeds,
            if edge.is_empty() {
                "none".to_string()
            } else {
                edge.join(", ")
            }
        ),
        format!(
            "{name}: repeats are drawn from windows of {} fresh examples, those of auto from the last 2048",
            workload.window
        ),
    ];
    let step_ms = 1e3 * workload.step_s;
    notes.push(format!(
        "{name}: modelled time is max(R x fresh batches, steps) x {step_ms:.2} ms, the step's time beforehand; auto trains in real time, where the source gives a batch every {:.1} ms, since it repeats by the clock",
        workload.ratio * step_ms
    ));
    for each in measured {
        if let Some(waited) = &each.waited {
            notes.push(format!(
                "{name}: {} was also trained with seed 0 while the source was waited for: a step took {:.2} ms in the mean, and clock and source stand while the test data is looked at",
                each.condition,
                1e3 * waited.mean_step_s
            ));
        }
    }
    notes
}
