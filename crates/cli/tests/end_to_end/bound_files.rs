//! The files of a model and of a checkpoint belong together: every reader refuses a damaged file, or one of another
//! run, by name; and a run writes only to the folder that it opened.

use std::time::{Duration, Instant};

use crate::command::{Ended, Place};

/// The files that a manifest lists.
fn listed(place: &Place, manifest: &str) -> Vec<String> {
    let manifest: serde_json::Value = serde_json::from_slice(&place.read(manifest)).unwrap();
    let files = manifest["files"].as_object().unwrap();
    files.keys().cloned().collect()
}

/// Checks faults of each file of `run`: replaced by that of `other`, truncated, one bit changed, or missing.
fn check_files(place: &Place, manifest: &str, lines: &[&str]) {
    let names = listed(place, &format!("run/{manifest}"));
    for name in &names {
        let file = format!("run/{name}");
        let good = place.read(&file);
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        // The best checkpoint of another run may have another number.
        let stem = name.split('-').next().unwrap();
        let other = listed(place, &format!("other/{manifest}"));
        let other = other.iter().find(|other| *other == name).or_else(|| {
            other
                .iter()
                .find(|other| other.starts_with(stem) && other.ends_with(".rows"))
        });
        let others = [
            place.read(&format!("other/{}", other.unwrap())),
            flipped,
            good[..good.len() - 1].to_vec(),
        ];
        let mut all: Vec<Option<Vec<u8>>> = others.map(Some).to_vec();
        all.push(None);
        all.retain(|bytes| bytes.as_ref() != Some(&good));
        assert!(all.len() >= 3, "{name}");
        for bytes in all {
            match bytes {
                Some(bytes) => place.write(&file, bytes),
                None => std::fs::remove_file(place.path(&file)).unwrap(),
            }
            for line in lines {
                place.refuses(line, 2, &[&file]);
            }
        }
        place.write(&file, good);
    }
    for (bytes, parts) in [
        (&b"{"[..], [manifest, "damaged"]),
        (b"", [manifest, "damaged"]),
    ] {
        let good = place.read(&format!("run/{manifest}"));
        place.write(&format!("run/{manifest}"), bytes);
        lines.iter().for_each(|line| place.refuses(line, 2, &parts));
        place.write(&format!("run/{manifest}"), good);
    }
}

/// A table of eight classes, and a text.
fn data() -> Place {
    let place = Place::new();
    let line = |i: usize| {
        let class = i % 8;
        let values = (0..6).map(|j| {
            let near = if j == class % 6 {
                3.0 - 6.0 * (class / 6) as f64
            } else {
                0.0
            };
            format!(",{}", near + ((i * 7 + j * 13) % 11) as f64 / 20.0)
        });
        format!("name{class}{}\n", values.collect::<String>())
    };
    place.write("data.csv", (0..200).map(line).collect::<String>());
    place.write("text.txt", "one two three four\nfive six one\n".repeat(20));
    place.libsvm("train", 200);
    place
}

#[test]
#[cfg(feature = "nets")]
fn files_of_heads_are_refused_by_name() {
    let place = data();
    let flags = "--label 1 --model mlp --embedding 8 --batch 20 --epochs 2 --validation 0.2";
    for (run, seed) in [("run", 1), ("again", 1), ("other", 2)] {
        place.ok(&format!(
            "train classify data.csv {flags} --seed {seed} --out {run}"
        ));
    }
    // Equal runs produce equal models.
    let names = listed(&place, "run/manifest.json");
    assert_eq!(
        names,
        ["classes.json", "model-1-0-of-1.rows", "model.safetensors"]
    );
    for name in names {
        let [run, again] = ["run", "again"].map(|run| place.read(&format!("{run}/{name}")));
        assert!(run == again, "{name}");
    }
    check_files(
        &place,
        "manifest.json",
        &[
            "eval run data.csv",
            "predict run data.csv",
            "predict run data.csv --embeddings e.npy",
            "classes run --remove name7 --out fewer",
            "serve run --port 0",
        ],
    );
    assert!(!place.path("e.npy").exists() && !place.path("fewer").exists());
    let resume = "train classify --resume --epochs 3 --out run";
    check_files(&place, "checkpoint/manifest.json", &[resume]);
    assert!(
        listed(&place, "run/checkpoint/manifest.json")
            .iter()
            .any(|name| name.contains("best-"))
    );
    // The configuration or the whole checkpoint of another run.
    let good = place.read("run/run.toml");
    place.write("run/run.toml", place.read("other/run.toml"));
    for line in ["eval run data.csv", "serve run --port 0"] {
        place.refuses(line, 2, &["manifest.json", "another run than run.toml"]);
    }
    place.write("run/run.toml", good);
    let copied = place.shell("rm -r run/checkpoint && cp -r again/checkpoint run/checkpoint");
    assert_eq!(copied.code, Some(0), "{}", copied.stderr);
    place.refuses(resume, 2, &["checkpoint/manifest.json", "another run"]);
    // Another job in the same folder removes all files of the run, and no others.
    place.ok("eval again data.csv");
    place.write("again/notes.txt", "mine");
    place.ok("train svm train --epochs 1 --out again --overwrite");
    let names = std::fs::read_dir(place.path("again")).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("events.out"))
        .collect();
    names.sort();
    let expected = [
        ".lock",
        "checkpoint",
        "manifest.json",
        "metrics.jsonl",
        "model.safetensors",
        "model.txt",
        "notes.txt",
        "report.html",
        "run.toml",
        "summary.json",
    ];
    assert_eq!(names, expected);
}

