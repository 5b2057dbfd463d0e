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
