//! A setting means the same in a file and as a flag, and defaults are the same.

use crate::command::Place;

/// Runs `pelton train LINE` and the same job with these settings in a file, and compares the resolved configurations.
#[track_caller]
fn check(place: &Place, line: &str, job: &str, file: &str) {
    let run = |line: &str| {
        place.ok(&format!("train {line} --out run --overwrite"));
        place.configuration("run")
    };
    let by_flags = run(line);
    place.write("file.toml", file);
    let by_file = run(&format!("{job} --config file.toml"));
    assert_eq!(by_file, by_flags, "{line}");
}

#[test]
fn linear_models() {
    let place = Place::new();
    place.libsvm("rows", 200);
    place.write("targets", "1.5 1:1\n2.5 1:2 2:1\n3.25 2:3\n".repeat(20));
    let paths = "[data]\npaths = [\"rows\"]\n";
    check(&place, "linear rows", "linear", paths);
    check(&place, "linear rows --ranks 2", "linear --ranks 2", paths);
    let squared = "loss = \"squared\"\n[data]\npaths = [\"targets\"]\n";
    check(&place, "linear targets --loss squared", "linear", squared);
    let none = format!("free_bias = false\n{squared}");
    check(
        &place,
        "linear targets --loss squared --intercept none",
        "linear",
        &none,
    );
    let demo = "epochs = 1\ntarget = 0.99\n[data]\npaths = [\"demo:higgs:2000\"]\n";
    check(
        &place,
        "linear demo:higgs:2000 --epochs 1 --target 0.99",
        "linear",
        demo,
    );
}

#[cfg(feature = "nets")]
#[test]
fn nets() {
    let place = Place::new();
    place.write("text", "a b c\nd e\n".repeat(40));
    let data = "demo:classes:20:4:16";
    let settings = |first: &str, rest: &str| {
        format!("{first}\n[data]\npaths = [\"{data}\"]\n[fit]\nepochs = 1\n{rest}")
    };
    let image = settings("model = \"mlp\"", "");
    check(
        &place,
        &format!("image {data} --model mlp --epochs 1"),
        "image",
        &image,
    );
    let line = format!("classify {data} --epochs 1");
    check(&place, &line, "classify", &settings("", ""));
    for kind in [
        "auto",
        "near:1",
        "knn:3:1",
        "knn:3:1:0",
        "sampled:1",
        "selective:2:1",
        "mach:5",
    ] {
        let file = settings("", &format!("[head]\nkind = \"{kind}\"\n"));
        check(&place, &format!("{line} --head {kind}"), "classify", &file);
    }
    let random = settings("", "[head]\nbegin = \"random\"\n");
    check(
        &place,
        &format!("{line} --begin random"),
        "classify",
        &random,
    );
    let text = "[data]\npaths = [\"text\"]\n[fit]\nepochs = 1\n";
    check(&place, "language text --epochs 1", "language", text);
}
