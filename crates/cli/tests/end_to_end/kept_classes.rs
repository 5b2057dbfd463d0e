//! `bench --keep-classes`: only the examples of some classes, with classes listed outside the records or in them, over
//! ranks, and in resumed runs.

use std::fs;

use crate::command::Place;

/// Pictures of 1 × 1 as IDX, with labels `id % 10`.
fn idx(place: &Place, count: u32) {
    let head = [
        &[0, 0, 8, 3][..],
        &count.to_be_bytes(),
        &[0, 0, 0, 1, 0, 0, 0, 1],
    ]
    .concat();
    place.write(
        "p-images-idx3-ubyte",
        [head, vec![7; count as usize]].concat(),
    );
    let labels: Vec<u8> = (0..count).map(|id| (id % 10) as u8).collect();
    let head = [&[0, 0, 8, 1][..], &count.to_be_bytes()].concat();
    place.write("p-labels-idx1-ubyte", [head, labels].concat());
}

/// Records of CIFAR-10 with class byte `id % 10`; that of record `bad` is not a class.
fn cifar(place: &Place, count: usize, bad: usize) {
    let record = |id: usize| {
        let class = if id == bad { 77 } else { (id % 10) as u8 };
        [&[class][..], &[1; 3072]].concat()
    };
    place.write(
        "data_batch_1.bin",
        (0..count).flat_map(record).collect::<Vec<u8>>(),
    );
}

/// Ids in the logs of `ranks` ranks.
fn logged(place: &Place, name: &str, ranks: usize) -> Vec<u64> {
    let log = |rank| match rank {
        0 => name.to_owned(),
        rank => format!("{name}.{rank}"),
    };
    let bytes: Vec<u8> = (0..ranks).flat_map(|rank| place.read(&log(rank))).collect();
    let ids = bytes.as_chunks::<8>().0.iter();
    ids.map(|id| u64::from_le_bytes(*id)).collect()
}

fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

#[test]
fn classes_that_are_listed_or_read() {
    let place = Place::new();
    idx(&place, 100);
    cifar(&place, 100, usize::MAX);
    let rows: String = (0..100).map(|id| format!("{id},2,{}\n", id % 10)).collect();
    place.write("rows.csv", rows);
    let expected: Vec<u64> = (0..100).filter(|id| [3, 5].contains(&(id % 10))).collect();
    for (number, (data, classes)) in [
        ("p-images-idx3-ubyte", "3,5"),
        ("data_batch_1.bin", "5,3,5"),
        ("rows.csv", "3,5"),
    ]
    .into_iter()
    .enumerate()
    {
        for ranks in [1, 3] {
            let name = format!("{number}of{ranks}");
            let figures = place.json(&format!(
                "bench {data} --keep-classes {classes} --batch 6 --ranks {ranks} --state s{name} --log l{name}"
            ));
            assert_eq!(figures["examples"], 20, "{data}");
            assert_eq!(sorted(logged(&place, &format!("l{name}"), ranks)), expected);
        }
    }
    // The count that both filters keep.
    place.write("text.txt", "one\nthree words here\n".repeat(20));
    let line = "bench text.txt --decode words --keep-classes 0 --keep-lengths 4..9";
    assert_eq!(place.json(line)["examples"], 20);
}

#[test]
fn classes_with_names() {
    let place = Place::new();
    for (class, count) in [("cat", 5), ("dog", 3), ("10", 2)] {
        fs::create_dir_all(place.path(&format!("pets/{class}"))).unwrap();
        for number in 0..count {
            place.write(&format!("pets/{class}/{number}.png"), "no picture");
        }
    }
    for (classes, examples) in [("cat", 5), ("dog,10", 5), ("cat,dog,10", 10)] {
        let figures = place.json(&format!("bench pets --keep-classes {classes} --batch 2"));
        assert_eq!(figures["examples"], examples, "{classes}");
    }
    place.refuses(
        "bench pets --keep-classes cat,cow",
        2,
        &["--keep-classes cow", "no such class", "10, cat, dog"],
    );
    place.write("one.csv", "1,2,0\n3,4,1\n");
    place.refuses(
        "bench one.csv --keep-classes 7",
        2,
        &["--keep-classes 7", "its classes are 0, 1"],
    );
    cifar(&place, 20, usize::MAX);
    place.ok("bench data_batch_1.bin --keep-classes 9 --batch 2");
    cifar(&place, 9, usize::MAX);
    place.refuses(
        "bench data_batch_1.bin --keep-classes 9 --batch 2",
        2,
        &["no record has a class in --keep-classes"],
    );
}

/// A run with a filter resumes exactly, but not with another filter.
#[test]
fn a_filtered_run_goes_on_where_it_stood() {
    let place = Place::new();
    idx(&place, 400);
    let line = "bench p-images-idx3-ubyte --keep-classes 1,2,8 --batch 7";
    place.ok(&format!("{line} --epochs 2 --state whole --log whole.ids"));
    place.ok(&format!("{line} --epochs 1 --state s --log s.ids"));
    place.ok(&format!("{line} --epochs 2 --state s --log s.ids"));
    let ids = logged(&place, "s.ids", 1);
    assert_eq!(ids.len(), 240);
    assert_eq!(ids, logged(&place, "whole.ids", 1));
    place.refuses(
        "bench p-images-idx3-ubyte --keep-classes 1,2 --batch 7 --state s",
        2,
        &["with another order", "filter"],
    );
}

/// A record of unknown class follows the policy for bad examples.
#[test]
fn a_record_without_a_class_is_a_bad_example() {
    let place = Place::new();
    cifar(&place, 50, 14);
    let line = "bench data_batch_1.bin --keep-classes 4 --batch 5";
    place.refuses(line, 2, &["data_batch_1.bin", "record 14"]);
    let figures = place.json(&format!("{line} --on-bad-record skip"));
    assert_eq!(figures["examples"], 4, "{figures}");
    assert_eq!(figures["skipped_records"], 1, "{figures}");
}
