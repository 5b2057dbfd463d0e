//! Data that cannot be read: one sentence with file, position and remedy; exit code 2, or 1 in the middle of a run.

use crate::command::{Place, number};
use crate::data::{libsvm, npy, random_bits};

/// Trains on `content` in a file `name`; the message must contain the file's name and `parts`.
fn check(name: &str, content: impl AsRef<[u8]>, parts: &[&str]) {
    let place = Place::new();
    place.write(name, content);
    let mut all = vec![name];
    all.extend(parts);
    place.refuses(&format!("train svm {name} --out run"), 2, &all);
    assert!(!place.path("run/model.txt").exists());
}

/// A good file with `line` as line 5.
fn with_line_5(line: &str) -> String {
    let good = libsvm(9);
    let mut lines: Vec<&str> = good.lines().collect();
    lines[4] = line;
    lines.join("\n") + "\n"
}

#[test]
fn files_that_are_not_there_or_no_files() {
    let place = Place::new();
    place.libsvm("train", 50);
    std::fs::create_dir(place.path("folder")).unwrap();
    place.write("empty", "");
    place.write("comments", "# nothing\n\n#\n");
    place.write("blank", "\n\r\n   \n");
    place.write("photo", b"\xff\xd8\xff\xe0\x00\x10JFIF");
    let cases: [(&str, &[&str]); 8] = [
        ("absent", &["absent", "no such file"]),
        ("folder", &["folder", "is a folder"]),
        ("empty", &["empty", "no records"]),
        ("comments", &["comments", "no records"]),
        ("blank", &["blank", "no records"]),
        ("photo", &["photo", "no known format"]),
        ("abs*", &["abs*", "no file matches", "check"]),
        ("/dev/null", &["/dev/null", "regular file"]),
    ];
    for (path, parts) in cases {
        for command in ["train svm", "index", "inspect", "bench"] {
            place.refuses(&format!("{command} {path}"), 2, parts);
        }
        place.refuses(&format!("pack {path} -o out.prow"), 2, parts);
        assert!(!place.path("out.prow").exists());
        let line = format!("train svm train --test {path} --out wrong-test");
        place.refuses(&line, 2, parts);
    }
    assert!(
        !place.path("wrong-test").exists(),
        "a wrong test file costs nothing"
    );
    place.ok("train svm train --out run");
    place.refuses("eval run absent", 2, &["absent", "no such file"]);
    for path in ["run/model.txt", "run/model.safetensors"] {
        let ended = place.shell(&format!(
            "rm {path} && mkfifo {path} && exec $PELTON eval {path} train"
        ));
        ended.refused(path, 2, &[path, "a regular file"]);
    }
    place.ok("train svm train --out run --overwrite");
    place.refuses("predict run folder", 2, &["folder", "is a folder"]);
    for command in ["eval", "predict"] {
        for path in ["absent", "runs/absent", "absent/model.txt", "train/run"] {
            let line = format!("{command} {path} train");
            let parts = [path, "no run folder or model file", "check the path"];
            place.refuses(&line, 2, &parts);
        }
    }
    place.refuses("eval folder train", 2, &["folder", "no finished model"]);
    place.refuses("eval train train", 2, &["train"]);
    place.refuses("probe absent --size 1MiB", 2, &["absent"]);
    place.refuses("probe train --size 1MiB", 2, &["train"]);
}

#[test]
fn files_without_permission() {
    let place = Place::new();
    place.libsvm("train", 50);
    // Root may read everything, so root drops that right.
    let ended = place.shell(
        "chmod 000 train; drop=; if [ $(id -u) = 0 ]; then \
         drop='setpriv --bounding-set=-dac_override,-dac_read_search'; \
         $drop true || { echo unable; exit 0; }; fi; \
         $drop cat train 2> /dev/null && { echo unable; exit 0; }; \
         exec $drop $PELTON train linear train",
    );
    if ended.stdout.contains("unable") {
        eprintln!("SKIPPED: this user may read every file");
        return;
    }
    ended.refused("train", 2, &["train", "ermission denied"]);
}

