//! The settings that must be equal on all ranks and in all sessions of a run.
//!
//! Settings that may differ between machines are left out: paths, since the contents are compared separately, and
//! memory and threads, since the plan shows their effects.

use std::collections::{BTreeMap, BTreeSet};

use pelton_comm::Alike;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Settings that name files: only whether they are set must be equal, not the names.
const FILES: [&str; 10] = [
    "paths",
    "sample_weights",
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

/// Settings by their names.
pub type Settings = BTreeMap<String, String>;

/// The settings that decide the result of a run: all except those of the machine and those with paths in `changing`,
/// which may change when the run is resumed.
pub fn decisive(config: &impl Serialize, changing: &[&str]) -> Settings {
    flat(config, changing).into_iter().collect()
}

/// The settings of a configuration by their names.
pub(crate) fn settings(config: &impl Serialize) -> Alike {
    let all = flat(config, &[]).into_iter();
    all.fold(Alike::default(), |alike, (name, value)| {
        alike.with(format!("`{name}`"), value)
    })
}

fn flat(config: &impl Serialize, without: &[&str]) -> Vec<(String, String)> {
    let value = serde_json::to_value(config).unwrap_or_default();
    let mut all = Flat {
        without,
        ..Flat::default()
    };
    all.add("", &value);
    all.settings
}

/// The configuration of rank 0 (`first`, JSON) with this rank's own settings of the machine.
pub(crate) fn taken_over<C: Serialize + DeserializeOwned>(first: &[u8], own: &C) -> Option<C> {
    let mut taken = serde_json::from_slice(first).ok()?;
    keep_own(&mut taken, &serde_json::to_value(own).ok()?);
    serde_json::from_value(taken).ok()
}

fn keep_own(taken: &mut Value, own: &Value) {
    let (Value::Object(taken), Value::Object(own)) = (taken, own) else {
        return;
    };
    let is_own = |name: &str| MACHINE.contains(&name) || FILES.contains(&name);
    taken.retain(|name, _| !is_own(name) || own.contains_key(name));
    for (name, value) in own {
        match taken.get_mut(name) {
            _ if is_own(name) => {
                taken.insert(name.clone(), value.clone());
            }
            Some(taken) => keep_own(taken, value),
            None => {}
        }
    }
}

#[derive(Default)]
struct Flat<'a> {
    settings: Vec<(String, String)>,
    /// Paths of settings to leave out.
    without: &'a [&'a str],
    /// Names so far: a second setting of the same name is named by its path.
    names: BTreeSet<String>,
}

impl Flat<'_> {
    fn add(&mut self, path: &str, value: &Value) {
        let mut parts = path.rsplit('.');
        // Alternatives take the name of their setting.
        let name = match parts.next() {
            Some("kind") => parts.next().unwrap_or(path),
            name => name.unwrap_or(path),
        };
        let text = match value {
            _ if MACHINE.contains(&name) || self.without.contains(&path) => return,
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
            // A share of the training records is not a file.
            Value::String(text) if text.parse::<f64>().is_ok() => text.clone(),
            _ if FILES.contains(&name) => "given".to_string(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let name = if self.names.insert(name.to_string()) {
            name
        } else {
            path
        };
        self.settings.push((name.to_string(), text));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_of_rank_0_but_for_the_machine() {
        let first = json!({
            "data": { "paths": ["/one/a.csv"], "io": "direct", "label": "first" },
            "fit": { "rate": 0.5, "threads": 8 },
            "cache_fraction": 0.25,
            "scratch_dir": "/one",
        });
        let own = json!({
            "data": { "paths": ["/two/a.csv"], "label": "last" },
            "fit": { "rate": 0.1, "threads": 2, "memory_bytes": 5 },
        });
        let taken: Value = taken_over(first.to_string().as_bytes(), &own).unwrap();
        let expected = json!({
            "data": { "paths": ["/two/a.csv"], "label": "first" },
            "fit": { "rate": 0.5, "threads": 2, "memory_bytes": 5 },
            "cache_fraction": 0.25,
        });
        assert_eq!(taken, expected);
    }

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
        let config = json!({ "fit": { "validation": "0.1", "rate": 1.0, "epochs": 2 }, "head": { "rate": 2.0 } });
        let expected = [("validation", "0.1"), ("rate", "2.0")];
        let expected = expected.map(|(name, value)| (name.to_string(), value.to_string()));
        let found = decisive(&config, &["fit.rate", "fit.epochs"]);
        assert_eq!(found, Settings::from(expected));
    }
}
