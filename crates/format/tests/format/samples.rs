//! Data sets of bytes: text, IDX, CIFAR and folders, valid and damaged.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::support::{file, options, real, record, rows};
use pelton_format::{
    Contents, Dataset, FormatError, FormatErrorKind, FormatKind, InPlaceClass, IndexSource,
    LabelColumn, Layout, OpenOptions, RecordBytes, Row,
};
use pelton_storage::StorageErrorKind;
use tempfile::tempdir;

fn open(path: PathBuf, options: &OpenOptions) -> Result<Dataset, FormatError> {
    Dataset::open(&[path], options)
}

/// Every row's bytes with its label value.
fn samples(dataset: &Dataset) -> Vec<(Vec<u8>, f64)> {
    let rows = rows(dataset).unwrap();
    assert_eq!(dataset.layout(), Layout::Bytes);
    assert_eq!(rows.stored_values() as u64, dataset.nonzeros());
    let values = dataset.labels().values();
    if dataset.reads_in_place() {
        (0..rows.len()).for_each(|i| check_in_place(dataset, i as u64, rows.row(i), rows.label(i)));
    }
    (0..rows.len())
        .map(|i| match rows.row(i) {
            Row::Bytes(bytes) => (bytes.to_vec(), values[rows.label(i) as usize]),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Reading at the stated position gives the row.
fn check_in_place(dataset: &Dataset, id: u64, row: Row<'_>, class: u32) {
    let place = dataset.in_place(id).unwrap().unwrap();
    let data_file = &dataset.files()[place.file as usize];
    let (path, before) = match data_file.kind().name() {
        "folder" => {
            let record = id - data_file.first_id();
            (data_file.record_path(record), dataset.locate(id).offset)
        }
        _ => {
            let source = data_file.decompressed().unwrap_or(data_file.path());
            (source.to_path_buf(), 0)
        }
    };
    let bytes = fs::read(path).unwrap();
    let from = (place.offset - before) as usize;
    assert_eq!(
        row,
        Row::Bytes(&bytes[from..from + place.length as usize]),
        "{id}"
    );
    let found = match place.class {
        InPlaceClass::Known(class) => class,
        InPlaceClass::Before(n) => dataset
            .class_of_byte(id, bytes[from - usize::from(n)])
            .unwrap(),
    };
    assert_eq!(found, class);
}

fn refused(path: PathBuf, options: &OpenOptions, message: &str) -> FormatError {
    let error = open(path, options).expect_err(message);
    assert!(error.to_string().contains(message), "{error}");
    error
}

#[test]
fn every_line_of_text_is_a_record() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let check = |text: &[u8], expected: &[&str]| {
        let dataset = open(file(folder.path(), "x.txt", text), &options).unwrap();
        let found = samples(&dataset);
        let expected: Vec<_> = expected
            .iter()
            .map(|line| (line.as_bytes().to_vec(), 0.0))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(dataset.contents(), Contents::Text);
        assert_eq!(dataset.files()[0].kind().name(), "text");
    };
    check(
        b"a cat\n\nsat on\r\n\n the mat",
        &["a cat", "", "sat on", "", " the mat"],
    );
    check(b"\xef\xbb\xbfone\ntwo\n", &["one", "two"]);
    check(b"a\nb\r", &["a", "b\r"]);
    let again = open(folder.path().join("x.txt"), &options).unwrap();
    assert_eq!(again.index_report().source, IndexSource::Sidecar);
    assert_eq!(samples(&again).len(), 2);
    // Blank lines alone are text if the user says so.
    let text = OpenOptions {
        format: FormatKind::from_name("text"),
        ..options.clone()
    };
    let blank = open(file(folder.path(), "blank", "\n\n"), &text).unwrap();
    assert_eq!(samples(&blank).len(), 2);
    refused(
        file(folder.path(), "empty.txt", ""),
        &text,
        "holds no records",
    );
    // Text and numbers do not form one data set.
    let numbers = file(folder.path(), "x.libsvm", "1 1:1\n-1 2:1\n");
    let error = Dataset::open(&[folder.path().join("x.txt"), numbers], &options).unwrap_err();
    assert!(error.to_string().contains("sparse rows, but"), "{error}");
}

#[test]
fn real_text_line_by_line() {
    let folder = tempdir().unwrap();
    for (name, lines) in [("multi30k/val.de", 1014), ("ptb/ptb.valid.txt", 3370)] {
        let Some(path) = real(name) else { continue };
        let options = OpenOptions {
            sidecar: false,
            ..options(folder.path())
        };
        let dataset = open(path.clone(), &options).unwrap();
        assert_eq!(dataset.records(), lines);
        let text = fs::read(path).unwrap();
        let expected = text
            .strip_suffix(b"\n")
            .unwrap_or(&text)
            .split(|byte| *byte == b'\n');
        assert!(
            samples(&dataset)
                .iter()
                .map(|(line, _)| &line[..])
                .eq(expected)
        );
    }
}

fn idx(sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, sizes.len() as u8];
    bytes.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    bytes.extend_from_slice(data);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn idx_pictures_and_labels() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let pixels: Vec<u8> = (0..3 * 4 * 5).collect();
    let images = idx(&[3, 4, 5], &pixels);
    let labels = idx(&[3], &[7, 2, 7]);
    let expected: Vec<(Vec<u8>, f64)> = pixels
        .chunks(20)
        .map(<[u8]>::to_vec)
        .zip([7.0, 2.0, 7.0])
        .collect();
    let shape = |height, width, channels| Contents::Pixels {
        height,
        width,
        channels,
        planar: false,
    };
    file(folder.path(), "train-labels-idx1-ubyte", &labels);
    let path = file(folder.path(), "train-images-idx3-ubyte", &images);
    let dataset = open(path, &options).unwrap();
    assert_eq!(samples(&dataset), expected);
    assert_eq!(dataset.labels().values(), [2.0, 7.0]);
    assert_eq!(dataset.contents(), shape(4, 5, 1));
    assert_eq!(dataset.record_bytes(), RecordBytes::Fixed(20));
    assert_eq!(dataset.index_report().source, IndexSource::Arithmetic);

    file(folder.path(), "t-labels-idx1-ubyte.gz", gzip(&labels));
    let path = file(folder.path(), "t-images-idx3-ubyte.gz", gzip(&images));
    let dataset = open(path, &options).unwrap();
    assert_eq!(samples(&dataset), expected);
    assert_eq!(dataset.notes().len(), 2);
    assert!(
        dataset
            .notes()
            .iter()
            .all(|note| note.contains("decompressed to"))
    );

    for (sizes, contents) in [
        (&[3u32, 20][..], shape(1, 20, 1)),
        (&[3, 2, 2, 5], shape(2, 2, 5)),
    ] {
        let name = format!("train-images-idx{}-ubyte", sizes.len());
        let dataset = open(file(folder.path(), &name, idx(sizes, &pixels)), &options).unwrap();
        assert_eq!(dataset.contents(), contents);
        assert_eq!(samples(&dataset), expected);
    }
}

#[test]
fn bad_idx_files() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let images = "x-images-idx3-ubyte";
    let good = idx(&[2, 1, 2], &[1, 2, 3, 4]);
    let refuse = |bytes: &[u8], message: &str| {
        refused(file(folder.path(), images, bytes), &options, message)
    };
    refuse(&good, "x-labels-idx1-ubyte, which is not there");
    file(folder.path(), "x-labels-idx1-ubyte", idx(&[3], &[0, 0, 0]));
    refuse(&good, "it holds 2 records, and");
    file(
        folder.path(),
        "x-labels-idx1-ubyte",
        &idx(&[2], &[0, 0])[..9],
    );
    let error = refuse(
        &good,
        "x-labels-idx1-ubyte: byte 4: its header states 2 values",
    );
    assert!(matches!(error.kind(), FormatErrorKind::Malformed));
    file(folder.path(), "x-labels-idx1-ubyte", good.clone());
    refuse(&good, "holds 2 labels");
    file(folder.path(), "x-labels-idx1-ubyte", idx(&[2], &[0, 1]));
    open(file(folder.path(), images, &good), &options).unwrap();
    for cut in 1..good.len() {
        refuse(&good[..cut], "expected a whole IDX file of unsigned bytes");
    }
    refuse(
        &[&good[..], b"x"].concat(),
        "its header states 2 × 1 × 2 values, which take 20 bytes, and it has 21",
    );
    refuse(
        &idx(&[u32::MAX, 1 << 24, 1 << 24, 1 << 24], &[]),
        "more bytes than a file can have",
    );
    let mut other = good.clone();
    other[0] = 1;
    refuse(&other, "its magic number is 01000803");
    other = good.clone();
    other[2] = 0x0d;
    refuse(&other, "32-bit floating point numbers");
    refused(
        folder.path().join("x-labels-idx1-ubyte"),
        &options,
        "name the file of the images",
    );
    refused(
        file(folder.path(), "pictures", &good),
        &options,
        "its name lacks the word images",
    );
    file(folder.path(), "y-labels-idx1-ubyte", idx(&[2], &[0, 1]));
    let path = file(
        folder.path(),
        "y-images-idx3-ubyte",
        idx(&[2, 2, 1], &[1, 2, 3, 4]),
    );
    let error = Dataset::open(&[file(folder.path(), images, &good), path], &options).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("holds pictures of 2 × 1 × 1 bytes, but"),
        "{error}"
    );
}

