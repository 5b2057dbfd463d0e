//! Tar files of samples: every dialect, and every fault.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::tar::{end, entry, gnu_long, header, member, padded, pax, pax_records, seal};
use crate::support::{file, options, rows};
use pelton_format::{Contents, Dataset, FormatError, IndexSource, Layout, Row, members};
use proptest::prelude::*;
use tempfile::tempdir;

fn open(folder: &Path, parts: &[Vec<u8>]) -> Result<Dataset, FormatError> {
    let path = file(folder, "x.tar", parts.concat());
    Dataset::open(&[path], &options(folder))
}

/// Members of a sample as text.
type Sample = Vec<(String, String)>;

/// Each record's members, and its label value.
fn samples(dataset: &Dataset) -> Vec<(Sample, f64)> {
    let rows = rows(dataset).unwrap();
    assert_eq!(
        (dataset.layout(), dataset.contents()),
        (Layout::Bytes, Contents::Members)
    );
    assert_eq!(rows.stored_values() as u64, dataset.nonzeros());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (0..rows.len())
        .map(|i| {
            let Row::Bytes(group) = rows.row(i) else {
                panic!("rows are bytes")
            };
            let members = members(group).map(|member| (text(member.extension), text(member.bytes)));
            (
                members.collect(),
                dataset.labels().values()[rows.label(i) as usize],
            )
        })
        .collect()
}

fn sample(members: &[(&str, &str)], label: f64) -> (Sample, f64) {
    let members = members.iter().map(|(a, b)| (a.to_string(), b.to_string()));
    (members.collect(), label)
}

fn refused(parts: &[Vec<u8>], message: &str) {
    let folder = tempdir().unwrap();
    let error = open(folder.path(), parts).expect_err(message).to_string();
    assert!(
        error.contains(message) && error.contains("x.tar: "),
        "{error}"
    );
}

#[test]
fn members_with_one_key_are_a_sample() {
    let folder = tempdir().unwrap();
    let parts = [
        entry("a/", b"", b'5'),
        member("a/0001.jpg", b"picture"),
        member("a/0001.cls", b" 3\n"),
        entry("a/link.jpg", b"", b'2'),
        member("a/._0001.jpg", b"resource fork"),
        member("a/0002.seg.png", b""),
        member("a/0002.cls", b"1"),
        entry("a/device", b"", b'3'),
        entry("b/", b"", b'5'),
        member("b/0001.JPG", &[b'z'; 1000]),
        entry("odd", b"12", b'Z'),
        member("last", b"no extension"),
        end(),
    ];
    let dataset = open(folder.path(), &parts).unwrap();
    let expected = [
        sample(&[("jpg", "picture"), ("cls", " 3\n")], 3.0),
        sample(&[("seg.png", ""), ("cls", "1")], 1.0),
        sample(&[("JPG", &"z".repeat(1000))], 0.0),
        sample(&[("", "no extension")], 0.0),
    ];
    assert_eq!(samples(&dataset), expected);
    assert_eq!(dataset.labels().values(), [0.0, 1.0, 3.0]);
    assert_eq!(dataset.files()[0].kind().name(), "tar");
    let notes = dataset.notes().join("\n");
    for note in [
        "1 links",
        "1 devices",
        "1 entries of unknown type",
        "1 files whose names start with a dot",
        "2 of 4 samples have no member .cls",
    ] {
        assert!(notes.contains(note), "{note} in {notes}");
    }
    // The sidecar knows all of it.
    let again = open(folder.path(), &parts).unwrap();
    assert!(folder.path().join("x.tar.pelton-index").is_file());
    let by_scan = again.index_report().source == IndexSource::Built;
    let again = Dataset::open(&[folder.path().join("x.tar")], &options(folder.path())).unwrap();
    assert_eq!(again.index_report().source, IndexSource::Sidecar);
    assert!(samples(&again) == expected && again.notes() == dataset.notes());
    assert_eq!(again.record_bytes(), dataset.record_bytes());
    assert!(by_scan || again.fingerprint() == dataset.fingerprint());
}

