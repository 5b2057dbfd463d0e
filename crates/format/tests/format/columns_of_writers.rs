//! Arrow files of polars, dictionaries that change, and decimals. The files in `tests/columns` were made with pyarrow
//! 26.0.1:
//!
//! ```python
//! import decimal, pyarrow as pa, pyarrow.parquet as pq
//!
//! kind = lambda keys, words: pa.DictionaryArray.from_arrays(pa.array(keys, pa.int8()), pa.array(words))
//! parts = [kind([0, 1], ["a", "b"]), kind([2, 0], ["a", "b", "c"]), kind([3, None], ["a", "b", "c", "d"])]
//! others = [kind([1, 0], ["b", "a"]), kind([0, 1], ["c", "a"]), kind([0, None], ["d"])]
//! schema = pa.schema([("kind", parts[0].type), ("label", pa.int64())])
//! batches = lambda parts: [pa.record_batch([part, pa.array([k, 1 - k])], schema) for k, part in zip([0, 1, 0], parts)]
//! deltas = options(emit_dictionary_deltas=True)
//! for new, name in [(pa.ipc.new_file, "deltas.arrow"), (pa.ipc.new_stream, "deltas.arrows")]:
//!     with new(name, schema, options=deltas) as out:
//!         for batch in batches(parts): out.write_batch(batch)
//! with pa.ipc.new_stream("replaced.arrows", schema) as out:
//!     for batch in batches(others): out.write_batch(batch)
//!
//! D = decimal.Decimal
//! money = pa.table({
//!     "d": pa.array([D("1.25"), D("-2.50"), None, D("0.10")], pa.decimal128(9, 2)),
//!     "e": pa.array([D("12345678901234567890.5"), D("0.1"), D("1"), D("-1")], pa.decimal256(50, 20)),
//!     "f": pa.array([[D("1.5")], [], [D("2.5"), D("3.5")], []], pa.list_(pa.decimal128(5, 1))),
//!     "label": [0, 1, 0, 1],
//! })
//! pq.write_table(money, "decimals.parquet")
//! with pa.ipc.new_file("decimals.arrow", money.schema) as out:
//!     out.write_table(money)
//! ```
//!
//! Those called polars were made with polars 2.1.0, which leaves out the length before the first message:
//!
//! ```python
//! import polars as pl
//!
//! n = 5
//! table = pl.DataFrame({
//!     "x": [float(i) / 2 for i in range(n)],
//!     "word": ["é" * (5 * i) for i in range(n)],
//!     "kind": pl.Series(["a", "b", "a", "c", "b"], dtype=pl.Categorical),
//!     "flag": [True, False, None, True, True],
//!     "label": [0, 1, 0, 1, 1],
//! })
//! table.write_ipc("polars.arrow", record_batch_size=2)
//! table.write_ipc("polars-zstd.arrow", compression="zstd")
//! ```

use crate::columns::{fixture, with};
use crate::support::fields::{Shown, open, records, shown};
use crate::support::{check_reads, faults, rows};
use pelton_batch::DType;
use pelton_format::{Missing, OpenOptions, Row};
use tempfile::tempdir;

#[test]
fn files_that_polars_wrote() {
    let folder = tempdir().unwrap();
    for name in ["polars.arrow", "polars-zstd.arrow"] {
        let filled = OpenOptions {
            missing: Some(Missing::Zero),
            ..with(&folder, None, None)
        };
        let dataset = open(&fixture(name), &filled).unwrap();
        let expected = (0..5).map(|i| {
            let (word, kind) = ("é".repeat(5 * i), ["a", "b", "a", "c", "b"][i]);
            let fields = vec![
                shown("x", Some(DType::F64), &[], &(i as f64 / 2.0).to_le_bytes()),
                shown("word", None, &[word.len()], word.as_bytes()),
                shown("kind", None, &[1], kind.as_bytes()),
                shown("flag", Some(DType::U8), &[], &[[1, 0, 0, 1, 1][i]]),
            ];
            (fields, ["0", "1", "0", "1", "1"][i].to_owned())
        });
        assert_eq!(records(&dataset), expected.collect::<Vec<_>>());
        check_reads(&dataset);
        let found = faults(&open(&fixture(name), &with(&folder, None, None)).unwrap());
        let wanted = "column flag holds no value (null); `missing` zero fills such values in, `on_bad_record` skip";
        assert!(found[2].as_ref().unwrap().contains(wanted), "{found:?}");
        assert_eq!(found.iter().flatten().count(), 1);
    }
}

/// Later batches may add to a dictionary, or in a stream bring another one.
#[test]
fn dictionaries_that_change() {
    let folder = tempdir().unwrap();
    for name in ["deltas.arrow", "deltas.arrows", "replaced.arrows"] {
        let filled = OpenOptions {
            missing: Some(Missing::Zero),
            ..with(&folder, None, None)
        };
        let dataset = open(&fixture(name), &filled).unwrap();
        let words = ["a", "b", "c", "a", "d", ""];
        let found: Vec<String> = records(&dataset)
            .iter()
            .map(|(fields, _)| String::from_utf8(fields[0].3.clone()).unwrap())
            .collect();
        assert_eq!(found, words, "{name}");
        check_reads(&dataset);
    }
}

#[test]
fn decimals_are_numbers() {
    let folder = tempdir().unwrap();
    for (name, format) in [("decimals.parquet", "parquet"), ("decimals.arrow", "arrow")] {
        let options = |columns: &str| OpenOptions {
            missing: Some(Missing::Zero),
            ..with(&folder, Some(&format!("{format}:{columns}")), Some("label"))
        };
        let dataset = open(&fixture(name), &options("d,e,f")).unwrap();
        let list: [&[f64]; 4] = [&[1.5], &[], &[2.5, 3.5], &[]];
        let number = |name, value: f64| shown(name, Some(DType::F64), &[], &value.to_le_bytes());
        let expected = [
            (1.25, 12_345_678_901_234_567_890.5, list[0]),
            (-2.5, 0.1, list[1]),
            (0.0, 1.0, list[2]),
            (0.1, -1.0, list[3]),
        ];
        let expected = expected.map(|(d, e, f)| {
            let bytes: Vec<u8> = f.iter().flat_map(|value| value.to_le_bytes()).collect();
            vec![
                number("d", d),
                number("e", e),
                shown("f", Some(DType::F64), &[f.len()], &bytes),
            ]
        });
        let found: Vec<Vec<Shown>> = records(&dataset)
            .into_iter()
            .map(|(fields, _)| fields)
            .collect();
        assert_eq!(found, expected, "{name}");
        check_reads(&dataset);
        let features = OpenOptions {
            features_only: true,
            ..options("d,e")
        };
        let all = rows(&open(&fixture(name), &features).unwrap()).unwrap();
        assert_eq!(all.row(1), Row::Dense(&[-2.5, 0.1]));
    }
}
