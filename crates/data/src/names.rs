//! Resolves the names in a configuration to files: files, patterns, ranges, addresses and demo sets.

use std::path::{Path, PathBuf};

use glob::{Pattern, PatternError};
use pelton_format::is_remote;
use pelton_run::{Event, Interrupt, Observer};
use pelton_storage::path_text::is_ambiguous;
use pelton_storage::{path_of_text, path_text};

use crate::braces;
use crate::demo::{DemoSpec, classes};
use crate::error::DataError;
use crate::remote::Remote;

/// Files of a list of names; for a demo set also its test file. Generated data is in `folder`.
pub(crate) fn resolve(
    names: &[String],
    folder: &Path,
    remote: Option<&Remote>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<(Vec<PathBuf>, Vec<String>), DataError> {
    let mut files = Vec::new();
    let mut test = Vec::new();
    for name in names {
        if name.is_empty() {
            return Err(DataError::Config(
                "the name of a data file is empty; name a file, or check the variable that the name came from"
                    .to_string(),
            ));
        }
        if name.starts_with("demo:") {
            let whole = name.strip_suffix(":test");
            let demo_name = whole.unwrap_or(name);
            let (train_file, test_file) = demo(folder, demo_name, interrupt, observer)?;
            match whole {
                Some(_) => files.push(test_file),
                None => {
                    files.push(train_file);
                    test.push(path_text(&test_file));
                }
            }
            continue;
        }
        let is_there = || match remote.filter(|_| is_remote(Path::new(name))) {
            Some(remote) => remote.is_there(name),
            None => path_of_text(name).exists(),
        };
        if !name.contains('{') || is_there() {
            add(name, remote, &mut files, observer)?;
            continue;
        }
        let expanded = braces::expanded(name);
        let expanded = expanded.map_err(|what| DataError::Config(format!("{name}: {what}")))?;
        for name in &expanded {
            add(name, remote, &mut files, observer)?;
        }
    }
    Ok((files, test))
}

/// The local files and folders behind names, which a result must not replace.
pub(crate) fn local(names: &[String]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for name in names {
        let expanded = braces::expanded(name).unwrap_or_default();
        for name in expanded.iter().chain([name]) {
            files.push(path_of_text(name));
            if name.contains(['*', '?', '[']) {
                files.extend(matching(name).unwrap_or_default());
            }
        }
    }
    files
}

/// Adds the files of one name without braces.
fn add(
    name: &str,
    remote: Option<&Remote>,
    files: &mut Vec<PathBuf>,
    observer: Observer<'_>,
) -> Result<(), DataError> {
    if let Some(remote) = remote.filter(|_| is_remote(Path::new(name))) {
        return add_matching(name, remote.names(name)?, files, observer);
    }
    if is_ambiguous(name) {
        return Err(DataError::Config(format!(
            "{name}: names two files, one of them with a byte that is not UTF-8; rename one of them"
        )));
    }
    let path = path_of_text(name);
    if !name.contains(['*', '?', '[']) || path.exists() {
        match saved(&path)? {
            Some(saved) => files.extend(saved),
            None => files.push(path),
        }
        return Ok(());
    }
    let found = matching(name).map_err(|error| {
        DataError::Config(format!(
            "{name}: not a pattern ({error}); name the file, or write a bracket as [[]"
        ))
    })?;
    let is_data = |file: &PathBuf| !file.to_string_lossy().ends_with(".pelton-index");
    let found = found.into_iter().filter(is_data).collect();
    add_matching(name, found, files, observer)
}

/// Most bytes of a list of files.
const MOST_LISTED: u64 = 64 << 20;

/// The files of a folder that `save_to_disk` of Hugging Face's datasets wrote, in their order; `None` for others.
fn saved(folder: &Path) -> Result<Option<Vec<PathBuf>>, DataError> {
    #[derive(serde::Deserialize)]
    struct State {
        #[serde(rename = "_data_files")]
        files: Vec<File>,
    }
    #[derive(serde::Deserialize)]
    struct File {
        filename: String,
    }
    #[derive(serde::Deserialize)]
    struct Splits {
        splits: Vec<String>,
    }
    let list = |name: &str| -> Option<(PathBuf, Result<Vec<u8>, std::io::Error>)> {
        let path = folder.join(name);
        let size = path.metadata().ok().filter(|found| found.is_file())?.len();
        let read = if size > MOST_LISTED {
            Err(std::io::Error::other("it is longer than 64 MiB"))
        } else {
            std::fs::read(&path)
        };
        Some((path, read))
    };
    let wrong = |path: &Path, what: &dyn std::fmt::Display| {
        DataError::Config(format!(
            "{}: is no list of files of Hugging Face's datasets ({what}); save the data set again, or name its files",
            path.display()
        ))
    };
    if let Some((path, read)) = list("dataset_dict.json") {
        let read = read.map_err(|error| wrong(&path, &error))?;
        let found: Splits = serde_json::from_slice(&read).map_err(|error| wrong(&path, &error))?;
        let each = found
            .splits
            .iter()
            .map(|split| folder.join(split).display().to_string());
        return Err(DataError::Config(format!(
            "{}: holds several data sets; name one of them: {}",
            folder.display(),
            each.collect::<Vec<_>>().join(", ")
        )));
    }
    let Some((path, read)) = list("state.json") else {
        return Ok(None);
    };
    let read = read.map_err(|error| wrong(&path, &error))?;
    let Ok(state) = serde_json::from_slice::<State>(&read) else {
        // A folder of pictures may have a file of this name, too.
        return if folder.join("dataset_info.json").exists() {
            Err(wrong(&path, &"it names no files"))
        } else {
            Ok(None)
        };
    };
    let file = |File { filename }: File| match Path::new(&filename).file_name() {
        Some(name) if name == filename.as_str() => Ok(folder.join(name)),
        _ => Err(wrong(
            &path,
            &format!("`{filename}` is no file in its folder"),
        )),
    };
    let files = state
        .files
        .into_iter()
        .map(file)
        .collect::<Result<Vec<_>, _>>()?;
    match files.is_empty() {
        true => Err(wrong(&path, &"it names no files")),
        false => Ok(Some(files)),
    }
}

/// Adds the files that match a pattern, except marker files that writers leave next to data. A name without wildcards
/// matches itself.
fn add_matching(
    pattern: &str,
    found: Vec<PathBuf>,
    files: &mut Vec<PathBuf>,
    observer: Observer<'_>,
) -> Result<(), DataError> {
    let (markers, data): (Vec<PathBuf>, Vec<PathBuf>) =
        found.into_iter().partition(|file| is_marker(file, pattern));
    let listed = |files: &[PathBuf]| {
        let names = files.iter().take(3).map(|file| file.display().to_string());
        let more = if files.len() > 3 { ", …" } else { "" };
        names.collect::<Vec<_>>().join(", ") + more
    };
    if data.is_empty() {
        let only = if markers.is_empty() {
            "no file matches the pattern; check it and the folder".to_owned()
        } else {
            format!(
                "only {} match the pattern, and their names are not those of data files; name them without a wildcard to read them",
                listed(&markers)
            )
        };
        return Err(DataError::Config(format!("{pattern}: {only}")));
    }
    if !markers.is_empty() {
        observer(Event::Note(&format!(
            "{pattern}: skips {}: their names are not those of data files",
            listed(&markers)
        )));
    }
    files.extend(data);
    Ok(())
}

/// Whether a file that matches a pattern is a writer's marker next to its data, or is in a folder of markers:
/// `_SUCCESS`, `_metadata`, `.part-0.crc`, `_delta_log`. A file is data if the pattern spells out its beginning; so is
/// a partition folder such as `_month=1`.
fn is_marker(file: &Path, pattern: &str) -> bool {
    let spelled = |part: &str| {
        let mut parts = pattern.split('/');
        parts.any(|known| {
            known == part || known.get(..1) == part.get(..1) && known.contains(['*', '?', '['])
        })
    };
    file.to_string_lossy().split('/').any(|part| {
        let hidden = part.starts_with('.') && part != "." && part != "..";
        (hidden || part.starts_with('_') && !part.contains('=')) && !spelled(part)
            || part.ends_with(".crc") && !pattern.ends_with(".crc")
    })
}

/// The files that a pattern matches, in the order of their names.
///
/// `glob` skips names that are not UTF-8. If only the last part is a pattern, as in `data/*.csv`, their text is matched
/// as well.
fn matching(pattern: &str) -> Result<Vec<PathBuf>, PatternError> {
    let (folder, last) = match pattern.rsplit_once('/') {
        Some((folder, last)) => (format!("{folder}/"), last),
        None => (String::new(), pattern),
    };
    let mut found: Vec<PathBuf> = glob::glob(pattern)?.filter_map(Result::ok).collect();
    if folder.contains(['*', '?', '[']) {
        return Ok(found);
    }
    let last = Pattern::new(last)?;
    let listed = Path::new(if folder.is_empty() { "." } else { &folder }).read_dir();
    for entry in listed.into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_none() && last.matches(&path_text(Path::new(&name))) {
            found.push(Path::new(&folder).join(name));
        }
    }
    found.sort();
    Ok(found)
}

