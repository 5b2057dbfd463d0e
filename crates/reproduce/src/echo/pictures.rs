//! The pictures that the nets learn: those of an IDX file where there is one, otherwise generated ones.
//!
//! A generated picture shows its class's six blots, moved by up to three pixels and paler or darker, between four
//! others that mean nothing, under noise: a net must see many before it tells the classes apart, and what it has
//! learnt by heart helps it little.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pelton_batch::Batch;
use pelton_feed::{IMAGE, LABEL};
use pelton_format::{Contents, Dataset, OpenOptions};
use pelton_key::{KeyedRng, Stage, key};
use pelton_plan::Selection;
use pelton_run::Interrupt;
use pelton_train::TrainError;

use crate::experiment::SetConfig;
use crate::idx::{reader, real, some_of, write_idx};
use crate::table::ReproduceConfig;
use crate::table::interrupted;

/// Generators of the classes' blots and of the pictures.
const CLASSES: Stage = Stage::Demo(41);
const PICTURES: Stage = Stage::Demo(42);

/// Height and width of generated pictures, and their classes.
const SIDE: usize = 28;
const GENERATED_CLASSES: u64 = 10;
/// Real pictures are whole files, so that a table scaled down below this uses generated ones.
const LEAST_REAL_SCALE: f64 = 0.3;
/// Pictures to train on, and others to test with.
pub(super) struct Pictures {
    /// What they are called in the table.
    pub name: String,
    /// Where the training pictures lie.
    pub train: Arc<Dataset>,
    /// Which of them are used.
    pub used: Selection,
    /// Height and width.
    pub side: u32,
    /// Number of classes.
    pub classes: usize,
    /// Pixels and classes of the held-out ones.
    pub test_pictures: Vec<u8>,
    pub test_labels: Vec<u32>,
}

/// Numbers of pictures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub train: u64,
    pub test: u64,
}

/// The first set of the experiment that is there, with at most so many pictures.
pub(super) fn find(
    config: &ReproduceConfig,
    counts: Counts,
    interrupt: &Interrupt,
) -> Result<Pictures, TrainError> {
    for set in &config.experiment.sets {
        let files = match set.rows {
            Some(_) => Some(generated(&config.out.join("data"), counts, interrupt)?),
            None if config.scale < LEAST_REAL_SCALE => None,
            None => real(config, set),
        };
        if let Some(files) = files {
            return open(set, files, counts, config, interrupt);
        }
    }
    Err(TrainError::config(
        "the experiment has no pictures that are there; add a set with `rows`, which are generated"
            .to_string(),
    ))
}

fn open(
    set: &SetConfig,
    [train, test]: [PathBuf; 2],
    counts: Counts,
    config: &ReproduceConfig,
    interrupt: &Interrupt,
) -> Result<Pictures, TrainError> {
    let options = OpenOptions {
        cache_dir: Some(config.out.join("data")),
        interrupt: Arc::clone(interrupt),
        ..OpenOptions::default()
    };
    let dataset = Dataset::open(std::slice::from_ref(&train), &options)?;
    let side = square(&dataset, &train)?;
    let options = OpenOptions {
        labels: Some(dataset.labels().clone()),
        ..options
    };
    let held_out = Dataset::open(std::slice::from_ref(&test), &options)?;
    if square(&held_out, &test)? != side {
        let problem = format!("{}: its pictures are not {side} high", test.display());
        return Err(TrainError::config(problem));
    }
    let classes = dataset.labels().len();
    let (test_pictures, test_labels) = read_some(held_out, counts.test, interrupt)?;
    Ok(Pictures {
        name: set.name.clone(),
        used: some_of(dataset.records(), counts.train),
        train: Arc::new(dataset),
        side,
        classes,
        test_pictures,
        test_labels,
    })
}

/// The side of square grey pictures.
fn square(dataset: &Dataset, path: &Path) -> Result<u32, TrainError> {
    match dataset.contents() {
        Contents::Pixels {
            height,
            width,
            channels: 1,
            ..
        } if height == width => Ok(height),
        contents => Err(TrainError::config(format!(
            "{}: holds {contents}; this table wants square grey pictures, such as those of MNIST",
            path.display()
        ))),
    }
}

/// The pixels and classes of some records, as they are.
fn read_some(
    dataset: Dataset,
    count: u64,
    interrupt: &Interrupt,
) -> Result<(Vec<u8>, Vec<u32>), TrainError> {
    let mut loader = reader(Arc::new(dataset), count, interrupt)?;
    let (mut pictures, mut labels) = (Vec::new(), Vec::new());
    for batch in &mut loader {
        let batch = batch?;
        let (pixels, classes) = pixels_and_classes(&batch);
        pictures.extend_from_slice(pixels);
        labels.extend(classes);
    }
    Ok((pictures, labels))
}

/// The pixels of a batch, and the digit or kind that each picture shows.
pub(super) fn pixels_and_classes(batch: &Batch) -> (&[u8], Vec<u32>) {
    let pixels = batch.values::<u8>(IMAGE).unwrap_or_default();
    let labels = batch.values::<i64>(LABEL).unwrap_or_default();
    (pixels, labels.iter().map(|&label| label as u32).collect())
}

