//! The table: what the trainings took, beside what is published.

use serde_json::{Value, json};

use super::trial::{Condition, Point, Reached, Setting, Trial, Until};
use super::tuning::{self, Tuned};
use crate::table::{ReproduceConfig, Row};

/// A condition with its learning rate and its trainings in real time, one a seed.
pub(super) struct Measured {
    pub condition: Condition,
    pub tuned: Tuned,
    pub trials: Vec<Trial>,
}

/// The published gain of e = 5 at R = 6.
const PUBLISHED_GAIN: f64 = 3.25;
/// The factor and the R of that.
const PUBLISHED_FACTOR: f64 = 5.0;
const PUBLISHED_RATIO: f64 = 6.0;

/// Means over the seeds, where every seed reached the target.
#[derive(Clone, Copy)]
struct Means {
    fresh: f64,
    wall_s: f64,
    /// fresh · max(t_up, e·t_down).
    modelled_s: f64,
    /// Uses of an example up to the target.
    realised: f64,
}

impl Measured {
    fn means(&self, setting: &Setting) -> Option<Means> {
        let reached: Option<Vec<Reached>> = self.trials.iter().map(|trial| trial.reached).collect();
        let reached = reached.filter(|reached| !reached.is_empty())?;
        let mean = |value: &dyn Fn(&Reached) -> f64| {
            reached.iter().map(value).sum::<f64>() / reached.len() as f64
        };
        let realised = |reached: &Reached| match self.condition {
            Condition::Fixed { factor, .. } => factor,
            Condition::Auto => reached.used / reached.fresh,
        };
        let per_example_s = setting.step_s / setting.batch as f64;
        Some(Means {
            fresh: mean(&|reached| reached.fresh),
            wall_s: mean(&|reached| reached.wall_s),
            modelled_s: mean(&|reached| {
                reached.fresh * per_example_s * setting.ratio.max(realised(reached))
            }),
            realised: mean(&realised),
        })
    }
}

/// Every figure, one after the other, condition by condition.
pub(super) fn rows(setting: &Setting, measured: &[Measured]) -> Vec<Row> {
    let means: Vec<Option<Means>> = measured.iter().map(|each| each.means(setting)).collect();
    let once = means[0];
    let table = Table {
        setting,
        measured,
        means: &means,
    };
    let over_once = |value: fn(&Means) -> f64| {
        move |_: &Measured, means: &Means| once.map(|once| value(&once) / value(means))
    };
    let gain_of = |condition: Condition| {
        let is_published =
            condition.factor_before() == Some(PUBLISHED_FACTOR) && setting.ratio == PUBLISHED_RATIO;
        is_published.then_some(json!(PUBLISHED_GAIN))
    };
    let worth_of = |condition: Condition| {
        let each = (PUBLISHED_GAIN - 1.0) / (PUBLISHED_FACTOR - 1.0);
        gain_of(condition).map(|_| json!(rounded(each)))
    };
    let worth = |_: &Measured, means: &Means| {
        let more = once?.fresh / means.fresh - 1.0;
        (means.realised > 1.0).then(|| more / (means.realised - 1.0))
    };
    let nothing = |_: Condition| None;
    let mut rows = table.column(GAIN, &gain_of, &over_once(|means| means.wall_s));
    rows.extend(table.column(
        "the same by fresh examples x max(t_up, e x t_down)",
        &nothing,
        &over_once(|means| means.modelled_s),
    ));
    rows.extend(table.column("worth of a repeat in fresh examples", &worth_of, &worth));
    rows.extend(table.column(
        "fresh examples of e = 1 over those needed",
        &fewer_fresh,
        &over_once(|means| means.fresh),
    ));
    rows.extend(table.best_fixed());
    rows.extend(
        table.column("seconds to the target", &nothing, &|_, means| {
            Some(means.wall_s)
        }),
    );
    rows.extend(
        table.column("fresh examples to the target", &nothing, &|_, means| {
            Some(means.fresh.round())
        }),
    );
    rows.extend(
        table.column("uses of an example, realised", &nothing, &|_, means| {
            Some(means.realised)
        }),
    );
    rows.extend(
        table.column("learning rate, tuned", &nothing, &|measured, _| {
            Some(f64::from(measured.tuned.rate))
        }),
    );
    rows
}

const GAIN: &str = "time of e = 1 over time to the target";

/// What the text says of twice-used examples.
fn fewer_fresh(condition: Condition) -> Option<Value> {
    match condition {
        Condition::Fixed { factor: 2.0, point } => Some(json!(match point {
            Point::Before => "almost 2",
            Point::After => "above 1",
            Point::Batches => "1 or more",
        })),
        _ => None,
    }
}

struct Table<'a> {
    setting: &'a Setting,
    measured: &'a [Measured],
    means: &'a [Option<Means>],
}

