//! Classes without number: `demo:classes:N[:VIEWS[:D[:NOISE]]]`.
//!
//! A set is a file of one line that describes a [`Mixture`], whose records are computed when they are read: opening a
//! hundred million classes takes no time, no memory and no disk. The test set is [`TEST_VIEWS`] further views of every class.

use std::io::Write;
use std::path::{Path, PathBuf};

use pelton_format::Mixture;
use pelton_storage::WholeFile;

use super::DemoError;
use super::cache::io_error;

/// What its spellings begin with.
const NAME: &str = "demo:classes";
const CLASSES: u64 = 10_000;
const VIEWS: u64 = 8;
const TEST_VIEWS: u64 = 2;
const FEATURES: u64 = 64;
/// So that the nearest of the true centres is right for 91, 85 and 79 % of the views at 10⁴, 10⁵ and 10⁶ classes.
const NOISE: f32 = 1.08;

/// What a spelling describes; `None` where it is of another set.
pub(crate) fn parse(text: &str) -> Option<Result<Mixture, DemoError>> {
    let rest = text.strip_prefix(NAME)?;
    let mut parts = match rest.strip_prefix(':') {
        Some(rest) => rest.split(':'),
        None if rest.is_empty() => "".split(':'),
        None => return None,
    };
    if rest.is_empty() {
        parts.next();
    }
    let mixture = mixture(parts).map_err(|what| DemoError::Classes {
        text: text.to_string(),
        what,
    });
    Some(mixture)
}

fn mixture<'a>(mut parts: impl Iterator<Item = &'a str>) -> Result<Mixture, String> {
    let mut whole = |what, default| match parts.next() {
        None => Ok(default),
        Some(part) => (part.replace('_', "").parse())
            .map_err(|_| format!("{what} must be a whole number, not `{part}`")),
    };
    let classes = whole("the number of classes", CLASSES)?;
    let views = whole("the number of views a class", VIEWS)?;
    let features = whole("the length of a record", FEATURES)?;
    let noise = match parts.next() {
        None => NOISE,
        Some(part) => part
            .parse()
            .map_err(|_| format!("the noise must be a number, not `{part}`"))?,
    };
    match parts.next() {
        Some(part) => Err(format!("`{part}` is one part too many")),
        None => Mixture::new(classes, views, features, noise, 0),
    }
}

/// The files in `cache_dir` that describe the training and the test set.
pub(crate) fn ensure(mixture: Mixture, cache_dir: &Path) -> Result<(PathBuf, PathBuf), DemoError> {
    std::fs::create_dir_all(cache_dir).map_err(|source| DemoError::CacheFolder {
        path: cache_dir.to_path_buf(),
        source,
    })?;
    let file = |mixture: Mixture| {
        let text = mixture.to_string();
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
        let numbers: Vec<&str> = numbers.filter(|number| !number.is_empty()).collect();
        let path = cache_dir.join(format!("classes-{}.mixture", numbers.join("-")));
        // Not written anew: a file that changes is other data.
        if std::fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
            return Ok(path);
        }
        let written = WholeFile::create(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.publish()
        });
        match written {
            Ok(()) => Ok(path),
            Err(error) => Err(io_error(&path, error)),
        }
    };
    Ok((file(mixture)?, file(mixture.next_views(TEST_VIEWS))?))
}
