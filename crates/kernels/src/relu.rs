//! The rectifier, for use on its own: other loops include it if they can.

use rayon::prelude::*;

use crate::simd::{Kernel, Simd, run};

/// y = max(x, 0); NaN stays NaN.
pub fn relu(x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "input and output of a ReLU");
    y.par_chunks_mut(1 << 14)
        .zip(x.par_chunks(1 << 14))
        .for_each(|(y, x)| {
            run(Simd::current(), Relu(x, y));
        });
}

struct Relu<'a>(&'a [f32], &'a mut [f32]);

impl Kernel for Relu<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (y, &x) in self.1.iter_mut().zip(self.0) {
            *y = if x < 0.0 { 0.0 } else { x };
        }
    }
}

/// Gradient of the input of a ReLU from its output and the gradient of that.
pub fn relu_backward(y: &[f32], dy: &[f32], dx: &mut [f32]) {
    assert!(
        y.len() == dy.len() && y.len() == dx.len(),
        "output of a ReLU and gradients"
    );
    let inputs = y.par_chunks(1 << 14).zip(dy.par_chunks(1 << 14));
    dx.par_chunks_mut(1 << 14)
        .zip(inputs)
        .for_each(|(dx, (y, dy))| {
            run(Simd::current(), ReluBackward(y, dy, dx));
        });
}

struct ReluBackward<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

impl Kernel for ReluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((dx, &y), &dy) in self.2.iter_mut().zip(self.0).zip(self.1) {
            *dx = if y > 0.0 { dy } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relu_and_its_gradient() {
        let x = [-1.0, 0.0, 2.0, -0.0, f32::NAN];
        let mut y = [9.0; 5];
        relu(&x, &mut y);
        assert_eq!(y[..4], [0.0, 0.0, 2.0, 0.0]);
        assert!(y[4].is_nan());
        let mut dx = [9.0; 4];
        relu_backward(&y[..4], &[1.0, 2.0, 3.0, 4.0], &mut dx);
        assert_eq!(dx, [0.0, 0.0, 3.0, 0.0]);
    }
}
