//! Alpha, which is dropped.

use crate::Pixels;

/// Drops the channel after those of `pixels`, in place, if `stored` channels were decoded.
pub(super) fn drop_alpha(pixels: &mut Pixels, stored: usize) {
    match (pixels.channels(), stored, pixels.value_bytes()) {
        (1, 2, 1) => drop_rest::<1, 2>(pixels.data_mut()),
        (3, 4, 1) => drop_rest::<3, 4>(pixels.data_mut()),
        (1, 2, 2) => drop_rest::<2, 4>(pixels.data_mut()),
        (3, 4, 2) => drop_rest::<6, 8>(pixels.data_mut()),
        _ => (),
    }
}

/// Keeps the first `KEPT` of each `STORED` bytes, and the memory.
fn drop_rest<const KEPT: usize, const STORED: usize>(data: &mut Vec<u8>) {
    let pixels = data.len() / STORED;
    for pixel in 1..pixels {
        let from = pixel * STORED;
        data.copy_within(from..from + KEPT, pixel * KEPT);
    }
    data.truncate(pixels * KEPT);
}
