//! Runs the work of a table and prints its figures next to the published ones.

use std::io::Write;
use std::path::{Path, PathBuf};

use pelton_cli::flags;
use pelton_cli::output::{Failure, print_json, print_with, say, usage, with_console};
use serde_json::Value;

use crate::ReproduceArguments;
use crate::experiment::Experiment;
use crate::machine;
use crate::reproduce::reproduce;
use crate::table::{ReproduceConfig, Reproduction, Row};

/// Runs the work of a published table and prints its figures next to ours.
pub fn reproduce_and_print(arguments: ReproduceArguments) -> Result<(), Failure> {
    let mut experiment = Experiment::find(&arguments.name)?;
    if let Some(only) = &arguments.only {
        experiment.keep(only)?;
    }
    if let Some(folder) = arguments
        .real_data
        .as_ref()
        .filter(|folder| !folder.is_dir())
    {
        return Err(usage(anyhow::anyhow!(
            "--real-data {}: is not a folder; check the path, or leave the flag out",
            folder.display()
        )));
    }
    if let Some(others) = machine::busy().filter(|_| !arguments.noisy) {
        return Err(usage(anyhow::anyhow!(
            "other work takes {others:.1} of {} processors, so times would not be those of the table; wait until it is done, or give --noisy",
            machine::processors()
        )));
    }
    let config = ReproduceConfig {
        scale: arguments.scale,
        seeds: arguments.seeds.unwrap_or(experiment.seeds),
        out: arguments.out,
        real_data: arguments.real_data.or_else(real_data),
        program: std::env::current_exe().ok(),
        experiment,
    };
    let table = with_console(|context| reproduce(&config, context));
    let mut table = table.map_err(|failure| match failure.code {
        130 => Failure {
            error: anyhow::anyhow!(
                "interrupted; what is finished is kept in {}, and the same command continues",
                config.out.display()
            ),
            ..failure
        },
        _ => failure,
    })?;
    for note in &mut table.notes {
        *note = flags::named(note);
    }
    let text = lines(&table).join("\n");
    if arguments.json {
        say(text);
        return print_json(&table);
    }
    print_with(|out| writeln!(out, "{text}"))
}

/// The folder of real data, shared with tests.
fn real_data() -> Option<PathBuf> {
    let adjacent = Path::new("../shared/data");
    std::env::var_os("PELTON_DATA")
        .map(PathBuf::from)
        .or_else(|| adjacent.is_dir().then(|| adjacent.to_path_buf()))
}

/// The table as text: one block of lines for each data set and figure.
fn lines(table: &Reproduction) -> Vec<String> {
    let mut lines = vec![table.name.clone()];
    let same = |a: &Row, b: &Row| (&a.table, &a.data, &a.figure) == (&b.table, &b.data, &b.figure);
    for rows in table.rows.chunk_by(same) {
        let first = &rows[0];
        lines.push(String::new());
        lines.push(format!("{}: {}, {}", first.table, first.data, first.figure));
        if rows.iter().all(|row| row.differs == first.differs) {
            lines.push(format!("  ({})", first.differs));
        }
        lines.extend(match &first.measured {
            Value::Object(_) => times(rows),
            _ if first.inner_passes.is_some() => by_inner_passes(rows),
            _ => plain(rows),
        });
    }
    lines.push(String::new());
    lines.extend(table.notes.iter().cloned());
    let files = table.files.iter().map(|file| file.display().to_string());
    lines.push(format!("files: {}", files.collect::<Vec<_>>().join(", ")));
    lines
}

const NAME_WIDTH: usize = 58;

fn plain(rows: &[Row]) -> Vec<String> {
    let mut lines = vec![format!(
        "  {:NAME_WIDTH$} {:>12} {:>12}",
        "", "published", "measured"
    )];
    lines.extend(rows.iter().map(|row| {
        let measured = match &row.measured {
            Value::Array(curve) => curve.iter().map(short).collect::<Vec<_>>().join(" "),
            measured => short(measured),
        };
        let published = short(&row.published);
        format!(
            "  {:NAME_WIDTH$} {published:>12} {measured:>12}",
            row.method
        )
    }));
    lines
}

/// A line a method, a column for each number of inner passes; for a curve its last value.
fn by_inner_passes(rows: &[Row]) -> Vec<String> {
    const METHOD_WIDTH: usize = 24;
    let mut columns: Vec<&str> = Vec::new();
    let mut methods: Vec<&str> = Vec::new();
    for row in rows {
        let inner = row.inner_passes.as_deref().unwrap_or("");
        if !columns.contains(&inner) {
            columns.push(inner);
        }
        if !methods.contains(&row.method.as_str()) {
            methods.push(&row.method);
        }
    }
    let mut heading = format!("  {:METHOD_WIDTH$} {:>10}", "inner passes", "published");
    columns
        .iter()
        .for_each(|column| heading += &format!(" {column:>10}"));
    let mut lines = vec![heading];
    for method in methods {
        let of_method = || rows.iter().filter(|row| row.method == method);
        let published = of_method()
            .next()
            .map_or(String::new(), |row| short(&row.published));
        let mut line = format!("  {method:METHOD_WIDTH$} {published:>10}");
        for column in &columns {
            let cell = of_method().find(|row| row.inner_passes.as_deref() == Some(column));
            let text = cell.map_or("-".to_string(), |row| short(&row.measured));
            line += &format!(" {text:>10}");
        }
        lines.push(line);
    }
    lines
}

fn times(rows: &[Row]) -> Vec<String> {
    const COLUMNS: [&str; 6] = [
        "total_s",
        "prepare_s",
        "load_s",
        "compute_s",
        "overlap_s",
        "epochs",
    ];
    const WIDE: usize = 62;
    let mut heading = format!("  {:WIDE$}", "");
    COLUMNS
        .iter()
        .for_each(|column| heading += &format!(" {column:>10}"));
    let mut lines = vec![heading];
    lines.extend(rows.iter().map(|row| {
        let mut line = format!("  {:WIDE$}", row.method);
        for column in COLUMNS {
            line += &format!(" {:>10}", short(&row.measured[column]));
        }
        line
    }));
    lines
}

/// A value in few characters; for a list its last.
fn short(value: &Value) -> String {
    match value {
        Value::Null => "-".to_string(),
        Value::Number(number) => match number.as_f64() {
            Some(0.0) => "0".to_string(),
            Some(value) if value.abs() < 0.01 => format!("{value:.2e}"),
            Some(value) if value.fract() != 0.0 => format!("{value:.3}"),
            Some(value) => format!("{value:.0}"),
            None => number.to_string(),
        },
        Value::Array(values) => values.last().map_or("-".to_string(), short),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
