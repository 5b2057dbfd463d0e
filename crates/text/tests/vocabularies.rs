//! Vocabularies: ids of words, round trips, and validity of files.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use pelton_text::{Ends, Special, TextError, Tokenizer, Vocabulary, VocabularyOptions, words};
use proptest::prelude::*;
use rayon::prelude::*;
use tempfile::tempdir;

const WORDS: VocabularyOptions = VocabularyOptions {
    tokenizer: Tokenizer::Whitespace,
    min_count: 1,
    max_size: None,
};
const BYTES: VocabularyOptions = VocabularyOptions {
    tokenizer: Tokenizer::Bytes,
    min_count: 1,
    max_size: None,
};

/// Tokens with their counts, in the order of their ids.
fn tokens(vocabulary: &Vocabulary) -> Vec<(String, u64)> {
    (0..vocabulary.size())
        .map(|id| {
            let token = vocabulary.token(id).unwrap();
            assert_eq!(vocabulary.id(token), id);
            let count = vocabulary.count(id).unwrap();
            (String::from_utf8_lossy(token).into_owned(), count)
        })
        .collect()
}

fn check(text: &str, options: VocabularyOptions, expected: &[(&str, u64)]) {
    let vocabulary = Vocabulary::from_sentences(text.lines(), &options).unwrap();
    let expected: Vec<_> = expected
        .iter()
        .map(|(token, count)| (token.to_string(), *count))
        .collect();
    assert_eq!(tokens(&vocabulary), expected);
    let in_memory = Vocabulary::from_text(text.as_bytes(), &options).unwrap();
    assert_eq!(tokens(&in_memory), expected);
}

#[test]
fn words_by_count_and_bytes() {
    let none = [("<pad>", 0), ("<unk>", 0), ("<bos>", 0), ("<eos>", 0)];
    check("", WORDS, &none);
    check(
        "b a c\nb  b\ta",
        WORDS,
        &[&none[..], &[("b", 3), ("a", 2), ("c", 1)]].concat(),
    );
    // A word spelled like a special token is that token; dropped words count as `<unk>`.
    let text = "<unk> z <eos> y y <unk> x";
    let specials = |unknown| [("<pad>", 0), ("<unk>", unknown), ("<bos>", 0), ("<eos>", 1)];
    check(
        text,
        WORDS,
        &[&specials(2)[..], &[("y", 2), ("x", 1), ("z", 1)]].concat(),
    );
    let twice = VocabularyOptions {
        min_count: 2,
        ..WORDS
    };
    check(text, twice, &[&specials(4)[..], &[("y", 2)]].concat());
    let six = VocabularyOptions {
        max_size: Some(6),
        ..WORDS
    };
    check(
        text,
        six,
        &[&specials(3)[..], &[("y", 2), ("x", 1)]].concat(),
    );
}

