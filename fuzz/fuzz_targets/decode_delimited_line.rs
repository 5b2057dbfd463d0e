//! A line of CSV: accepted numbers equal those that the standard library reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::FeatureType;
use pelton_format::raw::{DelimitedRules, decode_delimited_line};

const FILLED: f32 = 0.5;

fuzz_target!(|line: &[u8]| {
    let columns = line.split(|byte| *byte == b',').count();
    for label in [0, columns / 2, columns - 1] {
        let rules = DelimitedRules {
            delimiter: b',',
            decimal_comma: false,
            columns,
            label: Some(label),
            order: None,
            extra: 0,
            dtype: FeatureType::F32,
            missing: Some(vec![FILLED; columns - 1].into()),
        };
        let mut row = vec![0.0; columns - 1];
        if let Ok(found) = decode_delimited_line(line, &rules, &mut row) {
            assert!(found.is_some() && row.iter().all(|value| value.is_finite()));
            let Ok(text) = std::str::from_utf8(line) else { continue };
            let first = text.split('\n').next().unwrap_or_default();
            let mut kept = row.iter();
            for (column, cell) in first.split(',').enumerate() {
                if column == label {
                    continue;
                }
                let value = kept.next().expect("a value for every other column");
                if let Ok(expected) = cell.parse::<f32>() {
                    let expected = if expected.is_nan() { FILLED } else { expected };
                    assert_eq!(value.to_bits(), expected.to_bits());
                }
            }
        }
    }
});
