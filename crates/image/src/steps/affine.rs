//! Turning, shifting, scaling and shearing an image in one step, about its middle.
//!
//! One step blurs less than four would, and costs the same as one.

use pelton_key::KeyedRng;

use super::{Augment, Effect, Move, Moves, Numbers, Size, Step, number};
use crate::affine::Affine;
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
    Affine {
        matrix,
        offset,
        nearest: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