#[test]
fn any_damage_of_the_sidecar_is_noticed() {
    let folder = tempdir().unwrap();
    let parts = [
        member("1.cls", b"1"),
        member("2.cls", b"4"),
        member("3.txt", b"x"),
        end(),
    ];
    let expected = samples(&open(folder.path(), &parts).unwrap());
    let path = folder.path().join("x.tar");
    let sidecar = folder.path().join("x.tar.pelton-index");
    let good = fs::read(&sidecar).unwrap();
    let source = || {
        let dataset = Dataset::open(std::slice::from_ref(&path), &options(folder.path())).unwrap();
        assert_eq!(samples(&dataset), expected);
        dataset.index_report().source
    };
    assert_eq!(source(), IndexSource::Sidecar);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&sidecar, &bad).unwrap();
        assert_eq!(source(), IndexSource::Built, "byte {at}");
    }
}

#[test]
fn names_in_every_dialect() {
    let folder = tempdir().unwrap();
    let long = format!("{}/{}", "d".repeat(150), "n".repeat(150));
    let mut ustar = header(b"k.txt", 1, b'0');
    ustar[345..351].copy_from_slice(b"prefix");
    seal(&mut ustar);
    let mut binary = header(b"big.bin", 0, b'0');
    binary[124..136].copy_from_slice(b"\x80\0\0\0\0\0\0\0\0\0\0\x05");
    seal(&mut binary);
    let mut old = header(b"v7.txt", 1, 0);
    old[257..265].fill(0);
    seal(&mut old);
    let dataset = open(
        folder.path(),
        &[
            entry("pax_global_header", &pax_records(&[("comment", "c")]), b'g'),
            gnu_long(&format!("{long}.jpg"), b"1"),
            gnu_long(&format!("{long}.txt"), b"2"),
            pax(&[("mtime", "1.5"), ("path", "päx/key.json")], "cut", b"3"),
            pax(&[("path", "päx/key.jpg"), ("size", "2")], "cut", b"44"),
            [ustar, padded(b"5")].concat(),
            [binary, padded(b"six77")].concat(),
            [old, padded(b"8")].concat(),
            end(),
        ],
    )
    .unwrap();
    assert_eq!(
        samples(&dataset),
        [
            sample(&[("jpg", "1"), ("txt", "2")], 0.0),
            sample(&[("json", "3"), ("jpg", "44")], 0.0),
            sample(&[("txt", "5")], 0.0),
            sample(&[("bin", "six77")], 0.0),
            sample(&[("txt", "8")], 0.0),
        ]
    );
    assert!(dataset.notes()[0].contains("no sample has a member .cls"));
}

