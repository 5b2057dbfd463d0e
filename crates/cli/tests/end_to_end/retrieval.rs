//! Features of a run of `train classify` on unseen classes: written to a file, retrieved, verified.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Ended, Place, number, wait_for_handler};

/// Rows around a separate direction for each label; labels alternate.
fn rows(labels: &[(&str, usize)], count: usize) -> String {
    let row = |i: usize| {
        let (label, direction) = labels[i % labels.len()];
        let number = |j: usize| {
            let noise = (i * 7 + j * 5) % 11;
            (if j == direction { 4.0 } else { 0.0 }) + noise as f64 / 20.0
        };
        let numbers: Vec<String> = (0..6).map(|j| number(j).to_string()).collect();
        format!("{},{label}\n", numbers.join(","))
    };
    (0..count).map(row).collect()
}

/// A folder with a run and data of other classes, 30 rows of three and one of a fourth.
fn trained() -> Place {
    let place = Place::new();
    place.write("train.csv", rows(&[("a", 0), ("b", 1), ("c", 2)], 30));
    let line =
        "train classify train.csv --model none --logits cosine:16 --epochs 2 --batch 10 --out run";
    place.ok(line);
    let mut other = rows(&[("x", 3), ("y", 4), ("z", 5)], 30);
    other += "1,1,1,1,1,1,alone\n";
    place.write("other.csv", other);
    place
}

/// The rows of a file of float32.
fn read(bytes: &[u8], width: usize) -> Vec<Vec<f32>> {
    let length = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..length]).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00") && length.is_multiple_of(64));
    assert!(header.contains("'<f4', 'fortran_order': False") && header.ends_with('\n'));
    let numbers = bytes[length..].chunks_exact(4);
    let numbers: Vec<f32> = numbers
        .map(|x| f32::from_le_bytes(x.try_into().unwrap()))
        .collect();
    let rows: Vec<Vec<f32>> = numbers.chunks(width).map(<[f32]>::to_vec).collect();
    assert!(
        header.contains(&format!("'shape': ({}, {width})", rows.len())),
        "{header}"
    );
    rows
}

#[test]
fn features_of_any_classes_and_of_none_are_written() {
    let place = trained();
    let shown = place
        .ok("predict run other.csv --embeddings other.npy")
        .stdout;
    assert_eq!(shown, "");
    let with_labels = read(&place.read("other.npy"), 6);
    assert_eq!(with_labels.len(), 31);
    for row in &with_labels {
        let square: f32 = row.iter().map(|x| x * x).sum();
        assert!((square - 1.0).abs() < 1e-5, "{row:?}");
    }
    let text = String::from_utf8(place.read("other.csv")).unwrap();
    let bare = text.lines().map(|line| line.rsplit_once(',').unwrap().0);
    place.write("bare.csv", bare.collect::<Vec<_>>().join("\n") + "\n");
    place.ok("predict run bare.csv --embeddings bare.npy");
    assert_eq!(read(&place.read("bare.npy"), 6), with_labels);
    // Pelton reads the file it wrote.
    assert_eq!(place.json("index bare.npy")["records"], 31);

    place.ok("train linear train.csv --out linear");
    place.ok("train image train.csv --model mlp --epochs 1 --out image");
    place.write("narrow.csv", "1,2,x\n1,3,y\n");
    for (line, parts) in [
        (
            "predict linear other.csv --embeddings no.npy",
            ["--embeddings no.npy", "train classify"],
        ),
        (
            "predict image other.csv --embeddings no.npy",
            ["image: ", "train classify"],
        ),
        (
            "predict run other.csv --embeddings no/no.npy",
            ["no/no.npy", "existing folder"],
        ),
        (
            "predict run narrow.csv --embeddings no.npy",
            ["narrow.csv", "6"],
        ),
        (
            "predict run other.csv --embeddings no.npy --top 2",
            ["--embeddings", "--top"],
        ),
        (
            "eval linear train.csv --recall 1",
            ["linear: ", "train classify"],
        ),
        ("eval linear train.csv --top 2", ["linear: ", "--top"]),
        ("eval run train.csv --top 0", ["--top 0", "from 1 to"]),
        ("eval run train.csv --top 99", ["--top 99", "from 1 to"]),
        (
            "eval run train.csv --top 2 --recall 1",
            ["--top", "--recall"],
        ),
    ] {
        place.refuses(line, 2, &parts);
        assert!(!place.path("no.npy").exists(), "{line}");
    }
}

