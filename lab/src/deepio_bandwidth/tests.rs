//! The table at tiny scale, with negligible waits for the modelled backend.

use std::sync::Arc;

use crate::experiment::Experiment;
use crate::table::{ReproduceConfig, Row};
use crate::tests::reproduced;

fn of<'r>(rows: &'r [Row], figure: &str, method: &str) -> impl Iterator<Item = f64> + 'r {
    let (figure, method) = (figure.to_string(), method.to_string());
    rows.iter()
        .filter(move |row| row.figure.contains(&figure) && row.method.contains(&method))
        .map(|row| row.measured.as_f64().expect("a number"))
}

#[test]
fn bytes_are_counted_and_pipelines_compared() {
    let folder = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::find("deepio-bandwidth").unwrap();
    experiment.ranks = vec![1, 3];
    experiment.memory = vec![1.0, 0.25];
    experiment.sets.truncate(1);
    let config = ReproduceConfig {
        experiment,
        scale: 0.05,
        seeds: 1,
        out: folder.path().to_path_buf(),
        real_data: None,
        program: None,
    };
    let table = reproduced(&config, &Arc::default()).unwrap();
    let backend = "bytes read from the backend";
    for way in ["in memory", "ordered, memory 0.25"] {
        for read in of(&table.rows, backend, way) {
            assert!((read - 1.0).abs() < 0.01, "{way}: {read}");
        }
    }
    // Except for the units that the last load of an epoch and the first of the next share.
    for loads in [9, 16, 32] {
        let way = format!("in {loads} loads, memory 0.25");
        let reads: Vec<f64> = of(&table.rows, backend, &way).collect();
        assert_eq!(reads.len(), 2, "{way}");
        for read in reads {
            assert!(read > 0.96 && read < 1.01, "{way}: {read}");
        }
    }
    let remote = "share of the bytes from memory that others hold";
    assert!(of(&table.rows, remote, "1 rank,").all(|share| share == 0.0));
    let dealt: Vec<f64> = of(&table.rows, remote, "3 ranks, in memory, slots dealt").collect();
    assert!(
        dealt.len() == 1 && (dealt[0] - 200.0 / 3.0).abs() < 5.0,
        "{dealt:?}"
    );
    let gains: Vec<f64> = of(&table.rows, "opportunistic mode over", "ranks").collect();
    assert!(
        gains.len() == 2 * 4 && gains.iter().all(|gain| gain.is_finite()),
        "{gains:?}"
    );
    // This little data takes few sweeps of the look-ahead; the model assumes a read per record.
    let ordered: Vec<f64> = of(&table.rows, "over predicted", "ordered").collect();
    assert!(
        ordered.len() == 2 && ordered.iter().all(|ratio| *ratio > 0.0),
        "{ordered:?}"
    );
    let predicted = table
        .rows
        .iter()
        .filter(|row| row.figure.contains("1.28 TB"));
    assert_eq!(predicted.count(), 20);
    let raw = std::fs::read_to_string(folder.path().join("deepio-bandwidth-runs.csv")).unwrap();
    assert_eq!(raw.lines().count(), 1 + 2 * 8);
    assert!(folder.path().join("deepio-bandwidth.html").exists());
}
