//! Factors and shifts by which features are scaled when rows are decoded.

/// A factor and a shift for each feature: `(value − shift) · factor`, computed in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    factors: Vec<f64>,
    /// Empty where no feature is shifted.
    shifts: Vec<f64>,
}

impl Scale {
    /// From a positive factor for each feature, and as many shifts or none; `None` where one of them is
    /// not finite, a factor not positive, or their numbers differ.
    pub fn new(factors: Vec<f64>, shifts: Vec<f64>) -> Option<Scale> {
        let sound = factors
            .iter()
            .all(|factor| factor.is_finite() && *factor > 0.0)
            && shifts.iter().all(|shift| shift.is_finite())
            && (shifts.is_empty() || shifts.len() == factors.len());
        sound.then_some(Scale { factors, shifts })
    }

    /// The factor of each feature.
    pub fn factors(&self) -> &[f64] {
        &self.factors
    }

    /// The shift of each feature; empty where none is shifted.
    pub fn shifts(&self) -> &[f64] {
        &self.shifts
    }

    /// Whether a value of 0 may become another, so that rows have to be dense.
    pub fn has_shifts(&self) -> bool {
        !self.shifts.is_empty()
    }

    /// Scales a row: every feature in order, or those of `indices`. Features that it does not know stay.
    pub(crate) fn apply(&self, indices: Option<&[u32]>, values: &mut [f32]) {
        match indices {
            Some(indices) => {
                for (&index, value) in indices.iter().zip(values) {
                    if let Some(factor) = self.factors.get(index as usize) {
                        *value = narrow(f64::from(*value) * factor);
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

/// The nearest finite f32: a value far beyond those that a scale was fitted to may pass all of them.
fn narrow(value: f64) -> f32 {
    (value as f32).clamp(f32::MIN, f32::MAX)
}