impl Table<'_> {
    /// One figure of every condition.
    fn column(
        &self,
        figure: &str,
        published: &dyn Fn(Condition) -> Option<Value>,
        value: &dyn Fn(&Measured, &Means) -> Option<f64>,
    ) -> Vec<Row> {
        let each = self.measured.iter().zip(self.means);
        each.map(|(measured, means)| {
            let value = means
                .as_ref()
                .map(|means| value(measured, means).map(rounded));
            Row {
                method: measured.condition.name(),
                figure: figure.to_string(),
                published: json!(published(measured.condition)),
                measured: match value {
                    Some(value) => json!(value),
                    None => json!("not reached"),
                },
                ..self.row()
            }
        })
        .collect()
    }

    /// How `auto` does against the fixed factor that would have been best.
    fn best_fixed(&self) -> Vec<Row> {
        let each = || self.measured.iter().zip(self.means);
        let fixed = each().filter(|(measured, _)| measured.condition.factor_before().is_some());
        let best = fixed
            .filter_map(|(measured, means)| Some((measured.condition, (*means)?.wall_s)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let auto = each().find(|(measured, _)| measured.condition == Condition::Auto);
        let auto = auto.and_then(|(_, means)| *means);
        let (Some((best, best_s)), Some(auto)) = (best, auto) else {
            return Vec::new();
        };
        vec![Row {
            method: format!("auto against {}", best.name()),
            figure: "time over that of the best fixed factor".to_string(),
            measured: json!(rounded(auto.wall_s / best_s)),
            ..self.row()
        }]
    }

    fn row(&self) -> Row {
        Row {
            table: format!("R = {}", self.setting.ratio),
            data: self.setting.pictures.name.clone(),
            differs: "a perceptron on small pictures instead of ResNet-50 on ImageNet, a file behind a modelled device instead of cloud storage, steps of constant time".to_string(),
            ..Row::default()
        }
    }
}

/// To four digits after the point.
fn rounded(value: f64) -> f64 {
    (1e4 * value).round() / 1e4
}

/// What holds for all figures.
pub(super) fn notes(
    config: &ReproduceConfig,
    setting: &Setting,
    until: Until,
    measured: &[Measured],
) -> Vec<String> {
    let experiment = &config.experiment;
    let pictures = &setting.pictures;
    let rates: Vec<String> = experiment.rates.iter().map(f64::to_string).collect();
    let mut notes = vec![
        format!(
            "data: {} of {}, {} by {side} grey pixels of {} classes; tested on {} others; batches of {}; cut at random after adding 2 pixels on each side, and mirrored",
            pictures.used.len(),
            pictures.name,
            pictures.side,
            pictures.classes,
            pictures.test_labels.len(),
            setting.batch,
            side = pictures.side
        ),
        "net: one hidden layer of 64 units, stochastic gradient descent with momentum 0.9, constant rate".to_string(),
        format!(
            "target: accuracy {:.4} (mean of three looks in a row at the mean of the weights of {} fresh examples each): the lowest over {} seeds after {} passes with e = 1 at its best rate",
            until.target, setting.look_every, tuning::seeds(config), experiment.epochs
        ),
        format!(
            "rates: of {} the one whose trainings reach the target soonest, on {} seeds other than the {} whose means stand here; {}",
            rates.join(", "),
            tuning::seeds(config),
            config.seeds,
            edges(measured)
        ),
        format!(
            "time is real: a step takes {} ms, what the net does not need of it is waited; the device gives {:.0} pictures a second, {} steps for a batch; looking at the test pictures costs no time; repeats are drawn from windows of {} fresh examples, those of auto from the last 2048",
            experiment.step_ms,
            setting.batch as f64 / (setting.ratio * setting.step_s),
            setting.ratio,
            setting.window
        ),
        late(measured),
        format!(
            "published: {PUBLISHED_GAIN} times less time with e = {PUBLISHED_FACTOR} at R = {PUBLISHED_RATIO}; with e = 2 fewer fresh examples in every workload but batches on ResNet-50, as few as almost half before augmentation; figures are drawn, not printed"
        ),
    ];
    if has_generated(config, pictures) {
        notes.push(
            "the pictures are generated; real ones are taken from `real_data` or Debian's dataset-fashion-mnist".to_string(),
        );
    }
    notes
}

fn has_generated(config: &ReproduceConfig, pictures: &super::pictures::Pictures) -> bool {
    let mut sets = config.experiment.sets.iter();
    sets.any(|set| set.name == pictures.name && set.rows.is_some())
}

fn edges(measured: &[Measured]) -> String {
    let at_edge: Vec<String> = measured
        .iter()
        .filter(|each| each.tuned.at_edge)
        .map(|each| each.condition.name())
        .collect();
    match at_edge.is_empty() {
        true => "none is at an end of the grid".to_string(),
        false => format!("at an end of the grid: {}", at_edge.join("; ")),
    }
}

/// How well steps kept their time.
fn late(measured: &[Measured]) -> String {
    let trials = || measured.iter().flat_map(|each| &each.trials);
    let sum = |value: fn(&Trial) -> f64| trials().map(value).sum::<f64>();
    let steps = sum(|trial| trial.steps as f64).max(1.0);
    format!(
        "steps took {:.3} ms in the mean; {:.2} % of them took longer than they should, since the net itself was not ready",
        1e3 * sum(|trial| trial.mean_step_s * trial.steps as f64) / steps,
        100.0 * sum(|trial| trial.late_steps as f64) / steps
    )
}
