//! `pelton train`

use std::path::{Path, PathBuf};

use pelton_train::linear::{self, RunOptions};
use pelton_train::{
    DataError, LinearConfig, LinearSummary, Solver, Stated, Target, memory_budget, read_over,
    refuse_address, shown_address,
};

use super::model::{figures_of, figures_of_targets};
use crate::arguments::LinearArguments;
use crate::bytes::human;
use crate::flags;
use crate::output::{Failure, print_json, usage};
use crate::ranks;

/// Trains a linear model.
pub fn linear(mut arguments: LinearArguments) -> Result<(), Failure> {
    let run = arguments.out.as_ref().filter(|_| arguments.resume);
    let run = run.map(|out| out.join("run.toml"));
    let from = match (&arguments.config, run) {
        (Some(path), _) => Some(path.clone()),
        // If data is named, --resume may also begin a run.
        (None, Some(run)) if run.exists() || arguments.data.is_empty() => Some(run),
        _ => None,
    };
    let json = arguments.json;
    let ranks = ranks::asked(arguments.ranks)?;
    let default = LinearConfig {
        memory_bytes: memory_budget(LinearConfig::USUAL_MEMORY, ranks),
        ..LinearConfig::bare()
    };
    let (mut config, stated) = match from {
        Some(path) => read_over(&path, &default)?,
        None => (default, Stated::default()),
    };
    if stated.has("free_bias") && !stated.has("bias") {
        config.bias = config.free_bias.then_some(1.0);
    }
    let counted = arguments.epochs.is_some()
        || arguments.blocks.is_some()
        || arguments.inner_passes.is_some();
    let (targeted, states_loss) = (arguments.target.is_some(), arguments.loss.is_some());
    arguments.apply(&mut config).map_err(usage)?;
    config.guesses_loss &= !(states_loss || stated.has("loss"));
    let counts = ["epochs", "blocks", "inner_passes"];
    if (counted || counts.iter().any(|name| stated.has(name)))
        && !(targeted || stated.has("target"))
    {
        config.target = Target::None;
    }
    // A resumed run keeps its memory, which its file states.
    if arguments.memory.is_none()
        && !stated.has("memory_bytes")
        && !stated.has("memory_share")
        && config
            .data
            .paths
            .iter()
            .any(|path| path.starts_with("demo:"))
    {
        // A demo shows Pelton's purpose: data eight times larger than memory.
        config.memory_share = Some(0.125);
        if config.target == Target::Auto {
            config.target = Target::Gap(Target::USUAL);
        }
    }
    let out = arguments
        .out
        .unwrap_or_else(|| default_folder(&config.data.paths));
    refuse_address(&out).map_err(DataError::from)?;
    let options = RunOptions {
        overwrite: arguments.overwrite,
        resume: arguments.resume,
        out: out.clone(),
    };
    let trained = ranks::run(ranks, |context| {
        linear::run(&config, context.in_folder(&options))
    });
    // Processes of other ranks print nothing.
    let Some(mut summary) = trained? else {
        return Ok(());
    };
    summary.verdict = flags::named(&summary.verdict);
    if json {
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

/// The folder of a run without `--out`, named after the first file or the demo.
pub(super) fn default_folder(paths: &[String]) -> PathBuf {
    let first = shown_address(paths.first().map_or("run", String::as_str));
    let name = Path::new(&*first)
        .file_name()
        .unwrap_or(first.as_ref().as_ref());
    Path::new("runs").join(name.to_string_lossy().replace(':', "-"))
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
