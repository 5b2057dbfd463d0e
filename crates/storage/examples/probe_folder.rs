//! Measures the disk under a folder and prints the result as JSON:
//! `cargo run --release -p pelton-storage --example probe_folder -- FOLDER`.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use pelton_storage::{ProbeOptions, probe_dir};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args()
        .nth(1)
        .ok_or("usage: probe_folder FOLDER")?;
    let probe = probe_dir(
        Path::new(&folder),
        ProbeOptions::default(),
        &AtomicBool::new(false),
    )?;
    println!("{}", serde_json::to_string_pretty(&probe)?);
    Ok(())
}
