//! Tokens of LIBSVM lines.

#[inline]
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

#[inline]
pub(crate) fn ends_token(byte: Option<&u8>) -> bool {
    byte.is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'#'))
}

pub(crate) fn token(line: &[u8], from: usize) -> &[u8] {
    let rest = &line[from..];
    let end = (0..rest.len()).find(|&i| ends_token(rest.get(i)));
    &rest[..end.unwrap_or(rest.len())]
}

/// Starts the query id of a row of a ranking.
pub(crate) const QUERY: &[u8] = b"qid:";

pub(crate) fn label_token(bytes: &[u8]) -> &[u8] {
    token(bytes, 0)
}
