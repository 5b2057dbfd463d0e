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

#[test]
fn a_new_folder_holds_its_configuration() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("runs/a");
    let folder = RunFolder::open(&path, &config(7), false, false).unwrap();
    assert_eq!(folder.path(), path);
    assert_eq!(read(&path, "run.toml"), "seed = 7\n");
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

    let folder = RunFolder::open(path, &config(3), true, true).unwrap();
    assert_eq!(read(path, "metrics.jsonl"), "{\"seed\":10}\n");
    folder.write_summary(&config(4)).unwrap();
    drop(folder);
    assert_eq!(read(path, "run.toml"), "seed = 3\n");
    let error = RunFolder::open(path, &config(2), false, false).unwrap_err();
    assert!(
        matches!(error, RunError::Exists { finished: true, .. }),
        "{error}"
    );

    for name in [
        "model.txt",
        "report.html",
        "notes.txt",
        "events.out.tfevents.1.x",
    ] {
        std::fs::write(path.join(name), name).unwrap();
    }
    std::fs::write(path.join("checkpoint/state.safetensors"), "old").unwrap();
    RunFolder::open(path, &config(5), false, true).unwrap();
    let left = [
        ".lock",
        "checkpoint",
        "metrics.jsonl",
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
    // What a process killed before it wrote its configuration leaves behind.
    std::fs::write(outer.path().join(".lock"), "").unwrap();
    std::fs::write(outer.path().join(".pelton-x1y2z3"), "").unwrap();
    RunFolder::open(outer.path(), &config(1), true, false).unwrap();
    assert_eq!(read(outer.path(), "run.toml"), "seed = 1\n");
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
