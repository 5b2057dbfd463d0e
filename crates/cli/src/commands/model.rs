//! `pelton eval` and `pelton predict`

use std::io::{BufWriter, Write};

use pelton_train::evaluate::{self, EvaluateConfig};

use crate::arguments::{EvalArguments, PredictArguments};
use crate::output::{Failure, bytes_of, print_json, print_with, with_console};

/// Measures a model on data with labels.
pub fn eval(arguments: EvalArguments) -> Result<(), Failure> {
    let config = EvaluateConfig {
        memory_bytes: bytes_of(arguments.memory, "--memory")?,
        data: arguments.format.config(arguments.data),
        model: arguments.model,
    };
    let summary = with_console(|context| evaluate::eval(&config, context))?;
    if arguments.json {
        return print_json(&summary);
    }
    print_with(|out| {
        writeln!(
            out,
            "accuracy {:.4} % of {} examples, primal {:.6e}",
            100.0 * summary.test_accuracy.unwrap_or(f64::NAN),
            summary.records,
            summary.primal.unwrap_or(f64::NAN)
        )
    })
}

/// Prints a predicted label for every row.
pub fn predict(arguments: PredictArguments) -> Result<(), Failure> {
    let config = EvaluateConfig {
        memory_bytes: bytes_of(arguments.memory, "--memory")?,
        data: arguments.format.config(arguments.data),
        model: arguments.model,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let result = with_console(|context| {
        evaluate::predict_lines(&config, arguments.probabilities, &mut out, context)
    });
    match result {
        Err(failure) if failure.code == 0 => Ok(()),
        result => result,
    }
}
