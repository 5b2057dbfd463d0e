use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_comm::Comm;
use pelton_format::{Dataset, InPlaceClass, OpenOptions};
use pelton_run::Event;
use tempfile::TempDir;

use super::test_font::{Ink, collection, font};
use super::*;

const A: u32 = 'A' as u32;

fn config(folder: &Path) -> GlyphsConfig {
    GlyphsConfig {
        fonts: vec![folder.join("fonts")],
        out: folder.join("g"),
        size: 16,
        min_fonts: 2,
        classes: None,
        test_share: 0.4,
        seed: 0,
        overwrite: true,
    }
}

fn run(config: &GlyphsConfig) -> Result<(GlyphsFigures, Vec<String>), DataError> {
    let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
    let mut notes = Vec::new();
    let observer = &mut |event: Event<'_>| {
        if let Event::Note(note) = event {
            notes.push(note.to_owned());
        }
    };
    let figures = glyphs(config, RunContext::new(&comm, &interrupt, observer))?;
    Ok((figures, notes))
}

/// Letters A to D in the hand of font `hand`: a bar whose height is the letter's and whose width is the font's.
fn hand(hand: i16) -> Vec<(u32, Vec<Ink>)> {
    let letter = |i: i16| vec![[100, 0, 300 + 60 * hand, 200 + 150 * i]];
    (0..4).map(|i| (A + i as u32, letter(i))).collect()
}

fn write(folder: &Path, name: &str, family: &str, characters: &[(u32, Vec<Ink>)]) {
    let characters: Vec<(u32, &[Ink])> =
        characters.iter().map(|(c, inks)| (*c, &inks[..])).collect();
    let folder = folder.join("fonts");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(name), font(family, &characters)).expect("a font");
}

/// Five families of one font each, and a second font of the first.
fn families() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for i in 0..5 {
        write(
            folder.path(),
            &format!("{i}.ttf"),
            &format!("Family {i}"),
            &hand(i),
        );
    }
    write(folder.path(), "0-bold.otf", "Family 0", &hand(7));
    folder
}

/// Pictures and classes of a set, with the names of the classes.
fn read(path: &Path) -> (Vec<(Vec<u8>, u32)>, Vec<String>) {
    let dataset =
        Dataset::open(&[path.to_path_buf()], &OpenOptions::default()).expect("an IDX file");
    let bytes = std::fs::read(path).expect("pictures");
    let records = (0..dataset.records()).map(|id| {
        let place = dataset.in_place(id).expect("a class").expect("in place");
        let InPlaceClass::Known(class) = place.class else {
            panic!("{:?}", place.class);
        };
        let from = place.offset as usize;
        (bytes[from..from + place.length as usize].to_vec(), class)
    });
    (records.collect(), dataset.labels().names().to_vec())
}

#[test]
fn whole_families_are_held_out() {
    let folder = families();
    let config = config(folder.path());
    let (figures, notes) = run(&config).expect("glyphs");
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(
        (figures.classes, figures.fonts, figures.families),
        (4, 6, 5)
    );
    // Of 24 pictures nine fit into the share: two families of one font, or that of two.
    assert_eq!((figures.train_records, figures.test_records), (16, 8));
    assert_eq!(figures.test_classes, 4);
    let (training, names) = read(&figures.train);
    let (test, test_names) = read(&figures.test);
    assert_eq!(names, ["U+0041", "U+0042", "U+0043", "U+0044"]);
    assert_eq!(names, test_names);
    assert_eq!((training.len(), test.len()), (16, 8));
    // Each font has a width of its own: where the ink of all letters ends says which fonts are in a set.
    let width = |picture: &Vec<u8>| {
        picture
            .chunks(16)
            .map(|row| row.iter().map(|&v| u32::from(v)).sum())
            .max()
    };
    let widths = |set: &[(Vec<u8>, u32)]| -> HashSet<Option<u32>> {
        set.iter().map(|(picture, _)| width(picture)).collect()
    };
    assert!(widths(&training).is_disjoint(&widths(&test)));
    assert_eq!((widths(&training).len(), widths(&test).len()), (4, 2));
    let mut ink: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (picture, class) in training.iter().chain(&test) {
        let rows = picture
            .chunks(16)
            .filter(|row| row.iter().any(|&value| value > 127))
            .count();
        ink.entry(*class).or_default().push(rows);
    }
    // Letters are as high as they were drawn, 0.2, 0.35, 0.5 and 0.65 em of 15 pixels, above a baseline at 13.7.
    let heights: Vec<Vec<usize>> = ink.into_values().collect();
    assert_eq!(
        heights,
        [3, 6, 8, 10].map(|rows| vec![rows; 6]),
        "rows of ink"
    );

    // Another seed holds out others, and the same gives the same bytes whatever the names of the folders.
    let files = || {
        ["train", "test"].map(|set| {
            std::fs::read(folder.path().join(format!("g-{set}-images.idx"))).expect("pictures")
        })
    };
    let first = files();
    let (again, _) = run(&config).expect("glyphs");
    assert_eq!(
        (files(), &again.test_families),
        (first, &figures.test_families)
    );
    let others = (1..9).any(|seed| {
        run(&GlyphsConfig {
            seed,
            ..config.clone()
        })
        .expect("glyphs")
        .0
        .test_families
            != figures.test_families
    });
    assert!(others);
}

