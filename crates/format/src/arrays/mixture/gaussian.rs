//! The numbers of a hierarchical Gaussian mixture: any record of any class independently, from counters.
//!
//! ```text
//! centre(c) = Σ_l s_l · g(l, c mod 32^l)       l = 1 … L, the least L with 32^L ≥ classes; the last term is g(L, c)
//! view      = centre(c) + noise · |z| · g      z and g drawn again for each view
//! record    = bent(view)
//! ```
//!
//! Each g is a vector of standard normal numbers under a separate key. The variances s_l² fall by [`FALL`] from level
//! to level and add up to 1. So each class has up to 31 siblings that share all but its last vector. These are its hard
//! neighbours: a tenth as many classes are an easier problem. A view's own |z| makes some views clear and some
//! hopeless, as pictures are; with one amplitude for all, accuracy would fall from nearly all to nearly nothing within
//! two decades of classes.
//!
//! [`bent`](GaussianMixture::bend) is two additive couplings of the halves of a vector, `high += A σ(B low)` and then
//! `low += C σ(D high)` (Dinh et al., "NICE", 2014), with keyed matrices and σ(x) = x/√(1 + x²). It can be undone
//! exactly and keeps volumes, so the best classifier before it, which is the nearest centre, is as good as the best one
//! after it. A linear map cannot undo it; a net with a hidden layer can.
//!
//! A table of centres was rejected: 10⁸ of them take 25 GB. Only additions, multiplications, divisions and square roots
//! are used, in an order that does not depend on the width of registers, so all machines make the same bits.
//!
//! Cost: (L + 1) · D normal numbers and D² multiplications a record. On one core of a server of 2023, of 64 values: 0.8
//! µs at 10⁴ classes and 1.4 at 10⁸ with AVX-512, 1.3 and 2.1 with AVX2, 2.2 and 3.4 without.

use pelton_cpu::{Kernel, Simd};
use pelton_key::{KeyedRng, Stage, key};

/// Name of the format of these records.
pub(crate) const NAME: &str = "mixture";

/// Classes of one ancestor at each level.
const BRANCHES: u64 = 32;
/// Variance of a level over that of the level above.
const FALL: f32 = 0.7;
/// Deviation of a coupling's increment, relative to its σ.
const BEND: f32 = 2.0;
/// Distinguishes the keys: of matrices, of views, and of level l from `LEVEL` + l on.
const MATRIX: u32 = 6;
const VIEW: u32 = 7;
const LEVEL: u32 = 8;
/// Halves of vectors are in memory in whole groups of this many.
const GROUP: usize = 32;

/// The numbers of one mixture.
#[derive(Clone, Debug)]
pub(crate) struct GaussianMixture {
    seed: u64,
    noise: f32,
    /// The count of the ancestors of each level, and the deviation of their vectors.
    levels: Vec<(u64, f32)>,
    /// Values of half a record.
    half: usize,
    couplings: [Coupling; 2],
}

/// A vector in two halves, each of whole groups; padding after a half's values is never read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Halves {
    low: Vec<f32>,
    high: Vec<f32>,
    /// The result of σ.
    hidden: Vec<f32>,
    /// The values of both halves.
    whole: Vec<f32>,
}

impl Halves {
    #[inline(always)]
    fn row(&mut self, half: usize) {
        self.whole.clear();
        for values in [&self.low, &self.high] {
            self.whole.extend_from_slice(&values[..half]);
        }
    }
}

impl GaussianMixture {
    /// A mixture of `classes` classes with records of `features` numbers, an even count.
    pub(crate) fn new(seed: u64, classes: u64, features: usize, noise: f32) -> GaussianMixture {
        let mut levels = Vec::new();
        let (mut count, mut rest) = (BRANCHES, 1.0f32);
        while count < classes {
            levels.push((count, (rest * (1.0 - FALL)).sqrt()));
            rest *= FALL;
            count *= BRANCHES;
        }
        levels.push((u64::MAX, rest.sqrt()));
        let half = features / 2;
        GaussianMixture {
            seed,
            noise,
            levels,
            half,
            couplings: [0, 1].map(|number| Coupling::new(seed, number, half)),
        }
    }

