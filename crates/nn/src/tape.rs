//! Reverse-mode differentiation: operators put closures on a tape; these turn the gradient of an operator's output into
//! the gradients of its inputs.
//!
//! A tape starts with leaves, by index: the parameters, and other tensors whose gradients are needed. A tape without
//! leaves records nothing, for running a net without training. The backward pass takes the closures from the last to
//! the first and drops each, with the tensors it kept, once it has run.

use std::ops::Deref;

use pelton_kernels::Precision;

use crate::tensor::Tensor;

/// A tensor, and its index on the tape if it needs a gradient.
#[derive(Clone)]
pub(crate) struct Taped {
    pub(crate) value: Tensor,
    pub(crate) node: Option<usize>,
}

impl From<Tensor> for Taped {
    fn from(value: Tensor) -> Taped {
        Taped { value, node: None }
    }
}

impl Taped {
    /// The same numbers under another shape.
    pub(crate) fn reshape(self, shape: &[usize]) -> Taped {
        Taped {
            value: self.value.reshape(shape),
            ..self
        }
    }
}

impl Deref for Taped {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.value
    }
}

/// Gradients by index.
type Gradients = Vec<Option<Tensor>>;
/// Takes the gradient of an output and adds to those of the inputs.
type Backward = Box<dyn FnOnce(Tensor, &mut Gradients) + Send>;

pub(crate) struct Tape {
    /// Of the products of layers.
    pub(crate) precision: Precision,
    leaves: usize,
    nodes: Vec<Backward>,
}

impl Tape {
    pub(crate) fn new(leaves: usize, precision: Precision) -> Tape {
        Tape {
            precision,
            leaves,
            nodes: Vec::new(),
        }
    }

    /// Records nothing.
    pub(crate) fn off() -> Tape {
        Tape::new(0, Precision::F32)
    }

    /// A leaf; [`backward`](Tape::backward) returns its gradient under `index`.
    pub(crate) fn leaf(&self, index: usize, value: Tensor) -> Taped {
        let node = (index < self.leaves).then_some(index);
        Taped { value, node }
    }

    /// Puts `output`, made from tensors with the indices `inputs`, on the tape. `backward` gets the gradient of
    /// the output and which inputs want theirs.
    pub(crate) fn record<const N: usize>(
        &mut self,
        inputs: [Option<usize>; N],
        output: Tensor,
        backward: impl FnOnce(Tensor, [bool; N]) -> [Option<Tensor>; N] + Send + 'static,
    ) -> Taped {
        if inputs.iter().all(Option::is_none) {
            return output.into();
        }
        let node = self.leaves + self.nodes.len();
        self.nodes.push(Box::new(move |gradient, gradients| {
            let made = backward(gradient, inputs.map(|input| input.is_some()));
            for (input, gradient) in inputs.into_iter().zip(made) {
                if let (Some(input), Some(gradient)) = (input, gradient) {
                    accumulate(&mut gradients[input], gradient);
                }
            }
        }));
        Taped {
            value: output,
            node: Some(node),
        }
    }

    /// The gradients of the leaves from that of the tensor with index `end`; `None` for leaves that it does not depend
    /// on. `meanwhile` is called after each operator.
    pub(crate) fn backward(
        self,
        end: Option<usize>,
        gradient: Tensor,
        meanwhile: &dyn Fn(),
    ) -> Vec<Option<Tensor>> {
        let mut gradients = vec![None; self.leaves + self.nodes.len()];
        if let Some(end) = end {
            gradients[end] = Some(gradient);
        }
        for (at, node) in self.nodes.into_iter().enumerate().rev() {
            if let Some(gradient) = gradients[self.leaves + at].take() {
                node(gradient, &mut gradients);
                meanwhile();
            }
        }
        gradients.truncate(self.leaves);
        gradients
    }
}

/// Adds a gradient to those before it.
pub(crate) fn accumulate(sum: &mut Option<Tensor>, gradient: Tensor) {
    *sum = Some(match sum.take() {
        Some(sum) => sum.plus(&gradient),
        None => gradient,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x·factor + y
    fn combine(tape: &mut Tape, x: &Taped, factor: f32, y: &Taped) -> Taped {
        let scaled = move |x: &Tensor| {
            let numbers: Vec<f32> = x.iter().map(|x| x * factor).collect();
            Tensor::from_slice(&numbers, x.shape())
        };
        let value = scaled(x).plus(y);
        tape.record([x.node, y.node], value, move |gradient, [dx, dy]| {
            [dx.then(|| scaled(&gradient)), dy.then_some(gradient)]
        })
    }

    #[test]
    fn gradients_add_up_over_all_uses() {
        let mut tape = Tape::new(3, Precision::F32);
        let x = tape.leaf(0, Tensor::from_slice(&[1.0, -2.0], &[2]));
        let y = tape.leaf(1, Tensor::from_slice(&[3.0, 4.0], &[2]));
        let first = combine(&mut tape, &x, 5.0, &y);
        let end = combine(&mut tape, &first, 2.0, &x);
        let aside = combine(&mut tape, &first, 7.0, &y);
        assert_eq!(end[..], [17.0, -14.0]);
        assert!(aside.node > end.node);
        let gradients = tape.backward(end.node, Tensor::from_slice(&[1.0, 10.0], &[2]), &|| ());
        assert_eq!(gradients[0].as_ref().unwrap()[..], [11.0, 110.0]);
        assert_eq!(gradients[1].as_ref().unwrap()[..], [2.0, 20.0]);
        assert!(gradients[2].is_none());
    }

    #[test]
    fn a_tape_without_leaves_records_nothing() {
        let mut tape = Tape::off();
        let x = tape.leaf(0, Tensor::from_slice(&[1.0], &[1]));
        let y = combine(&mut tape, &x, 2.0, &x);
        assert!(y.node.is_none() && tape.nodes.is_empty());
    }
}
