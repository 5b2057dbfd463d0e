//! Chooses how the columns of a table become features, by their cells.

use std::sync::Arc;

use pelton_batch::{ColumnCode, DType, FieldSpec, FieldSpecs, Schema};

use crate::locate::format::Opened;
use crate::record::cells::column_kind::{ColumnKind, HASH_BITS};
use crate::record::cells::heading::excerpt_of_names;
use crate::record::error::FormatError;
use crate::record::options::{Missing, OpenOptions};
use crate::text::tables::column_found::{ColumnFound, MOST_VALUES};
use crate::text::tables::survey::Survey;

/// How a column of a table is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnUse {
    /// Its name; may be empty.
    pub name: String,
    /// How it was read, or why it was left out.
    pub what: String,
    /// Cells without a value.
    pub missing: u64,
    /// How many features it has; 0 if it was left out.
    pub features: u64,
    /// Whether it shares its features with the other hashed columns.
    pub is_hashed: bool,
}

impl std::fmt::Display for ColumnUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.name.is_empty() {
            "(no name)"
        } else {
            &self.name
        };
        write!(f, "{name}: {}", self.what)?;
        match self.missing {
            0 => Ok(()),
            missing => write!(f, " ({missing} missing)"),
        }
    }
}

/// The codes of a table's columns.
pub(crate) struct Choice {
    pub(crate) schema: Schema,
    pub(crate) columns: Vec<ColumnUse>,
    pub(crate) weights: Option<Arc<[f32]>>,
}

/// Whether a column has a name that is typical of record ids.
fn names_records(name: &str) -> bool {
    const NAMES: [&str; 19] = [
        "", "#", "id", "ids", "index", "idx", "row", "rows", "rowid", "rowname", "rownames", "no",
        "no.", "nr", "nr.", "key", "uid", "uuid", "record",
    ];
    let name = name.trim();
    let lower = name.to_lowercase();
    // As in user_id, user.id and PassengerId; not as in paid and PAID.
    let is_end = |rest: &str| rest.ends_with(|letter: char| !letter.is_alphanumeric());
    let is_word = |rest: &str| rest.ends_with(char::is_lowercase);
    let is_id = lower.strip_suffix("id").is_some_and(is_end)
        || (name.strip_suffix("Id").or(name.strip_suffix("ID"))).is_some_and(is_word);
    is_id || NAMES.contains(&&*lower) || lower.starts_with("unnamed: ")
}

/// The kind that a column seems to have, with a remark for the user. `is_named` says whether the file names it.
fn guess(name: &str, is_named: bool, found: &mut ColumnFound) -> (ColumnKind, Option<String>) {
    /// From this many blanks a cell on, cells are text rather than names.
    const BLANKS: f64 = 2.5;
    /// Up to this count, cells may all differ by chance.
    const FEW: u64 = 20;
    if found.has_none() || found.is_constant() {
        return (ColumnKind::Ignore, None);
    }
    // In a column of numbers, other cells are bad.
    if found.are_mostly_numbers() || found.is_written() {
        let is_number_of_record = if is_named {
            names_records(name)
        } else {
            found.counts_in_order()
        };
        let kind = if is_number_of_record && found.counts_rows() {
            ColumnKind::Ignore
        } else {
            ColumnKind::Number
        };
        return (kind, None);
    }
    if found.are_dates() {
        return (ColumnKind::Date, None);
    }
    let is_ambiguous = found.is_ambiguous();
    found.settle_marks(ColumnKind::Category);
    let present = found.present;
    let text = present - found.numbers;
    let is_prose = found.blanks as f64 >= BLANKS * text as f64;
    let is_varied = found.distinct().is_none_or(|n| 2 * n as u64 > present);
    let kind = match found.distinct() {
        _ if is_prose && is_varied => ColumnKind::Text {
            pairs: true,
            bits: HASH_BITS,
        },
        Some(n) if n as u64 == present && present > FEW => ColumnKind::Ignore,
        Some(_) => ColumnKind::Category,
        None => ColumnKind::Hash(HASH_BITS),
    };
    let (first, example) = found.first_text.clone().unwrap_or_default();
    if is_ambiguous {
        let remark = format!(
            "column {name}: its dates, such as {example:?}, may begin with the day or with the month, so each value is a name; write them as in 2020-06-22"
        );
        return (kind, Some(remark));
    }
    let remark = (found.numbers > 0).then(|| {
        format!(
            "column {name}: {} of {present} cells are numbers and others are not, first {example:?} in record {first}, so each value is a name",
            found.numbers
        )
    });
    (kind, remark)
}

