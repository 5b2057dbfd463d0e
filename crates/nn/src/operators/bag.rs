//! Sums of rows of a table: the first layer of nets on sparse rows.

use pelton_kernels::embedding::{gather_sums, scatter_sums};
use pelton_kernels::sums;

use crate::bags::Bags;
use crate::memory::Block;
use crate::tape::{Tape, Taped};
use crate::tensor::Tensor;

/// For each sparse row the sum of the rows of `weight` [features, width] that are its features, times their values over
/// the Euclidean length of the sparse row, and `bias` [width]: [rows, width].
pub(crate) fn bag(tape: &mut Tape, weight: &Taped, bias: &Taped, bags: &Bags) -> Taped {
    let shape = weight.shape().to_vec();
    let (rows, width) = (bags.features.len(), shape[1]);
    let (mut values, mut of_row) = (bags.values.clone(), Vec::with_capacity(bags.values.len()));
    let mut rest = &mut values[..];
    for (row, &count) in (0..).zip(&bags.features) {
        let (own, after) = rest.split_at_mut(count);
        let square: f64 = own.iter().map(|&x| f64::from(x).powi(2)).sum();
        let inverse = if square > 0.0 {
            square.sqrt().recip()
        } else {
            0.0
        };
        own.iter_mut()
            .for_each(|x| *x = (f64::from(*x) * inverse) as f32);
        of_row.extend(std::iter::repeat_n(row, count));
        rest = after;
    }
    let ids = bags.ids.clone();
    let mut y = Block::new(rows * width);
    gather_sums(weight, bias, &bags.features, (&ids, &values), &mut y);
    let y = Tensor::new(y, &[rows, width]);
    tape.record([weight.node, bias.node], y, move |dy, _| {
        let mut dw = Tensor::zeros(&shape);
        scatter_sums(&dy, shape[1], (&ids, &of_row, &values), dw.numbers_mut());
        let mut db = Block::new(shape[1]);
        sums::of_columns(&dy, &mut db);
        [Some(dw), Some(Tensor::new(db, &[shape[1]]))]
    })
}
