//! Every fuzz target on random bytes for a fraction of a second, in the build of the other tests: enough to see that a
//! target compiles and that no common input fails. `./test fuzz` searches by coverage, in a separate build.

// Several targets have the same edits of good files.
#![allow(clippy::duplicate_mod)]

// The name by which the targets import the macro.
extern crate self as libfuzzer_sys;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, UNIX_EPOCH};

use pelton_key::KeyedRng;

/// Time for each target.
const TIME: Duration = Duration::from_millis(300);

macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:block) => {
        pub fn run(_: u64, $bytes: &[u8]) $body
    };
    (|$input:ident: (u64, &[u8])| $body:block) => {
        pub fn run(number: u64, bytes: &[u8]) {
            let $input = (number, bytes);
            $body
        }
    };
}
pub(crate) use fuzz_target;

/// A target's name and function.
type Target = (&'static str, fn(u64, &[u8]));

macro_rules! targets {
    ($($name:ident $file:literal)*) => {
        $(
            // Crate attributes and the import of the macro are left over in a module.
            #[allow(unused_attributes, unused_imports)]
            #[path = $file]
            mod $name;
        )*

        const TARGETS: &[Target] = &[$((stringify!($name), $name::run)),*];
    };
}

targets! {
    decode_delimited_line "../../fuzz/fuzz_targets/decode_delimited_line.rs"
    decode_examples "../../fuzz/fuzz_targets/decode_examples.rs"
    decode_fields "../../fuzz/fuzz_targets/decode_fields.rs"
    decode_image "../../fuzz/fuzz_targets/decode_image.rs"
    decode_json_line "../../fuzz/fuzz_targets/decode_json_line.rs"
    decode_libsvm_line "../../fuzz/fuzz_targets/decode_libsvm_line.rs"
    decode_packed_file "../../fuzz/fuzz_targets/decode_packed_file.rs"
    find_tfrecords "../../fuzz/fuzz_targets/find_tfrecords.rs"
    load_elias_fano "../../fuzz/fuzz_targets/load_elias_fano.rs"
    load_folder_index "../../fuzz/fuzz_targets/load_folder_index.rs"
    load_fvecs "../../fuzz/fuzz_targets/load_fvecs.rs"
    load_npz "../../fuzz/fuzz_targets/load_npz.rs"
    load_selection "../../fuzz/fuzz_targets/load_selection.rs"
    load_sidecar "../../fuzz/fuzz_targets/load_sidecar.rs"
    load_tar "../../fuzz/fuzz_targets/load_tar.rs"
    load_vocabulary "../../fuzz/fuzz_targets/load_vocabulary.rs"
    parse_augment "../../fuzz/fuzz_targets/parse_augment.rs"
    parse_idx_header "../../fuzz/fuzz_targets/parse_idx_header.rs"
    parse_npy_header "../../fuzz/fuzz_targets/parse_npy_header.rs"
    parse_raw_layout "../../fuzz/fuzz_targets/parse_raw_layout.rs"
    read_checkpoint "../../fuzz/fuzz_targets/read_checkpoint.rs"
    read_class_index "../../fuzz/fuzz_targets/read_class_index.rs"
    read_json_class "../../fuzz/fuzz_targets/read_json_class.rs"
    read_label_table "../../fuzz/fuzz_targets/read_label_table.rs"
    read_lengths "../../fuzz/fuzz_targets/read_lengths.rs"
    read_liblinear_model "../../fuzz/fuzz_targets/read_liblinear_model.rs"
    read_loader_state "../../fuzz/fuzz_targets/read_loader_state.rs"
    read_riegeli_chunk "../../fuzz/fuzz_targets/read_riegeli_chunk.rs"
    read_safetensors_model "../../fuzz/fuzz_targets/read_safetensors_model.rs"
    read_table "../../fuzz/fuzz_targets/read_table.rs"
    split_fields "../../fuzz/fuzz_targets/split_fields.rs"
    split_members "../../fuzz/fuzz_targets/split_members.rs"
}

#[test]
fn every_target_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/fuzz_targets");
    let names = std::fs::read_dir(folder).expect("the targets");
    let names = names.map(|entry| entry.expect("a target").file_name().into_string());
    let mut names: Vec<String> = names.map(|name| name.expect("a plain name")).collect();
    names.retain(|name| name != "edits.rs");
    names.sort_unstable();
    let run: Vec<String> = TARGETS
        .iter()
        .map(|(name, _)| format!("{name}.rs"))
        .collect();
    assert_eq!(names, run);
}

#[test]
fn no_target_fails_on_random_bytes() {
    let now = UNIX_EPOCH.elapsed().expect("a clock");
    let mut rng = KeyedRng::new(now.as_nanos() as u64);
    for (name, run) in TARGETS {
        let began = Instant::now();
        while began.elapsed() < TIME {
            let length = rng.below(1 << rng.clone().below(12)) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
            // Targets accept text more often than bytes.
            if rng.below(2) == 0 {
                bytes.iter_mut().for_each(|byte| *byte = b' ' + *byte % 95);
            }
            let number = rng.next_u64() >> rng.below(64);
            let result = catch_unwind(AssertUnwindSafe(|| run(number, &bytes)));
            assert!(result.is_ok(), "{name} failed on {number} and {bytes:?}");
        }
    }
}