/// The checksums are those that zlib's `crc32` and NumPy's sums give for the published files.
#[test]
fn fashion_mnist() {
    let path = Path::new("/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz");
    if !path.is_file() {
        eprintln!(
            "SKIPPED: {} is missing; install dataset-fashion-mnist",
            path.display()
        );
        return;
    }
    let folder = tempdir().unwrap();
    let dataset = open(path.to_path_buf(), &options(folder.path())).unwrap();
    assert_eq!(dataset.records(), 10_000);
    let all = samples(&dataset);
    let mut counts = [0; 10];
    all.iter()
        .for_each(|(_, label)| counts[*label as usize] += 1);
    assert_eq!(counts, [1000; 10]);
    assert_eq!(
        all[..10]
            .iter()
            .map(|(_, label)| *label as u8)
            .collect::<Vec<_>>(),
        [9, 2, 1, 1, 6, 1, 4, 6, 5, 7]
    );
    let sum: u64 = all
        .iter()
        .flat_map(|(pixels, _)| pixels)
        .map(|byte| u64::from(*byte))
        .sum();
    assert_eq!(sum, 573_469_082);
}

/// Records of CIFAR with the record's index in all pixels.
fn cifar(labels: &[&[u8]]) -> Vec<u8> {
    let record = |(i, label): (usize, &&[u8])| [label.to_vec(), vec![i as u8; 3072]].concat();
    labels.iter().enumerate().flat_map(record).collect()
}

