//! `plan-capacity`: predictions and refusals.

use serde_json::Value;

use crate::command::Place;

fn number(figures: &Value, name: &str) -> f64 {
    figures[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} of {figures}"))
}

#[test]
fn capacity_is_predicted_from_stated_figures() {
    let place = Place::new();
    let line = "plan-capacity --nodes 16,1024 --data-size 160GB --node-memory 2.5GB";
    let figures = place.json(line);
    let rows = figures["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    let seconds = |nodes: u64, pipeline: &str| {
        let row = rows
            .iter()
            .find(|row| row["nodes"] == nodes && row["pipeline"] == pipeline);
        number(&row.unwrap()["epoch"], "seconds")
    };
    // 160 GB at 4662.49 MB/s and a random read for each unit.
    let expected = 160e9 / 4662.49e6 + 160e9 / 1048576.0 / 17_071.0;
    assert!((seconds(16, "opportunistic") / expected - 1.0).abs() < 1e-6);
    assert!(seconds(16, "backend") > seconds(16, "ordered"));
    assert!(seconds(1024, "ordered") < 0.1 * seconds(16, "ordered"));
    let text = place.ok(line).stdout;
    assert!(
        text.contains("assumed:") && text.contains("stated: copying"),
        "{text}"
    );
    for (flags, parts) in [
        ("--nodes 0", ["--nodes 0", "1 or more"]),
        ("--nodes -1,2", ["--nodes", "from 0 to 4294967295"]),
        ("--data-size -1GB", ["-1GB", "--data-size"]),
        ("--backend-reads 0", ["--backend-reads", "above 0"]),
        ("--network-reads 1e308", ["--network-reads", "above 0"]),
        ("--network-share 0", ["--network-share", "above 0"]),
    ] {
        place.refuses(&format!("plan-capacity {flags}"), 2, &parts);
    }
}

#[test]
fn training_over_many_classes_is_predicted_from_stated_figures() {
    let place = Place::new();
    let line = "plan-capacity --classes 1e8 --devices 128,256";
    let figures = place.json(line);
    let rows = figures["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    // 6 operations an example and weight of 390 625 rows, at 0.13 of a V100's peak.
    let expected = 6.0 * 4096.0 * 390_625.0 * 512.0 / (0.13 * 125e12);
    let full = rows.iter().find(|row| row["devices"] == 256).unwrap();
    assert!((number(&full["time"], "head_s") / expected - 1.0).abs() < 1e-9);
    let text = place.ok(line).stdout;
    assert!(
        text.contains("assumed:") && text.contains("sparse"),
        "{text}"
    );
    for (flags, named) in [
        ("--classes 1e8 --device tpu", "--device tpu"),
        ("--classes 1e8 --active 2", "--active 2"),
        ("--classes 1000 --net-parameters 1e19", "--net-parameters"),
        ("--classes 10 --neighbours 11", "--neighbours 11"),
        ("--classes 1.5", "--classes"),
        ("--devices 4", "--classes"),
        ("--classes 1e8 --nodes 4", "--nodes"),
        ("--classes 1e8 --batch 0", "--batch"),
        ("--classes 1e10", "1 to 1e9"),
    ] {
        place.refuses(&format!("plan-capacity {flags}"), 2, &[named]);
    }
}
