//! Running the layers of a net.

use crate::bags::Bags;
use crate::layer::{Layer, Role, Summary};
use crate::operands::{Counts, LossOptions, NormMode};
use crate::operators::{
    LOGITS, attention, average, bag, batch_norm, conv2d, dropout, embedding, gelu, layer_norm,
    linear, linear_loss, lstm, max_pool, relu, sum,
};
use crate::tape::{Tape, Taped};
use crate::tensor::Tensor;

/// A batch of sequences: its shape, and the starts of sequences.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequences {
    /// Rows.
    pub(crate) batch: usize,
    /// Longest row.
    pub(crate) steps: usize,
    /// Numbers of words, step by step and in each step row by row; of attention row by row.
    pub(crate) ids: Vec<i64>,
    /// In the order of `ids`: 0 at the start of a sequence within a row; `None` if all begin at the first step.
    pub(crate) keep: Option<Vec<f32>>,
    /// Row by row, the index in the row of a word's sequence; `None` if there is one a row.
    pub(crate) segments: Option<Vec<u32>>,
    /// Sparse rows, in place of words.
    pub(crate) bags: Bags,
}

/// A value between layers.
pub(crate) enum Value {
    /// Numbers.
    Numbers(Taped),
    /// The words, or sparse rows, of [`Pass::sequences`].
    Words,
}

impl Value {
    /// The output of layers.
    pub(crate) fn numbers(self) -> Taped {
        match self {
            Value::Numbers(x) => x,
            Value::Words => unreachable!("nets are checked when they are made"),
        }
    }
}

/// One pass over a part of the layers.
pub(crate) struct Pass<'a> {
    /// Its leaves are the parameters.
    pub(crate) tape: &'a mut Tape,
    /// All parameters of the net, by the order of its summary.
    pub(crate) parameters: &'a mut [Tensor],
    /// Their names and roles.
    pub(crate) summary: &'a Summary,
    /// The next parameter.
    pub(crate) next: usize,
    /// The state (h, c) of each LSTM layer: read, then written.
    pub(crate) states: &'a mut Vec<[Tensor; 2]>,
    /// The next of them.
    pub(crate) next_state: usize,
    pub(crate) sequences: &'a Sequences,
    pub(crate) training: bool,
    /// Key of dropout.
    pub(crate) key: u64,
}

