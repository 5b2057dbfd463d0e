//! Records that are bytes: `index` reports how they are located, `inspect` shows them, `bench` reads them, and commands
//! that need features refuse them.

use std::fs;

use crate::command::Place;

fn write(place: &Place, name: &str, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(place.path(name).parent().unwrap()).unwrap();
    place.write(name, bytes);
}

/// A PNG of one grey pixel.
pub const DOT: &[u8] = &[
    0x89, b'P', b'N', b'G', 13, 10, 26, 10, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 10, b'I', b'D', b'A', b'T', 0x78, 0x9c,
    0x63, 0x68, 0, 0, 0, 0x82, 0, 0x81, 0x77, 0xcd, 0x72, 0xb6, 0, 0, 0, 0, b'I', b'E', b'N', b'D',
    0xae, 0x42, 0x60, 0x82,
];

/// Pictures of 2 × 3 with labels 5 and 6.
fn idx(place: &Place) {
    write(
        place,
        "x-labels-idx1-ubyte",
        b"\0\0\x08\x01\0\0\0\x02\x05\x06",
    );
    let head = b"\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03";
    let pixels = [0, 100, 255, 255, 100, 0, 9, 9, 9, 9, 9, 9];
    write(place, "x-images-idx3-ubyte", [&head[..], &pixels].concat());
}

fn tar(place: &Place) {
    write(place, "a.txt", "a red dot");
    write(place, "a.png", DOT);
    write(place, "b.txt", "nothing");
    place
        .shell("tar cf x.tar a.txt a.png b.txt")
        .succeeded("tar");
}

#[test]
fn index_says_how_records_are_found() {
    let place = Place::new();
    write(&place, "words.txt", "one\n\ntwo three\n");
    let figures = place.json("index words.txt");
    assert_eq!(figures["records"], 3);
    assert_eq!(figures["contents"], "lines of text");
    assert_eq!(figures["files"][0]["format"], "text");
    assert_eq!(figures["files"][0]["access_pages"], 1.0);
    let plain = place.ok("index words.txt").stdout;
    assert!(
        plain.contains("found by a list of starts, from a search for line ends"),
        "{plain}"
    );
    assert!(
        plain.contains("one random access uses 5 bytes and touches 1.0 pages of 4096"),
        "{plain}"
    );

    idx(&place);
    let plain = place.ok("index x-images-idx3-ubyte").stdout;
    assert!(
        plain.contains("found by arithmetic: 6 bytes each from byte 16 on"),
        "{plain}"
    );
    assert!(plain.contains("labels             [5.0, 6.0]"), "{plain}");

    tar(&place);
    let figures = place.json("index x.tar");
    assert_eq!(
        (&figures["records"], &figures["source"]),
        (&2.into(), &"built".into())
    );
    assert_eq!(place.json("index x.tar")["source"], "sidecar");

    write(&place, "images/cat/1.png", DOT);
    write(&place, "images/dog/1.png", DOT);
    let figures = place.json("index images");
    assert_eq!(figures["label_names"], serde_json::json!(["cat", "dog"]));
    assert_eq!(figures["files"][0]["access_opens"], 1);
    write(
        &place,
        "table.csv",
        "file,animal\ncat/1.png,tiger\ndog/1,wolf\n",
    );
    let figures = place.json("index images --label-file table.csv --label animal");
    assert_eq!(figures["label_names"], serde_json::json!(["tiger", "wolf"]));
}

#[test]
fn inspect_shows_pictures_members_and_lines() {
    let place = Place::new();
    write(&place, "words.txt", "one\n\ntwo three\n");
    assert_eq!(place.json("inspect words.txt --id 2")["text"], "two three");
    assert!(
        place
            .ok("inspect words.txt --id 2")
            .stdout
            .contains("text: two three")
    );
    place.refuses(
        "inspect words.txt --out x.png",
        2,
        &["words.txt", "no picture", "--out"],
    );

    idx(&place);
    let view = place.json("inspect x-images-idx3-ubyte --id 1");
    assert_eq!(view["picture_size"], serde_json::json!([3, 2]));
    assert_eq!(view["label"], 6.0);
    let plain = place.ok("inspect x-images-idx3-ubyte --out x.png").stdout;
    // The two rows of pixels become one row of shades: light 127, 100 and 127 of 255.
    assert!(plain.ends_with("picture of 3 × 2\n=-=\n"), "{plain}");
    assert!(place.read("x.png").starts_with(b"\x89PNG"));
    place.ok("inspect x-images-idx3-ubyte --id 1 --out x.png --overwrite");
    place.refuses(
        "inspect x-images-idx3-ubyte --out words.txt",
        2,
        &["words.txt", "exists"],
    );

    tar(&place);
    let view = place.json("inspect x.tar --id 0");
    assert_eq!(view["members"][0]["extension"], "txt");
    assert_eq!(view["members"][0]["text"], "a red dot");
    assert_eq!(view["picture_size"], serde_json::json!([1, 1]));
    let plain = place.ok("inspect x.tar").stdout;
    assert!(plain.contains("9 bytes  .txt  a red dot"), "{plain}");

    write(&place, "images/cat/1.png", DOT);
    write(&place, "images/cat/2.png", &DOT[..40]);
    let view = place.json("inspect images --out dot.png");
    assert_eq!(view["label_name"], "cat");
    assert!(
        view["file"].as_str().unwrap().ends_with("images/cat/1.png"),
        "{view}"
    );
    let view = place.json("inspect images --id 1");
    assert!(view["picture_fault"].is_string(), "{view}");
    place.refuses(
        "inspect images --id 1 --out y.png",
        2,
        &["images/cat/2.png", "cannot be decoded"],
    );
    place.refuses(
        "inspect images --out images/cat/1.png --overwrite",
        2,
        &["images/cat/1.png", "would replace"],
    );
}

