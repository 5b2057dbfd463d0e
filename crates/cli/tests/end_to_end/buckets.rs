//! `buckets`: policies compared on text and on tables of lengths.

use serde_json::Value;

use crate::command::{Place, number};

fn row<'a>(table: &'a Value, policy: &str) -> &'a Value {
    let rows = table["rows"].as_array().unwrap();
    let found = rows
        .iter()
        .find(|row| row["policy"].as_str().unwrap().starts_with(policy));
    found.unwrap_or_else(|| panic!("{policy}: {table}"))
}

/// Sentences of 1 to 37 words.
fn text() -> String {
    (0..3000_usize)
        .map(|i| "word ".repeat(1 + i * i % 40) + "\n")
        .collect()
}

#[test]
fn every_policy_has_its_figures_and_drops_nothing() {
    let place = Place::new();
    place.write("text", text());
    let table = place.json("buckets text --batch 16 --out lengths.svg");
    assert_eq!(table["sentences"], 3000);
    assert_eq!(table["longest"], 38);
    for policy in [
        "none",
        "static",
        "optimal:8",
        "optimal:16",
        "auto",
        "tokens",
        "pack",
    ] {
        let row = row(&table, policy);
        assert_eq!(row["dropped"], 0, "{row}");
        assert!(row["buckets"].is_u64(), "{row}");
        assert!(
            (0.0..1.0).contains(&number(row, "padded_fraction")),
            "{row}"
        );
        assert!((0.0..=1.0).contains(&number(row, "rl_exact")), "{row}");
    }
    assert!(row(&table, "published-auto")["dropped"].as_u64() > Some(0));
    let drawing = String::from_utf8(place.read("lengths.svg")).unwrap();
    assert!(drawing.contains("<svg") && drawing.contains("optimal:16"));
    let plain = place.ok("buckets text --batch 16").stdout;
    for word in ["padded", "RL*", "published-auto", "█", "|"] {
        assert!(plain.contains(word), "{word}: {plain}");
    }
}

#[test]
fn policies_can_be_named_and_lengths_come_from_tables() {
    let place = Place::new();
    place.write("table.csv", "id,length\n1,5\n2,9\n3,5\n4,20\n");
    let line =
        "buckets table.csv --column length --batch 2 --policy static:5,10 --policy optimal:3";
    let table = place.json(line);
    assert_eq!(table["rows"].as_array().unwrap().len(), 2);
    assert_eq!(row(&table, "static")["stretched"], 1);
    assert_eq!(
        row(&table, "static")["boundaries"],
        serde_json::json!([5, 20])
    );
    assert_eq!(number(row(&table, "optimal"), "padded_fraction"), 0.0);
    let by_position = place.json(&line.replace("length", "2"));
    assert_eq!(by_position["rows"], table["rows"]);
}

#[test]
fn what_cannot_be_compared_is_refused_with_a_remedy() {
    let place = Place::new();
    place.write("text", text());
    place.write("table.csv", "id,length\n1,5\n2,many\n");
    let cases: [(&str, &[&str]); 9] = [
        ("buckets text --policy autos", &["autos", "optimal:BUCKETS"]),
        ("buckets text --policy static:9,3", &["3 follows 9"]),
        ("buckets text --policy pack:0", &["pack:0", "whole number"]),
        ("buckets text --batch 0", &["--batch 1"]),
        ("buckets text --unit letters", &["letters", "bytes"]),
        (
            "buckets text --unit bytes --column 1",
            &["--unit", "--column"],
        ),
        ("buckets nothing", &["nothing", "check the path"]),
        (
            "buckets table.csv --column width",
            &["table.csv", "no column 'width'"],
        ),
        (
            "buckets table.csv --column length",
            &["table.csv", "line 3", "'many'"],
        ),
    ];
    for (line, parts) in cases {
        place.refuses(line, 2, parts);
    }
}

/// Two paired texts: the batches of `bench` match the predictions of `buckets`.
#[test]
fn pairs_of_two_texts() {
    let place = Place::new();
    let lines = |words: &dyn Fn(usize) -> usize| -> String {
        (0..2000).map(|i| "word ".repeat(words(i)) + "\n").collect()
    };
    place.write("a", lines(&|i| 1 + i * i % 23));
    place.write("b", lines(&|i| 2 + i * i % 23 + i % 5));
    let table = place.json("buckets a --pair b --batch 16");
    for (policy, most) in [
        ("none", 1.0),
        ("static", 0.5),
        ("auto", 0.1),
        ("tokens", 0.1),
    ] {
        let row = row(&table, policy);
        assert!(number(row, "padded_fraction") < most, "{row}");
        let policy = row["policy"].as_str().unwrap();
        let line = format!("bench a --pair b --decode pairs --buckets {policy} --batch 16");
        let figures = place.json(&format!("{line} --echo read:1.5:64 --ranks 2"));
        assert_eq!(figures["fresh_examples"], 2000, "{figures}");
        assert_eq!(figures["echoed_examples"], 1000, "{figures}");
        let padded = number(&place.json(&line), "padded_fraction");
        assert!(
            (padded - number(row, "padded_fraction")).abs() < 1e-9,
            "{policy}"
        );
    }
    let plain = place.ok("buckets a --pair b --policy auto").stdout;
    assert!(plain.contains("2000 pairs"), "{plain}");
    place.write("short", "one\n");
    for command in ["buckets a", "bench a --decode pairs"] {
        let line = format!("{command} --pair short");
        place.refuses(&line, 2, &["a has 2000", "short has 1"]);
    }
    place.refuses(
        "bench a --pair b --decode words",
        2,
        &["--pair", "give --decode pairs"],
    );
    place.refuses(
        "bench a --format text --decode pairs",
        2,
        &["no tab", "--decode words"],
    );
    place.refuses(
        "buckets a --policy static:3x4",
        2,
        &["one number a boundary"],
    );
}
