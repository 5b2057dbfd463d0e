//! The result of scanning a file with records of different lengths; its sidecar stores all of it.

use crate::locate::places::elias_fano::EliasFano;
use crate::record::labels::codes::Codes;

/// Offsets, labels and totals of the records of a file.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// Byte offset of each record; a record extends to the next.
    pub(crate) starts: EliasFano,
    /// End of the last record.
    pub(crate) end: u64,
    /// Distinct labels; for text in order of first appearance.
    pub(crate) labels: Vec<f64>,
    /// Their names in ascending order, if labels have names and are 0, 1, 2 ….
    pub(crate) names: Vec<String>,
    /// The label of each record, if the records do not state it.
    pub(crate) codes: Codes,
    /// Largest feature index as written, plus 1; 0 without indices.
    pub(crate) index_end: u64,
    /// Entries of all records; for rows of bytes their bytes.
    pub(crate) nonzeros: u64,
    /// Bytes of the longest record.
    pub(crate) longest: u64,
    /// The first record that the scan found to be damaged.
    pub(crate) first_bad: Option<u64>,
    /// Counts for notes, or text (see [`words_of`]); the format knows their meaning.
    pub(crate) tallies: Vec<u64>,
}

/// Text as tallies: its length, then its bytes, filled up with zeros.
pub(crate) fn words_of(text: &str) -> Vec<u64> {
    let mut words = vec![text.len() as u64];
    words.extend(text.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    }));
    words
}

/// The text at the start of tallies, and the tallies after it.
pub(crate) fn text_of(words: &[u64]) -> Option<(String, &[u64])> {
    let (length, words) = words.split_first()?;
    let length = usize::try_from(*length).ok()?;
    let (text, rest) = words.split_at_checked(length.div_ceil(8))?;
    let mut bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(length);
    Some((String::from_utf8(bytes).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_among_tallies() {
        for text in ["", "a", "12345678", "ä longer one"] {
            let words = [words_of(text), vec![7]].concat();
            assert_eq!(text_of(&words), Some((text.to_owned(), &[7][..])));
            assert_eq!(text_of(&words[..words.len() - 2]), None);
        }
        assert_eq!(text_of(&[]), None);
        assert_eq!(text_of(&[u64::MAX, 0]), None);
        assert_eq!(text_of(&[1, 0xff]), None);
    }
}
