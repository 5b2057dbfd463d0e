//! `reproduce echo`: the table at small scale, and refusals.

use crate::command::Place;

/// An experiment of some seconds.
const SMALL: &str = r#"name = "echo"
epochs = 1
rates = [1.0]
ratio = 6.0
[[net]]
model = "resnet20"
width = 0.1
rate = 0.05
batch = 16
echoes = ["none", "before:5", "auto"]
[[set]]
name = "demo:images"
rows = 10000
"#;

#[test]
fn the_table_has_every_condition_and_leaves_its_runs() {
    let place = Place::new();
    place.write("small.toml", SMALL);
    let table = place.json("reproduce small.toml --scale 0.01 --seeds 1 --noisy --out tables");
    let rows = table["rows"].as_array().unwrap();
    for method in ["none", "before:5", "auto"] {
        let of_method = rows.iter().filter(|row| row["method"] == method);
        assert!(of_method.count() > 4, "{method}: {table}");
    }
    let gain = |row: &&serde_json::Value| {
        row["figure"] == "time without echo over time to the target, modelled"
            && row["method"] == "before:5"
    };
    assert_eq!(rows.iter().find(gain).unwrap()["published"], 3.25);
    let raw = String::from_utf8(place.read("tables/echo-runs.csv")).unwrap();
    let measured = raw.lines().filter(|line| line.contains(",measured,"));
    assert_eq!(measured.count(), 3, "{raw}");
    let page = String::from_utf8(place.read("tables/echo.html")).unwrap();
    assert!(page.contains("<svg"));
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    let place = Place::new();
    let check = |from: &str, to: &str, parts: &[&str]| {
        place.write("wrong.toml", SMALL.replace(from, to));
        place.refuses(
            "reproduce wrong.toml --scale 0.01 --out tables --noisy",
            2,
            parts,
        );
    };
    check("\"none\", ", "", &["`echoes`", "experiments/echo.toml"]);
    check("before:5", "before:0.5", &["0.5"]);
    check("ratio = 6.0", "ratio = -1.0", &["`ratio`"]);
    check("[1.0]", "[]", &["`rates`"]);
    check("batch = 16", "batch = 0", &["a batch from 1"]);
    check("rows = 10000", "train = \"absent\"", &["no pictures"]);
    check("epochs = 1", "epoch = 1", &["wrong.toml", "epoch"]);
}
