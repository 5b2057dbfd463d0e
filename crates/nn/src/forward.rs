//! Running the layers of a net.

use burn_backend::Backend;

use crate::layer::{Layer, Role, Summary};
use crate::operands::{F, LstmWeights, NormMode, dims, place, reshape};
use crate::ops::Ops;

/// A batch of sequences: its shape, and where sequences begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequences {
    /// Rows.
    pub(crate) batch: usize,
    /// Longest row.
    pub(crate) steps: usize,
    /// Numbers of words, step by step and in each step row by row; of attention row by row.
    pub(crate) ids: Vec<i64>,
    /// In the order of `ids`: 0 where a sequence begins within a row; where absent they begin at the first step only.
    pub(crate) keep: Option<Vec<f32>>,
    /// Row by row, the sequence of a row that a word belongs to; where absent there is one.
    pub(crate) segments: Option<Vec<u32>>,
}

/// What flows.
pub(crate) enum Value<B: Backend> {
    /// Numbers.
    Numbers(F<B>),
    /// The words of [`Pass::sequences`].
    Words,
}

/// One pass over a part of the layers.
pub(crate) struct Pass<'a, B: Ops> {
    /// All parameters of the net, by the order of its summary.
    pub(crate) parameters: &'a mut [F<B>],
    /// Their names and roles.
    pub(crate) summary: &'a Summary,
    /// The next parameter.
    pub(crate) next: usize,
    /// The state (h, c) of each LSTM layer: read, then written.
    pub(crate) states: &'a mut Vec<[F<B>; 2]>,
    /// The next of them.
    pub(crate) next_state: usize,
    pub(crate) sequences: &'a Sequences,
    pub(crate) training: bool,
    /// Decides what dropout takes.
    pub(crate) key: u64,
    pub(crate) device: &'a B::Device,
}

