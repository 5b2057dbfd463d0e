//! Text of the extreme classification repository: a first line `records features labels`, then
//! `label,label index:value index:value …`, one record a line.
//!
//! Labels and indices count from 0, and a record may have no labels. Records are the fields `labels` (i64), `indices`
//! (i64) and `values` (f32), each of varying length.

use pelton_batch::{DType, FieldSpec};
use pelton_key::Digest;

use crate::locate::decoder::{Decoded, Decoder, FIELDS};
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::LINE_ENDS;
use crate::locate::places::scan_chunk::LineShape;
use crate::record::cells::libsvm_token::is_blank;
use crate::record::error::{Fault, FormatError, excerpt};
use crate::record::kind::{Head, Look};
use crate::record::labels::MOST_LABELS;
use crate::record::labels::stored::Label;
use crate::record::rows::feature_type::FeatureType;
use crate::record::rows::fields::RecordFields;
use crate::record::rows::{LABELS_FIELD, Layout, NewRow, Row, Rows};
use crate::text::libsvm::{LibsvmRules, decode_entries};

/// Longest first line.
const MOST_HEAD: usize = 256;

/// Rows with several labels each.
pub(crate) struct Several;

impl Format for Several {
    fn name(&self) -> &'static str {
        "xmc"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        let is_one = head.look == Some(Look::Libsvm) && Sizes::read(head.bytes).is_some();
        is_one.then_some(Match::Hint)
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let start = source.start();
        let (sizes, length) = Sizes::read(&source.head[start as usize..]).ok_or_else(|| {
            FormatError::new(
                "its first line is not `records features labels`, three whole numbers; write it, with labels and indices from 0",
            )
        })?;
        if sizes.labels > MOST_LABELS as u64 || sizes.features > u64::from(u32::MAX) {
            return Err(FormatError::new(format!(
                "its first line states {} features and {} labels; at most {} and {MOST_LABELS} are read",
                sizes.features,
                sizes.labels,
                u32::MAX
            )));
        }
        let (located, index) = source.lines(LineShape::Text, start + length, notes)?;
        let found = located.starts.len();
        if found != sizes.records {
            return Err(FormatError::new(format!(
                "its first line states {} records, and {found} lines follow; the file is cut, or a line was added: fetch it again, or write the right number",
                sizes.records
            )));
        }
        let shard = Shard::fields(found, SeveralDecoder::new(sizes));
        let shard = shard.at(located, index, LINE_ENDS);
        Ok(Shard {
            features: sizes.features,
            // About: an entry has 12 bytes, and as text from 4 to 18.
            nonzeros: shard.bytes,
            ..shard
        })
    }
}

/// What the first line states.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sizes {
    records: u64,
    features: u64,
    labels: u64,
}

impl Sizes {
    /// From the start of a file, with the bytes of the line.
    fn read(head: &[u8]) -> Option<(Sizes, u64)> {
        let end = head
            .iter()
            .take(MOST_HEAD)
            .position(|&byte| byte == b'\n')?;
        let line = std::str::from_utf8(&head[..end]).ok()?;
        let mut numbers = line.split_ascii_whitespace().map(|word| {
            let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| word.parse::<u64>().ok()).flatten()
        });
        let sizes = Sizes {
            records: numbers.next()??,
            features: numbers.next()??,
            labels: numbers.next()??,
        };
        numbers.next().is_none().then_some((sizes, end as u64 + 1))
    }
}

/// Lines as fields.
#[derive(Debug)]
struct SeveralDecoder {
    sizes: Sizes,
    fields: RecordFields,
}

impl SeveralDecoder {
    fn new(sizes: Sizes) -> SeveralDecoder {
        let mut fields = RecordFields::default();
        let [indices, values] = Row::SPARSE_FIELDS;
        let dtypes = [DType::I64, DType::I64, DType::F32];
        for (name, dtype) in [LABELS_FIELD, indices, values].into_iter().zip(dtypes) {
            fields.push_array(FieldSpec::new(name, dtype, &[None]));
        }
        SeveralDecoder { sizes, fields }
    }

