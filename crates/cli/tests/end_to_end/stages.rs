//! `bench` with stages: its output, and runs that are killed and resume with nothing lost or repeated.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Ended, Place};

/// Sentences of different lengths.
fn text(place: &Place, sentences: usize) {
    let sentence = |i: usize| format!("s{i} {}\n", "word ".repeat(i * 7 % 23).trim_end());
    place.write("text.txt", (0..sentences).map(sentence).collect::<String>());
}

/// Pictures of 4 × 4 as IDX.
fn pictures(place: &Place, count: u32) {
    let head = [
        &[0, 0, 8, 3][..],
        &count.to_be_bytes(),
        &[0, 0, 0, 4, 0, 0, 0, 4],
    ]
    .concat();
    let pixels: Vec<u8> = (0..count * 16).map(|i| (i * 7 % 251) as u8).collect();
    place.write("p-images-idx3-ubyte", [head, pixels].concat());
    let labels: Vec<u8> = (0..count).map(|i| (i % 10) as u8).collect();
    let head = [&[0, 0, 8, 1][..], &count.to_be_bytes()].concat();
    place.write("p-labels-idx1-ubyte", [head, labels].concat());
}

fn names(value: &serde_json::Value) -> Vec<&str> {
    let stages = value["stages"].as_array().unwrap();
    stages
        .iter()
        .map(|stage| stage["name"].as_str().unwrap())
        .collect()
}

#[test]
fn figures_of_a_pipeline() {
    let place = Place::new();
    text(&place, 1000);
    let figures = place.json("bench text.txt --decode words --buckets auto --batch 32 --epochs 2");
    assert_eq!(figures["fresh_examples"], 2000);
    assert_eq!(figures["echoed_examples"], 0);
    assert_eq!(figures["dropped"], 0);
    let padded = figures["padded_fraction"].as_f64().unwrap();
    assert!((0.0..0.1).contains(&padded), "{padded}");
    assert_eq!(names(&figures)[..2], ["read", "decode"]);
    assert_eq!(figures["stages"][1]["records"], 2000);
    assert!(figures["stages"][1]["busy_s"].as_f64().unwrap() > 0.0);
    assert!(figures["verdict"].as_str().unwrap().contains("bound"));

    let padded = place.json("bench text.txt --decode words --batch 32")["padded_fraction"].clone();
    assert!(padded.as_f64().unwrap() > 0.3, "without buckets {padded}");

    let echoed = place.json("bench text.txt --echo before:2.5:64 --batch 10 --ranks 3");
    assert_eq!(echoed["fresh_examples"], 1000);
    assert_eq!(echoed["echoed_examples"], 1500);
    assert_eq!(echoed["ranks"], 3);

    let dropped = place.json("bench text.txt --last drop --batch 64 --epochs 3");
    assert_eq!(dropped["dropped"], 3 * (1000 % 64));
    assert_eq!(dropped["examples"], 3 * (1000 - 1000 % 64));

    let kept = place.json("bench text.txt --decode words --keep-lengths 3..10 --batch 8");
    let words = |i: usize| 1 + i * 7 % 23 + 1;
    let expected = (0..1000).filter(|&i| (3..=10).contains(&words(i))).count();
    assert_eq!(kept["examples"], expected);

    pictures(&place, 100);
    let flags = "--augment randomcrop:4:1,flip,normalise:0.5:0.25 --batch 16 --planar";
    let figures = place.json(&format!("bench p-images-idx3-ubyte {flags}"));
    assert_eq!(figures["batch_bytes"], 100 * 16 * 4, "floats");
    assert!(names(&figures).contains(&"augment"));
}

#[test]
fn files_in_a_mixture_have_their_shares() {
    let place = Place::new();
    text(&place, 300);
    place.write("other.txt", "another sentence\n".repeat(100));
    let figures = place.json("bench text.txt other.txt --mix 1,3 --batch 16");
    assert_eq!(figures["mixture"], serde_json::json!([100, 300]));
    // Shares that hold at every point leave less randomness.
    let level = figures["rl_exact"].as_f64().unwrap();
    assert!((0.9..1.0).contains(&level), "{level}");
    let line = "bench text.txt other.txt --mix 1,3 --decode words --buckets auto";
    assert!(place.json(line)["rl_exact"].is_null());
    let text = place.ok(line).stdout;
    assert!(text.contains(", exact not known"), "{text}");
    assert_eq!(figures["examples"], 400);
}

