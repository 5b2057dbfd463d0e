//! The search for a cost: the folds are the same records in memory, out of core and on ranks, and so are the figures.

use std::path::Path;

use pelton_comm::run_ranks;
use pelton_data::DataConfig;
use pelton_run::{Interrupt, RunContext};
use pelton_train::linear::{self, RunOptions};
use pelton_train::{LinearConfig, Loss, SearchFigures, Solver};

fn search(config: &LinearConfig, folder: &Path, ranks: usize) -> SearchFigures {
    let options = RunOptions {
        out: folder.join("run"),
        resume: false,
        overwrite: true,
    };
    let never = Interrupt::default();
    let mut results = run_ranks(ranks, |comm| {
        let observer = &mut |_: pelton_run::Event<'_>| {};
        let context = RunContext::new(&comm, &never, observer).in_folder(&options);
        linear::run(config, context)
    })
    .unwrap();
    results.swap_remove(0).search.expect("it was asked for")
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let product = |x: &[f64], mean_x: f64, y: &[f64], mean_y: f64| -> f64 {
        let pairs = x.iter().zip(y);
        pairs.map(|(x, y)| (x - mean_x) * (y - mean_y)).sum()
    };
    let sizes = product(a, mean_a, a, mean_a) * product(b, mean_b, b, mean_b);
    product(a, mean_a, b, mean_b) / sizes.sqrt()
}

#[test]
fn folds_are_the_same_however_rows_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for loss in [Loss::Logistic, Loss::Hinge] {
        let config = LinearConfig {
            data: DataConfig {
                paths: vec!["demo:higgs:3000".to_string()],
                cache_dir: Some(folder.path().join("cache")),
                ..DataConfig::default()
            },
            loss,
            costs: vec![1e-3, 1e-2],
            folds: Some(10),
            threads: 1,
            epochs: 60,
            ..LinearConfig::default()
        };
        let narrow = LinearConfig {
            memory_bytes: 200_000,
            ..config.clone()
        };
        let descends = LinearConfig {
            solver: Solver::CoordinateDescent,
            ..narrow.clone()
        };
        let held = search(&config, folder.path(), 1);
        for (config, ranks) in [(&narrow, 1), (&descends, 1), (&config, 2), (&narrow, 3)] {
            let found = search(config, folder.path(), ranks);
            let case = format!("{loss} {held:?} {found:?}");
            assert_eq!(found.figure, held.figure, "{case}");
            for (a, b) in found.costs.iter().zip(&held.costs) {
                // The remaining gap is noise compared with the differences between folds.
                assert!(correlation(&a.by_fold, &b.by_fold) > 0.75, "{case}");
            }
        }
    }
}
