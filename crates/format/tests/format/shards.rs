//! Shards of MosaicML Streaming and chunks of LitData: folders that the libraries wrote, and faults.

use std::fs;
use std::path::{Path, PathBuf};

use pelton_batch::DType;
use pelton_format::{Dataset, IndexSource, Rows};
use tempfile::{TempDir, tempdir};

use crate::support::fields::{Shown, open, records_of, refuses, shown, with};
use crate::support::{self, file};

/// A copy of a folder of fixtures, so that sidecars are written there.
fn copied(folder: &TempDir, name: &str) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    let to = folder.path().join(name);
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    to
}

fn bytes<const N: usize, T: Copy>(numbers: &[T], of: fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| of(*number)).collect()
}

fn array(name: &str, dtype: DType, dims: &[usize], bytes: &[u8]) -> Shown {
    shown(name, Some(dtype), dims, bytes)
}

/// The fixtures are written by mosaicml-streaming 0.13.0:
///
/// ```python
/// columns = {
///     "label": "int", "text": "str", "raw": "bytes", "fixed": "ndarray:float32:2,3", "typed": "ndarray:int16",
///     "any": "ndarray", "byte": "uint8", "small": "int8", "large": "uint64", "half": "float16", "json": "json",
///     "png": "png", "pil": "pil", "number": "str_int", "pickled": "pkl",
/// }
/// for folder, compression in [("mds", None), ("mds_zstd", "zstd")]:
///     with MDSWriter(out=folder, columns=columns, compression=compression, size_limit=1500) as writer:
///         for i in range(5):
///             image = Image.new("RGB", (2 + i, 3), (40 * i, 2, 3))
///             writer.write({
///                 "label": i % 3, "text": "text %d" % i, "raw": b"\0" * i, "fixed": np.full((2, 3), i, np.float32),
///                 "typed": np.arange(-1, i + 1, dtype=np.int16), "any": np.full((1, i + 1), 7 * i), "byte": np.uint8(i),
///                 "small": np.int8(-i), "large": np.uint64(i), "half": np.float16(0.5), "json": {"x": i}, "png": image,
///                 "pil": image, "number": i, "pickled": (1, 2),
///             })
/// ```
#[test]
fn shards_of_mosaicml_streaming() {
    let folder = tempdir().unwrap();
    let expected = |i: i64, png: Vec<u8>| {
        let n = i as usize;
        let (typed, any): (Vec<i16>, Vec<i64>) = ((-1..=i as i16).collect(), vec![7 * i; n + 1]);
        let pixels = [40 * i as u8, 2, 3].repeat(3 * (n + 2));
        vec![
            array(
                "any",
                DType::I64,
                &[1, n + 1],
                &bytes(&any, i64::to_le_bytes),
            ),
            array("byte", DType::U8, &[], &[i as u8]),
            array(
                "fixed",
                DType::F32,
                &[2, 3],
                &bytes(&[i as f32; 6], f32::to_le_bytes),
            ),
            array("half", DType::F16, &[], &[0, 0x38]),
            shown("json", None, &[8], format!("{{\"x\": {i}}}").as_bytes()),
            array("large", DType::I64, &[], &i.to_le_bytes()),
            shown("number", None, &[1], i.to_string().as_bytes()),
            array("pil", DType::U8, &[3, n + 2, 3], &pixels),
            shown("png", None, &[png.len()], &png),
            shown("raw", None, &[n], &vec![0; n]),
            array("small", DType::I8, &[], &(-i as i8).to_le_bytes()),
            shown("text", None, &[6], format!("text {i}").as_bytes()),
            array(
                "typed",
                DType::I16,
                &[n + 2],
                &bytes(&typed, i16::to_le_bytes),
            ),
        ]
    };
    for name in ["mds", "mds_zstd"] {
        let path = copied(&folder, name);
        for (path, source) in [
            (path.clone(), IndexSource::Built),
            (path.join("index.json"), IndexSource::Sidecar),
        ] {
            let dataset = open(&path, &with(&folder, None, None)).unwrap();
            assert_eq!(dataset.index_report().source, source);
            assert_eq!(dataset.files().len(), 2);
            assert_eq!(dataset.files()[0].kind().to_string(), "mds");
            let found = records_of(&dataset);
            assert_eq!(found.len(), 5);
            for ((fields, label), i) in found.iter().zip(0..) {
                let png = fields
                    .iter()
                    .find(|field| field.0 == "png")
                    .unwrap()
                    .3
                    .clone();
                assert!(png.starts_with(b"\x89PNG"));
                let mut fields = fields.clone();
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                assert_eq!(fields, expected(i, png));
                assert_eq!(*label, (i % 3).to_string());
            }
            assert!(
                dataset
                    .notes()
                    .iter()
                    .any(|note| note.ends_with("are left out: pickled (pkl)"))
            );
        }
    }
    let path = folder.path().join("mds");
    let by_text = open(&path, &with(&folder, None, Some("text"))).unwrap();
    assert_eq!(by_text.labels().names()[4], "text 4");
    let by_number = open(&path, &with(&folder, None, Some("large"))).unwrap();
    assert_eq!(by_number.labels().len(), 5);
    refuses(
        &path,
        &with(&folder, None, Some("any")),
        "numbers or strings if they are labels",
    );
    refuses(
        &path,
        &with(&folder, None, Some("none")),
        "no label column \"none\"",
    );
    // Unsupported compression.
    let packed = folder.path().join("packed");
    std::fs::create_dir(&packed).unwrap();
    for (extension, codec) in [("br", "Brotli"), ("bz2", "bzip2"), ("snappy", "Snappy")] {
        let name = format!("shard.00000.mds.{extension}");
        let index = format!(
            r#"{{"shards": [{{"raw_data": {{"basename": "shard.00000.mds"}}, "zip_data": {{"basename": "{name}"}}}}]}}"#
        );
        file(&packed, "index.json", index);
        file(&packed, &name, [0x8b; 40]);
        let message = format!("{name}: is compressed with {codec}, which is not read; decompress");
        refuses(&packed, &with(&folder, None, None), &message);
        refuses(
            &packed.join(&name),
            &with(&folder, Some("mds"), None),
            &message,
        );
    }
    // A shard by itself.
    let shard = open(&path.join("shard.00001.mds"), &with(&folder, None, None)).unwrap();
    assert_eq!(shard.labels().values(), [0.0, 1.0]);
}

