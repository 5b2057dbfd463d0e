//! Invalid flags: one sentence, exit code 2, and no files left.

use crate::command::{Ended, Place};

/// A value may begin with a hyphen; the error of the flag names valid values.
#[test]
fn negative_values_are_for_their_flags() {
    let place = Place::new();
    place.libsvm("train", 50);
    place.write("text", "one two\n");
    for (line, parts) in [
        ("bench train --memory -1MiB", ["-1MiB", "--memory"]),
        ("bench train --memory -1/8", ["-1/8", "--memory"]),
        ("bench train --keep-lengths -5..3", ["`-5..3`", "FROM..TO"]),
        (
            "bench train --compute-ms -1",
            ["--compute-ms -1", "milliseconds"],
        ),
        ("bench train --batch -8", ["--batch", "0 or more"]),
        ("train svm train --memory -1MiB", ["-1MiB", "--memory"]),
        ("train svm train --target -1e-3", ["--target", "1e-3"]),
        (
            "train svm train --cache-fraction -1/2",
            ["-1/2", "--cache-fraction"],
        ),
        (
            "train svm train --class-weight -1=x",
            ["`-1=x`", "LABEL=FACTOR"],
        ),
        ("buckets text --batch -1", ["--batch", "0 or more"]),
        ("buckets text --policy -1", ["-1", "tokens:MAX"]),
        ("buckets text --column -1", ["no column", "-1"]),
        ("probe . --size -1GiB", ["-1GiB", "--size"]),
        (
            "vocabulary text --out v --max-size -1",
            ["--max-size", "from 0 to 4294967295"],
        ),
    ] {
        place.refuses(line, 2, &parts);
    }
    // Classes may be negative too.
    place.ok("train svm train --class-weight -1=0.5 --positive -1 --epochs 1 --out run");
}

#[test]
fn wrong_flags_are_named() {
    let place = Place::new();
    place.libsvm("train", 50);
    let cases: [(&str, &[&str]); 23] = [
        ("", &["no command", "--help"]),
        ("train", &["--help"]),
        ("trian linear train", &["trian", "train"]),
        ("train svm train --epoch 3", &["--epoch", "--epochs"]),
        ("train svm train --epochs", &["--epochs"]),
        ("train svm train --epochs many", &["many", "--epochs"]),
        ("train svm train --epochs 0", &["--epochs 0"]),
        ("train svm train --order random", &["random", "full"]),
        ("train svm train --order block:0", &["block"]),
        ("train svm train --access fast", &["fast", "window"]),
        ("train svm train --memory lots", &["lots", "64MiB"]),
        ("train svm train --loss l3", &["l3", "logistic"]),
        ("train svm train --cost -1", &["cost", "-1"]),
        ("train svm train --cost nan", &["cost"]),
        ("train svm train --threads 0", &["--threads 0"]),
        ("train svm train --target 2", &["--target"]),
        (
            "train svm train --cache-fraction 2",
            &["--cache-fraction 2"],
        ),
        (
            "train svm train --cache-fraction 0.5",
            &["--cache-fraction 0.5", "128 features"],
        ),
        (
            "train svm train --skip --order sequential",
            &["--skip", "--order full"],
        ),
        ("train svm train --device-model tape", &["tape", "hdd"]),
        ("train svm train --format orc", &["orc", "libsvm"]),
        (
            "train svm train --resume --overwrite",
            &["--resume", "--overwrite"],
        ),
        ("train svm", &["demo:higgs"]),
    ];
    for (line, parts) in cases {
        place.refuses(line, 2, parts);
    }
    for (line, parts) in [
        ("train svm demo:nothing", ["demo:nothing", "demo:higgs"]),
        ("train svm demo:higgs:0", ["demo:higgs:0", "rows"]),
        ("train svm demo:higgs:many", ["demo:higgs:many", "rows"]),
        (
            "train svm train --inner-passes until:x",
            ["until:x", "--inner-passes"],
        ),
        ("train svm train --on-bad-record ignore", ["ignore", "skip"]),
        ("train svm train --optimum best", ["best", "auto"]),
        ("train svm train --class-weight 1", ["LABEL=FACTOR", "`1`"]),
        ("train svm train --blocks 0", ["blocks", "0"]),
        (
            "train svm train --order block:20 --blocks 40",
            ["--order block:20", "--blocks 40"],
        ),
        (
            "train svm train --config absent.toml",
            ["absent.toml", "cannot be read"],
        ),
        ("inspect train --id 50", ["train", "50"]),
        ("bench train --batch 0", ["0 examples", "--batch 1"]),
        ("bench train --epochs 0", ["--epochs 0", "1 or more"]),
        ("bench train --threads 0", ["--threads 0", "1 or more"]),
        ("probe . --seconds nan", ["--seconds NaN", "above 0"]),
        ("probe . --seconds -1", ["--seconds -1", "above 0"]),
        ("train svm train --memory -5", ["-5", "64MiB"]),
        ("train svm train --target -1", ["--target", "1e-3"]),
        ("train svm train --cost 1e300", ["1e300", "1e30"]),
        (
            "train svm train --checkpoint-every nan",
            ["--checkpoint-every", "seconds"],
        ),
        (
            "train svm --resume --out absent",
            ["absent/run.toml", "check the path"],
        ),
    ] {
        place.refuses(line, 2, &parts);
    }
    assert!(!place.path("runs").exists(), "nothing is left behind");
}