#[test]
fn json_members_give_classes() {
    let place = Place::new();
    for (name, class) in [("a", "dog"), ("b", "cat"), ("c", "dog")] {
        let json = format!("{{\"class\": {{\"name\": \"{class}\"}}, \"id\": 4}}");
        write(&place, &format!("{name}.json"), json);
        write(&place, &format!("{name}.txt"), "a picture");
    }
    place.shell("tar cf x.tar a.* b.* c.*").succeeded("tar");
    let figures = place.json("index x.tar --label json:class.name");
    assert_eq!(figures["label_names"], serde_json::json!(["cat", "dog"]));
    let view = place.json("inspect x.tar --label json:class.name --id 0");
    assert_eq!(
        (&view["label_name"], &view["label"]),
        (&"dog".into(), &1.0.into())
    );
    assert_eq!(place.json("inspect x.tar --label json:id")["label"], 4.0);
    place.ok("bench x.tar --label json:class.name --decode words --collate pad --batch 2");
    for (label, parts) in [
        (
            "json:class",
            [
                "x.tar: sample a: class of its member .json is an object",
                "json:KEY",
            ],
        ),
        (
            "json:kind",
            [
                "x.tar: sample a: its member .json has no kind",
                "only class, id",
            ],
        ),
        ("json:", ["`json:` names no key", "json:KEY"]),
        ("json:class.", ["`json:class.` names no key", "json:KEY"]),
        ("class", ["does not apply to tar files", "--label json:KEY"]),
    ] {
        place.refuses(&format!("index x.tar --label {label}"), 2, &parts);
    }
}

#[test]
fn every_kind_of_bytes_is_benched() {
    let place = Place::new();
    write(&place, "words.txt", "one\n\ntwo three\n".repeat(100));
    idx(&place);
    tar(&place);
    write(&place, "images/cat/1.png", DOT);
    for (data, records) in [
        ("words.txt", 300),
        ("x-images-idx3-ubyte", 2),
        ("x.tar", 2),
        ("images", 1),
    ] {
        for access in ["direct", "window", "scatter"] {
            let figures = place.json(&format!(
                "bench {data} --access {access} --batch 1 --memory 8MiB --epochs 2"
            ));
            assert_eq!(
                figures["examples"],
                2 * records,
                "{data} by {access}: {figures}"
            );
        }
        place.json(&format!("bench {data} --cold --memory 8MiB --epochs 1"));
    }
    let figures =
        place.json("bench words.txt --ranks 2 --cache peers --batch 8 --memory 8MiB --epochs 2");
    assert_eq!(figures["examples"], 600, "{figures}");
}

/// Pictures of 4 × 4 with the class in the brighter half: left for class 3, right for class 8, lower for class 9.
fn halves(place: &Place, name: &str, count: u32) {
    let mut pixels = Vec::new();
    let mut labels = Vec::new();
    for i in 0..count {
        let class = [3, 8, 9][i as usize % 3];
        labels.push(class);
        for at in 0..16 {
            let (row, column) = (at / 4, at % 4);
            let bright = match class {
                3 => column < 2,
                8 => column >= 2,
                _ => row >= 2,
            };
            let noise = (i * 31 + at * 17) % 40;
            pixels.push(if bright { 215 + noise } else { noise } as u8);
        }
    }
    let sizes = [count.to_be_bytes(), 4u32.to_be_bytes(), 4u32.to_be_bytes()].concat();
    let images = [&[0, 0, 8, 3][..], &sizes, &pixels].concat();
    write(place, &format!("{name}-images-idx3-ubyte"), images);
    let labels = [&[0, 0, 8, 1][..], &count.to_be_bytes(), &labels].concat();
    write(place, &format!("{name}-labels-idx1-ubyte"), labels);
}

