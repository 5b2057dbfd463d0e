//! Saved listings of folders of images: used while valid, rebuilt otherwise, and never trusted if damaged.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pelton_format::raw::{folder_index, load_folder_index, mend_folder_index};
use pelton_format::{Dataset, IndexSource, LabelColumn, OpenOptions, Rows};

const FILES: usize = 40;

struct Case {
    folder: tempfile::TempDir,
    root: PathBuf,
    options: OpenOptions,
}

/// Folders `a`, `b` and `b/deep` of images, and `empty`.
fn case() -> Case {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("images");
    for i in 0..FILES {
        let below = root.join(["a", "b", "b/deep"][i % 3]);
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(format!("{i}.png")), format!("image {i}")).unwrap();
    }
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::write(root.join("a/notes.txt"), "no image").unwrap();
    settle(&root);
    let options = OpenOptions {
        cache_dir: Some(folder.path().join("cache")),
        ..OpenOptions::default()
    };
    Case {
        folder,
        root,
        options,
    }
}

/// Sets the folders' times to a minute ago.
fn settle(root: &Path) {
    for below in ["", "a", "b", "b/deep", "empty"] {
        let before = SystemTime::now() - Duration::from_secs(60);
        let folder = File::open(root.join(below)).unwrap();
        folder.set_modified(before).unwrap();
    }
}

impl Case {
    fn open(&self) -> Dataset {
        Dataset::open(std::slice::from_ref(&self.root), &self.options).unwrap()
    }

    fn index(&self) -> PathBuf {
        self.folder.path().join("images.pelton-index")
    }

    /// Opens the folder and says whether its listing was kept from before.
    fn opened(&self) -> (Dataset, bool) {
        let dataset = self.open();
        let source = dataset.index_report().source;
        (dataset, source == IndexSource::Sidecar)
    }
}

/// Path and class of each record.
fn listing(dataset: &Dataset) -> Vec<(PathBuf, u32, u64)> {
    let mut rows = Rows::new(dataset.layout());
    (0..dataset.records())
        .map(|id| {
            let path = dataset.files()[0].record_path(id);
            rows.clear();
            dataset
                .decode(id, &fs::read(&path).unwrap(), &mut rows)
                .unwrap();
            (path, rows.label(0), dataset.locate(id).offset)
        })
        .collect()
}

#[test]
fn a_second_opening_gives_the_same_without_listing() {
    let case = case();
    let (first, kept) = case.opened();
    assert!(!kept && case.index().is_file());
    let (second, kept) = case.opened();
    assert!(kept);
    assert_eq!(listing(&first), listing(&second));
    assert_eq!(first.fingerprint(), second.fingerprint());
    assert_eq!(first.labels().names(), second.labels().names());
    assert_eq!(first.notes(), second.notes());
    assert_eq!(first.notes().len(), 2, "{:?}", first.notes());
    assert_eq!(
        first.index_report().index_bytes,
        second.index_report().index_bytes
    );
    // However the folder is spelled.
    let spelled = case.root.join("a/../");
    let dataset = Dataset::open(&[spelled], &case.options).unwrap();
    assert_eq!(dataset.index_report().source, IndexSource::Sidecar);
    let without = OpenOptions {
        sidecar: false,
        ..case.options.clone()
    };
    let dataset = Dataset::open(std::slice::from_ref(&case.root), &without).unwrap();
    assert_eq!(dataset.index_report().source, IndexSource::Built);
}