#[test]
fn repeats_by_waiting_leave_fresh_examples_alone() {
    let place = Place::new();
    text(&place, 2000);
    let line = "bench text.txt --echo auto:4 --batch 20 --epochs 2 --state s --log l";
    let figures = place.json(line);
    assert_eq!(figures["fresh_examples"], 4000);
    let echoed = figures["echoed_examples"].as_u64().unwrap();
    assert!(echoed <= 3 * 4000, "at most four times: {echoed}");
    assert_eq!(logged(&place, "l").len() as u64, 4000 + echoed);
}

/// Ids in a log.
fn logged(place: &Place, name: &str) -> Vec<u64> {
    let bytes = fs::read(place.path(name)).unwrap_or_default();
    bytes
        .chunks_exact(8)
        .map(|id| u64::from_le_bytes(id.try_into().unwrap()))
        .collect()
}

/// A run killed at random moments consumes in total exactly the examples of an undisturbed one.
#[test]
fn killed_again_and_again_nothing_is_lost_or_repeated() {
    let place = Place::new();
    text(&place, 4000);
    let kills: u32 = std::env::var("PELTON_STAGE_KILLS").map_or(12, |text| text.parse().unwrap());
    let variants = [
        "--decode words --buckets auto --batch 16",
        "--echo before:2:100 --batch 24 --on-bad-record skip",
        "--decode words --buckets pack:40 --batch 8 --threads 3",
        "--echo read:1.5:100 --batch 24",
        "--echo batch:2:5 --batch 30 --order queue:500",
    ];
    for (number, flags) in variants.iter().enumerate() {
        let whole = format!("bench text.txt {flags} --epochs 2 --state w{number} --log lw{number}");
        place.ok(&whole);
        // Slow enough to be still running at the last kill.
        let slow = format!("--compute-ms {}", 4 * kills.div_ceil(12));
        let line =
            format!("bench text.txt {flags} --epochs 2 {slow} --state s{number} --log l{number}");
        let mut died = 0;
        for kill in 0..kills {
            let mut child = place.start(&line);
            // From before the first batch to some batches after the last save.
            std::thread::sleep(Duration::from_millis(u64::from(20 + kill * 97 % 280)));
            kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
            died += u32::from(!child.wait().unwrap().success());
        }
        let rest = line.replace(&slow, "");
        place.ok(&rest);
        let (expected, found) = (
            logged(&place, &format!("lw{number}")),
            logged(&place, &format!("l{number}")),
        );
        assert!(!expected.is_empty() && died > 0);
        assert!(
            found == expected,
            "{flags}: {} of {} ids",
            found.len(),
            expected.len()
        );
        // Running again leaves no work.
        let again = place.json(&rest);
        assert_eq!(again["examples"], 0);
    }
}

/// Ranks share one state and have a log each; a run resumes on any number of ranks.
#[test]
fn killed_ranks_go_on_as_more_or_fewer() {
    let place = Place::new();
    text(&place, 4000);
    for (number, flags) in ["--decode words --buckets auto --batch 12", "--batch 40"]
        .iter()
        .enumerate()
    {
        let line = format!("bench text.txt {flags} --epochs 2 --state s{number} --log l{number}");
        for (kill, ranks) in [3, 1, 4, 2, 3].into_iter().enumerate() {
            let mut child = place.start(&format!("{line} --ranks {ranks} --compute-ms 3"));
            std::thread::sleep(Duration::from_millis(150 + kill as u64 * 97 % 200));
            kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
            child.wait().unwrap();
        }
        place.ok(&format!("{line} --ranks 2"));
        let logs = ["", ".1", ".2", ".3"].map(|rank| format!("l{number}{rank}"));
        let there = logs.iter().filter(|log| place.path(log).exists());
        let mut ids: Vec<u64> = there.flat_map(|log| logged(&place, log)).collect();
        ids.sort_unstable();
        let twice: Vec<u64> = (0..4000).flat_map(|id| [id, id]).collect();
        assert!(ids == twice, "{flags}: {} ids", ids.len());
        let again = place.json(&format!("{line} --ranks 3"));
        assert_eq!(again["examples"], 0);
    }
}

