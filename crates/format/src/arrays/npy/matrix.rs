//! Recognises, opens and decodes `.npy` files.

use std::sync::Arc;

use pelton_key::Digest;
use pelton_storage::Storage;

use crate::arrays::npy::{self, NpyHeader, NpyRules, decode_numbers};
use crate::arrays::raw_records::RawDecoder;
use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::field_labels::{Column, scan_labels};
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::Places;
use crate::locate::places::gathered::Gathered;
use crate::locate::reach::Reach;
use crate::record::error::FormatError;
use crate::record::kind::Head;
use crate::record::labels::FileLabels;
use crate::record::labels::stored::{Label, LabelForm};
use crate::record::numbering::Numbering;
use crate::record::numbers::parse::Feature;
use crate::record::rows::feature_type::FeatureType;
use crate::record::rows::fields::RecordFields;
use crate::record::rows::{Layout, NewRow};

/// A NumPy matrix.
pub(crate) struct Npy;

impl Format for Npy {
    fn name(&self) -> &'static str {
        "npy"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        if head.bytes.starts_with(b"\x93NUMPY") {
            return Some(Match::Magic);
        }
        head.ends_in(&["npy"]).then_some(Match::Name)
    }

    fn has_features(&self) -> bool {
        true
    }

    fn in_place_only(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Shard, FormatError> {
        let (size, options) = (source.stamp.size, source.options);
        let file = source.input()?;
        let header = npy::read_header(&file, size)?;
        let row_bytes = header.row_bytes().unwrap_or(0);
        let arrangement = Arrangement::new(source, &header)?;
        let matrix = header.matrix().filter(|_| !options.whole_arrays);
        let Some((rows, columns)) = matrix else {
            let what = match header.shape.first() {
                None => "it is a single number".to_owned(),
                Some(_) if row_bytes == 0 => "its rows hold no numbers".to_owned(),
                Some(&rows) if !options.features_only => {
                    let array = ("data".to_owned(), header.number, header.row());
                    let decoder = RawDecoder::packed(&[array], None);
                    return Ok(arrangement.of_rows(row_bytes, Shard::fields(rows, decoder)));
                }
                Some(_) => {
                    format!(
                        "its {} dimensions of {} are not a matrix of features",
                        header.shape.len(),
                        header.number
                    )
                }
            };
            let what = format!("{what}; {}", npy::REMEDY);
            return Err(FormatError::malformed(header.data_offset, what));
        };
        let columns = columns as usize;
        let (mut label, mut labels) = (None, Vec::new());
        if !options.are_all_features(columns) {
            let column = npy::label_column(columns, &options.label)?;
            let (from, stride) = match arrangement.parts[..] {
                [(from, _)] => (from + (column * header.number.bytes()) as u64, row_bytes),
                _ => arrangement.parts[column],
            };
            let place = Column {
                from,
                stride,
                count: rows,
                dtype: header.number,
            };
            if !options.targets {
                labels = scan_labels(&file, place, &options.interrupt)?;
            }
            label = Some(column);
        }
        let decoder = NpyDecoder::new(NpyRules {
            number: header.number,
            columns,
            label,
            dtype: options.feature_type(),
        });
        let width = decoder.rules.features();
        let (layout, features) = (Layout::Dense { width }, width as u64);
        let nonzeros = rows.saturating_mul(features);
        Ok(Shard {
            labels: FileLabels::Listed(labels),
            ..arrangement.of_rows(
                row_bytes,
                Shard::features(layout, features, rows, nonzeros, decoder),
            )
        })
    }
}

/// Rows of numbers as features.
#[derive(Debug)]
struct NpyDecoder {
    rules: NpyRules,
    fields: RecordFields,
}

impl NpyDecoder {
    fn new(rules: NpyRules) -> NpyDecoder {
        let fields = RecordFields::of_features(rules.dtype, rules.features());
        NpyDecoder { rules, fields }
    }

    fn numbers<'b, T: Feature>(&self, bytes: &'b [u8], row: &mut [T]) -> Decoded<'b> {
        let label = decode_numbers(bytes, self.rules, row)?;
        Ok(label.map_or(Label::None, Label::Number))
    }
}

impl Decoder for NpyDecoder {
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        if self.is_wide() {
            row.wide(self.rules.features(), |wide| self.numbers(bytes, wide))
        } else {
            self.numbers(bytes, row.dense())
        }
    }

    fn decode_wide<'b>(&self, bytes: &'b [u8], row: &mut Vec<f64>) -> Option<Decoded<'b>> {
        row.clear();
        row.resize(self.rules.features(), 0.0);
        Some(self.numbers(bytes, row))
    }

    fn fingerprint(&self) -> [u64; 3] {
        let label = self.rules.label.map_or(u64::MAX, |label| label as u64);
        [Digest::new("npy").value(), label, 0]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn numbering(&self) -> Numbering {
        Numbering::of_columns(self.rules.label)
    }

    fn is_wide(&self) -> bool {
        self.rules.dtype == FeatureType::F64
    }

    fn label_form(&self) -> LabelForm {
        LabelForm::Numbers
    }
}

/// The layout of the rows of a NumPy array.
struct Arrangement {
    /// The offsets of the parts of the first row, and the distance from each to that of the next row.
    parts: Vec<(u64, u64)>,
    places: Places,
    storage: Option<Arc<dyn Storage>>,
    reach: Reach,
}

impl Arrangement {
    /// The shard, with the offsets and the storage of its rows.
    fn of_rows(self, row_bytes: u64, shard: Shard) -> Shard {
        Shard {
            bytes: shard.records * row_bytes,
            longest: row_bytes,
            places: self.places,
            storage: self.storage,
            reach: self.reach,
            ..shard
        }
    }

    fn new(source: &Source<'_>, header: &NpyHeader) -> Result<Arrangement, FormatError> {
        let from = header.data_offset;
        let bytes = header.row_bytes().unwrap_or(0);
        let parts = header.parts(from);
        let parts =
            parts.map_err(|what| FormatError::malformed(0, format!("{what}; {}", npy::REORDER)))?;
        if !header.fortran {
            return Ok(Arrangement {
                parts,
                places: Places::Fixed { from, bytes },
                storage: None,
                reach: Reach::InPlace,
            });
        }
        let gathered = Gathered {
            storage: source.storage()?,
            record_bytes: bytes,
            records: header.shape[0],
            parts: parts.clone(),
        };
        Ok(Arrangement {
            places: Places::Fixed { from: 0, bytes },
            storage: Some(Arc::new(gathered)),
            reach: Reach::Gathered {
                places: parts.len() as u32,
            },
            parts,
        })
    }
}
