//! Every character of some fonts as a picture, a class a character.
//!
//! A class is a character, or several that look alike in most fonts; its examples are the pictures that the fonts make
//! of it. Whole families of fonts are held out for the test. All glyphs are drawn twice: once to collect
//! digests of the pictures, and the selected ones once more while they are written. Holding or
//! storing all pictures in between would take gigabytes to save half of a minute.

mod classes;
mod fonts;
mod render;
#[cfg(test)]
mod test_font;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use pelton_data::DataError;
use pelton_run::{Event, RunContext};
use pelton_storage::{WholeFile, output_file, path_text};
use serde::Serialize;

use crate::idx_writer::IdxWriter;
use classes::{Assignment, Choice, Wish, choose};
use fonts::{Fonts, find};

/// Sides of pictures.
const SIDES: std::ops::RangeInclusive<u32> = 8..=256;

/// Settings of drawing glyphs.
#[derive(Clone, Debug, Args)]
pub struct GlyphsConfig {
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
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GlyphsFigures {
    /// Training pictures.
    #[serde(serialize_with = "path_text::serialize_path")]
    pub train: PathBuf,
    /// Test pictures.
    #[serde(serialize_with = "path_text::serialize_path")]
    pub test: PathBuf,
    /// Classes.
    pub classes: u64,
    /// Training pictures.
    pub train_records: u64,
    /// Test pictures.
    pub test_records: u64,
    /// Classes with a test picture.
    pub test_classes: u64,
    /// Fonts drawn.
    pub fonts: u64,
    /// Families of fonts.
    pub families: u64,
    /// Those held out.
    pub test_families: Vec<String>,
    /// Files and faces left out.
    pub damaged_fonts: u64,
    /// Test pictures left out because a training picture is equal.
    pub dropped_equal: u64,
    /// Pictures left out because characters of several classes share them.
    pub dropped_ambiguous: u64,
    /// Bytes of both files of pictures.
    pub bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// One of the two sets: how the names of its files begin.
struct Set(PathBuf);

impl Set {
    fn new(out: &Path, name: &str) -> Set {
        let mut path = out.as_os_str().to_owned();
        path.push(format!("-{name}"));
        Set(path.into())
    }

    fn file(&self, end: &str) -> PathBuf {
        let mut path = self.0.clone().into_os_string();
        path.push(format!("-{end}"));
        path.into()
    }

    /// Starts the files of pictures, labels and names.
    fn files(&self, config: &GlyphsConfig) -> Result<[WholeFile; 3], DataError> {
        let start = |end| output_file(&self.file(end), &config.fonts, config.overwrite);
        Ok([
            start("images.idx")?,
            start("labels.idx")?,
            start("names.txt")?,
        ])
    }
}

fn bad(text: String) -> DataError {
    DataError::Config(text)
}

fn unwritten(source: io::Error) -> DataError {
    let what = "pictures, labels and names";
    DataError::Output { what, source }
}

/// Draws the characters of fonts and writes a training and a test set.
///
/// Errors: no fonts, too few classes, files that exist or cannot be written, an interruption.
pub fn glyphs(config: &GlyphsConfig, context: RunContext<'_>) -> Result<GlyphsFigures, DataError> {
    let began = Instant::now();
    check(config)?;
    let sets = [
        Set::new(&config.out, "train"),
        Set::new(&config.out, "test"),
    ];
    let files = [sets[0].files(config)?, sets[1].files(config)?];
    let side = config.size;
    let mut fonts = Fonts {
        files: find(&config.fonts)?,
        side,
        interrupt: context.interrupt,
        observer: context.observer,
        fonts: Vec::new(),
        problems: Vec::new(),
    };
    let mut views = Vec::new();
    fonts.draw(
        "drawing glyphs",
        |_| true,
        |view, _| {
            views.push(view);
            Ok(())
        },
    )?;
    for problem in &fonts.problems {
        (fonts.observer)(Event::Note(problem));
    }
    let wish = Wish {
        min_fonts: config.min_fonts,
        most_classes: config.classes,
        test_share: config.test_share,
        seed: config.seed,
    };
    let candidates = views.last().map_or(0, |view| view.number as usize + 1);
    let choice = choose(views, &fonts.fonts, candidates, &wish);
    check_classes(config, &choice, fonts.files.len())?;
    let count = |is: fn(&Assignment) -> bool| {
        let records = choice.places.iter().filter(|place| is(place)).count();
        u32::try_from(records).map_err(|_| {
            bad(format!(
                "{records} pictures are too many for an IDX file; give fewer `fonts` or `classes`"
            ))
        })
    };
    let records = [
        count(|place| matches!(place, Assignment::Training(_)))?,
        count(|place| matches!(place, Assignment::Test(_)))?,
    ];
    let [train_files, test_files] = files;
    let writers = |[pictures, labels, names]: [WholeFile; 3], records| {
        let pictures = IdxWriter::pictures(pictures, records, &[side, side])?;
        Ok((pictures, IdxWriter::labels(labels, records)?, names))
    };
    let mut writers = [
        writers(train_files, records[0]).map_err(unwritten)?,
        writers(test_files, records[1]).map_err(unwritten)?,
    ];
    let mut tested = vec![false; choice.names.len()];
    let place = |number: u32| {
        choice
            .places
            .get(number as usize)
            .copied()
            .unwrap_or(Assignment::Nowhere)
    };
    fonts.draw(
        "writing glyphs",
        |number| place(number) != Assignment::Nowhere,
        |view, picture| {
            let (set, class) = match place(view.number) {
                Assignment::Training(class) => (0, class),
                Assignment::Test(class) => (1, class),
                Assignment::Nowhere => return Ok(()),
            };
            tested[class as usize] |= set == 1;
            let (pictures, labels, _) = &mut writers[set];
            let written = pictures.write(picture);
            let written = written.and_then(|()| labels.label(class as i32));
            written.map_err(unwritten)
        },
    )?;
    let text: String = choice.names.iter().flat_map(|name| [name, "\n"]).collect();
    // Pictures last: where they are, all is.
    for (pictures, labels, mut names) in writers {
        let written = names.write_all(text.as_bytes());
        let written = written.and_then(|()| names.publish());
        let written = written.and_then(|()| labels.finish());
        written
            .and_then(|()| pictures.finish())
            .map_err(unwritten)?;
    }
    let [train, test] = sets;
    Ok(GlyphsFigures {
        train: train.file("images.idx"),
        test: test.file("images.idx"),
        classes: choice.names.len() as u64,
        train_records: records[0].into(),
        test_records: records[1].into(),
        test_classes: tested.iter().filter(|tested| **tested).count() as u64,
        fonts: fonts.fonts.len() as u64,
        families: choice.families as u64,
        test_families: choice.test_families,
        damaged_fonts: fonts.problems.len() as u64,
        dropped_equal: choice.equal,
        dropped_ambiguous: choice.ambiguous,
        bytes: (u64::from(records[0]) + u64::from(records[1])) * u64::from(side * side),
        seconds: began.elapsed().as_secs_f64(),
    })
}

fn check(config: &GlyphsConfig) -> Result<(), DataError> {
    if !SIDES.contains(&config.size) {
        return Err(bad(format!("`size` {}: give 8 to 256 pixels", config.size)));
    }
    if !(0.0..1.0).contains(&config.test_share) {
        return Err(bad(format!(
            "`test_share` {}: give a share of at least 0 and below 1",
            config.test_share
        )));
    }
    if config.min_fonts == 0 || config.classes.is_some_and(|classes| classes < 2) {
        return Err(bad(
            "`min_fonts` is at least 1, and `classes` at least 2".into()
        ));
    }
    Ok(())
}

fn check_classes(config: &GlyphsConfig, choice: &Choice, files: usize) -> Result<(), DataError> {
    let (found, wanted) = (choice.names.len(), config.classes.unwrap_or(2) as usize);
    if found >= wanted {
        return Ok(());
    }
    Err(bad(format!(
        "only {found} characters have {} different training pictures in {files} font files, and {wanted} are needed; install more fonts, or lower `min_fonts`, `classes` or `test_share`",
        config.min_fonts
    )))
}
