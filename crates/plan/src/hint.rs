//! The position of a walk, in a few bytes: from there a step is found faster than by a walk from the start of its
//! epoch.
//!
//! A hint is global, as plans are, and it is never needed: without it, or with one that does not fit, the same
//! batches come, only later. It lists no examples. For buckets it has the number of appearances taken, and those of each
//! bucket; for packed rows the open look-ahead and its first row. Orders that are entered by
//! arithmetic need none, and a shuffle buffer cannot be entered by one.

use std::fmt;
use std::str::FromStr;

use pelton_key::Digest;

use crate::error::PlanError;

/// The position of a walk.
///
/// Written as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint(Vec<u8>);

/// The part of a hint about an epoch's fresh batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Batches before.
    pub(crate) step: u64,
    /// Buckets: appearances taken; packing: look-aheads before.
    pub(crate) place: u64,
    /// Buckets: appearances of each before; packing: rows before.
    pub(crate) counts: Vec<u64>,
}

impl Hint {
    /// No hint is longer.
    pub const MOST_BYTES: usize = 4096;

    /// Fingerprint of the plan in front, digest at the end.
    const FRAME_BYTES: usize = 16;

    /// The hint as bytes, with a checksum.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Parses the bytes of [`as_bytes`](Self::as_bytes).
    ///
    /// Errors: bytes that are too many, or that their checksum does not fit.
    pub fn from_bytes(bytes: &[u8]) -> Result<Hint, PlanError> {
        let fault = |what| Err(PlanError::BadHint { what });
        if !(Hint::FRAME_BYTES..=Hint::MOST_BYTES).contains(&bytes.len()) {
            return fault("it is too short or too long");
        }
        let (body, sum) = bytes.split_at(bytes.len() - 8);
        if digest(body).to_le_bytes() != *sum {
            return fault("its checksum is wrong");
        }
        Ok(Hint(bytes.to_vec()))
    }

    /// `None` if it would be too long.
    pub(crate) fn new(plan: u64, epoch: u64, standing: &Standing) -> Option<Hint> {
        let mut bytes = plan.to_le_bytes().to_vec();
        let counts = standing.counts.iter().copied();
        for mut number in [epoch, standing.step, standing.place]
            .into_iter()
            .chain(counts)
        {
            // Seven bits a byte; the highest is set if more follow.
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        bytes.extend(digest(&bytes).to_le_bytes());
        (bytes.len() <= Hint::MOST_BYTES).then_some(Hint(bytes))
    }

    /// The position in an epoch of a plan; `None` for another epoch or plan.
    pub(crate) fn standing(&self, plan: u64, epoch: u64) -> Option<Standing> {
        let (body, _) = self.0.split_at(self.0.len() - 8);
        let (of_plan, body) = body.split_at(8);
        let mut numbers = Vec::new();
        let (mut number, mut bits) = (0_u64, 0);
        for byte in body {
            if bits > 63 {
                return None;
            }
            number |= u64::from(byte & 0x7F) << bits;
            bits += 7;
            if byte & 0x80 == 0 {
                numbers.push(std::mem::take(&mut number));
                bits = 0;
            }
        }
        match numbers[..] {
            [of_epoch, step, place, ref counts @ ..]
                if of_epoch == epoch && of_plan == plan.to_le_bytes() =>
            {
                Some(Standing {
                    step,
                    place,
                    counts: counts.to_vec(),
                })
            }
            _ => None,
        }
    }
}

fn digest(bytes: &[u8]) -> u64 {
    Digest::new("hint").bytes(bytes).value()
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Hint {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Hint, PlanError> {
        let what = "it is not made of hexadecimal digits";
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) || !text.len().is_multiple_of(2) {
            return Err(PlanError::BadHint { what });
        }
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16);
        let bytes: Result<Vec<u8>, _> = (0..text.len()).step_by(2).map(byte).collect();
        Hint::from_bytes(&bytes.map_err(|_| PlanError::BadHint { what })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint() -> (Hint, Standing) {
        let standing = Standing {
            step: 1 << 40,
            place: u64::MAX,
            counts: vec![0, 127, 128, 5000],
        };
        (Hint::new(9, 3, &standing).unwrap(), standing)
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let (hint, standing) = hint();
        assert_eq!(hint.standing(9, 3), Some(standing));
        assert_eq!(hint.standing(9, 4), None);
        assert_eq!(hint.standing(8, 3), None);
        assert_eq!(hint.to_string().parse(), Ok(hint.clone()));
        assert_eq!(Hint::from_bytes(hint.as_bytes()), Ok(hint));
    }

    #[test]
    fn damage_is_found() {
        let (hint, _) = hint();
        let bytes = hint.as_bytes();
        for at in 0..bytes.len() {
            assert!(Hint::from_bytes(&bytes[..at]).is_err(), "{at} bytes");
            for bit in 0..8 {
                let mut changed = bytes.to_vec();
                changed[at] ^= 1 << bit;
                assert!(
                    Hint::from_bytes(&changed).is_err(),
                    "bit {bit} of byte {at}"
                );
            }
        }
        for text in ["", "0", "zz", "ääää"] {
            assert!(text.parse::<Hint>().is_err(), "{text}");
        }
    }

    #[test]
    fn one_that_would_be_too_long_is_not_made() {
        let of = |counts: usize| Standing {
            step: 0,
            place: 0,
            counts: vec![1 << 10; counts],
        };
        assert!(Hint::new(0, 0, &of(2030)).is_some());
        assert!(Hint::new(0, 0, &of(2050)).is_none());
    }
}
