//! Results never replace inputs, runs or earlier results, and a partial result never looks complete.

use std::time::Duration;

use crate::command::Place;

/// A folder with rows, a text, pictures, and a linear model of the rows.
fn prepared() -> Place {
    let place = Place::new();
    place.libsvm("rows", 2000);
    place.write("text", "a b c\nd e\n".repeat(200));
    place.ok("train svm rows --epochs 1 --out run");
    place
}

/// Lines with `FILE` for a result computed from `rows` or `text`.
const RESULTS: [(&str, &str); 7] = [
    ("rows", "predict run rows --out FILE"),
    ("rows", "pack rows --out FILE"),
    ("rows", "bench rows --compute-ms 0 --state FILE"),
    ("rows", "bench rows --compute-ms 0 --state state --log FILE"),
    ("text", "vocabulary text --format text --out FILE"),
    ("text", "buckets text --out FILE"),
    ("text", "inspect text --out FILE"),
];

#[test]
fn what_is_read_is_never_replaced() {
    let place = prepared();
    place.shell("ln rows hard-rows; ln text hard-text; ln -s rows soft-rows; ln -s text soft-text");
    for (data, line) in RESULTS {
        let before = place.read(data);
        for name in [
            data.to_string(),
            format!("hard-{data}"),
            format!("soft-{data}"),
        ] {
            let flag = if line.contains("--state") {
                ""
            } else {
                "--overwrite"
            };
            let line = format!("{} {flag}", line.replace("FILE", &name));
            place.refuses(&line, 2, &[&name, "would replace", "name another file"]);
            assert!(place.read(data) == before, "{line}");
        }
    }
    let model = place.read("run/model.txt");
    place.shell("ln run/model.txt linked");
    for (line, what) in [
        (
            "predict run/model.txt rows -o linked --overwrite",
            "would replace",
        ),
        (
            "predict run rows -o run/labels",
            "is in the folder of a run",
        ),
        (
            "predict run rows -o run/run.toml --overwrite",
            "would replace",
        ),
        (
            "pack rows -o run/checkpoint/rows",
            "is in the folder of a run",
        ),
        ("predict run rows -o s3://bucket/labels", "local files"),
        (
            "train svm rows --out https://host/run",
            "give s3://, gs:// or az://",
        ),
        (
            "train svm rows --scratch gs://bucket --out other",
            "local files",
        ),
        ("bench rows --cache-dir https://host/folder", "local files"),
    ] {
        place.refuses(line, 2, &[what]);
    }
    assert!(place.read("run/model.txt") == model);
    let odd = place.shell("ls | grep -e : -e other");
    assert_eq!(odd.stdout, "");
    // Standard output appended to its own input would never end.
    let ended = place.shell("$PELTON predict run rows >> rows");
    ended.refused("predict >> rows", 2, &["would replace", "rows"]);
}

#[test]
fn an_earlier_result_stays_until_the_next_is_whole() {
    let place = prepared();
    let results = RESULTS.iter().filter(|(_, line)| !line.contains("--state"));
    for (_, line) in results.filter(|(_, line)| !line.contains("inspect")) {
        let line = line.replace("FILE", "result");
        place.write("result", "mine");
        place.refuses(&line, 2, &["result: exists", "--overwrite"]);
        assert_eq!(place.read("result"), b"mine");
        place.ok(&format!("{line} --overwrite"));
        assert_ne!(place.read("result"), b"mine", "{line}");
    }
    // The bad record follows many predicted ones.
    let mut rows = String::from_utf8(place.read("rows")).unwrap();
    let at = rows.match_indices('\n').nth(1499).unwrap().0 + 1;
    rows.insert_str(at, "1 1:x\n");
    place.write("bad", rows);
    place.write("result", "mine");
    place.refuses("predict run bad -o result --overwrite", 2, &["bad", "1501"]);
    assert_eq!(place.read("result"), b"mine");
    // Only its own state cuts a log.
    place.write("log", "years of work");
    for line in [
        "bench text --format text --batch 20 --state new --log log",
        "bench text --format text --batch 20 --state other --log log",
    ] {
        place.refuses(line, 2, &["log: exists and is not the log of", "--log"]);
        place.ok("bench text --format text --batch 20 --state other");
    }
    assert_eq!(place.read("log"), b"years of work");
}

#[test]
fn a_killed_command_leaves_nothing_that_looks_whole() {
    let place = prepared();
    let slow = "predict run rows -o result --device-model hdd --io pread";
    let temporary = "ls -A | grep ^.pelton-";
    let mut killed = 0;
    for ms in [0, 5, 20, 50, 100, 200] {
        let mut child = place.start(slow);
        std::thread::sleep(Duration::from_millis(ms));
        killed += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        if place.path("result").exists() {
            assert_eq!(place.shell("wc -l < result").stdout.trim(), "2000");
            std::fs::remove_file(place.path("result")).unwrap();
        }
    }
    assert!(killed > 0, "none was killed in time");
    place.ok("predict run rows -o result");
    assert_eq!(
        place.shell(temporary).stdout,
        "",
        "what was left is removed"
    );
}

#[test]
fn pipes_and_standard_output_are_results_too() {
    let place = prepared();
    let expected = place.ok("predict run rows").stdout;
    assert_eq!(expected.lines().count(), 2000);
    for script in [
        "$PELTON predict run rows -o -",
        "$PELTON predict run rows -o /dev/stdout",
        "$PELTON predict run rows -o /dev/stdout | cat",
        "$PELTON predict run rows -o /dev/fd/3 3>&1",
        "mkfifo pipe; cat pipe & $PELTON predict run rows -o pipe; wait",
        "$PELTON predict run rows -o /dev/stdout > file; cat file",
    ] {
        assert_eq!(
            place.shell(script).succeeded(script).stdout,
            expected,
            "{script}"
        );
    }
    let both = "(echo first; $PELTON predict run rows -o /dev/stdout) > file; cat file";
    assert_eq!(place.shell(both).stdout, format!("first\n{expected}"));
    place.ok("predict run rows -o /dev/null");
}

#[cfg(feature = "nets")]
#[test]
fn a_killed_change_of_classes_can_be_made_again() {
    let place = Place::new();
    place.ok("train classify demo:classes:20:4:16 --model none --epochs 1 --out run");
    let line = "classes run --remove 3,4 --out less";
    place.ok(line);
    let model = place.read("less/model.safetensors");
    place.refuses(line, 2, &["less: contains a run already", "--overwrite"]);
    place.ok(&format!("{line} --overwrite"));
    // The leftovers of a kill: everything but the last file.
    std::fs::remove_file(place.path("less/manifest.json")).unwrap();
    place.refuses("predict less demo:classes:20:4:16", 2, &["less"]);
    place.ok(line);
    std::fs::remove_file(place.path("less/manifest.json")).unwrap();
    std::fs::remove_file(place.path("less/model.safetensors")).unwrap();
    place.ok(line);
    assert!(place.read("less/model.safetensors") == model);
    place.refuses(
        "classes run --remove 3 --out run --overwrite",
        2,
        &["run: is the run itself"],
    );
    place.refuses(
        "classes run --remove 3 --out https://host/run",
        2,
        &["give s3://"],
    );
    let data = "demo:classes:20:4:16";
    place.refuses(
        &format!("predict run {data} --embeddings run/model.safetensors --overwrite"),
        2,
        &["would replace"],
    );
}
