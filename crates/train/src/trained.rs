//! Finished models of linear runs, read back.

use std::io;
use std::path::Path;

use pelton_linear::{LinearError, Model};
use pelton_run::{Interrupt, Manifest, Set};

use crate::config::LinearConfig;
use crate::error::TrainError;
use crate::in_store::model_here;

/// Name of the model in the run folder.
pub(crate) const MODEL_SAFETENSORS: &str = "model.safetensors";

/// A model, and how its training data was read.
#[derive(Debug)]
pub struct TrainedModel {
    /// The model.
    pub model: Model,
    /// The run's configuration, if the model came from a run folder.
    pub config: Option<LinearConfig>,
}

/// Opens the model of a run folder (all its files must be those that the run wrote) or a model file by itself:
/// safetensors, or LIBLINEAR's text format. Both may be in an object store.
pub fn open_model(path: &Path) -> Result<TrainedModel, TrainError> {
    let path = &*model_here(path, &Interrupt::default())?;
    std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !path.is_dir() {
        return Ok(TrainedModel {
            model: read_model(path)?,
            config: None,
        });
    }
    let manifest = finished_model(path)?;
    let config = LinearConfig::read(&path.join("run.toml"))?;
    manifest.check_settings(&config.decisive())?;
    let file = MODEL_SAFETENSORS;
    Ok(TrainedModel {
        model: Model::parse_safetensors(&manifest.contents(file)?, &manifest.path(file))?,
        config: Some(config),
    })
}

/// The files of the model in a run folder.
pub(crate) fn finished_model(run: &Path) -> Result<Manifest, TrainError> {
    Manifest::open(run, Set::Model)?.ok_or_else(|| {
        TrainError::config(format!(
            "{}: contains no finished model; finish the run with `resume` first",
            run.display()
        ))
    })
}

fn read_model(path: &Path) -> Result<Model, TrainError> {
    let model = if path.extension().is_some_and(|name| name == "safetensors") {
        Model::read_safetensors(path)
    } else {
        Model::read_liblinear(path)
    };
    model.map_err(|error| match &error {
        LinearError::Io { source, .. } => unreadable(path, source),
        _ => error.into(),
    })
}

pub(crate) fn unreadable(path: &Path, error: &io::Error) -> TrainError {
    let path = path.display();
    TrainError::config(match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => format!(
            "{path}: there is no run folder or model file; check the path, or train a model first"
        ),
        _ => format!(
            "{path}: the model cannot be read ({error}); check the file and its permissions"
        ),
    })
}