#[test]
fn pictures_of_one_size_train() {
    let place = Place::new();
    halves(&place, "train", 9000);
    halves(&place, "test", 90);
    let line =
        "train svm train-images-idx3-ubyte --test test-images-idx3-ubyte --cost 1 --epochs 20";
    let figures = place.json(&format!("{line} --out run"));
    assert_eq!(
        (&figures["features"], &figures["classes"]),
        (&16.into(), &3.into())
    );
    assert_eq!(figures["test_accuracy"], 1.0);
    let figures = place.json(&format!("{line} --positive 8 --out two --memory 400KiB"));
    assert_eq!(figures["classes"], 2);
    assert_eq!(figures["test_accuracy"], 1.0);
    assert_eq!(
        place.json("eval run test-images-idx3-ubyte")["test_accuracy"],
        1.0
    );
    std::fs::remove_file(place.path("test-labels-idx1-ubyte")).unwrap();
    let said = place.ok("predict run test-images-idx3-ubyte").stdout;
    assert!(said.starts_with("3\n8\n9\n3\n"), "{said}");
    place.refuses(
        "eval run test-images-idx3-ubyte",
        2,
        &["test-labels-idx1-ubyte"],
    );
    place.refuses(
        &format!("{line} --positive 4 --out none"),
        2,
        &["no record has the label 4", "--positive"],
    );
    let packed = place.json("pack train-images-idx3-ubyte -o x.prow");
    assert_eq!(packed["records"], 9000);
    place.ok("eval run x.prow");
}

#[test]
fn classes_are_called_by_name() {
    let place = Place::new();
    let names = [
        "ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen", "ibex", "jay",
    ];
    write(&place, "batches.meta.txt", names.join("\n"));
    // The pixels of class c are 20 c.
    let record = |i: u8| [vec![i % 10], vec![i % 10 * 20; 3072]].concat();
    write(
        &place,
        "data_batch_1.bin",
        (0..60).flat_map(record).collect::<Vec<u8>>(),
    );
    let line = "train svm data_batch_1.bin --cost 1 --epochs 30";
    let named = place.json(&format!("{line} --positive jay --class-weight 1=2 --out a"));
    assert_eq!(named["classes"], 2);
    let numbered = place.json(&format!("{line} --positive 9 --class-weight 1=2 --out b"));
    assert_eq!(named["primal"], numbered["primal"]);
    let evaluated = place.json("eval a data_batch_1.bin");
    assert_eq!(evaluated["test_accuracy"], named["train_accuracy"]);
    let weighted = place.json(&format!("{line} --class-weight jay=3 --out c"));
    assert_eq!(weighted["classes"], 10);
    let numbered = place.json(&format!("{line} --class-weight 9=3 --out d"));
    assert_eq!(weighted["primal"], numbered["primal"]);
    let again = place.json("train svm --config c/run.toml --out e");
    assert_eq!(again["primal"], weighted["primal"]);
    place.ok("eval c data_batch_1.bin");
    for (flags, parts) in [
        (
            "--positive yak",
            ["no record has the label yak", "--positive"],
        ),
        (
            "--class-weight yak=2",
            ["no record has the label yak", "ant, bee"],
        ),
        (
            "--class-weight jay=2 --class-weight 9=3",
            ["label 9", "two factors"],
        ),
    ] {
        place.refuses(&format!("{line} {flags} --out f"), 2, &parts);
    }

    for class in ["10", "2"] {
        write(&place, &format!("images/{class}/1.png"), DOT);
    }
    let view = place.json("inspect images --positive 2");
    assert_eq!(view["label"], -1.0, "the first image is of the folder 10");
    assert_eq!(place.json("inspect images --positive 10")["label"], 1.0);
}

#[test]
fn features_are_asked_for_in_one_sentence() {
    let place = Place::new();
    write(&place, "train", "1 1:1\n-1 2:1\n");
    write(&place, "images/cat/1.png", DOT);
    tar(&place);
    let parts = ["x.tar", "tar", "bytes and no features", "libsvm"];
    place.refuses("train svm x.tar --out run", 2, &parts);
    place.refuses("train svm train --test x.tar --out run", 2, &parts);
    place.refuses("pack x.tar -o x.prow", 2, &parts);
    place.refuses("train svm images --out run", 2, &["images", "is a folder"]);
    place.refuses(
        "train svm train --format text --out run",
        2,
        &["format text", "no features"],
    );
    place.refuses(
        "index train --format jpeg",
        2,
        &["--format jpeg", "cifar100", "folder"],
    );
}
