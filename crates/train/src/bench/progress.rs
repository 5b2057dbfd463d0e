//! Where a pipeline stands, in a file, and what it has handed out.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pelton_feed::{FeedError, LoaderOptions, LoaderState, SampleBatch};
use pelton_format::Dataset;
use pelton_plan::StreamPlan;

use crate::error::TrainError;
use crate::run_folder::write_atomically;

/// The file that says where a pipeline stands, and the file of ids.
pub(super) struct Progress {
    path: PathBuf,
    state: Option<LoaderState>,
    log: Option<fs::File>,
    logged: u64,
    saved: Instant,
}

/// Time between two saves.
const SAVE_EVERY: Duration = Duration::from_millis(100);

impl Progress {
    /// Opens both; what the log holds beyond the state is cut off.
    pub fn open(path: &Path, log: Option<&Path>) -> Result<Progress, TrainError> {
        let failed = |path: &Path, error: &std::io::Error| {
            TrainError::Config(format!("{}: {error}", path.display()))
        };
        let (state, logged) = match fs::read(path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let (state, logged) = text.trim_end().rsplit_once('\n').unwrap_or((&text, "0"));
                let logged = logged.parse().map_err(|_| {
                    TrainError::Config(format!(
                        "{}: is no state of a pipeline; remove it to begin anew",
                        path.display()
                    ))
                })?;
                let state = LoaderState::from_json(state);
                (Some(state.map_err(|error| of_file(path, &error))?), logged)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (None, 0),
            Err(error) => return Err(failed(path, &error)),
        };
        let log = match log {
            Some(log) => {
                let file = fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(log)
                    .and_then(|file| file.set_len(logged).map(|()| file));
                Some(file.map_err(|error| failed(log, &error))?)
            }
            None => None,
        };
        Ok(Progress {
            path: path.to_owned(),
            state,
            log,
            logged,
            saved: Instant::now(),
        })
    }

    /// Options with which the pipeline goes on from where the file says, or begins where there was none.
    pub fn resume(
        &self,
        dataset: &Dataset,
        stream: &StreamPlan,
        options: &LoaderOptions,
    ) -> Result<LoaderOptions, TrainError> {
        match &self.state {
            Some(state) => state
                .resume(dataset, stream, options)
                .map_err(|error| of_file(&self.path, &error)),
            None => Ok(options.clone()),
        }
    }

    /// Appends the batch's ids, then, from time to time, says that what the log holds was consumed: what a process
    /// that is killed has logged beyond that is cut off again.
    pub fn note(&mut self, batch: &SampleBatch, state: &LoaderState) -> Result<(), TrainError> {
        if let Some(log) = &mut self.log {
            let bytes: Vec<u8> = batch.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            log.write_all(&bytes).map_err(cannot_save)?;
            self.logged += bytes.len() as u64;
        }
        if self.saved.elapsed() >= SAVE_EVERY {
            self.save(state)?;
        }
        Ok(())
    }

    pub fn save(&mut self, state: &LoaderState) -> Result<(), TrainError> {
        if let Some(log) = &self.log {
            log.sync_data().map_err(cannot_save)?;
        }
        let text = format!("{}\n{}\n", state.to_json(), self.logged);
        write_atomically(&self.path, |file| fs::write(file, &text))?;
        self.saved = Instant::now();
        Ok(())
    }
}

/// An error about a state, with the file that holds it.
fn of_file(path: &Path, error: &FeedError) -> TrainError {
    TrainError::Config(format!("{}: {error}", path.display()))
}

fn cannot_save(source: std::io::Error) -> TrainError {
    TrainError::Output {
        what: "log of the pipeline",
        source,
    }
}
