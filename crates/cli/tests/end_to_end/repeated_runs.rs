//! The same configuration gives the same model, byte for byte, for any access path.

use crate::command::{Place, number};

const MODEL: &str = "model.safetensors";

impl Place {
    fn model(&self, run: &str) -> Vec<u8> {
        self.read(&format!("{run}/{MODEL}"))
    }
}

#[test]
fn a_run_is_repeated_from_its_configuration_and_by_its_seed() {
    let place = Place::new();
    place.libsvm("train", 4000);
    place.libsvm("test", 500);
    let line = "train svm train --test test --memory 500KiB --blocks 9 --epochs 3 --loss squared-hinge --bias 1 \
                --cost 0.5 --class-weight -1=2 --inner-passes 2 --seed 7";
    place.ok(&format!("{line} --out runs/first"));
    place.ok("train svm --config runs/first/run.toml --out runs/second");
    place.ok(&format!("{line} --out runs/third --threads 1"));
    let first = place.model("runs/first");
    assert!(place.model("runs/second") == first);
    assert!(place.model("runs/third") == first);
    assert_eq!(
        place.configuration("runs/first"),
        place.configuration("runs/second")
    );
    place.ok("train svm --config runs/first/run.toml --seed 8 --out runs/other");
    assert!(place.model("runs/other") != first);
}

#[test]
fn files_have_the_mode_that_the_mask_gives() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.libsvm("train", 300);
    let text = place.read("train");
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, &text).unwrap();
    place.write("text.gz", packer.finish().unwrap());
    for (mask, expected) in [
        ("022", 0o644),
        ("027", 0o640),
        ("077", 0o600),
        ("002", 0o664),
    ] {
        let folder = format!("mask-{mask}");
        let script = format!(
            "umask {mask} && mkdir {folder} && cat train > {folder}/data && cd {folder} && \
             $PELTON train linear data --epochs 1 --out run && \
             $PELTON pack data -o packed.prow && \
             $PELTON index ../text.gz --cache-dir cache && \
             $PELTON index demo:higgs:100 --cache-dir cache"
        );
        place.shell(&script).succeeded(&script);
        let mut folders = vec![place.path(&folder)];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                files += 1;
                let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                assert_eq!(mode, expected, "{}: {mode:o}", path.display());
            }
        }
        // Ten of the run and its lock, the data and its index, the packed file, four in the cache.
        assert_eq!(files, 18, "{mask}");
    }
}

#[test]
fn every_access_path_and_way_to_open_files_gives_the_same_model() {
    let place = Place::new();
    place.libsvm("train", 6000);
    place.ok("pack train -o train.prow");
    place.higgs(4000);
    let shapes = [
        ("train", "--memory 2MiB --blocks 16"),
        ("train.prow", "--memory 2MiB --blocks 16"),
        ("higgs.prow", "--memory 2MiB --blocks 16"),
        ("higgs.prow", "--memory 2MiB --blocks 16 --order page:8192"),
        ("train", "--memory 2MiB --blocks 16 --order queue:500"),
        ("train", "--memory 2MiB --order block:16:permute"),
        ("train", "--memory 2MiB --blocks 16 --order sequential"),
    ];
    for (number, (data, flags)) in shapes.iter().enumerate() {
        let mut first: Option<Vec<u8>> = None;
        for access in ["direct", "window", "window:0", "scatter", "auto"] {
            for io in ["auto", "direct", "buffered", "pread"] {
                // Every path with every I/O mode on the first shape; a few on others.
                if number > 0 && io != "auto" && access != "window" {
                    continue;
                }
                let out = format!("runs/{number}-{access}-{io}").replace(':', "-");
                let line = format!(
                    "train svm {data} {flags} --inner-passes 2 --epochs 2 --seed 3 \
                     --access {access} --io {io} --out {out}"
                );
                if access == "scatter" && !flags.contains("block:") && flags.contains("--order") {
                    // Orders that read runs of neighbours do not need scatter.
                    place.refuses(&line, 2, &["scatter", "use window"]);
                    continue;
                }
                place.ok(&line);
                let model = place.model(&out);
                assert!(
                    *first.get_or_insert_with(|| model.clone()) == model,
                    "{line}"
                );
            }
        }
    }
}

