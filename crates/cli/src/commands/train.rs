//! `pelton train`

use std::path::Path;

use pelton_train::linear::{self};
use pelton_train::{LinearConfig, LinearSummary, Solver, Target, in_run_folder, memory_budget};

use super::model::{figures_of, figures_of_targets};
use crate::arguments::LinearArguments;
use crate::bytes::human;
use crate::flags;
use crate::output::{Failure, print_json, usage};
use crate::ranks;

/// Trains a linear model.
pub fn linear(arguments: LinearArguments) -> Result<(), Failure> {
    let ranks = ranks::asked(arguments.run.ranks)?;
    let default = LinearConfig {
        memory_bytes: memory_budget(LinearConfig::USUAL_MEMORY, ranks),
        ..LinearConfig::bare()
    };
    let (mut config, stated) = arguments.run.begun(arguments.data.is_empty(), default)?;
    if stated.has("free_bias") && !stated.has("bias") {
        config.bias = config.free_bias.then_some(1.0);
    }
    let given = &arguments.given;
    let is_said = |setting: &str| given.has(setting) || stated.has(setting);
    let counts = ["epochs", "blocks", "inner_passes"]
        .into_iter()
        .any(is_said);
    let (has_target, has_loss) = (is_said("target"), is_said("loss"));
    let has_memory =
        arguments.more.memory.is_some() || stated.has("memory_bytes") || stated.has("memory_share");
    let run = arguments.apply(&mut config).map_err(usage)?;
    config.guesses_loss &= !has_loss;
    if counts && !has_target {
        config.target = Target::None;
    }
    // A run that is resumed keeps what it began with, which its file states.
    let is_demo = |path: &String| path.starts_with("demo:");
    if !has_memory && config.data.paths.iter().any(is_demo) {
        // A demo shows what Pelton is for: data eight times the memory it is given.
        config.memory_share = Some(0.125);
        if config.target == Target::Auto {
            config.target = Target::Gap(Target::USUAL);
        }
    }
    let out = run.folder(&config.data.paths);
    let options = run.options(&out);
    let link = run.link(ranks)?;
    let trained = ranks::run_over(link, ranks, |context| {
        in_run_folder(context, &options, |context| linear::run(&config, context))
    });
    // Processes of other ranks print nothing.
    let Some(mut summary) = trained? else {
        return Ok(());
    };
    summary.verdict = flags::named(&summary.verdict);
    if run.json {
        print_json(&summary)?;
    }
    print_summary(&summary, &out);
    match config.target.most() {
        Some(most) if !summary.relative_gap.is_some_and(|gap| gap <= most) => {
            Err(missed(most, &summary))
        }
        _ => Ok(()),
    }
}

/// Exit code of a run that ended before its target, with a model.
const MISSED: u8 = 3;

fn missed(target: f64, summary: &LinearSummary) -> Failure {
    let gap = summary.relative_gap.unwrap_or(f64::INFINITY);
    Failure {
        error: anyhow::anyhow!(
            "the target {target:e} was not reached: after {} epochs the model is at most {gap:.4e} from the optimum; continue with --resume and more --epochs, give more --memory or a lower --cost, or accept what comes with --target none",
            summary.epochs
        ),
        code: MISSED,
    }
}

fn print_summary(summary: &LinearSummary, out: &Path) {
    let figure = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.4e}"));
    if let Some(accuracy) = summary.test_accuracy {
        say!("test accuracy     {:.2} %", 100.0 * accuracy);
    }
    if let Some(threshold) = &summary.threshold {
        say!("threshold         {threshold}");
    }
    for line in summary.test.iter().flat_map(figures_of) {
        say!("                  {line}");
    }
    if let Some(test) = &summary.test_targets {
        say!("test              {}", figures_of_targets(test));
    }
    let (primal, gap) = (figure(summary.primal), figure(summary.relative_gap));
    match &summary.inference {
        Some(_) => {
            say!("objective         {primal}: about {gap} from the optimum, which is not proved")
        }
        None => say!(
            "certificate       primal {primal}, dual {}: at most {gap} from the optimum",
            figure(summary.dual)
        ),
    }
    if let Some([nonzero, all]) = summary
        .nonzero_weights
        .filter(|[nonzero, all]| nonzero < all)
    {
        say!("weights           {nonzero} of {all} are not 0");
    }
    say!(
        "work              {} epochs, {:.2} passes over {}, {} read, {:.1} s, peak memory {}",
        summary.epochs,
        summary.passes,
        human(summary.data_bytes),
        human(summary.read_bytes),
        summary.wall_s,
        human(summary.peak_rss_bytes)
    );
    if summary.ranks > 1 {
        say!(
            "ranks             {}: {} sent, {:.1} s waited for one another",
            summary.ranks,
            human(summary.communication_bytes),
            summary.communication_s
        );
    }
    let solver: Option<Solver> = summary.solver.parse().ok();
    if let Some(solver) = solver.filter(|solver| solver.is_by_passes()) {
        let method = solver.method();
        say!("shuffling         none: each pass of {method} sums over all rows");
    } else {
        say!(
            "shuffling         {}: randomness level {:.1} %, exact {:.1} %",
            summary.order,
            100.0 * summary.rl,
            100.0 * summary.rl_exact
        );
    }
    say!("files             {}", out.display());
    say!("{}", summary.verdict);
}
