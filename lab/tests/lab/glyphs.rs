//! `glyphs`: fonts in, a training and a test set out, which nets train on as they are.

use crate::command::Place;

#[path = "../../src/glyphs/test_font.rs"]
#[allow(dead_code)]
mod test_font;

use test_font::{Ink, font};

/// Six families of one font each with the first `count` CJK ideographs, as bars of many sizes.
fn fonts(place: &Place, count: u32) {
    std::fs::create_dir(place.path("fonts")).unwrap();
    for family in 0..6_i16 {
        let ink = |i: u32| -> [Ink; 1] { [[0, 0, 400 + 100 * family, 20 * (i as i16 % 40) + 60]] };
        let characters: Vec<(u32, [Ink; 1])> = (0..count).map(|i| (0x4e00 + i, ink(i))).collect();
        let characters: Vec<(u32, &[Ink])> =
            characters.iter().map(|(c, ink)| (*c, &ink[..])).collect();
        place.write(
            &format!("fonts/{family}.ttf"),
            font(&format!("F{family}"), &characters),
        );
    }
}

#[test]
fn glyphs_are_written_and_read() {
    let place = Place::new();
    fonts(&place, 30);
    let line = "glyphs --fonts fonts --out g --size 24 --min-fonts 4";
    let figures = place.json(line);
    assert_eq!(figures["classes"], 30);
    assert_eq!(
        (&figures["fonts"], &figures["families"]),
        (&6.into(), &6.into())
    );
    assert_eq!(
        (&figures["train_records"], &figures["test_records"]),
        (&150.into(), &30.into())
    );
    assert_eq!(figures["train"], "g-train-images.idx");
    let names = String::from_utf8(place.read("g-test-names.txt")).unwrap();
    assert_eq!(names.lines().nth(29), Some("U+4E1D"));
    let trained = place.json("train classify g-train-images.idx --test g-test-images.idx --epochs 2 --augment affine:10:0.1:0.1:5,normalise:0.5:0.5");
    assert_eq!(trained["classes"], 30);
    place.refuses(line, 2, &["g-train-images.idx: exists", "--overwrite"]);
    let reported = place.ok(&format!("{line} --overwrite")).stdout;
    assert!(
        reported.starts_with("30 classes from 6 fonts of 6 families"),
        "{reported}"
    );
    place.refuses(
        "glyphs --fonts g-train-images.idx --out h",
        2,
        &["contains no font", "--fonts"],
    );
    place.refuses(
        "glyphs --fonts fonts --out h --min-fonts 7",
        2,
        &["--min-fonts", "install more fonts"],
    );
}
