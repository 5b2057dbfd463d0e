//! Colours: brightness, contrast, saturation, hue and grey, in place on bytes.
//!
//! The first three are Pillow's `ImageEnhance`, which torchvision calls for its `ColorJitter`: a blend
//! with black, with the mean grey, with the pixel's own grey. The first two are one table of 256 bytes
//! an image. Hue is torchvision's on tensors: Pillow's goes through bytes of HSV, which makes steps.

use pelton_key::KeyedRng;

use crate::crop::between;

/// The random factors of one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// A factor; 1 changes nothing.
    Brightness(f32),
    Contrast(f32),
    Saturation(f32),
    /// Turns of the circle; 0 changes nothing.
    Hue(f32),
}

/// The four changes in the order in which they act; those of strength 0 change nothing.
pub(crate) fn draw_changes(strengths: [f64; 4], rng: &mut KeyedRng) -> [Option<Change>; 4] {
    let mut order = [0, 1, 2, 3];
    rng.shuffle(&mut order);
    // Drawn in one order, whatever the order of the changes.
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

/// A change of each value by itself, or by the histogram of its channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Tone {
    /// Inverts values of at least this.
    Solarise(u16),
    /// Keeps this many high bits.
    Posterise(u8),
    /// Spreads values evenly over all levels.
    Equalise,
    /// Stretches values to all levels.
    AutoContrast,
}

/// As Pillow's `ImageOps`, channel by channel.
pub(crate) fn tone(data: &mut [u8], channels: usize, tone: Tone) {
    for channel in 0..channels {
        let values = data[channel..].iter().step_by(channels);
        let mut counts = [0u64; 256];
        if matches!(tone, Tone::Equalise | Tone::AutoContrast) {
            values.for_each(|value| counts[usize::from(*value)] += 1);
        }
        let table = match tone {
            Tone::Solarise(least) => std::array::from_fn(|value| {
                let value = value as u8;
                if u16::from(value) < least {
                    value
                } else {
                    255 - value
                }
            }),
            Tone::Posterise(bits) => std::array::from_fn(|value| {
                value as u8 & !0xff_u8.checked_shr(bits.into()).unwrap_or(0)
            }),
            Tone::Equalise => equalising(&counts),
            Tone::AutoContrast => stretching(&counts),
        };
        for value in data[channel..].iter_mut().step_by(channels) {
            *value = table[usize::from(*value)];
        }
    }
}

/// Every value as itself.
fn same() -> [u8; 256] {
    std::array::from_fn(|value| value as u8)
}

fn equalising(counts: &[u64; 256]) -> [u8; 256] {
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    let step = counts[..last].iter().sum::<u64>() / 255;
    if step == 0 {
        return same();
    }
    let mut sum = step / 2;
    counts.map(|count| {
        let level = sum / step;
        sum += count;
        level.min(255) as u8
    })
}

fn stretching(counts: &[u64; 256]) -> [u8; 256] {
    let least = counts.iter().position(|count| *count > 0).unwrap_or(0);
    let most = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    if most <= least {
        return same();
    }
    let scale = 255.0 / (most - least) as f64;
    let offset = -(least as f64) * scale;
    std::array::from_fn(|value| (value as f64 * scale + offset) as u8)
}

/// A blend with the image smoothed by Pillow's `SMOOTH`, whose outermost pixels stay; as its `ImageEnhance.Sharpness`.
pub(crate) fn sharpen(data: &mut [u8], channels: usize, width: usize, factor: f32) {
    let row = width * channels;
    let height = data.len() / row;
    if height < 3 || width < 3 {
        return;
    }
    let before = data.to_vec();
    for y in 1..height - 1 {
        let around = &before[(y - 1) * row..(y + 2) * row];
        let line = &mut data[y * row..(y + 1) * row];
        let inner = line.iter_mut().enumerate().take(row - channels);
        for (at, value) in inner.skip(channels) {
            let three = |i: usize| {
                let values = [around[i - channels], around[i], around[i + channels]];
                values.map(u32::from).iter().sum::<u32>()
            };
            let sum = three(at) + three(row + at) + three(2 * row + at) + 4 * u32::from(*value);
            // The nearest to a 13th; there are no halves.
            *value = blend(((2 * sum + 13) / 26) as u8, *value, factor);
        }
    }
}