#[test]
fn skipping_reaches_the_same_optimum() {
    let place = Place::new();
    place.higgs(40000);
    let solved = place
        .json("train svm higgs.prow --memory 64MiB --epochs 1 --optimum auto --out runs/solved");
    let optimum = number(&solved, "optimum");
    let line =
        format!("train svm higgs.prow --memory 1/8 --target 1e-3 --epochs 60 --optimum {optimum}");
    let plain = place.json(&format!("{line} --out runs/plain"));
    let skip = place.json(&format!("{line} --skip --out runs/skip"));
    for figures in [&plain, &skip] {
        assert!(number(figures, "relative_gap") <= 1e-3, "{figures}");
        assert!(number(figures, "relative_difference") <= 1e-3, "{figures}");
    }
    // Every certified interval contains the optimum, itself known to 1e-6.
    for figures in [&plain, &skip] {
        assert!(number(figures, "dual") <= optimum * (1.0 + 2e-6));
        assert!(number(figures, "primal") >= optimum * (1.0 - 2e-6));
    }
}

#[test]
fn weights_of_classes_and_bias_change_the_model_as_they_should() {
    let place = Place::new();
    // Ten rows of class 1 are among forty of class 2 on one feature: the weight decides the class.
    let mut text = String::new();
    for i in 0..50 {
        text += &format!(
            "{} 1:{}\n",
            if i % 5 == 0 { 1 } else { 2 },
            1.0 + f64::from(i % 7) * 0.01
        );
    }
    place.write("train", &text);
    let share_of_ones = |flags: &str, out: &str| {
        place.ok(&format!(
            "train svm train --bias 1 --epochs 40 {flags} --out runs/{out}"
        ));
        let predicted = place.ok(&format!("predict runs/{out} train")).stdout;
        predicted.lines().filter(|line| *line == "1").count()
    };
    assert_eq!(share_of_ones("", "plain"), 0);
    assert_eq!(share_of_ones("--class-weight 1=50", "heavy"), 50);
    let weights: Vec<&str> = (0..50)
        .map(|i| if i % 5 == 0 { "50" } else { "1" })
        .collect();
    place.write("weights.txt", weights.join("\n"));
    assert_eq!(share_of_ones("--sample-weights weights.txt", "rows"), 50);
    let balanced = |label: u32| {
        let flags = format!("--class-weight balanced --class-weight {label}=1.5");
        share_of_ones(&flags, &format!("balanced-{label}"))
    };
    assert_eq!((balanced(1), balanced(2)), (50, 0));
    // The weights belong to the training data, and without them eval has no primal value.
    let evaluated = place.json("eval runs/rows train");
    assert!(evaluated["primal"].is_null(), "{evaluated}");
    assert!(!place.json("eval runs/balanced-1 train")["primal"].is_null());
    for (content, parts) in [
        ("1\n2\n", ["2 weights for 50 records", "in their order"]),
        ("1\nx\n", ["line 2", "not a number"]),
    ] {
        place.write("wrong.txt", content);
        let line = "train svm train --sample-weights wrong.txt --out runs/none";
        place.refuses(line, 2, &parts);
    }
    place.write("weights.txt", weights.join("\n").replace("50", "49"));
    place.refuses(
        "train svm train --bias 1 --epochs 50 --sample-weights weights.txt --out runs/rows --resume",
        2,
        &["another --sample-weights"],
    );
    place.refuses(
        "train svm train --class-weight 9=2 --out runs/none",
        2,
        &["--class-weight 9=2", "label 9"],
    );
}

