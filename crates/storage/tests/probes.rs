//! Probes measure something plausible and leave nothing behind.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pelton_storage::{
    DeviceProbe, LocalMode, PROBE_BLOCKS, PROBE_DEPTHS, ProbeOptions, ProbePattern,
    StorageErrorKind, probe_dir, quick_probe,
};

#[test]
fn probing_a_folder_measures_every_point_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let options = ProbeOptions {
        file_bytes: 8 << 20,
        seconds_per_point: 0.005,
    };
    let probe = probe_dir(folder.path(), options, &AtomicBool::new(false)).expect("probe");
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
    for pattern in [ProbePattern::Sequential, ProbePattern::Random] {
        for block in PROBE_BLOCKS {
            for depth in PROBE_DEPTHS {
                let point = probe.point(pattern, block, depth).expect("measured");
                assert!(point.iops > 0.0);
                // The file is a whole number of blocks, so every read is a full one.
                let bytes = point.iops * block as f64;
                assert!((point.bytes_per_s / bytes - 1.0).abs() < 1e-6, "{point:?}");
            }
        }
    }
    assert!(probe.sequential_write_bytes_per_s > 0.0);
    assert!(probe.random_write_iops > 0.0);
    assert_eq!(probe.note.is_some(), probe.mode != LocalMode::Direct);
    let text = serde_json::to_string(&probe).expect("serialise");
    let back: DeviceProbe = serde_json::from_str(&text).expect("deserialise");
    assert_eq!(back.points.len(), probe.points.len());
    let model = probe.device_model("this disk");
    assert!(model.random_read_iops > 0.0 && model.sequential_read_iops > 0.0);
}

#[test]
fn a_quick_probe_reads_only() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("data");
    let bytes = vec![3u8; 5_000_001];
    std::fs::write(&path, &bytes).expect("write");
    let probe = quick_probe(&path).expect("probe");
    assert!(probe.random_iops > 0.0 && probe.sequential_bytes_per_s > 0.0);
    assert!(std::fs::read(&path).expect("read") == bytes);
}

/// The first signal was ignored until all 42 points were measured.
#[test]
fn an_interrupted_probe_ends() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let options = ProbeOptions {
        file_bytes: 8 << 20,
        seconds_per_point: 60.0,
    };
    let interrupt = AtomicBool::new(false);
    let began = Instant::now();
    let ended = std::thread::scope(|scope| {
        let probe = scope.spawn(|| probe_dir(folder.path(), options, &interrupt));
        std::thread::sleep(Duration::from_millis(200));
        interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
        probe.join().expect("no panic")
    });
    assert_eq!(ended.unwrap_err().kind, StorageErrorKind::Interrupted);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 0);
}

#[test]
fn an_empty_file_has_no_rate() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("empty");
    std::fs::write(&path, b"").expect("write");
    let probe = quick_probe(&path).expect("probe");
    assert_eq!(
        (probe.random_iops, probe.sequential_bytes_per_s),
        (0.0, 0.0)
    );
}

#[test]
fn probing_nothing_is_an_error() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let absent = folder.path().join("absent");
    let options = ProbeOptions::default();
    let refused = probe_dir(&absent, options, &AtomicBool::new(false)).unwrap_err();
    assert_eq!(refused.kind, StorageErrorKind::NotFound);
    assert_eq!(
        quick_probe(&absent).unwrap_err().kind,
        StorageErrorKind::NotFound
    );
}
