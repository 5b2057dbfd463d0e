//! Data that fits in memory is read once, batch by batch, into segments that stay.

use std::sync::Arc;

use pelton_train::linear::{RunOptions, run};
use pelton_train::{DataConfig, LinearConfig};

/// More rows than two batches of a sequential pass hold: the batches once shared a pane, whose
/// segments could then not be taken over, and the run ended in a panic.
#[test]
fn many_small_rows_are_loaded_whole() {
    const ROWS: u64 = 140_000;
    let folder = tempfile::tempdir().unwrap();
    let config = LinearConfig {
        data: DataConfig {
            paths: vec![format!("demo:higgs:{ROWS}")],
            cache_dir: Some(folder.path().join("cache")),
            ..DataConfig::default()
        },
        epochs: 2,
        ..LinearConfig::default()
    };
    let options = RunOptions {
        out: folder.path().join("run"),
        resume: false,
        overwrite: false,
    };
    let summary = run(&config, &options, &Arc::default(), &mut |_| {}).unwrap();
    assert_eq!(summary.access, "memory");
    assert_eq!(summary.records, ROWS);
    // Two epochs, and the pass that certifies.
    assert_eq!(summary.passes, 3.0);
    assert!(summary.relative_gap.unwrap() < 0.1, "{summary:?}");
}
