//! The pictures that the nets learn: those of an IDX file where there is one, otherwise generated ones.
//!
//! A generated picture shows its class's six blots, moved by up to three pixels and paler or darker, between four
//! others that mean nothing, under noise: a net must see many before it tells the classes apart, and what it has
//! learnt by heart helps it little.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_feed::{Loader, LoaderOptions, Stages};
use pelton_format::{Contents, Dataset, OpenOptions};
use pelton_plan::{KeyedRng, Order, Selection, Stage, StreamPlan, StreamSpec, key};

use super::super::ReproduceConfig;
use super::super::experiment::SetConfig;
use crate::error::TrainError;
use crate::event::Interrupt;
use crate::run_folder::write_atomically;

/// Generators of the classes' blots and of the pictures.
const CLASSES: Stage = Stage::Demo(41);
const PICTURES: Stage = Stage::Demo(42);

/// Height and width of generated pictures, and their classes.
const SIDE: usize = 28;
const GENERATED_CLASSES: u64 = 10;
/// Where Debian's package `dataset-fashion-mnist` puts its files.
const INSTALLED: &str = "/usr/share/datasets";
/// Real pictures are whole files, so that a table scaled down below this uses generated ones.
const LEAST_REAL_SCALE: f64 = 0.3;
/// Memory for reading held-out pictures.
const READING_BYTES: u64 = 16 << 20;

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
            Some(_) => Some(generated(&config.out.join("data"), counts)?),
            None => real(config, set),
        };
        if let Some(files) = files {
            return open(set, files, counts, config, interrupt);
        }
    }
    Err(TrainError::Config(
        "the experiment has no pictures that are there; add a set with `rows`, which are generated"
            .to_string(),
    ))
}

/// Training and test file of a real set, where they are.
fn real(config: &ReproduceConfig, set: &SetConfig) -> Option<[PathBuf; 2]> {
    if config.scale < LEAST_REAL_SCALE {
        return None;
    }
    let (train, test) = (set.train.as_ref()?, set.test.as_ref()?);
    let installed = PathBuf::from(INSTALLED);
    let folders = config.real_data.iter().chain(std::iter::once(&installed));
    folders
        .map(|folder| [folder.join(train), folder.join(test)])
        .find(|files| files.iter().all(|file| file.exists()))
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
        return Err(TrainError::Config(problem));
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
        contents => Err(TrainError::Config(format!(
            "{}: holds {contents}; this table wants square grey pictures, such as those of MNIST",
            path.display()
        ))),
    }
}

/// About `count` records, evenly spread.
fn some_of(records: u64, count: u64) -> Selection {
    let count = u128::from(count.min(records));
    let before = |id: u64| u128::from(id) * count / u128::from(records.max(1));
    Selection::new(records, |id| before(id + 1) > before(id))
}

/// The pixels and classes of some records, as they are.
fn read_some(
    dataset: Dataset,
    count: u64,
    interrupt: &Interrupt,
) -> Result<(Vec<u8>, Vec<u32>), TrainError> {
    let used = some_of(dataset.records(), count);
    let spec = StreamSpec::new(Order::Sequential, 64, 0);
    let stream = StreamPlan::new(dataset.records(), &spec, Some(used), None, None)?;
    let options = LoaderOptions {
        threads: 1,
        end_epoch: Some(1),
        interrupt: Arc::clone(interrupt),
        ..LoaderOptions::with_memory(READING_BYTES)
    };
    let dataset = Arc::new(dataset);
    let mut loader = Loader::new(dataset, Arc::new(stream), Stages::default(), &options)?;
    let (mut pictures, mut labels) = (Vec::new(), Vec::new());
    while let Some(batch) = loader.next_batch()? {
        pictures.extend_from_slice(batch.data.bytes());
        labels.extend_from_slice(&batch.labels);
    }
    Ok((pictures, labels))
}

/// Files of generated pictures; those of an earlier run with the same numbers are used again.
fn generated(folder: &Path, counts: Counts) -> Result<[PathBuf; 2], TrainError> {
    let file = |part: &str, count: u64, first: u64| {
        let pictures = folder.join(format!("blots-{part}-{count}-images-idx3-ubyte"));
        let labels = folder.join(format!("blots-{part}-{count}-labels-idx1-ubyte"));
        if !pictures.exists() || !labels.exists() {
            let (pixels, classes) = draw(first..first + count);
            let count = (count as u32).to_be_bytes();
            let side = (SIDE as u32).to_be_bytes();
            let head = [&[0, 0, 8, 1][..], &count];
            let bytes = [&head.concat()[..], &classes].concat();
            write_atomically(&labels, |path| std::fs::write(path, bytes))?;
            let head = [&[0, 0, 8, 3][..], &count, &side, &side];
            let bytes = [&head.concat()[..], &pixels].concat();
            write_atomically(&pictures, |path| std::fs::write(path, bytes))?;
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

/// Pixels and classes of the pictures with these numbers.
fn draw(numbers: std::ops::Range<u64>) -> (Vec<u8>, Vec<u8>) {
    let classes: Vec<Vec<Blot>> = (0..GENERATED_CLASSES)
        .map(|class| {
            let mut rng = KeyedRng::new(key(class, 0, CLASSES));
            (0..6).map(|_| Blot::draw(&mut rng)).collect()
        })
        .collect();
    let mut pixels = Vec::new();
    let mut labels = Vec::new();
    for number in numbers {
        let mut rng = KeyedRng::new(key(number, 0, PICTURES));
        let class = rng.below(GENERATED_CLASSES);
        let moved = [0, 1].map(|_| rng.below(7) as f64 - 3.0);
        let contrast = 0.4 + 0.6 * rng.next_f64();
        let others: Vec<Blot> = (0..4).map(|_| Blot::draw(&mut rng)).collect();
        for row in 0..SIDE {
            for column in 0..SIDE {
                let (row, column) = (row as f64, column as f64);
                let own = classes[class as usize].iter();
                let own: f64 = own
                    .map(|blot| blot.at(row - moved[0], column - moved[1]))
                    .sum();
                let other: f64 = others.iter().map(|blot| blot.at(row, column)).sum();
                let noise = 120.0 * (rng.next_f64() - 0.7);
                let value = contrast * own + other + noise;
                pixels.push(value.clamp(0.0, 255.0) as u8);
            }
        }
        labels.push(class as u8);
    }
    (pixels, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_pictures_are_of_all_classes_and_differ() {
        let (pixels, labels) = draw(0..300);
        assert_eq!(pixels.len(), 300 * SIDE * SIDE);
        for class in 0..GENERATED_CLASSES as u8 {
            let count = labels.iter().filter(|&&label| label == class).count();
            assert!((12..=55).contains(&count), "class {class}: {count}");
        }
        let mut pictures: Vec<&[u8]> = pixels.chunks(SIDE * SIDE).collect();
        pictures.sort_unstable();
        pictures.dedup();
        assert_eq!(pictures.len(), 300);
        assert_eq!(draw(7..8).0, pixels[7 * SIDE * SIDE..][..SIDE * SIDE]);
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