    /// The values of view `view` of class `class`.
    #[inline]
    pub(crate) fn record<'a>(&self, class: u64, view: u64, halves: &'a mut Halves) -> &'a [f32] {
        let write = Write {
            of: self,
            class,
            view,
            halves,
        };
        pelton_cpu::run(Simd::current(), write);
        &halves.whole
    }

    #[inline(always)]
    fn write(&self, class: u64, view: u64, halves: &mut Halves) {
        self.centre(class, halves);
        let stream = key(self.seed, view << 32 | class, Stage::Demo(VIEW));
        let (z, _) = normal_pair(number(stream, self.half as u64));
        add_normals(stream, self.noise * z.abs(), halves);
        self.bend(halves);
        halves.row(self.half);
    }

    #[inline(always)]
    fn centre(&self, class: u64, halves: &mut Halves) {
        let padded = self.half.next_multiple_of(GROUP);
        for half in [&mut halves.low, &mut halves.high, &mut halves.hidden] {
            half.clear();
            half.resize(padded, 0.0);
        }
        for (level, &(count, scale)) in (LEVEL..).zip(&self.levels) {
            let stream = key(self.seed, class % count, Stage::Demo(level));
            add_normals(stream, scale, halves);
        }
    }

    #[inline(always)]
    fn bend(&self, halves: &mut Halves) {
        let Halves {
            low, high, hidden, ..
        } = halves;
        let [first, second] = &self.couplings;
        first.add(&low[..self.half], hidden, high);
        second.add(&high[..self.half], hidden, low);
    }
}

/// `to += A σ(B from)`. Row i of each matrix holds the contributions of value i of its argument to every value of its
/// result.
#[derive(Clone, Debug)]
struct Coupling {
    inner: Vec<[f32; GROUP]>,
    outer: Vec<[f32; GROUP]>,
}

impl Coupling {
    fn new(seed: u64, number: u64, half: usize) -> Coupling {
        let matrix = |which: u64, scale: f32| {
            let groups = half.div_ceil(GROUP);
            let mut rows = vec![[0.0; GROUP]; half * groups];
            for i in 0..half {
                let stream = key(
                    seed,
                    (2 * number + which) << 32 | i as u64,
                    Stage::Demo(MATRIX),
                );
                for j in 0..half {
                    let (weight, _) = normal_pair(self::number(stream, j as u64));
                    // Groups of columns in order; the rows of each group are contiguous.
                    rows[j / GROUP * half + i][j % GROUP] = weight * scale;
                }
            }
            rows
        };
        let scale = 1.0 / (half as f32).sqrt();
        Coupling {
            inner: matrix(0, scale),
            outer: matrix(1, BEND * scale),
        }
    }

    #[inline(always)]
    fn add(&self, from: &[f32], hidden: &mut [f32], to: &mut [f32]) {
        let half = from.len();
        for (group, rows) in hidden
            .as_chunks_mut::<GROUP>()
            .0
            .iter_mut()
            .zip(self.inner.chunks(half))
        {
            let sums = product(from, rows);
            // Not `map` of arrays, which is a separate function without link-time optimisation.
            for (value, x) in group.iter_mut().zip(sums) {
                *value = x / (1.0 + x * x).sqrt();
            }
        }
        for (group, rows) in to
            .as_chunks_mut::<GROUP>()
            .0
            .iter_mut()
            .zip(self.outer.chunks(half))
        {
            let sums = product(&hidden[..half], rows);
            for (value, sum) in group.iter_mut().zip(sums) {
                *value += sum;
            }
        }
    }
}

/// `Σ_i x_i · rows_i`.
#[inline(always)]
fn product(x: &[f32], rows: &[[f32; GROUP]]) -> [f32; GROUP] {
    let mut sums = [0.0; GROUP];
    for (x, row) in x.iter().zip(rows) {
        for (sum, weight) in sums.iter_mut().zip(row) {
            *sum += x * weight;
        }
    }
    sums
}

/// Adds normal numbers of deviation `scale`: those of counter j to value j of both halves.
#[inline(always)]
fn add_normals(stream: u64, scale: f32, halves: &mut Halves) {
    let low = halves.low.as_chunks_mut::<GROUP>().0;
    let high = halves.high.as_chunks_mut::<GROUP>().0;
    for (group, (low, high)) in low.iter_mut().zip(high).enumerate() {
        let first = (group * GROUP) as u64;
        let mut words = [0; GROUP];
        for (j, word) in words.iter_mut().enumerate() {
            *word = number(stream, first + j as u64);
        }
        for j in 0..GROUP {
            let (a, b) = normal_pair(words[j]);
            low[j] += scale * a;
            high[j] += scale * b;
        }
    }
}

#[inline(always)]
fn number(stream: u64, counter: u64) -> u64 {
    KeyedRng::at(stream, counter).next_u64()
}

