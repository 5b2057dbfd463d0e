//! Addresses such as `https://HOST/FILE` as messages and files show them: without user name, password and query, which
//! may be keys.

use std::borrow::Cow;

/// Ends an address in a text.
const ENDS: &[char] = &['"', '\'', '`', '<', '>', '|', '\\'];

/// The address of a file without user name, password and query; other names unchanged.
pub fn shown_address(name: &str) -> Cow<'_, str> {
    match start_of(name) {
        Some(start) if start.scheme.len() + 3 == start.end => Cow::Owned(shown(&start, name)),
        _ => Cow::Borrowed(name),
    }
}

/// A text with its addresses shown like this; borrowed if none has a secret.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut rest = text;
    let mut shown_text = String::new();
    while let Some(start) = start_of(rest) {
        let ends = |c: char| c.is_whitespace() || ENDS.contains(&c);
        let end = rest[start.end..].find(ends);
        let end = end.map_or(rest.len(), |end| start.end + end);
        // Punctuation after an address in a sentence.
        let address = rest[..end].trim_end_matches([':', ',', ';', '.', ')', ']', '}']);
        let end = address.len().max(start.end);
        shown_text += &shown(&start, &rest[..end]);
        rest = &rest[end..];
    }
    shown_text += rest;
    if shown_text == text {
        return Cow::Borrowed(text);
    }
    Cow::Owned(shown_text)
}

/// The start of an address in a text.
struct Start<'a> {
    scheme: &'a str,
    /// The start of its authority.
    end: usize,
}

fn start_of(text: &str) -> Option<Start<'_>> {
    let mut from = 0;
    loop {
        let colon = from + text[from..].find("://")?;
        let before = &text[..colon];
        let scheme = before
            .trim_end_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        let end = colon + 3;
        if scheme.len() < colon {
            let scheme = &text[scheme.len()..colon];
            return Some(Start { scheme, end });
        }
        from = end;
    }
}

/// The text up to the end of an address, which is its last word.
fn shown(start: &Start<'_>, text: &str) -> String {
    let (before, address) = text.split_at(start.end);
    let is = |schemes: &[&str]| {
        schemes
            .iter()
            .any(|one| one.eq_ignore_ascii_case(start.scheme))
    };
    // In other schemes `?` may be a wildcard.
    let is_web = is(&["http", "https"]);
    let query = address.find(if is_web { &['?', '#'] } else { &['?'][..] });
    let query = query.filter(|at| is_web || address[*at..].contains('='));
    let address = &address[..query.unwrap_or(address.len())];
    let authority = address.find(['/', '#']).unwrap_or(address.len());
    let user = match address[..authority].rfind('@') {
        // A container of an account.
        Some(at) if is(&["abfs", "abfss"]) && !address[..at].contains(':') => None,
        Some(at) => Some(at),
        // A password with a slash, not a port.
        None => match address[..authority].split_once(':') {
            Some((_, port)) if port.bytes().any(|byte| !byte.is_ascii_digit()) => {
                address.rfind('@')
            }
            _ => None,
        },
    };
    format!("{before}{}", &address[user.map_or(0, |at| at + 1)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_files() {
        for (given, expected) in [
            ("https://u:p@h:80/a.tar?X-Sig=a b", "https://h:80/a.tar"),
            ("https://u:p/q@h/a", "https://h/a"),
            ("HTTP://u@h", "HTTP://h"),
            ("https://h/@u/a@2.png#part", "https://h/@u/a@2.png"),
            ("s3://b/a?[0-9].tar", "s3://b/a?[0-9].tar"),
            ("az://c/a.tar?sv=1&sig=x", "az://c/a.tar"),
            ("abfss://c@account.dfs/a", "abfss://c@account.dfs/a"),
            ("ftp://u:p@h/a", "ftp://h/a"),
            ("data/a?b=c@d", "data/a?b=c@d"),
            ("demo:higgs", "demo:higgs"),
            ("://u@h?a=b", "://u@h?a=b"),
            ("a b://u@h?a=b", "a b://u@h?a=b"),
        ] {
            assert_eq!(shown_address(given), expected);
        }
    }

    #[test]
    fn addresses_in_texts() {
        for (given, expected) in [
            ("https://u:p@h/a?k=1: no; try", "https://h/a: no; try"),
            (
                "paths = [\"https://u:p@h/a?k=1\", \"s3://b/c\"]",
                "paths = [\"https://h/a\", \"s3://b/c\"]",
            ),
            ("(ftp://u@h/a), http://h?x", "(ftp://h/a), http://h"),
            ("nothing: here", "nothing: here"),
            ("a :// b", "a :// b"),
        ] {
            assert_eq!(without_secrets(given), expected);
        }
    }
}
