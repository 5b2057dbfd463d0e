//! The test of a run by the size of classes, and on a sample.

use std::fmt::Write;

use super::*;

/// Classes of 1, 4 and 30 training examples: 24 corners of a cube of five dimensions, and noise.
fn tables(folder: &Path) -> [String; 2] {
    let size = |class: usize| [1, 4, 30][class % 3];
    let mut random = 1_u32;
    let mut table = |name: &str, size: &dyn Fn(usize) -> usize| {
        let mut text = "a,b,c,d,e,label\n".to_string();
        for class in 0..24 {
            for _ in 0..size(class) {
                for at in 0..5 {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let noise = f64::from(random >> 8) / f64::from(1 << 24) - 0.5;
                    let corner = if class >> at & 1 == 1 { 1.0 } else { -1.0 };
                    write!(text, "{},", corner + 2.0 * noise).unwrap();
                }
                writeln!(text, "{class}").unwrap();
            }
        }
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    [table("train.csv", &size), table("test.csv", &|_| 10)]
}

fn tail(folder: &Path) -> (ImageConfig, String) {
    let [training, test] = tables(folder);
    let mut config = config(folder, "near:0.7");
    config.data.paths = vec![training];
    config.data.label = "label".to_string();
    config.fit.test = vec![test.clone()];
    config.fit.batch = 16;
    config.fit.epochs = 6;
    (config, test)
}

#[test]
fn accuracy_is_reported_by_the_size_of_the_class() {
    let folder = tempfile::tempdir().unwrap();
    let (config, test) = tail(folder.path());
    for ranks in [1, 2] {
        let out = folder.path().join(ranks.to_string());
        let summary = run(&config, &out, ranks, false, None).unwrap();
        let groups = summary.test_accuracy_by_class_size.unwrap();
        let sizes: Vec<_> = groups
            .iter()
            .map(|group| (group.least, group.classes))
            .collect();
        assert_eq!(sizes, [(1, 8), (2, 8), (21, 8)]);
        let mut of = EvaluateConfig {
            model: out,
            data: DataConfig::default(),
            memory_bytes: 1 << 26,
        };
        of.data.paths = vec![test.clone()];
        let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
        let quiet = &mut |_: Event<'_>| ();
        let context = RunContext::new(&comm, &interrupt, quiet);
        let mut lines = Vec::new();
        finished::predict_lines(&of, finished::Predicted::Top(1), &mut lines, context).unwrap();
        let text = String::from_utf8(lines).unwrap();
        let mut right = [0; 3];
        for (record, line) in text.lines().enumerate() {
            let class = record / 10;
            let predicted: f64 = line.split('\t').next().unwrap().parse().unwrap();
            right[class % 3] += u64::from(predicted as usize == class);
        }
        for (group, right) in groups.iter().zip(right) {
            assert_eq!(group.examples, 80);
            assert_eq!(group.accuracy, Some(right as f64 / 80.0), "{ranks} ranks");
        }
        assert!(groups[2].accuracy.unwrap() > 0.3, "{groups:?}");
        assert_eq!(summary.test_sample, None);
    }
}

#[test]
fn a_test_on_a_sample_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (mut config, _) = tail(folder.path());
    config.head.as_mut().unwrap().test_examples = Some(90);
    config.fit.validation = Some(pelton_data::Validation::Share(0.5));
    config.fit.epochs = 1;
    let (summary, notes) = reported(&config, &folder.path().join("sample"), false, |_| false);
    let sample = summary.unwrap().test_sample.unwrap();
    assert_eq!((sample.examples, sample.of), (90, 240));
    let note = |what: &str, of: u64| {
        format!(
            "the {what} measures 90 random ones of {of} examples; give `test_examples` {of} for all"
        )
    };
    for note in [note("test", 240), note("validation", 140)] {
        assert!(notes.contains(&note), "{notes:?}");
    }
}
