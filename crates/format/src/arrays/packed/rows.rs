//! Recognises, opens and decodes packed files.

use pelton_key::Digest;

use crate::arrays::packed::{
    HEADER_BYTES, IndexCoding, MAGIC, decode_packed_dense, decode_packed_sparse, reader,
};
use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::{IN_FILE, Places};
use crate::record::error::FormatError;
use crate::record::kind::Head;
use crate::record::labels::stored::Label;
use crate::record::rows::{Layout, NewRow};

/// Pelton's packed rows.
pub(crate) struct Packed;

impl Format for Packed {
    fn name(&self) -> &'static str {
        "prow"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        if head.bytes.starts_with(MAGIC) {
            return Some(Match::Magic);
        }
        head.ends_in(&["prow"]).then_some(Match::Name)
    }

    fn has_features(&self) -> bool {
        true
    }

    fn in_place_only(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Shard, FormatError> {
        let tables = reader::read_tables(source.input()?, source.stamp.size)?;
        let header = tables.header;
        let features = header.shape.features;
        let from = HEADER_BYTES;
        let row_bytes = header.record_bytes().unwrap_or(0);
        let shape = header.shape;
        let decoder = match shape.layout {
            Layout::Dense { .. } => PackedDecoder::Dense,
            Layout::Sparse | Layout::Bytes => PackedDecoder::Sparse {
                coding: shape.index_coding,
                features,
                keep: source.options.features.unwrap_or(features),
            },
        };
        Ok(Shard {
            places: match tables.offsets {
                Some(starts) => Places::listed(starts, header.records_end, IN_FILE),
                None => Places::Fixed {
                    from,
                    bytes: row_bytes,
                },
            },
            bytes: header.records_end - from,
            longest: header.longest,
            labels: tables.labels.into(),
            ..Shard::features(
                shape.layout,
                features,
                header.records,
                header.nonzeros,
                decoder,
            )
        })
    }
}

/// Packed records as rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PackedDecoder {
    Dense,
    Sparse {
        coding: IndexCoding,
        features: u64,
        /// Features from this one on are dropped.
        keep: u64,
    },
}

impl Decoder for PackedDecoder {
    #[inline]
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let PackedDecoder::Sparse {
            coding,
            features,
            keep,
        } = *self
        else {
            return decode_packed_dense(bytes, row.dense()).map(Label::Code);
        };
        row.entries(|indices, values| {
            let first = indices.len();
            let code = decode_packed_sparse(bytes, coding, features, indices, values)?;
            if keep < features {
                let kept = indices[first..].partition_point(|index| u64::from(*index) < keep);
                indices.truncate(first + kept);
                values.truncate(first + kept);
            }
            Ok(Label::Code(code))
        })
    }

    fn fingerprint(&self) -> [u64; 3] {
        let digest = match self {
            PackedDecoder::Dense => Digest::new("packed dense rows"),
            PackedDecoder::Sparse { .. } => Digest::new("packed sparse rows"),
        };
        [digest.value(), 0, 0]
    }
}
