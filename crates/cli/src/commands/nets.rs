//! `pelton train image`, `pelton train classify` and `pelton train language`

use std::path::Path;

use pelton_train::{
    FitConfig, ImageConfig, LabelRanks, LanguageConfig, NetSummary, RunContext, TrainError, image,
    in_run_folder, language, memory_budget,
};

use crate::bytes::human;
use crate::flags;
use crate::net_arguments::{ClassifyArguments, ImageArguments, LanguageArguments};
use crate::output::{Failure, print_json, usage};
use crate::ranks;
use crate::run_arguments::RunArguments;

/// Trains a net on images.
pub fn image(arguments: ImageArguments) -> Result<(), Failure> {
    let mut default = ImageConfig::default();
    default.fit.memory_bytes = budget(arguments.run.ranks)?;
    let (mut config, _) = arguments.run.begun(arguments.data.is_empty(), default)?;
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
    let (mut config, stated) = image.run.begun(image.data.is_empty(), default)?;
    let run = arguments.apply(&mut config, &stated).map_err(usage)?;
    train(run, &config.data.paths, |context| {
        image::run(&config, context)
    })
}

/// Trains a net on text.
pub fn language(arguments: LanguageArguments) -> Result<(), Failure> {
    let mut default = LanguageConfig::default();
    default.fit.memory_bytes = budget(arguments.run.ranks)?;
    let (mut config, _) = arguments.run.begun(arguments.data.is_empty(), default)?;
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
    let out = run.folder(paths);
    let options = run.options(&out);
    let link = run.link(ranks)?;
    let trained = ranks::run_over(link, ranks, |context| {
        in_run_folder(context, &options, &job)
    })?;
    tell(trained, run.json, &out)
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
    if let Some(sample) = &summary.test_sample {
        say!(
            "test sample       {} examples, {}",
            sample.examples,
            sample.what()
        );
    }
    for group in summary.test_accuracy_by_class_size.iter().flatten() {
        if let Some(accuracy) = group.accuracy {
            let (size, classes) = (group.size(), group.classes);
            say!(
                "                  {:.2} % of {classes} classes with {size} training examples",
                100.0 * accuracy
            );
        }
    }
    for (name, parts) in summary.test_label_ranks.iter().flat_map(LabelRanks::lines) {
        say!("                  {name} {parts}");
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
            "head              {head} of {classes} classes, {:.1} % active{}: head {:.1} s, features {:.1} s, graph {:.1} s, communication {:.1} s",
            100.0 * active,
            summary.list_recall.map_or(String::new(), |recall| {
                format!(", {:.1} % of the nearest found", 100.0 * recall)
            }),
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