/// The limit applies to the skipped records of all ranks together.
#[test]
fn ranks_share_the_limit_on_bad_examples() {
    let place = Place::new();
    let lines: Vec<String> = (0..60).map(|id| format!("line {id}")).collect();
    std::fs::write(place.path("text.txt"), lines.join("\n")).unwrap();
    // Lines are not pictures.
    let line = "bench text.txt --decode png --batch 12 --ranks 3 --on-bad-record skip";
    place.refuses(&format!("{line}:60"), 1, &["all 60 records", "not a JPEG"]);
    place.refuses(&format!("{line}:59"), 2, &["60 records", "the limit of 59"]);
}

/// A run with only bad records fails under any limit.
#[test]
fn a_run_of_bad_records_alone_fails() {
    let place = Place::new();
    text(&place, 60);
    place.write("rows", "one two\nthree four\n");
    for ranks in [1, 3] {
        for policy in ["skip", "skip:100", "replace"] {
            let flags = format!("--on-bad-record {policy} --ranks {ranks}");
            let parts = [
                "all 60 records",
                "the first: text.txt: record",
                "not a JPEG",
            ];
            place.refuses(&format!("bench text.txt --decode png {flags}"), 1, &parts);
        }
        let line = format!("bench rows --format libsvm --on-bad-record skip --ranks {ranks}");
        let parts = ["all 2 records", "the first: rows: line 1", "\"one\""];
        place.refuses(&line, 1, &parts);
    }
}

/// A log shorter than in its state is not filled with zeros.
#[test]
fn a_log_that_was_cut_or_removed_is_refused() {
    let place = Place::new();
    text(&place, 600);
    for ranks in [1, 2] {
        let line = |epochs: u32, ranks: u32| {
            format!("bench text.txt --batch 20 --state s --log l --epochs {epochs} --ranks {ranks}")
        };
        place.ok(&line(1, ranks));
        let state: serde_json::Value = serde_json::from_slice(&place.read("s")).unwrap();
        let logged = state["log_bytes"].as_array().unwrap();
        assert_eq!(logged.len(), ranks as usize);
        assert_eq!(
            logged.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(),
            4800
        );
        let last = if ranks == 1 { "l" } else { "l.1" };
        let whole = place.read(last);
        place.write(last, &whole[..whole.len() - 8]);
        let parts = [
            &format!("{last}: has "),
            "according to s, so it was cut",
            "start again",
        ];
        for ranks in [1, ranks] {
            place.refuses(&line(2, ranks), 2, &parts);
        }
        assert_eq!(place.read(last).len(), whole.len() - 8, "left alone");
        fs::remove_file(place.path(last)).unwrap();
        place.refuses(&line(2, ranks), 2, &parts);
        assert!(!place.path(last).exists());
        place.write(last, &whole);
        assert_eq!(place.json(&line(2, ranks))["examples"], 600);
        let logs = ["l", "l.1"].iter().filter(|log| place.path(log).exists());
        assert_eq!(logs.map(|log| logged_ids(&place, log)).sum::<usize>(), 1200);
        for name in ["s", "l"] {
            fs::remove_file(place.path(name)).unwrap();
        }
    }
}

fn logged_ids(place: &Place, log: &str) -> usize {
    logged(place, log).len()
}

/// All reported times are within the command's own time.
#[test]
fn times_are_of_one_clock() {
    let place = Place::new();
    text(&place, 500);
    for flags in ["", "--decode words --batch 20", "--ranks 2"] {
        let figures = place.json(&format!("bench text.txt {flags}"));
        let of = |key| crate::command::number(&figures, key);
        let (open_s, first_s, wall_s) = (of("open_s"), of("first_batch_s"), of("wall_s"));
        assert!(
            0.0 < open_s && open_s <= first_s && first_s <= wall_s,
            "{figures}"
        );
        let rate = of("examples") / (wall_s - open_s);
        assert!(
            (of("examples_per_s") / rate - 1.0).abs() < 1e-6,
            "{figures}"
        );
    }
}

