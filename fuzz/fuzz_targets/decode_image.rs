//! Images: arbitrary bytes, and edits of good files of each format.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_image::{Limits, Pixels, decode, orientation};

const GOOD: [&[u8]; 16] = [
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
];

fn check(bytes: &[u8], pixels: &mut Pixels) {
    let limits = Limits {
        most_pixels: 1 << 16,
    };
    if decode(bytes, &limits, pixels).is_err() {
        assert!(pixels.data().is_empty());
        return;
    }
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