#[test]
fn faults_of_libsvm_lines() {
    let cases: [(&str, &[&str]); 14] = [
        ("+1 0:1 2:1", &["index 0", "--zero-based"]),
        ("+1 -3:1", &["negative", "-3"]),
        ("+1 3:1 2:1", &["2 follows 3", "sort"]),
        ("+1 3:1 3:1", &["3 occurs twice"]),
        ("+1 4294967296:1", &["4294967296", "largest"]),
        (
            "+1 99999999999999999999:1",
            &["99999999999999999999", "largest"],
        ),
        ("+1 3 4:1", &["\"3\"", "no colon"]),
        ("+1 3:nan", &["not finite", "nan"]),
        ("+1 3:-inf", &["not finite", "-inf"]),
        ("+1 3:1e39", &["1e39", "32-bit"]),
        ("+1 3:one", &["one", "not a number"]),
        ("+1 x:1", &["\"x\"", "index"]),
        ("good 1:1", &["good", "label"]),
        ("+1 1:", &["value", "feature 1"]),
    ];
    for (line, parts) in cases {
        let mut all = vec!["line 5"];
        all.extend(parts);
        check("file.svm", with_line_5(line), &all);
    }
}

#[test]
fn accepted_spellings_of_libsvm_lines() {
    let place = Place::new();
    let plain = libsvm(200);
    let crlf = plain.replace('\n', "\r\n");
    let mut commented = String::from("# a file of numbers\n\n");
    for line in plain.lines() {
        commented += &format!("{line} # a row\n");
    }
    let unended = plain.trim_end();
    place.write("plain", &plain);
    place.ok("train svm plain --out runs/plain");
    let model = place.read("runs/plain/model.safetensors");
    for (name, text) in [
        ("crlf", crlf.as_str()),
        ("commented", &commented),
        ("unended", unended),
    ] {
        place.write(name, text);
        let figures = place.json(&format!("train svm {name} --out runs/{name}"));
        assert_eq!(figures["records"], 200, "{name}");
        assert!(
            place.read(&format!("runs/{name}/model.safetensors")) == model,
            "{name}"
        );
    }
    place.write("zero", with_line_5("+1 0:1 2:1"));
    place.ok("train svm zero --zero-based --out runs/zero");
    place.ok("eval runs/zero zero");
}

#[test]
fn a_last_line_cut_off_is_reported_with_its_number() {
    let mut text = libsvm(100);
    text.truncate(text.rfind(':').unwrap() + 1);
    check("cut.svm", &text, &["line 100"]);
    text.truncate(text.rfind(' ').unwrap() + 2);
    check("cut.svm", &text, &["line 100", "no colon"]);
}

#[test]
fn data_that_is_something_else_is_named_by_its_first_bad_record() {
    let cases: [(&str, &str, &[&str]); 9] = [
        ("text.svm", "\u{1}\u{2} 1:1\n3 1:1\n", &["line 1", "label"]),
        (
            "table",
            "1 2 3\n4 5 6\n",
            &["separated by blanks", "guessed as csv", "--format"],
        ),
        (
            "prose",
            "Dear reader\nyours\n",
            &["one column", "no features", "--format text"],
        ),
        (
            "some.json",
            "{\"a\": 1}\n",
            &["no column is left", "--column"],
        ),
        (
            "several",
            "1,2 1:1\n3 1:1\n",
            &["line 1", "\"1,2\"", "label"],
        ),
        ("nan", "nan 1:1\n-1 1:1\n", &["line 1", "nan"]),
        (
            "ended.csv",
            "1,2,0,\n3,4,1,\n",
            &["line 1", "column 4", "empty"],
        ),
        (
            "names.csv",
            "a,b\nfoo,1\nbar,1\n",
            &["every record has the label 1", "at least two"],
        ),
        ("labels.csv", "1\n2\n", &["no features", "--format"]),
    ];
    for (name, text, parts) in cases {
        check(name, text, parts);
    }
    check("labels", "1\n-1\n", &["no features"]);
}

#[test]
fn compressed_binary_files_are_refused() {
    use std::io::Write;
    let place = Place::new();
    place.libsvm("train", 40);
    place.ok("pack train -o train.prow");
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&place.read("train.prow")).unwrap();
    check(
        "train.prow.gz",
        packer.finish().unwrap(),
        &["compressed prow", "decompress"],
    );
}

