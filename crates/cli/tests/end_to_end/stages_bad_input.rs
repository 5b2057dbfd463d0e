//! `bench` with stages on bad input: each fault ends in one sentence with file, position and remedy, or is skipped or
//! replaced and counted if the policy says so.

use std::fs;

use serde_json::Value;

use crate::command::Place;

/// Pictures of 37 × 29.
const JPEG: &[u8] = include_bytes!("../../../image/tests/images/full.jpg");
const PNG: &[u8] = include_bytes!("../../../image/tests/images/palette.png");

const STAGES: &str = "--decode jpg --augment rrc:64,flip --batch 8 --epochs 1 --memory 64MiB";

const POLICIES: [&str; 5] = ["fail", "skip", "skip:1", "replace", "replace:1"];

fn write(place: &Place, name: &str, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(place.path(name).parent().unwrap()).unwrap();
    place.write(name, bytes);
}

/// A folder of 20 good pictures in two classes.
fn images(place: &Place) {
    for i in 0..20 {
        write(place, &format!("images/{}/{i:02}.jpg", i % 2), JPEG);
    }
}

/// The picture with this number of rows and columns in its frame header.
fn of_size(side: u16) -> Vec<u8> {
    let mut jpeg = JPEG.to_vec();
    let frame = jpeg
        .windows(2)
        .position(|pair| pair == [0xff, 0xc0])
        .unwrap();
    jpeg[frame + 5..frame + 7].copy_from_slice(&side.to_be_bytes());
    jpeg[frame + 7..frame + 9].copy_from_slice(&side.to_be_bytes());
    jpeg
}

fn bench(place: &Place, data: &str, policy: &str) -> Value {
    place.json(&format!("bench {data} {STAGES} --on-bad-record {policy}"))
}

/// Checks the figures of every policy; `bad` names the one bad record, `total` is the number of records.
fn follows_the_policies(place: &Place, data: &str, bad: &str, total: u64, parts: &[&str]) {
    for policy in POLICIES {
        if policy == "fail" {
            let line = format!("bench {data} {STAGES}");
            place.refuses(&line, 2, &[bad, "--on-bad-record skip"]);
            place.refuses(&line, 2, parts);
            continue;
        }
        let figures = bench(place, data, policy);
        let (skipped, replaced, examples) = if policy.starts_with("skip") {
            (1, 0, total - 1)
        } else {
            (0, 1, total)
        };
        assert_eq!(figures["skipped_records"], skipped, "{policy}: {figures}");
        assert_eq!(figures["replaced_records"], replaced, "{policy}: {figures}");
        assert_eq!(figures["examples"], examples, "{policy}: {figures}");
    }
    for policy in ["skip:0", "replace:0"] {
        let line = format!("bench {data} {STAGES} --on-bad-record {policy}");
        place.refuses(&line, 2, &[bad, "over the limit of 0"]);
    }
}

#[test]
fn pictures_that_cannot_be_decoded_follow_the_policy() {
    let cases: [(&str, Vec<u8>, &[&str]); 5] = [
        ("half", JPEG[..JPEG.len() / 2].to_vec(), &[]),
        ("huge", of_size(30_000), &["30000"]),
        ("empty", Vec::new(), &[]),
        ("prose", b"Dear reader".to_vec(), &[]),
        ("damaged", [&PNG[..60], &[0; 200]].concat(), &[]),
    ];
    for (name, bytes, parts) in cases {
        let place = Place::new();
        images(&place);
        let bad = format!("images/1/{name}.jpg");
        write(&place, &bad, bytes);
        follows_the_policies(&place, "images", &bad, 21, parts);
    }
}

#[test]
fn kinds_of_pictures_are_told_by_content() {
    let place = Place::new();
    images(&place);
    write(&place, "images/1/it is a png.jpg", PNG);
    let figures = bench(&place, "images", "fail");
    assert_eq!(figures["examples"], 21);
    assert_eq!(figures["skipped_records"], 0);
}

