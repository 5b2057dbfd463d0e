//! The positions of crops, drawn and rounded as in torchvision.

use pelton_key::KeyedRng;

/// A part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rectangle {
    pub top: u32,
    pub left: u32,
    pub height: u32,
    pub width: u32,
}

impl Rectangle {
    /// The whole image.
    pub fn all(height: u32, width: u32) -> Rectangle {
        Rectangle {
            top: 0,
            left: 0,
            height,
            width,
        }
    }

    /// A part of this part; if it is mirrored, the inner part is counted from the other side.
    pub fn part(self, part: Rectangle, mirrored: bool) -> Rectangle {
        let left = if mirrored {
            self.width - part.left - part.width
        } else {
            part.left
        };
        Rectangle {
            top: self.top + part.top,
            left: self.left + left,
            ..part
        }
    }

    /// The intersection of an image with a part that begins here and has this size.
    pub fn inside(
        top: i64,
        left: i64,
        (height, width): (u32, u32),
        (all_height, all_width): (u32, u32),
    ) -> Rectangle {
        let span = |start: i64, wanted: u32, length: u32| {
            let within = |place: i64| place.clamp(0, i64::from(length)) as u32;
            let first = within(start);
            (first, within(start + i64::from(wanted)) - first)
        };
        let (top, height) = span(top, height, all_height);
        let (left, width) = span(left, width, all_width);
        Rectangle {
            top,
            left,
            height,
            width,
        }
    }
}

const TRIES: u32 = 10;

/// A part of random area and ratio: ten tries of those that fit, then the middle with the nearest ratio
/// that is allowed (Szegedy et al., "Going deeper with convolutions", 2015, in torchvision's form).
///
/// Cost: one exponential and two roots a try; of photos with ratio 3/4 nine in ten tries fit.
pub(crate) fn random_resized_crop(
    height: u32,
    width: u32,
    (least, most): (f64, f64),
    (narrow, broad): (f64, f64),
    rng: &mut KeyedRng,
) -> Rectangle {
    let area = f64::from(height) * f64::from(width);
    let (log_least, log_most) = (libm::log(narrow), libm::log(broad));
    for _ in 0..TRIES {
        let part = area * between(least, most, rng);
        let ratio = libm::exp(between(log_least, log_most, rng));
        let wide = (part * ratio).sqrt().round_ties_even() as u32;
        let high = (part / ratio).sqrt().round_ties_even() as u32;
        if (1..=width).contains(&wide) && (1..=height).contains(&high) {
            return Rectangle {
                top: rng.below(u64::from(height - high) + 1) as u32,
                left: rng.below(u64::from(width - wide) + 1) as u32,
                height: high,
                width: wide,
            };
        }
    }
    let ratio = f64::from(width) / f64::from(height);
    let (high, wide) = if ratio < narrow {
        let high = (f64::from(width) / narrow).round_ties_even() as u32;
        (high.min(height), width)
    } else if ratio > broad {
        let wide = (f64::from(height) * broad).round_ties_even() as u32;
        (height, wide.min(width))
    } else {
        (height, width)
    };
    Rectangle {
        top: (height - high) / 2,
        left: (width - wide) / 2,
        height: high,
        width: wide,
    }
}

/// A number between two, uniformly.
pub(crate) fn between(least: f64, most: f64, rng: &mut KeyedRng) -> f64 {
    least + (most - least) * rng.next_f64()
}

/// The start of the middle `side` pixels of `length`; `length` is at least `side`. Half a pixel is rounded to even.
pub(crate) fn middle(length: u32, side: u32) -> u32 {
    (f64::from(length - side) / 2.0).round_ties_even() as u32
}

/// The sides of an image after a resize of the shorter one to `side`.
pub(crate) fn shorter_to(side: u32, height: u32, width: u32) -> (u64, u64) {
    let (short, long) = (height.min(width), height.max(width));
    // Differs from a quotient of floats, which torchvision truncates, only in rounding errors.
    let longer = u64::from(side) * u64::from(long) / u64::from(short);
    if height <= width {
        (u64::from(side), longer)
    } else {
        (longer, u64::from(side))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

    #[test]
    fn parts_have_the_area_and_ratio_that_were_asked_for() {
        let mut areas = Vec::new();
        let mut ratios = Vec::new();
        for key in 0..4000 {
            let mut rng = KeyedRng::new(key);
            let part = random_resized_crop(400, 500, (0.2, 0.5), USUAL, &mut rng);
            assert!(part.top + part.height <= 400 && part.left + part.width <= 500);
            let (high, wide) = (f64::from(part.height), f64::from(part.width));
            areas.push(high * wide / 200_000.0);
            ratios.push((wide / high).ln());
        }
        let within = |values: &[f64], least: f64, most: f64, slack: f64| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            // A uniform mean of 4000 has a deviation of (most - least) / sqrt(12 · 4000).
            let deviation = (most - least) / 48_000_f64.sqrt();
            assert!(
                (mean - (least + most) / 2.0).abs() < 5.0 * deviation,
                "{mean}"
            );
            assert!(
                values
                    .iter()
                    .all(|v| (least - slack..=most + slack).contains(v))
            );
        };
        // Sides are rounded to whole pixels, of 150 and more.
        within(&areas, 0.2, 0.5, 0.01);
        within(&ratios, USUAL.0.ln(), USUAL.1.ln(), 0.01);
    }

    #[test]
    fn what_never_fits_takes_the_middle_with_the_nearest_ratio() {
        let mut rng = KeyedRng::new(3);
        let narrow = random_resized_crop(1000, 3, (1.0, 1.0), USUAL, &mut rng);
        let expected = Rectangle {
            top: 498,
            left: 0,
            height: 4,
            width: 3,
        };
        assert_eq!(narrow, expected);
        let wide = random_resized_crop(30, 1000, (1.0, 1.0), USUAL, &mut rng);
        let expected = Rectangle {
            top: 0,
            left: 480,
            height: 30,
            width: 40,
        };
        assert_eq!(wide, expected);
        let dot = random_resized_crop(1, 1, (0.08, 0.1), USUAL, &mut rng);
        assert_eq!(dot, Rectangle::all(1, 1));
    }

    #[test]
    fn corners_are_drawn_evenly() {
        let mut tops = [0_u32; 3];
        for key in 0..6000 {
            // Of 12 rows, a part of 10 x 10 can begin in the first three.
            let mut rng = KeyedRng::new(key);
            let part = random_resized_crop(12, 12, (0.69, 0.69), USUAL, &mut rng);
            if part.height == 10 {
                tops[part.top as usize] += 1;
            }
        }
        let total: u32 = tops.iter().sum();
        assert!(total > 1000);
        let mean = f64::from(total) / 3.0;
        let chi: f64 = tops
            .iter()
            .map(|&n| (f64::from(n) - mean).powi(2) / mean)
            .sum();
        assert!(chi < 20.0, "{tops:?}");
    }

    #[test]
    fn sides_round_as_in_torchvision() {
        // torchvision.transforms.functional.center_crop and resize.
        assert_eq!(
            [middle(5, 4), middle(7, 4), middle(9, 4), middle(4, 4)],
            [0, 2, 2, 0]
        );
        assert_eq!(shorter_to(256, 533, 400), (341, 256));
        assert_eq!(shorter_to(256, 400, 533), (256, 341));
        assert_eq!(shorter_to(7, 5, 5), (7, 7));
    }
}
