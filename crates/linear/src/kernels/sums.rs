//! Sums for certificates: w·x of each row, and sums of rows, in f64.
//!
//! Products of two f32 are exact in f64, so only additions round. The loops are plain; [`super::run`] compiles
//! them for each level. Rows come from memory, which bounds them: they take as long as in f32.

use pelton_format::Layout;

use super::pass_loop::{BlockRows, Kernel, ROW_AHEAD, prefetch};
use super::plain::prefetch_sparse;
use super::{Simd, run};
use crate::visit::RowAddress;

/// How many rows ahead the weights of a sparse row are prefetched.
const WEIGHTS_AHEAD: usize = 4;
/// Sums that a dot product is made in.
const LANES: usize = 16;

/// Writes w·x of each row of `places` into `out`.
pub(crate) fn sweep<W: Copy + Into<f64>>(
    simd: Simd,
    rows: &BlockRows<'_>,
    w: &[W],
    places: &[RowAddress],
    out: &mut [f64],
) {
    let each = |s: usize, x: Values<'_>| out[s] = x.dot(w);
    let touched = w.as_ptr().cast();
    let walk = Walk {
        rows,
        places,
        touched,
        stride: size_of::<W>(),
        each,
    };
    run(simd, walk);
}

/// Writes ‖x‖ of each row of `places` into `out`.
pub(crate) fn norms(simd: Simd, rows: &BlockRows<'_>, places: &[RowAddress], out: &mut [f64]) {
    let each = |s: usize, x: Values<'_>| out[s] = x.square().sqrt();
    let walk = Walk {
        rows,
        places,
        touched: std::ptr::null(),
        stride: 0,
        each,
    };
    run(simd, walk);
}

/// sum += Σ scale·x over the rows of `places`; returns Σ |scale|·‖x‖, which bounds the size of what was added.
pub(crate) fn add_rows(
    simd: Simd,
    rows: &BlockRows<'_>,
    places: &[RowAddress],
    scales: &[f64],
    sum: &mut [f64],
) -> f64 {
    let mut size = 0.0;
    let touched = sum.as_ptr().cast();
    let each = |s: usize, x: Values<'_>| {
        if scales[s] != 0.0 {
            size += scales[s].abs() * x.add_to(scales[s], sum).sqrt();
        }
    };
    let walk = Walk {
        rows,
        places,
        touched,
        stride: 8,
        each,
    };
    run(simd, walk);
    size
}

/// The values of a row, its constant feature next to them.
struct Values<'a> {
    indices: Option<&'a [u32]>,
    values: &'a [f32],
    bias: f32,
}

impl Values<'_> {
    #[inline(always)]
    fn dot<W: Copy + Into<f64>>(&self, w: &[W]) -> f64 {
        let mut sums = [0.0_f64; LANES];
        let mut dot = 0.0;
        match self.indices {
            None => {
                let (chunks, tail) = self.values.as_chunks::<LANES>();
                for (x, w) in chunks.iter().zip(w.as_chunks::<LANES>().0) {
                    for ((sum, &x), &w) in sums.iter_mut().zip(x).zip(w) {
                        *sum += f64::from(x) * w.into();
                    }
                }
                for (&x, &w) in tail.iter().zip(&w[self.values.len() - tail.len()..]) {
                    dot += f64::from(x) * w.into();
                }
            }
            Some(indices) => {
                for (indices, values) in indices.chunks(4).zip(self.values.chunks(4)) {
                    for ((sum, &index), &x) in sums.iter_mut().zip(indices).zip(values) {
                        *sum += f64::from(x) * w[index as usize].into();
                    }
                }
            }
        }
        if self.bias != 0.0 {
            dot += f64::from(self.bias) * w[w.len() - 1].into();
        }
        dot + sums.iter().sum::<f64>()
    }

    /// ‖x‖².
    #[inline(always)]
    fn square(&self) -> f64 {
        let mut sums = [0.0_f64; LANES];
        let (chunks, tail) = self.values.as_chunks::<LANES>();
        for x in chunks {
            for (sum, &x) in sums.iter_mut().zip(x) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        for (sum, &x) in sums.iter_mut().zip(tail) {
            *sum += f64::from(x) * f64::from(x);
        }
        sums.iter().sum::<f64>() + f64::from(self.bias) * f64::from(self.bias)
    }

    /// Adds scale·x; returns ‖x‖².
    #[inline(always)]
    fn add_to(&self, scale: f64, sum: &mut [f64]) -> f64 {
        let mut squares = [0.0_f64; LANES];
        match self.indices {
            None => {
                let (chunks, tail) = self.values.as_chunks::<LANES>();
                let (sums, rest) = sum[..self.values.len()].as_chunks_mut::<LANES>();
                for (x, sums) in chunks.iter().zip(sums) {
                    for ((square, sum), &x) in squares.iter_mut().zip(sums).zip(x) {
                        let x = f64::from(x);
                        *sum += scale * x;
                        *square += x * x;
                    }
                }
                for ((square, sum), &x) in squares.iter_mut().zip(rest).zip(tail) {
                    let x = f64::from(x);
                    *sum += scale * x;
                    *square += x * x;
                }
            }
            Some(indices) => {
                for (&index, &x) in indices.iter().zip(self.values) {
                    let x = f64::from(x);
                    sum[index as usize] += scale * x;
                    squares[0] += x * x;
                }
            }
        }
        if self.bias != 0.0
            && let Some(last) = sum.last_mut()
        {
            let bias = f64::from(self.bias);
            *last += scale * bias;
            squares[0] += bias * bias;
        }
        squares.iter().sum()
    }
}

/// Calls `each` with the number and the values of every row, asking ahead for rows and for their weights.
struct Walk<'a, F> {
    rows: &'a BlockRows<'a>,
    places: &'a [RowAddress],
    /// The address of the index of the first feature that a row is about to touch, and bytes to the next feature's.
    touched: *const u8,
    stride: usize,
    each: F,
}

impl<F: FnMut(usize, Values<'_>)> Kernel for Walk<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let rows = self.rows;
        let bias = rows.bias;
        match rows.layout {
            Layout::Dense { width } => {
                let (width, used) = rows.dense_widths(width);
                for (s, place) in self.places.iter().enumerate() {
                    let start = place.start as usize * width;
                    let segment = &rows.segments[place.segment as usize];
                    // Rows of a table may be in any order.
                    if let Some(ahead) = self.places.get(s + ROW_AHEAD) {
                        let values = rows.segments[ahead.segment as usize].values;
                        prefetch(values.as_ptr().wrapping_add(ahead.start as usize * width));
                    }
                    let values = &segment.values[start..start + used];
                    (self.each)(
                        s,
                        Values {
                            indices: None,
                            values,
                            bias,
                        },
                    );
                }
            }
            Layout::Sparse | Layout::Bytes => {
                for (s, &place) in self.places.iter().enumerate() {
                    if let Some(&ahead) = self.places.get(s + ROW_AHEAD) {
                        prefetch_sparse(&rows.segments[ahead.segment as usize], ahead);
                    }
                    if let Some(&ahead) = self.places.get(s + WEIGHTS_AHEAD) {
                        for &index in rows.indices(ahead) {
                            prefetch(self.touched.wrapping_add(index as usize * self.stride));
                        }
                    }
                    let indices = rows.indices(place);
                    let start = place.start as usize;
                    let values =
                        &rows.segments[place.segment as usize].values[start..start + indices.len()];
                    (self.each)(
                        s,
                        Values {
                            indices: Some(indices),
                            values,
                            bias,
                        },
                    );
                }
            }
        }
    }
}