#[test]
fn a_vocabulary_has_room_for_special_tokens() {
    for options in [WORDS, BYTES] {
        let small = VocabularyOptions {
            max_size: Some(3),
            ..options
        };
        let error = Vocabulary::from_text(b"a", &small).unwrap_err();
        let what = "at most 3 tokens has no room for the 4 special ones; raise `max_size` to 4";
        assert!(error.to_string().contains(what), "{error}");
        let all = Vocabulary::from_text(b"a", &options).unwrap();
        let error = all.limited(1, Some(3)).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn limits_keep_the_most_frequent() {
    let all = Vocabulary::from_text(b"a a a b b c <unk> <eos>", &WORDS).unwrap();
    let limited = tokens(&all.limited(2, None).unwrap());
    let expected = [
        ("<pad>", 0),
        ("<unk>", 2),
        ("<bos>", 0),
        ("<eos>", 1),
        ("a", 3),
        ("b", 2),
    ];
    assert_eq!(
        limited,
        expected.map(|(token, count)| (token.to_string(), count))
    );
    let bytes = Vocabulary::from_text(b"", &BYTES).unwrap();
    assert_eq!(bytes.limited(9, Some(5)).unwrap().size(), 260);
}

#[test]
fn there_and_back() {
    let vocabulary = Vocabulary::from_text(b"the cat sat", &WORDS).unwrap();
    let mut ids = Vec::new();
    let ends = Ends {
        begin: true,
        end: true,
    };
    vocabulary.encode(b"  the <unk>\tdog \xff sat\n", ends, &mut ids);
    let [the, sat] = [&b"the"[..], b"sat"].map(|word| vocabulary.id(word));
    assert_eq!(ids, [2, the, 1, 1, 1, sat, 3]);
    let mut text = b"> ".to_vec();
    vocabulary.decode(&ids, &mut text).unwrap();
    assert_eq!(text, b"> the <unk> <unk> <unk> sat");
    let error = vocabulary.decode(&[4, 9], &mut text).unwrap_err();
    let what = "token 1 has the id 9, but the vocabulary has 7 tokens";
    assert!(error.to_string().contains(what), "{error}");
    assert!(
        error
            .to_string()
            .contains("with the vocabulary that encoded")
    );
    assert_eq!(text, b"> the <unk> <unk> <unk> sat", "as before");

    let bytes = Vocabulary::from_text(b"", &BYTES).unwrap();
    assert_eq!(bytes.size(), 260);
    let all: Vec<u8> = (0..=255).collect();
    let mut ids = Vec::new();
    bytes.encode(&all, ends, &mut ids);
    assert!(
        ids.iter()
            .copied()
            .eq([2].into_iter().chain(4..260).chain([3]))
    );
    let mut text = Vec::new();
    bytes.decode(&ids, &mut text).unwrap();
    assert_eq!(text, all);
    assert!(bytes.decode(&[260], &mut text).is_err());
    assert_eq!(bytes.id(b"A"), 4 + 65);
    assert_eq!(bytes.id(b"AB"), Special::Unknown.id());
    assert_eq!((bytes.token(260), bytes.count(70)), (None, None));
}

#[test]
fn threads_make_no_difference() {
    let sentences: Vec<String> = (0..5000_u64)
        .map(|i| format!("w{} v{}", i * i % 701, i % 13))
        .collect();
    let expected = Vocabulary::from_sentences(&sentences, &WORDS).unwrap();
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let found = pool
            .unwrap()
            .install(|| Vocabulary::from_chunks(sentences.par_chunks(7), &WORDS).unwrap());
        assert_eq!(tokens(&found), tokens(&expected));
    }
}

/// The plain method: split, a map, a sort.
fn plain(text: &[u8], options: &VocabularyOptions) -> Vec<Vec<u8>> {
    let specials = Special::ALL.map(|special| special.spelling().as_bytes());
    let mut counts: HashMap<&[u8], u64> = HashMap::new();
    for word in text.split(|byte| b" \t\n\x0b\x0c\r".contains(byte)) {
        if !word.is_empty() && !specials.contains(&word) {
            *counts.entry(word).or_default() += 1;
        }
    }
    let mut words: Vec<_> = counts.into_iter().collect();
    words.retain(|(_, count)| *count >= options.min_count);
    words.sort_by(|(a, m), (b, n)| n.cmp(m).then(a.cmp(b)));
    let words = words.into_iter().map(|(word, _)| word);
    let mut all: Vec<_> = specials
        .into_iter()
        .chain(words)
        .map(<[u8]>::to_vec)
        .collect();
    all.truncate(options.max_size.unwrap_or(u32::MAX) as usize);
    all
}

proptest! {
    #[test]
    fn any_text_as_the_plain_way(
        text in "([ab\u{e9}]{1,3}|<unk>|<pad>|[ \\n\\t\\r]){0,80}", min_count in 0u64..3, size in 4u32..12,
    ) {
        let options = VocabularyOptions { min_count, max_size: Some(size), ..WORDS };
        let text = text.as_bytes();
        let vocabulary = Vocabulary::from_text(text, &options).unwrap();
        let expected = plain(text, &options);
        let found: Vec<_> = (0..vocabulary.size())
            .map(|id| vocabulary.token(id).unwrap().to_vec())
            .collect();
        prop_assert_eq!(&found, &expected);
        let mut ids = Vec::new();
        vocabulary.encode(text, Ends::default(), &mut ids);
        let plainly: Vec<u32> = words(text)
            .map(|word| expected.iter().position(|other| other == word).unwrap_or(1) as u32)
            .collect();
        prop_assert_eq!(&ids, &plainly);
        for id in 0..vocabulary.size() {
            let times = ids.iter().filter(|other| **other == id).count() as u64;
            prop_assert_eq!(vocabulary.count(id), Some(times));
        }
        let all = Vocabulary::from_text(text, &WORDS).unwrap();
        let limited = all.limited(min_count, Some(size)).unwrap();
        prop_assert_eq!(tokens(&limited), tokens(&vocabulary));
        let file = pelton_text::raw::vocabulary_file(&vocabulary);
        let again = pelton_text::raw::load_vocabulary(&file).unwrap();
        prop_assert_eq!(tokens(&again), tokens(&vocabulary));
    }

    #[test]
    fn a_changed_byte_is_found(place in any::<prop::sample::Index>(), flip in 1u8..=255) {
        let vocabulary = Vocabulary::from_text(b"a b b c <unk>", &WORDS).unwrap();
        let mut file = pelton_text::raw::vocabulary_file(&vocabulary);
        let place = place.index(file.len());
        file[place] ^= flip;
        prop_assert!(pelton_text::raw::load_vocabulary(&file).is_none());
        file.truncate(place);
        prop_assert!(pelton_text::raw::load_vocabulary(&file).is_none());
    }
}

#[test]
fn files_and_back() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("words.vocabulary");
    let vocabulary = Vocabulary::from_text(b"b a \xff\xfe b <unk>", &WORDS).unwrap();
    for _ in 0..2 {
        vocabulary.save(&path).unwrap();
    }
    let expected =
        b"pelton-vocabulary 1\ntokenizer whitespace\ntokens 7\n0 <pad>\n1 <unk>\n0 <bos>\n\
        0 <eos>\n2 b\n1 a\n1 \xff\xfe\n";
    let file = fs::read(&path).unwrap();
    assert_eq!(file[..file.len() - 16], expected[..]);
    assert_eq!(
        tokens(&Vocabulary::load(&path).unwrap()),
        tokens(&vocabulary)
    );
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing else is left");

    let bytes = Vocabulary::from_text(b"", &BYTES).unwrap();
    bytes.save(&path).unwrap();
    let again = Vocabulary::load(&path).unwrap();
    assert_eq!((again.tokenizer(), again.size()), (Tokenizer::Bytes, 260));
}

