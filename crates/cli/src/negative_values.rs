//! Values that begin with a hyphen and a digit, such as `-1,2` or `-1MiB`.
//!
//! The parser treats them as flags unless they are plain numbers, and then complains about an unknown flag
//! `-1`. None of our flags begins like that: such a word after a flag is its value, and the flag's own parser
//! reports errors in it. Letting single flags take any value with a hyphen was rejected: `--memory --json`
//! would then read `--json` as a size.

use std::ffi::OsString;

/// The words of a command line, with each such value joined to its flag: `--mix=-1,2`.
pub fn joined(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    let mut are_paths = false;
    for word in words {
        match all.last_mut() {
            Some(flag) if !are_paths && is_flag(flag) && is_negative(&word) => {
                flag.push("=");
                flag.push(&word);
            }
            _ => {
                are_paths |= word == "--";
                all.push(word);
            }
        }
    }
    all
}

fn is_flag(word: &OsString) -> bool {
    let bytes = word.as_encoded_bytes();
    bytes.len() > 2 && bytes.starts_with(b"--") && !bytes.contains(&b'=')
}

fn is_negative(word: &OsString) -> bool {
    matches!(
        word.as_encoded_bytes(),
        [b'-', b'0'..=b'9', ..] | [b'-', b'.', b'0'..=b'9', ..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[&str]) {
        let words = line.split(' ').map(OsString::from);
        assert_eq!(joined(words), expected);
    }

    #[test]
    fn values_go_to_their_flags() {
        check(
            "bench x --mix -1,2 --json",
            &["bench", "x", "--mix=-1,2", "--json"],
        );
        check("--size -1MiB", &["--size=-1MiB"]);
        check("--cost -.5", &["--cost=-.5"]);
        check(
            "--weight -1=-2 --seed 3",
            &["--weight=-1=-2", "--seed", "3"],
        );
    }

    #[test]
    fn all_else_stays() {
        for line in [
            "--memory --json",
            "-o -1",
            "x -1",
            "--mix=1 -1",
            "--out -x",
            "-- --mix -1",
            "--mix",
        ] {
            check(line, &line.split(' ').collect::<Vec<_>>());
        }
    }
}
