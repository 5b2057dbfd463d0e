//! Folders are taken, refused, resumed and overwritten; files are whole or absent.

use std::collections::BTreeMap;

use super::*;

type Config = BTreeMap<&'static str, u64>;

fn config(seed: u64) -> Config {
    BTreeMap::from([("seed", seed)])
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn read(path: &Path, name: &str) -> String {
    std::fs::read_to_string(path.join(name)).unwrap()
}

/// The configuration in a folder, after the line that names the run.
fn configured(path: &Path) -> String {
    let text = read(path, "run.toml");
    let (run, config) = text.split_once('\n').unwrap();
    assert_eq!(run, format!("# Run {}", run_of(path).unwrap()));
    config.to_string()
}

#[test]
fn a_new_folder_holds_its_configuration() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("runs/a");
    let folder = RunFolder::open(&path, &config(7), false, false).unwrap();
    assert_eq!(folder.path(), path);
    assert_eq!(configured(&path), "seed = 7\n");
    assert_eq!(
        names(&path),
        [".lock", "checkpoint", "metrics.jsonl", "run.toml"]
    );
}

#[test]
fn a_run_is_kept_unless_told_otherwise() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path();
    let mut folder = RunFolder::open(path, &config(1), false, false).unwrap();
    folder.append_metrics(&config(10)).unwrap();
    drop(folder);
    let error = RunFolder::open(path, &config(2), false, false).unwrap_err();
    assert!(
        matches!(
            error,
            RunError::Exists {
                finished: false,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("unfinished run; continue with `resume`"),
        "{error}"
    );
    assert_eq!(error.exit_code(), 2);

    // A resumed run may still be refused, and then nothing changes.
    let mut folder = RunFolder::open(path, &config(3), true, true).unwrap();
    assert_eq!(configured(path), "seed = 1\n");
    folder.keep_metrics(1).unwrap();
    assert_eq!(read(path, "metrics.jsonl"), "{\"seed\":10}\n");
    folder.write_summary(&config(4)).unwrap();
    drop(folder);
    assert_eq!(configured(path), "seed = 3\n");
    let error = RunFolder::open(path, &config(2), false, false).unwrap_err();
    assert!(
        matches!(error, RunError::Exists { finished: true, .. }),
        "{error}"
    );

    for name in [
        "model.txt",
        "report.html",
        "notes.txt",
        "model-2.safetensors",
        "events.out.tfevents.1.x",
        "model-1-0-of-1.rows",
        "classes.json",
        "vocabulary.txt",
        "other.bin",
        "checkpoint/state-1.safetensors",
        "checkpoint/state-1-0-of-1.rows",
    ] {
        std::fs::write(path.join(name), name).unwrap();
    }
    // Files listed in a manifest belong to the run, whatever their names.
    let folder = RunFolder::open(path, &config(3), true, false).unwrap();
    folder.begin(Set::Model).unwrap();
    let files = Entries::from([folder.entry("other.bin").unwrap()]);
    folder.commit(Set::Model, 1, files).unwrap();
    drop(folder);
    RunFolder::open(path, &config(5), false, true).unwrap();
    let left = [
        ".lock",
        "checkpoint",
        "metrics.jsonl",
        "model-2.safetensors",
        "notes.txt",
        "run.toml",
    ];
    assert_eq!(names(path), left);
    assert_eq!(names(&path.join("checkpoint")), [""; 0]);
    assert_eq!(read(path, "metrics.jsonl"), "");
}

#[test]
fn resume_without_a_run_begins_one() {
    let outer = tempfile::tempdir().unwrap();
    // Leftovers of a process killed before it wrote its configuration.
    std::fs::write(outer.path().join(".lock"), "").unwrap();
    std::fs::write(outer.path().join(".pelton-x1y2z3"), "").unwrap();
    RunFolder::open(outer.path(), &config(1), true, false).unwrap();
    assert_eq!(configured(outer.path()), "seed = 1\n");
}

#[test]
fn other_files_are_never_touched() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::write(outer.path().join("thesis.txt"), "years of work").unwrap();
    for (resume, overwrite) in [(false, false), (true, false), (false, true)] {
        let error = RunFolder::open(outer.path(), &config(1), resume, overwrite).unwrap_err();
        assert!(matches!(error, RunError::Foreign { .. }));
        assert!(error.to_string().contains("thesis.txt"), "{error}");
    }
    assert_eq!(names(outer.path()), ["thesis.txt"]);
}

/// Writes a set of two files, one of them numbered.
fn write_set(folder: &RunFolder, text: &str) {
    let (number, _) = folder.begin(Set::Checkpoint).unwrap();
    folder.write_text("classes.json", "[]").unwrap();
    let name = format!("checkpoint/state-{number}.safetensors");
    folder.write_text(&name, text).unwrap();
    let entries = ["classes.json", &name].map(|name| folder.entry(name).unwrap());
    folder
        .commit(Set::Checkpoint, number, Entries::from(entries))
        .unwrap();
}

