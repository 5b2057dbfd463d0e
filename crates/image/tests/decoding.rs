//! Pixels of files that other programs wrote, against the pixels Pillow decodes from them
//! (`images/generate.py` wrote both).

use std::path::{Path, PathBuf};

use pelton_image::{Format, ImageError, Limits, Pixels, decode};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).expect(name)
}

/// Width, height, channels and bytes of a PGM or PPM file.
fn expected(name: &str) -> (u32, u32, usize, Vec<u8>) {
    let grey = folder().join(format!("{name}.pgm"));
    let (path, channels) = if grey.exists() {
        (grey, 1)
    } else {
        (folder().join(format!("{name}.ppm")), 3)
    };
    let bytes = std::fs::read(path).expect(name);
    // "P6\n37 29\n255\n"
    let mut lines = bytes.splitn(4, |&byte| byte == b'\n');
    let sizes = String::from_utf8(lines.nth(1).unwrap().to_vec()).unwrap();
    let (width, height) = sizes.split_once(' ').unwrap();
    let data = lines.nth(1).unwrap().to_vec();
    (
        width.parse().unwrap(),
        height.parse().unwrap(),
        channels,
        data,
    )
}

fn decoded(bytes: &[u8]) -> Result<Pixels, ImageError> {
    let mut pixels = Pixels::new();
    decode(bytes, &Limits::default(), &mut pixels).map(|_| pixels)
}

/// Decodes a file and gives the largest difference of a byte from what is expected.
fn difference(name: &str) -> u8 {
    let pixels = decoded(&file(name)).expect(name);
    let (width, height, channels, data) = expected(name);
    let shape = (pixels.width(), pixels.height(), pixels.channels());
    assert_eq!(shape, (width, height, channels), "{name}");
    assert_eq!(pixels.data().len(), data.len(), "{name}");
    let pairs = pixels.data().iter().zip(&data);
    pairs
        .map(|(&ours, &theirs)| ours.abs_diff(theirs))
        .max()
        .unwrap()
}

#[test]
fn probe() {
    let mut names: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(".jpg") || n.ends_with(".png") || n.ends_with(".webp"))
        .collect();
    names.sort();
    for n in names {
        match decoded(&file(&n)) {
            Ok(_) => println!("{n} {}", difference(&n)),
            Err(e) => println!("{n}: {e}"),
        }
    }
    // hole in the middle
    for n in [
        "subsampled.jpg",
        "full.jpg",
        "progressive.jpg",
        "restarts.jpg",
    ] {
        let b = file(n);
        let (mut ok, mut bad) = (0, 0);
        for hole in (b.len() * 2 / 3)..b.len() - 2 {
            let mut c = b[..hole].to_vec();
            c.extend([0xff, 0xd9]);
            match decoded(&c) {
                Ok(_) => ok += 1,
                Err(_) => bad += 1,
            }
        }
        println!("{n} holes ok {ok} bad {bad}");
    }
}
