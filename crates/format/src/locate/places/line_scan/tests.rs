use super::*;
use proptest::prelude::*;
use std::io::Write;

/// Starts, labels, names and counts.
fn summary(contents: &Located) -> (Vec<u64>, Vec<f64>, Vec<String>, Vec<u64>) {
    let mut counts = vec![contents.index_end, contents.nonzeros, contents.longest];
    counts.extend(&contents.tallies);
    (
        contents.starts.walk(0).collect(),
        contents.labels.clone(),
        contents.names.clone(),
        counts,
    )
}

/// Scans `text` serially and in parallel; returns the number of records.
fn check(text: &[u8], shape: LineShape) -> u64 {
    scanned(text, shape).starts.len()
}

/// Scans `text` serially and in parallel; both must agree.
fn scanned(text: &[u8], shape: LineShape) -> Located {
    try_scan(text, shape).unwrap()
}

/// Scans `text` serially and in parallel; the error describes its fault.
fn try_scan(text: &[u8], shape: LineShape) -> Result<Located, String> {
    let input = Input::of_bytes(text);
    let size = text.len() as u64;
    let stop = &AtomicBool::new(false);
    let plain = || {
        let (from, comments) = first_record(&input, shape, 0, size)?;
        let mut plain = scan_lines(&Scan {
            file: &input,
            shape,
            from,
            size,
            interrupt: stop,
        })?;
        plain.comments += comments;
        plain.finish(shape, size)
    };
    let plain = plain().map_err(|error| error.to_string());
    for threads in [1, 3] {
        let fast = scan_file(&input, shape, 0, size, threads, stop);
        let fast = fast.map_err(|error| error.to_string());
        assert_eq!(fast.as_ref().map(summary), plain.as_ref().map(summary));
    }
    plain
}

/// Whether the parallel scan handles `text` without the plain one.
fn is_regular(text: &[u8], shape: LineShape) -> bool {
    let input = Input::of_bytes(text);
    let scan = Scan {
        file: &input,
        shape,
        from: 0,
        size: text.len() as u64,
        interrupt: &AtomicBool::new(false),
    };
    scan.in_parallel(2).unwrap().is_some()
}

const LAST: LineShape = LineShape::Delimited {
    delimiter: b',',
    decimal_comma: false,
    label: Some(2),
    columns: 3,
};
const MIDDLE: LineShape = LineShape::Delimited {
    delimiter: b',',
    decimal_comma: false,
    label: Some(1),
    columns: 3,
};
const FIRST: LineShape = LineShape::Delimited {
    delimiter: b',',
    decimal_comma: false,
    label: Some(0),
    columns: 3,
};
const NONE: LineShape = LineShape::Delimited {
    delimiter: b',',
    decimal_comma: false,
    label: None,
    columns: 3,
};

#[test]
fn names_of_classes() {
    let text = b"1,Class_1,b\n2,true,\"Class_1\"\n2,Class_1,NA\n";
    let found = scanned(text, MIDDLE);
    assert_eq!(found.names, ["Class_1", "true"]);
    assert_eq!(found.labels, [0.0, 1.0]);
    assert_eq!(scanned(text, LAST).names, ["Class_1", "b"]);
    // Together with numbers, texts are not classes.
    let mixed = scanned(b"1,2,3\n1,2,x\n1,2,1e300\n", LAST);
    assert_eq!((mixed.labels, mixed.names.len()), (vec![3.0], 0));
    let without = scanned(text, NONE);
    assert_eq!((without.labels.len(), without.names.len()), (0, 0));
    assert_eq!(without.nonzeros, 9);
    let many: String = (0..=MOST_NAMES).map(|i| format!("1,2,x{i}\n")).collect();
    let input = Input::of_bytes(many.as_bytes());
    let found = scan_file(
        &input,
        LAST,
        0,
        many.len() as u64,
        2,
        &AtomicBool::new(false),
    );
    assert!(found.unwrap_err().to_string().contains("distinct labels"));
}