#[test]
fn files_of_a_set_are_replaced_together() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path();
    let open = |resume| RunFolder::open(path, &config(1), resume, false).unwrap();
    let folder = open(false).with_settings(Settings::from([("seed".into(), "1".into())]));
    write_set(&folder, "first");
    let read = || Manifest::open(path, Set::Checkpoint).unwrap().unwrap();
    let state = |of: &Manifest| of.named("checkpoint/state", "").unwrap().to_string();
    let first = read();
    let name = state(&first);
    // Killed before the manifest was written: the first set is whole, and the rest is removed.
    let (number, _) = folder.begin(Set::Checkpoint).unwrap();
    let half = format!("checkpoint/state-{number}.safetensors");
    folder.write_text(&half, "half").unwrap();
    drop(folder);
    assert_eq!(read().contents(&name).unwrap(), b"first");
    let mut folder = open(true);
    assert!(path.join(&half).exists());
    folder.keep_metrics(0).unwrap();
    assert!(!path.join(&half).exists());
    write_set(&folder, "second");
    let second = read();
    assert_eq!(second.contents(&state(&second)).unwrap(), b"second");
    assert!(!path.join(&name).exists() && state(&second) != name);
    assert_eq!(second.run, first.run, "the run is the same");
    assert!(
        first
            .check_settings(&Settings::new())
            .unwrap_err()
            .to_string()
            .contains("`seed` 1")
    );
    // A model does not exist until all of it is written.
    let entries = Entries::from([folder.entry("classes.json").unwrap()]);
    folder.commit(Set::Model, 1, entries).unwrap();
    assert_eq!(folder.begin(Set::Model).unwrap().0, 2);
    assert!(Manifest::read(path, Set::Model).unwrap().is_none());
}

#[test]
fn any_difference_of_a_listed_file_is_refused_by_its_name() {
    let outer = tempfile::tempdir().unwrap();
    let (path, other) = (outer.path().join("one"), outer.path().join("two"));
    for (path, text) in [(&path, "some text"), (&other, "same size")] {
        let folder = RunFolder::open(path, &config(1), false, false).unwrap();
        write_set(&folder, text);
    }
    let set = Set::Checkpoint;
    let check = |parts: &[&str]| {
        let found = Manifest::open(&path, set).and_then(|found| {
            let found = found.expect("a manifest");
            found.contents("checkpoint/state-1.safetensors")
        });
        let error = found.unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    for name in ["checkpoint/state-1.safetensors", "classes.json", set.file()] {
        let file = path.join(name);
        let good = std::fs::read(&file).unwrap();
        for bit in 0..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // The error for a wrong name or digest names its file.
            std::fs::write(&file, &bad).unwrap();
            let is_list = name == set.file();
            let of_settings = is_list
                && Manifest::parse(&bad, &path, set)
                    .is_ok_and(|bad| bad.files() == first_of(&good, &path).files());
            if !of_settings {
                check(&[if is_list { "" } else { name }, "overwrite"]);
            }
        }
        for length in 0..good.len() - 1 {
            std::fs::write(&file, &good[..length]).unwrap();
            check(&[name]);
        }
        if name != set.file() {
            std::fs::remove_file(&file).unwrap();
            check(&[name, "is missing"]);
            std::fs::create_dir(&file).unwrap();
            check(&[name, "is not a file"]);
            std::fs::remove_dir(&file).unwrap();
        }
        std::fs::write(&file, good).unwrap();
    }
    std::fs::copy(
        other.join("checkpoint/state-1.safetensors"),
        path.join("checkpoint/state-1.safetensors"),
    )
    .unwrap();
    check(&["state-1.safetensors", "differs"]);
    let outside =
        br#"{"run":"1","number":1,"settings":{},"files":{"../a":{"bytes":0,"parts":[]}}}"#;
    assert!(Manifest::parse(outside, &path, set).is_err());
    let beyond = br#"{"run":"1","number":18446744073709551615,"settings":{},"files":{}}"#;
    assert!(Manifest::parse(beyond, &path, set).is_err());
    // The model of another run.
    std::fs::copy(other.join(set.file()), path.join(Set::Model.file())).unwrap();
    let error = RunFolder::open(&path, &config(1), true, false).unwrap_err();
    assert!(error.to_string().contains("is of another run"), "{error}");
}

#[test]
fn a_run_that_has_no_checkpoint_left_is_not_begun_again() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path();
    let folder = RunFolder::open(path, &config(1), false, false).unwrap();
    let open = || RunFolder::open(path, &config(1), true, false).map(drop);
    write_set(&folder, "first");
    let manifest = path.join(Set::Checkpoint.file());
    std::fs::remove_file(&manifest).unwrap();
    drop(folder);
    // The run was killed while writing the first checkpoint.
    open().unwrap();
    for name in ["checkpoint/state-2.safetensors", Set::Model.file()] {
        let text = format!(
            r#"{{"run":"{}","number":1,"settings":{{}},"files":{{}}}}"#,
            run_of(path).unwrap()
        );
        std::fs::write(path.join(name), text).unwrap();
        let before = names(&path.join(CHECKPOINTS));
        let error = open().unwrap_err().to_string();
        assert!(
            error.contains("checkpoint/manifest.json: is missing"),
            "{error}"
        );
        assert_eq!(names(&path.join(CHECKPOINTS)), before);
        std::fs::remove_file(path.join(name)).unwrap();
    }
    // States that no run of this folder has written.
    std::fs::remove_file(path.join(CONFIG)).unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, RunError::Foreign { .. }), "{error}");
}