/// A collection is one family whatever its names, and so are fonts that draw alike; equal pictures are one.
#[test]
fn families_that_draw_alike_are_one() {
    let folder = families();
    let as_in = |i| {
        hand(i)
            .into_iter()
            .map(|(c, inks)| (c + 100, inks))
            .collect::<Vec<_>>()
    };
    write(folder.path(), "copy.ttf", "Another name", &hand(1));
    let (second, third) = (hand(20), hand(21));
    let refer = |all: &'static [(u32, Vec<Ink>)]| {
        all.iter()
            .map(|(c, inks)| (*c, &inks[..]))
            .collect::<Vec<_>>()
    };
    let (second, third) = (refer(second.leak()), refer(third.leak()));
    let bytes = collection(&[("Second", &second), ("Third", &third)]);
    std::fs::write(folder.path().join("fonts/both.ttc"), bytes).expect("a collection");
    let config = GlyphsConfig {
        test_share: 0.0,
        ..config(folder.path())
    };
    let (figures, _) = run(&config).expect("glyphs");
    assert_eq!((figures.fonts, figures.families), (9, 6));
    assert_eq!((figures.train_records, figures.test_records), (4 * 8, 0));
    assert_eq!(figures.classes, 4);

    // Characters that look like others in each font that has both are the same class; where they do so in one font
    // of many, that font's pictures of both are left out.
    for i in 0..5 {
        let both: Vec<_> = hand(i).into_iter().chain(as_in(i)).collect();
        write(
            folder.path(),
            &format!("{i}.ttf"),
            &format!("Family {i}"),
            &both,
        );
    }
    let mut odd = hand(30);
    odd[1].1 = odd[0].1.clone();
    write(folder.path(), "odd.ttf", "Odd", &odd);
    let (figures, _) = run(&config).expect("glyphs");
    assert_eq!((figures.classes, figures.dropped_ambiguous), (4, 2));
    assert_eq!(read(&figures.train).1[0], "U+0041");
    assert_eq!(figures.train_records, 4 * 8 + 2);
}

/// A test font that shares too few pictures to be derived leaves those out that it shares.
#[test]
fn a_test_picture_is_no_training_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let many = |width: i16, characters: std::ops::Range<i16>| -> Vec<(u32, Vec<Ink>)> {
        let ink = |i: i16| vec![[0, 0, width, 60 + 16 * i]];
        characters.map(|i| (A + i as u32, ink(i))).collect()
    };
    for i in 0..3 {
        write(
            folder.path(),
            &format!("{i}.ttf"),
            &format!("Family {i}"),
            &many(200 + 70 * i, 0..40),
        );
    }
    let mut last = many(800, 0..40);
    last[..3].clone_from_slice(&many(200, 0..3));
    write(folder.path(), "9.ttf", "Last", &last);
    for seed in 0..20 {
        let config = GlyphsConfig {
            test_share: 0.3,
            seed,
            ..config(folder.path())
        };
        let (figures, _) = run(&config).expect("glyphs");
        let (training, test) = (read(&figures.train).0, read(&figures.test).0);
        let known: HashSet<_> = training.into_iter().map(|(picture, _)| picture).collect();
        assert!(test.iter().all(|(picture, _)| !known.contains(picture)));
        if figures.test_families == ["Last"] {
            assert_eq!((figures.dropped_equal, test.len()), (3, 37));
            return;
        }
    }
    panic!("none of twenty seeds holds out the last family");
}