/// A change of a folder: its description and the function that makes it.
type Change = (&'static str, fn(&Path));

/// Changes of the tree after its listing was kept.
fn changes() -> Vec<Change> {
    vec![
        ("a file more", |root| {
            fs::write(root.join("a/new.png"), "new").unwrap()
        }),
        ("a file less", |root| {
            fs::remove_file(root.join("b/deep/2.png")).unwrap()
        }),
        ("another name", |root| {
            fs::rename(root.join("b/1.png"), root.join("b/z.png")).unwrap();
        }),
        ("a class more", |root| {
            fs::create_dir(root.join("c")).unwrap();
            fs::write(root.join("c/1.png"), "new").unwrap();
        }),
        ("an image where none was", |root| {
            fs::write(root.join("empty/1.png"), "new").unwrap();
        }),
        ("a class less", |root| {
            fs::remove_dir_all(root.join("a")).unwrap()
        }),
        ("a file in place of a folder", |root| {
            fs::remove_dir(root.join("empty")).unwrap();
            fs::write(root.join("empty"), "").unwrap();
        }),
    ]
}

#[test]
fn changed_folders_are_listed_anew() {
    for (name, change) in changes() {
        let case = case();
        assert!(!case.opened().1 && case.opened().1, "{name}");
        change(&case.root);
        let (dataset, kept) = case.opened();
        assert!(!kept, "{name}");
        let fresh = OpenOptions {
            sidecar: false,
            ..case.options.clone()
        };
        let fresh = Dataset::open(std::slice::from_ref(&case.root), &fresh).unwrap();
        assert_eq!(listing(&dataset), listing(&fresh), "{name}");
    }
}

#[test]
fn a_tree_that_is_being_filled_is_not_kept() {
    let case = case();
    fs::write(case.root.join("b/late.png"), "late").unwrap();
    case.open();
    assert!(!case.index().exists());
    settle(&case.root);
    // A dangling link may lead to a folder later.
    std::os::unix::fs::symlink("nowhere", case.root.join("b/link")).unwrap();
    settle(&case.root);
    case.open();
    assert!(!case.index().exists());
}

#[test]
fn a_file_changed_in_place_is_found_when_it_is_read_and_mended_by_the_next_run() {
    let case = case();
    case.open();
    let path = case.root.join("a/0.png");
    fs::write(&path, "it has grown by much").unwrap();
    let (dataset, kept) = case.opened();
    assert!(kept, "no folder has changed");
    let place = dataset.locate(0);
    let mut buffer = vec![0; place.length as usize];
    let mut read = [pelton_storage::RangeRead {
        offset: place.offset,
        buffer: &mut buffer,
        filled: 0,
    }];
    let error = dataset.files()[0]
        .storage()
        .read_batch(&mut read)
        .unwrap_err();
    assert!(
        error.to_string().starts_with(path.to_str().unwrap()),
        "{error}"
    );
    assert!(!case.index().exists());
    let (dataset, kept) = case.opened();
    assert!(!kept);
    assert_eq!(dataset.locate(0).length, 20);
}

#[test]
fn damaged_indexes_are_made_anew() {
    let case = case();
    let expected = listing(&case.open());
    let good = fs::read(case.index()).unwrap();
    let cut = good[..good.len() - 1].to_vec();
    let longer = [&good[..], b"x"].concat();
    let edit = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    // A head that states more than memory holds.
    let mut huge = good.clone();
    huge[48..56].copy_from_slice(&(1u64 << 60).to_le_bytes());
    let cases = [
        vec![],
        b"pltnfld\x01".to_vec(),
        cut,
        longer,
        edit(7),
        edit(20),
        edit(good.len() - 1),
        edit(good.len() / 2),
        huge,
    ];
    for bytes in cases {
        fs::write(case.index(), &bytes).unwrap();
        let (dataset, kept) = case.opened();
        assert!(!kept, "{} bytes", bytes.len());
        assert_eq!(listing(&dataset), expected);
        assert_eq!(fs::read(case.index()).unwrap(), good, "made again");
    }
}

/// With a right checksum every field is still checked.
#[test]
fn no_byte_of_an_index_is_believed() {
    let root = Path::new("/root");
    let good = folder_index();
    assert_eq!(load_folder_index(&good, root).unwrap().len(), 3);
    for at in 0..good.len() - 4 {
        for byte in [0, 1, 7, b'/', b'.', 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            mend_folder_index(&mut bytes);
            for (path, _) in load_folder_index(&bytes, root).unwrap_or_default() {
                let below = path.strip_prefix(root).unwrap();
                let inside = |part| matches!(part, std::path::Component::Normal(_));
                assert!(below.components().all(inside), "{at} {byte}: {path:?}");
            }
        }
    }
    for length in 0..good.len() {
        let mut bytes = good[..length].to_vec();
        mend_folder_index(&mut bytes);
        assert!(load_folder_index(&bytes, root).is_none(), "{length}");
    }
}

#[test]
fn a_table_belongs_to_the_listing() {
    let mut case = case();
    let table = case.folder.path().join("classes.csv");
    let write = |classes: usize| {
        let row = |i| format!("{i},kind {}\n", i % classes);
        let rows: String = (0..FILES - 1).map(row).collect();
        fs::write(&table, format!("image,class\n{rows}999,kind 0\n")).unwrap();
    };
    write(2);
    case.options.label_file = Some(table.clone());
    case.options.label = LabelColumn::Name("class".into());
    let (first, kept) = case.opened();
    assert!(!kept);
    let (second, kept) = case.opened();
    assert!(kept);
    assert_eq!(listing(&first), listing(&second));
    assert_eq!(first.notes(), second.notes());
    assert_eq!(first.notes().len(), 3, "{:?}", first.notes());
    write(3);
    let (third, kept) = case.opened();
    assert!(!kept, "another table");
    assert_eq!(third.labels().names().len(), 3);
    case.options.label_file = None;
    case.options.label = LabelColumn::default();
    let (plain, kept) = case.opened();
    assert!(!kept, "no table");
    assert_eq!(plain.labels().names(), ["a", "b"]);
}

#[test]
fn where_nothing_can_be_kept_a_note_says_so() {
    let mut case = case();
    // Nothing can be written into a file, no matter who asks.
    fs::write(case.folder.path().join("cache"), "").unwrap();
    fs::create_dir(case.index()).unwrap();
    let dataset = case.open();
    let notes = dataset.notes().join("\n");
    assert!(notes.contains("its listing cannot be kept at"), "{notes}");
    // A read-only folder is left alone.
    fs::remove_dir(case.index()).unwrap();
    case.options.cache_dir = Some(case.folder.path().join("other"));
    let mut mode = fs::metadata(case.folder.path()).unwrap().permissions();
    mode.set_readonly(true);
    fs::create_dir(case.folder.path().join("other")).unwrap();
    fs::set_permissions(case.folder.path(), mode.clone()).unwrap();
    let first = case.opened().1;
    let second = case.opened().1;
    #[allow(clippy::permissions_set_readonly_false)]
    mode.set_readonly(false);
    fs::set_permissions(case.folder.path(), mode).unwrap();
    assert_eq!((first, second), (false, true));
    assert!(!case.index().exists());
}

#[test]
fn a_folder_that_is_gone_is_an_error() {
    let case = case();
    case.open();
    fs::rename(&case.root, case.folder.path().join("moved")).unwrap();
    let error = Dataset::open(std::slice::from_ref(&case.root), &case.options).unwrap_err();
    assert!(
        error.to_string().contains("no such file or folder"),
        "{error}"
    );
}