/// The fixtures are written by litdata 0.2.76:
///
/// ```python
/// def sample(i):
///     return {
///         "label": i % 3, "text": "text %d" % i, "raw": b"\0" * i, "flag": i == 2, "float": 0.5 * i,
///         "nested": {"vector": np.arange(i + 1, dtype=np.int16), "list": [torch.arange(3), torch.full((2, 1), i)]},
///         "matrix": np.full((2, i + 1), i, np.float32), "pil": Image.new("L", (2 + i, 3), 40 * i), "pickled": 1j,
///     }
///
/// if __name__ == "__main__":
///     for folder, compression in [
///         ("litdata", {}),
///         ("litdata_zstd", {"compression": "zstd", "compression_level": "chunk"}),
///         ("litdata_batches", {"compression": "zstd"}),
///     ]:
///         optimize(fn=sample, inputs=list(range(5)), output_dir=folder, num_workers=1, chunk_size=3, **compression)
/// ```
#[test]
fn chunks_of_litdata() {
    let folder = tempdir().unwrap();
    let expected = |i: i64| {
        let n = i as usize;
        let (vector, matrix): (Vec<i16>, Vec<f32>) =
            ((0..=i as i16).collect(), vec![i as f32; 2 * n + 2]);
        vec![
            shown("text", None, &[6], format!("text {i}").as_bytes()),
            shown("raw", None, &[n], &vec![0; n]),
            array("flag", DType::U8, &[], &[u8::from(i == 2)]),
            array("float", DType::F64, &[], &(0.5 * i as f64).to_le_bytes()),
            array(
                "nested.vector",
                DType::I16,
                &[n + 1],
                &bytes(&vector, i16::to_le_bytes),
            ),
            array(
                "nested.list.0",
                DType::I64,
                &[3],
                &bytes(&[0, 1, 2], i64::to_le_bytes),
            ),
            array(
                "nested.list.1",
                DType::I64,
                &[2, 1],
                &bytes(&[i; 2], i64::to_le_bytes),
            ),
            array(
                "matrix",
                DType::F32,
                &[2, n + 1],
                &bytes(&matrix, f32::to_le_bytes),
            ),
            array(
                "pil",
                DType::U8,
                &[3, n + 2, 1],
                &vec![40 * i as u8; 3 * (n + 2)],
            ),
        ]
    };
    for name in ["litdata", "litdata_zstd"] {
        let path = copied(&folder, name);
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        assert_eq!(dataset.files()[0].kind().to_string(), "litdata");
        let found = records_of(&dataset);
        assert_eq!(found.len(), 5);
        for ((fields, label), i) in found.iter().zip(0..) {
            assert_eq!((fields, label), (&expected(i), &(i % 3).to_string()));
        }
        assert!(
            dataset
                .notes()
                .iter()
                .any(|note| note.ends_with("are left out: pickled (pickle)"))
        );
    }
    let batches = copied(&folder, "litdata_batches");
    refuses(
        &batches,
        &with(&folder, None, None),
        "index.json: byte 0: its samples are compressed by themselves or in batches, which is not read in place; write the chunks",
    );
    let path = folder.path().join("litdata");
    let index = fs::read_to_string(path.join("index.json")).unwrap();
    let with_index = |from: &str, to: &str, message: &str| {
        assert!(index.contains(from), "{from}");
        file(&path, "index.json", index.replace(from, to));
        refuses(
            &path.join("chunk-0-0.bin"),
            &with(&folder, None, None),
            message,
        );
    };
    with_index(
        "PyTreeLoader",
        "OtherLoader",
        "its chunks are for OtherLoader",
    );
    with_index("PyTreeLoader", "TokensLoader", " fields, not one");
    with_index(
        "\"encryption\": null",
        "\"encryption\": {}",
        "its chunks are encrypted",
    );
    with_index("data_format", "other", "it has no `data_format`");
    for (from, to) in [
        ("\"[1, {", "\"[1, "),
        (r#"\\\"label\\\", "#, ""),
        (
            "builtins.dict\\\", \\\"context",
            "builtins.dict\\\", \\\"contexf",
        ),
        // Formats that are not those of the samples.
        ("[\"int\", ", "["),
    ] {
        with_index(from, to, "its `data_spec` is damaged");
    }
    with_index("\"config\"", "\"other\"", "it has no `config`");
    // Lists number their parts.
    file(
        &path,
        "index.json",
        index.replace("builtins.dict", "builtins.list"),
    );
    let numbered = open(&path, &with(&folder, None, None)).unwrap();
    assert_eq!(&*numbered.fields().0[5].name, "5.0");
    fs::remove_file(path.join("index.json")).unwrap();
    refuses(
        &path.join("chunk-0-0.bin"),
        &with(&folder, None, None),
        "index.json: no such file",
    );
}

/// The sums are those of Python's `hashlib` and `xxhash` 3.
#[test]
fn checksums_of_mosaicml_streaming() {
    let sums = [
        ("sha1", "100eff678c5f2c48cdaec83ddc4e71209615f907"),
        ("xxh64", "a5ba7b1c68eb8bd4"),
        ("xxh3_64", "3c61f446432d48cc"),
        ("xxh128", "fc6a6fbbcd0801953c61f446432d48cc"),
    ];
    for (kind, sum) in sums {
        let folder = tempdir().unwrap();
        let path = copied(&folder, "mds");
        let index = fs::read_to_string(path.join("index.json")).unwrap();
        let stated = |sum: &str| {
            let hashes = format!("\"hashes\": {{\"{kind}\": \"{sum}\"}}");
            file(
                &path,
                "index.json",
                index.replacen("\"hashes\": {}", &hashes, 1),
            );
        };
        let options = with(&folder, None, None);
        stated(&sum.replacen('1', "2", 1));
        refuses(
            &path,
            &options,
            &format!("its index states checksum {kind} "),
        );
        stated(sum);
        let source = |expected| {
            let dataset = open(&path, &options).unwrap();
            assert_eq!(dataset.index_report().source, expected);
        };
        source(IndexSource::Built);
        source(IndexSource::Sidecar);
        // A byte of a picture changes, which no record shows.
        let shard = path.join("shard.00000.mds");
        let mut bytes = fs::read(&shard).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        file(&path, "shard.00000.mds", &bytes);
        refuses(
            &path,
            &options,
            &format!("its index states checksum {kind} "),
        );
    }
    let folder = tempdir().unwrap();
    let path = copied(&folder, "mds");
    let index = fs::read_to_string(path.join("index.json")).unwrap();
    file(&path, "index.json", index.replace("1301", "1302"));
    refuses(
        &path,
        &with(&folder, None, None),
        "its index states bytes 1302, found 1301",
    );
    file(
        &path,
        "index.json",
        index.replace("\"hashes\": {}", "\"hashes\": {\"md5\": \"00\"}"),
    );
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    let says = |note: &String| note.ends_with("checksums that are not checked: md5");
    assert!(dataset.notes().iter().any(says));
    // A folder with a damaged index of shards is not read as a folder of pictures.
    file(&path, "index.json", "{");
    refuses(
        &path,
        &with(&folder, None, None),
        "it is not an index of shards",
    );
}

#[test]
fn indexes() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("shards");
    fs::create_dir(&path).unwrap();
    let check = |index: &str, message: &str| {
        file(&path, "index.json", index);
        refuses(
            &path.join("index.json"),
            &with(&folder, None, None),
            message,
        );
        refuses(&path, &with(&folder, Some("mds"), None), message);
    };
    check("{", "it is not an index of shards (EOF");
    check("{}", "it has neither shards nor chunks");
    check("{\"shards\": []}", "holds no records");
    check("{\"shards\": [{}]}", "missing field `raw_data`");
    let of = |name: &str| format!("{{\"chunks\": [{{\"filename\": \"{name}\"}}]}}");
    check(&of("../x"), "\"../x\" does not name a file in it");
    check(&of("/etc/passwd"), "does not name a file in it");
    check(&of("x.mds"), "x.mds: no such file");
    // A folder of pictures with a file of that name is a folder of pictures.
    for index in ["{", "{}", "[]"] {
        file(&path, "index.json", index);
        refuses(&path, &with(&folder, None, None), "holds no images");
    }
}

