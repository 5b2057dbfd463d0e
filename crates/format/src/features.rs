//! Features that a format decodes by itself, from records in a layout of its own.

use std::fmt;

use crate::error::Fault;

/// How the records of a file become rows of features.
pub(crate) trait FeatureDecoder: fmt::Debug + Send + Sync {
    /// Features of a record.
    fn width(&self) -> usize;

    /// The column of the label, from 0, where one is and each other column is one feature.
    fn label_column(&self) -> Option<usize>;

    /// Writes the features of a record, with `missing` in the place of those that it lacks; its label, where the record
    /// itself states one. Without `missing` a record that lacks some is a bad one.
    fn decode(
        &self,
        bytes: &[u8],
        missing: Option<&[f32]>,
        row: &mut [f32],
    ) -> Result<Option<f64>, Fault>;

    /// What tells two ways to read the same bytes apart.
    fn fingerprint(&self) -> u64;
}

/// What is wrong with a value of a column of features.
pub(crate) enum FeatureFault {
    Null,
    /// It is no finite number of 32 bits.
    Number(f64),
}

impl FeatureFault {
    #[cold]
    pub(crate) fn of(self, column: &str) -> Fault {
        let what = match self {
            FeatureFault::Null => {
                "holds no value (null); `missing` zero or `missing` mean fills such values in"
                    .into()
            }
            FeatureFault::Number(value) if value.is_nan() => {
                "holds NaN; `missing` zero or `missing` mean fills such values in".into()
            }
            FeatureFault::Number(value) if value.is_finite() => {
                format!("holds {value:?}, which is beyond 32-bit floating point; scale the feature")
            }
            FeatureFault::Number(value) => {
                format!("holds {value:?}, which is not finite; replace it or remove the record")
            }
        };
        Fault::Column {
            column: column.to_owned(),
            what,
        }
    }
}