/// A Gaussian kernel of this many pixels with pixels reflected at the edges, as torchvision's `GaussianBlur`.
///
/// Cost: two passes of `side` products a value.
pub(crate) fn blur(data: &mut [u8], channels: usize, width: usize, side: usize, deviation: f64) {
    let middle = (side / 2) as i64;
    let weights: Vec<f64> = (-middle..=middle)
        .map(|x| libm::exp(-0.5 * (x as f64 / deviation).powi(2)))
        .collect();
    let all: f64 = weights.iter().sum();
    let weights: Vec<f32> = weights.iter().map(|weight| (weight / all) as f32).collect();
    let row = width * channels;
    let height = data.len() / row;
    // Mirrored about the outermost pixel, as often as needed.
    let within = |place: i64, length: usize| {
        let period = (2 * length as i64 - 2).max(1);
        let place = place.rem_euclid(period);
        if place < length as i64 {
            place as usize
        } else {
            (period - place) as usize
        }
    };
    let mut lines = vec![0.0f32; data.len()];
    let mut wide = vec![0.0f32; row + 2 * middle as usize * channels];
    for (from, to) in data.chunks_exact(row).zip(lines.chunks_exact_mut(row)) {
        for (i, pixel) in wide.chunks_exact_mut(channels).enumerate() {
            let x = within(i as i64 - middle, width);
            for (to, from) in pixel.iter_mut().zip(&from[x * channels..]) {
                *to = f32::from(*from);
            }
        }
        for (i, weight) in weights.iter().enumerate() {
            let shifted = &wide[i * channels..];
            to.iter_mut()
                .zip(shifted)
                .for_each(|(to, from)| *to += weight * from);
        }
    }
    let mut sums = vec![0.0f32; row];
    for (y, to) in data.chunks_exact_mut(row).enumerate() {
        sums.fill(0.0);
        for (i, weight) in weights.iter().enumerate() {
            let from = within((y + i) as i64 - middle, height) * row;
            let line = &lines[from..from + row];
            sums.iter_mut()
                .zip(line)
                .for_each(|(to, from)| *to += weight * from);
        }
        for (to, sum) in to.iter_mut().zip(&sums) {
            *to = sum.round_ties_even() as u8;
        }
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
        // Grey pixels have no hue, and any hue gives them back.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The pixels of the image in `tests/pillow.rs` from (2, 5) to (5, 7).
    const SMALL: [u8; 18] = [
        159, 230, 45, 201, 16, 87, 243, 58, 129, 202, 17, 88, 249, 64, 135, 40, 111, 182,
    ];

    #[track_caller]
    fn check(what: Change, expected: [u8; 18]) {
        let mut data = SMALL;
        change(&mut data, 3, what);
        assert_eq!(data, expected, "{what:?}");
    }

    /// `ImageEnhance.Brightness(image).enhance(0.6)` and so on; Pillow 13.0.0.
    #[test]
    fn factors_do_what_pillow_does() {
        check(
            Change::Brightness(0.6),
            [
                95, 138, 27, 120, 9, 52, 145, 34, 77, 121, 10, 52, 149, 38, 81, 24, 66, 109,
            ],
        );
        check(
            Change::Brightness(1.7),
            [
                255, 255, 76, 255, 27, 147, 255, 98, 219, 255, 28, 149, 255, 108, 229, 68, 188, 255,
            ],
        );
        check(
            Change::Contrast(0.35),
            [
                131, 155, 91, 145, 81, 105, 160, 95, 120, 146, 81, 106, 162, 97, 122, 89, 114, 139,
            ],
        );
        check(
            Change::Contrast(1.9),
            [
                197, 255, 0, 255, 0, 60, 255, 5, 140, 255, 0, 62, 255, 17, 152, 0, 106, 241,
            ],
        );
        check(
            Change::Saturation(0.25),
            [
                180, 198, 152, 109, 63, 81, 151, 105, 123, 110, 64, 82, 157, 111, 129, 83, 101, 119,
            ],
        );
        check(
            Change::Saturation(1.8),
            [
                135, 255, 0, 255, 0, 93, 255, 7, 135, 255, 0, 94, 255, 13, 141, 0, 121, 249,
            ],
        );
    }

    /// `image.convert("L")`.
    #[test]
    fn grey_is_pillows() {
        let greys: Vec<u8> = SMALL
            .as_chunks::<3>()
            .0
            .iter()
            .map(|&pixel| grey(pixel))
            .collect();
        assert_eq!(greys, [188, 79, 121, 80, 127, 98]);
    }

    /// HSV and back by cases, as in Python's colorsys.
    fn turned([red, green, blue]: [u8; 3], turn: f64) -> [f64; 3] {
        let [r, g, b] = [red, green, blue].map(f64::from);
        let (most, least) = (r.max(g).max(b), r.min(g).min(b));
        if most == least {
            return [r, g, b];
        }
        let part = |value: f64| (most - value) / (most - least);
        let hue = if r == most {
            part(b) - part(g)
        } else if g == most {
            2.0 + part(r) - part(b)
        } else {
            4.0 + part(g) - part(r)
        };
        let hue = (hue / 6.0 + turn).rem_euclid(1.0) * 6.0;
        let saturation = (most - least) / most;
        let (sector, f) = (hue.floor(), hue.fract());
        let p = most * (1.0 - saturation);
        let q = most * (1.0 - saturation * f);
        let t = most * (1.0 - saturation * (1.0 - f));
        match sector as u32 % 6 {
            0 => [most, t, p],
            1 => [q, most, p],
            2 => [p, most, t],
            3 => [p, q, most],
            4 => [t, p, most],
            _ => [most, p, q],
        }
    }

    #[test]
    fn hue_turns_as_through_hsv() {
        let levels = [0, 1, 60, 128, 200, 254, 255];
        for red in levels {
            for green in levels {
                for blue in levels {
                    for turn in [-0.5, -0.31, -0.1, -0.001, 0.0, 0.05, 0.25, 0.4999, 0.5] {
                        let mut pixel = [red, green, blue];
                        let expected = turned(pixel, turn);
                        change(&mut pixel, 3, Change::Hue(turn as f32));
                        for (value, expected) in pixel.iter().zip(expected) {
                            // Half for rounding; floats of 24 bits err by less than the rest.
                            let off = (f64::from(*value) - expected).abs();
                            assert!(off <= 0.501, "{red} {green} {blue} by {turn}: {pixel:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn changes_of_nothing_leave_all_as_it_is() {
        for what in [
            Change::Brightness(1.0),
            Change::Contrast(1.0),
            Change::Saturation(1.0),
            Change::Hue(0.0),
        ] {
            check(what, SMALL);
        }
        let mut grey = [7, 90, 200];
        change(&mut grey, 1, Change::Saturation(0.0));
        change(&mut grey, 1, Change::Hue(0.3));
        assert_eq!(grey, [7, 90, 200]);
        change(&mut grey, 1, Change::Contrast(0.0));
        assert_eq!(grey, [99, 99, 99]);
    }

    #[test]
    fn draws_fill_their_ranges_in_every_order() {
        let mut orders = std::collections::HashSet::new();
        let (mut least, mut most) = ([f32::MAX; 4], [f32::MIN; 4]);
        for key in 0..2000 {
            let drawn = draw_changes([0.4, 2.0, 0.1, 0.25], &mut KeyedRng::new(key));
            let places = drawn.map(|change| {
                let (place, number) = match change.expect("all have a strength") {
                    Change::Brightness(number) => (0, number),
                    Change::Contrast(number) => (1, number),
                    Change::Saturation(number) => (2, number),
                    Change::Hue(number) => (3, number),
                };
                least[place] = least[place].min(number);
                most[place] = most[place].max(number);
                place
            });
            orders.insert(places);
        }
        assert_eq!(orders.len(), 24);
        // The outermost of 2000 uniform numbers are within 1/100 of the ends, except with probability e^-20.
        for (place, (from, to)) in [(0.6, 1.4), (0.0, 3.0), (0.9, 1.1), (-0.25, 0.25)]
            .iter()
            .enumerate()
        {
            let slack = (to - from) / 100.0;
            assert!(
                (from..&(from + slack)).contains(&&least[place]),
                "{least:?}"
            );
            assert!((to - slack..=*to).contains(&most[place]), "{most:?}");
        }
        let none = draw_changes([0.0; 4], &mut KeyedRng::new(1));
        assert_eq!(none, [None; 4]);
    }
}