/// The best epoch once mixed two data sets; a resume with other data changed the configuration before it was refused.
#[test]
#[cfg(feature = "nets")]
fn a_refused_resume_names_what_differs_and_changes_nothing() {
    let place = data();
    let text = String::from_utf8(place.read("data.csv")).unwrap();
    let half: Vec<&str> = text.lines().take(100).collect();
    place.write("validation.csv", half.join("\n"));
    let weights = (0..8).map(|class| format!("name{class},1\n"));
    place.write("weights.csv", weights.collect::<String>());
    let flags =
        "--label 1 --model mlp --batch 20 --validation validation.csv --class-weights weights.csv";
    place.ok(&format!(
        "train classify data.csv {flags} --epochs 2 --out run"
    ));
    let resume = "train classify --resume --epochs 3 --out run";
    let config = place.read("run/run.toml");
    for (file, said) in [
        ("validation.csv", "--validation"),
        ("weights.csv", "--class-weights"),
        ("data.csv", "run"),
    ] {
        let good = place.read(file);
        let changed = String::from_utf8(good.clone()).unwrap();
        let changed = changed.replace("name0,1\n", "name0,9\n");
        place.write(
            file,
            changed
                .replacen("name1,-", "name2,-", 1)
                .replacen("name1,0", "name2,0", 1),
        );
        place.refuses(resume, 2, &["run/", said]);
        place.write(file, good);
        assert!(place.read("run/run.toml") == config, "{file}");
    }
    // Without its manifest the checkpoint does not count, and the model stays.
    std::fs::rename(
        place.path("run/checkpoint/manifest.json"),
        place.path("kept"),
    )
    .unwrap();
    place.refuses(resume, 2, &["run/checkpoint/manifest.json: is missing"]);
    std::fs::rename(
        place.path("kept"),
        place.path("run/checkpoint/manifest.json"),
    )
    .unwrap();
    place.write("run/run.toml", "[fit]\nepochs = \n");
    for line in ["predict run data.csv --top 2", "serve run --port 0"] {
        place.refuses(line, 2, &["run/run.toml"]);
    }
    place.write("run/run.toml", config);
    place.ok(resume);
    place.ok("train svm train --epochs 2 --out lin");
    let config = String::from_utf8(place.read("lin/run.toml")).unwrap();
    place.write(
        "lin/run.toml",
        config.replace("label = \"last\"", "label = \"first\""),
    );
    place.refuses("eval lin train", 2, &["lin/run.toml", "--label"]);
}

#[test]
#[cfg(feature = "nets")]
fn files_of_language_models_are_refused_by_name() {
    let place = data();
    for (run, seed) in [("run", 1), ("again", 1), ("other", 2)] {
        place.ok(&format!(
            "train language text.txt --hidden 8 --epochs 2 --batch 10 --seed {seed} --out {run}"
        ));
    }
    for name in ["model.safetensors", "vocabulary.txt"] {
        assert!(place.read(&format!("run/{name}")) == place.read(&format!("again/{name}")));
    }
    let lines = ["eval run text.txt", "sample run --words 3"];
    check_files(&place, "manifest.json", &lines);
    let resume = ["train language --resume --epochs 3 --out run"];
    check_files(&place, "checkpoint/manifest.json", &resume);
    place.ok(resume[0]);
    place.ok(lines[0]);
}

