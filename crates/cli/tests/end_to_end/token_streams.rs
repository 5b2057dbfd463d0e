//! Text and bytes as one stream: `index` reports how its records are located, `inspect` shows them, `bench` reads them,
//! and an invalid format is refused in one sentence.

use crate::command::Place;

#[test]
fn index_counts_tokens() {
    let place = Place::new();
    place.write("words.txt", " the cat\n\nsat on the mat\n");
    let figures = place.json("index words.txt --format tokens:3");
    assert_eq!(figures["records"], 3);
    assert_eq!(figures["source"], "built");
    assert_eq!(figures["contents"], "runs of 3 tokens of text");
    assert_eq!(figures["files"][0]["format"], "tokens:3");
    assert_eq!(figures["bytes"], 24);
    let again = place.json("index words.txt --format tokens:3");
    assert_eq!(again["source"], "sidecar");
    let other = place.json("index words.txt --format tokens:4");
    assert_eq!(
        (&other["source"], &other["records"]),
        (&"built".into(), &3.into())
    );
    let plain = place.ok("index words.txt --format tokens:4").stdout;
    assert!(
        plain.contains("found by a list of starts, from a count of words and line ends"),
        "{plain}"
    );
}

#[test]
fn index_cuts_bytes_by_arithmetic() {
    let place = Place::new();
    place.write("x.bin", b"\0\x01\x02\x03\x04\x05\x06");
    let figures = place.json("index x.bin --format bytes:3");
    assert_eq!(figures["records"], 3);
    assert_eq!(figures["source"], "arithmetic");
    assert_eq!(figures["index_bytes"], 0);
    assert_eq!(figures["contents"], "runs of 3 bytes");
    let plain = place.ok("index x.bin --format bytes:3").stdout;
    assert!(
        plain.contains("found by arithmetic: 3 bytes each, and the last one shorter"),
        "{plain}"
    );
    let sidecar = place.path("x.bin.pelton-index");
    assert!(!sidecar.exists(), "nothing is kept");
}

#[test]
fn inspect_shows_a_run() {
    let place = Place::new();
    place.write("words.txt", " the cat\n\nsat on the mat\n");
    let view = place.json("inspect words.txt --format tokens:3 --id 1");
    assert_eq!(view["text"], "\nsat on ");
    assert_eq!((&view["offset"], &view["length"]), (&9.into(), &8.into()));
    let plain = place.ok("inspect words.txt --format tokens:3").stdout;
    assert!(plain.contains("text: the cat\n"), "{plain}");

    let view = place.json("inspect words.txt --format bytes:10 --id 2");
    assert_eq!(view["text"], " mat");
    assert_eq!(view["length"], 5);
    place.write("x.bin", b"\0\x01\x02");
    let view = place.json("inspect x.bin --format bytes:2");
    assert!(view["text"].is_null(), "{view}");
    place.refuses(
        "inspect x.bin --format bytes:2 --id 2",
        2,
        &["--id 2", "has 2 records"],
    );
}

#[test]
fn bench_reads_every_run() {
    let place = Place::new();
    place.write("words.txt", "a few words of no great use\n".repeat(500));
    for format in ["tokens:35", "bytes:1001"] {
        let records = place.json(&format!("index words.txt --format {format}"))["records"].clone();
        let report = place.json(&format!("bench words.txt --format {format} --batch 8"));
        assert_eq!(report["examples"], records, "{report}");
    }
}

#[test]
fn formats_and_files_that_are_none() {
    let place = Place::new();
    place.write("words.txt", "a b c\n");
    for format in ["tokens", "tokens:0", "tokens:x", "bytes:-3", "lines:3"] {
        place.refuses(
            &format!("index words.txt --format {format}"),
            2,
            &["--format", format, "tokens:LENGTH", "bytes:LENGTH"],
        );
    }
    place.write("empty.txt", "");
    place.write("blank.txt", "  \t ");
    for name in ["empty.txt", "blank.txt"] {
        place.refuses(
            &format!("index {name} --format tokens:35"),
            2,
            &[name, "holds no records"],
        );
    }
    place.refuses(
        "train linear words.txt --format tokens:35 --out run",
        2,
        &["words.txt", "tokens", "no features"],
    );
}
