//! Random numbers of one row: uniform and normal, from a key of (seed, row, generator).
//!
//! The results must have the same bits on every machine, because golden checksums test the sets.
//! So only IEEE basic operations and the `libm` crate's functions are used, never the platform's.

use pelton_key::{KeyedRng, Stage, key};

/// The draws of one row.
pub(super) struct Draws {
    rng: KeyedRng,
    /// The unused half of a 64-bit draw.
    half: Option<u32>,
}

impl Draws {
    pub(super) fn new(seed: u64, row: u64, generator: u32) -> Draws {
        Draws {
            rng: KeyedRng::new(key(seed, row, Stage::Demo(generator))),
            half: None,
        }
    }

    /// 32 random bits.
    #[inline]
    pub(super) fn bits(&mut self) -> u32 {
        match self.half.take() {
            Some(half) => half,
            None => {
                let both = self.rng.next_u64();
                self.half = Some((both >> 32) as u32);
                both as u32
            }
        }
    }

    /// A number strictly between 0 and 1.
    #[inline]
    pub(super) fn uniform(&mut self) -> f64 {
        (f64::from(self.bits()) + 0.5) * (1.0 / 4_294_967_296.0)
    }

    /// A standard normal number.
    #[inline]
    pub(super) fn normal(&mut self) -> f64 {
        normal_quantile(self.uniform())
    }
}

/// Quantile of the standard normal distribution for 0 < p < 1, to a relative error of 1.2e-9: rational approximation on
/// three ranges (P. J. Acklam, "An algorithm for computing the inverse normal cumulative distribution function", 2003).
/// Nine draws in ten take the middle range, with multiplications, additions and one division.
#[inline]
fn normal_quantile(p: f64) -> f64 {
    const LOW: f64 = 0.02425;
    if (LOW..=1.0 - LOW).contains(&p) {
        let q = p - 0.5;
        let r = q * q;
        let above =
            ((((-3.969683028665376e1 * r + 2.209460984245205e2) * r - 2.759285104469687e2) * r
                + 1.383_577_518_672_69e2)
                * r
                - 3.066479806614716e1)
                * r
                + 2.506628277459239;
        let below =
            ((((-5.447609879822406e1 * r + 1.615858368580409e2) * r - 1.556989798598866e2) * r
                + 6.680131188771972e1)
                * r
                - 1.328068155288572e1)
                * r
                + 1.0;
        above * q / below
    } else if p < LOW {
        tail(p)
    } else {
        -tail(1.0 - p)
    }
}

#[cold]
fn tail(p: f64) -> f64 {
    let q = (-2.0 * libm::log(p)).sqrt();
    let above = ((((-7.784894002430293e-3 * q - 3.223964580411365e-1) * q - 2.400758277161838)
        * q
        - 2.549732539343734)
        * q
        + 4.374664141464968)
        * q
        + 2.938163982698783;
    let below = (((7.784695709041462e-3 * q + 3.224671290700398e-1) * q + 2.445134137142996) * q
        + 3.754408661907416)
        * q
        + 1.0;
    above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_normal_distribution() {
        for (p, expected) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.841_344_746_068_543, 1.0),
            (0.001, -3.090_232_306_167_813_5),
            (1e-9, -5.997_807_015_007_686),
        ] {
            assert!((normal_quantile(p) - expected).abs() < 1e-8, "{p}");
        }
    }

    #[test]
    fn moments_are_those_of_the_normal_distribution() {
        let mut draws = Draws::new(1, 2, 3);
        let numbers: Vec<f64> = (0..200_000).map(|_| draws.normal()).collect();
        let moment = |power| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / 2e5;
        // Five standard deviations of the sample's moments.
        assert!(moment(1).abs() < 5.0 * (1.0f64 / 2e5).sqrt());
        assert!((moment(2) - 1.0).abs() < 5.0 * (2.0f64 / 2e5).sqrt());
        assert!((moment(4) - 3.0).abs() < 5.0 * (96.0f64 / 2e5).sqrt());
    }
}
