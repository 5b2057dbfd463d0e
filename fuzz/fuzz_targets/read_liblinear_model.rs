//! A model in LIBLINEAR's text format: an accepted one has one shape, is finite, and reads the same after it is
//! written again.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_linear::raw::{read_liblinear, write_liblinear};

const GOOD: &[u8] = b"solver_type L2R_L1LOSS_SVC_DUAL\nnr_class 3\nlabel 1 -1 7\nnr_feature 2\nbias 1\n\
    w\n0.5 1.25 -3 \n-1.5 0 2e-3 \n3 4 5 \n";

fuzz_target!(|bytes: &[u8]| {
    for text in [bytes, &edits::edited(GOOD, bytes)] {
        let Ok(model) = read_liblinear(text) else {
            continue;
        };
        let weights = &model.weights;
        // A real target takes one, as two classes do.
        let vectors = match model.classes.len() { 0 | 2 => 1, classes => classes };
        assert_eq!(weights.subproblems(), vectors);
        for number in 0..vectors {
            assert!(weights.vector(number).iter().all(|value| value.is_finite()));
        }
        let again = read_liblinear(&write_liblinear(&model)).expect("what is written can be read");
        assert_eq!(again, model);
    }
});
