//! CIFAR-10 and CIFAR-100 in their binary form: records of one size with the class in front.
//!
//! ```text
//! CIFAR-10    class u8 | red 32 × 32 | green 32 × 32 | blue 32 × 32                       3073 bytes
//! CIFAR-100   coarse class u8 | fine class u8 | red | green | blue                        3074 bytes
//! ```
//!
//! Offsets are computed, without a scan: the classes are 10, 100 or (coarse) 20, and a byte beyond them is a fault of
//! its record. Their names are read from the text file next to the data in the published archives, if it exists.
//! Format: Krizhevsky, cs.toronto.edu/~kriz/cifar.html.

use crate::locate::decoder::ClassByte;
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::names_file::names_next_to;
use crate::locate::places::Places;
use crate::locate::sample::{CIFAR_PIXELS, SampleShape};
use crate::record::cells::label_column::LabelColumn;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::kind::Head;

/// Longer names files are ignored.
const MOST_NAME_BYTES: u64 = 64 << 10;

/// CIFAR-10 or CIFAR-100 in binary form.
pub(crate) struct Cifar {
    name: &'static str,
    /// Class bytes of a record.
    classes: u64,
}

impl Cifar {
    pub(crate) const TEN: Cifar = Cifar {
        name: "cifar10",
        classes: 1,
    };
    pub(crate) const HUNDRED: Cifar = Cifar {
        name: "cifar100",
        classes: 2,
    };

    /// Bytes of a record.
    fn record_bytes(&self) -> u64 {
        CIFAR_PIXELS as u64 + self.classes
    }
}

impl Format for Cifar {
    fn name(&self) -> &'static str {
        self.name
    }

    /// By the names of the published files; the size distinguishes CIFAR-100 from other `train.bin`.
    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        let stem = head.name.strip_suffix(".bin")?;
        let is_named = match self.classes {
            1 => stem.starts_with("data_batch") || stem == "test_batch",
            _ => matches!(stem, "train" | "test") && head.size.is_multiple_of(self.record_bytes()),
        };
        is_named.then_some(Match::Name)
    }

    fn has_features(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Shard, FormatError> {
        let bytes = self.record_bytes();
        let size = source.stamp.size;
        if !size.is_multiple_of(bytes) {
            return Err(FormatError::new(format!(
                "size {size} is not a multiple of the record size {bytes}; it is truncated or of another kind: fetch it again or name its `format`"
            )));
        }
        let coarse = matches!(
            source.options.label,
            LabelColumn::First | LabelColumn::Position(1)
        );
        let (label, labels, names) = match self.classes {
            2 if coarse => (0, 20, "coarse_label_names.txt"),
            2 => (1, 100, "fine_label_names.txt"),
            _ => (0, 10, "batches.meta.txt"),
        };
        let records = size / bytes;
        let names = source.path.with_file_name(names);
        let mut names = names_next_to(&names, MOST_NAME_BYTES, source.options);
        names.truncate(if names.len() == labels { labels } else { 0 });
        let contents = Contents::Pixels {
            height: 32,
            width: 32,
            channels: 3,
            planar: true,
        };
        Ok(Shard {
            records,
            bytes: size,
            longest: bytes,
            places: Places::Fixed { from: 0, bytes },
            names,
            ..Shard::samples(
                contents,
                records * CIFAR_PIXELS as u64,
                (0..labels).map(|label| label as f64).collect(),
                SampleShape::Cifar {
                    label,
                    class: ClassByte {
                        before: (self.classes as usize - label) as u8,
                        classes: labels as u32,
                    },
                },
            )
        })
    }
}