#[test]
fn absurd_numbers_are_refused() {
    const MOST: u64 = u64::MAX;
    let place = Place::new();
    place.libsvm("train", 50);
    for command in ["train svm train", "bench train"] {
        for threads in [1025, MOST] {
            let line = format!("{command} --threads {threads}");
            place.refuses(&line, 2, &[&format!("--threads {threads}"), "at most 1024"]);
        }
        place.refuses(
            &format!("{command} --seed -1"),
            2,
            &["-1", "--seed", "whole number"],
        );
        place.refuses(
            &format!("{command} --epochs {MOST}0"),
            2,
            &["--epochs", "below 2^64"],
        );
        let parts = ["--scratch absent", "is not a folder"];
        place.refuses(&format!("{command} --scratch absent"), 2, &parts);
    }
    for (line, parts) in [
        ("train svm train --blocks 51", ["--blocks 51", "50 records"]),
        ("train svm train --cost much", ["--cost", "give a number"]),
        (
            "train svm train --class-weight 1=2 --class-weight 1=3",
            ["--class-weight", "label 1"],
        ),
    ] {
        place.refuses(line, 2, &parts);
    }
    let empty = place.command("index").arg("").output().unwrap();
    Ended::from(empty).refused("index ''", 2, &["empty"]);
    assert!(!place.path("runs").exists(), "nothing is left behind");
    assert!(!place.path("tables").exists(), "nothing is left behind");
    // Any gap at all makes one range of the file.
    place.ok(&format!("bench train --access window:{MOST}"));
    // The largest number of epochs; the first ones are over long before the reader leaves.
    let mut child = place.start(&format!("bench train --epochs {MOST}"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "still measuring");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Each of these once aborted, ran for ever, or was accepted.
#[cfg(feature = "nets")]
#[test]
fn numbers_beyond_sense_or_the_machine_are_refused() {
    let place = Place::new();
    place.libsvm("train", 60);
    place.write("text", "one two three\n".repeat(20));
    let image = "train image demo:images:60 --model small --epochs 1";
    let text = "train language text --hidden 8 --epochs 1";
    for (line, flags, parts) in [
        (
            image,
            "--feed-threads 100000",
            ["--feed-threads 100000", "at most 1024"],
        ),
        (
            image,
            "--read-threads 100000",
            ["--read-threads 100000", "at most 1024"],
        ),
        (
            image,
            "--threads 100000",
            ["--threads 100000", "at most 1024"],
        ),
        (image, "--width 1e308", ["--width", "from 0.001 to 1000"]),
        (
            image,
            "--weight-decay nan",
            ["--weight-decay NaN", "from 0 to"],
        ),
        (image, "--warmup -1", ["--warmup -1", "epochs"]),
        (
            image,
            "--checkpoint-every -1",
            ["--checkpoint-every -1", "seconds"],
        ),
        (
            image,
            "--checkpoint-every inf",
            ["--checkpoint-every inf", "seconds"],
        ),
        (
            text,
            "--embedding 99999999999",
            ["--embedding 99999999999", "from 1 to"],
        ),
        (
            text,
            "--layers 100000",
            ["--layers 100000", "from 1 to 1000"],
        ),
        (text, "--hidden 1000000 --layers 1000", ["parameters", "GB"]),
        ("bench text", "--mix 1e308", ["weight", "1e30"]),
        ("train svm train", "--optimum 1e308", ["1e308", "--optimum"]),
        (
            "vocabulary text --out words",
            "--min-count 0",
            ["--min-count 0", "from 1"],
        ),
    ] {
        let line = line.split(" --hidden 8").collect::<Vec<_>>();
        let line = if flags.contains("--hidden") {
            line.concat()
        } else {
            line.join(" --hidden 8")
        };
        place.refuses(&format!("{line} {flags}"), 2, &parts);
    }
    assert!(!place.path("runs").exists(), "nothing is left behind");
    place.ok(&format!("{image} --checkpoint-every 0.1 --out run"));
}

/// The error once said that the data had no records.
#[cfg(feature = "nets")]
#[test]
fn a_batch_that_nothing_fills_is_named() {
    let place = Place::new();
    place.libsvm("train", 60);
    let parts = [
        "--last drop would drop everything",
        "60 examples do not fill a batch of 100",
        "smaller --batch",
    ];
    place.refuses(
        "bench train --format text --decode words --last drop --batch 100",
        2,
        &parts,
    );
    let line = "train image demo:images:60 --model small --epochs 1";
    place.refuses(&format!("{line} --last drop --batch 100"), 2, &parts);
    place.ok("bench train --format text --decode words --last drop --batch 60");
}

/// The share of a demo's bytes was once raised without a note.
#[test]
fn raised_memory_is_reported() {
    let place = Place::new();
    let line = "train svm demo:higgs:3000 --epochs 1 --solver coordinate-descent";
    let reported = place.ok(&format!("{line} --memory 1/1000000 --out small"));
    let note = "--memory 0 bytes is less than reading needs;";
    assert!(reported.stderr.contains(note), "{}", reported.stderr);
    let reported = place.ok(&format!("{line} --memory 16MiB --out large"));
    assert!(!reported.stderr.contains("asks for"), "{}", reported.stderr);
}

#[test]
fn a_configuration_that_is_none_is_refused_in_one_line() {
    let place = Place::new();
    place.libsvm("train", 50);
    for text in [
        "epochs = ",
        "epochs = \"many\"\n",
        "epoch = 3\n",
        "loss = \"l3\"\n",
    ] {
        place.write("run.toml", text);
        place.refuses(
            "train svm train --config run.toml",
            2,
            &["run.toml", "line 1"],
        );
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let place = Place::new();
    for line in ["--help", "--version", "train svm --help", "bench --help"] {
        let ended = place.ok(line);
        assert!(ended.stdout.contains("pelton"), "{line}: {}", ended.stdout);
        assert_eq!(ended.stderr, "", "{line}");
    }
}

/// The help of a flag lists every spelling of its values.
#[test]
fn help_lists_every_spelling() {
    let help = Place::new().ok("bench --help").stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for spelling in [
        "Format of the files: libsvm, csv, tsv",
        "tokens:LENGTH, bytes:LENGTH, raw:FIELDS",
        "none, jpg (or jpeg), png, webp, image",
        "words or bytes",
        "pairs or pairs:bytes",
        "member:EXTENSION",
        &pelton_tools::Augment::help(),
        "full, page[:BYTES] (4096), queue:EXAMPLES[:shuffled], block:BLOCKS[:permute], opportunistic:LOADS[:UNIT_BYTES] (1048576) or sequential",
        "none, static:LENGTH,LENGTH,… (of pairs static:LENGTHxLENGTH,…), auto, optimal:BUCKETS, tokens:MAX or pack:ROW_LENGTH[:LOOK_AHEAD]",
        "read:FACTOR[:WINDOW]",
        "before:FACTOR[:WINDOW] or after:FACTOR[:WINDOW]",
        "batch:FACTOR[:WINDOW], or auto[:MOST]",
        "auto (default: what the stages need), stack (one shape), pad (to the longest) or ragged",
        "auto, direct, window[:GAP_BYTES] or scatter",
        "ignore (default, as in torchvision) or apply",
        "fail, skip or skip:LIMIT; with stages also replace or replace:LIMIT",
        "ordered",
        "opportunistic[:LOADS]",
        "auto, direct, buffered or pread",
        "json:KEY",
    ] {
        assert!(help.contains(spelling), "{spelling} in {help}");
    }
}

#[test]
fn too_little_memory_is_refused_with_what_is_needed() {
    let place = Place::new();
    place.libsvm("train", 3000);
    place.higgs(3000);
    for data in ["train", "higgs.prow"] {
        for flags in [
            "--memory 100",
            "--memory 1b",
            "--memory 1/100000",
            "--blocks 1 --memory 9KiB",
        ] {
            for access in ["auto", "direct", "window", "scatter"] {
                let line = format!("train svm {data} {flags} --access {access} --out run");
                place.refuses(&line, 2, &["--memory", "bytes"]);
            }
        }
        place.refuses(&format!("bench {data} --memory 1000"), 2, &["--memory"]);
    }
    assert!(!place.path("run").exists(), "nothing is left behind");
}

#[test]
fn a_run_folder_is_not_taken_from_another_run() {
    let place = Place::new();
    place.libsvm("train", 300);
    place.ok("train svm train --out run");
    let model = place.read("run/model.txt");
    place.refuses(
        "train svm train --out run",
        2,
        &["run", "--resume", "--overwrite", "--out"],
    );
    // A command that cannot run does not clear the folder either.
    place.refuses(
        "train svm train --out run --overwrite --memory 100",
        2,
        &["--memory"],
    );
    place.refuses(
        "train svm train --out run --overwrite --test absent",
        2,
        &["absent"],
    );
    assert!(place.read("run/model.txt") == model);
    place.ok("train svm train --out run --overwrite --cost 0.01");
    assert!(place.read("run/model.txt") != model);
    std::fs::create_dir(place.path("home")).unwrap();
    place.write("home/letter", "Dear");
    for flag in ["", "--overwrite", "--resume"] {
        place.refuses(
            &format!("train svm train --out home {flag}"),
            2,
            &["home", "letter"],
        );
    }
    place.refuses("train svm train --out train", 2, &["train"]);
    place.refuses(
        "train svm train --out /proc/none",
        2,
        &["/proc/none", "--out"],
    );
}

#[test]
fn a_reader_that_closes_the_pipe_ends_predictions_quietly() {
    let place = Place::new();
    place.libsvm("train", 30000);
    place.ok("train svm train --epochs 1 --out run");
    let ended =
        place.shell("$PELTON predict run train | head -n 1; $PELTON index train --json | true");
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

/// Flags on the kind of data are refused for other kinds.
#[test]
fn flags_of_other_data_are_refused() {
    let place = Place::new();
    place.libsvm("train", 50);
    place.write("text", "one two\n");
    for (line, parts) in [
        (
            "text --zero-based",
            ["--zero-based does nothing with text", "libsvm"],
        ),
        (
            "text --missing zero",
            ["--missing does nothing with text", "parquet"],
        ),
        (
            "train --missing mean",
            ["--missing does nothing with libsvm", "csv"],
        ),
        (
            "text --file-column 2",
            ["--file-column does nothing", "without --label-file"],
        ),
    ] {
        place.refuses(&format!("bench {line}"), 2, &parts);
    }
    place.ok("bench train --zero-based");
}