/// The reason for leaving out a column.
fn why_ignored(found: &ColumnFound, is_given: bool) -> &'static str {
    match found.distinct() {
        _ if is_given => "left out as asked",
        _ if found.has_none() => "left out: no value in any record",
        Some(1) => "left out: the same in every record",
        _ if found.numbers > 0 => "left out: numbers the records",
        _ => "left out: another text in each record",
    }
}

fn code_of(
    name: &str,
    kind: ColumnKind,
    found: &ColumnFound,
    missing: Option<Missing>,
    notes: &mut Vec<String>,
) -> Option<ColumnCode> {
    let fill = |mean: f32| match missing {
        None | Some(Missing::Error) => None,
        Some(Missing::Zero) => Some(0.0),
        Some(Missing::Mean | Missing::Flag | Missing::Auto) => Some(mean),
    };
    Some(match kind {
        ColumnKind::Number | ColumnKind::Log1p => ColumnCode::Number {
            log1p: kind == ColumnKind::Log1p,
            missing: fill(found.mean()),
            flag: matches!(missing, Some(Missing::Flag | Missing::Auto)) && found.missing > 0,
        },
        ColumnKind::Bins(bins) => ColumnCode::Bins {
            edges: found.edges(bins),
            missing: found.missing > 0,
        },
        ColumnKind::Offset => ColumnCode::Offset { exposure: false },
        ColumnKind::Exposure => ColumnCode::Offset { exposure: true },
        ColumnKind::Category => match found.values() {
            Some(values) => ColumnCode::Category { values },
            None => {
                notes.push(format!(
                    "column {name} has more than {MOST_VALUES} values, which are hashed to {HASH_BITS} bits; `column` {name}=hash:BITS says to how many"
                ));
                ColumnCode::Hash { bits: HASH_BITS }
            }
        },
        ColumnKind::Hash(bits) => ColumnCode::Hash { bits },
        ColumnKind::Text { pairs, bits } => ColumnCode::Text { pairs, bits },
        ColumnKind::Date => {
            let slashes = found.slashes();
            let (centre, hours) = found.dates(slashes);
            ColumnCode::Date {
                centre,
                missing: missing.is_some(),
                hours,
                slashes,
            }
        }
        // A cross has several columns; it is added elsewhere.
        ColumnKind::Ignore | ColumnKind::Label | ColumnKind::Weight | ColumnKind::Cross(_) => {
            return None;
        }
    })
}

/// Describes a code; omits its rule for missing cells if none are missing.
fn said_of(code: &ColumnCode, missing: u64) -> String {
    let code = match code {
        ColumnCode::Number { flag, log1p, .. } if missing == 0 => ColumnCode::Number {
            missing: None,
            flag: *flag,
            log1p: *log1p,
        },
        ColumnCode::Date {
            centre,
            hours,
            slashes,
            ..
        } if missing == 0 => ColumnCode::Date {
            centre: *centre,
            missing: false,
            hours: *hours,
            slashes: *slashes,
        },
        code => code.clone(),
    };
    code.to_string()
}

