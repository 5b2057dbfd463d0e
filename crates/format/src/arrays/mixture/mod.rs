//! Records that are computed when they are read: a file of one line that describes a mixture.
//!
//! ```text
//! {"pelton_mixture":1,"classes":1000000,"first_view":0,"views":8,"features":64,"noise":1.1,"seed":0}
//! ```
//!
//! Record i is view `first_view` + i / `classes` of class i mod `classes`, so that any run of consecutive records has
//! as many classes as possible. Its bytes are those of a dense packed row, computed by [`GaussianMixture`] on the
//! requesting thread; everything else reads them like a file. Classes are known by their count, and nothing in memory
//! grows with it.

pub(crate) mod gaussian;

use std::fmt;
use std::sync::Arc;

use pelton_storage::{Granularity, RangeRead, Storage, StorageError};
use serde::{Deserialize, Serialize};

use crate::arrays::mixture::gaussian::{GaussianMixture, Halves, NAME};
use crate::arrays::packed::rows::PackedDecoder;
use crate::arrays::packed::{dense_record_bytes, encode_dense};
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::Places;
use crate::locate::reach::Reach;
use crate::record::error::FormatError;
use crate::record::kind::Head;
use crate::record::labels::FileLabels;
use crate::record::rows::Layout;

const BEGIN: &[u8] = b"{\"pelton_mixture\"";
const VERSION: u32 = 1;
/// Most classes, views of a class, and features of a record.
const MOST_CLASSES: u64 = 100_000_000;
const MOST_VIEWS: u64 = 1_000_000;
const MOST_FEATURES: u64 = 2048;

/// A hierarchical Gaussian mixture; some views of every class are the records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    #[serde(rename = "pelton_mixture")]
    version: u32,
    classes: u64,
    first_view: u64,
    views: u64,
    features: u64,
    noise: f32,
    seed: u64,
}

impl Mixture {
    /// `views` views of each of `classes` classes as records of `features` numbers; `noise` is the deviation of a
    /// view's noise relative to that of the centres.
    ///
    /// Errors: the invalid argument, as the end of a sentence.
    pub fn new(
        classes: u64,
        views: u64,
        features: u64,
        noise: f32,
        seed: u64,
    ) -> Result<Mixture, String> {
        Mixture {
            version: VERSION,
            classes,
            first_view: 0,
            views,
            features,
            noise,
            seed,
        }
        .checked()
    }

    /// The next `views` views of the same classes.
    pub fn next_views(self, views: u64) -> Mixture {
        Mixture {
            first_view: self.first_view + self.views,
            views,
            ..self
        }
    }

    fn checked(self) -> Result<Mixture, String> {
        let within = |what, found: u64, least, most| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(format!(
                    "{what} must be from {least} to {most}, not {found}"
                ))
            }
        };
        within("the version", self.version.into(), 1, VERSION.into())?;
        within("the number of classes", self.classes, 2, MOST_CLASSES)?;
        within("the number of views a class", self.views, 1, MOST_VIEWS)?;
        within("the first view", self.first_view, 0, MOST_VIEWS)?;
        within("the length of a record", self.features, 2, MOST_FEATURES)?;
        if self.features % 2 == 1 {
            return Err(format!(
                "the length of a record must be even, not {}",
                self.features
            ));
        }
        if !(0.0..=1e6).contains(&self.noise) {
            return Err(format!(
                "the noise must be from 0 to 1000000, not {}",
                self.noise
            ));
        }
        Ok(self)
    }

    /// Reads a description.
    fn parse(text: &[u8]) -> Result<Mixture, String> {
        let mixture: Mixture = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        mixture.checked()
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.classes * self.views
    }
}

/// The line that describes it.
impl fmt::Display for Mixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        writeln!(f, "{line}")
    }
}

/// Descriptions of mixtures.
pub(crate) struct Mixtures;

impl Format for Mixtures {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        head.bytes.starts_with(BEGIN).then_some(Match::Magic)
    }

    fn has_features(&self) -> bool {
        true
    }

    fn in_place_only(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Shard, FormatError> {
        let mixture = Mixture::parse(source.head).map_err(|what| {
            FormatError::new(format!(
                "does not describe a mixture: {what}; name demo:classes:N instead, which writes the file again"
            ))
        })?;
        let storage = MixtureStorage::new(source.path.display().to_string(), mixture);
        let (records, bytes) = (mixture.records(), storage.record_bytes);
        let (features, nonzeros) = (mixture.features, records * mixture.features);
        let layout = Layout::Dense {
            width: features as usize,
        };
        Ok(Shard {
            places: Places::Fixed { from: 0, bytes },
            bytes: records * bytes,
            longest: bytes,
            labels: FileLabels::Count(mixture.classes as usize),
            storage: Some(Arc::new(storage)),
            reach: Reach::Computed,
            ..Shard::features(layout, features, records, nonzeros, PackedDecoder::Dense)
        })
    }
}

