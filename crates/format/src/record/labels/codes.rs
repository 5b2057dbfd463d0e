//! The class of every record of a file, if stored in a list outside the records.
//!
//! A code is an index into the file's list of labels. Most data have up to 256 classes; a code is one byte then and
//! four otherwise. A `Vec<u32>` for all was rejected: it takes four times the memory.

use std::sync::Arc;

/// The code of a record of unknown class.
pub(crate) const NO_CLASS: u32 = u32::MAX;

/// One code a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// Every record has code 0.
    One,
    Bytes(Arc<[u8]>),
    Words(Arc<[u32]>),
}

impl Codes {
    /// The smallest form of the given codes.
    pub(crate) fn new(codes: Vec<u32>) -> Codes {
        match codes.iter().max() {
            None | Some(0) => Codes::One,
            Some(0..=255) => Codes::Bytes(codes.iter().map(|code| *code as u8).collect()),
            Some(_) => Codes::Words(codes.into()),
        }
    }

    /// Code of record `i`.
    #[inline]
    pub(crate) fn get(&self, i: u64) -> u32 {
        match self {
            Codes::One => 0,
            Codes::Bytes(codes) => u32::from(codes[i as usize]),
            Codes::Words(codes) => codes[i as usize],
        }
    }

    /// A hash of all; `None` if they are not listed.
    pub(crate) fn digest(&self) -> Option<u64> {
        match self {
            Codes::One => None,
            Codes::Bytes(codes) => Some(crc32c::crc32c(codes).into()),
            Codes::Words(codes) => Some(crc32c::crc32c(bytemuck::cast_slice(codes)).into()),
        }
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        match self {
            Codes::One => 0,
            Codes::Bytes(codes) => codes.len() as u64,
            Codes::Words(codes) => 4 * codes.len() as u64,
        }
    }

    /// Bytes a code takes in a file, and the codes packed into words.
    pub(crate) fn to_words(&self) -> (u64, Vec<u64>) {
        let packed = |bytes: Vec<u8>| {
            let words = bytes.chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            });
            words.collect()
        };
        match self {
            Codes::One => (0, Vec::new()),
            Codes::Bytes(codes) => (1, packed(codes.to_vec())),
            Codes::Words(codes) => (
                4,
                packed(codes.iter().flat_map(|code| code.to_le_bytes()).collect()),
            ),
        }
    }

    /// Words that the codes of `records` records take at `width` bytes each.
    pub(crate) fn word_count(width: u64, records: u64) -> Option<u64> {
        Some(records.checked_mul(width)?.div_ceil(8))
    }

    /// Reads the codes of `records` records from words; `None` unless each is below `labels` (0 without labels) or
    /// [`NO_CLASS`].
    pub(crate) fn from_words(
        width: u64,
        records: u64,
        labels: usize,
        words: &[u64],
    ) -> Option<Codes> {
        if words.len() as u64 != Codes::word_count(width, records)? {
            return None;
        }
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        let codes = match width {
            0 => return Some(Codes::One),
            1 => Codes::Bytes(bytes.take(records as usize).collect()),
            4 => {
                let bytes: Vec<u8> = bytes.take(4 * records as usize).collect();
                let codes = bytes.as_chunks::<4>().0.iter();
                Codes::Words(codes.map(|code| u32::from_le_bytes(*code)).collect())
            }
            _ => return None,
        };
        (0..records)
            .all(|i| (codes.get(i) as usize) < labels.max(1) || codes.get(i) == NO_CLASS)
            .then_some(codes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_without_a_class() {
        let held = Codes::new(vec![0, NO_CLASS, 1]);
        let (width, words) = held.to_words();
        assert_eq!(Codes::from_words(width, 3, 2, &words), Some(held));
        assert_eq!(Codes::from_words(width, 3, 1, &words), None);
        let held = Codes::new(vec![0, NO_CLASS]);
        let (width, words) = held.to_words();
        assert_eq!(Codes::from_words(width, 2, 0, &words), Some(held));
    }

    #[test]
    fn words_and_back() {
        for codes in [
            vec![],
            vec![0, 0, 0],
            vec![1, 0, 255, 3, 4, 5, 6, 7, 8],
            vec![256, 0, 70_000],
        ] {
            let held = Codes::new(codes.clone());
            let records = codes.len() as u64;
            let (width, words) = held.to_words();
            assert_eq!(
                Codes::from_words(width, records, 70_001, &words).as_ref(),
                Some(&held)
            );
            assert!((0..records).all(|i| held.get(i) == codes[i as usize]));
            if width > 0 {
                assert_eq!(Codes::from_words(width, records, 3, &words), None);
                assert_eq!(Codes::from_words(width, records + 99, 70_001, &words), None);
            }
            assert_eq!(
                Codes::from_words(3, records, 70_001, &words),
                None.filter(|_: &Codes| true)
            );
        }
    }
}
