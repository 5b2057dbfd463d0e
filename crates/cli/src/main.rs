//! The `pelton` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pelton_cli::pelton(std::env::args_os()))
}
