//! Rows depend on (seed, row) alone, have the stated shapes and never change.

use std::convert::Infallible;

use pelton_format::{Layout, Row};

use super::{DemoError, DemoSpec};

fn spec(text: &str) -> DemoSpec {
    DemoSpec::parse(text).unwrap()
}

const SETS: [&str; 6] = [
    "demo:higgs",
    "demo:epsilon",
    "demo:webspam",
    "demo:kdd",
    "demo:images",
    "demo:text",
];

/// CRC-32C over labels, indices and values of some rows.
fn checksum(spec: DemoSpec, seed: u64, range: std::ops::Range<u64>) -> u32 {
    let mut crc = 0;
    let done: Result<(), Infallible> = spec.generate(seed, range, |label, row| {
        crc = crc32c::crc32c_append(crc, &label.to_le_bytes());
        match row {
            Row::Dense(values) => crc = append(crc, values.iter().map(|x| x.to_bits())),
            Row::Sparse { indices, values } => {
                crc = append(crc, indices.iter().copied());
                crc = append(crc, values.iter().map(|x| x.to_bits()));
            }
            Row::Bytes(bytes) => crc = crc32c::crc32c_append(crc, bytes),
        }
        Ok(())
    });
    done.unwrap();
    crc
}

fn append(crc: u32, words: impl Iterator<Item = u32>) -> u32 {
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    crc32c::crc32c_append(crc, &bytes)
}

/// Mean of `figure` over the first `rows` rows of seed 0.
fn mean(spec: DemoSpec, rows: u64, mut figure: impl FnMut(f64, Row<'_>) -> f64) -> f64 {
    let mut sum = 0.0;
    let done: Result<(), Infallible> = spec.generate(0, 0..rows, |label, row| {
        sum += figure(label, row);
        Ok(())
    });
    done.unwrap();
    sum / rows as f64
}

/// The sets are the same on every machine and in every release; a change needs a new
/// `cache::VERSION`.
#[test]
fn golden_checksums() {
    let found: Vec<u32> = SETS
        .iter()
        .flat_map(|set| [0, 1].map(|seed| checksum(spec(set), seed, 0..20)))
        .collect();
    let expected = [
        0xf088_0c52,
        0x5180_bd31,
        0x628a_c8f5,
        0x1e5a_bf29,
        0xed8d_352b,
        0x634a_1f1e,
        0xd7cf_518c,
        0xa58e_b892,
        0xe244_909f,
        0x38ad_d38a,
        0x9f69_6c5b,
        0x0f01_392f,
    ];
    assert_eq!(found, expected, "{found:#010x?}");
}

#[test]
fn a_row_depends_on_seed_and_number_alone() {
    for set in SETS {
        let mut whole = Vec::new();
        let done: Result<(), Infallible> = spec(set).generate(3, 90..110, |label, row| {
            whole.push(format!("{label} {row:?}"));
            Ok(())
        });
        done.unwrap();
        for (place, row) in [(0, 90), (7, 97), (19, 109)] {
            let smaller = spec(&format!("{set}:10"));
            let done: Result<(), Infallible> = smaller.generate(3, row..row + 1, |label, row| {
                assert_eq!(format!("{label} {row:?}"), whole[place], "{set}");
                Ok(())
            });
            done.unwrap();
        }
        assert_ne!(checksum(spec(set), 3, 0..5), checksum(spec(set), 4, 0..5));
        assert_ne!(checksum(spec(set), 3, 0..5), checksum(spec(set), 3, 5..10));
    }
}

#[test]
fn an_error_of_the_sink_ends_generation() {
    let mut calls = 0;
    let result = spec("demo:higgs").generate(0, 0..100, |_, _| {
        calls += 1;
        if calls == 3 { Err("full") } else { Ok(()) }
    });
    assert_eq!((result, calls), (Err("full"), 3));
}

#[test]
fn names_and_rows() {
    let cases = [
        ("demo:higgs", 1_000_000, 100_000),
        ("demo:epsilon", 20_000, 2_000),
        ("demo:webspam:7", 7, 1),
        ("demo:kdd:40_000_000", 40_000_000, 100_000),
        ("demo:images", 50_000, 5_000),
        ("demo:text:30", 30, 3),
    ];
    for (text, rows, test_rows) in cases {
        assert_eq!(
            (spec(text).rows(), spec(text).test_rows()),
            (rows, test_rows)
        );
        assert_eq!(spec(&spec(text).to_string()), spec(text));
    }
    for text in ["demo:", "demo:mnist", "higgs", "demo:higgs2:5"] {
        assert!(
            matches!(DemoSpec::parse(text), Err(DemoError::Unknown { .. })),
            "{text}"
        );
    }
    for text in [
        "demo:kdd:0",
        "demo:kdd:",
        "demo:kdd:-1",
        "demo:kdd:1e6",
        "demo:kdd:10000000001",
    ] {
        assert!(
            matches!(DemoSpec::parse(text), Err(DemoError::Rows { .. })),
            "{text}"
        );
    }
}

#[test]
fn rows_have_the_stated_shape() {
    for (set, rows) in [
        ("demo:higgs", 50),
        ("demo:epsilon", 50),
        ("demo:webspam", 50),
        ("demo:kdd", 500),
    ] {
        let spec = spec(set);
        let bytes = mean(spec, rows, |label, row| {
            assert!(label == 1.0 || label == -1.0);
            match (row, spec.layout()) {
                (Row::Dense(values), Layout::Dense { width }) => {
                    assert_eq!(values.len(), width);
                    8.0 + 4.0 * width as f64
                }
                (Row::Sparse { indices, values }, Layout::Sparse) => {
                    assert!(indices.is_sorted_by(|a, b| a < b));
                    assert!(u64::from(*indices.last().unwrap()) < spec.features());
                    assert_eq!(indices.len(), values.len());
                    12.0 + 8.0 * values.len() as f64
                }
                _ => panic!("{set} has rows of another layout"),
            }
        });
        let stated = spec.row_bytes() as f64;
        // Rows of sparse sets differ by a factor of three; the mean of 50 is within a fifth.
        assert!(
            (bytes / stated - 1.0).abs() < 0.2,
            "{set}: {bytes} against {stated}"
        );
    }
}

#[test]
fn rows_have_norm_one_and_higgs_is_standardised() {
    for set in &SETS[1..4] {
        mean(spec(set), 20, |_, row| {
            let (Row::Dense(values) | Row::Sparse { values, .. }) = row else {
                panic!("rows are features")
            };
            let norm: f64 = values.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
            assert!((norm - 1.0).abs() < 1e-5, "{set}: {norm}");
            0.0
        });
    }
    for feature in 0..28 {
        let value = |row: Row<'_>| match row {
            Row::Dense(values) => f64::from(values[feature]),
            _ => panic!("higgs is dense"),
        };
        let first = mean(spec("demo:higgs"), 20_000, |_, row| value(row));
        let second = mean(spec("demo:higgs"), 20_000, |_, row| value(row).powi(2));
        // The fourth moment of the skewed features is 9, so five deviations are 0.1.
        assert!(first.abs() < 0.036, "feature {feature}: mean {first}");
        assert!(
            (second - 1.0).abs() < 0.1,
            "feature {feature}: variance {second}"
        );
    }
}

