//! Pictures for nets, written twice: in random order, and one class after the other.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_data::{DataConfig, Expected, OpenedData, Validation, open};
use pelton_feed::{IMAGE, LABEL};
use pelton_key::{KeyedRng, Stage, key};
use pelton_run::{Interrupt, RunContext, RunError};
use pelton_storage::WholeFile;
use pelton_train::image::ImageModel;
use pelton_train::{FitConfig, ImageConfig, TrainError};

use crate::experiment::{NetSetting, SetConfig};
use crate::idx::{reader, real};
use crate::idx_writer::IdxWriter;
use crate::table::ReproduceConfig;

/// Generator of the random order.
const SHUFFLED: Stage = Stage::Demo(42);
/// IDX files of pictures.
pub(super) struct Pictures {
    /// Name in the table.
    pub name: String,
    /// Pictures to train on, in random order and sorted by class.
    pub shuffled: PathBuf,
    pub sorted: PathBuf,
    /// Number of training pictures.
    pub count: u64,
    /// Pictures to test with.
    pub test: PathBuf,
    /// Height.
    pub side: u64,
    /// Bytes of a picture.
    pub bytes: u64,
    /// Mean and standard deviation of a pixel.
    pub moments: [f64; 2],
}

impl Pictures {
    /// Whether these nets can be made for the pictures: better said now than when the turn of the last comes, hours later.
    pub fn check(&self, nets: &[NetSetting]) -> Result<(), TrainError> {
        for net in nets {
            let model: ImageModel = net.model.parse().map_err(TrainError::config)?;
            let side = padded(net).unwrap_or(self.side as usize);
            model.net([side, side, 1], 10, net.width)?;
        }
        Ok(())
    }

    /// The training of a net on the pictures of a file, evaluated on the test pictures after each epoch.
    pub fn job(
        &self,
        net: &NetSetting,
        file: &Path,
        fit: FitConfig,
        config: &ReproduceConfig,
    ) -> Result<ImageConfig, TrainError> {
        let text = |path: &Path| path.display().to_string();
        let [mean, deviation] = self.moments;
        let mut job = ImageConfig {
            model: net.model.parse().map_err(TrainError::config)?,
            width: net.width,
            data: DataConfig {
                paths: vec![text(file)],
                cache_dir: Some(config.out.join("data")),
                ..DataConfig::default()
            },
            fit: FitConfig {
                validation: Some(Validation::Data(text(&self.test))),
                ..fit
            },
            ..ImageConfig::default()
        };
        let padded = padded(net).map_or(String::new(), |side| format!("crop:{side},"));
        let steps = format!("{padded}normalise:{mean:.4}:{deviation:.4}");
        job.pipeline.augment = steps.parse().ok();
        Ok(job)
    }
}

/// The side that pictures are brought to with black around them, if the net's five pools leave nothing of 28 × 28.
fn padded(net: &NetSetting) -> Option<usize> {
    net.model.starts_with("vgg").then_some(32)
}

/// The first existing set, with at most this many pictures for training and for testing.
pub(super) fn find(
    config: &ReproduceConfig,
    sets: &[SetConfig],
    [train, test]: [u64; 2],
    context: &mut RunContext<'_>,
) -> Result<Pictures, TrainError> {
    let found = sets.iter().find_map(|set| {
        let paths = match set.rows {
            Some(_) => Some(["", ":test"].map(|part| format!("{}:{train}{part}", set.name))),
            None => real(config, set).map(|files| files.map(|file| file.display().to_string())),
        };
        paths.map(|paths| (set, paths))
    });
    let Some((set, [train_path, test_path])) = found else {
        return Err(TrainError::config(
            "the experiment has no pictures that are there; add a set `demo:images` with `rows`, which are generated"
                .to_string(),
        ));
    };
    let data = DataConfig {
        cache_dir: Some(config.out.join("data")),
        ..DataConfig::default()
    }
    .with_bytes();
    let opened = open(&data, &[train_path], None, context)?;
    let expected = Expected {
        labels: Some(opened.dataset.labels().clone()),
        any_label: false,
        features: opened.dataset.features(),
        means: None,
        columns: None,
    };
    let held_out = open(&data, &[test_path], Some(&expected), context)?;
    let mut training = read_some(&opened, train, context.interrupt)?;
    let held_out = read_some(&held_out, test, context.interrupt)?;
    let moments = training.moments();
    let file = |part: &str| {
        // The file of labels has `labels` instead of the first `images` in its name.
        let name = set.name.replace(':', "-").replace("images", "pictures");
        let file = format!("{name}-{part}-images-idx3-ubyte");
        config.out.join("data").join(file)
    };
    let [shuffled, sorted, test] = ["shuffled", "sorted", "test"].map(file);
    let mut rng = KeyedRng::new(key(0, 0, SHUFFLED));
    training.order.sort_by_cached_key(|_| rng.next_u64());
    training.write(&shuffled)?;
    let classes = &training.classes;
    training.order.sort_by_key(|&i| classes[i]);
    training.write(&sorted)?;
    held_out.write(&test)?;
    Ok(Pictures {
        name: set.name.clone(),
        shuffled,
        sorted,
        count: training.order.len() as u64,
        test,
        side: training.sizes[0] as u64,
        bytes: training.sizes.iter().product::<usize>() as u64,
        moments,
    })
}