    /// The labels in front of a line, and where its entries begin.
    fn labels(&self, line: &[u8]) -> Result<(Vec<i64>, usize), Fault> {
        let is_end = |byte: &u8| is_blank(*byte) || *byte == b'\n';
        let end = line.iter().position(is_end).unwrap_or(line.len());
        let written = &line[..end];
        if written.is_empty() || written.contains(&b':') {
            return Ok((Vec::new(), 0));
        }
        let labels = written.split(|byte| *byte == b',').map(|label| {
            let digits = std::str::from_utf8(label).ok();
            let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let number = digits.and_then(|text| text.parse::<u64>().ok());
            match number {
                Some(number) if number < self.sizes.labels => Ok(number as i64),
                Some(number) => Err(Fault::new(format!(
                    "has the label {number}, but its first line states {} labels, counted from 0",
                    self.sizes.labels
                ))),
                None => Err(Fault::new(format!(
                    "its labels, {:?}, are not whole numbers with commas between; labels count from 0",
                    excerpt(written)
                ))),
            }
        });
        let labels: Vec<i64> = labels.collect::<Result<_, _>>()?;
        let mut ascending = labels.clone();
        ascending.sort_unstable();
        match ascending.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Fault::new(format!(
                "has the label {} twice; keep one of them",
                pair[0]
            ))),
            None => Ok((labels, end)),
        }
    }
}

impl Decoder for SeveralDecoder {
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let (labels, at) = self.labels(bytes)?;
        let rules = LibsvmRules {
            zero_based: true,
            features: u64::MAX,
            dtype: FeatureType::F32,
        };
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        decode_entries(bytes, at, rules, &mut indices, &mut values)?;
        if let Some(index) = indices
            .last()
            .filter(|&&i| u64::from(i) >= self.sizes.features)
        {
            return Err(Fault::new(format!(
                "has the feature {index}, but its first line states {} features, counted from 0",
                self.sizes.features
            )));
        }
        let indices: Vec<i64> = indices.into_iter().map(i64::from).collect();
        let mut row = row.fields(&self.fields);
        row.put(&[labels.len()], bytemuck::cast_slice(&labels));
        row.put(&[indices.len()], bytemuck::cast_slice(&indices));
        row.put(&[values.len()], bytemuck::cast_slice(&values));
        Ok(Label::None)
    }

    fn fingerprint(&self) -> [u64; 3] {
        let name = Digest::new("xmc").value();
        [FIELDS, self.fields.hash(name), self.sizes.labels]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn parses_text(&self) -> bool {
        true
    }

    fn label_lists(&self) -> Option<u64> {
        Some(self.sizes.labels)
    }
}

/// Decodes a line of a file with so many features and labels as fields of a record: labels, indices and values.
pub fn decode_several(line: &[u8], (features, labels): (u64, u64)) -> Option<(RecordFields, Rows)> {
    let sizes = Sizes {
        records: 1,
        features,
        labels,
    };
    let decoder = SeveralDecoder::new(sizes);
    let mut rows = Rows::new(Layout::Bytes);
    let decoded = rows.push_with(|row| decoder.decode(0, line, row).map(|_| 0));
    decoded.ok().map(|()| (decoder.fields, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_three_whole_numbers() {
        let of = |text: &str| Sizes::read(text.as_bytes());
        let sizes = Sizes {
            records: 12,
            features: 500,
            labels: 983,
        };
        assert_eq!(of("12 500 983\n1 2:3\n"), Some((sizes, 11)));
        assert_eq!(of("12\t500  983 \r\n"), Some((sizes, 14)));
        for other in [
            "12 500 983",
            "12 500\n",
            "12 500 983 1\n",
            "12 500 -983\n",
            "1,2 3:4 5:6\n",
            "12 500 98.3\n",
            "12 500 99999999999999999999999\n",
            "\n",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
