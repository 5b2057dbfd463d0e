//! The commands on the pages about nets run, on less data, and reach the figures that the pages claim.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::command::{Place, number};
use crate::data::random;

/// Texts in the pages' commands with smaller replacements. [`files`] writes the other files.
const SMALLER: [(&str, &str); 7] = [
    ("demo:classes:100000", "demo:classes:500:16:32"),
    ("vectors.npz", "demo:classes:200:16:32"),
    // A batch has nearly all of few classes.
    ("idx --head knn", "idx --head knn:3:1"),
    ("--head knn --grow", "--head knn:10:1 --grow"),
    ("--head sampled:0.2", "--head sampled:1"),
    ("--model resnet20", "--model resnet20 --width 0.25"),
    (
        "ptb.train.txt --validation",
        "ptb.train.txt --hidden 32 --epochs 10 --batch 8 --validation",
    ),
];

/// Runs the commands of a page in order. `bound` gives a figure of each training and its bound: a minimum, or for
/// perplexity a maximum.
#[track_caller]
fn check(page: &str, commands: usize, bound: impl Fn(&str) -> (&'static str, f64)) {
    let place = Place::new();
    files(&place);
    let page = page.replace("\\\n", " ");
    let lines = page.lines().filter(|line| line.starts_with("pelton "));
    let lines: Vec<&str> = lines
        .map(|line| line.strip_prefix("pelton ").expect("it begins so"))
        .collect();
    assert_eq!(lines.len(), commands, "{lines:#?}");
    for shown in lines {
        let line = SMALLER
            .iter()
            .fold(shown.to_string(), |line, (from, to)| line.replace(from, to));
        if !line.starts_with("train ") {
            place.shell(&format!("$PELTON {line}")).succeeded(&line);
            continue;
        }
        let figures = place.json(&format!("{line} --overwrite"));
        let (figure, bound) = bound(shown);
        let reached = number(&figures, figure);
        let is_met = match figure {
            "test_perplexity" => reached <= bound,
            _ => reached >= bound,
        };
        assert!(is_met, "{shown}: {figure} {reached}, and not {bound}");
    }
}

/// Pictures in five classes and sentences, under the names of the pages.
fn files(place: &Place) {
    for (images, labels, count) in [
        (
            "train-images-idx3-ubyte.gz",
            "train-labels-idx1-ubyte.gz",
            400,
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            "t10k-labels-idx1-ubyte.gz",
            100,
        ),
        ("glyphs-train-images.idx", "glyphs-train-labels.idx", 400),
        ("glyphs-test-images.idx", "glyphs-test-labels.idx", 100),
    ] {
        let mut state = count.into();
        let size = |bytes: &mut Vec<u8>, size: u32| bytes.extend(size.to_be_bytes());
        let (mut pixels, mut classes) = (vec![0, 0, 8, 3], vec![0, 0, 8, 1]);
        for length in [count, 28, 28] {
            size(&mut pixels, length);
        }
        size(&mut classes, count);
        for image in 0..count {
            let class = image % 5;
            classes.push(class as u8);
            // A bright band, distinct under flips and small shifts.
            pixels.extend((0..28 * 28).map(|pixel| {
                let bright = if pixel / 28 / 6 == class { 160.0 } else { 40.0 };
                (bright + 40.0 * random(&mut state)) as u8
            }));
        }
        for (name, bytes) in [(images, pixels), (labels, classes)] {
            let bytes = if name.ends_with(".gz") {
                let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
                packed.write_all(&bytes).unwrap();
                packed.finish().unwrap()
            } else {
                bytes
            };
            place.write(name, bytes);
        }
    }
    for (name, records) in [("train", 600), ("test", 100)] {
        // Two labels, each with a feature of its own.
        let line = |i: usize| {
            let [first, second] = [i % 9, 9 + i % 7];
            format!(
                "{first},{second} {first}:1 {second}:1 {}:0.5\n",
                20 + i % 19
            )
        };
        let lines: String = (0..records).map(line).collect();
        let text = format!("{records} 40 16\n{lines}");
        place.write(&format!("delicious.{name}.txt"), text);
    }
    for (name, sentences) in [("train", 600), ("valid", 50), ("test", 50)] {
        // Each word but the first follows from the previous one; the pages have a prompt of these three.
        let word = |number: usize| match number {
            0 => "the".to_string(),
            1 => "company".to_string(),
            2 => "said".to_string(),
            _ => format!("w{number}"),
        };
        let sentence = |i: usize| -> String {
            let words = (0..4 + i % 5).map(|at| word((7 * i + at) % 40));
            words.collect::<Vec<String>>().join(" ") + "\n"
        };
        let text: String = (0..sentences).map(sentence).collect();
        place.write(&format!("ptb.{name}.txt"), text);
    }
}

#[test]
fn commands_of_heads_reach_what_they_are_shown_for() {
    check(include_str!("../../../../docs/classes.md"), 6, |line| {
        // With 500, 200 and 5 classes.
        let floor = match line {
            _ if line.contains("--grow") => 0.5,
            _ if line.contains("demo:classes") => 0.5,
            _ if line.contains("vectors.npz") => 0.5,
            _ => 0.8,
        };
        ("test_accuracy", floor)
    });
}

#[test]
fn commands_of_nets_reach_what_they_are_shown_for() {
    check(include_str!("../../../../docs/nets.md"), 6, |line| {
        if line.starts_with("train language") {
            // Of 40 words and the end; nearly all follow from the previous word.
            ("test_perplexity", 15.0)
        } else {
            ("test_accuracy", 0.8)
        }
    });
}