/// Two independent standard normal numbers (Box and Muller, 1958), at most 5.8 in magnitude.
///
/// The angle is drawn within π/4 of π/4, where both series are short, and each number's sign separately.
#[inline(always)]
fn normal_pair(word: u64) -> (f32, f32) {
    const STEP: f32 = 1.0 / (1 << 24) as f32;
    let high = (word >> 40) as u32;
    let low = word as u32;
    // In (0, 1] and (-1/2, 1/2).
    let uniform = (high as i32 + 1) as f32 * STEP;
    let part = ((low >> 8) as i32 as f32 + 0.5) * STEP - 0.5;
    let radius = minus_ln(uniform).sqrt();
    let angle = part * std::f32::consts::FRAC_PI_2;
    let x = angle * angle;
    let sine = angle * (1.0 + x * (-1.0 / 6.0 + x * (1.0 / 120.0 + x * (-1.0 / 5040.0))));
    let cosine = 1.0 + x * (-0.5 + x * (1.0 / 24.0 + x * (-1.0 / 720.0 + x * (1.0 / 40_320.0))));
    let signed = |value: f32, bit: u32| f32::from_bits(value.to_bits() ^ (bit << 31));
    // √2 cos(π/4 + angle) = cosine - sine, and √2 is in the radius.
    (
        signed(radius * (cosine - sine), low & 1),
        signed(radius * (cosine + sine), low >> 1 & 1),
    )
}

/// `-ln x` for a normal x in (0, 1]: 2 artanh((m - 1)/(m + 1)) of the mantissa m, which is in [2/3, 4/3).
#[inline(always)]
fn minus_ln(x: f32) -> f32 {
    const TWO_THIRDS: u32 = 0x3f2a_aaab;
    let bits = x.to_bits();
    let exponent = bits.wrapping_sub(TWO_THIRDS) as i32 >> 23;
    let mantissa = f32::from_bits(bits.wrapping_sub((exponent << 23) as u32));
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let zz = z * z;
    let series = 1.0 + zz * (1.0 / 3.0 + zz * (0.2 + zz * (1.0 / 7.0 + zz * (1.0 / 9.0))));
    -(exponent as f32 * std::f32::consts::LN_2 + 2.0 * z * series)
}

/// Writes a view. Wide registers contract nothing, so the bits are the same on every level.
struct Write<'a> {
    of: &'a GaussianMixture,
    class: u64,
    view: u64,
    halves: &'a mut Halves,
}