#[test]
fn tests_of_a_model_have_figures_of_every_class() {
    let place = Place::new();
    let text: String = (0..60)
        .map(|i| {
            format!(
                "{},{},{}\n",
                i % 7,
                (i * i) % 11,
                ["no", "yes"][usize::from(i % 7 > 2)]
            )
        })
        .collect();
    place.write("table.csv", &text);
    let line = "train svm table.csv --test table.csv --loss logistic --bias 1 --out run";
    let trained = place.json(line);
    let figures = place.json("eval run table.csv");
    assert_eq!(trained["test"], figures["test"]);
    let test = &figures["test"];
    assert_eq!(test["accuracy"], figures["test_accuracy"]);
    let positive = test["positive"].as_u64().unwrap() as usize;
    assert_eq!(test["classes"][positive], "yes");
    assert!(number(test, "auc") > 0.95 && number(test, "log_loss") < 0.5);
    assert_eq!(test["by_class"][positive]["records"], 33);
    let reported = place.ok("eval run table.csv").stdout;
    for part in ["AUC", "average precision of class yes", "recall", "no "] {
        assert!(reported.contains(part), "{reported}");
    }
    // If scores do not fit, a note says so.
    place.write("long.csv", text.repeat(300));
    let cramped = place.json("eval run long.csv --memory 500000");
    assert!(cramped["test"]["auc"].is_null() && cramped["test"]["lacks_room"] == true);
    let whole = place.json("eval run long.csv --memory 2000000");
    assert!((number(&whole["test"], "auc") - number(test, "auc")).abs() < 1e-9);
    assert_eq!(cramped["test"]["log_loss"], whole["test"]["log_loss"]);
    // The loss of a support vector machine has no probabilities.
    place.ok("train svm table.csv --out svm");
    let svm = place.json("eval svm table.csv");
    assert!(svm["test"]["log_loss"].is_null() && svm["test"]["auc"].is_number());
    // Several ranks have no areas either, but all counts.
    let ranks = place.json(&line.replace("--out run", "--ranks 2 --out ranks"));
    assert!(ranks["test"]["auc"].is_null());
    assert_eq!(ranks["test"]["records"], 60);
}

#[test]
fn a_free_intercept_is_certified_by_both_solvers_and_goes_on() {
    let place = Place::new();
    // Far from 0, with four of five rows in one class.
    let text: String = (0..200)
        .map(|i| {
            let label = if (i * 7) % 5 == 0 { "no" } else { "yes" };
            let x = 3.0 + f64::from(i % 13) * 0.1 + if label == "yes" { 0.2 } else { 0.0 };
            format!("{x},{},{label}\n", (i * i) % 17)
        })
        .collect();
    place.write("table.csv", text);
    for loss in ["hinge", "squared-hinge", "logistic"] {
        let line = format!("train svm table.csv --loss {loss} --cost 0.1 --target 1e-4");
        let run = |flags: &str| place.json(&format!("{line} {flags} --out {loss}-{}", flags.len()));
        let newton = run("--intercept free --solver newton");
        let descent = run("--intercept free --solver coordinate-descent --epochs 2000");
        let regularised = run("--intercept regularised");
        let none = run("--intercept none");
        for figures in [&newton, &descent] {
            assert!(number(figures, "relative_gap") <= 1e-4, "{loss}: {figures}");
            assert!(
                number(figures, "primal") < number(&regularised, "primal"),
                "{loss}"
            );
        }
        let off = number(&newton, "primal") / number(&descent, "primal") - 1.0;
        assert!(off.abs() < 1e-4, "{loss}: {off}");
        assert!(number(&regularised, "primal") < number(&none, "primal"));
        assert_eq!(run("--bias 1")["primal"], regularised["primal"]);
        // The model records its free intercept, so eval gives the value of training.
        let folder = format!("{loss}-{}", "--intercept free --solver newton".len());
        let evaluated = place.json(&format!("eval {folder} table.csv"));
        let off = number(&evaluated, "primal") / number(&newton, "primal") - 1.0;
        assert!(off.abs() < 1e-6, "{loss}: {off}");
    }
    let whole = "train svm table.csv --intercept free --solver coordinate-descent --inner-passes 2 --epochs 6";
    let expected = place.json(&format!("{whole} --out whole"));
    place.json(&format!(
        "{} --out parts",
        whole.replace("--epochs 6", "--epochs 3")
    ));
    let resumed = place.json(&format!("{whole} --out parts --resume"));
    assert_eq!(resumed["primal"], expected["primal"]);
    for (flags, parts) in [
        ("--intercept none --bias 2", ["--intercept none", "--bias"]),
        ("--intercept some", ["some", "free"]),
    ] {
        place.refuses(&format!("train svm table.csv {flags} --out x"), 2, &parts);
    }
    place.refuses(
        "train svm table.csv --intercept regularised --solver coordinate-descent --inner-passes 2 --epochs 9 --out parts --resume",
        2,
        &["started with --intercept"],
    );
}
