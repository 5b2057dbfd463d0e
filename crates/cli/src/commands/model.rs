//! `pelton eval`, `pelton predict` and `pelton sample`

use std::fs::File;
use std::io::{BufWriter, Write};

use pelton_train::evaluate::{self, EvaluateConfig};
#[cfg(feature = "nets")]
use pelton_train::finished::{self, Predicted, SampleConfig};
use pelton_train::memory_budget;

#[cfg(feature = "nets")]
use crate::arguments::SampleArguments;
use crate::arguments::{EvalArguments, PredictArguments};
use crate::bytes::Memory;
use crate::output::{Failure, bytes_of, print_json, print_with, usage, with_console};

/// Bytes for the data where nothing is said and there are enough.
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
        model: arguments.model,
    };
    #[cfg(feature = "nets")]
    if finished::is_net(&config.model) {
        return eval_net(&config, arguments.json);
    }
    let summary = with_console(|context| evaluate::eval(&config, context))?;
    if arguments.json {
        return print_json(&summary);
    }
    print_with(|out| {
        let accuracy = 100.0 * summary.test_accuracy.unwrap_or(f64::NAN);
        let primal = summary
            .primal
            .map(|primal| format!(", primal {primal:.6e}"));
        writeln!(
            out,
            "accuracy {accuracy:.4} % of {} examples{}",
            summary.records,
            primal.unwrap_or_default()
        )
    })
}

#[cfg(feature = "nets")]
fn eval_net(config: &EvaluateConfig, json: bool) -> Result<(), Failure> {
    let figures = with_console(|context| finished::eval(config, context))?;
    if json {
        return print_json(&figures);
    }
    let loss = figures.test_loss;
    print_with(|out| match (figures.test_accuracy, figures.words) {
        (Some(accuracy), _) => writeln!(
            out,
            "accuracy {:.4} % of {} images, mean loss {loss:.6}",
            100.0 * accuracy,
            figures.records,
        ),
        (None, words) => writeln!(
            out,
            "perplexity {:.4} of {} words, mean loss {loss:.6}",
            loss.exp(),
            words.unwrap_or(0),
        ),
    })
}

/// Prints a predicted label for every row.
pub fn predict(arguments: PredictArguments) -> Result<(), Failure> {
    let config = EvaluateConfig {
        memory_bytes: memory_of(arguments.memory)?,
        data: arguments.format.config(arguments.data),
        model: arguments.model,
    };
    #[cfg(feature = "nets")]
    let is_net = finished::is_net(&config.model);
    #[cfg(not(feature = "nets"))]
    let is_net = false;
    if arguments.top.is_some() && !is_net {
        return Err(usage(anyhow::anyhow!(
            "--top applies to nets; for a linear model give --probabilities"
        )));
    }
    let mut out: Box<dyn Write> = match &arguments.out {
        None => Box::new(BufWriter::new(std::io::stdout().lock())),
        Some(path) => Box::new(BufWriter::new(File::create(path).map_err(|error| {
            usage(anyhow::anyhow!(
                "--out {}: cannot be written ({error}); name a file in an existing folder",
                path.display()
            ))
        })?)),
    };
    let result = with_console(|context| {
        #[cfg(feature = "nets")]
        if is_net {
            let wanted = if arguments.probabilities {
                Predicted::Probabilities
            } else {
                Predicted::Top(arguments.top.unwrap_or(1))
            };
            return finished::predict_lines(&config, wanted, &mut out, context);
        }
        evaluate::predict_lines(&config, arguments.probabilities, &mut out, context)
    });
    match result {
        Err(failure) if failure.code == 0 => Ok(()),
        result => result,
    }
}

/// Prints text that a net makes up.
#[cfg(feature = "nets")]
pub fn sample(arguments: SampleArguments) -> Result<(), Failure> {
    let config = SampleConfig {
        prompt: arguments.prompt,
        words: arguments.words,
        temperature: arguments.temperature,
        top: arguments.top,
        seed: arguments.seed,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let result =
        with_console(|context| finished::sample(&arguments.run, &config, &mut out, &context));
    match result {
        Err(failure) if failure.code == 0 => Ok(()),
        result => result,
    }
}
