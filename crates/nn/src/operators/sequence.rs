//! Embeddings and LSTM layers.

use pelton_kernels::embedding::{gather, scatter_add};
use pelton_kernels::{Lstm, LstmGradients, LstmInput, LstmWeights, Position};

use crate::memory::Block;
use crate::tape::{Tape, Taped};
use crate::tensor::Tensor;

/// Rows of `weight` [words, width] by index: [ids, width].
pub(crate) fn embedding(tape: &mut Tape, weight: &Taped, ids: &[i64]) -> Taped {
    let shape = weight.shape().to_vec();
    // The vocabulary keeps indices below 2³².
    let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
    let mut y = Block::new(ids.len() * shape[1]);
    gather(weight, shape[1], &ids, &mut y);
    let y = Tensor::new(y, &[ids.len(), shape[1]]);
    tape.record([weight.node], y, move |dy, _| {
        let mut dw = Tensor::zeros(&shape);
        scatter_add(&dy, shape[1], &ids, dw.numbers_mut());
        [Some(dw)]
    })
}

/// The inputs of a layer, kept from forward to backward.
struct Layer {
    sizes: Lstm,
    x: Tensor,
    weights: [Tensor; 4],
    state: [Tensor; 2],
    positions: Option<Vec<Position>>,
}

impl Layer {
    fn input(&self) -> LstmInput<'_> {
        LstmInput {
            x: &self.x,
            h0: &self.state[0],
            c0: &self.state[1],
            positions: self.positions.as_deref(),
        }
    }

    fn weights(&self) -> LstmWeights<'_> {
        let [w_ih, w_hh, b_ih, b_hh] = &self.weights;
        LstmWeights {
            w_ih,
            w_hh,
            b_ih,
            b_hh,
        }
    }
}

/// One LSTM layer over a sequence [steps, batch, width] from the state (h, c), each [batch, hidden]. `weights` are
/// PyTorch's, gates in the order i, f, g, o: input [4·hidden, width], hidden [4·hidden, hidden], and the bias of each.
/// `keep` [steps · batch], if given, is 0 at steps that start from a zero state, otherwise 1. Returns the outputs
/// [steps, batch, hidden] and the last state; no gradient flows through that state.
pub(crate) fn lstm(
    tape: &mut Tape,
    x: &Taped,
    weights: &[Taped; 4],
    state: [Tensor; 2],
    keep: Option<&[f32]>,
) -> (Taped, [Tensor; 2]) {
    let [steps, batch, input] = x.shape()[..] else {
        panic!("a sequence has three axes")
    };
    let hidden = weights[1].width();
    let position = |&keep: &f32| match keep {
        0.0 => Position::Reset,
        _ => Position::Next,
    };
    let [w_ih, w_hh, b_ih, b_hh] = weights.each_ref().map(|weight| weight.node);
    let inputs = [x.node, w_ih, w_hh, b_ih, b_hh];
    let layer = Layer {
        sizes: Lstm {
            steps,
            batch,
            input,
            hidden,
        },
        x: x.value.clone(),
        weights: weights.each_ref().map(|weight| weight.value.clone()),
        state,
        positions: keep.map(|keep| keep.iter().map(position).collect()),
    };
    let len = steps * batch * hidden;
    let [mut y, mut cells, mut gates] = [len, len, 4 * len].map(Block::new);
    let of = &layer.sizes;
    of.forward(
        layer.input(),
        layer.weights(),
        &mut y,
        &mut cells,
        &mut gates,
    );
    let last = |all: &Block| Tensor::from_slice(&all[len - batch * hidden..], &[batch, hidden]);
    let state = [last(&y), last(&cells)];

    let y = Tensor::new(y, &[steps, batch, hidden]);
    let outputs = y.clone();
    let taped = tape.record(inputs, y, move |dy, wanted| {
        let mut dx = wanted[0].then(|| Block::new(layer.x.len()));
        let gates_wide = 4 * hidden;
        let mut dw_ih = Block::new(gates_wide * input);
        let mut dw_hh = Block::new(gates_wide * hidden);
        let mut db = Block::new(gates_wide);
        let mut dh0 = Block::new(batch * hidden);
        // The last cell has no gradient of its own.
        let mut dc0 = Block::zeros(batch * hidden);
        let gradients = LstmGradients {
            dx: dx.as_deref_mut(),
            dh0: &mut dh0,
            dc0: &mut dc0,
            dw_ih: &mut dw_ih,
            dw_hh: &mut dw_hh,
            db: &mut db,
        };
        let saved = (&outputs[..], &cells[..], &mut gates[..]);
        let of = &layer.sizes;
        of.backward(layer.input(), layer.weights(), saved, &dy, gradients);
        let db = Tensor::new(db, &[gates_wide]);
        [
            dx.map(|dx| Tensor::new(dx, layer.x.shape())),
            Some(Tensor::new(dw_ih, &[gates_wide, input])),
            Some(Tensor::new(dw_hh, &[gates_wide, hidden])),
            Some(db.clone()),
            Some(db),
        ]
    });
    (taped, state)
}
