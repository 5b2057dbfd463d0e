//! What numbers features become when records are decoded.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What numbers features become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureType {
    /// f32; a whole number that it rounds is a fault.
    #[default]
    Checked,
    /// f32, whatever it rounds.
    F32,
    /// f64, of CSV, TSV and `.npy`; a whole number that it rounds is a fault. Jobs that compute with f32 take that.
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
