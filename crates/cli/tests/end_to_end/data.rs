//! Data for the tests: real files if present, and small sets written here.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::command::{Place, copy};

/// The real file `name`, or a loud line and `None`.
fn real(name: &str) -> Option<PathBuf> {
    let adjacent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folders = [
        std::env::var_os("PELTON_DATA").map(PathBuf::from),
        Some(adjacent),
    ];
    let found = folders
        .into_iter()
        .flatten()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is neither in PELTON_DATA nor in ../shared/data");
    }
    found
}

impl Place {
    /// Copies real files here; `false`, with a loud line, if one of them is absent.
    pub fn real(&self, names: &[&str]) -> bool {
        for name in names {
            let Some(path) = real(name) else {
                return false;
            };
            copy(
                &path,
                &self.path(path.file_name().unwrap().to_str().unwrap()),
            );
        }
        true
    }

    /// Writes a LIBSVM file of `rows` rows with labels -1 and +1, nearly separable.
    pub fn libsvm(&self, name: &str, rows: u64) {
        self.write(name, libsvm(rows));
    }

    /// Packs `demo:higgs:ROWS`, 120 bytes a row, as `higgs.prow`.
    pub fn higgs(&self, rows: u64) {
        self.ok(&format!("pack demo:higgs:{rows} --out higgs.prow"));
    }
}

/// CSV rows of 140 features with a label, in the last column, that follows from the first eight.
pub fn wide(rows: u64) -> String {
    let mut state = 11;
    let mut text = String::new();
    for _ in 0..rows {
        let values: Vec<f64> = (0..140).map(|_| random(&mut state)).collect();
        let sum: f64 = values[..8].iter().sum();
        for value in &values {
            write!(text, "{value:.4},").unwrap();
        }
        text += if sum + 0.5 * random(&mut state) > 0.0 {
            "1\n"
        } else {
            "-1\n"
        };
    }
    text
}

/// LIBSVM text with labels that follow from features 1 to 8; feature 9 is noise.
pub fn libsvm(rows: u64) -> String {
    let mut state = 1;
    let mut text = String::new();
    for _ in 0..rows {
        let values: Vec<f64> = (0..9).map(|_| random(&mut state)).collect();
        let sum: f64 = values[..8].iter().sum();
        text += if sum > 0.0 { "+1" } else { "-1" };
        for (index, value) in values.iter().enumerate() {
            write!(text, " {}:{value:.4}", index + 1).unwrap();
        }
        text.push('\n');
    }
    text
}

/// A number from -1 to 1 (SplitMix64).
pub fn random(state: &mut u64) -> f64 {
    random_bits(state) as f64 / (1u64 << 63) as f64 - 1.0
}

/// 64 random bits (SplitMix64).
pub fn random_bits(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// LIBSVM rows of two classes with 2 to 21 of two million features, most of them rare.
pub fn rare_features(rows: u64) -> String {
    let mut state = 7;
    let mut text = String::new();
    for _ in 0..rows {
        let count = 2 + (20.0 * (0.5 + 0.5 * random(&mut state))) as u32;
        let mut features: Vec<u32> = (0..count)
            .map(|_| 1 + (2e6 * (0.5 + 0.5 * random(&mut state)).powi(6)) as u32)
            .collect();
        features.sort_unstable();
        features.dedup();
        let odd = features.iter().filter(|feature| *feature % 3 == 1).count();
        let noise = random(&mut state) > 0.9;
        text += if noise || odd * 3 > features.len() {
            "+1"
        } else {
            "-1"
        };
        for feature in features {
            write!(text, " {feature}:{:.3}", 0.2 + random(&mut state).abs()).unwrap();
        }
        text.push('\n');
    }
    text
}

/// A matrix of f64 as `.npy`.
pub fn npy(columns: usize, cells: &[f64]) -> Vec<u8> {
    let rows = cells.len() / columns;
    let header =
        format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, {columns}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(cells.iter().flat_map(|cell| cell.to_le_bytes()));
    bytes
}
