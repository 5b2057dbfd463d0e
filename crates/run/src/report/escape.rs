//! Text from outside as HTML.

use std::fmt::{self, Write as _};

/// A text with HTML's special characters escaped when written, for content and quoted attributes. Control characters
/// that HTML forbids become the replacement character.
pub(super) fn escaped(text: &str) -> Escaped<'_> {
    Escaped(text)
}

pub(super) struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(character)?,
                _ if character.is_control() => f.write_str("\u{fffd}")?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Appends the sentence under a figure's title, if there is one.
pub(super) fn note(page: &mut String, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escaped(text));
    }
}
