//! A configuration as what all ranks must have alike.
//!
//! What may differ from machine to machine is left out: where files lie, for what they hold is compared by itself, and
//! how much memory and how many threads there are, for what follows from them shows in the plan.

use std::collections::BTreeSet;

use pelton_comm::Alike;
use serde::Serialize;
use serde_json::Value;

/// Settings that name files: whether they are given must be the same, and not how the files are called.
const FILES: [&str; 9] = [
    "paths",
    "pair",
    "test",
    "validation",
    "vocabulary",
    "classes",
    "label_file",
    "state",
    "log",
];
/// Settings of the machine.
const MACHINE: [&str; 12] = [
    "io",
    "cache_dir",
    "scratch_dir",
    "remote_cache_bytes",
    "threads",
    "feed_threads",
    "read_threads",
    "memory_bytes",
    "memory_share",
    "checkpoint_seconds",
    "checkpoint_every_s",
    "metrics",
];

/// The settings of a configuration by their names.
pub(crate) fn settings(config: &impl Serialize) -> Alike {
    let value = serde_json::to_value(config).unwrap_or_default();
    let mut all = Settings::default();
    all.add("", &value);
    all.alike
}

#[derive(Default)]
struct Settings {
    alike: Alike,
    /// Names so far: a second setting of the same name is called by its path.
    names: BTreeSet<String>,
}

impl Settings {
    fn add(&mut self, path: &str, value: &Value) {
        let name = path.rsplit('.').next().unwrap_or(path);
        let text = match value {
            _ if MACHINE.contains(&name) => return,
            Value::Object(members) => {
                let prefix = if path.is_empty() {
                    String::new()
                } else {
                    format!("{path}.")
                };
                for (name, value) in members {
                    self.add(&format!("{prefix}{name}"), value);
                }
                return;
            }
            Value::Null => return,
            Value::Array(all) if all.is_empty() => return,
            _ if FILES.contains(&name) => "given".to_string(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let name = match self.names.insert(name.to_string()) {
            true => name,
            false => path,
        };
        self.alike = std::mem::take(&mut self.alike).with(format!("`{name}`"), text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_named_and_those_of_the_machine_left_out() {
        let config = json!({
            "data": { "paths": ["a.csv"], "format": null, "io": "auto", "label": "last" },
            "fit": { "rate": 0.5, "threads": 4, "memory_bytes": 5, "test": [], "seed": 3 },
            "head": { "rate": 2.0 },
            "weights": [["a", 2.0]],
        });
        let expected = Alike::default()
            .with("`label`", "last")
            .with("`paths`", "given")
            .with("`rate`", 0.5)
            .with("`seed`", 3)
            .with("`head.rate`", "2.0")
            .with("`weights`", r#"[["a",2.0]]"#);
        assert_eq!(settings(&config), expected);
    }
}
