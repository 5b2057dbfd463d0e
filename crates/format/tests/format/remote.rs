//! Remote files: every format of a single file gives the same rows as the local file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::arrays::{npy, zip};
use crate::support::tar::{end, member};
use crate::support::{file, options, rows};
use pelton_format::{
    Dataset, FormatError, FormatKind, IndexSource, LabelColumn, OpenOptions, OpenRemote, RemoteFile,
};
use pelton_storage::{Faults, Faulty, MemoryStorage, Storage, StorageError, StorageErrorKind};
use tempfile::tempdir;

/// The same options for the files of `folder` under `mem://data/`.
fn elsewhere(folder: &Path, options: &OpenOptions, tag: u64) -> OpenOptions {
    let folder = folder.to_path_buf();
    let open = move |name: &Path| {
        let inner = name
            .strip_prefix("mem://data")
            .expect("a name of this place");
        let path = folder.join(inner);
        let bytes = fs::read(&path)
            .map_err(|source| StorageError::failed(name.display(), "open it", source))?;
        Ok(RemoteFile {
            head: bytes[..bytes.len().min(64 << 10)].to_vec(),
            size: bytes.len() as u64,
            tag,
            storage: Arc::new(MemoryStorage::named(name.display().to_string(), bytes)),
        })
    };
    OpenOptions {
        remote: Some(OpenRemote::new(open)),
        ..options.clone()
    }
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn every_format_of_one_file() {
    let folder = tempdir().unwrap();
    let root = folder.path();
    let lines = |make: &dyn Fn(u32) -> String| (0..20_000).map(make).collect::<String>();
    let svm = lines(&|i| format!("{} {}:{} 900:1\n", i % 3, 1 + i % 800, i));
    let idx = |sizes: &[u32], data: &[u8]| {
        let mut bytes = vec![0, 0, 8, sizes.len() as u8];
        bytes.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
        bytes.extend_from_slice(data);
        bytes
    };
    let pixels: Vec<u8> = (0..600u32).map(|i| (i * 7) as u8).collect();
    let floats: Vec<u8> = (0..60u16)
        .flat_map(|i| f32::from(i % 5).to_le_bytes())
        .collect();
    let mut tar = Vec::new();
    for i in 0..300 {
        tar.extend(member(&format!("{i:04}.bin"), &vec![i as u8; 37 * i]));
        tar.extend(member(
            &format!("{i:04}.cls"),
            format!("{}", i % 7).as_bytes(),
        ));
    }
    tar.extend(end());
    type Case = (
        &'static str,
        Option<&'static str>,
        Option<&'static str>,
        Vec<u8>,
    );
    let cases: Vec<Case> = vec![
        ("a.svm", None, None, svm.clone().into()),
        (
            "a.csv",
            None,
            None,
            lines(&|i| format!("{i},{},{}\n", i % 9, i % 2)).into(),
        ),
        (
            "a.txt",
            None,
            None,
            lines(&|i| format!("line {i} of text\n")).into(),
        ),
        (
            "t.txt",
            Some("tokens:35"),
            None,
            lines(&|i| format!("the {i}\n")).into(),
        ),
        ("b.any", Some("bytes:1000"), None, svm.clone().into()),
        (
            "a.jsonl",
            None,
            None,
            lines(&|i| format!("{{\"x\": {i}, \"label\": \"c{}\"}}\n", i % 4)).into(),
        ),
        ("a.raw", Some("raw:u8[2],label:u8"), None, pixels.clone()),
        ("a.npy", None, None, npy("<f4", "(20, 3)", &floats)),
        (
            "a.npz",
            None,
            Some("y"),
            zip(
                &[
                    ("x.npy", npy("<f4", "(20, 2)", &floats[..160])),
                    ("y.npy", npy("<f4", "(20,)", &floats[160..])),
                ],
                0,
            ),
        ),
        (
            "x-images-idx3-ubyte",
            None,
            None,
            idx(&[3, 10, 20], &pixels),
        ),
        (
            "x-labels-idx1-ubyte",
            Some("bytes:1"),
            None,
            idx(&[3], &[4, 2, 4]),
        ),
        ("test_batch.bin", None, None, vec![3; 2 * 3073]),
        ("a.tar", None, None, tar.clone()),
        ("z.svm.gz", None, None, gz(svm.as_bytes())),
        ("z.tar.gz", None, None, gz(&tar)),
    ];
    for (name, _, _, bytes) in &cases {
        file(root, name, bytes);
    }
    file(
        root,
        "batches.meta.txt",
        (0..10).map(|i| format!("class {i}\n")).collect::<String>(),
    );
    for (name, format, label, _) in &cases {
        let here = OpenOptions {
            format: format.map(|format| FormatKind::parse(format).unwrap()),
            label: label.map_or(LabelColumn::Last, |name| LabelColumn::Name(name.into())),
            ..options(root)
        };
        let there = elsewhere(root, &here, 77);
        let local =
            Dataset::open(&[root.join(name)], &here).unwrap_or_else(|e| panic!("{name}: {e}"));
        let expected = rows(&local).unwrap();
        assert!(!local.files()[0].is_remote());
        let url = PathBuf::from(format!("mem://data/{name}"));
        for again in [false, true] {
            let remote = Dataset::open(std::slice::from_ref(&url), &there)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(remote.files()[0].path(), url);
            assert_eq!(
                remote.files()[0].is_remote(),
                !name.ends_with(".gz"),
                "{name}"
            );
            assert_eq!(remote.files()[0].kind(), local.files()[0].kind());
            assert!(rows(&remote).unwrap() == expected, "{name}");
            assert_eq!(remote.labels().names(), local.labels().names());
            assert_eq!(remote.labels().values(), local.labels().values());
            remote.check_unchanged().unwrap();
            if remote.index_report().source != IndexSource::Arithmetic {
                assert_eq!(
                    remote.index_report().source == IndexSource::Sidecar,
                    again,
                    "{name}"
                );
            }
        }
    }
    let adjacent: Vec<_> = fs::read_dir(root).unwrap().collect();
    let indexes = |entry: &std::io::Result<fs::DirEntry>| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".pelton-index")
    };
    // Those of the local files; the sidecars of the others are in the cache folder.
    assert_eq!(adjacent.iter().filter(|entry| indexes(entry)).count(), 7);
    assert!(
        fs::read_dir(root.join("cache"))
            .unwrap()
            .filter(indexes)
            .count()
            >= 6
    );
}

