//! Turning, shifting, scaling and shearing an image in one step, about its middle.
//!
//! Each pixel of the result is interpolated from the four pixels at its origin, with black around the image. One
//! combined step blurs less than four would, and costs the same as one.

use pelton_key::KeyedRng;

use super::{Augment, Effect, Move, Moves, Numbers, Size, Step, number};
use crate::crop::between;

pub(super) static STEP: Step = Step {
    form: "affine:DEGREES:SHIFT:SCALE[:SHEAR]",
    does: "turns by ± DEGREES, shifts by ± SHIFT of each side, scales by 1 ± SCALE and shears rows by ± SHEAR degrees \
           (0), about the middle, with black around it",
    examples: &["affine:10:0.08:0.15", "affine:8:0.06:0.1:6"],
    rule: "its parameters are degrees (0 to 180), a shift (0 to 1), a scale (0 to 0.9) and perhaps degrees of shear \
           (0 to 80), as in 10:0.08:0.15:8",
    parameters: &[
        number(0.0, 180.0),
        number(0.0, 1.0),
        number(0.0, 0.9),
        number(0.0, 80.0),
    ],
    evaluation: Augment::dropped,
    effect: Effect::Move(Moves::keeping_size(|numbers, size, rng| {
        Move::Affine(draw(numbers, size, rng))
    })),
};

/// The origin of a pixel of the result: `from = matrix · to + offset`, measured from the middle of the image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Affine {
    pub matrix: [[f32; 2]; 2],
    pub offset: [f32; 2],
}

/// Draws the inverse of a turn of up to ± `degrees`, a shift of up to ± `shift` of each side, a factor from 1 −
/// `scale` to 1 + `scale` and a shear of up to ± `shear` degrees along the rows.
fn draw(
    [degrees, shift, scale, shear, ..]: Numbers,
    (height, width): Size,
    rng: &mut KeyedRng,
) -> Affine {
    let mut within = |most: f64| between(-most, most, rng);
    let turn = within(degrees).to_radians();
    let [x, y] = [width, height].map(|side| within(shift) * f64::from(side));
    let factor = 1.0 + within(scale);
    let slant = libm::tan(within(shear).to_radians());
    let (sine, cosine) = (libm::sin(turn), libm::cos(turn));
    // Forward: scale, shear, turn, shift. The inverse undoes them in reverse order.
    let matrix = [
        [cosine + slant * sine, sine - slant * cosine],
        [-sine, cosine],
    ];
    let matrix = matrix.map(|row| row.map(|value| (value / factor) as f32));
    let [x, y] = [x as f32, y as f32];
    let offset = matrix.map(|[by_x, by_y]| -(by_x * x + by_y * y));
    Affine { matrix, offset }
}

impl Affine {
    /// The same for the image mirrored left to right.
    pub fn mirrored(self) -> Affine {
        let [[xx, xy], [yx, yy]] = self.matrix;
        let [x, y] = self.offset;
        Affine {
            matrix: [[xx, -xy], [-yx, yy]],
            offset: [-x, y],
        }
    }

