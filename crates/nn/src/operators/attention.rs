//! Causal attention.

use pelton_kernels::Attention;

use crate::memory::Block;
use crate::tape::{Tape, Taped};
use crate::tensor::Tensor;

fn shape<'a>(qkv: &Tensor, segments: Option<&'a [u32]>) -> Attention<'a> {
    let [batch, steps, _, heads, width] = qkv.shape()[..] else {
        panic!("queries, keys and values have five axes")
    };
    Attention {
        batch,
        steps,
        heads,
        width,
        segments,
    }
}

/// Causal attention over queries, keys and values [batch, steps, 3, heads, width]: [batch, steps, heads · width]. A
/// position attends to those of its own segment up to itself; without `segments` [batch · steps] each row is one.
pub(crate) fn attention(tape: &mut Tape, qkv: &Taped, segments: Option<&[u32]>) -> Taped {
    let of = shape(qkv, segments);
    let mut y = Block::new(of.batch * of.steps * of.heads * of.width);
    let mut log_sums = Block::new(of.batch * of.heads * of.steps);
    of.forward(qkv, &mut y, &mut log_sums);
    let y = Tensor::new(y, &[of.batch, of.steps, of.heads * of.width]);

    let (kept, segments) = (y.clone(), segments.map(<[u32]>::to_vec));
    let value = qkv.value.clone();
    tape.record([qkv.node], y, move |dy, _| {
        let of = shape(&value, segments.as_deref());
        let mut gradient = Block::new(value.len());
        of.backward(&value, &kept, &log_sums, &dy, &mut gradient);
        [Some(Tensor::new(gradient, value.shape()))]
    })
}