/// A model has all features up to the largest index, so a very large index is refused at once.
#[test]
fn features_that_are_nearly_all_holes() {
    let place = Place::new();
    place.write("far.svm", "1 2000000000:1\n-1 5:1\n1 7:2 9:1\n");
    let began = std::time::Instant::now();
    for flags in ["", "--ranks 2", "--memory 1MiB"] {
        let line = format!("train svm far.svm --out run {flags}");
        place.refuses(&line, 2, &["far.svm", "2000000000 features", "4 values"]);
    }
    let line = "train svm far.svm --out run --ranks 1000";
    place.refuses(line, 2, &["--ranks 1000", "mpirun"]);
    assert!(!place.path("run").exists());
    for command in ["index", "inspect", "bench"] {
        place.ok(&format!("{command} far.svm"));
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(10));
}

#[test]
fn labels_that_do_not_serve() {
    check("same.svm", "1 1:1\n1 1:2\n", &["label 1", "at least two"]);
    let many: String = (0..200_000).map(|i| format!("{}.5 1:1\n", i)).collect();
    check("many.svm", many, &["distinct labels"]);
    let mixed = "1,2,cat\n3,4,1\n3,5,2\n";
    check(
        "mixed.csv",
        mixed,
        &["line 1", "column 3", "\"cat\"", "not a number"],
    );
    let none = "1,2,?\n3,4,1\n3,5,2\n";
    check("none.csv", none, &["line 1", "column 3, the label"]);
    let large = "1 1:1\n-1 1:2\n9007199254740993 1:1\n";
    check("large.svm", large, &["line 3", "9007199254740993", "2^53"]);
    check(
        "large.csv",
        "1,1\n2,-1\n2,1\n3,-1e300\n",
        &["line 4", "-1e300", "2^53"],
    );
    let cells = [1.0, 0.0, 2.0, 1.0, 3.0, 9007199254740992.0];
    check("large.npy", npy(2, &cells), &["record 2", "2^53"]);
    let place = Place::new();
    place.libsvm("train", 50);
    place.write("test", "+1 1:1\n-1 1:1\n3 1:1\n");
    let parts = ["test: line 3", "label 3", "training data"];
    place.refuses("train svm train --test test --out run", 2, &parts);
    place.ok("train svm train --out run --overwrite");
    place.refuses("eval run test", 2, &parts);
    // Predictions make no use of labels.
    assert_eq!(place.ok("predict run test").stdout.lines().count(), 3);
    place.refuses(
        "train svm train --positive 5 --out other",
        2,
        &["5", "train"],
    );
}

#[test]
fn faults_of_csv_cells() {
    let cases: [(&str, &[&str]); 11] = [
        ("1,2,3\n4,5\n", &["line 2", "2 columns", "3"]),
        ("1,2,3\n4,5,6,7\n", &["line 2", "4 columns", "3"]),
        ("1,2,3\n4,five,6\n", &["line 2", "column 2", "five"]),
        (
            "1,2,3\n4,,6\n",
            &["line 2", "column 2", "empty", "--missing"],
        ),
        (
            "1,2,3\n4,nan,6\n",
            &["line 2", "column 2", "\"nan\"", "--missing"],
        ),
        ("1,2,3\n4,inf,6\n", &["line 2", "column 2", "not finite"]),
        // A first row with such a cell was once read as a header.
        (
            "1,NA,1\n2,3,-1\n",
            &["line 1", "column 2", "\"NA\"", "--missing zero"],
        ),
        (
            "1,x,1\n2,3,-1\n",
            &["line 1", "column 2", "\"x\"", "no number"],
        ),
        (
            "1e400,1,1\n2,3,-1\n",
            &["line 1", "column 1", "1e400", "32-bit"],
        ),
        (
            "1,2,1e400\n2,3,-1\n2,3,1\n",
            &["line 1", "column 3", "1e400"],
        ),
        (
            "a,b,label\n1,2,3\n4,1e99,6\n",
            &["line 3", "column 2", "32-bit"],
        ),
    ];
    for (text, parts) in cases {
        check("table.csv", text, parts);
    }
    let place = Place::new();
    place.write("table.csv", "a,b,label\n1,2,0\n4,5,1\n");
    for label in ["c", "7"] {
        let parts = ["table.csv", "label column", label, "--label"];
        place.refuses(&format!("train svm table.csv --label {label}"), 2, &parts);
    }
    place.write("twice.csv", "y,x,y\n0,2,0\n1,5,1\n");
    for command in ["train svm", "index", "bench"] {
        let parts = ["twice.csv", "columns 1 and 3", "\"y\"", "--label 3"];
        place.refuses(&format!("{command} twice.csv --label y"), 2, &parts);
    }
    place.ok("train svm twice.csv --label 3 --out twice");
    place.ok("train svm table.csv --out run");
    place.write("wide.csv", "1,2,3,0\n4,5,6,1\n");
    place.refuses("eval run wide.csv", 2, &["wide.csv", "3 features", "2"]);
    place.refuses(
        "train svm table.csv wide.csv --out both",
        2,
        &["wide.csv", "table.csv"],
    );
}

