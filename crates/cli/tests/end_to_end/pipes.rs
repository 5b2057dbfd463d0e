//! A pipe instead of an input or cached file: nobody writes to it, and no command waits for that.

use crate::command::Place;

fn fifo(place: &Place, name: &str) {
    let path = place.path(name);
    let _ = std::fs::remove_file(&path);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn no_command_waits_for_a_pipe() {
    let place = Place::new();
    place.libsvm("train", 300);
    place.write("text", "one two three\n".repeat(20));
    place.write("table.csv", "1,2,3\n4,5,6\n".repeat(20));
    let train = "train svm train --epochs 1";
    for (made, pipe, line) in [
        ("", "pipe", "train svm pipe --out run"),
        ("", "pipe", "bench pipe"),
        ("", "pipe", "inspect pipe"),
        ("", "pipe", "train svm train --config pipe --out run"),
        ("", "pipe", "train svm train --classes pipe --out run"),
        ("", "pipe", "train svm train --test pipe --out run"),
        (
            "",
            "pipe",
            "bench text --format text --decode words --vocabulary pipe",
        ),
        ("", "pipe", "bench table.csv --batch 2 --state pipe"),
        (
            "",
            "log",
            "bench table.csv --batch 2 --state state --log log",
        ),
        (train, "run/run.toml", "train svm --resume --out run"),
        (train, "run/run.toml", "eval run train"),
        (train, "run/.lock", "train svm train --overwrite --out run"),
        (train, "run/metrics.jsonl", "train svm --resume --out run"),
        (
            train,
            "run/checkpoint/manifest.json",
            "train svm --resume --out run",
        ),
        (train, "run/model.safetensors", "eval run train"),
        (train, "run/model.safetensors", "predict run train"),
    ] {
        let _ = std::fs::remove_dir_all(place.path("run"));
        if !made.is_empty() {
            place.ok(&format!("{made} --out run"));
        }
        fifo(&place, pipe);
        let ended = place.shell(&format!("timeout 20 $PELTON {line}"));
        let code = ended.code.unwrap_or_default();
        assert!([1, 2].contains(&code), "{pipe}: {line}: {ended:?}");
        ended.refused(line, code, &[pipe.trim_end_matches("/.lock")]);
        let _ = std::fs::remove_file(place.path(pipe));
    }
    // Files that only save time are skipped.
    place.ok("index train");
    for entry in std::fs::read_dir(place.path(".")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.contains("pelton-index") {
            fifo(&place, &name);
        }
    }
    let ended = place.shell(&format!("timeout 20 $PELTON {train} --overwrite --out run"));
    ended.succeeded(train);
}
