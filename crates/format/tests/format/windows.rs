//! Windows of token ids against slices of the array: bare, as `.npy`, and next to an `.idx` of Megatron-LM.

use pelton_format::{Dataset, Row};
use tempfile::tempdir;

use crate::support::fields::{open, refuses, with};
use crate::support::{file, rows};

fn ids(count: u64) -> Vec<u16> {
    (0..count).map(|i| (i * 40_503 % 65_521) as u16).collect()
}

fn bytes_of(ids: &[u16]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let header = format!("{header:<117}\n");
    let head = [
        &b"\x93NUMPY\x01\x00"[..],
        &(header.len() as u16).to_le_bytes(),
    ]
    .concat();
    [&head, header.as_bytes(), data].concat()
}

/// The first bytes of an `.idx`.
fn index(code: u8) -> Vec<u8> {
    [&b"MMIDIDX\0\0"[..], &1_u64.to_le_bytes(), &[code], &[0; 16]].concat()
}

fn check(dataset: &Dataset, ids: &[u16], length: usize, stride: usize) {
    let expected: Vec<&[u16]> = (0..)
        .map(|i| i * stride)
        .take_while(|start| start + length <= ids.len())
        .map(|start| &ids[start..start + length])
        .collect();
    assert_eq!(dataset.records(), expected.len() as u64);
    assert!(!dataset.has_labels());
    let rows = rows(dataset).unwrap();
    for (at, window) in expected.iter().enumerate() {
        assert_eq!(
            rows.row(at),
            Row::Bytes(&bytes_of(window)),
            "{length}, {stride}: {at}"
        );
        let place = dataset.in_place(at as u64).unwrap().unwrap();
        assert_eq!(place.length, 2 * length as u64);
    }
}

#[test]
fn windows_are_slices_of_the_array() {
    let folder = tempdir().unwrap();
    let ids = ids(1000);
    let bare = file(folder.path(), "train.bin", bytes_of(&ids));
    let array = file(
        folder.path(),
        "train.npy",
        npy("<u2", "1000,", &bytes_of(&ids)),
    );
    let other = file(folder.path(), "corpus.bin", bytes_of(&ids));
    file(folder.path(), "corpus.idx", index(8));
    for (length, stride) in [
        (10, 10),
        (11, 10),
        (7, 3),
        (100, 900),
        (1000, 1),
        (3, 997),
        (1, 1),
    ] {
        let spelled = format!("windows:{length}:{stride}:u16");
        let dataset = open(&bare, &with(&folder, Some(&spelled), None)).unwrap();
        check(&dataset, &ids, length, stride);
        let used = (dataset.records() as usize - 1) * stride + length;
        let note = format!(
            "its last {} of 1000 ids fill no window of {length}",
            1000 - used
        );
        assert_eq!(
            dataset.notes().iter().any(|said| said.contains(&note)),
            used < 990
        );
        // The files that state their type.
        let spelled = format!("windows:{length}:{stride}");
        for path in [&array, &other] {
            let dataset = open(path, &with(&folder, Some(&spelled), None)).unwrap();
            check(&dataset, &ids, length, stride);
        }
    }
    let words: Vec<u8> = ids
        .iter()
        .flat_map(|&id| u32::from(id).to_le_bytes())
        .collect();
    let wide = file(folder.path(), "wide.bin", words);
    let dataset = open(&wide, &with(&folder, Some("windows:5:5:u32"), None)).unwrap();
    assert_eq!(dataset.records(), 200);
}

#[test]
fn what_has_no_windows() {
    let folder = tempdir().unwrap();
    let refuses = |name: &str, format: &str, bytes: Vec<u8>, message: &str| {
        let path = file(folder.path(), name, bytes);
        refuses(&path, &with(&folder, Some(format), None), message);
    };
    let ten = bytes_of(&ids(10));
    refuses(
        "a.bin",
        "windows:3",
        ten.clone(),
        "does not tell the type of its ids; give it, as in windows:1025:1024:u16",
    );
    refuses(
        "b.bin",
        "windows:3:3:u32",
        ten[..18].to_vec(),
        "its 18 bytes are no ids of type uint32",
    );
    refuses(
        "c.bin",
        "windows:11:1:u16",
        ten.clone(),
        "it has 10 ids, fewer than a window of 11",
    );
    refuses(
        "d.npy",
        "windows:3",
        npy("<f4", "5,", &ten),
        "from an array of whole numbers in one dimension",
    );
    refuses(
        "e.npy",
        "windows:3",
        npy("<u2", "5, 2", &ten),
        "from an array of whole numbers in one dimension",
    );
    refuses(
        "f.npy",
        "windows:3",
        npy("<u2", "11,", &ten),
        "does not fill the file",
    );
    refuses(
        "g.npy",
        "windows:3:3:u32",
        npy("<u2", "10,", &ten),
        "its ids are uint16, as it says itself",
    );
    file(folder.path(), "h.idx", index(7));
    refuses(
        "h.bin",
        "windows:3",
        ten.clone(),
        "says that ids are of type 7, which is not one of whole numbers",
    );
    // An index of something else tells nothing.
    file(folder.path(), "i.idx", vec![0, 0, 8, 1, 0, 0, 0, 0]);
    refuses("i.bin", "windows:3", ten, "does not tell the type");
}

