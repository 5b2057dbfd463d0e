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
    let touched = w.as_ptr().cast();
    let walk = Walk {
        rows,
        places,
        touched,
        stride: size_of::<W>(),
        each: Dot { w, out },
    };
    run(simd, walk);
}

/// Writes ‖x‖ of each row of `places` into `out`.
pub(crate) fn norms(simd: Simd, rows: &BlockRows<'_>, places: &[RowAddress], out: &mut [f64]) {
    let walk = Walk {
        rows,
        places,
        touched: std::ptr::null(),
        stride: 0,
        each: Norm { out },
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
    let each = Add {
        scales,
        sum,
        size: &mut size,
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

/// The work for each row. Its method must always be inlined: a closure may be compiled separately, without the
/// processor's features.
trait Each {
    fn each(&mut self, s: usize, x: Values<'_>);
}

struct Dot<'a, W> {
    w: &'a [W],
    out: &'a mut [f64],
}

impl<W: Copy + Into<f64>> Each for Dot<'_, W> {
    #[inline(always)]
    fn each(&mut self, s: usize, x: Values<'_>) {
        self.out[s] = x.dot(self.w);
    }
}

struct Norm<'a> {
    out: &'a mut [f64],
}

impl Each for Norm<'_> {
    #[inline(always)]
    fn each(&mut self, s: usize, x: Values<'_>) {
        self.out[s] = x.square().sqrt();
    }
}

struct Add<'a> {
    scales: &'a [f64],
    sum: &'a mut [f64],
    size: &'a mut f64,
}

impl Each for Add<'_> {
    #[inline(always)]
    fn each(&mut self, s: usize, x: Values<'_>) {
        let scale = self.scales[s];
        if scale != 0.0 {
            *self.size += scale.abs() * x.add_to(scale, self.sum).sqrt();
        }
    }
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
                let (ws, w_tail) = w[..self.values.len()].as_chunks::<LANES>();
                // Plain loops: iterator adapters would be compiled as separate functions too.
                for c in 0..chunks.len() {
                    for k in 0..LANES {
                        sums[k] += f64::from(chunks[c][k]) * ws[c][k].into();
                    }
                }
                for k in 0..tail.len() {
                    dot += f64::from(tail[k]) * w_tail[k].into();
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
        for chunk in chunks {
            for k in 0..LANES {
                let x = f64::from(chunk[k]);
                sums[k] += x * x;
            }
        }
        for k in 0..tail.len() {
            sums[k] += f64::from(tail[k]) * f64::from(tail[k]);
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
                for c in 0..chunks.len() {
                    for k in 0..LANES {
                        let x = f64::from(chunks[c][k]);
                        sums[c][k] += scale * x;
                        squares[k] += x * x;
                    }
                }
                for k in 0..tail.len() {
                    let x = f64::from(tail[k]);
                    rest[k] += scale * x;
                    squares[k] += x * x;
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

/// Calls `each` with the index and the values of every row; prefetches rows and their weights.
struct Walk<'a, F> {
    rows: &'a BlockRows<'a>,
    places: &'a [RowAddress],
    /// The address of the index of the first feature that a row is about to touch, and bytes to the next feature's.
    touched: *const u8,
    stride: usize,
    each: F,
}

impl<F: Each> Kernel for Walk<'_, F> {
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
                    self.each.each(
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
                    self.each.each(
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
