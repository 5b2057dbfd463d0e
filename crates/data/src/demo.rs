//! Built-in data, so that everything runs without other files: seeded generators with the shapes of LIRS Table 1 and a
//! planted separator with noise.
//!
//! | name | layout | features | bytes a packed row | rows by default (LIRS) | linear accuracy |
//! |---|---|---|---|---|---|
//! | `demo:higgs` | dense | 28 | 120 | 1 000 000 (10.5 M) | 64 % |
//! | `demo:epsilon` | dense | 2000 | 8 008 | 20 000 (400 k) | 90 % |
//! | `demo:webspam` | sparse | 16 609 143 | 44 560 | 4 000 (200 k) | 99 % |
//! | `demo:kdd` | sparse | 29 890 095 | 362 | 400 000 (19.3 M) | 89 % |
//!
//! and two sets for deep nets:
//!
//! | name | file | a record | records by default |
//! |---|---|---|---|
//! | `demo:images` | CIFAR-10 binary | 32 × 32 RGB, one of 10 classes ([`images`]) | 50 000 |
//! | `demo:text` | text | a sentence of 1 to 80 words ([`sentences`]) | 40 000 |
//!
//! The paper states bytes a row and counts 12 bytes a non-zero, so webspam's 44 560 bytes are 3 730 non-zeros there.
//! Bytes decide the cost of reading, so the sets keep the bytes: at 8 bytes a non-zero, a webspam row has 5 570 of them
//! on average and a kdd row 44. Dense rows hold 4-byte values; the paper's 24 000 and 327 bytes a row are text.
//!
//! Row `i` is a function of (seed, i): any part of a set can be generated separately, on any number of threads, and
//! `demo:higgs:1000` is the start of `demo:higgs:2000`. The test set is the rows that follow. Rejected: shipped or
//! downloaded files, since a machine may have no network, and sizes beyond memory must be one argument away.

mod cache;
pub(crate) mod classes;
mod dense;
mod draws;
mod images;
mod sentences;
mod sparse;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use pelton_format::{Layout, Row, Rows};

pub use cache::DemoError;

/// Maximum number of rows: 1.3 TB of the smallest kind.
const MOST_ROWS: u64 = 10_000_000_000;
/// The test set has a tenth of the rows, at most this many.
const MOST_TEST_ROWS: u64 = 100_000;

/// Which generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DemoSet {
    Higgs,
    Epsilon,
    Webspam,
    Kdd,
    Images,
    Text,
}

/// A generated data set: which one and how many rows.
///
/// ```
/// use pelton_data::DemoSpec;
/// let spec = DemoSpec::parse("demo:higgs:500000")?;
/// assert_eq!(spec.rows(), 500_000);
/// assert_eq!(spec.features(), 28);
/// # Ok::<(), pelton_data::DemoError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemoSpec {
    set: DemoSet,
    rows: u64,
}

impl DemoSpec {
    /// Whether a data argument names generated data.
    pub fn is_demo(text: &str) -> bool {
        text.starts_with("demo:")
    }

    /// Reads `demo:NAME` or `demo:NAME:ROWS`.
    pub fn parse(text: &str) -> Result<DemoSpec, DemoError> {
        let unknown = || DemoError::Unknown {
            text: text.to_string(),
        };
        let rest = text.strip_prefix("demo:").ok_or_else(unknown)?;
        let (name, rows) = match rest.split_once(':') {
            Some((name, rows)) => (name, Some(rows)),
            None => (rest, None),
        };
        let set = [
            DemoSet::Higgs,
            DemoSet::Epsilon,
            DemoSet::Webspam,
            DemoSet::Kdd,
            DemoSet::Images,
            DemoSet::Text,
        ]
        .into_iter()
        .find(|set| set.name() == name)
        .ok_or_else(unknown)?;
        let rows = match rows {
            None => set.default_rows(),
            Some(rows) => rows
                .replace('_', "")
                .parse()
                .ok()
                .filter(|rows| (1..=MOST_ROWS).contains(rows))
                .ok_or_else(|| DemoError::Rows {
                    text: text.to_string(),
                    most: MOST_ROWS,
                })?,
        };
        Ok(DemoSpec { set, rows })
    }

    /// Rows of the training set.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Rows of the test set.
    pub fn test_rows(&self) -> u64 {
        (self.rows / 10).clamp(1, MOST_TEST_ROWS)
    }

