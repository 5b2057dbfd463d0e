//! What messages show of what was found.

/// At most 40 characters of a token, for a message.
#[cold]
pub(crate) fn excerpt(token: &[u8]) -> String {
    let start = &token[..token.len().min(160)];
    let mut short: String = String::from_utf8_lossy(start).chars().take(40).collect();
    if short.len() < token.len() {
        short.push('…');
    }
    short
}