#[test]
fn archives() {
    let place = Place::new();
    let long = format!("{}/{}", "d".repeat(90), "n".repeat(120));
    fs::create_dir_all(place.path(&"d".repeat(90))).unwrap();
    for i in 0..9 {
        place.write(&format!("{i}.jpg"), JPEG);
    }
    place.write(&format!("{long}.jpg"), JPEG);
    for format in ["gnu", "pax"] {
        let tar = format!("tar --format={format} -cf {format}.tar [0-8].jpg d*");
        place.shell(&tar).succeeded(&tar);
        assert_eq!(
            bench(&place, &format!("{format}.tar"), "fail")["examples"],
            10
        );
    }

    // Links have no bytes and are reported; hard links are stored as links after the file itself.
    place
        .shell("ln -s 0.jpg soft.jpg; ln 1.jpg hard.jpg; tar cf links.tar 0.jpg 1.jpg hard.jpg soft.jpg")
        .succeeded("tar");
    let ended = place.ok(&format!("bench links.tar {STAGES} --json"));
    assert_eq!(ended.json()["examples"], 2);
    assert!(ended.stderr.contains("2 links"), "{}", ended.stderr);

    let whole = place.read("gnu.tar");
    place.write("cut.tar", &whole[..700]);
    place
        .shell("truncate -s 1M sparse.jpg && tar --sparse -cf sparse.tar 0.jpg sparse.jpg")
        .succeeded("tar");
    for policy in POLICIES {
        let line = |data| format!("bench {data} {STAGES} --on-bad-record {policy}");
        let cut: (i32, &[&str]) = match policy {
            "fail" => (2, &["it is cut off", "0.jpg", "byte 0", "fetch it again"]),
            // Nothing precedes the cut.
            _ => (
                1,
                &["all 1 records", "cut.tar: record 0 at byte 0", "cut off"],
            ),
        };
        place.refuses(&line("cut.tar"), cut.0, cut.1);
        place.refuses(
            &line("sparse.tar"),
            2,
            &["sparse.tar: ", "sparse.jpg", "without --sparse"],
        );
    }

    place.write("2.jpg", &JPEG[..JPEG.len() / 2]);
    place.shell("tar cf bad.tar [0-8].jpg").succeeded("tar");
    follows_the_policies(&place, "bad.tar", "bad.tar: record 2 ", 9, &[]);
}

#[test]
fn idx_files_with_a_wrong_head() {
    let place = Place::new();
    let head = |kind: u8, count: u8| [0, 0, kind, 3, 0, 0, 0, count, 0, 0, 0, 4, 0, 0, 0, 4];
    let pixels = [9; 16 * 5];
    place.write(
        "x-labels-idx1-ubyte",
        b"\0\0\x08\x01\0\0\0\x05\0\x01\0\x01\0",
    );
    for (kind, count) in [(0x08, 6), (0x08, 4), (0x77, 5)] {
        place.write(
            "x-images-idx3-ubyte",
            [&head(kind, count)[..], &pixels].concat(),
        );
        for policy in POLICIES {
            let line = format!(
                "bench x-images-idx3-ubyte --format idx --augment rrc:3,flip --batch 2 --epochs 1 --on-bad-record {policy}"
            );
            place.refuses(&line, 2, &["x-images-idx3-ubyte"]);
        }
    }
}

#[test]
fn pictures_of_several_shapes_in_a_stack() {
    let place = Place::new();
    images(&place);
    write(
        &place,
        "images/1/small.png",
        include_bytes!("../../../image/tests/images/bits.png"),
    );
    write(&place, "images/1/other.jpg", of_size(16));
    for policy in POLICIES {
        let line = format!(
            "bench images --decode png --collate stack --batch 22 --epochs 1 --on-bad-record {policy}"
        );
        let parts = ["images/", ".jpg", "shape", "resize"];
        let ended = place.run(&line);
        ended.refused(&line, 2, &parts);
    }
}

#[test]
fn sentences_longer_than_every_bucket() {
    let place = Place::new();
    let line = |i: usize| "word ".repeat(1 + i % 40) + "\n";
    place.write("text", (0..400).map(line).collect::<String>());
    let figures =
        place.json("bench text --decode words --buckets static:5,10 --batch 8 --epochs 1");
    assert_eq!(
        figures["examples"], 400,
        "the last bucket reaches to the longest: {figures}"
    );
    assert_eq!(figures["dropped"], 0, "{figures}");
}

