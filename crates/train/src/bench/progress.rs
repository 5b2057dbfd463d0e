//! Where a pipeline stands, in a file, and what it has handed out.
//!
//! Over ranks the state is one, as all ranks take the same steps; each logs its own ids. They save together, at steps
//! that are the same for all: what a rank has logged beyond is cut off when the run goes on, on however many
//! ranks that is.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pelton_comm::Comm;
use pelton_feed::{Cursor, FeedError, LoaderOptions, LoaderState, SampleBatch, Stages};
use pelton_format::Dataset;
use pelton_plan::StreamPlan;

use crate::error::TrainError;
use crate::run_folder::write_atomically;

/// The file that says where a pipeline stands, and the file of ids.
pub(super) struct Progress<'a> {
    path: PathBuf,
    comm: Option<&'a Comm>,
    state: Option<LoaderState>,
    log: Option<fs::File>,
    logged: u64,
    /// Bytes in the logs of ranks that there were once and are no more.
    logged_before: Vec<u64>,
    saved: Instant,
    /// Where ranks last asked one another whether to save.
    agreed_at: Cursor,
}

/// Time between two saves.
const SAVE_EVERY: Duration = Duration::from_millis(100);
/// Steps between two places where ranks may save.
const STEPS_TO_AGREE: u64 = 16;

/// The log of a rank: beside that of rank 0, with the rank's number behind its name.
fn log_of(log: &Path, rank: usize) -> PathBuf {
    match rank {
        0 => log.to_owned(),
        rank => PathBuf::from(format!("{}.{rank}", log.display())),
    }
}

impl<'a> Progress<'a> {
    /// Opens both; what the log holds beyond the state is cut off. All ranks call it.
    pub fn open(
        path: &Path,
        log: Option<&Path>,
        comm: Option<&'a Comm>,
    ) -> Result<Progress<'a>, TrainError> {
        let rank = comm.map_or(0, Comm::rank);
        let failed = |path: &Path, error: &std::io::Error| {
            TrainError::Config(format!("{}: {error}", path.display()))
        };
        let (state, logged) = match fs::read(path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let (state, logged) = text.trim_end().rsplit_once('\n').unwrap_or((&text, "0"));
                let logged: Result<Vec<u64>, _> = logged.split(' ').map(str::parse).collect();
                let logged = logged.map_err(|_| {
                    TrainError::Config(format!(
                        "{}: is no state of a pipeline; remove it to begin anew",
                        path.display()
                    ))
                })?;
                let state = LoaderState::from_json(state);
                (Some(state.map_err(|error| of_file(path, &error))?), logged)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (None, Vec::new()),
            Err(error) => return Err(failed(path, &error)),
        };
        // No rank writes before all have read.
        if let Some(comm) = comm {
            comm.barrier()?;
        }
        let bytes_of = |rank: usize| logged.get(rank).copied().unwrap_or(0);
        let cut = |rank: usize| match log {
            Some(log) => {
                let log = log_of(log, rank);
                let file = fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(&log)
                    .and_then(|file| file.set_len(bytes_of(rank)).map(|()| file));
                file.map(Some).map_err(|error| failed(&log, &error))
            }
            None => Ok(None),
        };
        let ranks = comm.map_or(1, Comm::size);
        if rank == 0 {
            // Of ranks that there are no more.
            (ranks..logged.len()).try_for_each(|rank| cut(rank).map(drop))?;
        }
        let state: Option<LoaderState> = state;
        Ok(Progress {
            path: path.to_owned(),
            comm,
            agreed_at: Cursor::default(),
            log: cut(rank)?,
            logged: bytes_of(rank),
            logged_before: logged.get(ranks..).unwrap_or_default().to_vec(),
            saved: Instant::now(),
            state,
        })
    }

    /// Options with which the pipeline goes on from where the file says, or begins where there was none.
    pub fn resume(
        &self,
        dataset: &Dataset,
        stream: &StreamPlan,
        stages: &Stages,
        options: &LoaderOptions,
    ) -> Result<LoaderOptions, TrainError> {
        match &self.state {
            Some(state) => state
                .resume(dataset, stream, stages, options)
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
        let saves = match self.comm {
            None => self.saved.elapsed() >= SAVE_EVERY,
            Some(comm) => self.agree(comm, batch.end, batch.ends_epoch)?,
        };
        if saves {
            self.save(state)?;
        }
        Ok(())
    }

    /// Whether ranks, all of which have come to `end`, save here: rank 0's clock decides.
    fn agree(&mut self, comm: &Comm, end: Cursor, ends_epoch: bool) -> Result<bool, TrainError> {
        let asks = end.next.is_multiple_of(STEPS_TO_AGREE) || ends_epoch;
        // Repeats by waiting do not move a rank on.
        if !asks || end == self.agreed_at {
            return Ok(false);
        }
        self.agreed_at = end;
        let mut wanted = [u64::from(self.saved.elapsed() >= SAVE_EVERY)];
        comm.broadcast(&mut wanted, 0)?;
        Ok(wanted == [1])
    }

    /// Saves; all ranks call it at the same step.
    pub fn save(&mut self, state: &LoaderState) -> Result<(), TrainError> {
        if let Some(log) = &self.log {
            log.sync_data().map_err(cannot_save)?;
        }
        let (rank, logged) = match self.comm {
            Some(comm) => (
                comm.rank(),
                comm.all_gather_ragged(&[self.logged])?.concat(),
            ),
            None => (0, vec![self.logged]),
        };
        if rank == 0 {
            let logged = logged.iter().chain(&self.logged_before);
            let logged: Vec<String> = logged.map(u64::to_string).collect();
            let text = format!("{}\n{}\n", state.to_json(), logged.join(" "));
            write_atomically(&self.path, |file| fs::write(file, &text))?;
        }
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