fn demo(
    folder: &Path,
    name: &str,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<(PathBuf, PathBuf), DataError> {
    if let Some(mixture) = classes::parse(name) {
        return Ok(classes::ensure(mixture?, folder)?);
    }
    let spec = DemoSpec::parse(name)?;
    let what = format!("generating {name}");
    let files = spec.ensure(folder, 0, interrupt, &mut |done, total| {
        observer(Event::Progress {
            what: &what,
            done,
            total,
        });
    })?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_saved_data_sets_are_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let found = || saved(folder.path()).map_err(|error| error.to_string());
        assert_eq!(found(), Ok(None));
        write("state.json", r#"{"mood": 3}"#);
        assert_eq!(found(), Ok(None));
        write("dataset_info.json", "{}");
        assert!(
            found()
                .unwrap_err()
                .contains("(it names no files); save the data set again")
        );
        let listed = r#"{"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}], "_split": null}"#;
        write("state.json", listed);
        let files = ["b.arrow", "a.arrow"].map(|name| folder.path().join(name));
        assert_eq!(found(), Ok(Some(files.to_vec())));
        for (outside, message) in [
            (
                r#"{"_data_files": [{"filename": "../a.arrow"}]}"#,
                "`../a.arrow` is no file",
            ),
            (
                r#"{"_data_files": [{"filename": "/etc/passwd"}]}"#,
                "is no file in its folder",
            ),
            (
                r#"{"_data_files": [{"filename": ".."}]}"#,
                "is no file in its folder",
            ),
            (r#"{"_data_files": []}"#, "it names no files"),
        ] {
            write("state.json", outside);
            let said = found().unwrap_err();
            assert!(said.contains(message), "{said}");
        }
        write("dataset_dict.json", r#"{"splits": ["train", "test"]}"#);
        let said = found().unwrap_err();
        assert!(
            said.contains("/train, ") && said.ends_with("/test"),
            "{said}"
        );
    }

    #[test]
    fn what_writers_leave_next_to_data_is_no_data() {
        let check = |file: &str, pattern: &str, expected| {
            assert_eq!(
                is_marker(Path::new(file), pattern),
                expected,
                "{file} by {pattern}"
            );
        };
        for name in [
            "_SUCCESS",
            "_metadata",
            "_committed_1",
            ".part-0.parquet.crc",
            ".hidden",
            "x.crc",
        ] {
            check(&format!("/tmp/a/{name}"), "/tmp/a/*", true);
            check(&format!("s3://a/{name}"), "s3://a/*", true);
        }
        check("a/_delta_log/0.json", "a/**/*.json", true);
        check("a/_delta_log/0.json", "a/_delta_log/*.json", false);
        check("a/_part.csv", "a/_*.csv", false);
        check("a/.x.csv", "a/.*", false);
        check("a/x.crc", "a/*.crc", false);
        check("a/_month=1/x.csv", "a/*/*.csv", false);
        check("/tmp/.tmpab/part-0", "/tmp/.tmpab/part-*", false);
        check("../a/part-0", "../a/*", false);
    }
}
