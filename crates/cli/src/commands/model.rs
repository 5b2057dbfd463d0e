//! `pelton eval`, `pelton predict` and `pelton sample`

#[cfg(feature = "nets")]
use std::io::BufWriter;
use std::io::Write;
#[cfg(feature = "nets")]
use std::path::Path;

#[cfg(feature = "nets")]
use pelton_train::LabelRanks;
#[cfg(feature = "nets")]
use pelton_train::changed_classes::change_classes;
#[cfg(feature = "nets")]
use pelton_train::embeddings::write_embeddings;
use pelton_train::evaluate::{self, EvaluateConfig, PredictionColumns};
#[cfg(feature = "nets")]
use pelton_train::finished::{self, Predicted, SampleConfig};
use pelton_train::{DataError, Output, TargetFigures, TestFigures, memory_budget};
#[cfg(feature = "nets")]
use pelton_train::{retrieval, verification};

#[cfg(feature = "nets")]
use pelton_train::{DataConfig, in_run_folder, linear::RunOptions};

#[cfg(feature = "nets")]
use crate::arguments::{ClassesArguments, SampleArguments};
use crate::arguments::{EvalArguments, PredictArguments};
use crate::bytes::Memory;
use crate::data_arguments::refuse_idle;
use crate::output::{Failure, bytes_of, model_here, print_json, print_with, usage, with_console};

/// Default bytes for the data, if the machine has them.
const USUAL_MEMORY: u64 = 256 << 20;

fn memory_of(given: Option<Memory>) -> Result<u64, Failure> {
    match given {
        Some(memory) => bytes_of(memory, "--memory"),
        None => Ok(memory_budget(USUAL_MEMORY, 1)),
    }
}

/// Measures a model on data with labels.
pub fn eval(arguments: EvalArguments) -> Result<(), Failure> {
    let config = EvaluateConfig {
        memory_bytes: memory_of(arguments.memory)?,
        data: arguments.format.config(arguments.data),
        model: model_here(&arguments.model)?,
    };
    #[cfg(feature = "nets")]
    if finished::is_net(&config.model)? {
        refuse_threshold(arguments.threshold)?;
        return match &arguments.pairs {
            Some(pairs) => verify(&config, pairs, arguments.json),
            None if arguments.recall.is_empty() => eval_net(&config, arguments.top, arguments.json),
            None => retrieve(
                &config,
                &arguments.recall,
                &arguments.gallery,
                arguments.json,
            ),
        };
    }
    if arguments.pairs.is_some() || !arguments.recall.is_empty() {
        return Err(usage(anyhow::anyhow!(
            "{}: --recall and --pairs compare the features of a net, and this is a linear model; give a run of `pelton train classify`",
            config.model.display()
        )));
    }
    if arguments.top.is_some() {
        return Err(usage(anyhow::anyhow!(
            "{}: --top applies to nets, and this is a linear model; leave it out",
            config.model.display()
        )));
    }
    let summary = with_console(|context| evaluate::eval(&config, arguments.threshold, context))?;
    if arguments.json {
        return print_json(&summary);
    }
    print_with(|out| {
        let figures = match &summary.test_targets {
            Some(test) => figures_of_targets(test),
            None => {
                let accuracy = summary.test_accuracy.unwrap_or(f64::NAN);
                format!("accuracy {:.4} %", 100.0 * accuracy)
            }
        };
        let primal = summary
            .primal
            .map(|primal| format!(", primal {primal:.6e}"));
        writeln!(
            out,
            "{figures} of {} examples{}",
            summary.records,
            primal.unwrap_or_default()
        )?;
        if let Some(threshold) = &summary.threshold {
            writeln!(out, "threshold: {threshold}")?;
        }
        let test = summary.test.iter().flat_map(figures_of);
        test.into_iter()
            .try_for_each(|line| writeln!(out, "{line}"))
    })
}

fn refuse_threshold(threshold: Option<f64>) -> Result<(), Failure> {
    match threshold {
        Some(threshold) => Err(usage(anyhow::anyhow!(
            "--threshold {threshold} is for linear models of two classes; leave it out for a net"
        ))),
        None => Ok(()),
    }
}