#[test]
fn bad_records_are_skipped_up_to_a_limit_and_counted() {
    let place = Place::new();
    let mut text = libsvm(300);
    text += "+1 3:1 2:1\n+1 7\n-1 1:nan\n";
    text += &libsvm(300);
    place.write("train", &text);
    for memory in ["64MiB", "400KiB --blocks 6"] {
        let line = format!("train svm train --epochs 40 --memory {memory} --overwrite --out run");
        let figures = place.json(&format!("{line} --on-bad-record skip"));
        assert_eq!(figures["skipped_records"], 3, "{memory}: {figures}");
        assert_eq!(figures["records"], 603, "{memory}: {figures}");
        assert!(number(&figures, "relative_gap") < 1.0);
        let summary = String::from_utf8(place.read("run/summary.json")).unwrap();
        assert!(summary.contains("\"skipped_records\": 3"), "{summary}");
        let report = String::from_utf8(place.read("run/report.html")).unwrap();
        assert!(
            report.contains("3 records could not be read or decoded"),
            "{memory}"
        );
        place.ok(&format!("{line} --on-bad-record skip:3"));
        let parts = ["train", "limit of 2", "line 30"];
        place.refuses(&format!("{line} --on-bad-record skip:2"), 2, &parts);
        // Out of core several threads read, so any of the bad lines may come first.
        place.refuses(&line, 2, &["train", "line 30"]);
    }
    let figures = place.json("bench train --on-bad-record skip --epochs 1");
    assert_eq!(figures["skipped_records"], 3, "{figures}");
}

#[test]
fn a_sidecar_of_another_file_is_not_believed() {
    let place = Place::new();
    place.libsvm("one", 400);
    place.write(
        "two",
        libsvm(900).split_at(900).1.split_once('\n').unwrap().1,
    );
    for name in ["one", "two"] {
        place.ok(&format!("index {name}"));
    }
    let sidecars: Vec<_> = std::fs::read_dir(place.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("two") && name != "two")
        .collect();
    let [sidecar] = &sidecars[..] else {
        panic!("one sidecar: {sidecars:?}");
    };
    let expected = place.json("index two");
    std::fs::copy(
        place.path(&sidecar.replace("two", "one")),
        place.path(sidecar),
    )
    .unwrap();
    let found = place.json("index two");
    assert_eq!(found["records"], expected["records"]);
    assert_eq!(found["source"], "built", "{found}");
    for damage in [&b""[..], b"nonsense", &[0xff; 4096]] {
        place.write(sidecar, damage);
        assert_eq!(place.json("index two")["records"], expected["records"]);
    }
    // The file is edited in place to the same size, so the sidecar does not match again.
    let mut bytes = place.read("two");
    let end = bytes.len() - 1;
    bytes[end] = b' ';
    place.write("two", &bytes);
    place.ok("index two");
}

