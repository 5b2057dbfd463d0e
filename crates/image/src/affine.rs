//! Linear maps of images about their middle.
//!
//! Each pixel of the result is interpolated from the four pixels at its origin, with black around the image.

/// The origin of a pixel of the result: `from = matrix · to + offset`, measured from the middle of the image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Affine {
    pub matrix: [[f32; 2]; 2],
    pub offset: [f32; 2],
    /// Whether pixels come from the nearest, without interpolation.
    pub nearest: bool,
}

impl Affine {
    /// The same for the image mirrored left to right.
    pub fn mirrored(self) -> Affine {
        let [[xx, xy], [yx, yy]] = self.matrix;
        let [x, y] = self.offset;
        Affine {
            matrix: [[xx, -xy], [-yx, yy]],
            offset: [-x, y],
            ..self
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
        for (i, line) in to.chunks_exact_mut(width * channels).enumerate() {
            let to_y = i as f32 - middle_y;
            for (j, values) in line.chunks_exact_mut(channels).enumerate() {
                let to_x = j as f32 - middle_x;
                let x = xx * to_x + xy * to_y + self.offset[0] + middle_x;
                let y = yx * to_x + yy * to_y + self.offset[1] + middle_y;
                if nearest || self.nearest {
                    let (x, y) = (floor(x + 0.5), floor(y + 0.5));
                    let is_inside = (x as u32 as usize) < width && (y as u32 as usize) < height;
                    let place = (y as u32 as usize).wrapping_mul(width) + x as u32 as usize;
                    match from.get(place * channels..(place + 1) * channels) {
                        Some(pixel) if is_inside => values.copy_from_slice(pixel),
                        _ => values.fill(0),
                    }
                    continue;
                }
                let (left, top) = (floor(x), floor(y));
                let (right_share, low_share) = (x - left as f32, y - top as f32);
                for (channel, value) in values.iter_mut().enumerate() {
                    let row = |y: i32| {
                        let (before, after) =
                            (pixel(y, left, channel), pixel(y, left + 1, channel));
                        before + (after - before) * right_share
                    };
                    let (above, below) = (row(top), row(top + 1));
                    *value = (above + (below - above) * low_share + 0.5) as u8;
                }
            }
        }
    }
}

/// The whole number below; far outside every image it is within 10^9 of 0. Without a call, which `f32::floor` is on older
/// processors.
fn floor(number: f32) -> i32 {
    const UP: f64 = (1_u64 << 31) as f64;
    (f64::from(number.clamp(-1e9, 1e9)) + UP) as u32 as i32 ^ i32::MIN
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
        let of = |matrix, offset| Affine {
            matrix,
            offset,
            nearest: false,
        };
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
            Affine {
                matrix,
                offset,
                nearest: true,
            }
            .apply(&from, &mut to, 3, 1, false);
            assert_eq!(to, expected, "{offset:?}");
        };
        near([0.4, -0.4], [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        near([0.5, 0.0], [2, 3, 0, 5, 6, 0, 8, 9, 0]);
        near([-0.6, 0.6], [0, 4, 5, 0, 7, 8, 0, 0, 0]);
    }
}
