//! Fully connected layers and what is done number by number.

use burn_flex::FlexTensor;
use pelton_kernels::{Matrix, gemm};
use rayon::prelude::*;

use super::sizes;
use super::tape::{Taped, record};
use crate::memory::{Block, contiguous, owned, slice};

/// Numbers that a thread works on at a time.
const CHUNK: usize = 1 << 14;

/// [rows, width] of a tensor over whose last axis something is done.
fn rows(x: &FlexTensor) -> (usize, usize) {
    let shape = sizes(x);
    let width = *shape.last().expect("an axis");
    (shape.iter().product::<usize>() / width.max(1), width)
}

pub(super) fn linear(x: &FlexTensor, weight: &FlexTensor, bias: Option<&FlexTensor>) -> FlexTensor {
    let (n, width) = rows(x);
    let out = sizes(weight)[0];
    let (x_, w) = (contiguous(x.clone()), contiguous(weight.clone()));
    let mut y = Block::new(n * out);
    if let Some(bias) = bias {
        let bias = slice(bias);
        y.par_chunks_mut(out)
            .for_each(|row| row.copy_from_slice(bias));
    }
    let w = Matrix::new(slice(&w), out, width).transposed();
    gemm(
        Matrix::new(slice(&x_), n, width),
        w,
        &mut y,
        out,
        bias.is_some(),
    );
    let mut shape = sizes(x);
    *shape.last_mut().expect("an axis") = out;
    y.tensor(&shape)
}

/// Sums of columns, in an order that does not depend on threads.
fn column_sums(x: &[f32], width: usize) -> Block {
    let each = (x.len() / width.max(1)).div_ceil(64).max(32) * width;
    let parts: Vec<Vec<f32>> = x
        .par_chunks(each.max(1))
        .map(|part| {
            let mut sums = vec![0.0f32; width];
            for row in part.chunks_exact(width) {
                for (sum, x) in sums.iter_mut().zip(row) {
                    *sum += x;
                }
            }
            sums
        })
        .collect();
    let mut sums = Block::zeros(width);
    for part in parts {
        for (sum, x) in sums.iter_mut().zip(part) {
            *sum += x;
        }
    }
    sums
}

pub(super) fn linear_taped(x: Taped, weight: Taped, bias: Option<Taped>) -> Taped {
    let (value, w) = (x.primitive.clone(), weight.primitive.clone());
    let b = bias.as_ref().map(|bias| &bias.primitive);
    let y = linear(&value, &w, b);
    let backward = move |dy: FlexTensor, wanted: [bool; 3]| {
        let (dy, value, w) = (contiguous(dy), contiguous(value), contiguous(w));
        let ((n, width), out) = (rows(&value), sizes(&w)[0]);
        let g = Matrix::new(slice(&dy), n, out);
        let dx = wanted[0].then(|| {
            let mut dx = Block::new(n * width);
            gemm(g, Matrix::new(slice(&w), out, width), &mut dx, width, false);
            dx.tensor(&sizes(&value))
        });
        let dw = wanted[1].then(|| {
            let mut dw = Block::new(out * width);
            let x = Matrix::new(slice(&value), n, width);
            gemm(g.transposed(), x, &mut dw, width, false);
            dw.tensor(&[out, width])
        });
        let db = wanted[2].then(|| column_sums(slice(&dy), out).tensor(&[out]));
        [dx, dw, db]
    };
    match bias {
        Some(bias) => record([&x, &weight, &bias], y, backward),
        None => record([&x, &weight], y, |dy, [dx, dw]| {
            let [dx, dw, _] = backward(dy, [dx, dw, false]);
            [dx, dw]
        }),
    }
}

pub(super) fn relu(x: FlexTensor) -> FlexTensor {
    let shape = sizes(&x);
    let x = contiguous(x);
    let mut y = Block::new(slice(&x).len());
    y.par_chunks_mut(CHUNK)
        .zip(slice(&x).par_chunks(CHUNK))
        .for_each(|(y, x)| {
            for (y, x) in y.iter_mut().zip(x) {
                *y = x.max(0.0);
            }
        });
    y.tensor(&shape)
}

/// Takes the gradient away where `y` is 0.
pub(super) fn mask(dy: FlexTensor, y: &FlexTensor) -> FlexTensor {
    let mut dy = owned(dy);
    let numbers: &mut [f32] = dy.storage_mut();
    numbers
        .par_chunks_mut(CHUNK)
        .zip(slice(y).par_chunks(CHUNK))
        .for_each(|(dy, y)| {
            for (dy, &y) in dy.iter_mut().zip(y) {
                *dy = if y > 0.0 { *dy } else { 0.0 };
            }
        });
    dy
}

pub(super) fn relu_taped(x: Taped) -> Taped {
    let y = relu(x.primitive.clone());
    let kept = y.clone();
    record([&x], y, move |dy, _| [Some(mask(dy, &kept))])
}

pub(super) fn add(x: FlexTensor, y: &FlexTensor) -> FlexTensor {
    let mut x = owned(x);
    let y = contiguous(y.clone());
    let numbers: &mut [f32] = x.storage_mut();
    numbers
        .par_chunks_mut(CHUNK)
        .zip(slice(&y).par_chunks(CHUNK))
        .for_each(|(x, y)| {
            for (x, y) in x.iter_mut().zip(y) {
                *x += y;
            }
        });
    x
}
