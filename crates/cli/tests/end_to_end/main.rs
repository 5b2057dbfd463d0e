//! The `pelton` binary from outside: its output, its files, and its exit.
//!
//! Tests on real data look for it in `PELTON_DATA`, then in `../shared/data` next to the repository, and print a loud
//! line if it is missing. All other tests run on files that they write.

mod command;
mod data;
#[path = "../../../comm/tests/launch/mod.rs"]
mod launch;

mod any_names;
mod bad_data;
mod bad_usage;
mod bare_command;
mod bound_files;
mod buckets;
mod changed_files;
mod class_maps;
mod column_names;
mod config_files;
mod containers;
mod data_commands;
#[cfg(feature = "nets")]
mod documented;
#[cfg(feature = "nets")]
mod flag_sets;
mod full_disk;
mod injected_faults;
mod interruption;
mod kept_classes;
mod launched;
mod likelihood;
mod logging;
mod memory;
#[cfg(feature = "nets")]
mod multinomial;
mod nets;
mod outputs;
mod packed_copies;
mod peers;
mod penalties;
mod pipes;
mod plain_paths;
mod ranks;
mod ranks_faults;
mod real_data;
mod regression;
mod repeated_runs;
#[cfg(feature = "nets")]
mod retrieval;
mod samples;
mod scaling;
mod search;
mod secrets;
#[cfg(feature = "nets")]
mod serve;
#[cfg(feature = "nets")]
mod serve_clients;
mod stages;
mod stages_bad_input;
#[cfg(feature = "nets")]
mod surroundings;
mod tables;
mod thresholds;
mod token_streams;
mod vocabulary;

/// The program under test.
fn program() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_BIN_EXE_pelton"))
}
