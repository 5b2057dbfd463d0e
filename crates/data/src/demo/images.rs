//! Pictures of ten shapes: `demo:images`.
//!
//! A shape is at any position, from a third to two thirds of the picture in size, rotated a little, in any
//! colour on any other colour that fades across the picture, with noise. The class is the shape: disc, ring,
//! square, frame, triangle, plus, cross, horizontal bars, vertical bars, or a chessboard. Since a shape is as
//! often darker as brighter than the background and at any position, the mean picture of every class is grey: a
//! linear model of the pixels finds little, and a model of edges and their relative positions finds all.

use pelton_format::Rows;

use super::draws::Draws;

/// Height and width.
const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
/// Values of a picture.
pub(super) const VALUES: usize = 3 * PLANE;
const CLASSES: u32 = 10;
/// Numbers that distinguish the generators' keys.
const IMAGES: u32 = 4;
/// Least distance between the colours of shape and background, summed over channels.
const CONTRAST: f64 = 120.0;
/// Noise is uniform over 2^NOISE_BITS values: a deviation of 18.
const NOISE_BITS: u32 = 6;

/// A generator of pictures with its memory.
pub(super) struct Images {
    seed: u64,
    pixels: Vec<u8>,
}

impl Images {
    pub(super) fn new(seed: u64) -> Images {
        Images {
            seed,
            pixels: vec![0; VALUES],
        }
    }

    /// Appends picture `row`: all red values, then all green, then all blue ones.
    pub(super) fn append(&mut self, row: u64, rows: &mut Rows) {
        let mut draws = Draws::new(self.seed, row, IMAGES);
        let class = draws.bits() % CLASSES;
        let mut between = |from: f64, to: f64| from + (to - from) * draws.uniform();
        let radius = between(5.5, 11.0);
        let room = SIDE as f64 - 2.0 * radius + 4.0;
        let (x, y) = (
            radius - 2.0 + between(0.0, room),
            radius - 2.0 + between(0.0, room),
        );
        let turn = between(-0.26, 0.26);
        let (sine, cosine) = (libm::sin(turn), libm::cos(turn));
        let (mut shape, mut behind) = ([0.0; 3], [0.0; 3]);
        loop {
            shape = shape.map(|_| between(20.0, 235.0));
            behind = behind.map(|_| between(20.0, 235.0));
            let pairs = shape.iter().zip(&behind);
            if pairs.map(|(a, b)| (a - b).abs()).sum::<f64>() >= CONTRAST {
                break;
            }
        }
        let fade = [between(-1.5, 1.5), between(-1.5, 1.5)];
        for place in 0..PLANE {
            let (column, line) = ((place % SIDE) as f64, (place / SIDE) as f64);
            // In the shape's own frame, in units of its radius.
            let (dx, dy) = ((column + 0.5 - x) / radius, (line + 0.5 - y) / radius);
            let (u, v) = (cosine * dx + sine * dy, cosine * dy - sine * dx);
            let middle = SIDE as f64 / 2.0;
            let shade = fade[0] * (column - middle) + fade[1] * (line - middle);
            let colour = if covers(class, u, v) {
                shape
            } else {
                behind.map(|value| value + shade)
            };
            let noise = draws.bits();
            for (channel, value) in colour.into_iter().enumerate() {
                let range = 1 << NOISE_BITS;
                let noise = noise >> (8 * channel) & (range - 1);
                let value = value + f64::from(noise) - f64::from(range - 1) / 2.0;
                // The cast saturates.
                self.pixels[channel * PLANE + place] = value as u8;
            }
        }
        rows.push_bytes(class, &self.pixels);
    }
}

/// Whether the shape of a class covers a point; shapes are within 1 of the origin, squares within ±0.9.
fn covers(class: u32, u: f64, v: f64) -> bool {
    let (across, up) = (u.abs(), v.abs());
    let distance = (u * u + v * v).sqrt();
    let side = across.max(up);
    let in_square = side <= 0.9;
    // Five bands over a square; the first, third and fifth count.
    let band = |at: f64| (((at + 0.9) * (5.0 / 1.8)) as u32).is_multiple_of(2);
    match class {
        0 => distance <= 1.0,
        1 => (0.6..=1.0).contains(&distance),
        2 => in_square,
        3 => in_square && side >= 0.55,
        4 => (-1.0..=0.8).contains(&v) && across <= 0.55 * (v + 1.0),
        5 => side <= 1.0 && across.min(up) <= 0.28,
        6 => side <= 0.9 && (across - up).abs() <= 0.38,
        7 => in_square && band(v),
        8 => in_square && band(u),
        _ => in_square && band(u) == band(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No two shapes agree on more than nine tenths of the square around them, so noise does not hide the class.
    #[test]
    fn shapes_differ() {
        let points: Vec<(f64, f64)> = (0..400)
            .map(|i| {
                (
                    f64::from(i % 20) / 10.0 - 0.95,
                    f64::from(i / 20) / 10.0 - 0.95,
                )
            })
            .collect();
        let covered = |class| points.iter().filter(|(u, v)| covers(class, *u, *v)).count();
        for class in 0..CLASSES {
            assert!(
                (100..=350).contains(&covered(class)),
                "{class}: {}",
                covered(class)
            );
            for other in 0..class {
                let same = points
                    .iter()
                    .filter(|(u, v)| covers(class, *u, *v) == covers(other, *u, *v));
                let same = same.count();
                assert!(same <= 360, "{other} and {class} agree on {same} of 400");
            }
        }
    }
}
