//! Features that a format decodes by itself, from records in a layout of its own.

use std::fmt;

use crate::error::Fault;

/// Where the features of a record go.
#[cfg_attr(
    not(feature = "columns"),
    expect(dead_code, reason = "columns alone have such features")
)]
pub(crate) enum Cells<'a> {
    Narrow(&'a mut [f32]),
    Wide(&'a mut [f64]),
}

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
        row: Cells<'_>,
    ) -> Result<Option<f64>, Fault>;

    /// What tells two ways to read the same bytes apart.
    fn fingerprint(&self) -> u64;
}