/// Photos of a phone: not rotated by default but reported, and rotated if requested.
#[test]
fn orientations_of_pictures() {
    const UPRIGHT: &[u8] = include_bytes!("../../../image/tests/images/orientation_1.jpg");
    const TURNED: &[u8] = include_bytes!("../../../image/tests/images/orientation_6.jpg");
    let place = Place::new();
    fs::create_dir_all(place.path("photos/a")).unwrap();
    for i in 0..6 {
        let bytes = if i < 2 { TURNED } else { UPRIGHT };
        place.write(&format!("photos/a/{i}.jpg"), bytes);
    }
    let line = "bench photos --decode jpg --batch 3 --epochs 2";
    for (flags, report) in [
        (
            "",
            "2 pictures state an orientation in EXIF, which is not applied; --exif apply",
        ),
        ("--exif ignore --echo before:2", "2 pictures state"),
        (
            "--exif apply --ranks 2",
            "2 pictures state an orientation in EXIF, which is applied",
        ),
    ] {
        let figures = place.json(&format!("{line} {flags}"));
        let verdict = figures["verdict"].as_str().unwrap();
        assert!(verdict.contains(report), "{verdict}");
        assert_eq!(figures["exif_pictures"], 2);
    }
    // 9 x 5 pixels, rotated 5 x 9: pictures of one shape fit in a stack.
    place.ok(&format!("{line} --collate stack"));
    let parts = ["photos/a/", "shape"];
    place.refuses(&format!("{line} --collate stack --exif apply"), 2, &parts);
    place.refuses(
        &format!("{line} --exif never"),
        2,
        &["never", "ignore or apply"],
    );
}

/// Records of TensorFlow with one field of pictures, written by TensorFlow 2.21:
///
/// ```python
/// def feature(value):
///     if isinstance(value, bytes):
///         return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
///     return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
///
/// with tf.io.TFRecordWriter("photos.tfrecord") as writer:
///     for i in range(6):
///         jpeg = io.BytesIO()
///         Image.new("RGB", (8 + i, 8), (40 * i, 90, 160)).save(jpeg, "JPEG", quality=90)
///         example = {"photo": jpeg.getvalue(), "caption": b"picture %d" % i, "label": i % 3}
///         features = {name: feature(value) for name, value in example.items()}
///         example = tf.train.Example(features=tf.train.Features(feature=features))
///         writer.write(example.SerializeToString())
/// ```
#[test]
fn pictures_among_fields() {
    const PHOTOS: &[u8] = include_bytes!("../../../format/tests/fixtures/photos.tfrecord");
    let place = Place::new();
    place.write("photos.tfrecord", PHOTOS);
    let line = "bench photos.tfrecord --batch 3 --epochs 2 --decode";
    for decode in ["jpg", "image:photo --augment rrc:4,flip", "jpg --ranks 2"] {
        let figures = place.json(&format!("{line} {decode}"));
        assert_eq!(figures["examples"], 12, "{figures}");
    }
    place.refuses(&format!("{line} image:none"), 2, &["caption, photo"]);
    let shown = place.json("inspect photos.tfrecord --id 5");
    assert_eq!(shown["picture_size"], serde_json::json!([13, 8]), "{shown}");
    assert_eq!(shown["label"], 2.0);
    assert!(
        shown["text"]
            .as_str()
            .unwrap()
            .starts_with("caption: \"picture 5\", photo: ")
    );
}

/// Ctrl-C saves the position of the pipeline and says so.
#[test]
fn an_interrupted_pipeline_goes_on() {
    let place = Place::new();
    text(&place, 2000);
    let line = "bench text.txt --batch 10 --compute-ms 5 --state s --log l";
    let child = place.start(line);
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let report = ["saved in s,", "resume with the same command"];
    Ended::of(child).refused(line, 130, &report);
    let before = logged(&place, "l").len();
    assert!(before < 2000);
    let rest = place.json("bench text.txt --batch 10 --state s --log l");
    assert_eq!(rest["examples"], 2000 - before);
    let mut ids = logged(&place, "l");
    ids.sort_unstable();
    assert_eq!(ids, (0..2000).collect::<Vec<u64>>());
    let other = "bench text.txt --batch 11 --state s --log l";
    place.refuses(other, 2, &["it was saved with another order"]);
}

/// Shells commonly start with a limit of 1024 open files, which a process may raise.
#[test]
fn more_files_than_a_process_has_open_by_default() {
    let place = Place::new();
    for file in 0..200 {
        place.write(&format!("part-{file:03}"), format!("text {file}\n"));
    }
    let bench = "exec $PELTON bench 'part-*' --format text --decode words";
    let ended = place.shell(&format!("ulimit -Sn 64; {bench} --json"));
    assert_eq!(ended.succeeded("bench").json()["examples"], 200);
    let ended = place.shell(&format!("ulimit -n 64; {bench}"));
    ended.refused("bench", 1, &["part-0", "ulimit -Hn"]);
}
