//! `vocabulary` counts words and writes those that get ids; `bench --decode words` reads such a file, or counts once
//! and caches the counts.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::command::{Place, number};

/// `a` occurs 4 times, `b` 3 times, `c` twice and `d` once, `<unk>` once.
const TEXT: &str = "a b c d\na b c\n\na b <unk>\na\n";

/// The vocabularies in the cache folder.
fn kept(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.path("cache")).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".pelton-vocabulary"))
        .collect();
    found.sort();
    found
}

/// A run's log of its vocabulary.
fn logged(place: &Place, line: &str) -> String {
    let mut command = place.command(line);
    let output = command.env("PELTON_LOG", "pelton_data=info").output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn words_are_counted_and_limited() {
    let place = Place::new();
    place.write("text", TEXT);
    let figures = place.json("vocabulary text --format text --out v");
    assert_eq!(
        (&figures["size"], &figures["kept_words"], &figures["words"]),
        (&json!(8), &json!(4), &json!(4))
    );
    assert_eq!(figures["tokens"], 11);
    assert_eq!(figures["covered_tokens"], 10);
    assert_eq!(number(&figures, "coverage"), 10.0 / 11.0);
    assert_eq!(figures["unknown_token"], "<unk>");
    assert_eq!(figures["unknown_tokens"], 1);
    assert_eq!(
        figures["top"][1],
        json!({ "word": "b", "id": 5, "count": 3 })
    );
    let file = String::from_utf8(place.read("v")).unwrap();
    assert!(file.starts_with("pelton-vocabulary 1\ntokenizer whitespace\ntokens 8\n"));
    assert!(file.contains("\n4 a\n3 b\n2 c\n1 d\ncrc32c "), "{file}");

    let figures = place.json("vocabulary text --format text --out v --overwrite --min-count 2");
    assert_eq!(figures["kept_words"], 3);
    assert_eq!(figures["unknown_tokens"], 2);
    let figures = place.json("vocabulary text --format text --out v --overwrite --max-size 6");
    assert_eq!(
        (&figures["size"], &figures["words"]),
        (&6.into(), &4.into())
    );
    assert_eq!(figures["covered_tokens"], 7);

    let plain = place
        .ok("vocabulary text --format text --out v --overwrite")
        .stdout;
    assert!(
        plain.starts_with("8 tokens, 4 of them for words, in v\n"),
        "{plain}"
    );
    assert!(
        plain.contains("11 words, 4 of them different: the vocabulary covers 90.91 %"),
        "{plain}"
    );
    assert!(plain.contains("1 others become <unk>, index 1"), "{plain}");
    assert_eq!(kept(&place).len(), 1, "counted once for all of these");
}

#[test]
fn a_terminal_gets_no_commands() {
    let place = Place::new();
    place.write("text", b"\x1b[2J \xff\xfe \x1b[2J\n");
    let plain = place.ok("vocabulary text --format text --out v").stdout;
    assert!(plain.contains("\u{fffd}[2J"), "{plain:?}");
    assert!(!plain.contains('\x1b'), "{plain:?}");
    let figures = place.json("vocabulary text --format text --out w");
    assert_eq!(figures["top"][0]["word"], "\u{1b}[2J");
}

#[test]
fn many_files_and_tar_samples() {
    let place = Place::new();
    place.write("a", "one two\n");
    place.write("b", "two three two\n");
    let figures = place.json("vocabulary a b --format text --out v");
    assert_eq!(
        figures["top"][0],
        json!({ "word": "two", "id": 4, "count": 3 })
    );
    assert_eq!(figures["tokens"], 5);

    place.write("1.txt", "a red dot");
    place.write("1.jpg", "no words here");
    place.write("2.txt", "a dot");
    place
        .shell("tar cf x.tar 1.txt 1.jpg 2.txt; tar cf y.tar 1.jpg")
        .succeeded("tar");
    let figures = place.json("vocabulary x.tar --out x");
    assert_eq!(
        (&figures["words"], &figures["tokens"]),
        (&3.into(), &5.into())
    );
    place.ok("bench x.tar --decode words --collate pad --vocabulary x --batch 2");
    for line in [
        "vocabulary y.tar --out w",
        "bench y.tar --decode words --batch 1",
    ] {
        place.refuses(line, 2, &["y.tar", "no sample has a .txt member"]);
    }
    // Pictures among the texts do not exceed the memory of the pass.
    place.write("3.txt", "a dot");
    place.write("3.jpg", vec![7; 3 << 20]);
    place
        .shell("tar cf large.tar 1.txt 1.jpg 2.txt 3.txt 3.jpg")
        .succeeded("tar");
    let figures = place.json("vocabulary large.tar --out large");
    assert_eq!(figures["tokens"], 7);
}

#[test]
fn a_pipeline_takes_the_vocabulary_it_is_given() {
    let place = Place::new();
    place.write("text", TEXT);
    place.ok("vocabulary text --format text --out all");
    place.ok("vocabulary text --format text --out few --max-size 4");
    let line = "bench text --format text --decode words --order sequential --batch 8";
    let sum = |flags: &str| number(&place.json(&format!("{line} {flags}")), "checksum");
    // The first id in the only batch: that of `a`, or of `<unk>`.
    assert_eq!(sum("--vocabulary all"), 4.0);
    assert_eq!(sum("--vocabulary few"), 1.0);
    assert_eq!(sum(""), 4.0);

    let broken = place.read("all");
    place.write("broken", &broken[..broken.len() - 20]);
    place.write("other", "hello\n");
    for (file, parts) in [
        ("broken", ["broken: line ", "the file was cut or changed"]),
        ("other", ["other: is not a vocabulary", "pelton vocabulary"]),
        ("absent", ["absent: no such file", "check the path"]),
        (".", [".: is not a vocabulary", "pelton vocabulary"]),
    ] {
        place.refuses(&format!("{line} --vocabulary {file}"), 2, &parts);
    }
    let other = line.replace("words", "bytes");
    place.refuses(
        &format!("{other} --vocabulary all"),
        2,
        &[
            "all: is a vocabulary of words",
            "asks for bytes",
            "--decode words",
        ],
    );
    let other = line.replace("words", "none");
    place.refuses(
        &format!("{other} --vocabulary all"),
        2,
        &["--vocabulary all", "--decode none", "leave it out"],
    );
    place.refuses(
        "bench text --format text --vocabulary all",
        2,
        &["--decode"],
    );
}

/// A run resumes only with its initial vocabulary, from any file.
#[test]
fn a_run_does_not_go_on_with_another_vocabulary() {
    let place = Place::new();
    place.write("text", TEXT.repeat(20));
    place.ok("vocabulary text --format text --out all");
    place.ok("vocabulary text --format text --out frequent --max-size 6");
    let line = "bench text --format text --batch 8 --state s --decode words";
    place.ok(&format!("{line} --vocabulary all"));
    place.ok(&format!("{line} --epochs 2"));
    place.refuses(
        &format!("{line} --epochs 3 --vocabulary frequent"),
        2,
        &[
            "s: ",
            "it was saved with other stages: the vocabulary",
            "start again",
        ],
    );
    place.refuses(
        "bench text --format text --batch 8 --state s --epochs 3",
        2,
        &["s: ", "a stage that it was saved with is missing"],
    );
}

#[test]
fn what_was_counted_is_kept() {
    let place = Place::new();
    place.write("text", TEXT);
    let line = "bench text --format text --decode words --batch 2";
    assert!(logged(&place, line).contains("counted and saved the vocabulary"));
    let [file] = &kept(&place)[..] else {
        panic!("one vocabulary is kept: {:?}", kept(&place));
    };
    let sound = fs::read(file).unwrap();
    let again = logged(&place, line);
    assert!(again.contains("read the saved vocabulary"), "{again}");
    assert!(!again.contains("vocabulary counted"), "{again}");
    // The cached vocabulary is an ordinary file.
    place.ok(&format!("{line} --vocabulary {}", file.display()));
    let taken = logged(&place, "vocabulary text --format text --out v");
    assert!(taken.contains("read the saved vocabulary"), "{taken}");

    for damage in [&b""[..], b"hello", &sound[..sound.len() - 3]] {
        fs::write(file, damage).unwrap();
        assert!(logged(&place, line).contains("counted and saved the vocabulary"));
        assert!(fs::read(file).unwrap() == sound);
    }

    place.write("text", TEXT.replace('d', "e"));
    assert!(logged(&place, line).contains("counted and saved the vocabulary"));
    assert_eq!(
        kept(&place).len(),
        2,
        "changed data has a vocabulary of its own"
    );
}

#[test]
fn a_cache_that_cannot_be_written_is_told_of() {
    let place = Place::new();
    place.write("text", TEXT);
    place.write("cache", "in the way");
    let ended = place.ok("bench text --format text --decode words --batch 2");
    assert!(
        ended.stderr.contains("the vocabulary cannot be saved"),
        "{}",
        ended.stderr
    );
}

#[test]
fn ranks_share_one_count() {
    let place = Place::new();
    place.write("text", TEXT.repeat(50));
    let line = "bench text --format text --decode words --batch 4 --ranks 3";
    let said = logged(&place, line);
    assert_eq!(
        said.matches("counted and saved the vocabulary").count(),
        1,
        "{said}"
    );
    assert_eq!(
        said.matches("read the saved vocabulary").count(),
        2,
        "{said}"
    );
}

#[test]
fn what_cannot_be_counted_or_written() {
    let place = Place::new();
    place.write("text", TEXT);
    place.write("rows", "1 1:1\n-1 2:1\n");
    place.write("other", "hello\n");
    for (line, parts) in [
        (
            "text --format text --out text",
            ["text: would replace", "name another file"],
        ),
        (
            "text --format text --out other",
            ["other: exists", "--overwrite"],
        ),
        (
            "text --format text --out .",
            [".: is a folder", "name a file in it"],
        ),
        (
            "text --format text --out absent/v",
            ["absent/v: its folder does not exist", "existing folder"],
        ),
        (
            "text --format text --out v --max-size 3",
            ["at most 3 tokens", "--max-size"],
        ),
        (
            "text --format text --out v --max-size -3",
            ["--max-size", "from 0 to 4294967295"],
        ),
        (
            "text --format text --out v --min-count -3",
            ["--min-count", "0 or more"],
        ),
        (
            "text --format text --out v --min-count x",
            ["--min-count", "0 or more"],
        ),
        ("absent --out v", ["absent", "no such file"]),
        (
            "rows --out v",
            [
                "rows: has no text: its records are features",
                "--format text",
            ],
        ),
        ("text --format text", ["--out", "required"]),
    ] {
        place.refuses(&format!("vocabulary {line}"), 2, &parts);
        assert!(!place.path("v").exists(), "{line}");
    }
    assert_eq!(place.read("text"), TEXT.as_bytes());
    assert_eq!(place.read("other"), b"hello\n");
}
