//! Parquet and Arrow files that pyarrow wrote. The files in `tests/columns` were made with pyarrow 26.0.1:
//!
//! ```python
//! import numpy as np, pyarrow as pa, pyarrow.feather as feather, pyarrow.parquet as pq
//!
//! n = 23
//! i = np.arange(n)
//! lists = lambda item, row: pa.array([row(k) for k in range(n)], item)
//! table = pa.table({
//!     "u8": pa.array(i, pa.uint8()),
//!     "i8": pa.array(i - 9, pa.int8()),
//!     "i16": pa.array(-300 * i, pa.int16()),
//!     "u16": pa.array(2800 * i, pa.uint16()),
//!     "u32": pa.array(180_000_000 * i, pa.uint32()),
//!     "i64": pa.array(i << 40, pa.int64()),
//!     "f16": pa.array((i / 4).astype(np.float16)),
//!     "f32": pa.array(i / 3, pa.float32()),
//!     "f64": pa.array(i / 3, pa.float64()),
//!     "flag": pa.array(i % 3 == 0),
//!     "when": pa.array(i * 86_400_000_000, pa.timestamp("us")),
//!     "text": lists(pa.string(), lambda k: "é" * (k % 4)),
//!     "word": pa.array([["no", "perhaps", "yes"][k % 3] for k in i]).dictionary_encode(),
//!     "id": lists(pa.binary(3), lambda k: bytes([k, k + 1, k + 2])),
//!     "pixels": lists(pa.list_(pa.list_(pa.uint8(), 2), 3), lambda k: [[k, k + 1], [k + 2, k + 3], [k + 4, k + 5]]),
//!     "tags": lists(pa.list_(pa.int16()), lambda k: list(range(k % 5))),
//!     "image": lists(pa.struct({"bytes": pa.binary(), "side": pa.int32()}), lambda k: {"bytes": bytes(range(k)), "side": k}),
//!     "label": pa.array(i % 3 - 1, pa.int32()),
//!     "maps": lists(pa.map_(pa.string(), pa.int32()), lambda k: [("a", k)]),
//! })
//! pq.write_table(table, "all.parquet", row_group_size=12, data_page_size=40, write_page_index=True)
//! pq.write_table(table, "plain.parquet", compression="zstd", use_dictionary=False, write_statistics=False, data_page_version="2.0", store_schema=False)
//! feather.write_feather(table, "all.feather", compression="lz4", chunksize=12)
//! options = pa.ipc.IpcWriteOptions
//! with pa.ipc.new_file("all.arrow", table.schema) as file:
//!     file.write_table(table, 12)
//! few = table.select(["i16", "flag", "text", "word", "pixels", "tags", "label"])
//! with pa.ipc.new_file("few.arrow", few.schema, options=options(compression="zstd")) as file:
//!     file.write_table(few, 12)
//! pq.write_table(few, "brotli.parquet", compression="brotli")
//! views = few.set_column(2, "text", pa.array(["é" * (k % 9) for k in i], pa.string_view()))
//! with pa.ipc.new_stream("stream.arrow", views.schema) as stream:
//!     stream.write_table(views, 7)
//!
//! some = lambda item: pa.array([None if k == 3 else item(k) for k in range(6)])
//! nulls = pa.table({
//!     "a": some(float),
//!     "b": pa.array([None if k == 4 else [k, None if k == 1 else 0.5] for k in range(6)], pa.list_(pa.float32(), 2)),
//!     "c": some(lambda k: "x" * k),
//!     "d": pa.array([[None] if k == 2 else [k] for k in range(6)], pa.list_(pa.int32())),
//!     "e": pa.array([None if k == 0 else {"f": k} for k in range(6)], pa.struct({"f": pa.int64()})),
//!     "label": pa.array([1, 0, None, 1, 0, 1]),
//!     "name": pa.array(["u", "v", "u", None, "v", "u"]),
//! })
//! pq.write_table(nulls, "nulls.parquet")
//! with pa.ipc.new_stream("nulls.arrow", nulls.schema) as stream:
//!     stream.write_table(nulls)
//! ```

use std::path::{Path, PathBuf};

use crate::support::fields::{Shown, records, shown};
use crate::support::{check_reads, faults, file, options, real, record, rows};
use pelton_batch::DType;
use pelton_format::{
    Contents, Dataset, FormatError, FormatKind, IndexSource, LabelColumn, Missing, Numbering,
    OpenOptions, Reach, Row,
};
use tempfile::{TempDir, tempdir};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/columns")
        .join(name)
}

