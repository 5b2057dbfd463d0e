//! Classes that a program states, one for each file that it names.

use serde::{Deserialize, Serialize};

/// Classes of files that are named one by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileClasses {
    /// Names of the classes, if they have names.
    pub names: Vec<String>,
    /// Values of the classes, if they are numbers.
    pub values: Vec<f64>,
    /// Index of each file's class among them.
    pub codes: Vec<u32>,
}