/// An `.idx` of sequences of these lengths, and of documents that end at these sequences.
fn index_of(code: u8, lengths: &[i32], ends: &[i64], width: i64) -> Vec<u8> {
    let mut made = index(code);
    made[18..26].copy_from_slice(&(lengths.len() as u64).to_le_bytes());
    made[26..34].copy_from_slice(&(ends.len() as u64 + 1).to_le_bytes());
    let offset = |at: usize| {
        let before = lengths[..at].iter();
        width * before.map(|&length| i64::from(length)).sum::<i64>()
    };
    made.extend(lengths.iter().flat_map(|length| length.to_le_bytes()));
    made.extend((0..lengths.len()).flat_map(|at| offset(at).to_le_bytes()));
    let bounds = std::iter::once(&0).chain(ends);
    made.extend(bounds.flat_map(|end| end.to_le_bytes()));
    made
}

#[test]
fn documents_are_those_of_the_index() {
    let folder = tempdir().unwrap();
    let ids = ids(100);
    // A document of two sequences, one without ids, and others.
    let (lengths, ends) = ([5, 7, 0, 1, 80, 7], [2, 3, 4, 5, 6]);
    let path = file(folder.path(), "corpus.bin", bytes_of(&ids));
    file(folder.path(), "corpus.idx", index_of(8, &lengths, &ends, 2));
    let dataset = open(&path, &with(&folder, Some("documents"), None)).unwrap();
    assert!(
        dataset.notes()[0].contains("1 documents without ids are left out"),
        "{:?}",
        dataset.notes()
    );
    let rows = rows(&dataset).unwrap();
    let expected = [0..12, 12..13, 13..93, 93..100];
    assert_eq!(dataset.records(), expected.len() as u64);
    assert_eq!(dataset.ids(), Some(pelton_batch::DType::U16));
    for (at, range) in expected.iter().enumerate() {
        let count = (range.len() as u32).to_le_bytes();
        let bytes = [&count, &bytes_of(&ids[range.clone()])[..]].concat();
        assert_eq!(rows.row(at), Row::Bytes(&bytes));
        assert_eq!(dataset.locate(at as u64).length, 2 * range.len() as u64);
    }
}

#[test]
fn an_index_that_does_not_fit_is_refused() {
    let folder = tempdir().unwrap();
    let ten = bytes_of(&ids(10));
    let good = index_of(8, &[4, 6], &[1, 2], 2);
    let path = file(folder.path(), "a.bin", ten);
    let options = with(&folder, Some("documents"), None);
    refuses(&path, &options, "a.idx cannot be read");
    let alone = file(folder.path(), "b.idx", &good);
    let any = with(&folder, None, None);
    refuses(
        &alone,
        &any,
        "name the .bin next to it, with the format `documents`",
    );
    let with_index = |bytes: &[u8]| {
        file(folder.path(), "a.idx", bytes);
        open(&path, &options)
    };
    assert_eq!(with_index(&good).unwrap().records(), 2);
    for (bytes, message) in [
        (good[..20].to_vec(), "ends within its head"),
        (vec![7; 40], "is no index of Megatron-LM"),
        (good[..good.len() - 1].to_vec(), "need 82; write it again"),
        (
            index_of(8, &[4, 5], &[1, 2], 2),
            "the two do not belong together",
        ),
        (
            index_of(8, &[4, 7], &[1, 2], 2),
            "the two do not belong together",
        ),
        (
            index_of(8, &[4, -6], &[1, 2], 2),
            "the two do not belong together",
        ),
        (
            index_of(8, &[4, 6], &[1], 2),
            "the two do not belong together",
        ),
        (index_of(8, &[4, 6], &[2, 1], 2), "write it again"),
        (index_of(8, &[4, 6], &[1, 3], 2), "write it again"),
        (
            index_of(8, &[4, 6], &[1, 2], 4),
            "the two do not belong together",
        ),
        (index_of(6, &[4, 6], &[1, 2], 2), "ids are of type 6"),
    ] {
        let error = with_index(&bytes).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    // Whatever a byte becomes, there is an error or a whole number of documents.
    for at in 0..good.len() {
        for by in [1, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = bytes[at].wrapping_add(by);
            if let Ok(dataset) = with_index(&bytes) {
                rows(&dataset).unwrap();
            }
        }
    }
}

#[test]
fn a_bare_file_of_ids_is_told_how_to_be_read() {
    let folder = tempdir().unwrap();
    let alone = file(folder.path(), "alone.bin", [200u8, 1, 255, 0].repeat(40));
    refuses(&alone, &with(&folder, None, None), "windows:1025:1024:u16");
    let both = file(folder.path(), "both.bin", [200u8, 1, 255, 0].repeat(40));
    file(folder.path(), "both.idx", b"MMIDIDX\0\0");
    refuses(&both, &with(&folder, None, None), "`format` documents");
}
