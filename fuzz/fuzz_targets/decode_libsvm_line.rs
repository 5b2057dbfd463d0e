//! A line of LIBSVM text: accepted indices ascend, and values are finite; and one with several labels.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::{LibsvmRules, decode_libsvm_line, decode_several};
use pelton_format::{FeatureType, Row};

fuzz_target!(|line: &[u8]| {
    for zero_based in [false, true] {
        let rules = LibsvmRules { zero_based, features: 1 << 20, dtype: FeatureType::F32 };
        let (mut indices, mut values) = (vec![], vec![]);
        if let Ok(label) = decode_libsvm_line(line, rules, &mut indices, &mut values) {
            assert!(label.is_finite());
            assert_eq!(indices.len(), values.len());
            assert!(indices.is_sorted_by(|a, b| a < b));
            assert!(indices.iter().all(|index| *index < 1 << 20));
            assert!(values.iter().all(|value| value.is_finite()));
        }
    }
    if let Some((fields, rows)) = decode_several(line, (1 << 20, 1000)) {
        let Row::Bytes(row) = rows.row(0) else { panic!("rows of bytes") };
        assert!(fields.split(row).is_ok());
    }
});
