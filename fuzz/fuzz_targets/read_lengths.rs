//! Lengths of lines and in columns of text and `.npy`: no more than there are bytes, and they read the same after they
//! are written as a column.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_tools::buckets::{Column, LengthSource, Unit};
use pelton_tools::raw::parse_lengths;

const TABLE: &[u8] = b"id,length,\"a, b\"\n1,12,3\n2,7.0,4\n\n3,0,5\n";

fn vector() -> Vec<u8> {
    let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }\n";
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend([5, 0, 6, 0, 7, 1, 8, 0, 255, 0, 0, 0]);
    file
}

fn check(bytes: &[u8], source: &LengthSource) {
    let Ok(lengths) = parse_lengths(bytes, source) else {
        return;
    };
    assert!(lengths.len() <= bytes.len());
    if let LengthSource::Lines(Unit::Bytes) = source {
        // One for the end of each line.
        let sum: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        assert!(sum <= bytes.len() as u64 + 1);
    }
    let column: String = lengths.iter().map(|length| format!("{length}\n")).collect();
    let first = LengthSource::Column(Column::Position(1));
    let again = parse_lengths(column.as_bytes(), &first).expect("a column of numbers");
    assert_eq!(again, lengths);
}

fuzz_target!(|bytes: &[u8]| {
    let sources = [
        LengthSource::Lines(Unit::Words),
        LengthSource::Lines(Unit::Bytes),
        LengthSource::Column(Column::Position(1)),
        LengthSource::Column(Column::Position(2)),
        LengthSource::Column(Column::Name("length".to_owned())),
    ];
    for source in &sources {
        check(bytes, source);
        check(&edits::edited(TABLE, bytes), source);
        check(&edits::edited(&vector(), bytes), source);
    }
});