impl<B: Ops> Pass<'_, B> {
    fn take(&mut self) -> F<B> {
        self.next += 1;
        self.parameters[self.next - 1].clone()
    }

    /// Runs layers after one another.
    pub(crate) fn run(&mut self, layers: &[Layer], mut value: Value<B>) -> Value<B> {
        let mut rest = layers.iter();
        while let Some(layer) = rest.next() {
            // A ReLU right behind a convolution is part of it.
            let relu = matches!(layer, Layer::Conv { .. })
                && matches!(rest.as_slice().first(), Some(Layer::Relu));
            if relu {
                rest.next();
            }
            value = self.layer(layer, value, relu);
        }
        value
    }

    fn layer(&mut self, layer: &Layer, value: Value<B>, relu: bool) -> Value<B> {
        let x = match (value, layer) {
            (
                Value::Words,
                Layer::Embedding {
                    width, positions, ..
                },
            ) => {
                return Value::Numbers(self.embedding(*width, *positions));
            }
            (Value::Numbers(x), _) => x,
            (Value::Words, _) => unreachable!("nets are checked when they are made"),
        };
        Value::Numbers(match layer {
            Layer::Conv { at, bias, .. } => {
                let weight = self.take();
                let bias = bias.then(|| self.take());
                B::nn_conv2d(x, weight, bias, *at, relu)
            }
            Layer::BatchNorm { relu, .. } => self.batch_norm(x, None, *relu),
            Layer::LayerNorm { .. } => {
                let (gamma, beta) = (self.take(), self.take());
                B::nn_layer_norm(x, gamma, beta)
            }
            Layer::Relu => B::nn_relu(x),
            Layer::Gelu => B::nn_gelu(x),
            Layer::MaxPool(at) => B::nn_max_pool(x, *at),
            Layer::Average => B::nn_average(x),
            Layer::Flatten => {
                let shape = dims::<B>(&x);
                reshape::<B>(x, &[shape[0], shape[1..].iter().product()])
            }
            Layer::Linear { bias, tied, .. } => {
                let weight = match tied {
                    None => self.take(),
                    Some(embedding) => self.named(&format!("{embedding}.weight")),
                };
                let bias = bias.then(|| self.take());
                B::nn_linear(x, weight, bias)
            }
            Layer::Dropout(rate) => {
                self.key = pelton_key::mix(self.key);
                match self.training {
                    true => B::nn_dropout(x, *rate, self.key),
                    false => x,
                }
            }
            Layer::Residual {
                body,
                shortcut,
                relu,
            } => self.residual(x, body, shortcut, *relu),
            Layer::Lstm { hidden, .. } => self.lstm(x, *hidden),
            Layer::Attention { heads, .. } => self.attention(x, *heads),
            Layer::Embedding { .. } => unreachable!("nets are checked when they are made"),
        })
    }

    fn named(&self, name: &str) -> F<B> {
        let all = &self.summary.parameters;
        let found = all.iter().position(|p| p.name == name);
        self.parameters[found.expect("nets are checked when they are made")].clone()
    }

    fn batch_norm(&mut self, x: F<B>, residual: Option<F<B>>, relu: bool) -> F<B> {
        let (gamma, beta) = (self.take(), self.take());
        let mut running = [self.take(), self.take()];
        debug_assert_eq!(self.summary.parameters[self.next - 1].role, Role::Statistic);
        let mode = NormMode {
            training: self.training,
            relu,
        };
        // The statistics are alone in holding their memory while they change.
        let nothing = || place::<B, 1>(vec![], [0], self.device);
        for at in [self.next - 2, self.next - 1] {
            self.parameters[at] = nothing();
        }
        let y = B::nn_batch_norm(x, gamma, beta, &mut running, residual, mode);
        for (at, statistic) in running.into_iter().enumerate() {
            self.parameters[self.next - 2 + at] = statistic;
        }
        y
    }

    /// The sum and what follows it are part of the last batch norm.
    fn residual(&mut self, x: F<B>, body: &[Layer], shortcut: &[Layer], relu: bool) -> F<B> {
        let norm = matches!(body.last(), Some(Layer::BatchNorm { relu: false, .. }));
        let (body, last) = body.split_at(body.len() - usize::from(norm));
        let Value::Numbers(y) = self.run(body, Value::Numbers(x.clone())) else {
            unreachable!("numbers stay numbers")
        };
        // Parameters come in the order of the layers: those of the last norm before those of the shortcut.
        let at = self.next;
        self.next += if last.is_empty() { 0 } else { 4 };
        let Value::Numbers(short) = self.run(shortcut, Value::Numbers(x)) else {
            unreachable!("numbers stay numbers")
        };
        if last.is_empty() {
            let sum = B::nn_add(y, short);
            return if relu { B::nn_relu(sum) } else { sum };
        }
        let end = std::mem::replace(&mut self.next, at);
        let y = self.batch_norm(y, Some(short), relu);
        self.next = end;
        y
    }

    fn embedding(&mut self, width: usize, positions: usize) -> F<B> {
        let Sequences {
            batch, steps, ids, ..
        } = self.sequences;
        let (batch, steps) = (*batch, *steps);
        let weight = self.take();
        let mut x = B::nn_embedding(weight, ids);
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
            x = B::nn_add(x, B::nn_embedding(weight, &at));
            return reshape::<B>(x, &[batch, steps, width]);
        }
        reshape::<B>(x, &[steps, batch, width])
    }

    fn lstm(&mut self, x: F<B>, hidden: usize) -> F<B> {
        let weights = LstmWeights {
            input: self.take(),
            hidden: self.take(),
            input_bias: self.take(),
            hidden_bias: self.take(),
        };
        let at = self.next_state;
        self.next_state += 1;
        let batch = self.sequences.batch;
        let state = match self.states.get(at) {
            Some(state) => state.clone(),
            None => {
                let zeros =
                    || place::<B, 2>(vec![0.0; batch * hidden], [batch, hidden], self.device);
                [zeros(), zeros()]
            }
        };
        let (y, state) = B::nn_lstm(x, weights, state, self.sequences.keep.as_deref());
        let state = state.map(B::float_detach);
        match self.states.get_mut(at) {
            Some(kept) => *kept = state,
            None => self.states.push(state),
        }
        y
    }

    fn attention(&mut self, x: F<B>, heads: usize) -> F<B> {
        let [batch, steps, width] = dims::<B>(&x)[..] else {
            unreachable!("sequences have three axes")
        };
        let (weight, bias) = (self.take(), self.take());
        let qkv = B::nn_linear(x, weight, Some(bias));
        let qkv = reshape::<B>(qkv, &[batch, steps, 3, heads, width / heads]);
        let y = B::nn_attention(qkv, self.sequences.segments.as_deref());
        let (weight, bias) = (self.take(), self.take());
        B::nn_linear(y, weight, Some(bias))
    }
}
