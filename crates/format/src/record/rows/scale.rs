//! Factors and shifts that scale features when rows are decoded.

/// A factor and a shift for each feature: `(value − shift) · factor`, computed in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    factors: Vec<f64>,
    /// Empty if no feature is shifted.
    shifts: Vec<f64>,
    /// Whether some feature is so far from 0 that f32 would keep too few of its digits.
    coarse: bool,
}

/// From this ratio of a mean to a standard deviation on, neighbouring f32 values differ by a 256th of the deviation
/// or more.
pub const COARSE: f64 = 32_768.0;

impl Scale {
    /// From a positive factor for each feature, and as many shifts or none; `None` if one of them is not finite, a
    /// factor not positive, or the counts differ.
    pub fn new(factors: Vec<f64>, shifts: Vec<f64>) -> Option<Scale> {
        let sound = factors
            .iter()
            .all(|factor| factor.is_finite() && *factor > 0.0)
            && shifts.iter().all(|shift| shift.is_finite())
            && (shifts.is_empty() || shifts.len() == factors.len());
        let mut both = factors.iter().zip(&shifts);
        let coarse = both.any(|(factor, shift)| shift.abs() * factor > COARSE);
        sound.then_some(Scale {
            factors,
            shifts,
            coarse,
        })
    }

    /// Whether features must be decoded as f64 before they are scaled.
    pub fn is_coarse(&self) -> bool {
        self.coarse
    }

    /// Scales a row that was decoded as f64.
    pub(crate) fn narrow(&self, wide: &[f64], row: &mut [f32]) {
        let scale = self.factors.iter().zip(&self.shifts);
        for ((value, wide), (factor, shift)) in row.iter_mut().zip(wide).zip(scale) {
            *value = narrow((wide - shift) * factor);
        }
    }

    /// The factor of each feature.
    pub fn factors(&self) -> &[f64] {
        &self.factors
    }

    /// The shift of each feature; empty if none is shifted.
    pub fn shifts(&self) -> &[f64] {
        &self.shifts
    }

    /// Whether a value of 0 may change, so that rows must be dense.
    pub fn has_shifts(&self) -> bool {
        !self.shifts.is_empty()
    }

    /// Scales a row: every feature in order, or those of `indices`. Unknown features are unchanged.
    pub(crate) fn apply(&self, indices: Option<&[u32]>, values: &mut [f32]) {
        match indices {
            Some(indices) => {
                for (&index, value) in indices.iter().zip(values) {
                    if let Some(factor) = self.factors.get(index as usize) {
                        let shift = self.shifts.get(index as usize).unwrap_or(&0.0);
                        *value = narrow((f64::from(*value) - shift) * factor);
                    }
                }
            }
            None if self.shifts.is_empty() => {
                for (value, factor) in values.iter_mut().zip(&self.factors) {
                    *value = narrow(f64::from(*value) * factor);
                }
            }
            None => {
                let scale = self.factors.iter().zip(&self.shifts);
                for (value, (factor, shift)) in values.iter_mut().zip(scale) {
                    *value = narrow((f64::from(*value) - shift) * factor);
                }
            }
        }
    }
}

/// The nearest finite f32: a value far beyond those that a scale was fitted to may exceed all of them.
fn narrow(value: f64) -> f32 {
    (value as f32).clamp(f32::MIN, f32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_far_from_zero_are_coarse() {
        let check = |factor: f64, shift: f64, expected: bool| {
            let scale = Scale::new(vec![1.0, factor], vec![0.0, shift]).unwrap();
            assert_eq!(scale.is_coarse(), expected, "{factor} {shift}");
        };
        check(1.0 / 18.0, 1.6e9, true);
        check(1.0 / 5e5, 1.6e9, false);
        check(1e4, 1.0, false);
        assert!(!Scale::new(vec![1e-9], Vec::new()).unwrap().is_coarse());
        let scale = Scale::new(vec![0.5, 1.0], vec![1.6e9, 0.0]).unwrap();
        let mut row = [0.0; 2];
        scale.narrow(&[1.6e9 + 3.0, 7.0], &mut row);
        assert_eq!(row, [1.5, 7.0]);
    }
}
