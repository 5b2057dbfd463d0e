//! Resizing against Pillow 13.0.0:
//!
//! ```python
//! import numpy
//! from PIL import Image
//! y, x, c = numpy.mgrid[0:12, 0:16, 0:3]
//! image = Image.fromarray(((3 * y * y + 17 * x + 71 * c + 5 * x * y) % 256).astype(numpy.uint8))
//! show = lambda image: print(numpy.asarray(image).flatten().tolist())
//! show(image.resize((7, 5), Image.BILINEAR))
//! show(image.crop((3, 2, 14, 11)).resize((4, 4), Image.BILINEAR))
//! show(image.crop((3, 2, 6, 4)).resize((5, 5), Image.BILINEAR))
//! show(image.convert("L").resize((4, 3), Image.BILINEAR))
//! ```

use pelton_image::{Layout, Output, Pipeline, Pixels, Workspace};

fn image() -> Pixels {
    let mut data = Vec::new();
    for y in 0..12 {
        for x in 0..16 {
            for c in 0..3 {
                data.push(((3 * y * y + 17 * x + 71 * c + 5 * x * y) % 256) as u8);
            }
        }
    }
    let mut pixels = Pixels::new();
    pixels.set(12, 16, 3, Layout::Hwc, &data);
    pixels
}

/// A part of the image as an image: top, left, height, width.
fn part((top, left, height, width): (usize, usize, usize, usize)) -> Pixels {
    let whole = image();
    let rows = whole.data().chunks_exact(16 * 3).skip(top).take(height);
    let data: Vec<u8> = rows
        .flat_map(|row| row[left * 3..(left + width) * 3].to_vec())
        .collect();
    let mut pixels = Pixels::new();
    pixels.set(height as u32, width as u32, 3, Layout::Hwc, &data);
    pixels
}

/// Pillow rounds to bytes between its two passes, columns first; here rows come first. Each pass errs by half a step,
/// so results differ by 1 at most.
#[track_caller]
fn check(pixels: &Pixels, pipeline: &str, expected: &[u8]) {
    let pipeline: Pipeline = pipeline.parse().unwrap();
    let mut out = vec![0; expected.len()];
    let mut work = Workspace::new();
    pipeline
        .apply(pixels, 0, &mut work, Output::Bytes(&mut out))
        .unwrap();
    let far = out
        .iter()
        .zip(expected)
        .filter(|(ours, theirs)| ours.abs_diff(**theirs) > 1);
    assert_eq!(far.count(), 0, "{pipeline}: {out:?}");
}

#[test]
fn resizing_is_pillows_bilinear() {
    check(
        &image(),
        "resize:5x7",
        &[
            23, 94, 165, 68, 138, 191, 118, 179, 149, 164, 168, 66, 174, 108, 100, 125, 82, 143,
            141, 120, 146, 59, 130, 174, 126, 162, 103, 161, 104, 97, 139, 107, 141, 123, 131, 132,
            131, 124, 123, 149, 113, 130, 131, 158, 113, 169, 102, 111, 116, 127, 147, 137, 145,
            136, 132, 118, 135, 120, 124, 150, 139, 123, 141, 168, 94, 129, 137, 144, 161, 134,
            125, 130, 133, 127, 131, 142, 117, 137, 117, 131, 149, 125, 134, 137, 132, 160, 172,
            158, 146, 135, 121, 112, 115, 114, 135, 137, 128, 121, 122, 117, 117, 126, 114, 136,
            132,
        ],
    );
    check(
        &part((2, 3, 9, 11)),
        "resize:4x4",
        &[
            150, 152, 67, 165, 92, 116, 119, 123, 145, 124, 133, 130, 156, 90, 123, 115, 140, 153,
            137, 120, 122, 124, 120, 151, 126, 143, 151, 147, 126, 126, 133, 124, 143, 112, 128,
            143, 149, 129, 127, 113, 125, 132, 126, 117, 127, 119, 134, 138,
        ],
    );
    check(
        &part((2, 3, 2, 3)),
        "resize:5x5",
        &[
            93, 164, 235, 104, 175, 143, 120, 191, 6, 136, 207, 22, 147, 218, 33, 96, 167, 212,
            107, 178, 131, 123, 194, 9, 140, 196, 26, 151, 196, 37, 108, 179, 122, 120, 191, 83,
            138, 209, 24, 155, 150, 41, 167, 110, 53, 120, 191, 32, 133, 204, 34, 152, 223, 38,
            170, 103, 56, 183, 24, 69, 123, 194, 9, 136, 207, 22, 155, 226, 41, 174, 92, 60, 187,
            2, 73,
        ],
    );
    check(
        &image(),
        "grey,resize:3x4",
        &[114, 141, 128, 121, 132, 128, 128, 128, 142, 128, 126, 127],
    );
}

/// Pixels around a crop have no influence: a crop within the image gives the same result as the crop alone.
#[test]
fn a_crop_sees_nothing_beyond_its_edges() {
    // The middle 8 x 8 pixels begin at (2, 4).
    let alone = part((2, 4, 8, 8));
    for resize in ["resize:3x3", "resize:21x13", "resize:8x5", "resize:5x8"] {
        let apply = |pipeline: &str, pixels: &Pixels| {
            let pipeline: Pipeline = pipeline.parse().unwrap();
            let (height, width) = pipeline.fixed_size().unwrap();
            let mut out = vec![0; (height * width * 3) as usize];
            let mut work = Workspace::new();
            pipeline
                .apply(pixels, 0, &mut work, Output::Bytes(&mut out))
                .unwrap();
            out
        };
        let within = apply(&format!("crop:8,{resize}"), &image());
        assert_eq!(within, apply(resize, &alone), "{resize}");
        // Two mirrors cancel out, at any position.
        let mirrored = apply(&format!("flip:1,crop:8,flip:1,{resize}"), &image());
        assert_eq!(within, mirrored, "{resize}");
    }
}
