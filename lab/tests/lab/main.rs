//! The binary `pelton-lab` from outside.

#[path = "../../../crates/cli/tests/end_to_end/command.rs"]
#[allow(dead_code)]
mod command;

mod capacity;
mod echo;
mod glyphs;
mod tables;

/// The program that is tested.
fn program() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_BIN_EXE_pelton-lab"))
}
