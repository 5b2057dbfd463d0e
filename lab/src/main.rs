//! `pelton-lab`: published tables next to ours, and predictions for larger clusters.
//!
//! `reproduce NAME` does the work of a table, which a TOML file in `experiments/` describes; `plan-capacity` predicts
//! an epoch on more nodes, or training over many classes on more devices, than there are; `glyphs` draws the characters
//! of fonts, for many classes of pictures. `train …` is that of
//! `pelton`: tables measure whole runs as processes of this program.

mod bucket_training;
mod buckets;
mod capacity_arguments;
mod capacity_table;
mod class_capacity;
mod class_capacity_table;
mod convergence;
mod data_in_memory;
mod deepio_bandwidth;
mod deepio_nets;
mod deepio_order;
mod drawing;
mod echo;
mod experiment;
mod glyph_command;
mod glyphs;
mod idx;
mod idx_writer;
mod kept;
mod lirs_dnn;
mod machine;
mod measured;
mod memory;
mod method;
mod modelled;
mod nets;
mod node_capacity;
mod pages;
mod pictures;
mod printed_table;
mod published;
mod raw_runs;
mod reproduce;
mod runs;
mod svm;
mod table;
#[cfg(test)]
mod tests;
mod top_k;
mod trainings;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use capacity_arguments::CapacityArguments;
use glyph_command::GlyphsArguments;

/// Published tables next to ours, and predictions for larger clusters.
#[derive(Debug, Parser)]
#[command(name = "pelton-lab", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the work of a published table and print its figures next to ours
    Reproduce(ReproduceArguments),
    /// Predict how long an epoch takes on more nodes than there are, from stated figures
    PlanCapacity(Box<CapacityArguments>),
    /// Draw all characters of fonts, one class a character, with font families held out for testing
    Glyphs(GlyphsArguments),
}

/// `reproduce`
#[derive(Debug, Args)]
pub struct ReproduceArguments {
    /// Table: the name of a file in experiments/, without .toml, or a path of such a file
    pub name: String,
    /// Scale of the generated data, 1 being the default number of rows
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Seeds to repeat with (default: what the experiment says, 5)
    #[arg(long)]
    pub seeds: Option<u64>,
    /// Only the runs, data sets, nets or policies whose names contain this
    #[arg(long, value_name = "ROW")]
    pub only: Option<String>,
    /// Measure although other work takes more than a tenth of the machine; the results say so
    #[arg(long)]
    pub noisy: bool,
    /// Folder of real data sets (default: PELTON_DATA, then ../shared/data)
    #[arg(long)]
    pub real_data: Option<PathBuf>,
    /// Folder for data, scratch files, raw runs and the report
    #[arg(long, default_value = "runs/reproduce")]
    pub out: PathBuf,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "train")
    {
        return ExitCode::from(pelton_cli::pelton(std::env::args_os()));
    }
    ExitCode::from(pelton_cli::run(
        std::env::args_os(),
        |arguments: Arguments| match arguments.command {
            Command::Reproduce(arguments) => printed_table::reproduce_and_print(arguments),
            Command::PlanCapacity(arguments) => capacity_table::plan(*arguments),
            Command::Glyphs(arguments) => glyph_command::draw(arguments),
        },
    ))
}
