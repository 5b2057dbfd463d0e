//! The coefficients of a model of maximum likelihood, with names: for summary, report and messages.

use pelton_format::Scale;
use pelton_linear::{
    CONFIDENCE, Coefficient, Inference, Model, Precision, Problem, positive_class,
};
use pelton_run::Table;

use crate::summary::{CoefficientFigures, InferenceFigures};

/// Coefficients that the command prints.
const PRINTED: usize = 40;
/// Most names in a sentence.
const NAMED: usize = 5;

/// The coefficients of all vectors, from `records` records; `name` returns the name of a feature.
pub(super) fn inference(
    problem: &Problem,
    found: &[Precision],
    records: u64,
    model: &Model,
    name: impl Fn(usize) -> String,
) -> InferenceFigures {
    let is_turned = model.classes.len() == 2 && positive_class(&model.classes) == 1;
    let scale: Option<&Scale> = model.scale.as_ref();
    let centre = model.target_centre;
    let of = |found| Inference::new(problem, found, records, scale, centre, is_turned);
    let vectors: Vec<Inference> = found.iter().map(of).collect();
    let freedom = vectors.first().and_then(|vector| vector.freedom);
    let figures = |class: Option<String>, coefficient: &Coefficient| {
        let precise = coefficient.precise;
        let number = |value: f64| value.is_finite().then_some(value);
        CoefficientFigures {
            class,
            name: coefficient.feature.map_or("intercept".to_string(), &name),
            estimate: coefficient.estimate,
            standard_error: precise.map(|precise| precise.error),
            statistic: precise.and_then(|precise| number(precise.statistic)),
            p: precise.and_then(|precise| number(precise.p)),
            low: precise.and_then(|precise| number(precise.interval[0])),
            high: precise.and_then(|precise| number(precise.interval[1])),
            is_unbounded: coefficient.is_unbounded,
        }
    };
    let coefficients = vectors.iter().enumerate().flat_map(|(vector, found)| {
        let class = (vectors.len() > 1).then(|| model.classes.describe(vector as u32));
        let all = found.coefficients.iter();
        all.map(|coefficient| figures(class.clone(), coefficient))
            .collect::<Vec<_>>()
    });
    InferenceFigures {
        statistic: if freedom.is_some() { "t" } else { "z" }.to_string(),
        degrees_of_freedom: freedom,
        confidence: CONFIDENCE,
        coefficients: coefficients.collect(),
    }
}

/// Warnings about coefficients that were not found.
pub(super) fn warnings(found: &InferenceFigures) -> Vec<String> {
    let named = |of: &dyn Fn(&CoefficientFigures) -> bool| {
        let all: Vec<&str> = found
            .coefficients
            .iter()
            .filter(|found| of(found))
            .map(|found| &found.name[..])
            .collect();
        let some = all
            .iter()
            .take(NAMED)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        match all.len() {
            0 => None,
            count if count > NAMED => Some(format!("{some} and {} more", count - NAMED)),
            _ => Some(some),
        }
    };
    let unbounded = named(&|found| found.is_unbounded).map(|names| {
        format!("the weights of {names} grew without end: the likelihood has no greatest value, as when all records with such a feature have one label; give `penalty` l2, or leave these out")
    });
    let combined =
        named(&|found| found.standard_error.is_none() && !found.is_unbounded).map(|names| {
            format!(
                "{names}: combinations of other features, so their coefficients are 0 and what others are compared with"
            )
        });
    unbounded.into_iter().chain(combined).collect()
}

/// The table of the report.
pub(super) fn table(found: &InferenceFigures) -> Table {
    let has_classes = found.coefficients.iter().any(|found| found.class.is_some());
    let mut head = vec![
        "coefficient",
        "estimate",
        "standard error",
        &found.statistic,
        "p",
        "from",
        "to",
    ];
    if has_classes {
        head.insert(0, "class");
    }
    let number = |value: Option<f64>| value.map_or("-".to_string(), digits);
    let row = |found: &CoefficientFigures| {
        let numbers = [
            Some(found.estimate),
            found.standard_error,
            found.statistic,
            found.p,
            found.low,
            found.high,
        ];
        let name = found.class.iter().cloned().chain([found.name.clone()]);
        name.chain(numbers.map(number)).collect()
    };
    let share = 100.0 * found.confidence;
    let freedom = match found.degrees_of_freedom {
        Some(freedom) => format!(" by Student's distribution of {freedom} degrees of freedom"),
        None => " by the normal distribution".to_string(),
    };
    Table {
        title: "Coefficients".to_string(),
        rows: found.coefficients.iter().map(row).collect(),
        head: head.into_iter().map(str::to_string).collect(),
        note: format!(
            "Of features as the data has them. p is of the hypothesis that a coefficient is 0, and the interval of {share} %,{freedom}."
        ),
    }
}

/// A number with its first digits, however small or large it is.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || (1e-3..1e6).contains(&size) => format!("{value:.6}"),
        _ => format!("{value:.4e}"),
    }
}

/// The same as text, of the first coefficients.
pub(super) fn text(found: &InferenceFigures) -> String {
    let Table { mut rows, head, .. } = table(found);
    let all = rows.len();
    rows.truncate(PRINTED);
    let names = head.len() - 6;
    let lines = || std::iter::once(&head).chain(&rows);
    let width = |column: usize| {
        lines()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |line: &Vec<String>| {
        let cells = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                if column < names {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
        cells.collect::<Vec<_>>().join("  ")
    };
    let mut text = lines().map(line).collect::<Vec<_>>().join("\n");
    if all > PRINTED {
        text += &format!(
            "\nand {} more, in summary.json and report.html",
            all - PRINTED
        );
    }
    text
}
