//! The context of a job, in addition to its configuration.

use std::path::PathBuf;

use pelton_comm::{Alike, Comm, CommError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::{Interrupt, Observer};
use crate::manifest::CONFIG;
use crate::settings::{settings, taken_over};

/// The context of a job, in addition to its configuration. Each rank of a job has its own context.
pub struct RunContext<'a> {
    /// The run folder, for jobs that write one; others ignore it.
    pub folder: RunOptions,
    /// This rank among those of the job.
    pub comm: &'a Comm,
    /// Ends the job early.
    pub interrupt: &'a Interrupt,
    /// Receives events.
    pub observer: Observer<'a>,
}

/// The files of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The run folder.
    pub out: PathBuf,
    /// Whether to resume from its last checkpoint.
    pub resume: bool,
    /// Whether to replace its contents.
    pub overwrite: bool,
}

impl<'a> RunContext<'a> {
    /// The context of a job without a run folder.
    pub fn new(comm: &'a Comm, interrupt: &'a Interrupt, observer: Observer<'a>) -> RunContext<'a> {
        RunContext {
            folder: RunOptions::default(),
            comm,
            interrupt,
            observer,
        }
    }

    /// Compares the configuration of this rank with those of all others, by name. Jobs of several ranks begin with
    /// this. All ranks call it.
    ///
    /// Errors: a rank with another configuration, or [`CommError::RankFailed`].
    pub fn agree(&self, config: &impl Serialize) -> Result<(), CommError> {
        match self.comm.size() {
            1 => Ok(()),
            _ => self.comm.agree(&settings(config)),
        }
    }

    /// The configuration of a training job, compared as in [`RunContext::agree`]. If this rank's machine lacks the
    /// folder of a resumed run, it uses the settings of rank 0, except those of the machine. All ranks call it.
    ///
    /// Errors: those of [`RunContext::agree`].
    pub fn agreed<C>(&self, config: &C) -> Result<C, CommError>
    where
        C: Clone + Serialize + DeserializeOwned,
    {
        let mut own = config.clone();
        // The exchange below depends on it.
        let begins = Alike::default().with("`resume`", self.folder.resume);
        self.comm
            .agree(&begins.with("`overwrite`", self.folder.overwrite))?;
        if self.comm.size() > 1 && self.folder.resume {
            let first = self
                .comm
                .from_first(|| Ok::<_, CommError>(serde_json::to_vec(config).ok()))?;
            let lacks = self.comm.rank() > 0 && !self.folder.out.join(CONFIG).exists();
            let taken = first
                .filter(|_| lacks)
                .and_then(|first| taken_over(&first, config));
            own = taken.unwrap_or(own);
        }
        self.agree(&own)?;
        Ok(own)
    }

    /// The same with a run folder.
    pub fn in_folder(self, folder: &RunOptions) -> RunContext<'a> {
        RunContext {
            folder: folder.clone(),
            ..self
        }
    }
}
