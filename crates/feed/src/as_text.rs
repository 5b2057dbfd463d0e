//! Serialises a configuration value as its text.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer};

/// Writes it so.
pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Reads it so.
pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr,
    T::Err: Display,
    D: Deserializer<'de>,
{
    String::deserialize(from)?
        .parse()
        .map_err(serde::de::Error::custom)
}

/// The same of a value that may be absent.
pub mod option {
    use super::*;

    /// Writes it as its text, or as nothing.
    pub fn serialize<T, S>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error>
    where
        T: Display,
        S: Serializer,
    {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    /// Reads it so.
    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr,
        T::Err: Display,
        D: Deserializer<'de>,
    {
        Option::<String>::deserialize(from)?
            .map(|text| text.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}
