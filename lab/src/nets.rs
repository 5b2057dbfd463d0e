//! Training settings of nets in tables, and evaluation of their losses.

use pelton_train::FitConfig;

/// A constant rate, with the default decay and momentum.
pub(super) fn constant(rate: f64, batch: u64, epochs: u64, seed: u64) -> FitConfig {
    FitConfig {
        rate: Some(rate),
        batch,
        epochs,
        seed,
        schedule: "constant".parse().expect("a schedule"),
        checkpoint_seconds: 1e6,
        ..FitConfig::default()
    }
}

/// Epochs after which a value is first at most `goal`, interpolated between two epochs.
pub(super) fn reached(values: &[f64], goal: f64) -> Option<f64> {
    let at = values.iter().position(|&value| value <= goal)?;
    Some(match at.checked_sub(1) {
        Some(before) => {
            let (from, to) = (values[before], values[at]);
            at as f64 + (from - goal) / (from - to)
        }
        None => 1.0,
    })
}

#[cfg(test)]
mod tests {
    use super::reached;

    #[test]
    fn goals_are_met_between_epochs() {
        let losses = [3.0, 2.0, 1.0, 1.5];
        assert_eq!(reached(&losses, 3.5), Some(1.0));
        assert_eq!(reached(&losses, 1.5), Some(2.5));
        assert_eq!(reached(&losses, 1.0), Some(3.0));
        assert_eq!(reached(&losses, 0.5), None);
        assert_eq!(reached(&[f64::NAN, 1.0], 2.0).map(f64::is_nan), Some(true));
    }
}
