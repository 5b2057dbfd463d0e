//! The types of decoded features.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The type of decoded features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureType {
    /// f32; a whole number that f32 would round is a fault.
    #[default]
    Checked,
    /// f32, rounded if necessary.
    F32,
    /// f64, for CSV, TSV and `.npy`; a whole number that f64 would round is a fault. Jobs that compute with f32
    /// accept that.
    F64,
}

impl fmt::Display for FeatureType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FeatureType::Checked => "checked",
            FeatureType::F32 => "f32",
            FeatureType::F64 => "f64",
        })
    }
}

impl FromStr for FeatureType {
    type Err = String;

    fn from_str(text: &str) -> Result<FeatureType, String> {
        match text {
            "checked" => Ok(FeatureType::Checked),
            "f32" => Ok(FeatureType::F32),
            "f64" => Ok(FeatureType::F64),
            _ => Err(format!(
                "`{text}` is not a type of features: use f32, f64 or checked"
            )),
        }
    }
}
