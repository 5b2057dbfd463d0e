//! Values of flags of `pelton train linear`.

use pelton_train::ClassName;

/// A value of `--intercept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Intercept {
    /// Not regularised.
    Free,
    /// Regularised as the other weights.
    Regularised,
    /// There is none.
    None,
}

/// A value of `--class-weight`.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeight {
    /// One over the share of each class.
    Balanced,
    /// A factor on the cost of one label.
    Factor(ClassName, f64),
}

/// Reads one.
pub fn class_weight(text: &str) -> Result<ClassWeight, String> {
    if text == "balanced" {
        return Ok(ClassWeight::Balanced);
    }
    let wrong =
        || format!("`{text}` is not LABEL=FACTOR, for example 1=2.5 or -1=0.5, nor balanced");
    let (label, factor) = text.rsplit_once('=').ok_or_else(wrong)?;
    match (label.parse(), factor.parse()) {
        (Ok(label), Ok(factor)) => Ok(ClassWeight::Factor(label, factor)),
        _ => Err(wrong()),
    }
}

/// A value of `--cost`: one or more.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs(pub Vec<f64>);

/// Reads numbers with commas between, or `auto`.
pub fn costs(text: &str) -> Result<Costs, String> {
    if text == "auto" {
        // As many as scikit-learn's LogisticRegressionCV has.
        let costs = (0..10).map(|step| 10_f64.powf(-4.0 + 8.0 * f64::from(step) / 9.0));
        return Ok(Costs(costs.collect()));
    }
    let wrong = |cost: &str| {
        format!(
            "`{cost}` is not a cost: give a number such as 1, several with commas between, or auto"
        )
    };
    let cost = |cost: &str| cost.trim().parse().map_err(|_| wrong(cost));
    text.split(',')
        .map(cost)
        .collect::<Result<_, _>>()
        .map(Costs)
}
