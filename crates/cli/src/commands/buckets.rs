//! `pelton buckets`: the cost of policies for batching sentences.

use std::io::{self, Write};
use std::path::PathBuf;

use pelton_tools::buckets::{
    BucketsConfig, BucketsTable, LengthSource, buckets, histogram, in_terminal,
};
use pelton_train::evaluate::unwritten;
use pelton_train::{DataError, Output};

use crate::arguments::BucketsArguments;
use crate::output::{Failure, print_json, print_with, with_console};

/// Characters of a line of the picture.
const COLUMNS: usize = 100;

/// Compares policies on the lengths of a file.
pub fn compare(arguments: BucketsArguments) -> Result<(), Failure> {
    let config = BucketsConfig {
        path: arguments.file,
        pair: arguments.pair,
        source: match arguments.column {
            Some(column) => LengthSource::Column(column),
            None => LengthSource::Lines(arguments.unit),
        },
        batch: arguments.batch,
        policies: arguments.policy,
    };
    let inputs: Vec<_> = config.pair.iter().chain([&config.path]).cloned().collect();
    let open = |path: &PathBuf| Output::open(path, &inputs, arguments.overwrite);
    let out = arguments.out.as_ref().map(open).transpose();
    let out = out.map_err(DataError::from)?;
    let table = with_console(|context| buckets(&config, context))?;
    if let Some(mut out) = out {
        let drawing = histogram(&table).to_svg();
        let written = out
            .write_all(drawing.as_bytes())
            .and_then(|()| out.publish());
        written.map_err(unwritten)?;
    }
    if arguments.json {
        return print_json(&table);
    }
    print_with(|out| print(&table, out))
}

fn print(table: &BucketsTable, out: &mut impl Write) -> io::Result<()> {
    let of_pairs = table.pair.is_some();
    let width = table.rows.iter().map(|row| row.policy.len()).max();
    let width = width.unwrap_or(0).max(30);
    writeln!(
        out,
        "{} {}, {} tokens, {:.2} a {}, {} the longest{}; batches of {}",
        table.sentences,
        if of_pairs { "pairs" } else { "sentences" },
        table.tokens,
        table.tokens / table.sentences.max(1) as f64,
        if of_pairs { "pair" } else { "sentence" },
        table.longest,
        table
            .second_longest
            .map_or_else(String::new, |second| format!(" first and {second} second")),
        table.batch
    )?;
    writeln!(
        out,
        "{:<width$} {:>8} {:>9} {:>10} {:>9} {:>10} {:>8}",
        "policy", "buckets", "batches", "padded", "dropped", "stretched", "RL*"
    )?;
    for row in &table.rows {
        writeln!(
            out,
            "{:<width$} {:>8} {:>9} {:>8.3} % {:>9} {:>10} {:>6.2} %",
            row.policy,
            row.buckets,
            row.batches,
            100.0 * row.padded_fraction,
            row.dropped,
            row.stretched,
            100.0 * row.rl_exact
        )?;
    }
    writeln!(out)?;
    for line in in_terminal(table, COLUMNS) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
