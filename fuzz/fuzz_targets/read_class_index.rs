//! The index of a run's classes: an accepted one answers queries with classes that it has, each once.
#![no_main]

mod edits;

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use pelton_run::{Dtype, Tensor, encode_checkpoint};
use pelton_train::raw::read_index;

const TEXT: &str = r#"{"logits":"cosine:16","d":2,"probes":1,"recall":0.9,"longest":1.0}"#;

fn good() -> Vec<u8> {
    let mut bytes = Vec::new();
    let tensors = vec![
        Tensor::new("ids", Dtype::U32, &[2_u32, 0, 1, 3]),
        Tensor::new("starts", Dtype::U64, &[0_u64, 3, 4]),
        Tensor::new("centres", Dtype::F32, &[1.0_f32, 0.0, 0.0, 1.0]),
        Tensor::new("vectors", Dtype::BF16, &[0x3f80_u16, 0, 0x3f80, 0, 0x3f80, 0, 0, 0x3f80]),
    ];
    encode_checkpoint(&mut bytes, TEXT, tensors).expect("memory takes any bytes");
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let edited = edits::edited(&good(), bytes);
    for file in [bytes, &edited] {
        let mut on_disk = tempfile::NamedTempFile::new().expect("a temporary file");
        on_disk.write_all(file).expect("room for it");
        let Some(index) = read_index(on_disk.path()) else {
            continue;
        };
        let query = vec![0.5; index.d()];
        for found in [index.search(&query, 3), index.search_all(&query, usize::MAX)] {
            let mut classes: Vec<u64> = found[0].iter().map(|&(class, _)| class).collect();
            classes.sort_unstable();
            classes.dedup();
            assert_eq!(classes.len(), found[0].len());
            assert!(classes.iter().all(|&class| (class as usize) < index.len()));
        }
    }
});
