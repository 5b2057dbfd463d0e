//! A model in safetensors: an accepted one has one shape, is finite, and reads the same after it is written again.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_format::{ClassMap, Scale};
use pelton_linear::raw::{read_safetensors, write_safetensors};
use pelton_linear::{Loss, Model, Penalty, Weights};

fn good() -> Vec<u8> {
    write_safetensors(&Model {
        loss: Loss::SquaredHinge,
        cost: Some(0.5),
        class_weights: vec![1.0, 2.0, 0.5],
        classes: ClassMap::named(["a", "b", "c"].map(String::from).to_vec()),
        means: Some(vec![0.5, -1.0]),
        penalty: Penalty::L2,
        threshold: None,
        target_centre: 0.0,
        bias_is_free: false,
        weights: Weights::from_vectors(2, Some(1.0), vec![vec![0.5, -1.0, 2.0]; 3]),
        scale: Scale::new(vec![2.0, 0.5], vec![0.0, -1.0]),
        columns: None,
    })
}

fuzz_target!(|bytes: &[u8]| {
    for file in [bytes, &edits::edited(&good(), bytes)[..]] {
        let Ok(model) = read_safetensors(file) else {
            continue;
        };
        let weights = &model.weights;
        // A real target takes one, as two classes do.
        let vectors = match model.classes.len() { 0 | 2 => 1, classes => classes };
        assert_eq!(weights.subproblems(), vectors);
        for number in 0..vectors {
            assert!(weights.vector(number).iter().all(|value| value.is_finite()));
        }
        let again = write_safetensors(&model);
        let again = read_safetensors(&again).expect("what is written can be read");
        assert_eq!(again, model);
    }
});
