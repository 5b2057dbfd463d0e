//! Text of the extreme classification repository against the numbers that it was written from.

use pelton_batch::DType;
use pelton_format::FormatKind;
use tempfile::tempdir;

use crate::support::fields::{open, records_of, shown, with};
use crate::support::{file, rows};

type Record = (Vec<i64>, Vec<(i64, f32)>);

fn made(count: usize) -> Vec<Record> {
    let record = |at: usize| {
        let labels = (0..at % 4).map(|i| ((at * 7 + i * 11) % 40) as i64);
        let entries = (0..at % 6).map(|i| ((i * 13 + at % 13) as i64, (at + i) as f32 / 8.0 - 1.0));
        (labels.collect(), entries.collect())
    };
    (0..count).map(record).collect()
}

fn text(records: &[Record], end: &str) -> String {
    let mut text = format!("{} 90 40{end}", records.len());
    for (labels, entries) in records {
        let labels: Vec<String> = labels.iter().map(i64::to_string).collect();
        text += &labels.join(",");
        for (index, value) in entries {
            text += &format!(" {index}:{value:.6}");
        }
        text += end;
    }
    text
}

#[test]
fn records_are_their_labels_and_entries() {
    let folder = tempdir().unwrap();
    let made = made(200);
    let whole = text(&made, "\n");
    let variants = [
        ("a.txt", whole.clone()),
        ("b.data", whole.trim_end().to_string()),
        ("c.txt", text(&made, "\r\n")),
        ("d.txt", format!("\u{feff}{whole}")),
    ];
    for (name, text) in variants {
        let path = file(folder.path(), name, text);
        // A byte order mark hides the numbers from the look at the first line.
        let format = (name == "d.txt").then_some("xmc");
        let dataset = open(&path, &with(&folder, format, None)).unwrap();
        assert_eq!(
            dataset.files()[0].kind(),
            &FormatKind::from_name("xmc").unwrap()
        );
        assert_eq!((dataset.records(), dataset.features()), (200, 90));
        assert_eq!(dataset.label_lists(), Some(40));
        assert!(!dataset.has_labels() && dataset.notes().is_empty());
        for ((found, _), (labels, entries)) in records_of(&dataset).iter().zip(&made) {
            let bytes = |numbers: &[i64]| -> Vec<u8> {
                numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
            };
            let (indices, values): (Vec<i64>, Vec<f32>) = entries.iter().copied().unzip();
            let values: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let expected = [
                shown("labels", Some(DType::I64), &[labels.len()], &bytes(labels)),
                shown(
                    "indices",
                    Some(DType::I64),
                    &[indices.len()],
                    &bytes(&indices),
                ),
                shown("values", Some(DType::F32), &[indices.len()], &values),
            ];
            assert_eq!(found[..], expected, "{name}");
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempdir().unwrap();
    let of = with(&folder, Some("xmc"), None);
    let refused = |text: &str, expected: &str| {
        let path = file(folder.path(), "x.txt", text.as_bytes());
        match open(&path, &of) {
            Err(error) => assert!(error.to_string().contains(expected), "{error}"),
            Ok(dataset) => {
                let error = rows(&dataset).unwrap_err().to_string();
                assert!(
                    error.contains(expected) && error.contains("x.txt"),
                    "{error}"
                );
            }
        }
    };
    refused(
        "1,2 3:4\n",
        "its first line is not `records features labels`",
    );
    refused("3 9 5\n1 2:3\n", "states 3 records, and 1 lines follow");
    refused("1 9 5\n1 2:3\n\n", "states 1 records, and 2 lines follow");
    refused(
        "1 9 5\n1,5 2:3\n",
        "has the label 5, but its first line states 5 labels",
    );
    refused("1 9 5\n1,1 2:3\n", "has the label 1 twice");
    refused(
        "1 9 5\n1,-1 2:3\n",
        "are not whole numbers with commas between",
    );
    refused(
        "1 9 5\n1, 2:3\n",
        "are not whole numbers with commas between",
    );
    refused(
        "1 9 5\n1 9:3\n",
        "has the feature 9, but its first line states 9 features",
    );
    refused("1 9 5\n1 3:1 2:3\n", "sort the features");
    refused("1 9 5\n1 2:x\n", "is not a number");
    refused(
        "1 9 999999999\n1 2:3\n",
        "states 9 features and 999999999 labels; at most",
    );
    // Without a first line it is LIBSVM text, which says what to do.
    let path = file(folder.path(), "bare.txt", b"1,2 3:4\n");
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    let error = rows(&dataset).unwrap_err().to_string();
    assert!(
        error.contains("with a first line `records features labels`"),
        "{error}"
    );
}
