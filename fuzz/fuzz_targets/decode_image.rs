//! Images: arbitrary bytes, and edits of good files of each format.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_image::{Limits, Output, Pipeline, Pixels, Workspace, decode, decode_for, orientation};

const GOOD: [&[u8]; 26] = [
    include_bytes!("../../crates/image/tests/images/orientation_7.jpg"),
    include_bytes!("../../crates/image/tests/images/orientation_6.png"),
    include_bytes!("../../crates/image/tests/images/orientation_6.webp"),
    include_bytes!("../../crates/image/tests/images/full.jpg"),
    include_bytes!("../../crates/image/tests/images/subsampled.jpg"),
    include_bytes!("../../crates/image/tests/images/progressive.jpg"),
    include_bytes!("../../crates/image/tests/images/restarts.jpg"),
    include_bytes!("../../crates/image/tests/images/cmyk.jpg"),
    include_bytes!("../../crates/image/tests/images/rgb.png"),
    include_bytes!("../../crates/image/tests/images/interlaced.png"),
    include_bytes!("../../crates/image/tests/images/see_through.png"),
    include_bytes!("../../crates/image/tests/images/deep.png"),
    include_bytes!("../../crates/image/tests/images/lossy.webp"),
    include_bytes!("../../crates/image/tests/images/alpha.webp"),
    include_bytes!("../../crates/image/tests/images/lossless.webp"),
    include_bytes!("../../crates/image/tests/images/moving.webp"),
    include_bytes!("../../crates/image/tests/images/rgb.bmp"),
    include_bytes!("../../crates/image/tests/images/palette.bmp"),
    include_bytes!("../../crates/image/tests/images/palette.gif"),
    include_bytes!("../../crates/image/tests/images/moving.gif"),
    include_bytes!("../../crates/image/tests/images/few.ppm"),
    include_bytes!("../../crates/image/tests/images/text.pgm"),
    include_bytes!("../../crates/image/tests/images/lzw.tif"),
    include_bytes!("../../crates/image/tests/images/deflate.tif"),
    include_bytes!("../../crates/image/tests/images/bits.tif"),
    include_bytes!("../../crates/image/tests/images/jpeg.tif"),
];

fn check(bytes: &[u8], pixels: &mut Pixels) {
    let limits = Limits {
        most_pixels: 1 << 16,
    };
    let whole = decode(bytes, &limits, pixels);
    // A part of it; data after the part may be damaged.
    let pipeline: Pipeline = "rrc:8:0.05-0.5".parse().unwrap();
    let mut part = Pixels::new();
    let key = bytes.len() as u64;
    let made = |pixels: &mut Pixels| {
        pixels.scale_to_bytes();
        let mut out = [0; 8 * 8 * 3];
        pipeline
            .apply(pixels, key, &mut Workspace::new(), Output::Bytes(&mut out))
            .unwrap();
        out
    };
    let of_part = decode_for((&pipeline, key), bytes, &limits, &mut part).map(|_| made(&mut part));
    if whole.is_err() {
        assert!(pixels.data().is_empty());
        return;
    }
    assert_eq!(of_part.unwrap(), made(pixels));
    let count = pixels.height() as usize * pixels.width() as usize;
    assert!(count > 0 && count <= 1 << 16);
    assert_eq!(pixels.data().len(), count * pixels.channels());
    pixels.turn_upright(orientation(bytes));
    assert_eq!(pixels.data().len(), count * pixels.channels());
}

fuzz_target!(|bytes: &[u8]| {
    let mut pixels = Pixels::new();
    check(bytes, &mut pixels);
    if let [which, script @ ..] = bytes {
        let good = GOOD[usize::from(*which) % GOOD.len()];
        check(&edits::edited(good, script), &mut pixels);
    }
});