fn first_of(bytes: &[u8], path: &Path) -> Manifest {
    Manifest::parse(bytes, path, Set::Checkpoint).unwrap()
}

/// Otherwise both runs would write to the same folder.
#[test]
fn a_folder_that_was_replaced_is_not_written() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("run");
    for again in [false, true] {
        let mut first = RunFolder::open(&path, &config(1), false, true).unwrap();
        std::fs::rename(&path, outer.path().join(format!("moved-{again}"))).unwrap();
        let second = again.then(|| RunFolder::open(&path, &config(2), false, false).unwrap());
        for result in [
            first.append_metrics(&config(1)),
            first.keep_metrics(0),
            first.write_text("report.html", ""),
            first.write_summary(&config(1)),
            first.begin(Set::Checkpoint).map(drop),
            first.begin(Set::Model).map(drop),
            first.commit(Set::Model, 1, Entries::new()),
            first.file("model.txt").map(drop),
        ] {
            let error = result.unwrap_err();
            assert!(
                error.to_string().contains("was removed, moved or replaced"),
                "{error}"
            );
            assert_eq!(error.exit_code(), 1);
        }
        if let Some(second) = second {
            second.write_text("report.html", "").unwrap();
        } else {
            assert!(!path.exists());
        }
    }
}

#[test]
fn one_process_at_a_time() {
    let outer = tempfile::tempdir().unwrap();
    let first = RunFolder::open(outer.path(), &config(1), false, false).unwrap();
    let error = RunFolder::open(outer.path(), &config(1), true, false).unwrap_err();
    assert!(matches!(error, RunError::InUse { .. }), "{error}");
    drop(first);
    RunFolder::open(outer.path(), &config(1), true, false).unwrap();
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::write(outer.path().join("file"), "").unwrap();
    for path in ["file", "file/run"] {
        let error = RunFolder::open(&outer.path().join(path), &config(1), false, false);
        let error = error.unwrap_err();
        assert!(matches!(error, RunError::Unusable { .. }), "{error}");
        assert!(error.to_string().contains("`out`"), "{error}");
    }
}

#[test]
fn a_configuration_beyond_toml_is_an_error() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("run");
    let error = RunFolder::open(&path, &"no table", false, true).unwrap_err();
    assert!(matches!(error, RunError::Config { .. }), "{error}");
    assert!(!path.exists());
}

#[test]
fn metrics_follow_the_checkpoint() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path();
    let mut folder = RunFolder::open(path, &config(1), false, false).unwrap();
    for seed in 0..3 {
        folder.append_metrics(&config(seed)).unwrap();
    }
    drop(folder);
    let whole = read(path, "metrics.jsonl");
    // Killed in the middle of the fourth line.
    std::fs::write(path.join("metrics.jsonl"), whole.clone() + "{\"seed\":3").unwrap();
    let mut folder = RunFolder::open(path, &config(1), true, false).unwrap();
    assert_eq!(read(path, "metrics.jsonl"), whole);
    folder.keep_metrics(2).unwrap();
    folder.append_metrics(&config(9)).unwrap();
    folder.keep_metrics(5).unwrap();
    let lines = "{\"seed\":0}\n{\"seed\":1}\n{\"seed\":9}\n";
    assert_eq!(read(path, "metrics.jsonl"), lines);
}

#[test]
fn files_are_whole_or_as_before() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("state");
    write_atomically(&path, |temporary| std::fs::write(temporary, "first")).unwrap();
    let error = write_atomically(&path, |temporary| {
        std::fs::write(temporary, "half of the sec")?;
        Err(io::Error::other("pulled out"))
    });
    assert!(matches!(
        error,
        Err(RunError::Io {
            action: "write",
            ..
        })
    ));
    assert_eq!(read(outer.path(), "state"), "first");
    assert_eq!(names(outer.path()), ["state"]);
}

#[test]
fn a_full_device_is_told_apart() {
    #[derive(Debug, thiserror::Error)]
    #[error("the writer failed")]
    struct Wrapped(#[source] io::Error);

    let full = || io::Error::from(io::ErrorKind::StorageFull);
    let outer = tempfile::tempdir().unwrap();
    for error in [
        full(),
        io::Error::other(full()),
        io::Error::other(Wrapped(full())),
    ] {
        let error = write_atomically(&outer.path().join("state"), |_| Err(error)).unwrap_err();
        assert!(matches!(error, RunError::Full { .. }), "{error}");
        assert!(error.to_string().contains("no space is left"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }
    // A device that is always full gives the real error number.
    #[cfg(target_os = "linux")]
    {
        let error = File::create("/dev/full")
            .unwrap()
            .write_all(b"x")
            .unwrap_err();
        assert!(crate::error::is_full(&error), "{error}");
    }
}