#[test]
fn files_of_linear_models_are_refused_by_name() {
    let place = data();
    let flags = "--solver coordinate-descent --cost 0.1,1 --folds 2 --epochs 3";
    for (run, seed) in [("run", 1), ("again", 1), ("other", 2)] {
        place.ok(&format!(
            "train svm train {flags} --seed {seed} --out {run}"
        ));
    }
    for name in ["model.safetensors", "model.txt"] {
        assert!(place.read(&format!("run/{name}")) == place.read(&format!("again/{name}")));
    }
    let lines = ["eval run train", "predict run train"];
    check_files(&place, "manifest.json", &lines);
    let resume = ["train svm --resume --epochs 4 --out run"];
    check_files(&place, "checkpoint/manifest.json", &resume);
    place.ok(resume[0]);
    place.ok(lines[0]);
    // A model file alone is a model.
    std::fs::create_dir(place.path("lone")).unwrap();
    for name in ["model.txt", "model.safetensors"] {
        place.write(&format!("lone/{name}"), place.read(&format!("run/{name}")));
        place.ok(&format!("eval lone/{name} train"));
    }
    place.refuses("eval lone train", 2, &["lone", "no finished model"]);
}

/// Both runs once wrote to the same files.
#[test]
fn a_run_whose_folder_is_replaced_ends() {
    for takes_its_place in [false, true] {
        let place = data();
        place.higgs(60000);
        let line = "train svm higgs.prow --memory 1/8 --checkpoint-every 0 --solver coordinate-descent --target 1e-15";
        let child = place.start(&format!("{line} --epochs 100000 --out run"));
        let began = Instant::now();
        while !place.path("run/checkpoint/manifest.json").exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "a checkpoint");
            std::thread::sleep(Duration::from_millis(2));
        }
        std::fs::rename(place.path("run"), place.path("moved")).unwrap();
        if takes_its_place {
            place.ok("train svm train --epochs 2 --out run");
        }
        let ended = Ended::of(child);
        ended.refused(
            line,
            1,
            &[
                "run: the run folder was removed, moved or replaced",
                "--out",
            ],
        );
        assert_eq!(place.path("run").exists(), takes_its_place);
        if takes_its_place {
            place.ok("eval run train");
            place.ok("train svm --resume --epochs 3 --out run");
        }
    }
}

/// The second session once made a model of another problem.
#[test]
fn another_problem_is_refused_by_the_setting_that_differs() {
    let place = data();
    let line = "train svm train --loss logistic --out run";
    place.ok(&format!("{line} --penalty elastic-net:0.3 --epochs 2"));
    for (flags, said) in [
        ("--penalty elastic-net:0.9", "--penalty elastic-net:0.3"),
        ("--penalty l2", "--penalty elastic-net:0.3"),
        ("--cost 2", "--cost 1 "),
        ("--scale max-abs", "--scale none"),
        ("--class-weight 1=2", "--class-weight"),
        ("--seed 4", "--seed 0"),
    ] {
        let line = format!("train svm --resume --epochs 9 --out run {flags}");
        place.refuses(&line, 2, &["run/run.toml", said, "--overwrite"]);
    }
    let text = String::from_utf8(place.read("run/run.toml")).unwrap();
    place.write(
        "run/run.toml",
        text.replace("elastic-net:0.3", "elastic-net:0.4"),
    );
    for line in ["eval run train", "train svm --resume --epochs 9 --out run"] {
        place.refuses(line, 2, &["run/run.toml", "--penalty elastic-net:0.3"]);
    }
    place.write("run/run.toml", text);
    place.ok("train svm --resume --epochs 9 --threads 1 --out run");
}

/// Each resume once repeated the evaluation of the last pass and logged it as a pass.
#[test]
fn a_resumed_search_of_working_sets_logs_each_pass_once() {
    let place = data();
    let line = "train svm train --loss logistic --penalty l1 --cost 0.1 --checkpoint-every 0";
    // Six passes miss the target.
    place.run(&format!("{line} --epochs 6 --target 1e-12 --out whole"));
    let primals = |run: &str| -> Vec<f64> {
        let text = String::from_utf8(place.read(&format!("{run}/metrics.jsonl"))).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .map(|line: serde_json::Value| line["primal"].as_f64().unwrap())
            .collect()
    };
    let whole = primals("whole");
    for epochs in 1..=2 {
        let run = format!("run{epochs}");
        let line = format!("{line} --target 1e-12 --out {run}");
        place.run(&format!("{line} --epochs {epochs}"));
        place.run(&format!("{line} --epochs {epochs} --resume"));
        place.run(&format!("{line} --epochs 6 --resume"));
        let found = primals(&run);
        let first = |of: &[f64]| of.iter().filter(|primal| **primal == of[0]).count();
        assert_eq!(first(&found), first(&whole), "{found:?} {whole:?}");
    }
}