/// Chooses codes for the columns of tables; `first` is the first of them.
pub(crate) fn choose(
    mut survey: Survey,
    first: &Opened,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Choice, FormatError> {
    let names = first
        .shard
        .decoder
        .cells()
        .map(|cells| cells.names().to_vec());
    let names = names.unwrap_or_default();
    let path = first.path.display();
    let (mut fields, mut codes, mut columns) = (Vec::new(), Vec::new(), Vec::new());
    let mut weights = None;
    let is_named = first.shard.columns.is_some();
    let mut left_out = Vec::new();
    let mut field_of = vec![0; names.len()];
    let all = names.iter().zip(&mut survey.columns).zip(&survey.kinds);
    for (at, ((name, found), reported)) in all.enumerate() {
        let (kind, remark) = match reported {
            Some(kind) => (*kind, None),
            None => guess(name, is_named, found),
        };
        found.settle_marks(kind);
        notes.extend(remark.map(|remark| format!("{path}: {remark}")));
        let mut said = Vec::new();
        let mut crosses = survey.crosses.iter();
        let is_crossed = crosses.any(|(_, cross)| cross.columns.contains(&at));
        let code = code_of(name, kind, found, options.missing, &mut said);
        let code = code.or(is_crossed.then_some(ColumnCode::Crossed));
        notes.extend(said.into_iter().map(|said| format!("{path}: {said}")));
        if kind == ColumnKind::Number && found.is_coarse() {
            return Err(FormatError::new(format!(
                "column {name} has numbers that differ by too little, for their size, for features of 32 bits; subtract a constant, or leave the column out with `column` {name}=ignore"
            ))
            .in_file(&first.path));
        }
        let what = match (&code, kind) {
            (Some(code @ ColumnCode::Number { .. }), _)
                if let Some(example) = &found.first_written =>
            {
                format!("{}, written as {example}", said_of(code, found.missing))
            }
            (Some(code), _) => said_of(code, found.missing),
            (None, ColumnKind::Weight) => "weight of the record".to_string(),
            (None, _) => why_ignored(found, reported.is_some()).to_string(),
        };
        let hashed = code.as_ref().map_or(0, ColumnCode::hashed);
        let own = code.as_ref().map_or(0, ColumnCode::width);
        columns.push(ColumnUse {
            name: name.clone(),
            what,
            missing: found.missing,
            features: (own + hashed) as u64,
            is_hashed: hashed > 0,
        });
        if let (None, None, Some(column)) = (&code, reported, columns.last()) {
            left_out.push(column.to_string().replacen("left out: ", "", 1));
        }
        if kind == ColumnKind::Weight {
            weights = Some(survey.weights.clone().into());
        }
        if let Some(code) = code {
            field_of[at] = fields.len();
            fields.push(FieldSpec::new(name, DType::F32, &[]));
            codes.push(code);
        }
    }
    let mut crosses = Vec::new();
    for (name, mut cross) in survey.crosses {
        for column in &mut cross.columns {
            *column = field_of[*column];
        }
        columns.push(ColumnUse {
            name,
            what: cross.to_string(),
            missing: 0,
            features: 1 << cross.bits,
            is_hashed: true,
        });
        crosses.push(cross);
    }
    if codes.is_empty() {
        let lines: Vec<String> = columns.iter().map(ColumnUse::to_string).collect();
        let error = FormatError::new(format!(
            "no column is left for features: {}; say with `column` NAME=KIND what they hold",
            lines.join("; ")
        ));
        return Err(error.in_file(&first.path));
    }
    if !left_out.is_empty() {
        notes.push(format!(
            "{path}: columns are left out: {}; `column` NAME=number or NAME=category takes one, and NAME=ignore says that it is not wanted",
            excerpt_of_names(&left_out)
        ));
    }
    if survey.bad > 0 {
        notes.push(format!("{path}: {} records cannot be read", survey.bad));
    }
    let label = first
        .shard
        .columns
        .as_ref()
        .and_then(|schema| schema.label.clone());
    Ok(Choice {
        schema: Schema {
            fields: FieldSpecs(fields),
            label,
            codes,
            crosses,
        },
        columns,
        weights,
    })
}
