//! The rows that training reads: records of files, after the passes over them that come before training.

use std::sync::Arc;

use pelton_data::{Expected, OpenedData};
use pelton_format::{Dataset, Scale};
use pelton_linear::FeatureNumbering;

use crate::checkpoint::Totals;

/// Records of files as training reads them.
pub(super) struct Rows {
    /// The records, possibly packed, scaled and renumbered.
    pub data: OpenedData,
    /// Bytes of the records in their own files.
    pub data_bytes: u64,
    /// Whether rows are read from a packed copy.
    pub packed: bool,
    /// The scale applied to these rows, and to be applied to others.
    pub scale: Option<Arc<Scale>>,
    /// The value subtracted from targets.
    pub target_centre: f64,
    /// The new indices of the rows' features, if they were renumbered.
    pub numbering: Option<Arc<FeatureNumbering>>,
    /// Totals of the passes, over all ranks.
    pub spent: Totals,
}

impl Rows {
    /// The located records.
    pub fn located(data: OpenedData, target_centre: f64) -> Rows {
        Rows {
            target_centre,
            data_bytes: data.dataset.bytes(),
            data,
            packed: false,
            scale: None,
            numbering: None,
            spent: Totals::default(),
        }
    }

    /// Continues with other rows of the same records, made by a pass that cost `spent`.
    pub fn replace(&mut self, dataset: Arc<Dataset>, spent: &Totals) {
        self.data.dataset = dataset;
        self.spent = self.spent.plus(spent);
    }

    /// Number of features of the data.
    pub fn features(&self) -> u64 {
        match &self.numbering {
            Some(numbering) => numbering.features() as u64,
            None => self.data.dataset.features(),
        }
    }

    /// The properties that test data must share.
    pub fn expected(&self) -> Expected {
        let dataset = &self.data.dataset;
        Expected {
            labels: Some(dataset.labels().clone()),
            any_label: false,
            features: self.features(),
            means: dataset.means().cloned(),
            columns: dataset.columns().cloned(),
        }
    }
}
