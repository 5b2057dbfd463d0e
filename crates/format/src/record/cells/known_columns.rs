//! Columns that are known before a file is opened: those of a data set's first file, or of a model.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;

use pelton_batch::{Difference, FieldSpecs, Schema};

use crate::record::cells::label_column::LabelColumn;
use crate::record::error::FormatError;

/// The columns that a file must have, in any order.
#[derive(Clone, Debug)]
pub struct KnownColumns {
    /// Their names.
    pub schema: Arc<Schema>,
    /// The file or model with these columns, for messages.
    pub of: String,
}

impl KnownColumns {
    /// Whether `names` has all of the features.
    pub(crate) fn are_among(&self, names: &[String]) -> bool {
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        let mut features = self.schema.fields.0.iter();
        features.all(|feature| names.contains(&*feature.name))
    }

    /// The label to use: `wanted` if it is a name or key, else the known one if `names` has it, else `wanted`.
    pub(crate) fn label(&self, wanted: &LabelColumn, names: &[String]) -> LabelColumn {
        match (&self.schema.label, wanted) {
            (_, LabelColumn::Name(_) | LabelColumn::Json(_)) => wanted.clone(),
            (Some(known), _) if names.contains(known) => LabelColumn::Name(known.clone()),
            _ => wanted.clone(),
        }
    }

    /// The index of each known field in `found`, which may have others too if `has_more`.
    pub(crate) fn places(
        &self,
        found: &FieldSpecs,
        has_more: bool,
    ) -> Result<Vec<usize>, FormatError> {
        let names: HashSet<&str> = { self.schema.fields.0.iter() }
            .map(|field| &*field.name)
            .collect();
        let is_kept = |at: &usize| !has_more || names.contains(&*found.0[*at].name);
        let kept: Vec<usize> = (0..found.0.len()).filter(is_kept).collect();
        let fields = FieldSpecs(kept.iter().map(|at| found.0[*at].clone()).collect());
        let places = self.schema.places_in(&fields);
        let places = places.map_err(|difference| other_columns(&difference, &self.of))?;
        Ok(places.into_iter().map(|place| kept[place]).collect())
    }
}

/// The error for a file with other columns than `of`.
pub(crate) fn other_columns(difference: &Difference, of: impl Display) -> FormatError {
    FormatError::new(format!(
        "{difference}, unlike {of}; give it the same columns, in any order"
    ))
}