#[test]
fn a_packed_file_with_any_byte_flipped_or_cut_is_refused() {
    let place = Place::new();
    place.libsvm("train", 60);
    place.ok("pack train -o good.prow");
    place.ok("pack train -o delta.prow --delta");
    place.write("table.csv", "1,2,0\n4,5,1\n2,2,0\n3,5,1\n");
    place.ok("pack table.csv -o dense.prow");
    let mut state = 7;
    for name in ["good.prow", "delta.prow", "dense.prow"] {
        let good = place.read(name);
        // Bytes throughout the header and the end, and some between.
        let mut places: Vec<usize> = (0..64.min(good.len())).step_by(5).collect();
        places.extend((good.len() - 40.min(good.len())..good.len()).step_by(5));
        places.extend((0..12).map(|_| random_bits(&mut state) as usize % good.len()));
        for at in places {
            let mut bad = good.clone();
            bad[at] ^= 1 << (random_bits(&mut state) % 8);
            place.write("bad.prow", &bad);
            let line = format!("train svm bad.prow --out run # {name} byte {at}");
            let line = line.split(" #").next().unwrap();
            let ended = place.run(line);
            assert_eq!(ended.code, Some(2), "{name} byte {at}: {}", ended.stderr);
            ended.refused(line, 2, &["bad.prow"]);
            let _ = std::fs::remove_dir_all(place.path("run"));
        }
        for length in (0..good.len()).step_by(good.len() / 17 + 1) {
            place.write("bad.prow", &good[..length]);
            place.refuses("train svm bad.prow --out run", 2, &["bad.prow"]);
            let _ = std::fs::remove_dir_all(place.path("run"));
        }
        let mut longer = good.clone();
        longer.push(0);
        place.write("bad.prow", &longer);
        place.refuses("train svm bad.prow --out run", 2, &["bad.prow"]);
    }
}

/// Rows with squares beyond f32 once caused a panic with logistic loss, and a model of zeros with others.
#[test]
fn rows_too_long_for_f32_are_refused() {
    let place = Place::new();
    place.write(
        "large.csv",
        "1,1e30,2\n0,-1e30,1\n1,2e30,0.5\n0,-3e30,0.1\n",
    );
    for loss in ["hinge", "squared-hinge", "logistic"] {
        let line = format!(
            "train svm large.csv --label 1 --loss {loss} --solver coordinate-descent --out {loss}"
        );
        place.refuses(
            &line,
            2,
            &["record", "exceed the range of f32", "--scale standard"],
        );
        assert!(!place.path(loss).join("model.safetensors").exists());
        place.ok(&format!("{line} --overwrite --scale standard"));
    }
}

/// Damage found at opening follows the policy for bad records; empty files and markers are accepted.
#[test]
fn a_part_that_is_empty_or_damaged_does_not_refuse_the_rest() {
    let place = Place::new();
    place.write("bad.jsonl", "{\"x\": 1}\n{\"x\": 2,\n{\"x\": 3}\n");
    let line = "bench bad.jsonl";
    let place_of_it = ["bad.jsonl: line 2: column 8: the line ends before its JSON does"];
    place.refuses(line, 2, &place_of_it);
    let kept = place.ok(&format!("{line} --on-bad-record skip --json"));
    assert_eq!(number(&kept.json(), "skipped_records"), 1.0);
    let named = "1 record is bad and left out; the first: bad.jsonl: line 2: column 8";
    assert!(kept.stderr.contains(named), "{}", kept.stderr);
    // Its index does not hide the damage.
    place.refuses(line, 2, &place_of_it);
    let limited = format!("{line} --on-bad-record skip:0");
    place.refuses(&limited, 2, &["1 records", "bad.jsonl: line 2"]);

    place.write("none.csv", "");
    place.write("head.csv", "a,b,label\n");
    place.write(
        "some.csv",
        "a,b,label\n1,true,0\n2,false,1\n3,True,0\n4,FALSE,1\n",
    );
    let trained = place.ok("train svm none.csv head.csv some.csv --out run");
    assert!(
        trained.stderr.contains("none.csv: holds no records"),
        "{}",
        trained.stderr
    );
    assert!(
        trained.stderr.contains("head.csv: holds no records"),
        "{}",
        trained.stderr
    );
    place.refuses(
        "train svm none.csv head.csv --out none",
        2,
        &["none.csv: holds no records"],
    );

    std::fs::create_dir(place.path("spark")).unwrap();
    for name in ["_SUCCESS", "_committed_7", ".part-0.csv.crc"] {
        place.write(&format!("spark/{name}"), "x");
    }
    place.refuses(
        "bench spark/*",
        2,
        &[
            "only spark/",
            "spark/_committed_7 match the pattern, and their names are not those of data files",
        ],
    );
    place.write("spark/part-0.csv", place.read("some.csv"));
    let found = place.ok("bench spark/*");
    assert!(
        found.stderr.contains("spark/*: skips spark/"),
        "{}",
        found.stderr
    );
}