/// The error of loading a file with `bytes`.
fn refused(bytes: impl AsRef<[u8]>) -> TextError {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, bytes).unwrap();
    let error = Vocabulary::load(&path).unwrap_err();
    assert!(error.to_string().contains("/x: "), "{error}");
    error
}

/// Checks that lines after the first, with a correct checksum, are refused with this line number and reason.
fn damaged(lines: &str, line: u64, what: &str) {
    let error = refused(pelton_text::raw::mend_vocabulary(lines.as_bytes()));
    let error = error.to_string();
    assert!(error.contains(&format!(": line {line}: ")), "{error}");
    assert!(error.contains(what), "{error}");
    assert!(error.contains("build the vocabulary again"));
}

#[test]
fn fingerprints_tell_words_and_their_numbers() {
    let of = |text: &str, options| {
        let vocabulary = Vocabulary::from_text(text.as_bytes(), &options).unwrap();
        vocabulary.fingerprint()
    };
    let ab = of("a b", WORDS);
    assert_eq!(ab, of("a a a b", WORDS), "counts do not enter it");
    let others = [
        of("b b a", WORDS),
        of("ab", WORDS),
        of("a b c", WORDS),
        of("", WORDS),
        of("a b", BYTES),
    ];
    assert!(!others.contains(&ab), "{ab:x} {others:x?}");
    assert_eq!(of("a b", BYTES), of("c", BYTES));
}

#[test]
fn files_that_are_none() {
    for bytes in [&b""[..], b"hello", b"pelton-vocabulary"] {
        let error = refused(bytes);
        assert!(error.to_string().contains("is not a vocabulary"), "{error}");
    }
    let folder = tempdir().unwrap();
    let error = Vocabulary::load(folder.path()).unwrap_err();
    assert!(error.to_string().contains("is not a vocabulary"), "{error}");
    let error = refused("pelton-vocabulary 2\n");
    let what = "version 2, and this program reads version 1";
    assert!(error.to_string().contains(what), "{error}");
}

