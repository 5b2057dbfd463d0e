//! Opens the data a configuration names: files, or a generated demo set.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_feed::DeviceSpeed;
use pelton_format::{Dataset, FormatKind, LabelColumn, LabelMap, OpenOptions};
use pelton_storage::{DeviceModel, Storage, ThrottleMode, Throttled, cached_fraction, quick_probe};

use crate::config::DataConfig;
use crate::demo::DemoSpec;
use crate::error::TrainError;
use crate::event::{Event, Observer};

/// A data set with what is known of the device it lies on.
#[derive(Debug)]
pub struct OpenedData {
    /// The records.
    pub dataset: Arc<Dataset>,
    /// Measured or modelled speed.
    pub device: DeviceSpeed,
    /// Decorated storages of a modelled device, for the time it would have taken.
    pub modelled: Vec<Arc<Throttled>>,
    /// The files.
    pub paths: Vec<PathBuf>,
    /// Test files that belong to the data: those of a demo set.
    pub test: Vec<String>,
}

impl OpenedData {
    /// Seconds the modelled device would have needed for all reads so far.
    pub fn modelled_seconds(&self) -> Option<f64> {
        let total: f64 = self.modelled.iter().map(|file| file.virtual_seconds()).sum();
        (!self.modelled.is_empty()).then_some(total)
    }
}

/// What a second data set takes over from the first: labels and number of features.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Labels in class order.
    pub labels: LabelMap,
    /// Features of the model.
    pub features: u64,
}

/// Opens the files or demo set of `paths` as `config` says.
pub fn open(
    config: &DataConfig,
    paths: &[String],
    expected: Option<&Expected>,
    observer: Observer<'_>,
) -> Result<OpenedData, TrainError> {
    let (files, test) = resolve(config, paths, observer)?;
    let options = OpenOptions {
        format: config.format.as_deref().map(format_kind).transpose()?,
        zero_based: config.zero_based,
        label: label_column(&config.label),
        positive: config.positive,
        labels: expected.map(|expected| expected.labels.clone()),
        features: expected.map(|expected| expected.features),
        cache_dir: config.cache_dir.clone(),
        storage: local_mode(config, &files),
        ..OpenOptions::default()
    };
    let dataset = Dataset::open(&files, &options)?;
    for note in dataset.notes() {
        observer(Event::Note(note));
    }
    let (dataset, device, modelled) = match &config.device_model {
        Some(name) => impose_model(dataset, name)?,
        None => {
            let device = measure(&dataset);
            (dataset, device, Vec::new())
        }
    };
    Ok(OpenedData {
        dataset: Arc::new(dataset),
        device,
        modelled,
        paths: files,
        test,
    })
}
