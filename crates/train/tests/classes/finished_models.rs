//! The files of a finished run of many classes: its model, and the index over its class vectors.

use pelton_run::{Checkpoint, Manifest, Set};

use super::*;

/// A finished model has only the state needed to predict, and its run resumes exactly.
#[test]
fn a_finished_model_holds_no_momentum_and_its_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let names = |file: &Path| -> Vec<String> {
        let bytes = std::fs::read(file).unwrap();
        let checkpoint = Checkpoint::parse(&bytes, file).unwrap();
        checkpoint
            .names()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    };
    for (kind, of_head) in [
        ("knn:5:0.4", &["mean", "weights"][..]),
        ("selective:3:0.5", &["mean", "weights"]),
        ("mach:20:1", &["0.mean", "0.weights"]),
    ] {
        let mut config = config(folder.path(), kind);
        config.fit.schedule = "constant".parse().unwrap();
        let (whole, parts) = (
            folder.path().join(format!("{kind}-whole")),
            folder.path().join(format!("{kind}-parts")),
        );
        run(&config, &whole, 1, false, None).unwrap();
        config.fit.epochs = 1;
        let summary = run(&config, &parts, 1, false, None).unwrap();
        let rows = |run: &Path, set: Set| {
            let manifest = Manifest::open(run, set).unwrap().unwrap();
            manifest.path(manifest.named("", "-0-of-1.rows").unwrap())
        };
        let (model, last) = (rows(&parts, Set::Model), rows(&parts, Set::Checkpoint));
        assert_eq!(names(&model), of_head, "{kind}");
        assert!(names(&last).len() > of_head.len(), "{kind}");

        let accuracy = || {
            let mut of = EvaluateConfig {
                model: parts.clone(),
                data: DataConfig::default(),
                memory_bytes: 1 << 26,
            };
            of.data.paths = vec!["demo:classes:120:4:16:test".to_string()];
            of.data.cache_dir = Some(folder.path().join("cache"));
            let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
            let quiet = &mut |_: Event<'_>| ();
            finished::eval(&of, None, RunContext::new(&comm, &interrupt, quiet)).unwrap()
        };
        assert_eq!(accuracy().test_accuracy, summary.test_accuracy, "{kind}");
        config.fit.epochs = 2;
        run(&config, &parts, 1, true, None).unwrap();
        assert_eq!(losses(&parts), losses(&whole), "{kind}");
        for set in [Set::Model, Set::Checkpoint] {
            let read = |run: &Path| std::fs::read(rows(run, set)).unwrap();
            assert!(read(&parts) == read(&whole), "{kind}: {set:?}");
        }
        assert!(!model.exists(), "{kind}");
    }
}

/// The index is built once; a file of another model, or a damaged one, is rebuilt with a note.
#[test]
fn an_index_is_a_file_of_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "full");
    let (out, other) = (folder.path().join("run"), folder.path().join("other"));
    run(&config, &out, 2, false, None).unwrap();
    run(&config, &other, 1, false, None).unwrap();
    let pool = pelton_train::thread_pool(2, &Comm::alone()).unwrap();
    let index = |out: &Path, exact: bool| {
        let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
        let mut reported = String::new();
        let observer = &mut |event: Event<'_>| {
            if let Event::Note(text) = event {
                reported += text;
            }
        };
        let mut context = RunContext::new(&comm, &interrupt, observer);
        let run = finished::Classifier::open(out).unwrap();
        let index = run.index(exact, &pool, &mut context).unwrap().unwrap();
        let queries: Vec<f32> = (0..120 * 12).map(|i| (i as f32).sin()).collect();
        let vector = |class: u32| run.vector(class);
        let found = index.search_exactly(&queries, 120, &vector).unwrap();
        (found, reported)
    };
    let file = out.join("index.safetensors");
    let (expected, reported) = index(&out, true);
    assert!(reported.is_empty() && !file.exists(), "{reported}");
    let (found, reported) = index(&out, false);
    assert!(
        reported.contains("index.safetensors: holds the index"),
        "{reported}"
    );
    assert_eq!(found, expected);
    for exact in [true, false] {
        assert_eq!(index(&out, exact), (expected.clone(), String::new()));
    }
    let good = std::fs::read(&file).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    index(&other, false);
    let listed = out.join("index.json");
    let (good_list, of_other) = (
        std::fs::read(&listed).unwrap(),
        std::fs::read(other.join("index.json")).unwrap(),
    );
    for (bytes, list, why) in [
        (&good[..], &of_other[..], "is of another run than run.toml"),
        (&good, b"", "is damaged"),
        (&flipped, &good_list, "is damaged (digest)"),
        (&good[..good.len() / 2], &good_list, "bytes and not"),
        (b"text", &good_list, "has 4 bytes and not"),
    ] {
        std::fs::write(&listed, list).unwrap();
        std::fs::write(&file, bytes).unwrap();
        let (found, reported) = index(&out, false);
        let is_reported = reported.contains(why) && reported.contains("the index is built again");
        assert!(
            is_reported && reported.starts_with(&file.display().to_string()),
            "{reported}"
        );
        assert_eq!(found, expected);
        assert!(std::fs::read(&file).unwrap() == good, "{why}");
    }
    // A file that cannot be written gives only a note.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let (found, reported) = index(&out, false);
    assert!(reported.contains("cannot be written"), "{reported}");
    assert_eq!(found, expected);
    // MACH has no index.
    let mach = folder.path().join("mach");
    run(
        &self::config(folder.path(), "mach:20:2"),
        &mach,
        1,
        false,
        None,
    )
    .unwrap();
    let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
    let quiet = &mut |_: Event<'_>| ();
    let mut context = RunContext::new(&comm, &interrupt, quiet);
    let mach = finished::Classifier::open(&mach).unwrap();
    assert!(mach.index(false, &pool, &mut context).unwrap().is_none());
    assert!(
        mach.vector(0)
            .unwrap_err()
            .to_string()
            .contains("no vector of class 0")
    );
}
