//! Two texts as one text of pairs: line N of one belongs to line N of the other.
//!
//! A pair is a line with a tab between its sides. The text of pairs is written once to the cache folder, under a name
//! derived from the two files and their state; then every order, access path and pipeline handles pairs like lines.
//! Tabs within the first text become blanks.
//!
//! Cost: the two texts once more on disk. Rejected: two files in one data set, with two ranges per record, since all
//! prefetching code would have to support it to save one copy of text.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use pelton_format::FormatError;
use pelton_key::Digest;
use pelton_run::Interrupt;
use pelton_storage::CachedCopy;

use crate::error::DataError;

/// Bytes of the longest line.
const MOST_LINE_BYTES: u64 = 64 << 20;
/// Lines between checks for interruption.
const INTERRUPT_EVERY: u64 = 1 << 12;

/// The text of pairs of two texts, written now if not cached.
///
/// Errors: texts with unequal numbers of lines; files that cannot be read or written; an interruption.
pub(crate) fn joined(
    first: &Path,
    second: &Path,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<PathBuf, DataError> {
    let digest = Digest::new("pairs").words(state_of(first)?.into_iter().chain(state_of(second)?));
    let name = first.file_name().unwrap_or_default().to_string_lossy();
    let stem = format!("{name}-{:016x}", digest.value());
    let copy = CachedCopy {
        folder,
        stem: &stem,
        suffix: ".pelton-pairs",
        interrupt,
    };
    if let Some(path) = copy.find()? {
        tracing::info!(path = %path.display(), "read the saved pairs");
        return Ok(path);
    }
    let failed = |source| io_error(folder, "write a file in it", source);
    let mut out = copy.create()?;
    let mut sides = [Lines::open(first)?, Lines::open(second)?];
    let mut pair = Vec::new();
    loop {
        let more = [sides[0].read()?, sides[1].read()?];
        if more != [true, true] {
            break;
        }
        if sides[0].number.is_multiple_of(INTERRUPT_EVERY) && interrupt.load(Ordering::Relaxed) {
            return Err(DataError::Stopped {
                job: "joining two texts",
            });
        }
        pair.clear();
        let blank = |&byte: &u8| if byte == b'\t' { b' ' } else { byte };
        pair.extend(sides[0].line.iter().map(blank));
        pair.push(b'\t');
        pair.extend_from_slice(&sides[1].line);
        pair.push(b'\n');
        out.write_all(&pair).map_err(failed)?;
    }
    let [first_lines, second_lines] = [sides[0].count()?, sides[1].count()?];
    if first_lines != second_lines {
        return Err(DataError::Config(format!(
            "{} has {first_lines} lines and {} has {second_lines}; give two texts in which line N of one belongs to line N of the other",
            first.display(),
            second.display()
        )));
    }
    Ok(copy.publish(out)?)
}

/// Identifies a file in its current state.
fn state_of(path: &Path) -> Result<Vec<u64>, DataError> {
    let status = fs::metadata(path).map_err(|source| io_error(path, "open it", source))?;
    if !status.is_file() {
        let path = path.display();
        return Err(DataError::Config(format!(
            "{path}: is not a regular file; `pair` needs two text files"
        )));
    }
    let changed = status.modified().ok();
    let changed = changed.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = whole.as_os_str().as_encoded_bytes().iter();
    let mut state: Vec<u64> = name.map(|&byte| u64::from(byte)).collect();
    state.push(status.len());
    state.push(changed.map_or(0, |time| time.as_nanos() as u64));
    Ok(state)
}

fn io_error(path: &Path, operation: &'static str, source: std::io::Error) -> DataError {
    FormatError::io(path, operation, source).into()
}

/// The lines of a text, without their ends.
struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    line: Vec<u8>,
    number: u64,
}

impl Lines<'_> {
    fn open(path: &Path) -> Result<Lines<'_>, DataError> {
        let file =
            pelton_storage::open_file(path).map_err(|source| io_error(path, "open it", source))?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let start = reader.fill_buf();
        let start = start.map_err(|source| io_error(path, "read it", source))?;
        if start.starts_with(b"\xef\xbb\xbf") {
            reader.consume(3);
        }
        Ok(Lines {
            path,
            reader,
            line: Vec::new(),
            number: 0,
        })
    }

    /// Reads the next line; false after the last.
    fn read(&mut self) -> Result<bool, DataError> {
        self.line.clear();
        let mut limited = (&mut self.reader).take(MOST_LINE_BYTES);
        let read = limited.read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| io_error(self.path, "read it", source))?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.pop_if(|byte| *byte == b'\n').is_some() {
            self.line.pop_if(|byte| *byte == b'\r');
        } else if read as u64 == MOST_LINE_BYTES {
            return Err(DataError::Config(format!(
                "{}: line {} has {MOST_LINE_BYTES} bytes or more; give a text with one sentence a line",
                self.path.display(),
                self.number
            )));
        }
        Ok(true)
    }

    /// Total number of lines.
    fn count(&mut self) -> Result<u64, DataError> {
        while self.read()? {}
        Ok(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        let cache = folder.path().join("cache");
        let join = || joined(&a, &b, &cache, &Interrupt::default());
        fs::write(&a, "\u{feff}one\ttwo\r\n\nthree").unwrap();
        fs::write(&b, "eins\tzwei\n\u{e4}\n\n").unwrap();
        let path = join().unwrap();
        let expected = "one two\teins\tzwei\n\t\u{e4}\nthree\t\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(join().unwrap(), path);
        fs::write(&b, "eins\nzwei\ndrei\nvier\n").unwrap();
        let error = join().unwrap_err().to_string();
        assert!(error.contains("a has 3 lines and "), "{error}");
        assert!(error.contains("b has 4; give two texts"), "{error}");
        assert_eq!(
            fs::read_dir(&cache).unwrap().count(),
            1,
            "nothing half-written"
        );
        let error = joined(&a, &cache, &cache, &Interrupt::default()).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
