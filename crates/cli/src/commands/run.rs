//! What the flags of a training run mean for it.

use std::path::{Path, PathBuf};

use pelton_train::linear::RunOptions;
use pelton_train::{Stated, config_here, read_over, shown_address};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::console::interrupt_flag;
use crate::output::{Failure, bytes_of, positive, usage};
use crate::ranks::launcher;
use crate::run_arguments::RunArguments;

impl RunArguments {
    /// The configuration that flags are written over: `default`, with what the given file or the run to resume states.
    pub fn begun<C: Serialize + DeserializeOwned>(
        &self,
        no_data: bool,
        default: C,
    ) -> Result<(C, Stated), Failure> {
        let resumed = self.out.as_ref().filter(|_| self.resume);
        let interrupt = interrupt_flag();
        let resumed = resumed.map(|out| config_here(out, &interrupt));
        let resumed = resumed.transpose()?;
        // With data named, --resume may as well begin.
        let resumed = resumed.filter(|path| path.exists() || no_data);
        match self.config.as_ref().or(resumed.as_ref()) {
            Some(path) => Ok(read_over(path, &default)?),
            None => Ok((default, Stated::default())),
        }
    }

    /// The run folder; by default named like the first file, or the demo.
    pub fn folder(&self, paths: &[String]) -> PathBuf {
        self.out.clone().unwrap_or_else(|| {
            let first = shown_address(paths.first().map_or("run", String::as_str));
            let name = Path::new(&*first)
                .file_name()
                .unwrap_or(first.as_ref().as_ref());
            Path::new("runs").join(name.to_string_lossy().replace(':', "-"))
        })
    }

    /// How a run keeps its files in this folder.
    pub fn options(&self, out: &Path) -> RunOptions {
        RunOptions {
            overwrite: self.overwrite,
            resume: self.resume,
            out: out.to_path_buf(),
        }
    }

    /// The rate of a modelled network, in bytes a second.
    ///
    /// Errors: a single rank; processes, which have a real network.
    pub fn link(&self, ranks: usize) -> Result<Option<f64>, Failure> {
        let Some(rate) = self.link else {
            return Ok(None);
        };
        if ranks < 2 || launcher(ranks).is_some() {
            return Err(usage(anyhow::anyhow!(
                "--link models a network between threads of this process; give --ranks 2 or more, without a launcher"
            )));
        }
        positive(bytes_of(rate, "--link")? as f64, "link").map(Some)
    }
}
