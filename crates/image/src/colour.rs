//! Colours: brightness, contrast, saturation, hue and grey, in place on bytes.
//!
//! The first three are Pillow's `ImageEnhance`, which torchvision calls for its `ColorJitter`: a blend
//! with black, with the mean grey, with the pixel's own grey. The first two are one table of 256 bytes
//! an image. Hue is torchvision's on tensors: Pillow's goes through bytes of HSV, which makes steps.

use pelton_plan::KeyedRng;

use crate::crop::between;

/// What is drawn for one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// A factor; 1 leaves the image as it is.
    Brightness(f32),
    Contrast(f32),
    Saturation(f32),
    /// Turns of the circle; 0 leaves the image as it is.
    Hue(f32),
}

/// The four changes in the order in which they act; those of strength 0 are no change.
pub(crate) fn draw_changes(strengths: [f64; 4], rng: &mut KeyedRng) -> [Option<Change>; 4] {
    let mut order = [0, 1, 2, 3];
    rng.shuffle(&mut order);
    // Drawn in one order whatever the order of the changes is.
    let [brightness, contrast, saturation, hue] = strengths;
    let mut factor = |strength: f64| {
        let factor = between((1.0 - strength).max(0.0), 1.0 + strength, rng) as f32;
        (strength > 0.0).then_some(factor)
    };
    let factors = [factor(brightness), factor(contrast), factor(saturation)];
    let turn = between(-hue, hue, rng) as f32;
    let changes = [
        factors[0].map(Change::Brightness),
        factors[1].map(Change::Contrast),
        factors[2].map(Change::Saturation),
        (hue > 0.0).then_some(Change::Hue(turn)),
    ];
    order.map(|place: usize| changes[place])
}

/// Changes an image of 1 or 3 channels. Grey ones have neither saturation nor hue.
pub(crate) fn change(data: &mut [u8], channels: usize, change: Change) {
    match change {
        Change::Brightness(factor) => through_table(data, 0, factor),
        Change::Contrast(factor) => through_table(data, mean_grey(data, channels), factor),
        Change::Saturation(factor) if channels == 3 => saturate(data, factor),
        Change::Hue(turn) if channels == 3 => turn_hue(data, turn),
        Change::Saturation(_) | Change::Hue(_) => (),
    }
}

/// ITU-R 601-2 luma with Pillow's rounding.
#[inline]
pub(crate) fn grey([red, green, blue]: [u8; 3]) -> u8 {
    let sum = 19595 * u32::from(red) + 38470 * u32::from(green) + 7471 * u32::from(blue);
    ((sum + 0x8000) >> 16) as u8
}

/// A blend of `from` (factor 0) and `to` (factor 1), or beyond them; truncated as Pillow does.
#[inline]
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let from = f32::from(from);
    (from + factor * (f32::from(to) - from)) as u8
}

fn through_table(data: &mut [u8], from: u8, factor: f32) {
    let table: [u8; 256] = std::array::from_fn(|value| blend(from, value as u8, factor));
    for value in data {
        *value = table[usize::from(*value)];
    }
}

/// Rounded to a whole number, as Pillow does.
fn mean_grey(data: &[u8], channels: usize) -> u8 {
    let (sum, pixels) = if channels == 3 {
        let pixels = data.as_chunks::<3>().0;
        let sum: u64 = pixels.iter().map(|&pixel| u64::from(grey(pixel))).sum();
        (sum, pixels.len())
    } else {
        (data.iter().map(|&value| u64::from(value)).sum(), data.len())
    };
    (sum as f64 / pixels as f64 + 0.5) as u8
}

fn saturate(data: &mut [u8], factor: f32) {
    for pixel in data.as_chunks_mut::<3>().0 {
        let grey = grey(*pixel);
        *pixel = pixel.map(|value| blend(grey, value, factor));
    }
}

/// Turns the hue by a part of the circle, with value and saturation of HSV kept.
///
/// With v the largest and c the spread of a pixel's values and h its hue in sixths of the circle, a
/// channel is v − c·clamp(min(k, 4 − k), 0, 1) with k = (n + h) mod 6 and n = 5, 3, 1 for red, green and
/// blue: HSV and back without cases.
fn turn_hue(data: &mut [u8], turn: f32) {
    let turn = 6.0 * turn;
    for pixel in data.as_chunks_mut::<3>().0 {
        let [red, green, blue] = pixel.map(f32::from);
        let largest = red.max(green).max(blue);
        let spread = largest - red.min(green).min(blue);
        // Grey pixels have no hue, and any gives them back.
        let part = if spread > 0.0 { 1.0 / spread } else { 0.0 };
        let hue = if largest == red {
            (green - blue) * part
        } else if largest == green {
            2.0 + (blue - red) * part
        } else {
            4.0 + (red - green) * part
        };
        // From -1 to 5, and the turn adds -3 to 3; with 6 more none of the sums below is negative.
        let hue = hue + turn + 6.0;
        let channel = |n: f32| {
            let sum = n + hue;
            let k = sum - 6.0 * (sum * (1.0 / 6.0)).trunc();
            let away = k.min(4.0 - k).clamp(0.0, 1.0);
            (largest - spread * away + 0.5) as u8
        };
        *pixel = [channel(5.0), channel(3.0), channel(1.0)];
    }
}