#[test]
fn cifar_records() {
    let folder = tempdir().unwrap();
    let options = options(folder.path());
    let ten = file(
        folder.path(),
        "data_batch_1.bin",
        cifar(&[&[3], &[9], &[0]]),
    );
    let dataset = open(ten.clone(), &options).unwrap();
    assert!(dataset.reads_in_place());
    let found = samples(&dataset);
    assert_eq!(found[1], (vec![1; 3072], 9.0));
    assert_eq!((found.len(), dataset.labels().len()), (3, 10));
    assert_eq!(dataset.record_bytes(), RecordBytes::Fixed(3073));
    assert_eq!(
        dataset.contents(),
        Contents::Pixels {
            height: 32,
            width: 32,
            channels: 3,
            planar: true
        }
    );
    let names: Vec<String> = (0..10).map(|i| format!("thing {i}")).collect();
    file(folder.path(), "batches.meta.txt", names.join("\n") + "\n\n");
    let named = open(ten, &options).unwrap();
    assert_eq!(named.labels().names(), names);

    let hundred = file(folder.path(), "train.bin", cifar(&[&[19, 99], &[0, 1]]));
    assert_eq!(
        samples(&open(hundred.clone(), &options).unwrap())[0].1,
        99.0
    );
    let coarse = OpenOptions {
        label: LabelColumn::First,
        ..options.clone()
    };
    assert_eq!(samples(&open(hundred, &coarse).unwrap())[0].1, 19.0);

    let bad = open(
        file(folder.path(), "data_batch_2.bin", cifar(&[&[3], &[10]])),
        &options,
    )
    .unwrap();
    assert_eq!(bad.class_of_byte(0, 9).unwrap(), 9);
    let of_byte = bad.class_of_byte(1, 10).unwrap_err().to_string();
    let error = rows(&bad).unwrap_err().to_string();
    assert_eq!(of_byte, error);
    assert!(
        error.contains("record 1 at byte 3073: its class byte is 10, but classes are 0 to 9"),
        "{error}"
    );
    let short = file(
        folder.path(),
        "data_batch_3.bin",
        &cifar(&[&[3], &[9]])[..5000],
    );
    refused(
        short,
        &options,
        "size 5000 is not a multiple of the record size 3073",
    );
    refused(
        file(folder.path(), "test.bin", "abc"),
        &options,
        "no known format",
    );
}

