//! More maps than are watched at a time. A process of its own, as others would meanwhile get none.
#![cfg(target_os = "linux")]

use pelton_storage::{LocalFile, LocalMode, LocalOptions, Storage};

#[test]
fn maps_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, [7; 4096]).unwrap();
    let options = LocalOptions {
        mode: LocalMode::Buffered,
        ..LocalOptions::default()
    };
    let file = LocalFile::open(&path, options).unwrap();
    // The rest are read.
    let maps: Vec<_> = (0..2000).map(|_| file.map()).collect();
    let mapped = maps.iter().flatten().count();
    assert!((500..2000).contains(&mapped), "{mapped}");
    drop(maps);
    for _ in 0..3000 {
        assert!(file.map().is_some());
    }
}
