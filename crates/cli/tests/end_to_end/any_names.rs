//! Names of data need not be UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use crate::command::{Ended, Place};
use crate::samples::DOT;

/// `caf\xe9` and more.
fn name(rest: &str) -> OsString {
    OsString::from_vec([b"caf\xe9", rest.as_bytes()].concat())
}

/// `pelton LINE` with `@` for the name in a word.
fn run(place: &Place, line: &str) -> Ended {
    let words = place.words(line);
    let mut command: Command = place.command(&words[0]);
    for word in &words[1..] {
        match word.split_once('@') {
            Some((before, after)) => {
                let mut whole = OsString::from(before);
                whole.push(name(after));
                command.arg(whole)
            }
            None => command.arg(word),
        };
    }
    Ended::from(command.output().unwrap())
}

#[test]
fn files_on_the_command_line_in_patterns_and_in_runs() {
    let place = Place::new();
    place.libsvm("plain.svm", 60);
    let bytes = place.read("plain.svm");
    std::fs::write(place.path("").join(name(".svm")), bytes).unwrap();
    for line in ["index @.svm --json", "index c*.svm --json"] {
        let figures = run(&place, line).succeeded(line).json();
        assert_eq!(figures["records"], 60);
    }
    let figures = run(&place, "index *.svm --json").succeeded("both").json();
    assert_eq!(figures["records"], 120);
    let lines = [
        "train svm @.svm --test @.svm --epochs 1 --out run@",
        "train svm --resume --epochs 2 --out run@ --json",
        "eval run@ @.svm --json",
        "predict run@ @.svm --out labels@",
        "pack @.svm --out packed@.prow --json",
        "bench @.svm --format text --decode words --cache-dir kept@ --scratch . --state at@ --log ids@ --json",
        "vocabulary @.svm --format text --out words@ --json",
    ];
    for line in lines {
        run(&place, line).succeeded(line);
    }
    let text = String::from_utf8(
        std::fs::read(place.path("").join(run_folder()).join("run.toml")).unwrap(),
    );
    assert!(text.unwrap().contains("caf\\xE9.svm"));
    run(&place, "index @.csv").refused("absent", 2, &["caf", "no such file"]);
    place.write("caf\\xE9.svm", "1 1:1\n");
    run(&place, "index @.svm").refused("two", 2, &["names two files"]);
}

fn run_folder() -> OsString {
    let mut folder = OsString::from("run");
    folder.push(name(""));
    folder
}

#[test]
fn folders_of_such_names_are_classes_of_their_own() {
    let place = Place::new();
    for folder in [&b"caf\xe9"[..], b"caf\xe8", b"cafe"] {
        let folder = place
            .path("images")
            .join(OsString::from_vec(folder.to_vec()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name(".png")), DOT).unwrap();
    }
    let figures = place.json("index images");
    assert_eq!(figures["records"], 3);
    let names = serde_json::json!(["caf\\xE8", "caf\\xE9", "cafe"]);
    assert_eq!(figures["label_names"], names);
}
