//! Formats of features: how files of LIBSVM text, tables, matrices and packed rows are recognised and opened.

use std::sync::Arc;

use pelton_storage::Storage;

use crate::contents::Contents;
use crate::data_file::{FEATURES, IN_FILE, IndexSource, LINE_ENDS, Places, Reach};
use crate::error::FormatError;
use crate::format::{Format, Found, Match, Reading, Source};
use crate::formats::delimited::table_columns::TableColumns;
use crate::formats::delimited::{DelimitedRules, LabelColumn};
use crate::formats::npy::{self, NpyHeader, NpyRules};
use crate::formats::packed::reader;
use crate::formats::raw_records::RawDecoder;
use crate::kind::{Head, Look};
use crate::labels::FileLabels;
use crate::labels::codes::Codes;
use crate::options::OpenOptions;
use crate::places::gathered::Gathered;
use crate::places::line_scan::first_line_from;
use crate::places::located::Located;
use crate::places::scan_chunk::LineShape;
use crate::rows::Layout;
use crate::rows::feature_type::FeatureType;
use crate::rows::fields::{Column, overhead, scan_labels};

/// LIBSVM text.
pub(crate) struct Libsvm;

impl Format for Libsvm {
    fn name(&self) -> &'static str {
        "libsvm"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        match head.ends_in(&["libsvm", "svm", "svmlight"]) {
            true => Some(Match::Name),
            false => (head.look == Some(Look::Libsvm)).then_some(Match::Lines),
        }
    }

    fn has_features(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Found, FormatError> {
        let (contents, index) = source.lines(LineShape::Libsvm, source.start(), notes)?;
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
        Ok(lines_found(
            source,
            contents,
            index,
            Layout::Sparse,
            features,
            Reading::Libsvm,
        ))
    }
}

/// Numbers with a delimiter between them.
pub(crate) struct Delimited {
    pub(crate) name: &'static str,
    pub(crate) delimiter: u8,
    pub(crate) look: Look,
}

impl Format for Delimited {
    fn name(&self) -> &'static str {
        self.name
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        match head.ends_in(&[self.name]) {
            true => Some(Match::Name),
            false => (head.look == Some(self.look)).then_some(Match::Lines),
        }
    }

    fn has_features(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Found, FormatError> {
        let delimiter = self.delimiter;
        let file = source.input()?;
        let first = first_line_from(&file, source.start(), source.stamp.size)
            .map_err(|e| FormatError::io(source.path, "read it", e))?;
        let Some((start, line)) = first else {
            return Err(FormatError::Empty {
                path: source.path.to_path_buf(),
            });
        };
        let table = TableColumns::of(source, &line, delimiter, notes)?;
        let (label, columns) = (table.label, table.count);
        let from = match table.schema {
            Some(_) => start + line.len() as u64,
            None => start,
        };
        let shape = LineShape::Delimited {
            delimiter,
            label,
            columns,
        };
        let (contents, index) = source.lines(shape, from, notes)?;
        note_a_class_each(source, &contents, notes);
        let rules = DelimitedRules {
            delimiter,
            columns,
            label,
            order: table.order,
            missing: None,
            dtype: source.options.feature_type(),
        };
        let width = rules.features();
        let (layout, reading) = (Layout::Dense { width }, Reading::Delimited(rules));
        Ok(with_wide_features(
            source.options,
            width,
            Found {
                columns: table.schema,
                ..lines_found(source, contents, index, layout, width as u64, reading)
            },
        ))
    }
}

/// Tells of labels that nobody named and that are another text in each record: they are hardly classes.
fn note_a_class_each(source: &Source<'_>, contents: &Located, notes: &mut Vec<String>) {
    const FEW: u64 = 4;
    let (records, options) = (contents.starts.len(), source.options);
    let is_named = matches!(options.label, LabelColumn::Name(_)) || options.any_label;
    if contents.names.len() as u64 == records && records > FEW && !is_named {
        notes.push(format!(
            "{}: the column taken for the label holds another text in each of its {records} records, so each is a class of its own; name the column of the classes with `label`",
            source.path.display()
        ));
    }
}

fn lines_found(
    source: &Source<'_>,
    contents: Located,
    index: IndexSource,
    layout: Layout,
    features: u64,
    reading: Reading,
) -> Found {
    let end = source.stamp.size;
    let first = contents.starts.walk(0).next().unwrap_or(end);
    Found {
        records: contents.starts.len(),
        bytes: end - first,
        longest: contents.longest,
        nonzeros: contents.nonzeros,
        layout,
        contents: Contents::Features,
        features,
        // Tables have a label, even where every cell of it is bad.
        labels: FileLabels::Listed(contents.labels),
        names: contents.names,
        reading,
        index,
        storage: None,
        reach: Reach::AsItLies,
        columns: None,
        first_bad: contents.first_bad,
        places: Places::listed(contents.starts, end, LINE_ENDS),
    }
}