#[test]
fn files_that_were_changed() {
    let vocabulary = Vocabulary::from_text(b"a b", &WORDS).unwrap();
    let file = pelton_text::raw::vocabulary_file(&vocabulary);
    let text = String::from_utf8(file).unwrap();
    let error = refused(text.replace("1 b", "2 b"));
    assert!(error.to_string().contains("its checksum is"), "{error}");
    let error = refused(&text[..text.len() - 1]);
    assert!(
        error
            .to_string()
            .contains("line 10: the last line is not a checksum"),
        "{error}"
    );

    let head = "tokenizer whitespace\ntokens 5\n";
    let specials = "0 <pad>\n0 <unk>\n0 <bos>\n0 <eos>\n";
    damaged("", 2, "the file ends early");
    damaged("tokenizer words\n", 2, "expected `tokenizer");
    damaged("tokenizer whitespace\ntokens 05\n", 3, "expected `tokens`");
    damaged("tokenizer bytes\ntokens 256\n", 3, "bytes are 260");
    damaged("tokenizer bytes\ntokens 260\n1 a\n", 4, "more tokens");
    damaged("tokenizer whitespace\ntokens 3\n", 3, "not as many lines");
    let huge = "tokenizer whitespace\ntokens 18446744073709551615\n";
    damaged(huge, 3, "not as many lines");
    damaged(
        &format!("{head}0 <unk>\n0 <unk>\n0 <bos>\n0 <eos>\n"),
        4,
        "special",
    );
    damaged(&format!("{head}{specials}1 a b\n"), 8, "expected a count");
    damaged(&format!("{head}{specials}1  \n"), 8, "expected a count");
    damaged(&format!("{head}{specials}-1 a\n"), 8, "expected a count");
    damaged(&format!("{head}{specials}0 abc\n"), 8, "not in order");
    damaged(&format!("{head}{specials}9 <unk>\n"), 8, "come before");
    damaged(&format!("{head}{specials}1 a\n1 b\n"), 9, "more tokens");
    damaged(
        &format!("{head}{specials}1 a").replace('5', "6"),
        8,
        "ends early",
    );
    let six = head.replace('5', "6");
    damaged(&format!("{six}{specials}1 b\n1 a\n"), 9, "not in order");
    damaged(&format!("{six}{specials}1 b\n1 b\n"), 9, "not in order");
    damaged(&format!("{six}{specials}2 b\n1 b\n"), 9, "come before");
}

#[test]
fn paths_that_cannot_be_read_or_written() {
    let folder = tempdir().unwrap();
    let absent = folder.path().join("absent");
    let error = Vocabulary::load(&absent).unwrap_err();
    assert!(
        error.to_string().contains("absent: no such file or folder"),
        "{error}"
    );
    let vocabulary = Vocabulary::from_text(b"", &WORDS).unwrap();
    for path in [
        absent.join("x"),
        folder.path().to_path_buf(),
        PathBuf::from("/dev/null"),
    ] {
        let error = vocabulary.save(&path).unwrap_err();
        assert!(matches!(error, TextError::Storage(_)), "{error}");
        assert!(error.to_string().contains("check the path"), "{error}");
    }
    // A file of zeros takes no space on disk at any size.
    let large = folder.path().join("large");
    fs::File::create(&large).unwrap().set_len(1 << 33).unwrap();
    let error = Vocabulary::load(&large).unwrap_err();
    let what = "its 8589934592 bytes are more than";
    assert!(error.to_string().contains(what), "{error}");
}

#[test]
fn listed_words_have_the_numbers_of_their_places() {
    let of = |words: &[&str]| Vocabulary::from_words(words).map_err(|error| error.to_string());
    let plain = of(&["the", "cat"]).unwrap();
    assert_eq!(
        (
            plain.size(),
            plain.id(b"the"),
            plain.id(b"cat"),
            plain.id(b"dog")
        ),
        (6, 4, 5, 1)
    );
    let whole = of(&["<pad>", "<unk>", "<bos>", "<eos>", "the", "cat"]).unwrap();
    assert_eq!(whole.fingerprint(), plain.fingerprint());
    for (words, said) in [
        (
            &["a", "b", "a"][..],
            "word 2 of the list, \"a\", appears twice",
        ),
        (&["a", "<unk>"], "word 1 of the list, \"<unk>\""),
        (&["a b"], "has white space"),
        (&[""], "is empty"),
    ] {
        let error = of(words).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}
