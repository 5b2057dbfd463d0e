//! Finished parts of a table, saved in its folder, so that an interrupted table continues.

use std::collections::BTreeMap;
use std::path::Path;

use pelton_key::Digest;
use pelton_train::TrainError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::commit;
use crate::raw_runs::RawRuns;

/// All finished parts: lines of a file.
pub(crate) struct Kept {
    file: RawRuns,
    finished: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    value: Value,
}

/// Identifies a part by its description.
pub(crate) fn key_of(text: &str) -> String {
    let digest = Digest::new("part of a table").bytes(text.as_bytes());
    format!("{:016x}", digest.value())
}

/// Identifies a part by its description and the commit.
pub(crate) fn key_at_commit(text: &str) -> String {
    key_of(&format!("{} {text}", commit()))
}

impl Kept {
    /// The parts in the folder `out` of a table.
    pub(crate) fn open(out: &Path) -> Result<Kept, TrainError> {
        let path = out.join("trainings.jsonl");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        // A truncated line is not a finished part.
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        Ok(Kept {
            finished: lines.map(|line: Line| (line.key, line.value)).collect(),
            file: RawRuns::append(&path)?,
        })
    }

    /// A part, if it is finished.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_value(self.finished.get(key)?.clone()).ok()
    }

    /// Saves a finished part.
    pub(crate) fn keep<T: Serialize>(&mut self, key: &str, part: &T) -> Result<(), TrainError> {
        let value = serde_json::to_value(part).expect("numbers and text");
        let key = key.to_string();
        let line = Line { key, value };
        self.file
            .line(&[&serde_json::to_string(&line).expect("numbers and text")])?;
        self.finished.insert(line.key, line.value);
        Ok(())
    }
}
