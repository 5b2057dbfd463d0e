//! A stored selection: an accepted one is written exactly as it was read, and its kept records are numbered in
//! order. Selections made from any bits are stored and read.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_plan::Selection;

fn check(bytes: &[u8], records: u64) -> Option<Selection> {
    let selection = Selection::from_bytes(bytes, records).ok()?;
    assert_eq!(selection.to_bytes(), bytes);
    assert_eq!(selection.records(), records);
    // A bit a record, and counts next to it.
    assert!(selection.memory_bytes() <= 2 * bytes.len() as u64);
    let mut number = 0;
    for id in 0..records {
        assert_eq!(selection.rank(id), number);
        if selection.contains(id) {
            assert_eq!(selection.get(number), id);
            number += 1;
        }
    }
    assert_eq!(selection.len(), number);
    Some(selection)
}

fuzz_target!(|input: (u64, &[u8])| {
    let (records, bytes) = input;
    if let Ok(selection) = Selection::from_bytes(bytes, records) {
        assert_eq!(selection.to_bytes(), bytes);
    }
    let few = records % (8 * bytes.len() as u64 + 1);
    let made = Selection::new(few, |id| bytes[id as usize / 8] >> (id % 8) & 1 == 1);
    let stored = made.to_bytes();
    assert_eq!(check(&stored, few), Some(made));
    check(&edits::edited(&stored, bytes), few);
});
