//! `pelton train image`, `pelton train classify` and `pelton train language`

use std::path::{Path, PathBuf};

use pelton_comm::launched;
use pelton_train::linear::RunOptions;
use pelton_train::{
    DataError, FitConfig, ImageConfig, LanguageConfig, NetSummary, RunContext, Stated, TrainError,
    image, language, memory_budget, read_over, refuse_address,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::train::default_folder;
use crate::bytes::{Memory, human};
use crate::flags;
use crate::net_arguments::{ClassifyArguments, ImageArguments, LanguageArguments, RunArguments};
use crate::output::{Failure, bytes_of, positive, print_json, usage};
use crate::ranks;

/// Trains a net on images.
pub fn image(arguments: ImageArguments) -> Result<(), Failure> {
    let mut default = ImageConfig::default();
    default.fit.memory_bytes = budget(arguments.run.ranks)?;
    let (mut config, _) = begun(&arguments.run, arguments.data.is_empty(), default)?;
    let run = arguments.apply(&mut config).map_err(usage)?;
    train(run, &config.data.paths, |context| {
        image::run(&config, context)
    })
}

/// Trains a net with a head over very many classes.
pub fn classify(arguments: ClassifyArguments) -> Result<(), Failure> {
    let mut default = ImageConfig::for_classify();
    default.fit.memory_bytes = budget(arguments.image.run.ranks)?;
    let image = &arguments.image;
    let (mut config, stated) = begun(&image.run, image.data.is_empty(), default)?;
    let run = arguments.apply(&mut config, &stated).map_err(usage)?;
    train(run, &config.data.paths, |context| {
        image::run(&config, context)
    })
}

/// Trains a net on text.
pub fn language(arguments: LanguageArguments) -> Result<(), Failure> {
    let mut default = LanguageConfig::default();
    default.fit.memory_bytes = budget(arguments.run.ranks)?;
    let (mut config, _) = begun(&arguments.run, arguments.data.is_empty(), default)?;
    let run = arguments.apply(&mut config).map_err(usage)?;
    train(run, &config.data.paths, |context| {
        language::run(&config, context)
    })
}

/// The default memory of each rank's feed.
fn budget(ranks: Option<usize>) -> Result<u64, Failure> {
    Ok(memory_budget(FitConfig::USUAL_MEMORY, ranks::asked(ranks)?))
}

fn train(
    run: RunArguments,
    paths: &[String],
    job: impl Fn(RunContext<'_>) -> Result<NetSummary, TrainError> + Sync,
) -> Result<(), Failure> {
    crate::allocation::keep_large_blocks();
    if paths.is_empty() {
        return Err(usage(anyhow::anyhow!(
            "name the training data: files or a folder"
        )));
    }
    let ranks = ranks::asked(run.ranks)?;
    let out = folder(&run, paths);
    refuse_address(&out).map_err(DataError::from)?;
    let options = RunOptions {
        overwrite: run.overwrite,
        resume: run.resume,
        out: out.clone(),
    };
    let link = link(run.link, ranks)?;
    let trained = ranks::run_over(link, ranks, |context| job(context.in_folder(&options)))?;
    tell(trained, run.json, &out)
}

/// The configuration before flags: `default`, overridden by the given file or the run to resume.
fn begun<C: Serialize + DeserializeOwned>(
    run: &RunArguments,
    no_data: bool,
    default: C,
) -> Result<(C, Stated), Failure> {
    let resumed = run.out.as_ref().filter(|_| run.resume);
    let resumed = resumed.map(|out| out.join("run.toml"));
    let resumed = resumed.filter(|path| path.exists() || no_data);
    match run.config.as_ref().or(resumed.as_ref()) {
        Some(path) => Ok(read_over(path, &default)?),
        None => Ok((default, Stated::default())),
    }
}

fn folder(run: &RunArguments, paths: &[String]) -> PathBuf {
    run.out.clone().unwrap_or_else(|| default_folder(paths))
}

fn tell(trained: Option<NetSummary>, json: bool, out: &Path) -> Result<(), Failure> {
    // Processes of other ranks print nothing.
    let Some(mut summary) = trained else {
        return Ok(());
    };
    summary.verdict = flags::named(&summary.verdict);
    if json {
        print_json(&summary)?;
    }
    if let Some(accuracy) = summary.test_accuracy {
        say!("test accuracy     {:.2} %", 100.0 * accuracy);
    }
    if let Some(perplexity) = summary.test_perplexity {
        say!("test perplexity   {perplexity:.2}");
    }
    if let Some(loss) = summary.best_validation_loss {
        say!("validation loss   {loss:.4} in the best epoch");
    }
    say!(
        "work              {} epochs, {} steps of {:.1} ms, {:.1} s, peak memory {}",
        summary.epochs,
        summary.steps,
        1e3 * summary.step_s,
        summary.wall_s,
        human(summary.peak_rss_bytes)
    );
    if let (Some(head), Some(classes), Some(active)) =
        (&summary.head, summary.classes, summary.active_fraction)
    {
        let seconds = |part: Option<f64>| part.unwrap_or_default();
        say!(
            "head              {head} of {classes} classes, {:.1} % active: head {:.1} s, features {:.1} s, graph {:.1} s, communication {:.1} s",
            100.0 * active,
            seconds(summary.head_s),
            seconds(summary.features_s),
            seconds(summary.graph_s),
            seconds(summary.communication_s)
        );
    }
    say!("input             {}", summary.verdict);
    say!("run folder        {}", out.display());
    Ok(())
}

/// The rate of a modelled network, in bytes a second.
///
/// Errors: a single rank; processes, which have a real network.
fn link(rate: Option<Memory>, ranks: usize) -> Result<Option<f64>, Failure> {
    let Some(rate) = rate else {
        return Ok(None);
    };
    if ranks < 2 || launched().is_some_and(|launched| launched.size != Some(1)) {
        return Err(usage(anyhow::anyhow!(
            "--link models a network between threads of this process; give --ranks 2 or more, without mpirun"
        )));
    }
    positive(bytes_of(rate, "--link")? as f64, "link").map(Some)
}
