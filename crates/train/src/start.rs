//! Weights to begin from: those of another model, for the features and classes that both have.

use std::collections::HashMap;

use pelton_format::{ClassMap, Scale, Schema};
use pelton_linear::{Model, Problem, Weights};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// A model to begin from, of unscaled features.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The coefficients of each vector, and its intercept.
    pub vectors: Vec<(Vec<f64>, f64)>,
    /// Names of the first features; those after them are hashed. Empty if features have no names.
    pub names: Vec<String>,
    /// Names of the classes, for two or more.
    pub classes: Vec<String>,
}

impl Start {
    /// The start from a model.
    pub fn from_model(model: &Model) -> Start {
        let columns = model.columns.as_deref();
        Start {
            vectors: (0..model.weights.subproblems())
                .map(|k| model.coefficients(k))
                .collect(),
            names: columns.map_or(Vec::new(), Schema::feature_names),
            classes: described(&model.classes),
        }
    }

    /// Weights for a problem over features of these names and this scale, and a note on any weights not taken over.
    ///
    /// Errors: a model of other classes.
    pub(crate) fn weights(
        &self,
        problem: &Problem,
        labels: &ClassMap,
        names: &[String],
        (scale, target_centre): (Option<&Scale>, f64),
    ) -> Result<(Weights, Option<String>), TrainError> {
        let classes = if problem.loss().has_real_targets() {
            Vec::new()
        } else {
            described(labels)
        };
        // Two classes share one vector, for the first.
        let place = |class: &String| self.classes.iter().position(|other| other == class);
        let places: Option<Vec<usize>> = classes.iter().map(place).collect();
        let places = places.filter(|_| classes.len() == self.classes.len()).ok_or_else(|| {
            TrainError::config(format!(
                "`warm_start`: the model is of {}, and the data of {}; begin from a model of the same classes, or leave it out",
                listed(&self.classes),
                listed(&classes)
            ))
        })?;
        let features = problem.features();
        let of = self.origins(names, features);
        let vector = |k: usize| {
            let (from, sign) = match &places[..] {
                [first, _] => (0, if *first == 0 { 1.0 } else { -1.0 }),
                places => (places.get(k).copied().unwrap_or(0), 1.0),
            };
            let (old, intercept) = &self.vectors[from];
            let coefficient = |j: &Option<usize>| j.map_or(0.0, |j| sign * old[j]);
            let mut weights: Vec<f64> = of.iter().map(coefficient).collect();
            let mut constant = sign * intercept - target_centre;
            if let Some(scale) = scale {
                let shifts = weights.iter().zip(scale.shifts());
                constant += shifts.map(|(weight, shift)| weight * shift).sum::<f64>();
                let factors = weights.iter_mut().zip(scale.factors());
                factors.for_each(|(weight, factor)| *weight /= factor);
            }
            weights.extend(problem.bias().map(|bias| constant / f64::from(bias)));
            weights.iter().map(|&weight| weight as f32).collect()
        };
        let vectors = (0..problem.subproblems()).map(vector).collect();
        let (new, known) = (features, of.iter().flatten().count());
        let old = self.vectors.first().map_or(0, |(old, _)| old.len());
        let note = (known < new.max(old)).then(|| {
            format!(
                "training begins from the weights of {known} features that the model and the data have in common; {} of the data are new, and {} of the model are not in the data",
                new - known,
                old - known
            )
        });
        Ok((
            Weights::from_vectors(features, problem.bias(), vectors),
            note,
        ))
    }

    /// The feature of the model that each feature of the data is.
    fn origins(&self, names: &[String], features: usize) -> Vec<Option<usize>> {
        let old = self.vectors.first().map_or(0, |(old, _)| old.len());
        let named: HashMap<&String, usize> = self.names.iter().zip(0..).collect();
        let hashed = |j: usize| {
            let j = j - names.len() + self.names.len();
            // Hashed words have other indices if the number of hashed features differs.
            let is_same = features - names.len() == old - self.names.len();
            (is_same && j < old).then_some(j)
        };
        let of = |j: usize| match names.get(j) {
            Some(name) => named.get(name).copied(),
            None if names.is_empty() && self.names.is_empty() => (j < old).then_some(j),
            None => hashed(j),
        };
        (0..features).map(of).collect()
    }
}

fn described(classes: &ClassMap) -> Vec<String> {
    (0..classes.len() as u32)
        .map(|class| classes.describe(class))
        .collect()
}

fn listed(classes: &[String]) -> String {
    match classes {
        [] => "real targets".to_string(),
        [first, second] => format!("the classes {first} and {second}"),
        [first, .., last] => format!("{} classes from {first} to {last}", classes.len()),
        [only] => format!("the class {only}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_linear::Loss;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn weights_follow_names_classes_and_scales() {
        let start = Start {
            vectors: vec![(vec![1.0, -2.0, 4.0], 0.5)],
            names: names(&["a", "b", "c"]),
            classes: names(&["no", "yes"]),
        };
        let problem = Problem::new(Loss::Logistic, 1.0, 3, 2)
            .unwrap()
            .with_free_bias();
        let labels = ClassMap::named(names(&["yes", "no"]));
        let scale = Scale::new(vec![2.0, 1.0, 4.0], vec![10.0, 0.0, 1.0]).unwrap();
        let given = names(&["c", "new", "a"]);
        let (weights, note) = start
            .weights(&problem, &labels, &given, (Some(&scale), 0.0))
            .unwrap();
        // The classes are swapped: −(4 c + a + 0.5), in c = c'/2 + 10 and a = a'/4 + 1.
        assert_eq!(weights.vector(0), [-2.0, 0.0, -0.25, -41.5]);
        assert!(note.unwrap().contains("2 features"));
        let others = ClassMap::named(names(&["yes", "maybe"]));
        let refused = start
            .weights(&problem, &others, &given, (None, 0.0))
            .unwrap_err();
        assert!(refused.to_string().contains("same classes"), "{refused}");
        // Without names, features match by index.
        let plain = Start {
            names: Vec::new(),
            ..start
        };
        let problem = Problem::new(Loss::Logistic, 1.0, 4, 2).unwrap();
        let labels = ClassMap::named(names(&["no", "yes"]));
        let (weights, note) = plain.weights(&problem, &labels, &[], (None, 0.0)).unwrap();
        assert_eq!(weights.vector(0), [1.0, -2.0, 4.0, 0.0]);
        assert!(note.unwrap().contains("1 of the data are new"));
    }
}