/// Other content under the same name, size and time has another tag, and ignores the old sidecars and copies.
#[test]
fn another_tag_is_another_file() {
    let folder = tempdir().unwrap();
    let name = |name: &str| vec![PathBuf::from(format!("mem://data/{name}?key=secret"))];
    let here = options(folder.path());
    let mut fingerprints = Vec::new();
    for (tag, word) in [(1, "abc"), (2, "xyz"), (1, "abc")] {
        let text = format!("{word} 1\n");
        for (path, bytes) in [
            ("x.txt?key=secret", text.clone().into()),
            ("y.txt.gz?key=secret", gz(text.as_bytes())),
        ] {
            file(folder.path(), path, bytes);
        }
        let there = elsewhere(folder.path(), &here, tag);
        let plain = Dataset::open(&name("x.txt"), &there).unwrap();
        let packed = Dataset::open(&name("y.txt.gz"), &there).unwrap();
        for dataset in [&plain, &packed] {
            let rows = format!("{:?}", rows(dataset).unwrap());
            assert!(
                rows.contains(&format!("{}, {}", word.as_bytes()[0], word.as_bytes()[1])),
                "{rows}"
            );
        }
        fingerprints.push(plain.fingerprint());
        let kept = packed.files()[0]
            .decompressed()
            .unwrap()
            .display()
            .to_string();
        assert!(
            kept.contains("y.txt.gz-") && !kept.contains("secret"),
            "{kept}"
        );
    }
    assert!(fingerprints[0] == fingerprints[2] && fingerprints[0] != fingerprints[1]);
}

/// Several files are opened at once and are the same data in the same order; the first failure is reported.
#[test]
fn several_files_are_one_sequence() {
    let folder = tempdir().unwrap();
    let names: Vec<String> = (0..30).map(|i| format!("{i:02}.svm")).collect();
    for (i, name) in names.iter().enumerate() {
        let text: String = (0..=i)
            .map(|j| format!("{j} {}:1 # {i}\n", i + 1))
            .collect();
        file(folder.path(), name, format!("# first\n{text}"));
    }
    let here = options(folder.path());
    let there = elsewhere(folder.path(), &here, 1);
    let local: Vec<PathBuf> = names.iter().map(|name| folder.path().join(name)).collect();
    let urls: Vec<PathBuf> = names
        .iter()
        .map(|name| format!("mem://data/{name}").into())
        .collect();
    let local = Dataset::open(&local, &here).unwrap();
    let remote = Dataset::open(&urls, &there).unwrap();
    assert!(rows(&remote).unwrap() == rows(&local).unwrap());
    let notes = |dataset: &Dataset| {
        dataset
            .notes()
            .iter()
            .map(|note| note.rsplit('/').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(notes(&remote).len(), 30);
    assert_eq!(notes(&remote), notes(&local));
    fs::remove_file(folder.path().join("07.svm")).unwrap();
    let error = Dataset::open(&urls, &there).unwrap_err().to_string();
    assert!(error.contains("07.svm: no such file"), "{error}");
}

/// The errors of a storage during a scan are returned unchanged.
#[test]
fn errors_are_those_of_the_storage() {
    let folder = tempdir().unwrap();
    let there = elsewhere(folder.path(), &options(folder.path()), 1);
    let error = Dataset::open(&["mem://data/none.csv".into()], &there).unwrap_err();
    let kind = |error: &FormatError| error.storage().map(|error| error.kind);
    assert_eq!(kind(&error), Some(StorageErrorKind::NotFound), "{error}");
    let text: String = (0..9999).map(|i| format!("{i} 1:1\n")).collect();
    for (name, bytes) in [
        ("x.svm", text.clone().into_bytes()),
        ("x.svm.gz", gz(text.as_bytes())),
    ] {
        let faults = Faults {
            bad_bytes: vec![bytes.len() as u64 / 2],
            ..Faults::default()
        };
        let open = move |_: &Path| {
            let inner: Arc<dyn Storage> = Arc::new(MemoryStorage::named("mem", bytes.clone()));
            Ok(RemoteFile {
                head: bytes[..100].to_vec(),
                size: bytes.len() as u64,
                tag: 1,
                storage: Arc::new(Faulty::new(inner, faults.clone())),
            })
        };
        let there = OpenOptions {
            remote: Some(OpenRemote::new(open)),
            ..options(folder.path())
        };
        let url = PathBuf::from(format!("mem://data/{name}"));
        let error = Dataset::open(&[url], &there).unwrap_err();
        assert_eq!(kind(&error), Some(StorageErrorKind::System), "{error:?}");
    }
}