impl Pass<'_> {
    fn parameter(&self, at: usize) -> Taped {
        let value = self.parameters[at].clone();
        match self.summary.parameters[at].role {
            Role::Fixed => value.into(),
            _ => self.tape.leaf(at, value),
        }
    }

    fn take(&mut self) -> Taped {
        self.next += 1;
        self.parameter(self.next - 1)
    }

    /// Runs layers after one another.
    pub(crate) fn run(&mut self, layers: &[Layer], mut value: Value) -> Value {
        let mut rest = layers.iter();
        while let Some(layer) = rest.next() {
            // A ReLU directly after a convolution is part of it.
            let relu = matches!(layer, Layer::Conv { .. })
                && matches!(rest.as_slice().first(), Some(Layer::Relu));
            if relu {
                rest.next();
            }
            value = self.layer(layer, value, relu);
        }
        value
    }

    fn layer(&mut self, layer: &Layer, value: Value, relu_follows: bool) -> Value {
        if let Layer::Embedding {
            width, positions, ..
        } = layer
        {
            return Value::Numbers(self.embedding(*width, *positions));
        }
        if let Layer::Bag { .. } = layer {
            let (weight, bias) = (self.take(), self.take());
            let bags = &self.sequences.bags;
            return Value::Numbers(bag(self.tape, &weight, &bias, bags));
        }
        let x = value.numbers();
        Value::Numbers(match layer {
            Layer::Conv { at, bias, .. } => {
                let weight = self.take();
                let bias = bias.then(|| self.take());
                conv2d(self.tape, &x, &weight, bias.as_ref(), *at, relu_follows)
            }
            Layer::BatchNorm { relu, .. } => self.batch_norm(x, None, *relu),
            Layer::LayerNorm { .. } => {
                let (gamma, beta) = (self.take(), self.take());
                layer_norm(self.tape, &x, &gamma, &beta)
            }
            Layer::Relu => relu(self.tape, &x),
            Layer::Gelu => gelu(self.tape, &x),
            Layer::MaxPool(at) => max_pool(self.tape, &x, *at),
            Layer::Average => average(self.tape, &x),
            Layer::Flatten => {
                let shape = [x.shape()[0], x.shape()[1..].iter().product()];
                x.reshape(&shape)
            }
            Layer::Linear { bias, tied, .. } => {
                let (weight, bias) = self.linear_parameters(*bias, tied.as_deref());
                linear(self.tape, &x, &weight, bias.as_ref())
            }
            Layer::Dropout(rate) => {
                self.key = pelton_key::mix(self.key);
                if self.training {
                    dropout(self.tape, x, *rate, self.key)
                } else {
                    x
                }
            }
            Layer::Residual {
                body,
                shortcut,
                relu,
            } => self.residual(x, body, shortcut, *relu),
            Layer::Lstm { hidden, .. } => self.lstm(x, *hidden),
            Layer::Attention { heads, .. } => self.attention(x, *heads),
            Layer::Embedding { .. } | Layer::Bag { .. } => {
                unreachable!("nets are checked when they are made")
            }
        })
    }

    /// Runs the last layers, and takes the loss of the very last, a fully connected one, against these targets.
    pub(crate) fn run_to_loss(
        &mut self,
        layers: &[Layer],
        value: Value,
        targets: &[i64],
        options: LossOptions<'_>,
    ) -> (Taped, Counts) {
        let Some((Layer::Linear { bias, tied, .. }, before)) = layers.split_last() else {
            unreachable!("the last layer was looked at before")
        };
        let x = self.run(before, value).numbers();
        let (weight, bias) = self.linear_parameters(*bias, tied.as_deref());
        let targets = (targets, LOGITS);
        linear_loss(self.tape, &x, &weight, bias.as_ref(), targets, options)
    }

    fn linear_parameters(&mut self, bias: bool, tied: Option<&str>) -> (Taped, Option<Taped>) {
        let weight = match tied {
            None => self.take(),
            Some(embedding) => self.named(&format!("{embedding}.weight")),
        };
        (weight, bias.then(|| self.take()))
    }

    fn named(&self, name: &str) -> Taped {
        let all = &self.summary.parameters;
        let found = all.iter().position(|p| p.name == name);
        self.parameter(found.expect("nets are checked when they are made"))
    }

    fn batch_norm(&mut self, x: Taped, residual: Option<Taped>, relu: bool) -> Taped {
        let (gamma, beta) = (self.take(), self.take());
        self.next += 2;
        debug_assert_eq!(self.summary.parameters[self.next - 1].role, Role::Statistic);
        let mode = NormMode {
            training: self.training,
            relu,
        };
        let [mean, variance] = &mut self.parameters[self.next - 2..self.next] else {
            unreachable!("two statistics")
        };
        let running = [mean, variance];
        let residual = residual.as_ref();
        batch_norm(self.tape, &x, [&gamma, &beta], running, residual, mode)
    }

    /// The last batch norm includes the sum and the operations after it.
    fn residual(&mut self, x: Taped, body: &[Layer], shortcut: &[Layer], relu: bool) -> Taped {
        let norm = matches!(body.last(), Some(Layer::BatchNorm { relu: false, .. }));
        let (body, last) = body.split_at(body.len() - usize::from(norm));
        let y = self.run(body, Value::Numbers(x.clone())).numbers();
        // Parameters come in the order of the layers: those of the last norm before those of the shortcut.
        let at = self.next;
        self.next += if last.is_empty() { 0 } else { 4 };
        let short = self.run(shortcut, Value::Numbers(x)).numbers();
        if last.is_empty() {
            let both = sum(self.tape, y, &short);
            return if relu {
                crate::operators::relu(self.tape, &both)
            } else {
                both
            };
        }
        let end = std::mem::replace(&mut self.next, at);
        let y = self.batch_norm(y, Some(short), relu);
        self.next = end;
        y
    }

    fn embedding(&mut self, width: usize, positions: usize) -> Taped {
        let Sequences {
            batch, steps, ids, ..
        } = self.sequences;
        let (batch, steps) = (*batch, *steps);
        let weight = self.take();
        let mut x = embedding(self.tape, &weight, ids);
        if positions > 0 {
            let weight = self.take();
            let mut at = vec![0i64; batch * steps];
            for (i, at_i) in at.iter_mut().enumerate() {
                *at_i = (i % steps) as i64;
            }
            // Positions count from the beginning of each sequence.
            if let Some(segments) = &self.sequences.segments {
                let mut from = 0;
                for i in 0..at.len() {
                    if i % steps == 0 || segments[i] != segments[i - 1] {
                        from = i;
                    }
                    at[i] = (i - from) as i64;
                }
            }
            let positions = embedding(self.tape, &weight, &at);
            x = sum(self.tape, x, &positions);
            return x.reshape(&[batch, steps, width]);
        }
        x.reshape(&[steps, batch, width])
    }

    fn lstm(&mut self, x: Taped, hidden: usize) -> Taped {
        let weights = std::array::from_fn(|_| self.take());
        let at = self.next_state;
        self.next_state += 1;
        let batch = self.sequences.batch;
        let state = match self.states.get(at) {
            Some(state) => state.clone(),
            None => [0, 1].map(|_| Tensor::zeros(&[batch, hidden])),
        };
        let keep = self.sequences.keep.as_deref();
        let (y, state) = lstm(self.tape, &x, &weights, state, keep);
        match self.states.get_mut(at) {
            Some(kept) => *kept = state,
            None => self.states.push(state),
        }
        y
    }

    fn attention(&mut self, x: Taped, heads: usize) -> Taped {
        let [batch, steps, width] = x.shape()[..] else {
            unreachable!("sequences have three axes")
        };
        let (weight, bias) = (self.take(), self.take());
        let qkv = linear(self.tape, &x, &weight, Some(&bias));
        let qkv = qkv.reshape(&[batch, steps, 3, heads, width / heads]);
        let y = attention(self.tape, &qkv, self.sequences.segments.as_deref());
        let (weight, bias) = (self.take(), self.take());
        linear(self.tape, &y, &weight, Some(&bias))
    }
}
