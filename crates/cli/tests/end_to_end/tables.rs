//! Tables as people have them: missing cells, classes by name, no labels; and runs that miss their target.

use std::fmt::Write;

use crate::command::{Place, number};
use crate::data::{npy, random};

/// Rows of three features and one of three classes, separable by the first two features.
fn table(rows: usize, line: impl Fn([f64; 3], usize) -> String) -> String {
    let mut state = 11;
    let mut text = String::new();
    for row in 0..rows {
        let class = row % 3;
        let mut noise = || 0.3 * random(&mut state);
        let features = [
            [1.0, 0.0, -1.0][class] + noise(),
            [0.0, 1.0, 0.0][class] + noise(),
            noise(),
        ];
        writeln!(text, "{}", line(features, class)).unwrap();
    }
    text
}

const NAMES: [&str; 3] = ["Class_2", "Class_10", "none of them"];

fn named(rows: usize) -> String {
    table(rows, |[a, b, c], class| {
        format!("{a},{b},{c},{}", NAMES[class])
    })
}

#[test]
fn classes_by_name() {
    let place = Place::new();
    place.write("train.csv", named(300));
    place.write(
        "numbers.csv",
        table(300, |[a, b, c], class| format!("{a},{b},{c},{class}")),
    );
    let figures = place.json("index train.csv");
    let sorted = serde_json::json!(["Class_10", "Class_2", "none of them"]);
    assert_eq!(
        (&figures["label_names"], &figures["records"]),
        (&sorted, &300.into())
    );
    let line = "train svm train.csv --loss squared-hinge --test train.csv --target 1e-4 --bias 1";
    let figures = place.json(&format!("{line} --out run"));
    let accuracy = figures["test_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.95, "{accuracy}");
    // LIBLINEAR's format does not support names.
    assert!(!place.path("run/model.txt").exists());
    for model in ["run", "run/model.safetensors"] {
        let evaluated = place.json(&format!("eval {model} train.csv"));
        assert_eq!(
            evaluated["test_accuracy"], figures["test_accuracy"],
            "{model}"
        );
        let predicted = place.ok(&format!("predict {model} train.csv")).stdout;
        let right = predicted.lines().zip(NAMES.iter().cycle());
        let right = right.filter(|(predicted, name)| predicted == *name).count();
        assert_eq!(predicted.lines().count(), 300);
        assert!((right as f64 / 300.0 - accuracy).abs() < 1e-9, "{right}");
        // The same without the column of labels.
        place.write(
            "bare.csv",
            table(300, |[a, b, c], _| format!("{a},{b},{c}")),
        );
        let bare = place.ok(&format!("predict {model} bare.csv")).stdout;
        assert_eq!(bare, predicted);
    }
    let parts = ["numbers.csv", "line 1", "class \"0\"", "training data"];
    place.refuses("eval run numbers.csv", 2, &parts);
    place.write("other.csv", "1,0,0,Class_2\n0,1,0,Class_3\n");
    place.refuses(
        "eval run other.csv",
        2,
        &["line 2", "Class_3", "training data"],
    );
    assert_eq!(
        place.ok("predict run other.csv").stdout.lines().next(),
        Some("Class_2")
    );
    place.refuses(
        "pack train.csv -o train.prow",
        2,
        &["train.csv", "names", "--positive"],
    );

    let line = "train svm train.csv --positive Class_10 --bias 1 --out one";
    place.ok(line);
    assert!(place.path("one/model.txt").exists());
    let right = place.json("eval one train.csv")["test_accuracy"]
        .as_f64()
        .unwrap();
    assert!(right > 0.9, "{right}");
    assert_eq!(
        place.ok("predict one bare.csv").stdout.lines().nth(1),
        Some("1")
    );
    place.ok("train svm train.csv --class-weight Class_2=3 --out weighted");
    let parts = ["Class_5", "Class_10, Class_2, none of them"];
    place.refuses(
        "train svm train.csv --class-weight Class_5=3 --out x",
        2,
        &parts,
    );
    place.ok("train svm numbers.csv --out numbers");
    let parts = ["line 1", "\"Class_2\"", "column 4", "is not a number"];
    place.refuses("eval numbers train.csv", 2, &parts);
}

/// The classes of the Titanic's passengers as a spreadsheet may have them, with commas, quotes and newlines.
#[test]
fn classes_and_columns_in_quotes() {
    let place = Place::new();
    let classes = [
        "Third, or \"steerage\"",
        "First\nclass",
        "None of them, really",
    ];
    let rows = table(300, |[a, b, c], class| {
        let name = classes[class].replace('"', "\"\"");
        format!("\"{a}\", {b},\"{name}\",{c}\r")
    });
    let header = "\"fare, in pounds\",\"age\n(years)\",\"class\",\"a \"\"b\"\"\"\r\n";
    place.write("train.csv", format!("{header}{rows}"));
    let figures = place.json("index train.csv --label class");
    let sorted = serde_json::json!([classes[1], classes[2], classes[0]]);
    assert_eq!(
        (&figures["label_names"], &figures["records"]),
        (&sorted, &300.into())
    );
    let line = "train svm train.csv --label class --loss squared-hinge --test train.csv --bias 1 --out run";
    let accuracy = place.json(line)["test_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.95, "{accuracy}");
    place.write("bad.csv", format!("{header}{rows}1,2,\"First\nclass\"\n"));
    let parts = ["bad.csv", "line 403", "3 columns, but the first row has 4"];
    place.refuses("eval run bad.csv", 2, &parts);
    place.write("open.csv", format!("{header}{rows}1,\"2,x,3\n4,5,y,6\n"));
    let parts = [
        "open.csv",
        "line 403",
        "a quote opens a cell that does not end",
    ];
    place.refuses("eval run open.csv", 2, &parts);
}

#[test]
fn decimal_commas() {
    let place = Place::new();
    let with_commas = |separator: &str| {
        table(300, |row, class| {
            let [a, b, c] = row.map(|value| value.to_string().replace('.', ","));
            [a, b, c, class.to_string()].join(separator)
        })
    };
    let points = table(300, |[a, b, c], class| format!("{a},{b},{c},{class}"));
    for (name, text) in [
        ("commas.csv", with_commas(";")),
        ("bars.csv", format!("a|b|c|y\n{}", with_commas("|"))),
        (
            "quoted.csv",
            with_commas("\",\"")
                .replace('\n', "\"\n\"")
                .trim_end_matches('"')
                .to_owned(),
        ),
        ("points.csv", points),
    ] {
        let quote = if name == "quoted.csv" { "\"" } else { "" };
        place.write(name, format!("{quote}{text}"));
    }
    let line = "train svm points.csv --bias 1 --test points.csv";
    let expected = place.json(line)["test_accuracy"].clone();
    for line in [
        "train svm commas.csv --bias 1 --test points.csv",
        "train svm bars.csv --decimal , --bias 1 --test commas.csv",
        "train svm quoted.csv --decimal comma --bias 1 --test bars.csv --out run",
    ] {
        assert_eq!(place.json(line)["test_accuracy"], expected, "{line}");
    }
    // The setting of the run.
    let accuracy = &place.json("eval run bars.csv")["test_accuracy"];
    assert_eq!(*accuracy, expected);
    place.refuses("index bars.csv", 2, &["bars.csv", "--decimal", "comma"]);
    let parts = [
        "points.csv",
        "line 1",
        "with a point that may separate thousands",
    ];
    place.refuses("train svm points.csv --decimal , --out odd", 2, &parts);
}

#[test]
fn missing_cells_are_filled_in_alike_everywhere() {
    let place = Place::new();
    let holes = |row: [f64; 3], class: usize| {
        let [a, b, c] = row;
        // Many rows have missing cells, in the spellings of several programs.
        let word = ["", "NA", "nan", "null", "?", "NaN", "0.5"][(c.abs() * 1e4) as usize % 7];
        let b = if word == "0.5" {
            b.to_string()
        } else {
            word.to_string()
        };
        format!("{},{b},{c},{}", a + 5.0, class % 2)
    };
    let text = table(300, holes);
    place.write("train.csv", &text);
    place.write("first.csv", format!("1,NA,2,1\n{text}"));
    // Mean of the column's values that are present.
    let said = text.lines().map(|line| line.split(',').nth(1).unwrap());
    let said: Vec<f32> = said
        .filter_map(|cell| cell.parse().ok())
        .filter(|v: &f32| v.is_finite())
        .collect();
    let mean = said.iter().map(|v| f64::from(*v)).sum::<f64>() / said.len() as f64;
    let filled = |value: &str| -> String {
        let fill = |line: &str| {
            let mut cells: Vec<&str> = line.split(',').collect();
            if cells[1].parse::<f32>().is_ok_and(f32::is_finite) {
                return line.to_string() + "\n";
            }
            cells[1] = value;
            cells.join(",") + "\n"
        };
        text.lines().map(fill).collect()
    };
    place.write("zero.csv", filled("0"));
    place.write("mean.csv", filled(&(mean as f32).to_string()));
    let train = "train svm --seed 3 --epochs 5";
    for how in ["zero", "mean"] {
        place.ok(&format!(
            "{train} train.csv --missing {how} --test train.csv --out {how}"
        ));
        place.ok(&format!(
            "{train} {how}.csv --test {how}.csv --out by-hand-{how}"
        ));
        let text = |run: &str| String::from_utf8(place.read(&format!("{run}/model.txt"))).unwrap();
        assert_eq!(text(how), text(&format!("by-hand-{how}")), "{how}");
        // Another file is read with the replacements for missing cells of the training data.
        place.write("one.csv", "5,NA,0.1\n");
        let value = if how == "zero" { 0.0 } else { mean as f32 };
        place.write("one-filled.csv", format!("5,{value},0.1\n"));
        let line = format!("--seed 3 {how}.csv --loss logistic --out logistic-{how}");
        place.ok(&format!("train svm {line}"));
        let line = format!("train.csv --missing {how} --loss logistic --seed 3 --out holes-{how}");
        place.ok(&format!("train svm {line}"));
        let by_hand = place.ok(&format!(
            "predict logistic-{how} one-filled.csv --probabilities"
        ));
        let holes = place.ok(&format!("predict holes-{how} one.csv --probabilities"));
        assert_eq!(holes.stdout, by_hand.stdout, "{how}");
        let accuracy = |line: &str| place.json(line)["test_accuracy"].clone();
        let expected = accuracy(&format!("eval by-hand-{how} {how}.csv"));
        assert_eq!(accuracy(&format!("eval {how} train.csv")), expected);
        place.ok(&format!("pack train.csv --missing {how} -o {how}.prow"));
        place.ok(&format!("bench train.csv --missing {how} --batch 10"));
    }
    // Means come with the model; zeros must be requested again.
    place.ok("eval mean/model.safetensors train.csv");
    place.ok("eval zero/model.safetensors train.csv --missing zero");
    let parts = ["train.csv", "line", "column 2", "--missing zero"];
    place.refuses("eval zero/model.safetensors train.csv", 2, &parts);
    let parts = ["--missing mean", "model.txt", "no means"];
    place.refuses("eval mean/model.txt train.csv --missing mean", 2, &parts);
    assert_eq!(place.json("index first.csv")["records"], 301);
    let shown = place.json("inspect first.csv --missing mean --id 0");
    let entry = shown["entries"][1][1].as_f64().unwrap();
    assert!((entry - mean).abs() < 1e-6, "{shown}");
    place.write("bad.csv", format!("{text}1,x,2,1\n"));
    let parts = ["bad.csv", "line 301", "column 2", "\"x\""];
    place.refuses("train svm bad.csv --missing mean --out bad", 2, &parts);
    place.refuses(
        "index bad.csv --missing median",
        2,
        &["median", "zero, mean, flag"],
    );
}

#[test]
fn data_without_labels_is_predicted() {
    let place = Place::new();
    let rows = |with: bool| {
        table(90, |[a, b, c], class| {
            if with {
                format!("{a},{b},{c},{}", class + 1)
            } else {
                format!("{a},{b},{c}")
            }
        })
    };
    place.write("train.csv", rows(true));
    place.ok("train svm train.csv --out run");
    let expected = place.ok("predict run train.csv").stdout;
    place.write("bare.csv", rows(false));
    place.write("headed.csv", format!("a,b,c\n{}", rows(false)));
    place.write("bare.tsv", rows(false).replace(',', "\t"));
    let cells: Vec<f64> = rows(false)
        .lines()
        .flat_map(|line| line.split(',').map(|cell| cell.parse().unwrap()))
        .collect();
    place.write("bare.npy", npy(3, &cells));
    for name in ["bare.csv", "headed.csv", "bare.tsv", "bare.npy"] {
        assert_eq!(
            place.ok(&format!("predict run {name}")).stdout,
            expected,
            "{name}"
        );
        let parts = [name, "2 features", "3"];
        place.refuses(&format!("eval run {name}"), 2, &parts);
    }
    place.write("narrow.csv", "1,2\n");
    place.refuses(
        "predict run narrow.csv",
        2,
        &["narrow.csv", "features", "3"],
    );
    // If the label's column is present, it is not a feature.
    place.write("named.csv", "a,b,y\n1,2,3\n");
    place.refuses(
        "predict run named.csv --label y",
        2,
        &["named.csv", "2 features"],
    );
}

#[test]
fn query_numbers_and_comments_are_told() {
    let place = Place::new();
    let plain = table(60, |[a, b, c], class| {
        format!("{} 1:{a} 2:{b} 3:{c}", class % 2)
    });
    let mut ranking = String::from("# docid in comments\n");
    for (i, line) in plain.lines().enumerate() {
        let (label, features) = line.split_once(' ').unwrap();
        writeln!(ranking, "{label} qid:{} {features} # {i}", i / 10).unwrap();
    }
    place.write("plain", &plain);
    place.write("ranking", &ranking);
    let reported = "ranking: skipped 60 query numbers (qid) and 61 comments";
    // The second time from the saved index.
    for line in [
        "index ranking",
        "index ranking",
        "train svm ranking --out ranked",
    ] {
        let ended = place.ok(line);
        assert!(ended.stderr.contains(reported), "{line}: {}", ended.stderr);
    }
    place.ok("train svm plain --out run");
    assert!(place.read("run/model.txt") == place.read("ranked/model.txt"));
    let figures = [place.json("index plain"), place.json("index ranking")];
    assert_eq!(figures[0]["nonzeros"], figures[1]["nonzeros"]);
}

#[test]
fn models_that_contradict_themselves_are_refused() {
    let place = Place::new();
    place.write("train", "1 1:1\n-1 1:-1\n");
    place.ok("train svm train --out run");
    let good = String::from_utf8(place.read("run/model.txt")).unwrap();
    for (wrong, said) in [
        (good.replace("label 1 -1", "label 1 1"), "the label 1 twice"),
        (good.clone() + "0.5 \n", "more than the 1 lines of weights"),
        (good.replace("bias -1", "bias 1e38"), "bias 1e38"),
    ] {
        place.write("model.txt", wrong);
        for command in ["eval", "predict"] {
            let parts = ["model.txt", said];
            place.refuses(&format!("{command} model.txt train"), 2, &parts);
        }
    }
    for bias in ["1e38", "2e19", "0", "-1"] {
        let line = format!("train svm train --bias {bias} --out biased");
        place.refuses(&line, 2, &["bias", "above 0"]);
    }
    place.write("large", "3000000000 1:1\n1 1:-1\n");
    place.ok("train svm large --out large-run");
    assert!(!place.path("large-run/model.txt").exists());
}

#[test]
fn a_missed_target_is_told_by_the_exit_code() {
    let place = Place::new();
    place.libsvm("train", 400);
    let line = "train svm train --epochs 1 --blocks 8 --target 1e-9 --out run";
    let parts = ["target 1e-9 was not reached", "after 1 epochs", "--epochs"];
    place.refuses(line, 3, &parts);
    assert!(place.path("run/model.txt").exists());
    let ended = place.run(&format!("{line} --overwrite --json"));
    ended.refused(line, 3, &parts);
    assert!(ended.json()["relative_gap"].as_f64().unwrap() > 1e-9);
    let ranks = "train svm train --epochs 1 --target 1e-9 --out run --overwrite --ranks 2";
    place.refuses(ranks, 3, &["not reached"]);
    place.ok("train svm --resume --out run --target 1e-2 --epochs 300");
}

/// A realistic table, from file to predictions with its own columns.
#[test]
fn columns_of_text_from_file_to_predictions() {
    let place = Place::new();
    let mut text = "id,name,city,age,when,y\n".to_string();
    for i in 0..300 {
        let city = ["Rome", "\"Bern, CH\"", "\"said \"\"Oslo\"\"\""][i % 3];
        let age = if i % 7 == 0 {
            String::new()
        } else {
            (20 + i % 50).to_string()
        };
        let class = if i % 3 == 2 || i % 50 > 40 {
            "yes"
        } else {
            "no"
        };
        text += &format!("{i},n{i},{city},{age},2026-11-{:02},{class}\n", 1 + i % 28);
    }
    place.write("people.csv", text);
    let line =
        "train svm people.csv --label y --loss logistic --missing flag --test people.csv --out run";
    let said = place.ok(line).stderr;
    for what in [
        "id: left out: numbers the records",
        "name: left out: another text in each record",
        "city: category of 3",
        "where missing, and a feature for missing (43 missing)",
        "when: date: years, day of the week",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert!(number(&place.json("eval run people.csv"), "test_accuracy") > 0.9);
    let out = place
        .ok("predict run people.csv --keep city,id,y --scores --probabilities")
        .stdout;
    let mut lines = out.lines();
    assert_eq!(
        lines.next(),
        Some("city,id,y,label,score yes,probability no,probability yes")
    );
    let second = lines.nth(1).unwrap();
    assert!(second.starts_with("\"Bern, CH\",1,no,no,"), "{second}");
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("\"said \"\"Oslo\"\"\",2,yes,yes,")
    );
    // Columns in another order, without the label and with one more.
    place.write(
        "new.csv",
        "more,age,city,when\n9,30,Rome,2026-11-26\n8,,Paris,2026-11-27\n",
    );
    assert_eq!(place.ok("predict run new.csv").stdout.lines().count(), 2);
    place.write("lacking.csv", "age,when\n30,2026-11-26\n");
    place.refuses(
        "predict run lacking.csv",
        2,
        &["lacking.csv", "lacks the columns city"],
    );
    place.refuses(
        "predict run new.csv --keep q",
        2,
        &["new.csv", "no column \"q\" to keep"],
    );
    place.refuses(
        "eval run people.csv --column age=number",
        2,
        &["--column", "linear model is trained"],
    );
    place.refuses(
        "train svm people.csv --label y --column q=number --out x",
        2,
        &["--column", "no such column"],
    );
    place.refuses(
        "train svm people.csv --label y --column age=text:3 --out x",
        2,
        &["text:3", "hash:BITS"],
    );
}
