//! Text from outside as HTML.

use std::fmt;

/// A text that is written with HTML's special characters escaped, for content and quoted attributes
/// alike. Control characters that HTML forbids become the replacement character.
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
                '\n' | '\t' => fmt::Write::write_char(f, character)?,
                _ if character.is_control() => f.write_str("\u{fffd}")?,
                _ => fmt::Write::write_char(f, character)?,
            }
        }
        Ok(())
    }
}