#[test]
fn what_is_no_glyph_is_left_out() {
    let folder = families();
    let fonts = folder.path().join("fonts");
    std::fs::write(fonts.join("bad.ttf"), b"\0\x01\0\0 no font").expect("written");
    std::fs::write(fonts.join("notes.txt"), b"no font").expect("written");
    let whole = std::fs::read(fonts.join("0.ttf")).expect("a font");
    for cut in [20, 200, whole.len() - 30] {
        std::fs::write(fonts.join(format!("cut-{cut}.ttf")), &whole[..cut]).expect("written");
    }
    // No ink, and for private use.
    let odd: [(u32, Vec<Ink>); 2] = [(' ' as u32, vec![]), (0xe000, vec![[0, 0, 500, 500]])];
    write(folder.path(), "odd-1.ttf", "Odd 1", &odd);
    write(folder.path(), "odd-2.ttf", "Odd 2", &odd);
    let (figures, notes) = run(&GlyphsConfig {
        min_fonts: 1,
        ..config(folder.path())
    })
    .expect("glyphs");
    assert_eq!(figures.classes, 4);
    assert!(
        figures.damaged_fonts >= 2 && notes.len() as u64 == figures.damaged_fonts,
        "{notes:?}"
    );
    assert!(
        notes.iter().any(|note| note.contains("bad.ttf: left out")),
        "{notes:?}"
    );
}

fn check_refusal(change: impl FnOnce(&mut GlyphsConfig), parts: &[&str]) {
    let folder = families();
    let mut config = config(folder.path());
    change(&mut config);
    let error = run(&config).expect_err("refused").to_string();
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    let left = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert!(left <= 2, "{error}: files are left");
}

#[test]
fn refusals() {
    check_refusal(
        |c| c.fonts[0].push("absent"),
        &["absent", "cannot be listed", "`fonts`"],
    );
    check_refusal(
        |c| {
            c.fonts[0].pop();
            c.fonts[0].push("empty");
            std::fs::create_dir(&c.fonts[0]).expect("a folder");
        },
        &["empty", "contains no font", "install fonts"],
    );
    check_refusal(
        |c| c.min_fonts = 9,
        &[
            "0 characters have 9 different training pictures",
            "install more fonts",
        ],
    );
    check_refusal(
        |c| c.classes = Some(5),
        &["4 characters", "5 are needed", "`classes`"],
    );
    check_refusal(|c| c.classes = Some(1), &["`classes` at least 2"]);
    check_refusal(|c| c.size = 7, &["`size` 7", "8 to 256"]);
    check_refusal(|c| c.test_share = 1.0, &["`test_share` 1"]);
    check_refusal(|c| c.test_share = f64::NAN, &["`test_share` NaN"]);
    check_refusal(
        |c| {
            c.overwrite = false;
            std::fs::write(c.out.with_file_name("g-test-labels.idx"), b"mine").expect("written");
        },
        &["g-test-labels.idx", "exists", "`overwrite`"],
    );
}

#[test]
fn an_interruption_leaves_nothing() {
    let folder = families();
    let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(true)));
    let config = config(folder.path());
    let error =
        glyphs(&config, RunContext::new(&comm, &interrupt, &mut |_| {})).expect_err("interrupted");
    assert!(error.is_interruption(), "{error}");
    assert_eq!(
        std::fs::read_dir(folder.path())
            .expect("the folder")
            .count(),
        1
    );
}
