//! The state of a pipeline in a file, and the log of consumed examples.
//!
//! Over ranks the state is one, as all ranks take the same steps; each logs its own ids. They save together, at steps
//! that are the same for all: what a rank has logged beyond is cut off when the run resumes, on any number of
//! ranks.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pelton_batch::Batch;
use pelton_comm::Comm;
use pelton_feed::{FeedError, LoaderState};
use pelton_storage::{WholeFile, check_output, path_text};
use serde_json::Value;

use pelton_data::DataError;
use pelton_plan::Place;

/// The file with the state of a pipeline, and the file of ids.
pub(super) struct Progress<'a> {
    path: PathBuf,
    comm: &'a Comm,
    state: Option<LoaderState>,
    log: Option<fs::File>,
    /// The name of rank 0's log, which only its own state may cut.
    log_name: Option<String>,
    /// How many logs the state that was read knows.
    logs: usize,
    logged: u64,
    /// Bytes in the logs of ranks that no longer exist.
    logged_before: Vec<u64>,
    saved: Instant,
    /// Where ranks last asked one another whether to save.
    agreed_at: Place,
}

/// Time between two saves.
const SAVE_EVERY: Duration = Duration::from_millis(100);
/// Steps between two places where ranks may save.
const STEPS_TO_AGREE: u64 = 16;

/// The log of a rank: next to that of rank 0, with the rank appended to its name.
fn log_of(log: &Path, rank: usize) -> PathBuf {
    match rank {
        0 => log.to_owned(),
        rank => {
            let mut name = log.as_os_str().to_owned();
            name.push(format!(".{rank}"));
            name.into()
        }
    }
}

impl<'a> Progress<'a> {
    /// Reads the state, where there is one: rank 0 does, which also writes it. All ranks call it.
    pub fn open(path: &Path, comm: &'a Comm) -> Result<Progress<'a>, DataError> {
        let read = comm.from_first(|| match pelton_storage::read_file(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot_use(path, &error)),
        })?;
        let read = read.map(|bytes| saved(&bytes).map_err(|error| of_file(path, &error)));
        let (
            state,
            Logged {
                name,
                bytes: logged,
            },
        ) = match read.transpose()? {
            Some((state, logged)) => (Some(state), logged),
            None => (None, Logged::default()),
        };
        let (rank, ranks) = (comm.rank(), comm.size());
        Ok(Progress {
            path: path.to_owned(),
            comm,
            agreed_at: Place::default(),
            log: None,
            log_name: name,
            logs: logged.len(),
            logged: logged.get(rank).copied().unwrap_or(0),
            logged_before: logged.get(ranks..).unwrap_or_default().to_vec(),
            saved: Instant::now(),
            state,
        })
    }

    /// Opens the log of this rank; what it holds beyond the state is cut off. All ranks call it.
    ///
    /// Errors: a file that exists and is not the log of this state.
    pub fn log_to(&mut self, log: &Path, state: &LoaderState) -> Result<(), DataError> {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let name = log.file_name().map(|name| path_text(Path::new(name)));
        if self.log_name != name {
            let own = log_of(log, rank);
            if fs::metadata(&own).is_ok_and(|there| there.len() > 0) {
                return Err(DataError::Config(format!(
                    "{}: exists and is not the log of {}; remove it, or name another file with `log`",
                    own.display(),
                    self.path.display()
                )));
            }
        }
        if self.log_name != name || self.logs < ranks {
            self.log_name = name;
            // What a killed run logs is cut only if the state knows of it.
            self.save(state)?;
        }
        check_output(log, std::slice::from_ref(&self.path))?;
        self.log = Some(self.open_log(&log_of(log, rank), self.logged)?);
        if rank == 0 {
            // Of ranks that no longer exist.
            for (rank, &logged) in (ranks..).zip(&self.logged_before) {
                self.open_log(&log_of(log, rank), logged)?;
            }
        }
        Ok(())
    }

