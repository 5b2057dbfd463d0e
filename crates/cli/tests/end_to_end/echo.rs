//! `reproduce echo`: the table at small scale, and what it refuses.

use crate::command::Place;

/// An experiment that takes a second.
const SMALL: &str = "name = \"echo\"\nepochs = 1\nbatches = [32]\nfactors = [1, 5]\nrates = [0.02]\n\
                     ratio = 6.0\nstep_ms = 1.0\n[[set]]\nname = \"blots\"\nrows = 10000\n";

#[test]
fn the_table_has_every_condition_and_leaves_its_runs() {
    let place = Place::new();
    place.write("small.toml", SMALL);
    let table = place.json("reproduce small.toml --scale 0.01 --seeds 1 --out tables");
    let rows = table["rows"].as_array().unwrap();
    for method in [
        "e = 1",
        "e = 5, before augmentation",
        "e = 2, after augmentation",
        "e = 2, batches",
        "auto, before augmentation",
    ] {
        let of_method = rows.iter().filter(|row| row["method"] == method);
        assert_eq!(of_method.count(), 8, "{method}: {table}");
    }
    let gain = |row: &&serde_json::Value| {
        row["figure"] == "time of e = 1 over time to the target"
            && row["method"] == "e = 5, before augmentation"
    };
    assert_eq!(rows.iter().find(gain).unwrap()["published"], 3.25);
    let raw = String::from_utf8(place.read("tables/echo-runs.csv")).unwrap();
    let measured = raw.lines().filter(|line| line.contains(",measured,"));
    assert_eq!(measured.count(), 5, "{raw}");
    let page = String::from_utf8(place.read("tables/echo.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("seconds to the target"));
    // Generated pictures are there already, and give the same target.
    let again = place.ok("reproduce small.toml --scale 0.01 --seeds 1 --out tables");
    for word in ["published", "are generated", "target: accuracy"] {
        assert!(again.stdout.contains(word), "{word}: {}", again.stdout);
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    let place = Place::new();
    let check = |from: &str, to: &str, parts: &[&str]| {
        place.write("wrong.toml", SMALL.replace(from, to));
        place.refuses("reproduce wrong.toml --scale 0.01 --out tables", 2, parts);
    };
    check("[1, 5]", "[2, 5]", &["`factors`", "experiments/echo.toml"]);
    check("[1, 5]", "[1, 0.5]", &["0.5"]);
    check("ratio = 6.0", "ratio = -1.0", &["`ratio`"]);
    check("[0.02]", "[]", &["`rates`"]);
    check("[32]", "[0]", &["`batches`"]);
    check("rows = 10000", "train = \"absent\"", &["no pictures"]);
    check("epochs = 1", "epoch = 1", &["wrong.toml", "epoch"]);
}
