//! Weight of an example in the loss, by its class.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use pelton_data::{DataError, HeldOut, OpenedData};
use pelton_feed::BadExamples;
use pelton_format::{ClassMap, ClassName};
use pelton_run::RunContext;

use crate::class_sizes::class_sizes;
use crate::error::TrainError;

/// Weights of classes in the loss: as text `balanced`, or a file.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// One over the count of a class's training records, so that all classes have equal weight.
    Balanced,
    /// Weights from a CSV file with a line `CLASS,WEIGHT` for each class.
    File(PathBuf),
}

impl ClassWeights {
    /// A line of help.
    pub const HELP: &str = "Weight of an example in the loss, by its class: balanced (one over the records of the class), or a CSV file with a line CLASS,WEIGHT for each class";

    /// The weight of each class of `data`. All ranks call it; the first reads.
    ///
    /// Errors: a file that cannot be read, or does not give each class one number of at least 0; only zeros.
    pub(crate) fn of(
        &self,
        data: &OpenedData,
        held_out: Option<&HeldOut>,
        bad_examples: BadExamples,
        context: &mut RunContext<'_>,
    ) -> Result<Vec<f32>, TrainError> {
        let labels = data.dataset.labels();
        match self {
            ClassWeights::Balanced => {
                let setting = "`class_weights` balanced";
                let counts = class_sizes(data, setting, held_out, bad_examples, context)?;
                let mean = data.dataset.records() as f64 / labels.len() as f64;
                let weight = |&count: &u64| (mean / count.max(1) as f64) as f32;
                Ok(counts.iter().map(weight).collect())
            }
            ClassWeights::File(path) => {
                let mut weights = vec![0.0; labels.len()];
                if context.comm.rank() == 0 {
                    let file = path.display().to_string();
                    let text = pelton_storage::read_text(path).map_err(|error| {
                        TrainError::config(format!("{file}: cannot be read: {error}"))
                    })?;
                    weights = weights_of(&text, labels)
                        .map_err(|what| TrainError::config(format!("{file}: {what}")))?;
                }
                let sent = context.comm.broadcast(&mut weights, 0);
                sent.map_err(DataError::from)?;
                Ok(weights)
            }
        }
    }
}

/// Lines `CLASS,WEIGHT`, perhaps below a header. Names with commas or quotes may be in quotes.
fn weights_of(text: &str, labels: &ClassMap) -> Result<Vec<f32>, String> {
    let mut found = vec![None; labels.len()];
    for (at, line) in text.lines().enumerate() {
        let (line, number) = (line.trim(), at + 1);
        if line.is_empty() || at == 0 && line == "class,weight" {
            continue;
        }
        let (name, weight) = line.rsplit_once(',').ok_or_else(|| {
            format!(
                "line {number} is not CLASS,WEIGHT; give a class and its weight, such as cat,1.5"
            )
        })?;
        let name = match name
            .strip_prefix('"')
            .and_then(|name| name.strip_suffix('"'))
        {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => name.trim().to_string(),
        };
        let Ok(called) = name.parse::<ClassName>();
        let class = labels.class_called(&called).ok_or_else(|| {
            format!(
                "line {number}: the data has no class {name}; its classes are {}",
                labels.listed()
            )
        })?;
        let weight = weight.trim().parse::<f32>().ok();
        let weight = weight.filter(|weight| *weight >= 0.0 && weight.is_finite());
        let weight = weight.ok_or_else(|| {
            format!("line {number}: the weight of class {name} must be a finite number of at least 0, such as 1.5")
        })?;
        if found[class as usize].replace(weight).is_some() {
            return Err(format!(
                "line {number}: class {name} has a weight already; give it one"
            ));
        }
    }
    if let Some(class) = found.iter().position(Option::is_none) {
        return Err(format!(
            "class {} has no weight; give each of the {} classes one, and 0 to one that does not count",
            labels.describe(class as u32),
            labels.len()
        ));
    }
    let weights: Vec<f32> = found.into_iter().flatten().collect();
    if weights.iter().all(|&weight| weight == 0.0) {
        return Err(
            "all weights are 0, so that no example counts; give a class a larger one".to_string(),
        );
    }
    Ok(weights)
}

impl FromStr for ClassWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<ClassWeights, String> {
        match text {
            "" => Err("class weights are balanced or a CSV file; give one of them".to_string()),
            "balanced" => Ok(ClassWeights::Balanced),
            file => Ok(ClassWeights::File(file.into())),
        }
    }
}

impl fmt::Display for ClassWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassWeights::Balanced => f.write_str("balanced"),
            ClassWeights::File(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_each_class_a_weight() {
        let names = ["cat", "dog, wild", "eel"].map(str::to_string);
        let labels = ClassMap::named(names.to_vec());
        let check = |text: &str| weights_of(text, &labels);
        let file = "class,weight\n\"dog, wild\", 0.5\neel,0\ncat,2\n";
        assert_eq!(check(file), Ok(vec![2.0, 0.5, 0.0]));
        for (line, said) in [
            ("cat,-1", "line 1: the weight of class cat must be"),
            ("cat,inf", "line 1: the weight of class cat must be"),
            ("cat,x", "line 1: the weight of class cat must be"),
            (
                "cow,1",
                "line 1: the data has no class cow; its classes are",
            ),
            ("cat", "line 1 is not CLASS,WEIGHT"),
            ("cat,1\ncat,2", "line 2: class cat has a weight already"),
            (
                "cat,1\neel,1",
                "has no weight; give each of the 3 classes one",
            ),
            (
                "cat,0\neel,0\ndog\\, wild,0",
                "line 3: the data has no class",
            ),
            ("cat,0\neel,0\n\"dog, wild\",0", "all weights are 0"),
        ] {
            let error = check(line).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
