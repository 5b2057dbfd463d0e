//! Embeddings and LSTM layers.

use burn_flex::FlexTensor;
use pelton_kernels::embedding::{gather, scatter_add};
use pelton_kernels::{Lstm, LstmGradients, LstmInput, LstmWeights as Weights, Position};

use super::sizes;
use super::tape::{Taped, record};
use crate::memory::{Block, contiguous, owned, slice};

/// Numbers of rows, which the vocabulary keeps below 2³².
fn rows(ids: &[i64]) -> Vec<u32> {
    ids.iter().map(|&id| id as u32).collect()
}

pub(super) fn embedding(weight: &FlexTensor, ids: &[i64]) -> FlexTensor {
    let width = sizes(weight)[1];
    let weight = contiguous(weight.clone());
    let mut y = Block::new(ids.len() * width);
    gather(slice(&weight), width, &rows(ids), &mut y);
    y.tensor(&[ids.len(), width])
}

pub(super) fn embedding_taped(weight: Taped, ids: &[i64]) -> Taped {
    let y = embedding(&weight.primitive, ids);
    let (shape, ids) = (sizes(&weight.primitive), rows(ids));
    record([&weight], y, move |dy, _| {
        let mut dw = Block::zeros(shape[0] * shape[1]);
        scatter_add(slice(&contiguous(dy)), shape[1], &ids, &mut dw);
        [Some(dw.tensor(&shape))]
    })
}

/// What a layer reads, kept from forward to backward.
struct Layer {
    sizes: Lstm,
    x: FlexTensor,
    /// Input, hidden, and their biases.
    weights: [FlexTensor; 4],
    state: [FlexTensor; 2],
    positions: Option<Vec<Position>>,
}

impl Layer {
    fn new(
        x: FlexTensor,
        weights: [FlexTensor; 4],
        state: [FlexTensor; 2],
        keep: Option<&[f32]>,
    ) -> Layer {
        let shape = sizes(&x);
        let position = |&keep: &f32| match keep {
            0.0 => Position::Reset,
            _ => Position::Next,
        };
        Layer {
            sizes: Lstm {
                steps: shape[0],
                batch: shape[1],
                input: shape[2],
                hidden: sizes(&weights[1])[1],
            },
            x: contiguous(x),
            weights: weights.map(contiguous),
            state: state.map(contiguous),
            positions: keep.map(|keep| keep.iter().map(position).collect()),
        }
    }

    fn input(&self) -> LstmInput<'_> {
        LstmInput {
            x: slice(&self.x),
            h0: slice(&self.state[0]),
            c0: slice(&self.state[1]),
            positions: self.positions.as_deref(),
        }
    }

    fn weights(&self) -> Weights<'_> {
        let [w_ih, w_hh, b_ih, b_hh] = [0, 1, 2, 3].map(|k| slice(&self.weights[k]));
        Weights {
            w_ih,
            w_hh,
            b_ih,
            b_hh,
        }
    }

    /// Outputs, cells and gates of all steps.
    fn forward(&self) -> [Block; 3] {
        let of = &self.sizes;
        let len = of.steps * of.batch * of.hidden;
        let [mut y, mut cells, mut gates] = [len, len, 4 * len].map(Block::new);
        of.forward(self.input(), self.weights(), &mut y, &mut cells, &mut gates);
        [y, cells, gates]
    }

    /// Outputs as a tensor, the last state, and what backward needs.
    fn run(&self) -> (FlexTensor, [FlexTensor; 2], FlexTensor, Block) {
        let of = &self.sizes;
        let [y, cells, gates] = self.forward();
        let last = of.batch * of.hidden;
        let shape = [of.batch, of.hidden];
        let end = |all: &[f32]| Block::of(&all[all.len() - last..]).tensor(&shape);
        let state = [end(&y), end(&cells)];
        let sequence = [of.steps, of.batch, of.hidden];
        (y.tensor(&sequence), state, cells.tensor(&sequence), gates)
    }
}

pub(super) fn lstm(
    x: FlexTensor,
    weights: [FlexTensor; 4],
    state: [FlexTensor; 2],
    keep: Option<&[f32]>,
) -> (FlexTensor, [FlexTensor; 2]) {
    let (y, state, _, _) = Layer::new(x, weights, state, keep).run();
    (y, state)
}

pub(super) fn lstm_taped(
    x: Taped,
    weights: [Taped; 4],
    state: [Taped; 2],
    keep: Option<&[f32]>,
) -> (Taped, [Taped; 2]) {
    let values = weights.each_ref().map(|w| w.primitive.clone());
    let begin = state.map(|s| s.primitive);
    let layer = Layer::new(x.primitive.clone(), values, begin, keep);
    let (y, state, cells, mut gates) = layer.run();
    let [w_ih, w_hh, b_ih, b_hh] = &weights;
    let outputs = y.clone();
    let taped = record([&x, w_ih, w_hh, b_ih, b_hh], y, move |dy, wanted| {
        let of = &layer.sizes;
        let dy = owned(dy);
        let mut dx = wanted[0].then(|| Block::new(slice(&layer.x).len()));
        let mut sums = [
            4 * of.hidden * of.input,
            4 * of.hidden * of.hidden,
            4 * of.hidden,
            of.batch * of.hidden,
            of.batch * of.hidden,
        ]
        .map(Block::new);
        let [dw_ih, dw_hh, db, dh0, dc0] = &mut sums;
        // The last cell has no gradient of its own.
        dc0.fill(0.0);
        let gradients = LstmGradients {
            dx: dx.as_deref_mut(),
            dh0,
            dc0,
            dw_ih,
            dw_hh,
            db,
        };
        let saved = (slice(&outputs), slice(&cells), &mut gates[..]);
        of.backward(layer.input(), layer.weights(), saved, slice(&dy), gradients);
        let [dw_ih, dw_hh, db, _, _] = sums;
        let db = db.tensor(&[4 * of.hidden]);
        [
            dx.map(|dx| dx.tensor(&sizes(&layer.x))),
            Some(dw_ih.tensor(&[4 * of.hidden, of.input])),
            Some(dw_hh.tensor(&[4 * of.hidden, of.hidden])),
            Some(db.clone()),
            Some(db),
        ]
    });
    (taped, state.map(leaf))
}

/// A tensor that no gradient flows through.
fn leaf(x: FlexTensor) -> Taped {
    use burn_backend::AutodiffBackend;
    burn_autodiff::Autodiff::<burn_flex::Flex>::from_inner(x)
}
