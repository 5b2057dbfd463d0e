//! Causal attention.

use burn_flex::FlexTensor;
use pelton_kernels::Attention;

use super::sizes;
use super::tape::{Taped, record};
use crate::memory::{Block, contiguous, slice};

fn shape<'a>(qkv: &FlexTensor, segments: Option<&'a [u32]>) -> Attention<'a> {
    let shape = sizes(qkv);
    Attention {
        batch: shape[0],
        steps: shape[1],
        heads: shape[3],
        width: shape[4],
        segments,
    }
}

fn forward(qkv: &FlexTensor, of: &Attention<'_>) -> (FlexTensor, Block) {
    let mut y = Block::new(of.batch * of.steps * of.heads * of.width);
    let mut log_sums = Block::new(of.batch * of.heads * of.steps);
    of.forward(slice(qkv), &mut y, &mut log_sums);
    (
        y.tensor(&[of.batch, of.steps, of.heads * of.width]),
        log_sums,
    )
}

pub(super) fn attention(qkv: FlexTensor, segments: Option<&[u32]>) -> FlexTensor {
    let qkv = contiguous(qkv);
    forward(&qkv, &shape(&qkv, segments)).0
}

pub(super) fn attention_taped(qkv: Taped, segments: Option<&[u32]>) -> Taped {
    let value = contiguous(qkv.primitive.clone());
    let (y, log_sums) = forward(&value, &shape(&value, segments));
    let (kept, segments) = (y.clone(), segments.map(<[u32]>::to_vec));
    record([&qkv], y, move |dy, _| {
        let dy = contiguous(dy);
        let of = shape(&value, segments.as_deref());
        let mut gradient = Block::new(slice(&value).len());
        of.backward(
            slice(&value),
            slice(&kept),
            &log_sums,
            slice(&dy),
            &mut gradient,
        );
        [Some(gradient.tensor(&sizes(&value)))]
    })
}
