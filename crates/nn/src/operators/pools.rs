//! Pools.

use pelton_kernels::Pool;

use crate::memory::Block;
use crate::operands::Window;
use crate::tape::{Tape, Taped};
use crate::tensor::Tensor;

/// The largest value of each window.
pub(crate) fn max_pool(tape: &mut Tape, x: &Taped, at: Window) -> Taped {
    let shape = x.shape().to_vec();
    let pool = Pool {
        batch: shape[0],
        input: [shape[1], shape[2]],
        channels: shape[3],
        kernel: [at.kernel; 2],
        stride: [at.stride; 2],
        padding: [at.padding; 2],
    };
    let mut y = Block::new(pool.output_len());
    let mut taps = vec![0; pool.output_len()];
    pool.max(x, &mut y, &mut taps);
    let [height, width] = pool.output();
    let y = Tensor::new(y, &[pool.batch, height, width, pool.channels]);
    tape.record([x.node], y, move |dy, _| {
        let mut dx = Block::new(pool.input_len());
        pool.max_backward(&dy, &taps, &mut dx);
        [Some(Tensor::new(dx, &shape))]
    })
}

/// The mean over height and width: [batch, channels].
pub(crate) fn average(tape: &mut Tape, x: &Taped) -> Taped {
    let shape = x.shape().to_vec();
    let pool = Pool::global(shape[0], [shape[1], shape[2]], shape[3]);
    let mut y = Block::new(pool.output_len());
    pool.mean(x, &mut y);
    let y = Tensor::new(y, &[shape[0], shape[3]]);
    tape.record([x.node], y, move |dy, _| {
        let mut dx = Block::new(pool.input_len());
        pool.mean_backward(&dy, &mut dx);
        [Some(Tensor::new(dx, &shape))]
    })
}
