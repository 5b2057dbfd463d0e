//! Decoding only the part that a pipeline needs, against decoding the whole image.

use std::path::{Path, PathBuf};

use pelton_image::{Limits, Output, Pipeline, Pixels, Workspace, decode, decode_for, example_key};
use pelton_key::{Stage, key};

use crate::steps::examples;

/// Pipelines that need a part, and some that need all.
const PIPELINES: [&str; 12] = [
    "rrc:16",
    "rrc:8:0.01-0.3,flip,cutout:3",
    "flip:1,rrc:9:0.1-0.5",
    "crop:13",
    "crop:60",
    "randomcrop:12",
    "randomcrop:29:14,flip",
    "flip,randomcrop:21,crop:9,flip",
    "crop:20,rrc:11,jitter:0.4",
    "flip,resize:24,crop:16",
    "grey,rrc:10",
    "affine:30:0.1:0.1,rrc:10",
];

/// The decoded part of an image gives the same output as the whole.
fn check(path: &Path, keys: u64) {
    let bytes = std::fs::read(path).unwrap();
    let limits = Limits::default();
    let (mut whole, mut part) = (Pixels::new(), Pixels::new());
    decode(&bytes, &limits, &mut whole).unwrap();
    let (mut work, mut other) = (Workspace::new(), Workspace::new());
    for text in PIPELINES.into_iter().chain(examples()) {
        let pipeline: Pipeline = text.parse().unwrap();
        let Ok(pipeline) = pipeline.with_channels(whole.channels()) else {
            continue;
        };
        for number in 0..keys {
            let key = example_key(key(7, 0, Stage::Augment), number, 0);
            decode_for((&pipeline, key), &bytes, &limits, &mut part).unwrap();
            assert_eq!(part.whole_size(), (whole.height(), whole.width()));
            let made = |pixels: &Pixels, work: &mut Workspace| {
                let (height, width) = pipeline.output_size(whole.height(), whole.width())?;
                let values = height as usize * width as usize * pipeline.channels();
                let mut bytes = vec![0; values];
                pipeline.apply(pixels, key, work, Output::Bytes(&mut bytes))?;
                Ok::<_, pelton_image::ImageError>(bytes)
            };
            let expected = made(&whole, &mut work);
            let found = made(&part, &mut other);
            assert_eq!(
                expected.map_err(|error| error.to_string()),
                found.map_err(|error| error.to_string()),
                "{}, {text}, key {number}",
                path.display()
            );
        }
    }
}

fn jpegs(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jpg"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

#[test]
fn parts_have_the_pixels_of_the_whole() {
    for path in jpegs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images")) {
        check(&path, 60);
    }
}

#[test]
fn parts_are_smaller() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
    let bytes = std::fs::read(folder.join("half.jpg")).unwrap();
    let pipeline: Pipeline = "rrc:8:0.05-0.1".parse().unwrap();
    let mut part = Pixels::new();
    decode_for((&pipeline, 3), &bytes, &Limits::default(), &mut part).unwrap();
    let (height, width) = part.whole_size();
    assert!(part.height() * part.width() <= height * width / 8);
}

#[test]
fn parts_of_photos_have_the_pixels_of_the_whole() {
    let data = std::env::var_os("PELTON_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = data.join("jpeg-clothing/images");
    if !folder.is_dir() {
        eprintln!("SKIPPED: {} is not there", folder.display());
        return;
    }
    for path in jpegs(&folder).iter().step_by(100).take(10) {
        check(path, 3);
    }
}
