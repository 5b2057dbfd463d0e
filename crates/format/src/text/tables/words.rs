//! The words of a text.

/// Calls `take` with each word: a run of letters and digits, in lower case.
pub(crate) fn each_word(text: &[u8], mut take: impl FnMut(&str)) {
    let text = String::from_utf8_lossy(text);
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    let mut lower = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if word
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            take(word);
        } else {
            lower.clear();
            lower.extend(word.chars().flat_map(char::to_lowercase));
            take(&lower);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        let mut words = Vec::new();
        each_word("Braund, Mr. Owen-Ärger 2nd's".as_bytes(), |word| {
            words.push(word.to_string())
        });
        assert_eq!(words, ["braund", "mr", "owen", "ärger", "2nd", "s"]);
        each_word(b" ,; ", |word| panic!("{word}"));
    }
}
