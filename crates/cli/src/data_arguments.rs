//! The flags that describe the data.

use std::path::Path;

use clap::builder::{OsStringValueParser, TypedValueParser};
use pelton_train::{DataConfig, path_text};

use crate::given::Given;

/// Flags that describe the data.
pub type DataArguments = Given<DataConfig>;

impl DataArguments {
    /// The data configuration of these flags over the given paths.
    pub fn config(&self, paths: Vec<String>) -> DataConfig {
        let mut config = DataConfig {
            paths,
            ..DataConfig::default()
        };
        self.apply(&mut config);
        config
    }
}

/// The help of `--order`.
pub fn order_help() -> String {
    format!("Order: {}", pelton_train::Order::forms())
}

/// Parses the name of data, of any bytes, to its text.
pub fn name() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|name| path_text(Path::new(&name)))
}

/// Refuses flags without effect: whether that applies, the flag, and the setting that makes it so.
pub fn refuse_idle(flags: &[(bool, &str, String)]) -> anyhow::Result<()> {
    match flags.iter().find(|(is_idle, ..)| *is_idle) {
        Some((_, flag, with)) => anyhow::bail!("{flag} does nothing {with}; leave it out"),
        None => Ok(()),
    }
}