/// Pictures in memory.
struct DataInMemory {
    /// Height, width and channels.
    sizes: Vec<usize>,
    pixels: Vec<u8>,
    classes: Vec<i32>,
    /// Indices of the pictures to write, in order.
    order: Vec<usize>,
}

impl DataInMemory {
    fn write(&self, images: &Path) -> Result<(), TrainError> {
        let labels = images
            .display()
            .to_string()
            .replace("images-idx3", "labels-idx1");
        let written = self.write_labels(Path::new(&labels));
        let written = written.and_then(|()| self.write_pictures(images));
        Ok(written.map_err(|source| RunError::io(images, "write", source))?)
    }

    fn write_labels(&self, file: &Path) -> io::Result<()> {
        let mut out = IdxWriter::labels(WholeFile::create(file)?, self.order.len() as u32)?;
        for &i in &self.order {
            out.label(self.classes[i])?;
        }
        out.finish()
    }

    fn write_pictures(&self, file: &Path) -> io::Result<()> {
        let bytes: usize = self.sizes.iter().product();
        let sizes: Vec<u32> = self.sizes.iter().map(|&size| size as u32).collect();
        let file = WholeFile::create(file)?;
        let mut out = IdxWriter::pictures(file, self.order.len() as u32, &sizes)?;
        for &i in &self.order {
            out.write(&self.pixels[i * bytes..][..bytes])?;
        }
        out.finish()
    }

    fn moments(&self) -> [f64; 2] {
        let count = self.pixels.len().max(1) as f64;
        let value = |&pixel: &u8| f64::from(pixel) / 255.0;
        let mean = self.pixels.iter().map(value).sum::<f64>() / count;
        let square = |pixel: &u8| (value(pixel) - mean).powi(2);
        let variance = self.pixels.iter().map(square).sum::<f64>() / count;
        [mean, libm::sqrt(variance)]
    }
}

/// About `count` pictures, evenly spread.
fn read_some(
    opened: &OpenedData,
    count: u64,
    interrupt: &Interrupt,
) -> Result<DataInMemory, TrainError> {
    let mut loader = reader(Arc::clone(&opened.dataset), count, interrupt)?;
    let mut held = DataInMemory {
        sizes: Vec::new(),
        pixels: Vec::new(),
        classes: Vec::new(),
        order: Vec::new(),
    };
    for batch in &mut loader {
        let batch = batch?;
        let (Some(images), Some(pixels), Some(labels)) = (
            batch.get(IMAGE),
            batch.values::<u8>(IMAGE),
            batch.values::<i64>(LABEL),
        ) else {
            return Err(TrainError::config(
                "the data holds no pictures with classes; name IDX or CIFAR files".to_string(),
            ));
        };
        held.sizes = images.shape().dims[1..].to_vec();
        held.pixels.extend_from_slice(pixels);
        held.classes
            .extend(labels.iter().map(|&label| label as i32));
    }
    held.order = (0..held.classes.len()).collect();
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nets_that_cannot_be_made_are_named_before_any_trains() {
        let pictures = Pictures {
            name: String::new(),
            count: 0,
            sorted: PathBuf::new(),
            shuffled: PathBuf::new(),
            test: PathBuf::new(),
            side: 28,
            bytes: 0,
            moments: [0.5, 0.5],
        };
        let net = |model: &str| -> NetSetting {
            let text = format!("model = \"{model}\"\nwidth = 0.125\nrate = 0.1\nbatch = 8");
            toml::from_str(&text).unwrap()
        };
        let known = ["alexnet", "overfeat", "vgg16", "resnet20"].map(net);
        pictures.check(&known).unwrap();
        let small = Pictures {
            side: 4,
            ..pictures
        };
        assert!(small.check(&known[..1]).is_err());
        assert!(small.check(&[net("nothing")]).is_err());
    }
}
