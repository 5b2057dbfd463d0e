//! `PELTON_LOG`: logs decisions of the crates, for diagnosing a run. Off unless the
//! variable is set; lines go to standard error.
//!
//! The variable contains a level (`info`, `debug`) or levels of single crates (`pelton_feed=debug,pelton_format=info`),
//! separated by commas. Rejected: a flag on every command, since logging belongs to none of them; `tracing`'s own
//! filter language, which treats a misspelt level as the name of a module and then shows nothing.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::console::Unfailing;

const VARIABLE: &str = "PELTON_LOG";

/// Starts logging if the environment requests it.
///
/// Errors: a value that is not a level or a list of them.
pub fn begin() -> anyhow::Result<()> {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    let value = value.to_string_lossy();
    if value.trim().is_empty() {
        return Ok(());
    }
    let filter = parse(&value).ok_or_else(|| {
        anyhow::anyhow!(
            "{VARIABLE}={value} is not a level: use error, warn, info, debug, trace or off, or levels of crates such as pelton_feed=debug,pelton_format=info"
        )
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| Unfailing)
        .with_ansi(false);
    tracing_subscriber::registry()
        .with(lines)
        .with(filter)
        .init();
    Ok(())
}

fn parse(value: &str) -> Option<Targets> {
    let mut targets = Targets::new();
    for part in value.split(',').map(str::trim) {
        targets = match part.split_once('=') {
            Some((name, level)) if name.trim().starts_with("pelton_") => {
                targets.with_target(name.trim(), self::level(level)?)
            }
            Some(_) => return None,
            // Other libraries log addresses with their secrets.
            None => targets.with_target("pelton", level(part)?),
        };
    }
    Some(targets)
}

fn level(text: &str) -> Option<LevelFilter> {
    // The parser would read empty text as `error`.
    text.trim().parse().ok().filter(|_| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for value in ["info", "off", " debug ", "pelton_feed=debug, warn"] {
            assert!(parse(value).is_some(), "{value}");
        }
        for value in ["loud", "feed", "feed=debug", "pelton_feed=loud", "info,"] {
            assert!(parse(value).is_none(), "{value}");
        }
    }
}