/// The records of a mixture one after another, as bytes.
struct MixtureStorage {
    name: String,
    mixture: Mixture,
    numbers: GaussianMixture,
    record_bytes: u64,
}

impl MixtureStorage {
    fn new(name: String, mixture: Mixture) -> MixtureStorage {
        let Mixture {
            seed,
            classes,
            features,
            noise,
            ..
        } = mixture;
        MixtureStorage {
            name,
            mixture,
            numbers: GaussianMixture::new(seed, classes, features as usize, noise),
            record_bytes: dense_record_bytes(features).expect("records are short"),
        }
    }

    /// Replaces `bytes` by record `i`.
    fn write(&self, i: u64, halves: &mut Halves, bytes: &mut Vec<u8>) {
        let (class, view) = (i % self.mixture.classes, i / self.mixture.classes);
        let view = self.mixture.first_view + view;
        bytes.clear();
        encode_dense(
            class as u32,
            self.numbers.record(class, view, halves),
            bytes,
        );
    }
}

impl fmt::Debug for MixtureStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MixtureStorage")
            .field("name", &self.name)
            .field("mixture", &self.mixture)
            .finish()
    }
}

impl Storage for MixtureStorage {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> Result<u64, StorageError> {
        Ok(self.mixture.records() * self.record_bytes)
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let size = self.size()?;
        let (mut halves, mut record) = (Halves::default(), Vec::new());
        for read in reads {
            let there = size.saturating_sub(read.offset);
            read.filled = (read.buffer.len() as u64).min(there) as usize;
            let mut rest = &mut read.buffer[..read.filled];
            let (mut i, mut skip) = (
                read.offset / self.record_bytes,
                (read.offset % self.record_bytes) as usize,
            );
            while !rest.is_empty() {
                self.write(i, &mut halves, &mut record);
                let part = &record[skip..];
                let length = part.len().min(rest.len());
                let (now, later) = rest.split_at_mut(length);
                now.copy_from_slice(&part[..length]);
                (rest, i, skip) = (later, i + 1, 0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pelton_storage::conformance::check_storage;

    use super::*;
    use crate::arrays::packed::decode_packed_dense;

    fn storage(mixture: Mixture) -> MixtureStorage {
        MixtureStorage::new("a mixture".into(), mixture)
    }

    fn record(storage: &MixtureStorage, i: u64) -> (u32, Vec<f32>) {
        let (mut halves, mut bytes) = (Halves::default(), Vec::new());
        storage.write(i, &mut halves, &mut bytes);
        let mut row = vec![0.0; storage.mixture.features as usize];
        let class = decode_packed_dense(&bytes, &mut row).unwrap();
        (class, row)
    }

    #[test]
    fn its_bytes_are_those_of_its_records() {
        for (classes, views, features) in [(2, 1, 2), (7, 3, 34), (40, 9, 64)] {
            let storage = storage(Mixture::new(classes, views, features, 1.0, 3).unwrap());
            let (mut halves, mut one) = (Halves::default(), Vec::new());
            let mut all = Vec::new();
            for i in 0..storage.mixture.records() {
                storage.write(i, &mut halves, &mut one);
                all.extend_from_slice(&one);
            }
            check_storage(&storage, &all);
        }
    }

    #[test]
    fn a_record_is_a_view_of_a_class_whatever_the_number_of_views() {
        let (few, many) = (
            Mixture::new(50, 2, 16, 1.0, 9).unwrap(),
            Mixture::new(50, 5, 16, 1.0, 9).unwrap(),
        );
        let (few, later, many) = (storage(few), storage(few.next_views(3)), storage(many));
        for i in 0..250 {
            let expected = if i < 100 {
                record(&few, i)
            } else {
                record(&later, i - 100)
            };
            assert_eq!(record(&many, i), expected);
            assert_eq!(u64::from(expected.0), i % 50);
        }
    }

    #[test]
    fn descriptions() {
        let mixture = Mixture::new(100_000_000, 8, 64, 1.1, 0).unwrap();
        let line = mixture.to_string();
        assert!(line.as_bytes().starts_with(BEGIN), "{line}");
        assert_eq!(Mixture::parse(line.as_bytes()), Ok(mixture));
        let refuses = |from: &str, to: &str, what: &str| {
            let error = Mixture::parse(line.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(what), "{error}");
        };
        refuses("100000000", "1", "from 2 to 100000000, not 1");
        refuses("100000000", "100000001", "classes must be");
        refuses("\"views\":8", "\"views\":0", "views a class must be");
        refuses("\"first_view\":0", "\"first_view\":9999999", "first view");
        refuses("64", "65", "even, not 65");
        refuses("64", "4096", "length of a record");
        refuses("1.1", "-1", "noise must be");
        refuses("mixture\":1", "mixture\":2", "version must be");
        refuses("seed", "sead", "unknown field");
        refuses("}", "", "EOF");
    }
}