#[test]
fn query_numbers_and_comments_are_counted() {
    let mut text = b"# head\n".to_vec();
    for i in 0..100_000 {
        writeln!(text, "{} qid:{} 1:0.5 2:1", i % 3, i / 7).unwrap();
    }
    let found = scanned(&text, LineShape::Libsvm);
    assert_eq!(found.tallies, [100_000, 1]);
    assert_eq!((found.nonzeros, found.index_end), (200_000, 3));
    // At every position around the end of a chunk.
    for shift in 0..24 {
        let mut shifted = vec![b'1'; shift];
        shifted.extend_from_slice(&text[7..CHUNK as usize + 400]);
        check(&shifted, LineShape::Libsvm);
    }
    text.extend_from_slice(b"1 qid:1 2:1 # doc\n");
    let found = scanned(&text, LineShape::Libsvm);
    assert_eq!(found.tallies, [100_001, 2]);
    assert_eq!(found.nonzeros, 200_001);
}

#[test]
fn lines_of_every_kind() {
    assert_eq!(check(b"1 1:2 3:4\n-1 2:1\n", LineShape::Libsvm), 2);
    assert_eq!(
        check(b"\n\n  \n1 1:2\n\n\t\r\n-1 2:1 \r\n\n", LineShape::Libsvm),
        2
    );
    assert_eq!(
        check(b"# head\n1 1:2 # 7:8\n# mid\n-1 9:1", LineShape::Libsvm),
        2
    );
    assert_eq!(check(b"1\n2\n3", LineShape::Libsvm), 3);
    assert_eq!(check(b"", LineShape::Libsvm), 0);
    assert_eq!(check(b"", LineShape::Text), 0);
    assert_eq!(check(b"\n", LineShape::Text), 1);
    assert_eq!(check(b"\n\na b\r\n \n#c", LineShape::Text), 5);
    assert_eq!(check(b"\n\n", LineShape::Libsvm), 0);
    assert_eq!(
        check(
            b"x y:z :: 4294967296:1 99999999999999999999999:1\n:",
            LineShape::Libsvm
        ),
        2
    );
    for shape in [FIRST, MIDDLE, LAST] {
        assert_eq!(check(b"1,2,3\n\n4,5,6\r\n7,8\n\"9\",10,\"11\"", shape), 4);
    }
}

#[test]
fn lines_across_chunks() {
    let mut text = Vec::new();
    let mut index = 1;
    while text.len() < 3 * CHUNK as usize {
        writeln!(text, "{} 1:0.5 {}:{}", index % 7, index + 1, index % 10).unwrap();
        index += 1;
    }
    assert!(check(&text, LineShape::Libsvm) > 30_000);
    assert!(is_regular(&text, LineShape::Libsvm));
    // A newline, a label and an index fall on every position around the chunk's end.
    for shift in 0..40 {
        let mut shifted = vec![b'1'; shift];
        shifted.extend_from_slice(&text[..CHUNK as usize + 400]);
        check(&shifted, LineShape::Libsvm);
    }
}

#[test]
fn lines_longer_than_chunks() {
    let mut text = Vec::new();
    for line in 0..3 {
        write!(text, "{line}").unwrap();
        for index in 1..60_000 {
            write!(text, " {index}:0.25").unwrap();
        }
        text.push(b'\n');
    }
    assert!(text.len() > 6 * CHUNK as usize / 2);
    assert_eq!(check(&text, LineShape::Libsvm), 3);
    assert!(is_regular(&text, LineShape::Libsvm));
    let cells = text
        .iter()
        .map(|byte| if *byte == b' ' { b',' } else { *byte });
    let cells: Vec<u8> = cells.collect();
    let columns = 60_000;
    for label in [0, 1, 2, 30_000, columns - 1].map(Some) {
        check(
            &cells,
            LineShape::Delimited {
                delimiter: b',',
                decimal_comma: false,
                label,
                columns,
            },
        );
    }
    // A margin full of blanks leaves it to the plain scan.
    let mut blank = b"1 1:1".to_vec();
    blank.resize(2 * CHUNK as usize + 1000, b' ');
    blank.extend_from_slice(b"\n2 7:1");
    assert_eq!(check(&blank, LineShape::Libsvm), 2);
    assert!(!is_regular(&blank, LineShape::Libsvm));
}

