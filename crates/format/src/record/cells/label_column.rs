//! Which column of a table is the label.

use std::fmt::Display;

use crate::record::error::{FormatError, FormatErrorKind};
use crate::record::json::JsonKey;

/// The label's column in a table, or its key in a sample's member `json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    /// The first.
    First,
    /// The last.
    #[default]
    Last,
    /// By position, from 1, as in messages.
    Position(usize),
    /// By the name in the header.
    Name(String),
    /// No column: for samples of a tar file, a key of their members `json`.
    Json(JsonKey),
}

impl LabelColumn {
    /// How a message calls it.
    pub(crate) fn describe(&self) -> String {
        match self {
            LabelColumn::Name(name) => format!("{name:?}"),
            LabelColumn::Position(place) => place.to_string(),
            LabelColumn::First | LabelColumn::Last => "at its end".into(),
            LabelColumn::Json(key) => format!("json:{key}"),
        }
    }
}

/// The error if no column is the label `wanted`; there are `columns`.
#[cold]
pub(crate) fn no_label_column(wanted: impl Display, columns: impl Display) -> FormatError {
    let what = format!(
        "has no label column {wanted}; its columns are {columns}; name one of them with `label`"
    );
    FormatError::new(what).of_kind(FormatErrorKind::LabelColumn)
}