/// A folder with images of classes `b` and `a`.
fn image_folder(root: &Path) {
    for (name, bytes) in [
        ("b/2.png", "b two"),
        ("b/10.JPG", ""),
        ("a-x/deep/1.webp", "a one"),
        ("a/1.jpeg", "a"),
        ("a/.hidden.jpg", "h"),
        ("a/readme.txt", "no image"),
    ] {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn folders_are_classes() {
    let cache = tempdir().unwrap();
    let options = options(cache.path());
    let folder = tempdir().unwrap();
    let root = folder.path().join("images");
    image_folder(&root);
    let dataset = open(root.clone(), &options).unwrap();
    let expected = [("a", 0.0), ("a one", 1.0), ("", 2.0), ("b two", 2.0)];
    let expected = expected.map(|(bytes, label)| (bytes.as_bytes().to_vec(), label));
    assert_eq!(samples(&dataset), expected);
    assert_eq!(dataset.labels().names(), ["a", "a-x", "b"]);
    assert_eq!(dataset.contents(), Contents::Image);
    assert_eq!(
        dataset.files()[0].record_path(1),
        root.join("a-x/deep/1.webp")
    );
    let notes = dataset.notes();
    assert!(
        notes
            .iter()
            .any(|note| note.contains("1 files are not images")),
        "{notes:?}"
    );

    // Another folder with fewer classes: classes are matched by name, not by index.
    fs::create_dir_all(folder.path().join("more/b")).unwrap();
    fs::write(folder.path().join("more/b/1.jpg"), "b").unwrap();
    let more = folder.path().join("more");
    let both = Dataset::open(&[more.clone(), root.clone()], &options).unwrap();
    assert_eq!(samples(&both)[0], (b"b".to_vec(), 2.0));
    let known = OpenOptions {
        labels: Some(dataset.labels().clone()),
        ..options.clone()
    };
    assert_eq!(samples(&open(more.clone(), &known).unwrap())[0].1, 2.0);
    let other = open(more.clone(), &options).unwrap();
    let unknown = OpenOptions {
        labels: Some(other.labels().clone()),
        ..options.clone()
    };
    let error = rows(&open(root.clone(), &unknown).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("a/1.jpeg: record 0 at byte 0: class \"a\" does not occur"),
        "{error}"
    );

    assert_ne!(dataset.fingerprint(), other.fingerprint());
    fs::rename(&root, folder.path().join("moved")).unwrap();
    let moved = open(folder.path().join("moved"), &options).unwrap();
    assert_eq!(moved.fingerprint(), dataset.fingerprint());
}

#[test]
fn bad_folders() {
    let folder = tempdir().unwrap();
    let root = folder.path().join("images");
    let options = options(folder.path());
    fs::create_dir(&root).unwrap();
    refused(root.clone(), &options, "holds no images");
    fs::write(root.join("1.png"), "one").unwrap();
    let flat = open(root.clone(), &options).unwrap();
    assert!(
        flat.notes()[0].contains("images have no label"),
        "{:?}",
        flat.notes()
    );
    assert_eq!(samples(&flat), [(b"one".to_vec(), 0.0)]);
    image_folder(&root);
    refused(root.clone(), &options, "is next to the class folders");
    fs::remove_file(root.join("1.png")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    let dataset = open(root.clone(), &options).unwrap();
    assert!(
        dataset
            .notes()
            .iter()
            .any(|note| note.contains("empty: holds no images and is not a class"))
    );
    let deep: PathBuf = std::iter::repeat_n("d", 70).collect();
    fs::create_dir_all(root.join("a").join(deep)).unwrap();
    refused(root.clone(), &options, "more than 64 folders deep");
    fs::remove_dir_all(root.join("a/d")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("b/0.png")).unwrap();
    refused(root.clone(), &options, "b/0.png: no such file");
    let as_folder = OpenOptions {
        format: FormatKind::from_name("folder"),
        ..options.clone()
    };
    // A file is a record of its own, unless it is among folders.
    let alone = open(root.join("b/2.png"), &as_folder).unwrap();
    assert_eq!(samples(&alone).len(), 1);
    let mixed = Dataset::open(&[root.join("b/2.png"), root.clone()], &as_folder).unwrap_err();
    assert!(
        mixed.to_string().contains("is a file among folders"),
        "{mixed}"
    );
    let texts = [("1.txt", "one\ntwo\n"), ("2.TXT", "three")]
        .map(|(name, text)| file(folder.path(), name, text));
    let texts = Dataset::open(&texts, &as_folder).unwrap();
    let found: Vec<_> = samples(&texts)
        .into_iter()
        .map(|(bytes, _)| bytes)
        .collect();
    assert_eq!(found, [b"one\ntwo\n".to_vec(), b"three".to_vec()]);
    assert_eq!(texts.contents(), Contents::Text);
    let as_text = OpenOptions {
        format: FormatKind::from_name("text"),
        ..options
    };
    refused(root, &as_text, "is a folder; name a regular file");
}

/// A file that goes away or changes after it was listed is named when it is read.
#[test]
fn files_that_vanish() {
    let folder = tempdir().unwrap();
    let root = folder.path().join("images");
    image_folder(&root);
    let dataset = open(root.clone(), &options(folder.path())).unwrap();
    dataset.check_unchanged().unwrap();
    let read = |id: u64| {
        let place = dataset.locate(id);
        let storage = dataset.files()[0].storage();
        pelton_storage::conformance::read_ranges(storage, &[(place.offset, place.length as usize)])
    };
    assert_eq!(read(3).unwrap(), [b"b two"]);
    fs::remove_file(root.join("a/1.jpeg")).unwrap();
    let error = read(0).unwrap_err();
    assert!(error.kind == StorageErrorKind::NotFound && error.path.ends_with("a/1.jpeg"));
    fs::write(root.join("b/2.png"), "longer than before").unwrap();
    let error = read(3).unwrap_err().to_string();
    assert!(
        error.contains("b/2.png: changed after it was listed (its size: 5 bytes became 18)"),
        "{error}"
    );
}

#[test]
fn tables_of_labels() {
    let folder = tempdir().unwrap();
    let root = folder.path().join("images");
    for name in ["x1.jpg", "sub/x2.png", "x3.webp"] {
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join(name), name).unwrap();
    }
    let table = folder.path().join("images.csv");
    let column = |name: &str| LabelColumn::Name(name.into());
    let options = OpenOptions {
        label_file: Some(table.clone()),
        file_column: column("image"),
        label: column("kind"),
        ..options(folder.path())
    };
    let write = |text: &str| fs::write(&table, text).unwrap();
    write(
        "sender,image,kind,x\n1,x1,\"hat, red\",a\n2,sub/x2.png,shoe,a\n3,x3,shoe,b\n4,gone,bag,b\n",
    );
    let dataset = open(root.clone(), &options).unwrap();
    assert_eq!(dataset.labels().names(), ["hat, red", "shoe"]);
    let found: Vec<f64> = samples(&dataset)
        .into_iter()
        .map(|(_, label)| label)
        .collect();
    assert_eq!(found, [1.0, 0.0, 1.0]);
    assert!(
        dataset
            .notes()
            .iter()
            .any(|note| note.contains("1 rows name no image")),
        "{:?}",
        dataset.notes()
    );

    write("image,kind\nx1,a\nx2,b\n");
    let fewer = open(root.clone(), &options).unwrap();
    assert_eq!(fewer.records(), 2);
    assert!(
        fewer.notes().iter().any(
            |note| note.contains("no row for 1 images, among them") && note.contains("x3.webp")
        ),
        "{:?}",
        fewer.notes()
    );

    let refuse = |text: &str, message: &str| {
        write(text);
        refused(root.clone(), &options, message)
    };
    refuse("image,kind\ny1,a\ny2,b\n", "x2.png: has no row in");
    refuse(
        "image,kind\nx1,a\nx2\n",
        "line 3: it has 1 columns, but the heading has 2",
    );
    refuse(
        "image,kind\nx1,a\nx1,b\n",
        "\"x1\" has rows with different classes",
    );
    refuse(
        "image,kind\nx1,\n",
        "line 2: the name of the image or its class is empty",
    );
    refuse("image,class\nx1,a\n", "has no label column \"kind\"");
    refuse("", "holds no records");
    let same = OpenOptions {
        label: column("image"),
        ..options.clone()
    };
    write("image,kind\nx1,a\n");
    refused(root.clone(), &same, "column 1 cannot name both");
    fs::remove_file(&table).unwrap();
    refused(root, &options, "images.csv: no such file");
}

#[test]
fn real_images_with_their_table() {
    let Some(table) = real("jpeg-clothing/images.csv") else {
        return;
    };
    let folder = tempdir().unwrap();
    let column = |name: &str| LabelColumn::Name(name.into());
    let options = OpenOptions {
        label_file: Some(table.clone()),
        file_column: column("image"),
        label: column("label"),
        ..options(folder.path())
    };
    let dataset = open(table.with_file_name("images"), &options).unwrap();
    // 49 of the thousand images have no row.
    assert_eq!(dataset.records(), 951);
    let names = dataset.labels().names();
    assert!(
        names.len() <= 20 && names.iter().any(|name| name == "T-Shirt"),
        "{names:?}"
    );
    for id in [0, 500, 950] {
        let bytes = record(&dataset, id);
        assert!(bytes.starts_with(&[0xff, 0xd8]));
        assert_eq!(bytes, fs::read(dataset.files()[0].record_path(id)).unwrap());
    }
}
