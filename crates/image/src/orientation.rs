//! How a camera was held.

/// How an image is turned to be upright, by EXIF's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orientation(u8);

impl Default for Orientation {
    fn default() -> Orientation {
        Orientation(1)
    }
}

impl Orientation {
    /// The orientation of a number from 1 to 8; 1 is upright.
    pub fn of_number(number: u32) -> Option<Orientation> {
        match number {
            1..=8 => Some(Orientation(number as u8)),
            _ => None,
        }
    }

    /// Whether the pixels are upright as they are stored.
    pub fn is_upright(self) -> bool {
        self.0 == 1
    }

    /// Whether stored rows become columns.
    pub(crate) fn swaps(self) -> bool {
        self.0 >= 5
    }

    /// Whether stored rows are reversed in order, and the pixels within each row.
    pub(crate) fn reverses(self) -> (bool, bool) {
        (
            matches!(self.0, 3 | 4 | 6 | 7),
            matches!(self.0, 2 | 3 | 7 | 8),
        )
    }
}
