//! Features of a finished run with a head over very many classes, and retrieval with them.

#![cfg(feature = "nets")]

use std::path::Path;
use std::sync::Arc;

use pelton_comm::{Comm, run_ranks};
use pelton_run::{Event, RunContext, RunOptions};
use pelton_train::evaluate::EvaluateConfig;
use pelton_train::{ImageConfig, embeddings, finished, image, retrieval};

fn config(folder: &Path, kind: &str) -> ImageConfig {
    let mut config = ImageConfig::for_classify();
    config.width = 0.125;
    config.data.paths = vec!["demo:classes:120:4:16".to_string()];
    config.data.cache_dir = Some(folder.join("cache"));
    let head = config.head.as_mut().unwrap();
    head.kind = kind.parse().unwrap();
    head.embedding = 12;
    config.fit.epochs = 2;
    config.fit.batch = 40;
    config.fit.rate = Some(0.05);
    config
}

/// The numbers of a `.npy` file of rows.
fn read_npy(bytes: &[u8]) -> Vec<f32> {
    let length = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let numbers = bytes[length..].chunks_exact(4);
    numbers
        .map(|x| f32::from_le_bytes(x.try_into().unwrap()))
        .collect()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn on_console<T>(job: impl FnOnce(RunContext<'_>) -> T) -> T {
    let (comm, interrupt) = (Comm::alone(), Arc::default());
    job(RunContext::new(&comm, &interrupt, &mut |_: Event<'_>| {}))
}

/// A finished run and its data, to evaluate.
fn finished_run(config: &ImageConfig, out: &Path) -> EvaluateConfig {
    let options = RunOptions {
        out: out.to_path_buf(),
        resume: false,
        overwrite: false,
    };
    let trained = run_ranks(2, |comm| {
        let (interrupt, observer) = (Arc::default(), &mut |_: Event<'_>| {});
        let context = RunContext::new(&comm, &interrupt, observer);
        image::run(config, context.in_folder(&options))
    });
    assert!(trained.is_ok());
    EvaluateConfig {
        model: out.to_path_buf(),
        data: config.data.clone(),
        memory_bytes: 64 << 20,
    }
}

/// The best class of a record has the row with the largest product with its features.
#[test]
fn embeddings_are_what_the_head_compares() {
    let folder = tempfile::tempdir().unwrap();
    for (logits, centre) in [("cosine:16", true), ("cosine:16", false), ("product", true)] {
        let mut config = config(folder.path(), "full");
        let head = config.head.as_mut().unwrap();
        (head.logits, head.centre) = (logits.parse().unwrap(), centre);
        let out = folder.path().join(format!("{logits}-{centre}"));
        let of = finished_run(&config, &out);
        let mut npy = Vec::new();
        on_console(|context| embeddings::write_embeddings(&of, &mut npy, context)).unwrap();
        let features = read_npy(&npy);
        assert_eq!(features.len(), 480 * 12);
        let opened = finished::Classifier::open(&out).unwrap();
        let mut rows = opened.rows("weights", 0..120).unwrap().unwrap();
        if logits != "product" {
            for row in rows.chunks_mut(12).chain(features.clone().chunks_mut(12)) {
                let length = dot(row, row).sqrt() as f32;
                row.iter_mut().for_each(|x| *x /= length);
            }
            for row in features.chunks(12) {
                assert!((dot(row, row) - 1.0).abs() < 1e-5);
            }
        }
        let mut lines = Vec::new();
        let top = finished::Predicted::Top(1);
        on_console(|context| finished::predict_lines(&of, top, &mut lines, context)).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        assert_eq!(lines.lines().count(), 480);
        for (line, features) in lines.lines().zip(features.chunks(12)) {
            let (class, score) = line.split_once('\t').unwrap();
            let scores = rows.chunks(12).map(|row| dot(row, features));
            let (best, most) = (0..)
                .zip(scores)
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .unwrap();
            let score: f64 = score.parse().unwrap();
            // Six digits are printed; sums of 12 products in f32.
            let bound = 1e-5 * most.abs().max(1.0);
            assert!(
                (score - most).abs() < bound,
                "{logits} {centre}: {line} {best} {most}"
            );
            let of_class = dot(
                &rows[class.parse::<usize>().unwrap() * 12..][..12],
                features,
            );
            assert!((of_class - most).abs() < bound, "{line} {best} {most}");
        }
    }
}

/// MACH has a mean, too, and without a net features are the vectors.
#[test]
fn embeddings_lack_the_running_mean() {
    let folder = tempfile::tempdir().unwrap();
    let vectors: Vec<Vec<f32>> = (0..90)
        .map(|i| {
            (0..5)
                .map(|j| ((i * 5 + j) as f32 * 1.7).sin() + 1.0)
                .collect()
        })
        .collect();
    let line = |(i, row): (usize, &Vec<f32>)| {
        let numbers: Vec<String> = row.iter().map(f32::to_string).collect();
        format!("{},{}\n", numbers.join(","), i % 9)
    };
    let text: String = vectors.iter().enumerate().map(line).collect();
    let data = folder.path().join("vectors.csv");
    std::fs::write(&data, text).unwrap();
    for (kind, mean) in [("full", "mean"), ("mach:4:2", "0.mean")] {
        let mut config = config(folder.path(), kind);
        config.data.paths = vec![data.to_str().unwrap().to_string()];
        config.model = "none".parse().unwrap();
        let out = folder.path().join(kind);
        let of = finished_run(&config, &out);
        let mut npy = Vec::new();
        on_console(|context| embeddings::write_embeddings(&of, &mut npy, context)).unwrap();
        let opened = finished::Classifier::open(&out).unwrap();
        let mean = opened.rows(mean, 0..1).unwrap().unwrap();
        assert!(mean.iter().all(|m| m.abs() > 0.5), "{kind}: {mean:?}");
        for (row, found) in vectors.iter().zip(read_npy(&npy).chunks(5)) {
            let less: Vec<f32> = row.iter().zip(&mean).map(|(x, m)| x - m).collect();
            let length = dot(&less, &less).sqrt() as f32;
            for (x, found) in less.iter().zip(found) {
                assert!(
                    (x / length - found).abs() < 1e-6,
                    "{kind}: {less:?} {found}"
                );
            }
        }
    }
}

/// Recall is that of all products in double precision, within the data and in a gallery.
#[test]
fn recall_equals_brute_force() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "full");
    let mut of = finished_run(&config, &folder.path().join("run"));
    let gallery = "demo:classes:150:3:16".to_string();
    of.data.paths = vec!["demo:classes:200:5:16:3".to_string()];
    let features = |paths: &[String]| {
        let mut of = of.clone();
        of.data.paths = paths.to_vec();
        let mut npy = Vec::new();
        on_console(|context| embeddings::write_embeddings(&of, &mut npy, context)).unwrap();
        read_npy(&npy)
    };
    // The classes alternate.
    let (own, others) = (
        features(&of.data.paths),
        features(std::slice::from_ref(&gallery)),
    );
    assert_eq!((own.len(), others.len()), (200 * 5 * 12, 150 * 3 * 12));
    let ks = [1, 2, 7];
    let brute = |is_own: bool| -> Vec<f64> {
        let (searched, classes) = if is_own { (&own, 200) } else { (&others, 150) };
        let mut hits = [0.0; 3];
        let mut queries = 0.0;
        for (i, query) in own.chunks(12).enumerate() {
            let class = i % 200;
            if !is_own && class >= 150 {
                continue;
            }
            queries += 1.0;
            let mut all: Vec<(usize, f64)> = searched
                .chunks(12)
                .map(|row| dot(row, query))
                .enumerate()
                .filter(|&(record, _)| !is_own || record != i)
                .collect();
            all.sort_by(|a, b| b.1.total_cmp(&a.1));
            for (hits, k) in hits.iter_mut().zip(ks) {
                let mut nearest = all[..k].iter();
                *hits += f64::from(nearest.any(|&(record, _)| record % classes == class));
            }
        }
        hits.map(|hits| hits / queries).to_vec()
    };
    let none: &[String] = &[];
    for (gallery, left_out, searched) in
        [(none, 0, 1000), (std::slice::from_ref(&gallery), 250, 450)]
    {
        let figures = on_console(|context| retrieval::recall(&of, &ks, gallery, context)).unwrap();
        let found: Vec<f64> = figures.recall.values().copied().collect();
        let expected = brute(gallery.is_empty());
        for (found, expected) in found.iter().zip(&expected) {
            // A few neighbours may be equally near in single precision.
            assert!((found - expected).abs() <= 2e-3, "{found} {expected}");
        }
        assert!(
            expected[0] < expected[2] && expected[0] > 0.01,
            "{expected:?}"
        );
        assert_eq!(figures.queries + figures.left_out, 1000);
        assert_eq!((figures.left_out, figures.gallery), (left_out, searched));
    }
}