/// Files of generated pictures; those of an earlier run with the same numbers are used again.
fn generated(
    folder: &Path,
    counts: Counts,
    interrupt: &Interrupt,
) -> Result<[PathBuf; 2], TrainError> {
    let file = |part: &str, count: u64, first: u64| {
        let pictures = folder.join(format!("blots-{part}-{count}-images-idx3-ubyte"));
        let labels = folder.join(format!("blots-{part}-{count}-labels-idx1-ubyte"));
        if !pictures.exists() || !labels.exists() {
            let numbers = first..first + count;
            write_idx(&labels, count, &[], |out| {
                let mut numbers = numbers.clone();
                numbers.try_for_each(|number| out.write_all(&[class_of(number)]))
            })?;
            let side = SIDE as u32;
            let written = write_idx(&pictures, count, &[side, side], |out| {
                let blots = blots();
                numbers.clone().try_for_each(|number| {
                    if interrupt.load(Relaxed) {
                        return Err(io::Error::other("interrupted"));
                    }
                    out.write_all(&draw(number, &blots))
                })
            });
            if interrupt.load(Relaxed) {
                return Err(interrupted());
            }
            written?;
        }
        Ok::<PathBuf, TrainError>(pictures)
    };
    let train = file("train", counts.train, 0)?;
    // Other numbers, so that no test picture is one of the training pictures.
    Ok([train, file("test", counts.test, 1 << 40)?])
}

/// A round blot: row, column, radius and brightness.
struct Blot {
    place: [f64; 2],
    radius: f64,
    brightness: f64,
}

impl Blot {
    fn draw(rng: &mut KeyedRng) -> Blot {
        let mut within = |least: f64, most: f64| least + (most - least) * rng.next_f64();
        Blot {
            place: [within(4.0, 24.0), within(4.0, 24.0)],
            radius: within(1.5, 4.0),
            brightness: within(90.0, 220.0),
        }
    }

    fn at(&self, row: f64, column: f64) -> f64 {
        let distance = libm::hypot(row - self.place[0], column - self.place[1]) / self.radius;
        self.brightness * libm::exp(-distance * distance)
    }
}

/// The blots of every class.
fn blots() -> Vec<Vec<Blot>> {
    let of_class = |class| {
        let mut rng = KeyedRng::new(key(class, 0, CLASSES));
        (0..6).map(|_| Blot::draw(&mut rng)).collect()
    };
    (0..GENERATED_CLASSES).map(of_class).collect()
}

/// The class of the picture with this number.
fn class_of(number: u64) -> u8 {
    KeyedRng::new(key(number, 0, PICTURES)).below(GENERATED_CLASSES) as u8
}

/// The pixels of the picture with this number.
fn draw(number: u64, blots: &[Vec<Blot>]) -> Vec<u8> {
    let mut rng = KeyedRng::new(key(number, 0, PICTURES));
    let own = &blots[rng.below(GENERATED_CLASSES) as usize];
    let moved = [0, 1].map(|_| rng.below(7) as f64 - 3.0);
    let contrast = 0.4 + 0.6 * rng.next_f64();
    let others: Vec<Blot> = (0..4).map(|_| Blot::draw(&mut rng)).collect();
    let mut pixels = Vec::with_capacity(SIDE * SIDE);
    for row in 0..SIDE {
        for column in 0..SIDE {
            let (row, column) = (row as f64, column as f64);
            let own: f64 = own
                .iter()
                .map(|blot| blot.at(row - moved[0], column - moved[1]))
                .sum();
            let other: f64 = others.iter().map(|blot| blot.at(row, column)).sum();
            let noise = 120.0 * (rng.next_f64() - 0.7);
            pixels.push((contrast * own + other + noise).clamp(0.0, 255.0) as u8);
        }
    }
    pixels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_pictures_are_of_all_classes_and_differ() {
        let blots = blots();
        let mut pictures: Vec<Vec<u8>> = (0..300).map(|number| draw(number, &blots)).collect();
        assert!(pictures.iter().all(|picture| picture.len() == SIDE * SIDE));
        for class in 0..GENERATED_CLASSES as u8 {
            let count = (0..300).filter(|&number| class_of(number) == class).count();
            assert!((12..=55).contains(&count), "class {class}: {count}");
        }
        assert_eq!(draw(7, &blots), pictures[7]);
        pictures.sort_unstable();
        pictures.dedup();
        assert_eq!(pictures.len(), 300);
    }

    #[test]
    fn generating_can_be_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        let counts = Counts {
            train: 20,
            test: 10,
        };
        let interrupt = Interrupt::default();
        interrupt.store(true, Relaxed);
        let error = generated(folder.path(), counts, &interrupt).unwrap_err();
        assert_eq!(error.exit_code(), 130);
        interrupt.store(false, Relaxed);
        let files = generated(folder.path(), counts, &interrupt).unwrap();
        let bytes = |path: &PathBuf| std::fs::read(path).unwrap();
        assert_eq!(bytes(&files[0]).len(), 16 + 20 * SIDE * SIDE);
        assert_eq!(bytes(&files[1]).len(), 16 + 10 * SIDE * SIDE);
        assert_eq!(bytes(&files[0])[16..][..SIDE * SIDE], draw(0, &blots()));
    }

    #[test]
    fn a_choice_has_the_number_it_was_asked_for() {
        for (records, count, expected) in [(10, 3, 3), (10, 20, 10), (60_000, 9999, 9999)] {
            assert_eq!(some_of(records, count).len(), expected);
        }
        let chosen = some_of(1000, 10);
        assert!((1..10).all(|i| chosen.get(i) - chosen.get(i - 1) == 100));
    }
}