    /// Makes an image of `height` rows from another of the same size, with black around it; bilinear, or from the
    /// nearest pixel.
    pub fn apply(self, from: &[u8], to: &mut [u8], height: usize, channels: usize, nearest: bool) {
        let width = from.len() / height / channels;
        let middle = |side: usize| (side as f32 - 1.0) / 2.0;
        let (middle_x, middle_y) = (middle(width), middle(height));
        let [[xx, xy], [yx, yy]] = self.matrix;
        let pixel = |y: i32, x: i32, channel: usize| {
            let inside = (0..height as i32).contains(&y) && (0..width as i32).contains(&x);
            let place = || (y as usize * width + x as usize) * channels + channel;
            if inside {
                f32::from(from[place()])
            } else {
                0.0
            }
        };
        for (i, values) in to.chunks_exact_mut(channels).enumerate() {
            let to_y = (i / width) as f32 - middle_y;
            let to_x = (i % width) as f32 - middle_x;
            let x = xx * to_x + xy * to_y + self.offset[0] + middle_x;
            let y = yx * to_x + yy * to_y + self.offset[1] + middle_y;
            let (x, y) = if nearest {
                ((x + 0.5).floor(), (y + 0.5).floor())
            } else {
                (x, y)
            };
            let (left, top) = (x.floor(), y.floor());
            let (right_share, low_share) = (x - left, y - top);
            // Far outside the image these saturate, one below the largest at most.
            let (left, top) = (left.min(1e9) as i32, top.min(1e9) as i32);
            for (channel, value) in values.iter_mut().enumerate() {
                let row = |y: i32| {
                    let (before, after) = (pixel(y, left, channel), pixel(y, left + 1, channel));
                    before + (after - before) * right_share
                };
                let (above, below) = (row(top), row(top + 1));
                *value = (above + (below - above) * low_share + 0.5) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 3 × 3 image of the digits 1 to 9 under a map.
    fn check(affine: Affine, expected: [u8; 9]) {
        let from = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let mut to = [0; 9];
        affine.apply(&from, &mut to, 3, 1, false);
        assert_eq!(to, expected, "{affine:?}");
    }

    #[test]
    fn pixels_come_from_where_the_map_says() {
        let unit = [[1.0, 0.0], [0.0, 1.0]];
        let of = |matrix, offset| Affine { matrix, offset };
        check(of(unit, [0.0, 0.0]), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        check(of(unit, [1.0, 0.0]), [2, 3, 0, 5, 6, 0, 8, 9, 0]);
        check(of(unit, [0.0, -1.0]), [0, 0, 0, 1, 2, 3, 4, 5, 6]);
        // Halves round up.
        check(of(unit, [0.5, 0.0]), [2, 3, 2, 5, 6, 3, 8, 9, 5]);
        check(
            of([[0.0, 1.0], [-1.0, 0.0]], [0.0, 0.0]),
            [7, 4, 1, 8, 5, 2, 9, 6, 3],
        );
        check(
            of([[2.0, 0.0], [0.0, 2.0]], [0.0, 0.0]),
            [0, 0, 0, 0, 5, 0, 0, 0, 0],
        );
        check(of(unit, [1e30, 0.0]), [0; 9]);
        check(of(unit, [-1e30, f32::MAX]), [0; 9]);
    }

    #[test]
    fn classes_come_from_the_nearest_pixel() {
        let near = |offset, expected: [u8; 9]| {
            let matrix = [[1.0, 0.0], [0.0, 1.0]];
            let mut to = [0; 9];
            let from = [1, 2, 3, 4, 5, 6, 7, 8, 9];
            Affine { matrix, offset }.apply(&from, &mut to, 3, 1, true);
            assert_eq!(to, expected, "{offset:?}");
        };
        near([0.4, -0.4], [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        near([0.5, 0.0], [2, 3, 0, 5, 6, 0, 8, 9, 0]);
        near([-0.6, 0.6], [0, 4, 5, 0, 7, 8, 0, 0, 0]);
    }

    #[test]
    fn what_is_drawn_undoes_the_way_forward() {
        for key in 0..100 {
            let size = (20, 30);
            let affine = draw(
                [30.0, 0.2, 0.3, 15.0, 0.0, 0.0],
                size,
                &mut KeyedRng::new(key),
            );
            let mut again = KeyedRng::new(key);
            let mut within = |most: f64| between(-most, most, &mut again);
            let (turn, x, y) = (
                within(30.0).to_radians(),
                within(0.2) * 30.0,
                within(0.2) * 20.0,
            );
            let (factor, slant) = (1.0 + within(0.3), within(15.0).to_radians().tan());
            // Corners of the image, forward by the plain steps one after the other, and back.
            for [from_x, from_y] in [[-15.0, -10.0], [15.0, -10.0], [3.0, 7.0]] {
                let (sheared_x, sheared_y) = (factor * (from_x + slant * from_y), factor * from_y);
                let to_x = sheared_x * turn.cos() - sheared_y * turn.sin() + x;
                let to_y = sheared_x * turn.sin() + sheared_y * turn.cos() + y;
                let [[xx, xy], [yx, yy]] = affine.matrix.map(|row| row.map(f64::from));
                let back_x = xx * to_x + xy * to_y + f64::from(affine.offset[0]);
                let back_y = yx * to_x + yy * to_y + f64::from(affine.offset[1]);
                // Some ten roundings of numbers below 64 to 24 bits.
                let most = 64.0 * 16.0 * f64::from(f32::EPSILON);
                assert!(
                    (back_x - from_x).abs() < most && (back_y - from_y).abs() < most,
                    "{key}"
                );
            }
        }
    }
}
