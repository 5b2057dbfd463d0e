//! `glyphs`: draws the characters of fonts and prints what there is of them.

use std::io::{self, Write};

use clap::Args;
use pelton_cli::bytes::human;
use pelton_cli::output::{Failure, print_json, print_with, with_console};

use crate::glyphs::{GlyphsConfig, GlyphsFigures, glyphs};

/// `glyphs`
#[derive(Debug, Args)]
pub struct GlyphsArguments {
    #[command(flatten)]
    config: GlyphsConfig,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    json: bool,
}

/// Draws the characters of fonts.
pub fn draw(arguments: GlyphsArguments) -> Result<(), Failure> {
    let figures = with_console(|context| glyphs(&arguments.config, context))?;
    if arguments.json {
        print_json(&figures)
    } else {
        print_with(|out| print(&figures, out))
    }
}

fn print(figures: &GlyphsFigures, out: &mut impl Write) -> io::Result<()> {
    let mean = |records: u64, classes: u64| records as f64 / classes.max(1) as f64;
    writeln!(
        out,
        "{} classes from {} fonts of {} families, {} in {:.1} s",
        figures.classes,
        figures.fonts,
        figures.families,
        human(figures.bytes),
        figures.seconds
    )?;
    writeln!(
        out,
        "training  {} pictures, {:.1} a class, in {}",
        figures.train_records,
        mean(figures.train_records, figures.classes),
        figures.train.display()
    )?;
    writeln!(
        out,
        "test      {} pictures, {:.1} a class of {}, in {}",
        figures.test_records,
        mean(figures.test_records, figures.test_classes),
        figures.test_classes,
        figures.test.display()
    )?;
    writeln!(out, "held out  {}", figures.test_families.join(", "))?;
    writeln!(
        out,
        "left out  {} test pictures equal to a training one, {} pictures of several characters, {} damaged fonts",
        figures.dropped_equal, figures.dropped_ambiguous, figures.damaged_fonts
    )
}