    /// Dense, sparse, or bytes: the pixels of a picture, all of one channel before the next, or a sentence.
    pub fn layout(&self) -> Layout {
        match self.set {
            DemoSet::Higgs | DemoSet::Epsilon => Layout::Dense {
                width: self.features() as usize,
            },
            DemoSet::Webspam | DemoSet::Kdd => Layout::Sparse,
            DemoSet::Images | DemoSet::Text => Layout::Bytes,
        }
    }

    /// Number of features; 0 for sentences.
    pub fn features(&self) -> u64 {
        match self.set {
            DemoSet::Higgs => dense::HIGGS_FEATURES as u64,
            DemoSet::Epsilon => dense::EPSILON_FEATURES as u64,
            DemoSet::Webspam => sparse::WEBSPAM.features,
            DemoSet::Kdd => sparse::KDD.features,
            DemoSet::Images => images::VALUES as u64,
            DemoSet::Text => 0,
        }
    }

    /// Roughly the bytes of a row in its file.
    pub fn row_bytes(&self) -> u64 {
        match self.set {
            DemoSet::Higgs | DemoSet::Epsilon => 8 + 4 * self.features(),
            DemoSet::Webspam => 44_560,
            DemoSet::Kdd => 362,
            DemoSet::Images => 1 + images::VALUES as u64,
            DemoSet::Text => 120,
        }
    }

    /// Calls `sink` with the rows `range` in order, each with its label: -1 or +1, the class of a picture, or 0. Rows
    /// from [`DemoSpec::rows`] on are the test set's. Stops at the first error of `sink`.
    pub fn generate<E>(
        &self,
        seed: u64,
        range: Range<u64>,
        mut sink: impl FnMut(f64, Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut generator = Generator::new(self.set, seed);
        let mut rows = Rows::new(self.layout());
        for row in range {
            rows.clear();
            generator.append(row, &mut rows);
            sink(self.set.label_value(rows.label(0)), rows.row(0))?;
        }
        Ok(())
    }
}

impl fmt::Display for DemoSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "demo:{}:{}", self.set.name(), self.rows)
    }
}

impl FromStr for DemoSpec {
    type Err = DemoError;

    fn from_str(text: &str) -> Result<DemoSpec, DemoError> {
        DemoSpec::parse(text)
    }
}

impl DemoSet {
    fn name(self) -> &'static str {
        match self {
            DemoSet::Higgs => "higgs",
            DemoSet::Epsilon => "epsilon",
            DemoSet::Webspam => "webspam",
            DemoSet::Kdd => "kdd",
            DemoSet::Images => "images",
            DemoSet::Text => "text",
        }
    }

    fn default_rows(self) -> u64 {
        match self {
            DemoSet::Higgs => 1_000_000,
            DemoSet::Epsilon => 20_000,
            DemoSet::Webspam => 4_000,
            DemoSet::Kdd => 400_000,
            DemoSet::Images => 50_000,
            DemoSet::Text => 40_000,
        }
    }

    /// During generation, rows of features have class 0 for -1 and class 1 for +1.
    fn label_value(self, class: u32) -> f64 {
        match (self, class) {
            (DemoSet::Images | DemoSet::Text, class) => f64::from(class),
            (_, 1) => 1.0,
            _ => -1.0,
        }
    }
}

/// A generator with its tables and scratch memory; one a thread.
enum Generator {
    Higgs(dense::Higgs),
    Epsilon(dense::Epsilon),
    Sparse(sparse::Sparse),
    Images(images::Images),
    Text(sentences::Sentences),
}

impl Generator {
    fn new(set: DemoSet, seed: u64) -> Generator {
        match set {
            DemoSet::Higgs => Generator::Higgs(dense::Higgs::new(seed)),
            DemoSet::Epsilon => Generator::Epsilon(dense::Epsilon::new(seed)),
            DemoSet::Webspam => Generator::Sparse(sparse::Sparse::new(&sparse::WEBSPAM, seed)),
            DemoSet::Kdd => Generator::Sparse(sparse::Sparse::new(&sparse::KDD, seed)),
            DemoSet::Images => Generator::Images(images::Images::new(seed)),
            DemoSet::Text => Generator::Text(sentences::Sentences::new(seed)),
        }
    }

    fn append(&mut self, row: u64, rows: &mut Rows) {
        match self {
            Generator::Higgs(higgs) => higgs.append(row, rows),
            Generator::Epsilon(epsilon) => epsilon.append(row, rows),
            Generator::Sparse(sparse) => sparse.append(row, rows),
            Generator::Images(images) => images.append(row, rows),
            Generator::Text(sentences) => sentences.append(row, rows),
        }
    }
}

#[cfg(test)]
mod tests;
