//! The fields of a loader's batches, as far as known before anything is read.

use std::sync::Arc;

use crate::error::FeedError;
use pelton_batch::DType;
use pelton_format::{Contents, Dataset};

use crate::building::FixedField;
use crate::collation::Collate;
use crate::stages::{Stages, is_box};

/// Whether samples have the same layout in a batch as in the file.
pub(crate) fn as_stored(contents: Contents, stages: &Stages) -> bool {
    match contents {
        Contents::Pixels {
            planar, channels, ..
        } => channels == 1 || planar == stages.planar,
        Contents::Fields => false,
        _ => true,
    }
}

/// The fields of batches, as far as known beforehand.
pub(crate) struct KnownFields {
    pub fixed: Vec<FixedField>,
    pub others: Vec<(Arc<str>, DType)>,
    /// Whether there may be more than these, or fewer.
    pub open: bool,
}

impl KnownFields {
    /// Of the output of these stages; `packs`: whether rows are packed with samples, so that arrays of one length
    /// have no slot of their own.
    ///
    /// Errors: stages that do not match each other, or not the data.
    pub fn from_stages(
        dataset: &Dataset,
        stages: &Stages,
        packs: bool,
    ) -> Result<KnownFields, FeedError> {
        let specs = stages.spec(dataset).map_err(FeedError::Stages)?;
        let mut known = KnownFields {
            fixed: Vec::new(),
            others: Vec::new(),
            open: stages.list().iter().any(|stage| stage.is_open()),
        };
        if !known.open {
            let names: Vec<&str> = specs.0.iter().map(|field| &*field.name).collect();
            stages.collation.check(&names)?;
        }
        for field in specs.0 {
            let rule = stages.collation.of(&field.name);
            let stacks = match rule.how {
                Collate::Auto => !packs || field.dims.len() != 1,
                how => how == Collate::Stack,
            };
            // An array without boxes does not have the dimension of four numbers.
            let stacks = stacks && !(is_box(&field.name) && field.dims == [Some(0)]);
            match (field.known(), field.bytes()) {
                (Some(dims), Some(bytes)) if stacks => known.fixed.push(FixedField {
                    name: field.name,
                    dtype: field.dtype,
                    dims,
                    bytes,
                }),
                _ => known.others.push((field.name, field.dtype)),
            }
        }
        Ok(known)
    }

    /// Bytes of a sample's known fields, and whether that is all of them.
    pub fn bytes(&self) -> (u64, bool) {
        let bytes: usize = self.fixed.iter().map(|field| field.bytes).sum();
        (bytes as u64, self.others.is_empty() && !self.open)
    }
}
