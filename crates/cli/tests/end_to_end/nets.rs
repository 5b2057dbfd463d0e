//! Nets: faults of a run or its settings are reported and leave no model.

use crate::command::Place;

/// The last step of this run makes non-finite parameters: exit code 2 and no model; once there was a model and exit
/// code 0.
#[test]
fn parameters_that_are_no_numbers_are_no_model() {
    let place = Place::new();
    place.refuses(
        "train image demo:images:60 --model small --epochs 1 --rate 1e30 --out run",
        2,
        &["the parameters are no longer finite after step", "--rate"],
    );
    place.write("text", "one two three\n".repeat(20));
    place.refuses(
        "train language text --hidden 8 --epochs 1 --batch 100 --rate 1e30 --out text-run",
        2,
        &["the parameters are no longer finite", "smaller --rate"],
    );
    place.refuses(
        "train classify demo:classes:20:4:16 --model none --epochs 1 --batch 1000 --rate 1e30 --out head-run",
        2,
        &["the parameters are no longer finite", "smaller --rate"],
    );
    for run in ["run", "text-run", "head-run"] {
        assert!(!place.path(run).join("model.safetensors").exists(), "{run}");
    }
}

/// Flags without effect are refused, each with the reason.
#[test]
fn flags_that_change_nothing_are_refused() {
    let place = Place::new();
    place.write("text", "one two three\n".repeat(20));
    for (line, parts) in [
        (
            "image demo:images:60 --optimizer adamw --momentum 0.5",
            ["--momentum does nothing", "--optimizer adamw"],
        ),
        (
            "image demo:images:60 --optimizer lars --nesterov",
            ["--nesterov does nothing", "--optimizer lars"],
        ),
        (
            "image demo:images:60 --patience 3",
            ["--patience does nothing", "without --validation"],
        ),
        (
            "language text --nesterov",
            ["--nesterov does nothing", "momentum of 0"],
        ),
        (
            "language text --heads 2",
            ["--heads does nothing", "--model lstm"],
        ),
        (
            "language text --positions 20",
            ["--positions does nothing", "--model lstm"],
        ),
        (
            "language text --model transformer --embedding 8",
            ["--embedding does nothing", "--model transformer"],
        ),
        (
            "language text --carry 4 --order sequential",
            ["--order does nothing", "--carry"],
        ),
        (
            "language text --carry 4 --echo read:2",
            ["--echo does nothing", "--carry"],
        ),
        (
            "language text --carry 4 --last drop",
            ["--last does nothing", "--carry"],
        ),
        (
            "classify demo:classes:20:4:16 --model none --embedding 8",
            ["--embedding does nothing", "--model none"],
        ),
        (
            "classify demo:classes:20:4:16 --model none --width 2",
            ["--width does nothing", "--model none"],
        ),
        (
            "classify demo:classes:20:4:16 --model none --density 0.1",
            ["--density does nothing", "--model none"],
        ),
        (
            "classify demo:classes:20:4:16 --overlap",
            ["--overlap does nothing", "--micro-batches"],
        ),
        (
            "classify demo:classes:20:4:16 --head mach --correct",
            ["--correct does nothing", "--head mach:1000:8"],
        ),
        (
            "classify demo:classes:20:4:16 --head sampled:0.5 --rebuild 10",
            ["--rebuild does nothing", "--head sampled:0.5"],
        ),
        (
            "classify demo:classes:20:4:16 --begin zeros",
            ["`zeros` is not a beginning", "means or random"],
        ),
        (
            "classify demo:classes:20:4:16 --head knn:10:0.1:1",
            ["`knn:10:0.1:1` is not a head", "DRAWN"],
        ),
        (
            "classify demo:classes:20:4:16 --logits cosine:1e6",
            ["cosine:1e6", "at most 10000"],
        ),
        (
            "classify demo:classes:20:4:16 --precision f16",
            ["`f16` is not a precision", "f32 or bf16"],
        ),
        (
            "image demo:images:60 --cache peers --unit-bytes 4096",
            ["--unit-bytes does nothing", "--mode ordered"],
        ),
        (
            "image demo:images:60 --warmup 2",
            ["--warmup 2", "from 0 to the 1 of the run"],
        ),
        (
            "image demo:images:60 --weight-decay -1",
            ["--weight-decay -1", "from 0 to 1000000"],
        ),
        (
            "image demo:images:60 --width nan",
            ["--width NaN", "from 0.001 to 1000"],
        ),
        (
            "language text --planar",
            ["--planar applies to pictures", "leave it out"],
        ),
        (
            "image demo:images:60 --planar",
            ["--planar puts channels first", "leave it out"],
        ),
    ] {
        place.refuses(&format!("train {line} --epochs 1 --out run"), 2, &parts);
        assert!(!place.path("run").exists(), "{line}");
    }
}

