//! Which settings a resumed run must share with the run before.

use super::*;

/// The paths of all settings of a configuration.
fn leaves(prefix: &str, value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                leaves(&format!("{prefix}/{name}"), value, found);
            }
        }
        _ => found.push(prefix.to_string()),
    }
}

/// Another value of a setting, if it is a number, a choice or a switch.
fn another(path: &str, value: &serde_json::Value) -> Option<serde_json::Value> {
    let text = |text: &str| Some(text.into());
    match value {
        serde_json::Value::Bool(is) => Some((!is).into()),
        serde_json::Value::Number(number) => Some(match number.as_u64() {
            Some(number) => (number + 1).into(),
            None => (number.as_f64()? * 0.75 + 0.01).into(),
        }),
        serde_json::Value::String(_) => match path {
            "/fit/order" => text("sequential"),
            "/fit/access" => text("window"),
            "/fit/optimizer" => text("adamw"),
            "/fit/schedule" => text("constant"),
            "/fit/precision" => text("bf16"),
            "/head/kind" => text("sampled:0.5"),
            "/head/logits" => text("cosine:7"),
            "/head/begin" => text("random"),
            "/pipeline/augment" => text("flip,normalise:0.5:0.5"),
            "/pipeline/exif" => text("apply"),
            "/pipeline/bad_examples" => text("skip:1"),
            _ => None,
        },
        _ => None,
    }
}

/// Each setting may change when a run is resumed, or is refused by its name; a new one is refused.
#[test]
fn every_setting_is_compared_or_may_change() {
    const MAY_CHANGE: [&str; 6] = ["access", "clip", "epochs", "rate", "schedule", "warmup"];
    const OF_MACHINE: [&str; 5] = [
        "threads",
        "feed_threads",
        "memory_bytes",
        "checkpoint_seconds",
        "read_threads",
    ];
    for job in ["language", "image", "head"] {
        let folder = tempfile::tempdir().unwrap();
        let (text, mut image) = (small_language(folder.path()), small_image(folder.path()));
        if job == "head" {
            image.model = "small".parse().unwrap();
            image.head = Some(pelton_train::classify::HeadConfig::default());
        }
        image.fit.validation = Some("0.2".parse().unwrap());
        let value = match job {
            "language" => serde_json::to_value(&text).unwrap(),
            _ => serde_json::to_value(&image).unwrap(),
        };
        let start = |value: &serde_json::Value, out: PathBuf, resume, steps| {
            let value = value.clone();
            match job {
                "language" => {
                    let config: LanguageConfig = serde_json::from_value(value).unwrap();
                    run(out, resume, steps, |c| language::run(&config, c))
                }
                _ => {
                    let config: ImageConfig = serde_json::from_value(value).unwrap();
                    run(out, resume, steps, |c| image::run(&config, c))
                }
            }
        };
        let out = folder.path().join("run");
        let stopped = start(&value, out.clone(), false, Some(3)).unwrap_err();
        assert!(stopped.is_interruption(), "{stopped}");
        let (mut paths, mut refused, mut changed) = (vec![], 0, 0);
        leaves("", &value, &mut paths);
        for path in paths {
            let Some(other) = another(&path, value.pointer(&path).unwrap()) else {
                continue;
            };
            let mut given = value.clone();
            *given.pointer_mut(&path).unwrap() = other;
            // A table's `kind` has the table's name.
            let name = path.trim_end_matches("/kind").rsplit('/').next().unwrap();
            let copy = folder.path().join("copy");
            std::fs::create_dir_all(copy.join("checkpoint")).unwrap();
            for part in ["", "checkpoint"] {
                for entry in std::fs::read_dir(out.join(part)).unwrap() {
                    let entry = entry.unwrap();
                    if entry.file_type().unwrap().is_file() {
                        std::fs::copy(entry.path(), copy.join(part).join(entry.file_name()))
                            .unwrap();
                    }
                }
            }
            let ended = start(&given, copy.clone(), true, Some(1));
            std::fs::remove_dir_all(&copy).unwrap();
            let error = ended.err();
            let went_on = error.as_ref().is_none_or(TrainError::is_interruption);
            if MAY_CHANGE.contains(&name) || OF_MACHINE.contains(&name) {
                changed += 1;
                assert!(went_on, "{job} {path}: {}", error.unwrap());
            } else {
                refused += 1;
                let error = error.map_or(String::new(), |error| error.to_string());
                assert!(
                    error.contains(&format!("`{name}`")),
                    "{job} {path}: {error}"
                );
            }
        }
        assert!(refused >= 15 && changed >= 7, "{job}: {refused} {changed}");
    }
}
