//! Parameters: how they begin, and how they are saved: safetensors with PyTorch's names and layouts.

use std::collections::HashMap;

use pelton_key::{KeyedRng, Stage, key, mix};

use crate::error::NnError;
use crate::layer::{Init, Parameter};

/// An array of f32 with its name, as it is saved.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedArray {
    /// Its name.
    pub name: String,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its numbers, row by row.
    pub values: Vec<f32>,
}

/// File name of saved parameters.
pub const PARAMETERS: &str = "model.safetensors";

/// The initial numbers of a parameter: a function of `seed` and its name.
pub(crate) fn begin(parameter: &Parameter, seed: u64) -> Vec<f32> {
    let stage = key(seed, 0, Stage::Parameters);
    let key = parameter
        .name
        .bytes()
        .fold(stage, |key, byte| mix(key ^ u64::from(byte)));
    let mut random = KeyedRng::new(key);
    let len = parameter.len();
    match parameter.init {
        Init::Constant(value) => vec![value; len],
        Init::Uniform(bound) => (0..len)
            .map(|_| (2.0 * random.next_f64() - 1.0) as f32 * bound)
            .collect(),
        Init::Normal(deviation) => (0..len)
            .map(|_| {
                // Box and Muller; 1 − u is not 0.
                let (u, v) = (1.0 - random.next_f64(), random.next_f64());
                let normal = (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos();
                normal as f32 * deviation
            })
            .collect(),
    }
}

/// PyTorch's sizes of a parameter, and the position of our axes there.
fn published(parameter: &Parameter) -> (Vec<usize>, Option<Exchange>) {
    match (&parameter.shape[..], parameter.flattened) {
        (&[out, height, width, channels], _) => (
            vec![out, channels, height, width],
            Some(Exchange {
                outer: out,
                pixels: height * width,
                channels,
            }),
        ),
        (&[out, _], Some([channels, height, width])) => (
            parameter.shape.clone(),
            Some(Exchange {
                outer: out,
                pixels: height * width,
                channels,
            }),
        ),
        (shape, _) => (shape.to_vec(), None),
    }
}

/// Channels last here, first there.
struct Exchange {
    outer: usize,
    pixels: usize,
    channels: usize,
}

impl Exchange {
    /// From [outer, a, b] to [outer, b, a].
    fn swap(&self, values: &[f32], from: usize, to: usize) -> Vec<f32> {
        let mut out = vec![0.0; values.len()];
        let each = from * to;
        for o in 0..self.outer {
            for i in 0..from {
                for j in 0..to {
                    out[o * each + j * from + i] = values[o * each + i * to + j];
                }
            }
        }
        out
    }
}

/// As PyTorch has it.
pub(crate) fn publish(parameter: &Parameter, values: Vec<f32>) -> NamedArray {
    let (shape, exchange) = published(parameter);
    let values = match exchange {
        Some(of) => of.swap(&values, of.pixels, of.channels),
        None => values,
    };
    NamedArray {
        name: parameter.name.clone(),
        shape,
        values,
    }
}

/// The numbers of each parameter from arrays saved under PyTorch's names.
pub(crate) fn collect(
    parameters: &[Parameter],
    saved: Vec<NamedArray>,
) -> Result<Vec<Vec<f32>>, NnError> {
    let mut by_name: HashMap<String, NamedArray> =
        saved.into_iter().map(|a| (a.name.clone(), a)).collect();
    parameters
        .iter()
        .map(|parameter| {
            let wrong = |what: String| NnError::Parameters {
                what,
                remedy: "give the parameters of the same net, with the same sizes and classes",
            };
            let name = &parameter.name;
            let array = by_name
                .remove(name)
                .ok_or_else(|| wrong(format!("the saved parameters lack {name}")))?;
            let (shape, exchange) = published(parameter);
            if array.shape != shape || array.values.len() != parameter.len() {
                return Err(wrong(format!(
                    "the saved parameter {name} has the sizes {:?}, the net {shape:?}",
                    array.shape
                )));
            }
            Ok(match exchange {
                Some(of) => of.swap(&array.values, of.channels, of.pixels),
                None => array.values,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Role;

    fn parameter(shape: &[usize], flattened: Option<[usize; 3]>) -> Parameter {
        Parameter {
            name: "a.weight".into(),
            shape: shape.to_vec(),
            init: Init::Normal(0.5),
            role: Role::Weight,
            flattened,
        }
    }

    #[test]
    fn saved_parameters_are_pytorchs_and_come_back() {
        // [out 1, height 1, width 2, in 3]: pixel 0 has 0 1 2, pixel 1 has 3 4 5.
        let conv = parameter(&[1, 1, 2, 3], None);
        let values: Vec<f32> = (0..6).map(|x| x as f32).collect();
        let saved = publish(&conv, values.clone());
        assert_eq!(saved.shape, [1, 3, 1, 2]);
        assert_eq!(saved.values, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(collect(&[conv], vec![saved]).unwrap(), [values]);
        for (shape, flattened) in [
            (&[5, 12][..], Some([3, 2, 2])),
            (&[7], None),
            (&[4, 3, 3, 2], None),
        ] {
            let parameter = parameter(shape, flattened);
            let values = begin(&parameter, 3);
            let saved = publish(&parameter, values.clone());
            assert_eq!(collect(&[parameter], vec![saved]).unwrap(), [values]);
        }
    }

    #[test]
    fn parameters_of_another_net_are_refused() {
        let own = parameter(&[2, 3], None);
        let lacks = collect(std::slice::from_ref(&own), vec![])
            .unwrap_err()
            .to_string();
        assert!(lacks.contains("lack a.weight"), "{lacks}");
        let other = publish(&parameter(&[3, 3], None), vec![0.0; 9]);
        let sizes = collect(&[own], vec![other]).unwrap_err().to_string();
        assert!(sizes.contains("[3, 3], the net [2, 3]"), "{sizes}");
    }

    #[test]
    fn numbers_at_the_beginning_have_their_deviation() {
        let values = begin(&parameter(&[10_000], None), 1);
        let mean = values.iter().sum::<f32>() / 1e4;
        let square = values.iter().map(|x| x * x).sum::<f32>() / 1e4;
        // Deviations of the mean and of the mean square of 10 000: 0.005 and 0.0035.
        assert!(
            mean.abs() < 0.025 && (square - 0.25).abs() < 0.0175,
            "{mean} {square}"
        );
    }
}
