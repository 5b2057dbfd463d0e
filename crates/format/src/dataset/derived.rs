//! The same records with other features or targets.

use std::sync::Arc;

use crate::dataset::{Dataset, Renumber};
use crate::record::rows::Layout;
use crate::record::rows::scale::Scale;

impl Dataset {
    /// Whether a scale can shift features: all that it shifts are stored in every row.
    pub fn can_shift(&self) -> bool {
        self.layout != Layout::Sparse || self.keeps_zeros
    }

    /// The same data with renumbered features, all below `features`.
    pub fn renumbered(&self, numbers: Arc<dyn Renumber>, features: u64) -> Dataset {
        Dataset {
            numbers: Some(numbers),
            features,
            ..self.clone()
        }
    }

    /// The same data with scaled features. Panics if rows are sparse and the scale shifts.
    pub fn scaled(&self, scale: Arc<Scale>) -> Dataset {
        assert!(
            self.can_shift() || !scale.has_shifts(),
            "sparse rows have zeros that are not stored"
        );
        Dataset {
            scale: Some(scale),
            ..self.clone()
        }
    }

    /// The same data with `centre` subtracted from targets, in f64. Targets are f32 after that.
    pub fn centred(&self, centre: f64) -> Dataset {
        let mut centred = self.clone();
        for file in &mut centred.files {
            file.labels = file.labels.centred(centre);
        }
        centred
    }
}