/// Interrupted with the file partly written, or during the search.
#[test]
fn ctrl_c_ends_soon_and_leaves_nothing() {
    let place = Place::new();
    place.ok("train classify demo:classes:20:4:16 --model none --epochs 1 --out run");
    let unfinished = || {
        let names = std::fs::read_dir(place.path("")).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.find(|name| name == "many.npy" || name.starts_with(".pelton-"))
    };
    for (line, is_written) in [
        (
            "predict run demo:classes:1000000:8:16 --embeddings many.npy",
            true,
        ),
        ("eval run demo:classes:50000:8:16 --recall 1000", false),
    ] {
        let mut child = place.start(line);
        wait_for_handler(&mut child);
        let began = Instant::now();
        while is_written && unfinished().is_none() || began.elapsed().as_secs_f64() < 0.5 {
            assert!(child.try_wait().unwrap().is_none(), "{line}: still running");
            assert!(began.elapsed() < Duration::from_secs(60), "{line}: begins");
            std::thread::sleep(Duration::from_millis(2));
        }
        let began = Instant::now();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ended = Ended::of(child);
        // A second, on a busy machine.
        assert!(began.elapsed() < Duration::from_secs(5), "{line}");
        ended.refused(line, 130, &["interrupted while", "nothing is saved"]);
        assert_eq!(unfinished(), None, "{line}");
    }
}

#[test]
fn records_of_classes_never_trained_are_retrieved() {
    let place = trained();
    let figures = place.json("eval run other.csv --recall 1,5");
    assert_eq!(figures["recall"]["1"], 1.0, "{figures}");
    assert_eq!(figures["recall"]["5"], 1.0, "{figures}");
    assert_eq!(
        (number(&figures, "queries"), number(&figures, "left_out")),
        (30.0, 1.0)
    );
    let shown = place.ok("eval run other.csv --recall 1,5").stdout;
    assert_eq!(
        shown,
        "recall@1 100.0000 %, recall@5 100.0000 %, 30 queries among 31 records, 1 left out without another of their class\n"
    );
    // Classes are known by name, in any order and with others among them.
    place.write("gallery.csv", rows(&[("z", 5), ("b", 1), ("x", 3)], 9));
    let figures = place.json("eval run other.csv --recall 1 --gallery gallery.csv");
    assert_eq!(figures["recall"]["1"], 1.0, "{figures}");
    assert_eq!(
        (number(&figures, "queries"), number(&figures, "left_out")),
        (20.0, 11.0)
    );
    assert_eq!(number(&figures, "gallery"), 9.0);

    place.write("single.csv", rows(&[("x", 3), ("y", 4)], 2));
    let text = String::from_utf8(place.read("other.csv")).unwrap();
    let bare = text.lines().map(|line| line.rsplit_once(',').unwrap().0);
    place.write("bare.csv", bare.collect::<Vec<_>>().join("\n") + "\n");
    for (line, parts) in [
        (
            "single.csv --recall 1",
            ["single.csv: no two records", "--gallery"],
        ),
        (
            "single.csv --recall 1 --gallery train.csv",
            ["single.csv: no record", "--gallery"],
        ),
        ("other.csv --recall 31", ["--recall 31", "from 1 to 30"]),
        ("other.csv --recall 0", ["--recall 0", "from 1 to 30"]),
        ("other.csv --gallery gallery.csv", ["--recall", "--help"]),
        (
            "bare.csv --recall 1",
            ["bare.csv: has 5 features", "the model has 6"],
        ),
        (
            "other.csv --recall 1 --gallery none.csv",
            ["none.csv: no such file", "check the path"],
        ),
    ] {
        place.refuses(&format!("eval run {line}"), 2, &parts);
    }
}

