//! The types of decoded features.

use serde::{Deserialize, Serialize};

pelton_key::names! {
    /// The type of decoded features.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum FeatureType: "a type of features" {
        /// f32; a whole number that f32 would round is a fault.
        #[default]
        Checked = "checked",
        /// f32, rounded if necessary.
        F32 = "f32",
        /// f64, for CSV, TSV and `.npy`; a whole number that f64 would round is a fault. Jobs that compute with f32
        /// accept that.
        F64 = "f64",
    }
}