/// The figures of a model on data with real targets, in a line.
pub(super) fn figures_of_targets(test: &TargetFigures) -> String {
    let known = |name: &str, value: Option<f64>| Some(format!("{name} {:.6}", value?));
    let figures = [
        known("R²", test.r2),
        known("MAE", Some(test.mae)),
        known("RMSE", Some(test.rmse)),
        known("mean Poisson deviance", test.poisson_deviance),
    ];
    figures.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Up to this many classes, each has a line.
const MOST_CLASS_LINES: usize = 20;

/// The figures of a model on data with labels, except its accuracy: one line, then one per class.
pub(super) fn figures_of(test: &TestFigures) -> Vec<String> {
    let figures = &test.figures;
    let of = match figures.positive {
        Some(class) => format!(" of class {}", test.classes[class as usize]),
        None => String::new(),
    };
    let known = |name: String, value: Option<f64>| Some(format!("{name} {:.4}", value?));
    let known = [
        known("log loss".to_string(), figures.log_loss),
        known("AUC".to_string(), figures.auc),
        known(format!("average precision{of}"), figures.average_precision),
        known("Brier score".to_string(), figures.brier),
        known("mean F1".to_string(), Some(figures.f1)),
    ];
    let mut lines = vec![known.into_iter().flatten().collect::<Vec<_>>().join(", ")];
    if test.lacks_room {
        lines.push("no AUC: the scores of all rows do not fit in --memory, or several ranks have them; run `pelton eval` with more".to_string());
    }
    if test.classes.len() <= MOST_CLASS_LINES {
        let names = test.classes.iter().map(|name| name.chars().count());
        let width = names.max().unwrap_or(0).max("class".len());
        lines.push(format!(
            "{:width$}  {:>9}  precision  recall      F1",
            "class", "examples"
        ));
        let classes = test.classes.iter().zip(&figures.by_class);
        lines.extend(classes.map(|(name, class)| {
            format!(
                "{name:width$}  {:>9}  {:>9.4}  {:.4}  {:.4}",
                class.records, class.precision, class.recall, class.f1
            )
        }));
    }
    lines
}

#[cfg(feature = "nets")]
fn eval_net(config: &EvaluateConfig, top: Option<usize>, json: bool) -> Result<(), Failure> {
    let figures = with_console(|context| finished::eval(config, top, context))?;
    if json {
        return print_json(&figures);
    }
    let loss = figures.test_loss;
    print_with(|out| match (figures.test_accuracy, figures.words) {
        (Some(accuracy), _) => {
            let top = figures.top.zip(figures.top_accuracy);
            let top = top.map(|(k, share)| format!(" (top {k}: {:.4} %)", 100.0 * share));
            writeln!(
                out,
                "accuracy {:.4} %{} of {} images, mean loss {loss:.6}",
                100.0 * accuracy,
                top.unwrap_or_default(),
                figures.records,
            )?;
            let mut ranks = figures.test_label_ranks.iter().flat_map(LabelRanks::lines);
            ranks.try_for_each(|(name, parts)| writeln!(out, "{name} {parts}"))
        }
        (None, words) => writeln!(
            out,
            "perplexity {:.4} of {} words, mean loss {loss:.6}",
            loss.exp(),
            words.unwrap_or(0),
        ),
    })
}

#[cfg(feature = "nets")]
fn retrieve(
    config: &EvaluateConfig,
    ks: &[usize],
    gallery: &[String],
    json: bool,
) -> Result<(), Failure> {
    let figures = with_console(|context| retrieval::recall(config, ks, gallery, context))?;
    if json {
        return print_json(&figures);
    }
    print_with(|out| {
        for (k, recall) in &figures.recall {
            write!(out, "recall@{k} {:.4} %, ", 100.0 * recall)?;
        }
        let (queries, left_out) = (figures.queries, figures.left_out);
        write!(out, "{queries} queries among {} records", figures.gallery)?;
        match left_out {
            0 => writeln!(out),
            _ => writeln!(out, ", {left_out} left out without another of their class"),
        }
    })
}

#[cfg(feature = "nets")]
fn verify(config: &EvaluateConfig, pairs: &Path, json: bool) -> Result<(), Failure> {
    let figures = with_console(|context| verification::verify(config, pairs, context))?;
    if json {
        return print_json(&figures);
    }
    print_with(|out| {
        for (far, rate) in &figures.tar {
            match rate {
                Some(rate) => writeln!(out, "TAR {:.4} % at FAR {far}", 100.0 * rate)?,
                None => writeln!(
                    out,
                    "TAR at FAR {far}: needs more pairs of different classes than {}",
                    figures.different
                )?,
            }
        }
        let how = match figures.folds {
            1 => "at the best threshold of these pairs".to_string(),
            folds => format!("over {folds} folds"),
        };
        writeln!(
            out,
            "accuracy {:.4} % of {} pairs {how}, threshold {:.6}",
            100.0 * figures.accuracy,
            figures.same + figures.different,
            figures.threshold,
        )
    })
}

/// Prints a predicted label for every row.
pub fn predict(arguments: PredictArguments) -> Result<(), Failure> {
    let config = EvaluateConfig {
        memory_bytes: memory_of(arguments.memory)?,
        data: arguments.format.config(arguments.data),
        model: model_here(&arguments.model)?,
    };
    #[cfg(feature = "nets")]
    let is_net = finished::is_net(&config.model)?;
    #[cfg(not(feature = "nets"))]
    let is_net = false;
    let columns = PredictionColumns {
        probabilities: arguments.probabilities,
        scores: arguments.scores,
        keep: arguments.keep,
        threshold: arguments.threshold,
    };
    if is_net && (columns.scores || !columns.keep.is_empty()) {
        return Err(usage(anyhow::anyhow!(
            "--scores and --keep are for linear models; leave them out for a net"
        )));
    }
    if is_net {
        refuse_threshold(columns.threshold)?;
    }
    if arguments.top.is_some() && !is_net {
        return Err(usage(anyhow::anyhow!(
            "--top applies to nets; for a linear model give --probabilities"
        )));
    }
    if let Some(file) = arguments.embeddings.as_ref().filter(|_| !is_net) {
        return Err(usage(anyhow::anyhow!(
            "--embeddings {}: a linear model has no features of its own; give a run of `pelton train classify`",
            file.display()
        )));
    }
    let path = arguments.embeddings.as_ref().or(arguments.out.as_ref());
    let is_idle = arguments.overwrite && path.is_none();
    refuse_idle(&[(is_idle, "--overwrite", "without --out".to_string())]).map_err(usage)?;
    let inputs = config.data.inputs([config.model.as_path()]);
    let mut out = match path.filter(|path| path.as_os_str() != "-") {
        None => Output::standard(&inputs),
        Some(path) => Output::open(path, &inputs, arguments.overwrite),
    }
    .map_err(DataError::from)?;
    let result = with_console(|context| {
        #[cfg(feature = "nets")]
        if arguments.embeddings.is_some() {
            return write_embeddings(&config, &mut out, context);
        }
        #[cfg(feature = "nets")]
        if is_net {
            let wanted = if arguments.probabilities {
                Predicted::Probabilities
            } else {
                Predicted::Top(arguments.top.unwrap_or(1))
            };
            return finished::predict_lines(&config, wanted, &mut out, context);
        }
        evaluate::predict_lines(&config, &columns, &mut out, context)
    });
    let result = result.and_then(|()| Ok(out.publish().map_err(evaluate::unwritten)?));
    match result {
        Err(failure) if failure.code == 0 => Ok(()),
        result => result,
    }
}

/// Writes a finished run with changed classes.
#[cfg(feature = "nets")]
pub fn classes(arguments: ClassesArguments) -> Result<(), Failure> {
    let is_idle = arguments.add.is_empty();
    // Of folders on this machine the job knows it by any name.
    let address = |path: &Path| path.to_string_lossy().trim_end_matches('/').to_string();
    if address(&arguments.run) == address(&arguments.out) {
        return Err(usage(anyhow::anyhow!(
            "--out {}: is the run itself; name a new folder",
            arguments.out.display()
        )));
    }
    let config = EvaluateConfig {
        memory_bytes: memory_of(arguments.memory)?,
        data: arguments.format.config(arguments.add),
        model: model_here(&arguments.run)?,
    };
    let of_data = arguments.memory.is_some() || config.data != DataConfig::default();
    refuse_idle(&[(
        is_idle && of_data,
        "a flag of data",
        "without --add".to_string(),
    )])
    .map_err(usage)?;
    let folder = RunOptions {
        out: arguments.out,
        resume: false,
        overwrite: arguments.overwrite,
    };
    let changed = with_console(|context| {
        in_run_folder(context, &folder, |context| {
            change_classes(&config, &arguments.remove, context)
        })
    })?;
    print_with(|out| {
        let folder = folder.out.display();
        let (classes, added) = (changed.classes, changed.added);
        writeln!(out, "{folder} has {classes} classes, {added} of them new")
    })
}

/// Prints text that a net generates.
#[cfg(feature = "nets")]
pub fn sample(arguments: SampleArguments) -> Result<(), Failure> {
    let config = SampleConfig {
        prompt: arguments.prompt,
        words: arguments.words,
        temperature: arguments.temperature,
        top: arguments.top,
        seed: arguments.seed,
    };
    let run = model_here(&arguments.run)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let result = with_console(|context| finished::sample(&run, &config, &mut out, &context));
    match result {
        Err(failure) if failure.code == 0 => Ok(()),
        result => result,
    }
}