/// A shard of these columns and samples.
fn shard(columns: &str, samples: &[&[u8]]) -> Vec<u8> {
    let table = 4 * (samples.len() + 2);
    let mut at = (table + columns.len()) as u32;
    let mut file = (samples.len() as u32).to_le_bytes().to_vec();
    file.extend(at.to_le_bytes());
    for sample in samples {
        at += sample.len() as u32;
        file.extend(at.to_le_bytes());
    }
    [file, columns.into(), samples.concat()].concat()
}

#[test]
fn damage() {
    let folder = tempdir().unwrap();
    let columns = r#"{"column_names": ["label", "s", "v"], "column_encodings": ["int8", "str", "ndarray:uint8"], "column_sizes": [1, null, null]}"#;
    let good: &[u8] = &[2, 0, 0, 0, 5, 0, 0, 0, 7, b'h', b'i', 4, 3, 1, 2, 3];
    let whole = shard(columns, &[good, good]);
    let path = file(folder.path(), "x.mds", &whole);
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    let expected = vec![
        shown("s", None, &[2], b"hi"),
        shown("v", Some(DType::U8), &[3], &[1, 2, 3]),
    ];
    assert_eq!(records_of(&dataset)[1], (expected, "7".to_owned()));
    let fault = |sample: &[u8], message: &str| {
        let path = file(folder.path(), "fault.mds", shard(columns, &[good, sample]));
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        let mut rows = Rows::new(dataset.layout());
        let found = dataset.decode(1, &support::record(&dataset, 1), &mut rows);
        let found = found.unwrap_err().to_string();
        assert!(
            found.contains("fault.mds: record 1 at byte") && found.contains(message),
            "{found}"
        );
        assert!(found.ends_with("fetch it again"), "{found}");
    };
    fault(&[2, 0, 0], "it is shorter than the lengths of its cells");
    fault(
        &[9, 0, 0, 0, 5, 0, 0, 0, 7, b'h', b'i', 4, 3, 1, 2, 3],
        "its cell \"s\" is longer than it",
    );
    fault(&[255; 16], "its cell \"s\" is longer than it");
    fault(
        &[2, 0, 0, 0, 4, 0, 0, 0, 7, b'h', b'i', 4, 2, 1, 2, 3],
        "its cells do not fill it",
    );
    fault(
        &[2, 0, 0, 0, 5, 0, 0, 0, 7, b'h', b'i', 4, 2, 1, 2, 3],
        "its cell \"v\" is not such an array or number",
    );
    fault(
        &[2, 0, 0, 0, 5, 0, 0, 0, 7, b'h', b'i', 8, 3, 1, 2, 3],
        "its cell \"v\" is not such an array or number",
    );
    fault(
        &[2, 0, 0, 0, 6, 0, 0, 0, 7, b'h', b'i', 8, 1, 3, 1, 2, 3],
        "another number of dimensions",
    );
    let text_label = columns.replace("\"label\", \"s\"", "\"x\", \"label\"");
    let path = file(
        folder.path(),
        "x.mds",
        shard(
            &text_label,
            &[good, &[0, 0, 0, 0, 5, 0, 0, 0, 7, 4, 3, 1, 2, 3]],
        ),
    );
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    assert_eq!(dataset.labels().names(), ["hi"]);
    let mut rows = Rows::new(dataset.layout());
    let found = dataset.decode(1, &support::record(&dataset, 1), &mut rows);
    assert!(
        found
            .unwrap_err()
            .to_string()
            .contains("its cell \"label\" is not a label")
    );

    let bad = |bytes: &[u8], message: &str| {
        let path = file(folder.path(), "bad.mds", bytes);
        refuses(&path, &with(&folder, None, None), message);
    };
    bad(b"abc", "it has no table of samples");
    bad(&[0; 8], "it has no table of samples");
    bad(&[255; 400], "it has no table of samples, or not all of it");
    bad(
        &whole[..whole.len() - 1],
        "its size does not match its samples",
    );
    bad(
        &[&whole[..], b"x"].concat(),
        "its size does not match its samples",
    );
    bad(
        &shard(columns, &[good, b"", good]),
        "its samples do not lie one after another",
    );
    let mut early = whole.clone();
    early[4] = 8;
    early[5] = 0;
    bad(&early, "its samples do not lie one after another");
    bad(
        &shard("{}", &[good]),
        "it does not describe its columns (missing field",
    );
    bad(
        &shard(&columns.replace("[1, null, null]", "[1, null]"), &[good]),
        "describe all of its columns",
    );
    bad(
        &shard(
            &columns.replace("[1, null, null]", "[-1, null, null]"),
            &[good],
        ),
        "does not describe its columns",
    );
    let none = r#"{"column_names": ["a"], "column_encodings": ["pkl"], "column_sizes": [null]}"#;
    bad(
        &shard(none, &[good]),
        "it has no columns of numbers, arrays or strings",
    );
    bad(
        &shard(
            &none
                .replace("\"a\"", "")
                .replace("\"pkl\"", "")
                .replace("null", ""),
            &[good],
        ),
        "it has 0 columns",
    );
    // Any byte may change: no panic.
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        let path = file(folder.path(), "damaged.mds", &bytes);
        if let Ok(dataset) = open(&path, &with(&folder, None, None)) {
            let mut rows = Rows::new(dataset.layout());
            for id in 0..dataset.records() {
                let _ = dataset.decode(id, &support::record(&dataset, id), &mut rows);
            }
        }
    }
    let huge = columns.replace("[1, null, null]", "[18446744073709551615, null, null]");
    let path = file(folder.path(), "x.mds", shard(&huge, &[good]));
    let dataset: Result<Dataset, _> = open(&path, &with(&folder, None, None));
    assert!(dataset.is_err() || records_fail(&dataset.unwrap()));
}

fn records_fail(dataset: &Dataset) -> bool {
    let mut rows = Rows::new(dataset.layout());
    dataset
        .decode(0, &support::record(dataset, 0), &mut rows)
        .is_err()
}
