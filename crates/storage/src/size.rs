//! Sizes as people write them: `64MiB`, `1.5GB`, `1/4` of the data, or a plain number of bytes.

use std::str::FromStr;

/// An amount of memory as a person writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the data's size.
    Share(f64),
}

impl Memory {
    /// The size, if it is not a share.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Memory::Bytes(bytes) => Some(bytes),
            Memory::Share(_) => None,
        }
    }
}

/// A number of bytes as a person writes it, where there is nothing to take a share of.
pub fn size(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    match text.parse()? {
        Memory::Bytes(bytes) => Ok(bytes),
        Memory::Share(_) => Err(format!(
            "`{text}` is a share of the data; give a size such as 50GB"
        )),
    }
}

const UNITS: [(&str, f64); 9] = [
    ("kib", 1024.0),
    ("mib", 1048576.0),
    ("gib", 1073741824.0),
    ("tib", 1099511627776.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("b", 1.0),
];

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Memory, String> {
        let wrong = || {
            format!(
                "`{text}` is not a size: write bytes (1048576), a unit (64MiB, 1.5GB) or a share of the data (1/8)"
            )
        };
        if let Some((part, whole)) = text.split_once('/') {
            let part: f64 = part.trim().parse().map_err(|_| wrong())?;
            let whole: f64 = whole.trim().parse().map_err(|_| wrong())?;
            let share = part / whole;
            return if share.is_finite() && share > 0.0 {
                Ok(Memory::Share(share))
            } else {
                Err(wrong())
            };
        }
        let lower = text.trim().to_ascii_lowercase();
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| lower.strip_suffix(name).map(|number| (number, *unit)))
            .unwrap_or((lower.as_str(), 1.0));
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let bytes = number * unit;
        if bytes >= 1.0 && bytes < u64::MAX as f64 {
            Ok(Memory::Bytes(bytes as u64))
        } else {
            Err(wrong())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Memory) {
        assert_eq!(text.parse::<Memory>().unwrap(), expected);
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        check("64MiB", Memory::Bytes(64 << 20));
        check("1.5 GB", Memory::Bytes(1_500_000_000));
        check("4096", Memory::Bytes(4096));
        check("512b", Memory::Bytes(512));
        check("1/8", Memory::Share(0.125));
        for wrong in ["", "x", "-1", "0", "1/0", "MiB", "1e30GB"] {
            assert!(wrong.parse::<Memory>().is_err(), "{wrong}");
        }
    }
}