    /// Errors: a log that has less than the state says, so that it was cut or removed since.
    fn open_log(&self, log: &Path, logged: u64) -> Result<fs::File, DataError> {
        let found = match fs::metadata(log) {
            Ok(there) => there.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(cannot_use(log, &error)),
        };
        if found < logged {
            return Err(DataError::Config(format!(
                "{}: has {found} bytes, but {logged} according to {}, so it was cut or removed; restore it, or remove both files to start again",
                log.display(),
                self.path.display()
            )));
        }
        let options = &mut fs::OpenOptions::new();
        let opened = pelton_storage::open_with(options.create(true).append(true), log);
        let cut = opened.and_then(|file| file.set_len(logged).map(|()| file));
        cut.map_err(|error| cannot_use(log, &error))
    }

    /// The state to resume from, if there is one.
    pub fn state(&self) -> Option<&LoaderState> {
        self.state.as_ref()
    }

    /// Appends the batch's ids and, from time to time, saves that these were consumed: what a killed process
    /// has logged after that is cut off again.
    pub fn note(
        &mut self,
        batch: &Batch,
        end: Place,
        state: &LoaderState,
    ) -> Result<(), DataError> {
        if let Some(log) = &mut self.log {
            let bytes: Vec<u8> = batch.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            log.write_all(&bytes).map_err(cannot_save)?;
            self.logged += bytes.len() as u64;
        }
        let saves = match self.comm.size() {
            1 => self.saved.elapsed() >= SAVE_EVERY,
            _ => self.agree(end, batch.ends_epoch)?,
        };
        if saves {
            self.save(state)?;
        }
        Ok(())
    }

    /// Whether ranks, all of which have reached `end`, save here: rank 0's clock decides.
    fn agree(&mut self, end: Place, ends_epoch: bool) -> Result<bool, DataError> {
        let asks = end.step.is_multiple_of(STEPS_TO_AGREE) || ends_epoch;
        // Repeats by waiting do not move a rank on.
        if !asks || end == self.agreed_at {
            return Ok(false);
        }
        self.agreed_at = end;
        let mut wanted = [u64::from(self.saved.elapsed() >= SAVE_EVERY)];
        self.comm.broadcast(&mut wanted, 0)?;
        Ok(wanted == [1])
    }

    /// Saves; all ranks call it at the same step.
    pub fn save(&mut self, state: &LoaderState) -> Result<(), DataError> {
        if let Some(log) = &self.log {
            log.sync_data().map_err(cannot_save)?;
        }
        let logged = self.comm.all_gather_ragged(&[self.logged])?.concat();
        if self.comm.rank() == 0 {
            let logged: Vec<u64> = logged
                .into_iter()
                .chain(self.logged_before.clone())
                .collect();
            let logged = Logged {
                name: self.log_name.clone(),
                bytes: logged,
            };
            let text = format!("{}\n", document(state, &logged));
            self.write(&text)
                .map_err(|source| DataError::PipelineState {
                    path: self.path.clone(),
                    source,
                })?;
        }
        self.saved = Instant::now();
        Ok(())
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let file = WholeFile::create(&self.path)?;
        fs::write(file.temporary(), text)?;
        file.publish()
    }
}

/// The member of a state file with the bytes of each rank's log; a loader's own state has no logs.
const LOG_BYTES: &str = "log_bytes";

/// The member with the name of rank 0's log.
const LOG_NAME: &str = "log";

/// The member with the checksum of the others, in 8 hexadecimal digits.
const CHECKSUM: &str = "crc32c";

/// The logs of a state.
#[derive(Clone, Debug, Default, PartialEq)]
struct Logged {
    /// The file name of rank 0's.
    name: Option<String>,
    /// Bytes of each rank's.
    bytes: Vec<u64>,
}

/// A state file: the loader's state with its logs, where there are any, and a checksum.
fn document(state: &LoaderState, logged: &Logged) -> Value {
    let mut document = serde_json::to_value(state).expect("numbers and text");
    if let Some(name) = &logged.name {
        document[LOG_NAME] = name.as_str().into();
        document[LOG_BYTES] = logged.bytes.as_slice().into();
    }
    document[CHECKSUM] = checksum(&document).into();
    document
}