pub fn with(folder: &TempDir, format: Option<&str>, label: Option<&str>) -> OpenOptions {
    OpenOptions {
        format: format.map(|name| FormatKind::parse(name).unwrap()),
        label: label.map_or(LabelColumn::Last, |name| LabelColumn::Name(name.into())),
        sidecar: false,
        ..options(folder.path())
    }
}

fn open(path: &Path, options: &OpenOptions) -> Result<Dataset, FormatError> {
    Dataset::open(&[path.to_path_buf()], options)
}

/// Record `i` of the tables of 23 records.
fn expected(i: usize) -> Vec<Shown> {
    let k = i as i32;
    let number = |name, dtype, bytes: &[u8]| shown(name, Some(dtype), &[], bytes);
    let half = match i {
        0 => 0u16,
        i => {
            // i / 4 in half precision.
            let exponent = (i as f32 / 4.0).log2().floor() as i32;
            let part = (i as f32 / 4.0) / 2f32.powi(exponent) - 1.0;
            ((exponent + 15) as u16) << 10 | (part * 1024.0) as u16
        }
    };
    let text = "é".repeat(i % 4);
    let maps = format!("{{\"a\":{i}}}");
    let word = ["no", "perhaps", "yes"][i % 3];
    let tags: Vec<u8> = (0..(k % 5) as i16).flat_map(i16::to_le_bytes).collect();
    let bytes: Vec<u8> = (0..i as u8).collect();
    let from = |first: u8, count: u8| (first..first + count).collect::<Vec<u8>>();
    vec![
        number("u8", DType::U8, &[i as u8]),
        number("i8", DType::I8, &(k as i8 - 9).to_le_bytes()),
        number("i16", DType::I16, &(-300 * k as i16).to_le_bytes()),
        number("u16", DType::U16, &(2800 * k as u16).to_le_bytes()),
        number("u32", DType::U32, &(180_000_000 * i as u32).to_le_bytes()),
        number("i64", DType::I64, &(i64::from(k) << 40).to_le_bytes()),
        number("f16", DType::F16, &half.to_le_bytes()),
        number(
            "f32",
            DType::F32,
            &((f64::from(k) / 3.0) as f32).to_le_bytes(),
        ),
        number("f64", DType::F64, &(f64::from(k) / 3.0).to_le_bytes()),
        number("flag", DType::U8, &[u8::from(i.is_multiple_of(3))]),
        number(
            "when",
            DType::I64,
            &(i64::from(k) * 86_400_000_000).to_le_bytes(),
        ),
        shown("text", None, &[text.len()], text.as_bytes()),
        shown("word", None, &[word.len()], word.as_bytes()),
        shown("id", Some(DType::U8), &[3], &from(i as u8, 3)),
        shown("pixels", Some(DType::U8), &[3, 2], &from(i as u8, 6)),
        shown("tags", Some(DType::I16), &[i % 5], &tags),
        shown("image.bytes", None, &[i], &bytes),
        number("image.side", DType::I32, &k.to_le_bytes()),
        shown("maps", None, &[maps.len()], maps.as_bytes()),
    ]
}

fn label_of(i: usize) -> String {
    (i as i32 % 3 - 1).to_string()
}

#[test]
fn all_types_of_all_files() {
    let folder = tempdir().unwrap();
    for name in ["all.parquet", "plain.parquet", "all.arrow", "all.feather"] {
        let dataset = open(&fixture(name), &with(&folder, None, None)).unwrap();
        assert_eq!(dataset.records(), 23, "{name}");
        let found = records(&dataset);
        for (i, (fields, label)) in found.into_iter().enumerate() {
            // Without the schema of Arrow, `plain.parquet` has variable lists, but each record has the same lengths.
            let wanted = expected(i);
            assert_eq!(fields, wanted, "{name}: {i}");
            assert_eq!(label, label_of(i), "{name}: {i}");
        }
        assert_eq!(dataset.labels().values(), [-1.0, 0.0, 1.0]);
        let located = dataset.files()[0].located_by();
        let Reach::Blocks(blocks) = dataset.files()[0].reach() else {
            panic!("{name}");
        };
        let groups = if name == "plain.parquet" { 1 } else { 2 };
        assert_eq!(blocks.count, groups, "{name}");
        assert_eq!(blocks.bytes, dataset.bytes() as f64 / groups as f64);
        assert!(located.contains("decoded whole"), "{located}");
        check_reads(&dataset);
    }
    // Without the nested column the others of a plain file are read in place.
    let names = "u8,i8,i16,u16,u32,i64,f16,f32,f64,flag,when,text,word,id,pixels,tags,image.bytes,image.side";
    let plain = with(&folder, Some(&format!("arrow:{names}")), Some("label"));
    let dataset = open(&fixture("all.arrow"), &plain).unwrap();
    assert_eq!(dataset.files()[0].reach(), Reach::Gathered { places: 19 });
    let located = dataset.files()[0].located_by();
    assert!(located.contains("19 places"), "{located}");
    for (i, (fields, _)) in records(&dataset).into_iter().enumerate() {
        assert_eq!(fields, expected(i)[..18], "{i}");
    }
    check_reads(&dataset);
}

