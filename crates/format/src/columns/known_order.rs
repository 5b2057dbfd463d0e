//! Columns in the order of a data set or a model.

use pelton_batch::{FieldSpecs, Schema};

use crate::columns::column::Column;
use crate::record::cells::known_columns::KnownColumns;
use crate::record::error::FormatError;

/// The columns to read, and the label among them.
pub(super) struct Choice {
    pub(super) columns: Vec<Column>,
    pub(super) label: Option<usize>,
    /// Names of further columns with only nulls.
    pub(super) nulls: Vec<String>,
    /// Their names, types and order.
    pub(super) schema: Schema,
}

/// Puts the columns in the known order, the label last, unless they already are. Others are left out if `has_more`.
///
/// Errors: the columns differ from the known ones.
pub(super) fn in_known_order(
    mut columns: Vec<Column>,
    mut label: Option<usize>,
    known: Option<&KnownColumns>,
    has_more: bool,
) -> Result<Choice, FormatError> {
    let kept = columns.iter().enumerate();
    let kept = kept.filter(|(at, _)| Some(*at) != label);
    let mut fields = FieldSpecs(kept.map(|(_, column)| column.spec()).collect());
    let label_name = label.map(|at| columns[at].name.clone());
    // Columns with codes are found by name when they are read.
    if let Some(known) = known.filter(|known| known.schema.codes.is_empty()) {
        let places = known.places(&fields, has_more)?;
        if !places.is_sorted() || places.len() < fields.0.len() {
            let label_column = label.map(|at| columns.remove(at));
            let ordered = places.iter().map(|place| columns[*place].clone());
            columns = ordered.chain(label_column).collect();
            label = label.map(|_| columns.len() - 1);
            let ordered = places.iter().map(|place| fields.0[*place].clone());
            fields = FieldSpecs(ordered.collect());
        }
    }
    Ok(Choice {
        columns,
        label,
        nulls: Vec::new(),
        schema: Schema {
            fields,
            label: label_name,
            codes: Vec::new(),
            crosses: Vec::new(),
        },
    })
}
