//! LIBLINEAR's text format:
//!
//! ```text
//! solver_type L2R_L1LOSS_SVC_DUAL
//! nr_class 2
//! label 1 -1
//! nr_feature 123
//! bias -1
//! w
//! 0.5
//! …
//! ```
//!
//! After `w` a line a feature (the bias last) with a number a vector; a bias of -1 means none. A model of real targets
//! has two classes and no labels. Source: `save_model` and `load_model` in LIBLINEAR 2.50's linear.cpp. Weights are
//! written with enough digits to read back the same f64, those of a scaled model as the unrounded products: LIBLINEAR
//! reads f64 and must predict the same.

use std::io::{BufRead, Write};
use std::path::Path;

use super::contents::{Model, check_shape, first_repeated, malformed};
use pelton_format::{ClassMap, Scale};

use crate::error::LinearError;
use crate::loss::Loss;
use crate::penalty::Penalty;
use crate::problem::is_usable_bias;
use crate::weights::Weights;

/// The longest line accepted: labels of a hundred thousand classes fit.
const LONGEST_LINE: u64 = 4 << 20;

/// LIBLINEAR's solver types for a loss and a penalty; the first is the one written.
pub(super) fn solvers(loss: Loss, penalty: Penalty) -> &'static [&'static str] {
    match (loss, penalty) {
        (_, Penalty::L2) => loss.function().liblinear(),
        (Loss::Logistic, Penalty::L1) => &["L1R_LR"],
        (Loss::SquaredHinge, Penalty::L1) => &["L1R_L2LOSS_SVC"],
        _ => &[],
    }
}

/// The labels as LIBLINEAR's integers, or an error that names the first other label, or a loss that LIBLINEAR lacks.
pub(crate) fn integer_labels(model: &Model, path: &Path) -> Result<Vec<i32>, LinearError> {
    let integer = |&label: &f64| {
        let rounded = label as i32;
        if f64::from(rounded) == label {
            Ok(rounded)
        } else {
            Err(LinearError::LabelNotInteger {
                path: path.to_path_buf(),
                label,
            })
        }
    };
    if solvers(model.loss, model.penalty).is_empty() {
        return Err(LinearError::NotInLiblinear {
            path: path.to_path_buf(),
            loss: match model.penalty {
                Penalty::ElasticNet(_) | Penalty::None => {
                    format!("{} with penalty {}", model.loss, model.penalty)
                }
                _ => model.loss.to_string(),
            },
        });
    }
    model.classes.values().iter().map(integer).collect()
}

pub(crate) fn write(model: &Model, labels: &[i32], out: &mut impl Write) -> std::io::Result<()> {
    let weights = &model.weights;
    let solvers = solvers(model.loss, model.penalty);
    writeln!(
        out,
        "solver_type {}",
        solvers.first().copied().unwrap_or_default()
    )?;
    if model.loss.has_real_targets() {
        writeln!(out, "nr_class 2")?;
    } else {
        writeln!(out, "nr_class {}", labels.len())?;
        write!(out, "label")?;
        for label in labels {
            write!(out, " {label}")?;
        }
        writeln!(out)?;
    }
    writeln!(out, "nr_feature {}", weights.features())?;
    match &model.scale {
        None if model.target_centre == 0.0 => {
            writeln!(out, "bias {}\nw", f64::from(weights.bias().unwrap_or(-1.0)))?;
            let vectors = (0..weights.subproblems()).map(|number| weights.vector(number));
            write_weights::<f32, _>(&vectors.collect::<Vec<_>>(), out)
        }
        scale => {
            let bias = match weights.bias() {
                None if scale.as_ref().is_some_and(Scale::has_shifts) => Some(1.0),
                bias => bias,
            };
            // Unscaled rows get the same value as scaled ones from the model.
            let unscaled = |number| {
                let (mut vector, intercept) = model.coefficients(number);
                vector.extend(bias.map(|bias| intercept / f64::from(bias)));
                vector
            };
            writeln!(out, "bias {}\nw", f64::from(bias.unwrap_or(-1.0)))?;
            let vectors = (0..weights.subproblems()).map(unscaled);
            write_weights::<f64, _>(&vectors.collect::<Vec<_>>(), out)
        }
    }
}