/// Quotes, newlines within them and line ends at every byte around a chunk's end.
#[test]
fn quoted_cells_across_chunks() {
    let mut text = Vec::new();
    while text.len() < CHUNK as usize + 4000 {
        let row = text.len() % 7;
        write!(
            text,
            "\"Doe, \"\"J\"\"\n{row}\", \"{row}\" ,{row}.5,\"a\"\"\n{row}\"\r\n"
        )
        .unwrap();
    }
    for label in [None, Some(0), Some(1), Some(2), Some(3)] {
        let shape = LineShape::Delimited {
            delimiter: b',',
            decimal_comma: false,
            label,
            columns: 4,
        };
        assert!(is_regular(&text, shape));
        for shift in 0..46 {
            let mut shifted = vec![b' '; shift];
            shifted.extend_from_slice(&text[..CHUNK as usize + 400]);
            let end = shifted.len() - 1 - { shifted.iter().rev() }
                .position(|byte| *byte == b'\r')
                .unwrap();
            let found = scanned(&shifted[..end], shape);
            assert_eq!(
                found.starts.len(),
                memchr::memchr_iter(b'\r', &shifted).count() as u64
            );
            if label == Some(3) {
                assert_eq!(found.names[6], "a\"\n6");
            }
        }
    }
}

#[test]
fn a_few_quotes_and_long_ones() {
    let mut text = b"1,2,3\n".repeat(CHUNK as usize / 3);
    text.extend_from_slice(b"1,\"2\n\",\"x, y\"\n");
    text.extend(b"1,2,3\n".repeat(CHUNK as usize / 3));
    assert!(is_regular(&text, LAST));
    // A cell longer than a chunk leaves it to the plain scan.
    text.extend_from_slice(b"1,\"");
    text.resize(text.len() + 3 * CHUNK as usize, b'\n');
    text.extend_from_slice(b"\",3\n4,5,6\n");
    assert!(!is_regular(&text, LAST));
    let records = scanned(&text, LAST).starts.len();
    assert_eq!(records, 2 * (CHUNK / 3) + 3);
}

#[test]
fn a_quote_that_never_closes() {
    let message = |text: &[u8]| try_scan(text, MIDDLE).err().unwrap();
    let text = b"\n1,2,3\n\"4\n\",5,6\n7, \"8,9\n10,11,12\n";
    assert!(message(text).starts_with("line 5: a quote opens"));
    let long = [&text[..], &b"1,2,3\n".repeat(LONGEST_QUOTED / 6), b"\"\n"].concat();
    assert!(message(&long).starts_with("line 5: a quote opens"));
    assert!(message(b"\"a,b\n").starts_with("line 1: "));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tables_with_quotes(
        text in "([x1, \n\r]|,\"|\",|\n\"|\"\n|\"\"|\"){1,60}",
        shift in 0usize..60,
    ) {
        let bytes = text.repeat(CHUNK as usize / text.len() + 60).into_bytes();
        for shape in [FIRST, MIDDLE, LAST, NONE] {
            let _ = try_scan(&bytes[..CHUNK as usize + shift], shape);
            let _ = try_scan(text.as_bytes(), shape);
        }
    }
}

proptest! {
    #[test]
    fn fast_equals_plain(text in "([-1 :\n\t\r,#2x]|qid:){0,300}", repeat in 1usize..3000) {
        let bytes = text.repeat(repeat).into_bytes();
        let cut = bytes.len().min(2 * CHUNK as usize);
        check(&bytes[..cut], LineShape::Libsvm);
        let without = text.replace('#', "").repeat(repeat).into_bytes();
        let cut = without.len().min(2 * CHUNK as usize);
        for shape in [LineShape::Libsvm, LineShape::LibsvmTargets, FIRST, MIDDLE, LAST, NONE] {
            check(&without[..cut], shape);
        }
    }
}
