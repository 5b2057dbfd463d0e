//! Recognises, opens and decodes LIBSVM files.

use pelton_key::Digest;

use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::LINE_ENDS;
use crate::locate::places::scan_chunk::LineShape;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::kind::{Head, Look};
use crate::record::labels::FileLabels;
use crate::record::labels::stored::{Label, LabelForm};
use crate::record::numbering::Numbering;
use crate::record::rows::{Layout, NewRow};
use crate::text::libsvm::{LibsvmRules, decode_libsvm_line};

/// LIBSVM text.
pub(crate) struct Libsvm;

impl Format for Libsvm {
    fn name(&self) -> &'static str {
        "libsvm"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        if head.ends_in(&["libsvm", "svm", "svmlight"]) {
            Some(Match::Name)
        } else {
            (head.look == Some(Look::Libsvm)).then_some(Match::Lines)
        }
    }

    fn has_features(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let shape = if source.options.targets {
            LineShape::LibsvmTargets
        } else {
            LineShape::Libsvm
        };
        let (mut contents, index) = source.lines(shape, source.start(), notes)?;
        let features = contents
            .index_end
            .saturating_sub(u64::from(!source.options.zero_based));
        if let [queries, comments] = contents.tallies[..] {
            let counts = [(queries, "query numbers (qid)"), (comments, "comments")];
            let skipped = counts.iter().filter(|(count, _)| *count > 0);
            let skipped: Vec<String> = skipped
                .map(|(count, what)| format!("{count} {what}"))
                .collect();
            if !skipped.is_empty() {
                let path = source.path.display();
                notes.push(format!("{path}: skipped {}", skipped.join(" and ")));
            }
        }
        let options = source.options;
        let rules = LibsvmRules {
            zero_based: options.zero_based,
            features: options.features.unwrap_or(u64::MAX),
            dtype: options.feature_type(),
        };
        let labels = FileLabels::Listed(std::mem::take(&mut contents.labels));
        let shard = Shard::new(Contents::Features, Layout::Sparse, LibsvmDecoder(rules));
        Ok(Shard {
            features,
            labels,
            ..shard.at(contents, index, LINE_ENDS)
        })
    }
}

/// Lines as rows.
#[derive(Debug)]
struct LibsvmDecoder(LibsvmRules);

impl Decoder for LibsvmDecoder {
    #[inline]
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let label =
            row.entries(|indices, values| decode_libsvm_line(bytes, self.0, indices, values));
        label.map(Label::Number)
    }

    fn fingerprint(&self) -> [u64; 3] {
        [Digest::new("libsvm").value(), 0, self.0.zero_based.into()]
    }

    fn numbering(&self) -> Numbering {
        if self.0.zero_based {
            Numbering::FromZero
        } else {
            Numbering::FromOne
        }
    }

    fn label_form(&self) -> LabelForm {
        LabelForm::Numbers
    }

    fn parses_text(&self) -> bool {
        true
    }
}