#[test]
fn flags_that_do_not_fit_the_data() {
    let place = Place::new();
    place.write("a", "one two three\n".repeat(50));
    place.write("b", "four five\n".repeat(50));
    let good = "bench a b --decode words --batch 8 --epochs 1 --format text";
    place.ok(good);
    for (flags, parts) in [
        (
            "--keep-lengths 100..200",
            ["--keep-lengths", "give other lengths"],
        ),
        ("--keep-lengths 9..5", ["9..5", "FROM..TO"]),
        ("--keep-lengths nonsense", ["nonsense", "FROM..TO"]),
        ("--mix 1", ["--mix", "2 files"]),
        ("--mix 0.5,0.3,0.2", ["3 shares", "2 files"]),
        ("--mix 0,0", ["mixture", "positive weight"]),
        ("--mix=-1,2", ["mixture", "-1"]),
        (
            "--mix -1,2",
            ["the weight -1", "give 0 or a positive number"],
        ),
        ("--mix nan,1", ["mixture", "weight"]),
        ("--mix a,b", ["--mix", "a"]),
        ("--echo nonsense", ["nonsense", "read:FACTOR"]),
        ("--echo before", ["before", "before:FACTOR"]),
        ("--echo before:0", ["echo", "0"]),
        ("--echo before:1e99", ["echo", "1e99"]),
        ("--echo auto:0", ["auto:0", "auto[:MOST]"]),
        ("--echo before:2:0", ["echo", "0"]),
        ("--augment nonsense", ["nonsense", "rrc"]),
        ("--augment rrc:0", ["rrc:0", "rrc"]),
        ("--augment rrc:99999999999", ["rrc:99999999999", "rrc"]),
        (
            "--augment rrc:64,flip",
            ["augmentation needs pictures", "--decode image"],
        ),
        ("--decode nonsense", ["nonsense", "member:EXTENSION"]),
        ("--decode member:x", ["tar samples", "--decode member"]),
        ("--read-threads 0", ["--read-threads 0", "1 or more"]),
        ("--exif apply", ["--exif apply", "--decode words"]),
        ("--collate nonsense", ["nonsense", "ragged"]),
        ("--buckets nonsense", ["nonsense", "static"]),
        ("--buckets static:", ["static:", "static"]),
        ("--buckets static:10,5", ["10,5", "static"]),
        ("--buckets pack:0", ["pack:0", "pack"]),
        ("--on-bad-record nonsense", ["nonsense", "replace:LIMIT"]),
        ("--on-bad-record skip:-1", ["skip:-1", "skip:LIMIT"]),
        ("--compute-ms nan", ["--compute-ms", "milliseconds"]),
    ] {
        let line = match flags.split([' ', '=']).next().unwrap() {
            "--decode" => good.replace("--decode words", flags),
            _ => format!("{good} {flags}"),
        };
        place.refuses(&line, 2, &parts);
    }
}

/// The limit protects memory; if raised for such pictures, other faults count.
#[test]
fn pictures_beyond_the_limit_of_pixels() {
    // The head of a grey picture of 20 000 x 10 000 pixels.
    const LARGE: &[u8] =
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x4e\x20\0\0\x27\x10\x08\0\0\0\0\xdc\x4f\x17\x7e";
    let place = Place::new();
    write(&place, "images/a/large.png", LARGE);
    let line = "bench images --decode image --batch 1 --epochs 1";
    let parts = ["large.png", "20000 x 10000", "raise --max-megapixels"];
    place.refuses(line, 2, &parts);
    let line = format!("{line} --max-megapixels");
    place.refuses(&format!("{line} 200"), 2, &["large.png", "cut short"]);
    place.refuses(&format!("{line} 199"), 2, &["more than the 199000000"]);
    place.refuses(
        &format!("{line} 0"),
        2,
        &["--max-megapixels 0", "1 or more"],
    );
    let words = "bench images --decode bytes --batch 1 --epochs 1 --max-megapixels 5";
    place.refuses(
        words,
        2,
        &["--max-megapixels does nothing", "--decode bytes"],
    );
}

#[test]
fn states_that_are_of_something_else() {
    let place = Place::new();
    place.write("a", "one two three\n".repeat(50));
    place.write("b", "four five\n".repeat(50));
    let line = "--decode words --batch 8 --epochs 1 --format text --state state";
    place.ok(&format!("bench a {line}"));
    let state = place.read("state");
    for (other, parts) in [
        (format!("bench b {line}"), ["state", "data"]),
        (
            format!("bench a {line} --seed 9"),
            ["state: ", "another order"],
        ),
        (
            format!("bench a {line} --echo before:2"),
            ["state: ", "another order"],
        ),
        (
            format!("bench a {line} --buckets auto"),
            ["state: ", "another order"],
        ),
    ] {
        place.refuses(&other, 2, &parts);
        assert_eq!(place.read("state"), state, "{other}: left alone");
    }
    for text in ["", "nonsense", "{}", "{}\n5\n", "[1]\nx\n", "\u{fffd}\n"] {
        place.write("state", text);
        place.refuses(&format!("bench a {line}"), 2, &["state", "start again"]);
    }
    place.write("state", [0xff, 0xfe, 0xfd]);
    place.refuses(&format!("bench a {line}"), 2, &["state", "start again"]);
    fs::remove_file(place.path("state")).unwrap();
    fs::create_dir(place.path("state")).unwrap();
    place.refuses(&format!("bench a {line}"), 2, &["state"]);
}
