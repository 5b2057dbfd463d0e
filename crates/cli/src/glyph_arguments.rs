//! Flags of `pelton generate glyphs`.

use std::path::PathBuf;

use clap::Args;

/// `pelton generate glyphs`
#[derive(Debug, Args)]
pub struct GlyphsArguments {
    /// Folders with fonts in and below them (.ttf, .otf, .ttc, .otc)
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    pub fonts: Vec<PathBuf>,
    /// Prefix of the files to write: FILE-train-images.idx, FILE-test-images.idx, and the labels and class
    /// names next to them
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Height and width of a picture
    #[arg(long, default_value_t = 32)]
    pub size: u32,
    /// Leave out characters with fewer different pictures for training
    #[arg(long, default_value_t = 8)]
    pub min_fonts: u32,
    /// Number of classes to keep, those with the most pictures for training (default: all)
    #[arg(long, value_name = "N")]
    pub classes: Option<u32>,
    /// Share of the pictures, at most, that belong to font families held out for testing
    #[arg(long, default_value_t = 0.2)]
    pub test_share: f64,
    /// Seed for choosing these families
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Replace the files if they exist
    #[arg(long)]
    pub overwrite: bool,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}