#[test]
fn pairs_are_verified() {
    let place = trained();
    let mut pairs = String::new();
    for (a, b) in (0..30).flat_map(|a| (0..a).map(move |b| (a, b))) {
        pairs += &format!("{a} {b} {}\n", u8::from(a % 3 == b % 3));
    }
    place.write("pairs.txt", pairs);
    let figures = place.json("eval run other.csv --pairs pairs.txt");
    assert_eq!(
        (number(&figures, "same"), number(&figures, "different")),
        (135.0, 300.0)
    );
    assert_eq!(
        (number(&figures, "accuracy"), number(&figures, "folds")),
        (1.0, 10.0)
    );
    assert_eq!(figures["tar"]["1e-2"], 1.0, "{figures}");
    assert!(figures["tar"]["1e-3"].is_null(), "{figures}");
    let threshold = number(&figures, "threshold");
    let features = read(
        &{
            place.ok("predict run other.csv --embeddings other.npy");
            place.read("other.npy")
        },
        6,
    );
    let cosine = |a: usize, b: usize| -> f32 {
        features[a]
            .iter()
            .zip(&features[b])
            .map(|(a, b)| a * b)
            .sum()
    };
    assert!(f64::from(cosine(0, 3)) > threshold && f64::from(cosine(0, 1)) < threshold);
    let shown = place.ok("eval run other.csv --pairs pairs.txt").stdout;
    for part in [
        "TAR 100.0000 % at FAR 1e-2\n",
        "TAR at FAR 1e-3: needs more pairs of different classes than 300\n",
        "accuracy 100.0000 % of 435 pairs over 10 folds, threshold ",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    place.write("few.txt", "0 3 1\n0 1 0\n");
    let shown = place.ok("eval run other.csv --pairs few.txt").stdout;
    assert!(
        shown.contains("of 2 pairs at the best threshold of these pairs"),
        "{shown}"
    );
    for (text, parts) in [
        ("0 3 1\n0 1\n", ["bad.txt:2", "17 4 1"]),
        (
            "0 3 1\n0 31 0\n",
            ["bad.txt:2: there is no record 31", "numbered from 0"],
        ),
        ("0 3 1\n", ["bad.txt: has 1 pairs", "both kinds"]),
        ("", ["bad.txt: has 0 pairs", "both kinds"]),
    ] {
        place.write("bad.txt", text);
        place.refuses("eval run other.csv --pairs bad.txt", 2, &parts);
    }
    place.refuses(
        "eval run other.csv --pairs none.txt",
        2,
        &["--pairs none.txt", "check the path"],
    );
}

#[test]
fn classes_join_and_leave_without_training() {
    let place = trained();
    place.write("new.csv", rows(&[("x", 3), ("y", 4)], 20));
    let before = place.read("run/model.safetensors");
    let shown = place
        .ok("classes run --add new.csv --remove b --out changed")
        .stdout;
    assert_eq!(shown, "changed has 4 classes, 2 of them new\n");
    assert_eq!(place.read("run/model.safetensors"), before);
    place.write(
        "all.csv",
        rows(&[("a", 0), ("c", 2), ("x", 3), ("y", 4)], 40),
    );
    let figures = place.json("eval changed all.csv --top 1");
    assert_eq!(
        (
            number(&figures, "test_accuracy"),
            number(&figures, "top_accuracy")
        ),
        (1.0, 1.0)
    );
    let predicted = place.ok("predict changed all.csv").stdout;
    let first: Vec<&str> = predicted
        .lines()
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    assert_eq!(first[..4], ["a", "c", "x", "y"]);
    // A removed class may be added again with other examples; the result can be changed like its run.
    place.ok("classes changed --add train.csv --remove a,c --out again");
    assert_eq!(place.json("eval again train.csv")["test_accuracy"], 1.0);
    place.ok(
        "train classify train.csv --model none --head mach:2:2 --epochs 1 --batch 10 --out mach",
    );
    place.ok("train classify train.csv --model none --logits product --epochs 1 --batch 10 --out product");
    place.ok("train linear train.csv --out linear");
    let mut zeros = rows(&[("x", 3)], 3);
    zeros += "0,0,0,0,0,0,zero\n";
    place.write("zeros.csv", zeros);
    place.ok("train classify train.csv --model none --centre false --logits cosine:16 --epochs 1 --batch 10 --out plain");
    for (line, parts) in [
        ("run --out no", ["run: nothing changes", "--add"]),
        (
            "run --remove a --label 1 --out no",
            ["flag of data", "without --add"],
        ),
        (
            "run --add train.csv --out no",
            ["has a class a already", "train.csv"],
        ),
        (
            "run --add new.csv --remove q --out no",
            ["no class q to remove", "a, b, c"],
        ),
        (
            "run --remove a,b,c --out no",
            ["no class would be left", "remove fewer"],
        ),
        ("mach --remove a --out no", ["mach: its head", "--head"]),
        (
            "product --remove a --out no",
            ["product: its head", "--logits"],
        ),
        (
            "linear --remove a --out no",
            ["linear: ", "not the run folder of a net"],
        ),
        (
            "plain --add zeros.csv --out no",
            ["class zero of zeros.csv", "direction"],
        ),
        ("run --add none.csv --out no", ["none.csv", "no such file"]),
        (
            "run --add new.csv --out run",
            ["--out run", "name a new folder"],
        ),
    ] {
        place.refuses(&format!("classes {line}"), 2, &parts);
        assert!(!place.path("no").exists(), "{line}");
    }
}
