//! How inner passes are written on a command line and in configurations.

use std::fmt;
use std::str::FromStr;

use crate::solve::InnerPasses;

/// Most passes of `until:EPSILON`, LIBLINEAR-based block minimization's own limit.
const MOST_PASSES: u32 = 200;

impl fmt::Display for InnerPasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InnerPasses::Fixed(passes) => write!(f, "{passes}"),
            InnerPasses::Until { epsilon, at_most } if *at_most == MOST_PASSES => {
                write!(f, "until:{epsilon}")
            }
            InnerPasses::Until { epsilon, at_most } => write!(f, "until:{epsilon}:{at_most}"),
        }
    }
}

impl FromStr for InnerPasses {
    type Err = String;

    fn from_str(text: &str) -> Result<InnerPasses, String> {
        let wrong = || {
            format!(
                "`{text}` is not a number of inner passes: use 1 or more, or until:EPSILON[:MOST] such as until:0.1"
            )
        };
        let passes = |text: &str| {
            let passes: u32 = text.parse().map_err(|_| wrong())?;
            if passes > 0 { Ok(passes) } else { Err(wrong()) }
        };
        let Some(until) = text.strip_prefix("until:") else {
            return Ok(InnerPasses::Fixed(passes(text)?));
        };
        let (epsilon, at_most) = match until.split_once(':') {
            Some((epsilon, at_most)) => (epsilon, passes(at_most)?),
            None => (until, MOST_PASSES),
        };
        let epsilon: f32 = epsilon.parse().map_err(|_| wrong())?;
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return Err(wrong());
        }
        Ok(InnerPasses::Until { epsilon, at_most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_written() {
        for text in ["1", "10", "until:0.1", "until:0.001:50"] {
            assert_eq!(text.parse::<InnerPasses>().unwrap().to_string(), text);
        }
        for wrong in ["0", "until:", "until:0", "until:nan", "until:0.1:0", "x"] {
            assert!(wrong.parse::<InnerPasses>().is_err(), "{wrong}");
        }
    }
}
