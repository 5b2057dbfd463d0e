//! `pelton reproduce`

use pelton_train::reproduce::{ReproduceConfig, Reproduction, reproduce};

use crate::arguments::ReproduceArguments;
use crate::commands::{Failure, print_json, with_console};
use crate::console::interrupt_flag;

/// Runs the work of a published table and prints its figures beside ours.
pub fn run(arguments: ReproduceArguments) -> Result<(), Failure> {
    let config = ReproduceConfig {
        name: arguments.name,
        scale: arguments.scale,
        seeds: arguments.seeds,
        out: arguments.out,
        real_data: arguments
            .real_data
            .or_else(|| std::env::var_os("PELTON_DATA").map(Into::into)),
    };
    let interrupt = interrupt_flag();
    let table = with_console(|observer| reproduce(&config, &interrupt, observer))?;
    if arguments.json {
        return print_json(&table);
    }
    print_table(&table);
    Ok(())
}

fn print_table(table: &Reproduction) {
    println!("{}", table.name);
    let mut heading = String::new();
    let mut rows: Vec<_> = table.rows.iter().collect();
    // One published figure at a time; methods keep the order they were measured in.
    rows.sort_by_key(|row| (&row.table, &row.data, &row.figure));
    for row in rows {
        let this = format!("{}: {}, {}", row.table, row.data, row.figure);
        if this != heading {
            println!();
            println!("{this}");
            println!("  ({})", row.differs);
            heading = this;
        }
        println!(
            "  {:56} published {:>10}   measured {}",
            row.method,
            short(&row.published),
            short(&row.measured)
        );
    }
    println!();
    for note in &table.notes {
        println!("{note}");
    }
}

/// A value in few characters.
fn short(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null => "-".to_string(),
        Value::Number(number) => match number.as_f64() {
            Some(value) if value != 0.0 && value.abs() < 0.01 => format!("{value:.2e}"),
            Some(value) if value.fract() != 0.0 => format!("{value:.3}"),
            _ => number.to_string(),
        },
        Value::Array(values) => {
            let first: Vec<String> = values.iter().take(8).map(short).collect();
            let dots = if values.len() > 8 { " ..." } else { "" };
            format!("{}{dots}", first.join(" "))
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name} {}", short(value)))
            .collect::<Vec<_>>()
            .join(", "),
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
    }
}