/// A line for each index of the vectors.
fn write_weights<T, V>(vectors: &[V], out: &mut impl Write) -> std::io::Result<()>
where
    T: Copy + Default + PartialEq + Into<f64>,
    V: AsRef<[T]>,
{
    let length = vectors.first().map_or(0, |vector| vector.as_ref().len());
    for place in 0..length {
        for vector in vectors {
            let weight = vector.as_ref()[place];
            if weight == T::default() {
                // Most of millions of weights are 0, and writing a number takes ten times as long.
                out.write_all(b"0 ")?;
            } else {
                write!(out, "{} ", weight.into())?;
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Numbered lines, of limited length.
struct Lines<'a, R> {
    input: R,
    path: &'a Path,
    number: u64,
    line: String,
}

impl<R: BufRead> Lines<'_, R> {
    /// The next line without its end; an error at the end of the file.
    fn next(&mut self) -> Result<&str, LinearError> {
        let (path, number) = (self.path, self.number + 1);
        let none = || malformed(path, Some(number), "the end of the file");
        self.next_if_any()?.ok_or_else(none)
    }

    /// The next line without its end, if there is one.
    fn next_if_any(&mut self) -> Result<Option<&str>, LinearError> {
        self.line.clear();
        self.number += 1;
        let wrong = |found: &str| malformed(self.path, Some(self.number), found);
        let mut limited = std::io::Read::take(&mut self.input, LONGEST_LINE);
        let read = limited.read_line(&mut self.line);
        let read = read.map_err(super::contents::io("read", self.path))?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 == LONGEST_LINE {
            return Err(wrong("a line that is too long"));
        }
        if !self.line.ends_with('\n') {
            // LIBLINEAR ends every line, so this file was cut, perhaps within a number.
            return Err(wrong("a line without its end"));
        }
        Ok(Some(self.line.trim()))
    }
}

/// The header before the weights.
#[derive(Default)]
struct Header {
    loss: Option<Loss>,
    penalty: Penalty,
    classes: Option<usize>,
    features: Option<usize>,
    bias: Option<f32>,
    labels: Vec<f64>,
}

impl Header {
    /// Takes in one line; whether it was the `w` that ends the header.
    fn accept(&mut self, line: &str) -> Option<bool> {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        match key {
            "solver_type" => {
                let penalties = [Penalty::L2, Penalty::L1];
                let mut known = Loss::ALL
                    .iter()
                    .flat_map(|&loss| penalties.map(|penalty| (loss, penalty)));
                let known = known.find(|&(loss, penalty)| solvers(loss, penalty).contains(&value));
                let (loss, penalty) = known?;
                (self.loss, self.penalty) = (Some(loss), penalty);
            }
            "nr_class" => self.classes = Some(value.parse().ok()?),
            "nr_feature" => self.features = Some(value.parse().ok()?),
            "bias" => self.bias = Some(value.parse().ok().filter(|bias: &f32| bias.is_finite())?),
            "label" => {
                let labels = value.split_whitespace().map(|label| label.parse::<i32>());
                self.labels = labels
                    .map(|label| label.map(f64::from))
                    .collect::<Result<_, _>>()
                    .ok()?;
            }
            "w" => return Some(true),
            _ => return None,
        }
        Some(false)
    }
}

pub(crate) fn read(input: impl BufRead, path: &Path) -> Result<Model, LinearError> {
    let mut lines = Lines {
        input,
        path,
        number: 0,
        line: String::new(),
    };
    let mut header = Header::default();
    loop {
        let line = lines.next()?;
        let done = header.accept(line);
        let found = line.chars().take(60).collect::<String>();
        match done {
            Some(true) => break,
            Some(false) => {}
            None => return Err(malformed(path, Some(lines.number), format!("`{found}`"))),
        }
    }
    let at = Some(lines.number);
    let (Some(loss), Some(classes), Some(features)) =
        (header.loss, header.classes, header.features)
    else {
        return Err(malformed(
            path,
            at,
            "no solver_type, nr_class or nr_feature before w",
        ));
    };
    let is_real = loss.has_real_targets();
    if is_real && classes != 2 {
        return Err(malformed(
            path,
            at,
            format!("{classes} classes of a regression, but LIBLINEAR writes 2"),
        ));
    }
    let labels = if is_real {
        header.labels.len()
    } else {
        classes
    };
    let vectors = check_shape(path, at, (loss, labels), features)?;
    if header.labels.len() != labels {
        return Err(malformed(
            path,
            at,
            format!("{} labels for {classes} classes", header.labels.len()),
        ));
    }
    if let Some(label) = first_repeated(&header.labels) {
        return Err(malformed(path, at, format!("the label {label} twice")));
    }
    let bias = header.bias.filter(|&bias| bias > 0.0);
    if let Some(bias) = bias.filter(|&bias| !is_usable_bias(bias)) {
        return Err(malformed(path, at, format!("the bias {bias:e}")));
    }
    let length = features + usize::from(bias.is_some());
    let columns = read_weights(&mut lines, vectors, length)?;
    while let Some(line) = lines.next_if_any()? {
        if !line.is_empty() {
            let found = format!("more than the {length} lines of weights that its header states");
            return Err(malformed(path, Some(lines.number), found));
        }
    }
    Ok(Model {
        loss,
        cost: None,
        class_weights: Vec::new(),
        classes: ClassMap::new(header.labels),
        means: None,
        penalty: header.penalty,
        bias_is_free: false,
        weights: Weights::from_vectors(features, bias, columns),
        scale: None,
        threshold: None,
        target_centre: 0.0,
        columns: None,
    })
}

/// Reads `length` lines of a number for each of `vectors` vectors. The vectors grow with the lines
/// read, so a short file that claims many features allocates little.
fn read_weights<R: BufRead>(
    lines: &mut Lines<'_, R>,
    vectors: usize,
    length: usize,
) -> Result<Vec<Vec<f32>>, LinearError> {
    let path = lines.path;
    let mut columns: Vec<Vec<f32>> = vec![Vec::new(); vectors];
    for _ in 0..length {
        let line = lines.next()?;
        let mut numbers = line.split_whitespace().map(|number| number.parse::<f32>());
        let complete = columns.iter_mut().all(|column| match numbers.next() {
            Some(Ok(number)) if number.is_finite() => {
                column.push(number);
                true
            }
            _ => false,
        });
        if !complete || numbers.next().is_some() {
            let found = format!("not {vectors} finite number(s)");
            return Err(malformed(path, Some(lines.number), found));
        }
    }
    Ok(columns)
}