fn checksum(document: &Value) -> String {
    format!("{:08x}", crc32c::crc32c(document.to_string().as_bytes()))
}

/// What a state file says.
fn saved(bytes: &[u8]) -> Result<(LoaderState, Logged), FeedError> {
    let refuse =
        |error: serde_json::Error| FeedError::State(format!("it cannot be read ({error})"));
    let mut document: Value = serde_json::from_slice(bytes).map_err(refuse)?;
    let mut taken = |name| document.as_object_mut().and_then(|all| all.remove(name));
    if taken(CHECKSUM) != Some(checksum(&document).into()) {
        return Err(FeedError::State("it is damaged (checksum)".to_owned()));
    }
    let mut taken = |name| document.as_object_mut().and_then(|all| all.remove(name));
    let mut logged = Logged::default();
    if let Some(name) = taken(LOG_NAME) {
        logged.name = serde_json::from_value(name).map_err(refuse)?;
        let bytes = taken(LOG_BYTES).unwrap_or_default();
        logged.bytes = serde_json::from_value(bytes).map_err(refuse)?;
    }
    Ok((LoaderState::from_json(&document.to_string())?, logged))
}

/// An error about a state, with the file that holds it.
pub(super) fn of_file(path: &Path, error: &FeedError) -> DataError {
    DataError::Config(format!("{}: {error}", path.display()))
}

fn cannot_use(path: &Path, error: &io::Error) -> DataError {
    DataError::Config(format!("{}: {error}", path.display()))
}

fn cannot_save(source: io::Error) -> DataError {
    DataError::Output {
        what: "log of the pipeline",
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str =
        r#"{"version":1,"data":"0f","files":"0e","plan":"a0","epoch":1,"step":5,"auto_batches":0}"#;

    /// The text of an object with the checksum of its members.
    fn sealed(text: &str) -> String {
        let sum = checksum(&serde_json::from_str(text).unwrap());
        format!(
            "{},\"{CHECKSUM}\":\"{sum}\"}}",
            text.strip_suffix('}').unwrap()
        )
    }

    #[track_caller]
    fn check(text: &str, expected: &[u64]) {
        let (state, logged) = saved(sealed(text).as_bytes()).unwrap();
        assert_eq!(logged.bytes, expected);
        assert_eq!((state.epoch, state.step), (1, 5));
        // The written state can be read, and is one JSON object.
        let written = document(&state, &logged).to_string();
        assert!(serde_json::from_str::<Value>(&written).unwrap().is_object());
        let read = saved(written.as_bytes()).unwrap();
        assert_eq!(read, (state, logged));
    }

    #[test]
    fn states_with_the_lengths_of_logs() {
        check(STATE, &[]);
        check(
            &STATE.replace('}', r#","log":"ids","log_bytes":[16,0,8]}"#),
            &[16, 0, 8],
        );
        check(&STATE.replace(',', ",\n  "), &[]);
    }

    #[test]
    fn any_damage_to_a_state_is_found() {
        let text = STATE.replace('}', r#","log":"ids","log_bytes":[16,0,8]}"#);
        let (state, logged) = saved(sealed(&text).as_bytes()).unwrap();
        let good = document(&state, &logged).to_string().into_bytes();
        for bit in 0..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // An escape or a digit may be spelt another way and mean the same.
            if let Ok(read) = saved(&bad) {
                assert_eq!(read, (state.clone(), logged.clone()), "bit {bit}");
            }
        }
    }

    #[test]
    fn what_is_no_state() {
        for wrong in [
            format!("{STATE}\n16 8\n"),
            format!("{STATE}{STATE}"),
            STATE.to_owned(),
            sealed(&STATE.replace('}', r#","log":"ids","log_bytes":[-1]}"#)),
            sealed(&STATE.replace('}', r#","log":"ids","log_bytes":8}"#)),
            sealed(&STATE.replace('}', r#","log":"ids"}"#)),
            sealed(&STATE.replace('}', r#","other":8}"#)),
            String::new(),
            "[]".to_owned(),
        ] {
            let error = saved(wrong.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("start again"), "{wrong}: {error}");
        }
    }
}