/// Equally many of each class, with no trace of its shape in the mean picture: a linear model finds little.
#[test]
fn pictures_have_ten_classes_that_are_alike_on_average() {
    const PICTURES: u64 = 8000;
    let mut sums = vec![[0.0_f64; 1024]; 10];
    let mut counts = [0.0_f64; 10];
    mean(spec("demo:images"), PICTURES, |label, row| {
        let Row::Bytes(pixels) = row else {
            panic!("pictures are bytes")
        };
        assert_eq!(pixels.len(), 3072);
        counts[label as usize] += 1.0;
        let reds = sums[label as usize].iter_mut().zip(pixels);
        reds.for_each(|(sum, pixel)| *sum += f64::from(*pixel));
        0.0
    });
    for (class, (sum, count)) in sums.iter().zip(counts).enumerate() {
        // Five deviations of a share of a tenth.
        let deviation = (PICTURES as f64 * 0.09).sqrt();
        assert!((count - 800.0).abs() < 5.0 * deviation, "{class}: {count}");
        // A value has a deviation of about 66; five deviations of a mean of 800, over 10 × 1024 means.
        let within = 5.5 * 66.0 / count.sqrt();
        for mean in sum.map(|sum| sum / count) {
            assert!((mean - 127.5).abs() < within, "{class}: {mean}");
        }
    }
}

#[test]
fn classes_have_their_shares() {
    for (set, share) in [
        ("demo:higgs", 0.53),
        ("demo:epsilon", 0.5),
        ("demo:webspam", 0.606),
        ("demo:kdd", 0.86),
    ] {
        let rows = if set == "demo:webspam" { 600 } else { 4000 };
        let positive = mean(spec(set), rows, |label, _| f64::from(label > 0.0));
        let deviation = (share * (1.0 - share) / rows as f64).sqrt();
        assert!(
            (positive - share).abs() < 4.0 * deviation,
            "{set}: {positive}"
        );
    }
}