/// A run does not resume with another head.
#[test]
fn another_head_does_not_go_on() {
    let place = Place::new();
    let line = "train classify demo:classes:20:4:16 --model mlp --batch 20 --out run";
    place.ok(&format!("{line} --epochs 1"));
    place.refuses(
        &format!("{line} --epochs 2 --resume --head sampled:1"),
        2,
        &["run.toml", "--head auto and cannot continue with sampled:1"],
    );
    place.refuses(
        &format!("{line} --epochs 2 --resume --logits cosine:32"),
        2,
        &["--logits cosine:16 and cannot continue with cosine:32"],
    );
}

/// Pictures with channels first are refused; once their rows were read as channels. A grey picture may have few rows.
#[test]
fn channels_come_last() {
    let place = Place::new();
    let records = |n: usize, bytes: usize| -> Vec<u8> {
        let record = |i: usize| {
            (0..bytes)
                .map(move |at| (i * at % 251) as u8)
                .chain([i as u8 % 2])
        };
        (0..n).flat_map(record).collect()
    };
    place.write("first.bin", records(12, 3 * 16 * 16));
    place.write("last.bin", records(12, 3 * 16));
    let train = "--model mlp --epochs 1 --batch 6 --out run";
    place.refuses(
        &format!("train image first.bin --format raw:image:u8[3,16,16],label:u8 {train}"),
        2,
        &[
            "3×16×16",
            "channels seem to come first",
            "transpose(0, 2, 3, 1)",
        ],
    );
    place.ok(&format!(
        "train image last.bin --format raw:image:u8[3,16,1],label:u8 {train}"
    ));
}

/// A run that learned nothing succeeds, but with a warning.
#[test]
fn a_loss_that_does_not_fall_is_reported() {
    let place = Place::new();
    place.write("text", "one two three\nfour five\n".repeat(200));
    for (line, fast) in [
        (
            "train classify demo:classes:20:4:16 --model none --batch 20",
            "--rate 1000",
        ),
        (
            "train image demo:classes:20:4:16 --model mlp --batch 20",
            "--rate 1000 --clip 1",
        ),
        ("train language text --hidden 8 --batch 20", "--rate 1000"),
    ] {
        for epochs in [1, 3] {
            let line = format!("{line} --epochs {epochs} --out run --overwrite");
            let ended = place.ok(&format!("{line} {fast} --json"));
            let warning = ended.json()["warning"].as_str().unwrap().to_string();
            assert!(warning.contains("loss did not fall"), "{line}: {warning}");
            assert!(
                ended.stderr.contains("lower --rate"),
                "{line}: {}",
                ended.stderr
            );
            let page = String::from_utf8(place.read("run/report.html")).unwrap();
            assert!(page.contains("loss did not fall"));
            let usual = place.json(&line);
            assert!(usual["warning"].is_null(), "{line}: {usual}");
        }
    }
}

#[test]
fn fields_that_no_net_reads_are_named() {
    let place = Place::new();
    place.write("rows.bin", [7; 600]);
    let line = "train image rows.bin --format raw:x:u8[5],y:u8 --model mlp --out run";
    place.refuses(
        line,
        2,
        &[
            "rows.bin: has the fields x, y",
            "image",
            "features",
            "label",
        ],
    );
    let line = "train image rows.bin --format raw:features:u8[5],y:u8 --model mlp --out run";
    place.refuses(line, 2, &["its batches have y", "field called label"]);
}