/// The same, as records of a field of f64 where that is wanted.
fn with_wide_features(options: &OpenOptions, width: usize, found: Found) -> Found {
    if options.feature_type() != FeatureType::F64 {
        return found;
    }
    let row = 2 + overhead(FEATURES, 1) + 8 * width as u64;
    Found {
        layout: Layout::Bytes,
        contents: Contents::Fields,
        features: 0,
        nonzeros: found.records.saturating_mul(row),
        ..found
    }
}

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

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Found, FormatError> {
        let (path, size, options) = (source.path, source.stamp.size, source.options);
        let file = source.input()?;
        let header = npy::read_header(&file, path, size)?;
        let row_bytes = header.row_bytes().unwrap_or(0);
        let lies = Lies::of(source, &header)?;
        let matrix = header.matrix().filter(|_| !options.whole_arrays);
        let Some((rows, columns)) = matrix else {
            let what = match header.shape.first() {
                None => "it is a single number".to_owned(),
                Some(_) if row_bytes == 0 => "its rows hold no numbers".to_owned(),
                Some(&rows) if !options.features_only => {
                    let array = ("data".to_owned(), header.number, header.row());
                    return Ok(Found {
                        records: rows,
                        bytes: rows * row_bytes,
                        longest: row_bytes,
                        places: lies.places,
                        storage: lies.storage,
                        reach: lies.reach,
                        ..Found::fields(
                            Vec::new(),
                            rows,
                            Codes::One,
                            RawDecoder::packed(&[array], None),
                        )
                    });
                }
                Some(_) => {
                    format!(
                        "its {} dimensions of {} are no matrix of features",
                        header.shape.len(),
                        header.number
                    )
                }
            };
            return Err(FormatError::Malformed {
                path: path.to_path_buf(),
                offset: header.data_offset,
                what,
                remedy: npy::REMEDY,
            });
        };
        let columns = columns as usize;
        let (mut label, mut labels) = (None, Vec::new());
        if !options.are_all_features(columns) {
            let column = npy::label_column(path, columns, &options.label)?;
            let (from, stride) = match lies.parts[..] {
                [(from, _)] => (from + (column * header.number.bytes()) as u64, row_bytes),
                _ => lies.parts[column],
            };
            let place = Column {
                from,
                stride,
                count: rows,
                dtype: header.number,
            };
            labels = scan_labels(&file, path, place, &options.interrupt)?;
            label = Some(column);
        }
        let rules = NpyRules {
            number: header.number,
            columns,
            label,
            dtype: options.feature_type(),
        };
        let features = rules.features() as u64;
        Ok(with_wide_features(
            options,
            rules.features(),
            Found {
                first_bad: None,
                places: lies.places,
                records: rows,
                bytes: rows * row_bytes,
                longest: row_bytes,
                nonzeros: rows.saturating_mul(features),
                layout: Layout::Dense {
                    width: rules.features(),
                },
                contents: Contents::Features,
                features,
                labels: FileLabels::Listed(labels),
                names: Vec::new(),
                reading: Reading::Npy(rules),
                index: IndexSource::Arithmetic,
                storage: lies.storage,
                reach: lies.reach,
                columns: None,
            },
        ))
    }
}

/// Where the rows of a NumPy array lie.
struct Lies {
    /// Where the parts of the first row lie, and how far it is from each to that of the next row.
    parts: Vec<(u64, u64)>,
    places: Places,
    storage: Option<Arc<dyn Storage>>,
    reach: Reach,
}

impl Lies {
    fn of(source: &Source<'_>, header: &NpyHeader) -> Result<Lies, FormatError> {
        let from = header.data_offset;
        let bytes = header.row_bytes().unwrap_or(0);
        let parts = header.parts(from).map_err(|what| FormatError::Malformed {
            path: source.path.to_path_buf(),
            offset: 0,
            what: what.into(),
            remedy: npy::REORDER,
        })?;
        if !header.fortran {
            return Ok(Lies {
                parts,
                places: Places::Fixed { from, bytes },
                storage: None,
                reach: Reach::AsItLies,
            });
        }
        let gathered = Gathered {
            storage: source.storage()?,
            record_bytes: bytes,
            records: header.shape[0],
            parts: parts.clone(),
        };
        Ok(Lies {
            places: Places::Fixed { from: 0, bytes },
            storage: Some(Arc::new(gathered)),
            reach: Reach::Gathered {
                places: parts.len() as u32,
            },
            parts,
        })
    }
}

/// Pelton's packed rows.
pub(crate) struct Packed;

impl Format for Packed {
    fn name(&self) -> &'static str {
        "prow"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        if head.bytes.starts_with(crate::formats::packed::MAGIC) {
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

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Found, FormatError> {
        let tables = reader::read_tables(source.input()?, source.stamp.size, source.path)?;
        let header = tables.header;
        let features = header.shape.features;
        let from = crate::formats::packed::HEADER_BYTES;
        let row_bytes = header.record_bytes().unwrap_or(0);
        Ok(Found {
            first_bad: None,
            places: match tables.offsets {
                Some(starts) => Places::listed(starts, header.records_end, IN_FILE),
                None => Places::Fixed {
                    from,
                    bytes: row_bytes,
                },
            },
            records: header.records,
            bytes: header.records_end - from,
            longest: header.longest,
            nonzeros: header.nonzeros,
            layout: header.shape.layout,
            contents: Contents::Features,
            features,
            labels: tables.labels.into(),
            names: Vec::new(),
            reading: match header.shape.layout {
                Layout::Dense { .. } => Reading::PackedDense,
                Layout::Sparse | Layout::Bytes => Reading::PackedSparse {
                    coding: header.shape.index_coding,
                    features,
                },
            },
            index: IndexSource::Arithmetic,
            storage: None,
            reach: Reach::AsItLies,
            columns: None,
        })
    }
}
