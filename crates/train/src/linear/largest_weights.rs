//! The largest weights of a model, by the names of their features.

use pelton_format::{Dataset, Numbering, Schema};
use pelton_linear::{Model, positive_class};
use pelton_run::SignedBars;

/// Weights shown for one vector, and for each of several.
const MOST: usize = 30;
const MOST_EACH: usize = 10;
/// Most classes to show weights of.
const MOST_CLASSES: usize = 6;

/// The largest weights of a model with one vector, or of each of its first classes.
pub(super) fn largest_weights(model: &Model, dataset: &Dataset) -> Vec<SignedBars> {
    let vectors = model.weights.subproblems();
    let most = if vectors == 1 { MOST } else { MOST_EACH };
    let class = |class: u32| model.classes.describe(class);
    let names = Names::new(model.columns.as_deref(), dataset);
    let scaled = match &model.scale {
        Some(_) => " They are for scaled features.",
        None => "",
    };
    let shown = (0..vectors.min(MOST_CLASSES)).map(|vector| {
        let weights = &model.weights.vector(vector)[..model.weights.features()];
        // With two classes, values above 0 mean the first, which need not be the positive one.
        let is_turned = model.classes.len() == 2 && positive_class(&model.classes) == 1;
        let sign = if is_turned { -1.0 } else { 1.0 };
        let found = largest(weights, most);
        let bars = found
            .iter()
            .map(|&at| (names.of(at), sign * f64::from(weights[at])));
        let bars: Vec<(String, f64)> = bars.collect();
        let hashed = if found.iter().any(|at| names.is_hashed(*at)) {
            " A feature named hash is shared by several words or values."
        } else {
            ""
        };
        let (title, note) = match model.classes.len() {
            0 => (
                "Largest weights".to_string(),
                "To the right: raises the prediction.".to_string(),
            ),
            2 => {
                let positive = positive_class(&model.classes);
                let (right, left) = (class(positive), class(1 - positive));
                let note = format!("To the right: for class {right}; to the left: for {left}.");
                ("Largest weights".to_string(), note)
            }
            _ => {
                let own = class(vector as u32);
                let note = format!("To the right: for class {own}; to the left: against it.");
                (format!("Largest weights of class {own}"), note)
            }
        };
        SignedBars {
            title,
            note: format!("{note}{scaled}{hashed}"),
            bars,
        }
    });
    shown.filter(|shown| !shown.bars.is_empty()).collect()
}

/// The names of features: those of their columns, or else their indices as the file counts them.
pub(super) struct Names {
    columns: Vec<String>,
    /// Whether features without a name are those of hashed columns.
    are_hashed: bool,
    numbering: Option<Numbering>,
}

impl Names {
    pub fn new(schema: Option<&Schema>, dataset: &Dataset) -> Names {
        Names {
            columns: schema.map_or(Vec::new(), Schema::feature_names),
            are_hashed: schema.is_some_and(|schema| !schema.codes.is_empty()),
            numbering: dataset.files().first().map(|file| file.numbering()),
        }
    }

    fn is_hashed(&self, at: usize) -> bool {
        self.are_hashed && at >= self.columns.len()
    }

    /// The name of a feature.
    pub fn of(&self, at: usize) -> String {
        match (self.columns.get(at), self.numbering) {
            (Some(name), _) => name.clone(),
            (None, _) if self.are_hashed => format!("hash{}", at - self.columns.len()),
            (None, Some(numbering)) => format!("feature {}", numbering.of(at as u64)),
            (None, None) => format!("feature {at}"),
        }
    }
}

/// Indices of the largest nonzero weights by size, largest first; ties by index.
///
/// Costs one pass, and memory for `most` weights only.
fn largest(weights: &[f32], most: usize) -> Vec<usize> {
    let size = |at: usize| weights[at].abs();
    let mut found: Vec<usize> = Vec::with_capacity(most + 1);
    for at in 0..weights.len() {
        let least = found.last().map_or(0.0, |last| size(*last));
        if size(at) > least || found.len() < most && size(at) > 0.0 {
            let place = found.partition_point(|other| size(*other) >= size(at));
            found.insert(place, at);
            found.truncate(most);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_weights_come_first() {
        let weights = [0.0, -3.0, 1.0, 0.0, 3.0, 2.0, -0.5];
        assert_eq!(largest(&weights, 3), [1, 4, 5]);
        assert_eq!(largest(&weights, 10), [1, 4, 5, 2, 6]);
        assert_eq!(largest(&[0.0; 4], 3), [0; 0]);
    }
}