#[test]
fn bad_archives() {
    let good = [member("a.jpg", b"1"), member("b.jpg", &[7; 2000])];
    let all = [&good[..], &[end()]].concat().concat();
    for cut in [100, 511, 512, 513, 1024, 1100, 1536, 2000, 3000, 3583] {
        let error = open(tempdir().unwrap().path(), &[all[..cut].to_vec()]);
        match error {
            // At the border of members only the end is missing, and a cut through padding loses nothing.
            Ok(dataset) => assert!(
                dataset
                    .notes()
                    .iter()
                    .any(|note| note.contains("without the blocks of zeros")),
                "cut at {cut}"
            ),
            Err(error) => {
                let error = error.to_string();
                let number = |before: &str| -> usize {
                    let (_, rest) = error.split_once(before).expect(&error);
                    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
                    digits.and_then(|digits| digits.parse().ok()).expect(&error)
                };
                let (offset, needed) = (number("x.tar: byte "), number("to reach byte "));
                assert!(offset < cut && needed > cut, "cut at {cut}: {error}");
            }
        }
    }
    refused(
        &[all[..3000].to_vec()],
        "x.tar: byte 1024: it is cut off: member b.jpg needs the file to reach byte 3536",
    );
    refused(
        &[all[..1300].to_vec()],
        "byte 1024: it is cut off: member the one after a.jpg needs",
    );
    let mut damaged = all.clone();
    damaged[1024 + 3] ^= 1;
    refused(
        &[damaged],
        "byte 1024: the file is damaged: a header's checksum does not fit",
    );
    refused(
        &[good[0].clone(), entry("s.bin", b"x", b'S'), end()],
        "byte 1024: member s.bin is sparse",
    );
    refused(
        &[
            pax(&[("GNU.sparse.major", "1"), ("path", "s.bin")], "cut", b"x"),
            end(),
        ],
        "byte 0: member s.bin is sparse",
    );
    refused(
        &[
            good[0].clone(),
            good[1].clone(),
            member("a.cls", b"1"),
            end(),
        ],
        "byte 3584: members of sample a appear again",
    );
    refused(
        &[member("a.cls", b"cat"), end()],
        "byte 512: member a.cls holds \"cat\", which is not a number",
    );
    refused(
        &[member("a.cls", &[b'1'; 100]), end()],
        "which is not a number",
    );
    refused(&[entry("d/", b"", b'5'), end()], "holds no records");
    refused(
        &[entry("x", b"nonsense", b'x'), good[0].clone()],
        "a pax header's records do not hold together",
    );
    refused(
        &[
            vec![entry("x", b"12 path=abc\n", b'g'); 12].concat(),
            good[0].clone(),
        ],
        "too many headers before its own",
    );
    refused(
        &[entry("x", b"12 path=abc\n", b'x'), end()],
        "ends between a name and its member",
    );
    let mut huge = header(b"a.bin", 0, b'0');
    huge[124..136].copy_from_slice(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    seal(&mut huge);
    refused(&[good[0].clone(), huge], "is cut off: member a.bin");
    refused(
        &[
            header(b"n", 2 << 20, b'L'),
            vec![b'n'; 2 << 20],
            good[0].clone(),
        ],
        "longer than 1 MiB",
    );
    refused(
        &[b"x".to_vec()],
        "byte 0: it is cut off: member the first needs",
    );
}

/// As in WebDataset, which converts extensions to lower case.
#[test]
fn a_sample_that_has_an_extension_twice_is_refused() {
    for (first, second) in [("a.cls", "a.cls"), ("a.jpg", "a.JPG"), ("a", "a")] {
        let parts = [
            member("0.cls", b"1"),
            member(first, b"1"),
            member("a.seg.jpg", b"2"),
            member(second, b"2"),
            end(),
        ];
        refused(
            &parts,
            &format!("byte 3072: member {second} has the same extension"),
        );
    }
}

#[test]
fn content_after_the_end_is_reported() {
    let folder = tempdir().unwrap();
    let parts = [
        member("a.jpg", b"1"),
        end(),
        vec![0; 9000],
        member("b.jpg", b"2"),
        end(),
    ];
    let dataset = open(folder.path(), &parts).unwrap();
    assert_eq!(dataset.records(), 1);
    let notes = dataset.notes().join("\n");
    assert!(notes.contains("after the end of the archive"), "{notes}");
}

#[test]
fn groups_that_do_not_hold_together() {
    let folder = tempdir().unwrap();
    let dataset = open(
        folder.path(),
        &[member("a.jpg", b"1"), member("a.cls", b"1"), end()],
    )
    .unwrap();
    let good = crate::support::record(&dataset, 0);
    let decode = |bytes: &[u8]| {
        let mut rows = pelton_format::Rows::new(Layout::Bytes);
        let outcome = dataset.decode(0, bytes, &mut rows);
        assert_eq!(rows.len(), usize::from(outcome.is_ok()));
        outcome.map_err(|error| error.to_string())
    };
    decode(&good).unwrap();
    assert!(decode(b"").unwrap_err().contains("no record"));
    let check = |bytes: &[u8], message: &str| {
        let error = decode(bytes).unwrap_err();
        assert!(
            error.contains("record 0 at byte 0: byte") && error.contains(message),
            "{error}"
        );
    };
    check(&good[..1500], "a member reaches past its end");
    check(
        &[&good[..], &end()].concat(),
        "it contains a block of zeros",
    );
    let mut damaged = good.clone();
    damaged[1024] ^= 1;
    check(&damaged, "a header's checksum does not fit");
    assert_eq!(members(&damaged).count(), 1);
    assert_eq!(members(&good[..100]).count(), 0);
    assert!(members(&good).nth(1).unwrap().is("CLS"));
}

/// Reads archives of GNU tar in each of its dialects.
#[test]
fn archives_of_gnu_tar() {
    let folder = tempdir().unwrap();
    let names: Vec<String> = (0..30)
        .flat_map(|i| {
            let long = "x".repeat(if i % 3 == 0 { 120 } else { 3 });
            [format!("{i:03}{long}.jpg"), format!("{i:03}{long}.cls")]
        })
        .collect();
    for (i, name) in names.iter().enumerate() {
        let bytes = match i % 2 {
            0 => vec![i as u8; i * 97],
            _ => (i / 2 % 4).to_string().into_bytes(),
        };
        file(folder.path(), name, bytes);
    }
    for dialect in ["gnu", "pax", "posix", "ustar"] {
        // The ustar dialect has no room for long names.
        let fits = |name: &&String| dialect != "ustar" || name.len() < 100;
        let listed: Vec<&String> = names.iter().filter(fits).collect();
        let tar = folder.path().join(format!("{dialect}.tar"));
        let made = Command::new("tar")
            .current_dir(folder.path())
            .args(["--format", dialect, "--sort=name", "-cf"])
            .arg(&tar)
            .args(&listed)
            .status();
        let Ok(status) = made else {
            eprintln!("SKIPPED: GNU tar is not installed");
            return;
        };
        assert!(status.success());
        let dataset = Dataset::open(&[tar], &options(folder.path())).unwrap();
        assert_eq!(dataset.records(), listed.len() as u64 / 2);
        let found = rows(&dataset).unwrap();
        for (i, pair) in listed.chunks(2).enumerate() {
            let Row::Bytes(group) = found.row(i) else {
                panic!("rows are bytes")
            };
            let mut members: Vec<_> = members(group)
                .map(|m| (m.file_name.to_vec(), m.bytes.to_vec()))
                .collect();
            let mut expected: Vec<_> = pair
                .iter()
                .map(|name| {
                    (
                        name.as_bytes().to_vec(),
                        fs::read(folder.path().join(name)).unwrap(),
                    )
                })
                .collect();
            members.sort();
            expected.sort();
            assert_eq!(members, expected);
        }
        assert_eq!(dataset.labels().values(), [0.0, 1.0, 2.0, 3.0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Members of all sizes, so that the window over the file takes every step it can.
    #[test]
    fn what_is_written_is_read(
        groups in prop::collection::vec(prop::collection::vec(prop_oneof![0usize..2000, 0usize..600_000], 1..4), 1..12),
    ) {
        let folder = tempdir().unwrap();
        let mut parts = Vec::new();
        let mut expected = Vec::new();
        for (i, sizes) in groups.iter().enumerate() {
            let mut members = Vec::new();
            for (j, &size) in sizes.iter().enumerate() {
                let text = format!("{i} {j} ").repeat(size / 4 + 1)[..size].to_string();
                parts.push(member(&format!("{i}.{j}"), text.as_bytes()));
                members.push((j.to_string(), text));
            }
            expected.push((members, 0.0));
        }
        parts.push(end());
        let dataset = open(folder.path(), &parts).unwrap();
        prop_assert_eq!(samples(&dataset), expected);
    }
}