#[test]
fn chosen_columns() {
    let folder = tempdir().unwrap();
    let few = "flag,text,word,pixels,tags";
    for (name, format) in [
        ("few.arrow", "arrow"),
        ("stream.arrow", "arrow"),
        ("all.parquet", "parquet"),
        ("brotli.parquet", "parquet"),
    ] {
        let format = format!("{format}:{few}");
        let dataset = open(&fixture(name), &with(&folder, Some(&format), Some("i16"))).unwrap();
        assert_eq!(dataset.files()[0].kind().to_string(), format);
        for (i, (fields, label)) in records(&dataset).into_iter().enumerate() {
            let mut wanted = expected(i);
            wanted.retain(|field| few.split(',').any(|name| name == field.0));
            if name == "stream.arrow" {
                let text = "é".repeat(i % 9);
                wanted[1] = shown("text", None, &[text.len()], text.as_bytes());
            }
            assert_eq!(fields, wanted, "{name}: {i}");
            assert_eq!(label, (-300 * i as i32).to_string(), "{name}: {i}");
        }
        check_reads(&dataset);
    }
    // Records of one length need no list, and columns come in the order asked for.
    let fixed = with(&folder, Some("parquet:f32,u8"), Some("label"));
    let dataset = open(&fixture("all.parquet"), &fixed).unwrap();
    assert_eq!(dataset.record_bytes().max(), 4 + 1 + 4);
    assert_eq!(dataset.index_report().source, IndexSource::Arithmetic);
    assert_eq!(dataset.index_report().index_bytes, 0);
    let third = &records(&dataset)[3];
    let (one, three) = (1f32.to_le_bytes(), [3]);
    assert_eq!(
        third.0,
        [
            shown("f32", Some(DType::F32), &[], &one),
            shown("u8", Some(DType::U8), &[], &three)
        ]
    );
    let other = open(
        &fixture("all.parquet"),
        &with(&folder, Some("parquet:f32,i8"), Some("label")),
    );
    assert_ne!(other.unwrap().fingerprint(), dataset.fingerprint());
    check_reads(&dataset);

    let refuses = |format: &str, label: Option<&str>, message: &str| {
        let error = open(&fixture("all.parquet"), &with(&folder, Some(format), label));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    refuses(
        "parquet:nothing",
        None,
        "has no column nothing; its columns are u8, i8",
    );
    refuses(
        "parquet:u8",
        Some("nothing"),
        "has no label column nothing; its columns are u8",
    );
    refuses(
        "parquet:u8",
        Some("tags"),
        "of one number or string a record",
    );
    refuses(
        "parquet:u8",
        Some("u8"),
        "1 to 32768 columns besides the label",
    );
    for spelling in ["parquet:", "parquet:a,,b", "arrow:a,a"] {
        let error = FormatKind::parse(spelling).unwrap_err();
        assert!(error.contains("each once"), "{error}");
    }
}

#[test]
fn lengths_are_kept_in_a_sidecar() {
    let folder = tempdir().unwrap();
    let path = file(
        folder.path(),
        "x",
        std::fs::read(fixture("all.parquet")).unwrap(),
    );
    let kept = OpenOptions {
        sidecar: true,
        ..with(&folder, None, Some("word"))
    };
    let first = open(&path, &kept).unwrap();
    assert_eq!(first.index_report().source, IndexSource::Built);
    assert_eq!(first.files()[0].kind().to_string(), "parquet");
    let again = open(&path, &kept).unwrap();
    assert_eq!(again.index_report().source, IndexSource::Sidecar);
    assert_eq!(records(&again), records(&first));
    assert_eq!(again.labels().names(), ["no", "perhaps", "yes"]);
    let labels = records(&again).into_iter().map(|(_, label)| label);
    assert!(
        labels
            .enumerate()
            .all(|(i, label)| label == ["no", "perhaps", "yes"][i % 3])
    );
    // Other columns are other records.
    let other = OpenOptions {
        format: Some(FormatKind::parse("parquet:text").unwrap()),
        ..kept
    };
    assert_eq!(
        open(&path, &other).unwrap().index_report().source,
        IndexSource::Built
    );
}

#[test]
fn columns_of_numbers_are_features() {
    let folder = tempdir().unwrap();
    for name in ["all.parquet", "all.arrow"] {
        let options = OpenOptions {
            features_only: true,
            ..with(&folder, None, None)
        };
        let dataset = open(&fixture(name), &options).unwrap();
        assert_eq!(dataset.contents(), Contents::Features);
        // 11 numbers, 3 bytes of an identifier, 6 of a picture, its side.
        assert_eq!(dataset.features(), 21);
        let note = dataset.notes().join(" ");
        assert!(
            note.contains("text, word, tags, image.bytes, maps hold no numbers"),
            "{note}"
        );
        let found = rows(&dataset).unwrap();
        for i in 0..23 {
            let Row::Dense(row) = found.row(i) else {
                panic!("dense rows");
            };
            let k = i as f32;
            let mut wanted = vec![k, k - 9.0, -300.0 * k, 2800.0 * k, 1.8e8 * k];
            wanted.extend([(i << 40) as f32, k / 4.0, (i as f64 / 3.0) as f32]);
            wanted.extend([(i as f64 / 3.0) as f32, f32::from(i % 3 == 0)]);
            wanted.push((i as i64 * 86_400_000_000) as f32);
            wanted.extend((0..3).map(|j| k + j as f32));
            wanted.extend((0..6).map(|j| k + j as f32));
            wanted.push(k);
            assert_eq!(row, wanted, "{name}: {i}");
            assert_eq!(dataset.labels().describe(found.label(i)), label_of(i));
        }
        let single = OpenOptions {
            format: Some(
                FormatKind::parse(&format!("{}:f32,u8", dataset.files()[0].kind())).unwrap(),
            ),
            label: LabelColumn::Name("word".into()),
            ..options.clone()
        };
        let dataset = open(&fixture(name), &single).unwrap();
        assert_eq!(dataset.labels().names(), ["no", "perhaps", "yes"]);
        let label = OpenOptions {
            label: LabelColumn::Name("i8".into()),
            ..single.clone()
        };
        let numbering = open(&fixture(name), &label).unwrap().files()[0].numbering();
        assert_eq!(numbering, Numbering::Columns { label: Some(3) });
        // Data with exactly the model's columns needs no label.
        let predict = OpenOptions {
            any_label: true,
            features: Some(2),
            label: LabelColumn::Last,
            ..single.clone()
        };
        assert_eq!(open(&fixture(name), &predict).unwrap().features(), 2);
        let refuses = |options: OpenOptions, message: &str| {
            let error = open(&fixture(name), &options).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        refuses(
            OpenOptions {
                label: LabelColumn::Last,
                ..single
            },
            "has no label column label",
        );
        let format = format!("{}:u8,tags", dataset.files()[0].kind().name());
        refuses(
            OpenOptions {
                format: Some(FormatKind::parse(&format).unwrap()),
                label: LabelColumn::Name("label".into()),
                ..options
            },
            "column tags holds no numbers of one count",
        );
    }
}

#[test]
fn records_that_lack_values_are_bad() {
    let folder = tempdir().unwrap();
    for (name, format) in [("nulls.parquet", "parquet"), ("nulls.arrow", "arrow")] {
        let dataset = open(&fixture(name), &with(&folder, None, None)).unwrap();
        let column = |text: &Option<String>| {
            let text = text.as_ref()?;
            assert!(
                text.contains(name) && text.contains("holds no value (null)"),
                "{text}"
            );
            let (_, rest) = text.split_once("column ")?;
            Some(rest.split(' ').next()?.to_owned())
        };
        let found: Vec<Option<String>> = faults(&dataset).iter().map(column).collect();
        // The first column that lacks a value is named.
        let expected = ["e.f", "b", "d", "a", "b", ""].map(|name| Some(name.to_owned()));
        let mut expected = expected.to_vec();
        expected[5] = None;
        assert_eq!(found, expected, "{name}");
        check_reads(&dataset);

        let chosen = |columns: &str, label: &str| {
            let format = format!("{format}:{columns}");
            with(&folder, Some(&format), Some(label))
        };
        let dataset = open(&fixture(name), &chosen("c", "label")).unwrap();
        let found: Vec<bool> = faults(&dataset).iter().map(Option::is_some).collect();
        assert_eq!(found, [false, false, true, true, false, false]);
        let error = open(&fixture(name), &chosen("c", "name"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("record 3") && error.contains("column name holds no label"),
            "{error}"
        );

        let features = OpenOptions {
            features_only: true,
            ..chosen("a,b,e.f", "label")
        };
        let dataset = open(&fixture(name), &features).unwrap();
        let found = faults(&dataset);
        assert!(
            found[3]
                .as_ref()
                .unwrap()
                .contains("column a holds no value (null); `missing`")
        );
        assert!(found[4].as_ref().unwrap().contains("column b"));
        for (missing, stand_ins) in [
            // Record 2 cannot be read: of 0, 1, 4, 5; of 0, 3, 5; their halves; of 1, 3, 4, 5.
            (Missing::Mean, [2.5, 8.0 / 3.0, 0.5, 3.25]),
            (Missing::Zero, [0.0; 4]),
        ] {
            let options = OpenOptions {
                missing: Some(missing),
                ..features.clone()
            };
            let dataset = open(&fixture(name), &options).unwrap();
            assert_ne!(faults(&dataset)[2], None, "it has no label");
            for id in [0u64, 1, 3, 4, 5] {
                let mut rows = pelton_format::Rows::new(dataset.layout());
                dataset
                    .decode(id, &record(&dataset, id), &mut rows)
                    .unwrap();
                let k = id as f32;
                let mut row = [k, k, 0.5, k];
                let lacks: &[usize] = match id {
                    0 => &[3],
                    1 => &[1, 2],
                    3 => &[0],
                    4 => &[1, 2],
                    _ => &[],
                };
                lacks.iter().for_each(|i| row[*i] = stand_ins[*i]);
                let Row::Dense(found) = rows.row(0) else {
                    panic!("dense rows");
                };
                assert_eq!(found, row, "{name}: {id}");
            }
        }
    }
}

#[test]
fn several_files_are_one_data_set() {
    let folder = tempdir().unwrap();
    let two = [fixture("all.parquet"), fixture("all.arrow")];
    let dataset = Dataset::open(&two, &with(&folder, None, None)).unwrap();
    let found = records(&dataset);
    assert_eq!((found.len(), &found[..23]), (46, &found[23..]));
    let two = [fixture("all.parquet"), fixture("nulls.parquet")];
    let error = Dataset::open(&two, &with(&folder, None, None)).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("nulls.parquet: lacks \"u8\", \"i8\""),
        "{error}"
    );
}

/// The outcome of a damaged copy of a file: an error when it is opened, or when a record is read; `None` if all records
/// can be read.
fn outcome(folder: &TempDir, name: &str, bytes: &[u8]) -> Option<String> {
    let path = file(folder.path(), name, bytes);
    let dataset = match open(&path, &with(folder, None, None)) {
        Ok(dataset) => dataset,
        Err(error) => return Some(error.to_string()),
    };
    let mut rows = pelton_format::Rows::new(dataset.layout());
    for id in 0..dataset.records() {
        let place = dataset.locate(id);
        let mut bytes = vec![0; place.length as usize];
        let mut reads = [pelton_storage::RangeRead {
            offset: place.offset,
            buffer: &mut bytes,
            filled: 0,
        }];
        if let Err(error) = dataset.files()[0].storage().read_batch(&mut reads) {
            return Some(error.to_string());
        }
        if let Err(error) = dataset.decode(id, &bytes, &mut rows) {
            return Some(error.to_string());
        }
    }
    None
}

#[test]
fn damage_is_an_error_that_names_the_file() {
    let folder = tempdir().unwrap();
    for name in [
        "all.parquet",
        "all.arrow",
        "all.feather",
        "few.arrow",
        "stream.arrow",
    ] {
        let whole = std::fs::read(fixture(name)).unwrap();
        assert_eq!(outcome(&folder, name, &whole), None);
        for cut in [whole.len() - 1, whole.len() - 9, whole.len() / 2, 30, 9, 5] {
            // A stream may end behind any message, and its last eight bytes only say that it ends.
            if name == "stream.arrow" && cut + 9 >= whole.len() {
                continue;
            }
            let error = outcome(&folder, name, &whole[..cut]).unwrap();
            assert!(error.contains(name), "{name} up to {cut}: {error}");
        }
        // Any byte may be wrong: the error is found, or it is harmless.
        for at in (0..whole.len()).step_by(13) {
            for bit in [0, 6] {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                if let Some(error) = outcome(&folder, name, &damaged) {
                    assert!(error.contains(name), "{name} at {at}: {error}");
                }
            }
        }
    }
    let parquet = std::fs::read(fixture("all.parquet")).unwrap();
    let error = outcome(&folder, "x.parquet", &parquet[..parquet.len() - 4]).unwrap();
    assert!(error.contains("its footer cannot be decoded"), "{error}");
    // Damages the header of the first page of the first column; damage to values without a checksum would pass.
    let mut damaged = parquet.clone();
    damaged[4..20].fill(0xff);
    let error = outcome(&folder, "x.parquet", &damaged).unwrap();
    assert!(error.contains("row group 0 cannot be decoded"), "{error}");
    let arrow = std::fs::read(fixture("stream.arrow")).unwrap();
    let error = outcome(&folder, "x.arrow", &arrow[..arrow.len() - 40]).unwrap();
    assert!(error.contains("cut off in the message at byte"), "{error}");
    let error = outcome(&folder, "empty.parquet", b"").unwrap();
    assert!(error.contains("no records"), "{error}");
}

type Flight = (u64, i64, f64, i64, &'static str, &'static str);

const FLIGHTS: [Flight; 3] = [
    (0, 978_307_260_000_000, 33.0, 2176, "LAS", "PHL"),
    (1_234_567, 984_827_400_000_000, -12.0, 1040, "SAT", "MCO"),
    (2_999_999, 993_945_600_000_000, 33.0, 373, "ATL", "CVG"),
];

/// Of distances and delays.
const FLIGHT_SUMS: [i64; 2] = [2_194_861_208, 20_003_603];

/// Sums that pyarrow's `compute.sum` gives, and records 0, 1 234 567 and 2 999 999 of `to_pylist`.
#[test]
fn three_million_flights() {
    let Some(path) = real("parquet/flights-2001.parquet") else {
        return;
    };
    let folder = tempdir().unwrap();
    let dataset = open(&path, &with(&folder, None, Some("delay"))).unwrap();
    assert_eq!(dataset.records(), 3_000_000);
    let mut rows = pelton_format::Rows::new(dataset.layout());
    for id in FLIGHTS.map(|flight| flight.0) {
        dataset
            .decode(id, &record(&dataset, id), &mut rows)
            .unwrap();
    }
    for (i, (id, date, delay, distance, origin, destination)) in FLIGHTS.into_iter().enumerate() {
        let Row::Bytes(row) = rows.row(i) else {
            panic!("rows of bytes");
        };
        let row: Vec<Shown> = dataset
            .record_fields()
            .split(row)
            .unwrap()
            .into_iter()
            .map(|field| shown(field.name, field.dtype, &field.dims, field.bytes))
            .collect();
        let number = |name, value: i64| shown(name, Some(DType::I64), &[], &value.to_le_bytes());
        let text = |name, value: &str| shown(name, None, &[value.len()], value.as_bytes());
        assert_eq!(
            row,
            [
                number("date", date),
                number("distance", distance),
                text("origin", origin),
                text("destination", destination)
            ],
            "{id}"
        );
        assert_eq!(dataset.labels().value(rows.label(i)), delay);
    }
    // All records, in parts of a size unrelated to that of blocks.
    let numbers = with(&folder, Some("parquet:distance,delay"), None);
    let dataset = open(&path, &numbers).unwrap();
    let (mut sums, mut buffer) = ([0i64; 2], vec![0; 16 * 100_003]);
    let mut at = 0;
    while at < dataset.bytes() {
        let mut reads = [pelton_storage::RangeRead {
            offset: at,
            buffer: &mut buffer,
            filled: 0,
        }];
        dataset.files()[0].storage().read_batch(&mut reads).unwrap();
        let filled = reads[0].filled;
        for (i, number) in buffer[..filled].as_chunks::<8>().0.iter().enumerate() {
            sums[i % 2] += i64::from_le_bytes(*number);
        }
        at += filled as u64;
    }
    assert_eq!(sums, FLIGHT_SUMS);
}