impl Kernel for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.of.write(self.class, self.view, self.halves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden: records are the same on every machine and in every release; a change needs another version of
    /// `Mixture`.
    #[test]
    fn records_stay() {
        let checksum = |classes, features, noise| {
            let numbers = GaussianMixture::new(5, classes, features, noise);
            let mut halves = Halves::default();
            (0..20u64).fold(0, |crc, i| {
                let class = i * 7_919 % classes;
                let row = numbers.record(class, i % 3, &mut halves);
                row.iter().fold(crc, |crc, value| {
                    crc32c::crc32c_append(crc, &value.to_le_bytes())
                })
            })
        };
        let found = [
            checksum(10, 2, 0.5),
            checksum(10_000, 64, 1.0),
            checksum(100_000_000, 64, 1.0),
            checksum(1_000, 130, 0.0),
        ];
        assert_eq!(
            found,
            [0xa57d_55bf, 0xb3ca_fe0b, 0x1271_e820, 0xd33c_868b],
            "{found:#010x?}"
        );
    }

    /// The loops for wide registers against the same code compiled without; halves are not multiples of a group.
    #[test]
    fn all_paths_make_the_same_bits() {
        for features in [2, 30, 32, 34, 64, 250] {
            let numbers = GaussianMixture::new(1, 5_000, features, 0.7);
            let (mut halves, mut plain) = (Halves::default(), Halves::default());
            for class in [0, 1, 33, 4_999] {
                let row = numbers.record(class, 6, &mut halves).to_vec();
                numbers.write(class, 6, &mut plain);
                assert_eq!(row, plain.whole);
                for level in Simd::available() {
                    let write = Write {
                        of: &numbers,
                        class,
                        view: 6,
                        halves: &mut halves,
                    };
                    pelton_cpu::run(level, write);
                    assert_eq!(halves.whole, plain.whole, "{level:?}");
                }
                assert_eq!(row.len(), features);
            }
        }
    }

    #[test]
    fn logarithms_and_normal_numbers_are_right() {
        for i in (1..=1u32 << 24).step_by(997).chain([1 << 24]) {
            let x = i as f32 / (1 << 24) as f32;
            let expected = -f64::from(x).ln();
            // Some roundings of numbers up to 17, each relative to its summand.
            let bound = 4.0 * f64::from(f32::EPSILON) * expected.max(1e-3);
            assert!((f64::from(minus_ln(x)) - expected).abs() <= bound, "{x}");
        }
        let draws = 200_000;
        let (mut moments, mut mixed) = ([0.0f64; 4], 0.0);
        for counter in 0..draws {
            let (a, b) = normal_pair(number(77, counter));
            for (power, moment) in (1..).zip(&mut moments) {
                *moment += f64::from(a).powi(power) + f64::from(b).powi(power);
            }
            mixed += f64::from(a) * f64::from(b);
        }
        let n = 2.0 * draws as f64;
        // Five standard deviations of each: those of x, x², x³ and x⁴ are 1, √2, √15 and √96.
        for (moment, (expected, deviation)) in
            moments
                .into_iter()
                .zip([(0.0, 1.0f64), (1.0, 2.0), (0.0, 15.0), (3.0, 96.0)])
        {
            let found = moment / n;
            assert!(
                (found - expected).abs() < 5.0 * (deviation / n).sqrt(),
                "{found}, not {expected}"
            );
        }
        assert!((mixed / draws as f64).abs() < 5.0 / (draws as f64).sqrt());
    }

    fn centre(numbers: &GaussianMixture, class: u64) -> Vec<f32> {
        let mut halves = Halves::default();
        numbers.centre(class, &mut halves);
        halves.row(numbers.half);
        halves.whole
    }

    fn distance(a: &[f32], b: &[f32]) -> f64 {
        let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2));
        squares.sum::<f64>() / a.len() as f64
    }

    /// The squared distance of two classes that part at a level is twice the variance of the levels from there on.
    #[test]
    fn centres_lie_as_far_apart_as_their_ancestors_say() {
        let numbers = GaussianMixture::new(3, 1_000_000, 64, 1.0);
        let pairs = 500;
        for (level, apart) in [(0, 1), (1, 32), (2, 1_024), (3, 32_768)] {
            let sum: f64 = (0..pairs)
                .map(|i| {
                    let class = i * 613 % 32_768;
                    let (a, b) = (centre(&numbers, class), centre(&numbers, class + apart));
                    distance(&a, &b)
                })
                .sum();
            let expected = 2.0 * f64::from(FALL).powi(level);
            // A squared normal number has the relative deviation √2. Pairs share ancestors; with at least 32 of these,
            // 32 pairs are independent.
            let bound = 5.0 * (2.0 / (64.0 * 32.0f64)).sqrt() * expected;
            let found = sum / pairs as f64;
            assert!((found - expected).abs() < bound, "{found}, not {expected}");
        }
    }

    /// Undoing the couplings of a view gives its centre and noise of the given deviation.
    #[test]
    fn views_lie_around_their_centres_once_unbent() {
        let numbers = GaussianMixture::new(8, 100_000, 64, 0.5);
        let views = 2_000;
        let mut sum = 0.0;
        for view in 0..views {
            let class = view * 37;
            let mut halves = Halves::default();
            numbers.record(class, view, &mut halves);
            let [first, second] = &numbers.couplings;
            let Halves {
                low, high, hidden, ..
            } = &mut halves;
            // σ is odd: the negated half takes away what it added.
            let negated = |half: &[f32]| half[..32].iter().map(|x| -x).collect::<Vec<f32>>();
            second.add(&negated(high), hidden, low);
            first.add(&negated(low), hidden, high);
            halves.row(32);
            sum += distance(&halves.whole, &centre(&numbers, class));
        }
        // The mean over views of z²χ² / 64, which has variance 3 · (1 + 2/64) - 1.
        let (found, expected) = (sum / views as f64, 0.25);
        let bound = 5.0 * (2.1 / views as f64).sqrt() * expected;
        assert!((found - expected).abs() < bound, "{found}, not {expected}");
    }

    /// The noise that `demo:classes` has by default: a nearest centre is right for 89.8 % of the views of 10⁴ classes,
    /// as another program found on 6 000 views of three mixtures.
    #[test]
    fn the_nearest_centre_is_right_as_often_as_stated() {
        let (classes, views, noise) = (10_000, 300, 1.1);
        let numbers = GaussianMixture::new(0, classes, 64, noise);
        let centres: Vec<Vec<f32>> = (0..classes).map(|class| centre(&numbers, class)).collect();
        let mut halves = Halves::default();
        let right = (0..views).filter(|view| {
            let class = view * 7_919 % classes;
            numbers.centre(class, &mut halves);
            let stream = key(0, view << 32 | class, Stage::Demo(VIEW));
            let (z, _) = normal_pair(number(stream, 32));
            add_normals(stream, noise * z.abs(), &mut halves);
            halves.row(32);
            let found = &halves.whole;
            let own = distance(found, &centres[class as usize]);
            let others = centres.iter().zip(0..).filter(|(_, other)| *other != class);
            others
                .into_iter()
                .all(|(centre, _)| distance(found, centre) > own)
        });
        let (found, expected) = (right.count() as f64 / views as f64, 0.898f64);
        let bound = 4.0 * (expected * (1.0 - expected) / views as f64).sqrt();
        assert!((found - expected).abs() < bound, "{found}");
    }
}
