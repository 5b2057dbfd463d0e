//! A configuration as what all ranks must have alike.
//!
//! Settings that may differ between machines are left out: paths, since the contents are compared separately,
//! and memory and threads, since their effects show in the plan.

use std::collections::BTreeSet;

use pelton_comm::Alike;
use serde::Serialize;
use serde::de::DeserializeOwned;
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

/// The configuration of rank 0, as JSON, with what belongs to the machine from this rank's own.
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
struct Settings {
    alike: Alike,
    /// Names so far: a second setting of the same name is named by its path.
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
        let name = if self.names.insert(name.to_string()) {
            name
        } else {
            path
        };
        self.alike = std::mem::take(&mut self.alike).with(format!("`{name}`"), text);
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
    }
}
