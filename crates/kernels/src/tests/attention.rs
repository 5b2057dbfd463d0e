use super::*;
use crate::Attention;
use crate::simd::Simd;

fn plain(a: &Attention<'_>, qkv: &[f64]) -> Vec<f64> {
    let Attention {
        batch,
        steps,
        heads,
        width,
        ..
    } = *a;
    let mut out = vec![0.0; batch * steps * heads * width];
    for row in 0..batch {
        for head in 0..heads {
            let part = |t: usize, part: usize| {
                let at = (((row * steps + t) * 3 + part) * heads + head) * width;
                &qkv[at..at + width]
            };
            for t in 0..steps {
                let start = (0..=t)
                    .rev()
                    .take_while(|&s| {
                        let segment = |s: usize| a.segments.map(|of| of[row * steps + s]);
                        segment(s) == segment(t)
                    })
                    .last()
                    .expect("itself");
                let weights: Vec<f64> = (start..=t)
                    .map(|s| {
                        let dot: f64 = part(t, 0).iter().zip(part(s, 1)).map(|(q, k)| q * k).sum();
                        (dot / (width as f64).sqrt()).exp()
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                for (s, w) in (start..).zip(weights) {
                    let at = ((row * steps + t) * heads + head) * width;
                    for (out, v) in out[at..at + width].iter_mut().zip(part(s, 2)) {
                        *out += w / total * v;
                    }
                }
            }
        }
    }
    out
}

fn check(a: &Attention<'_>) {
    let n = a.batch * a.steps * a.heads * a.width;
    let (qkv, dout) = (scaled(1, 3 * n, 2.0), numbers(2, n));
    let expected = plain(a, &wide(&qkv));
    let sample = spread(3 * n, 30);
    let slopes = slopes(&wide(&qkv), &sample, |qkv| {
        let out = plain(a, qkv);
        out.iter().zip(&dout).map(|(o, &d)| o * f64::from(d)).sum()
    });
    for level in Simd::available() {
        let (mut out, mut log_sums) = (vec![9.0; n], vec![9.0; a.batch * a.heads * a.steps]);
        a.forward_at(level, &qkv, &mut out, &mut log_sums);
        close("out", &out, &expected, 2e-6);
        let mut dqkv = vec![9.0; 3 * n];
        a.backward_at(level, &qkv, &out, &log_sums, &dout, &mut dqkv);
        close("dqkv", &pick(&dqkv, &sample), &slopes, 5e-6);
    }
}

#[test]
fn odd_shapes() {
    for (batch, steps, heads, width) in [
        (1, 1, 1, 1),
        (2, 3, 2, 5),
        (1, 43, 1, 16),
        (3, 50, 2, 33),
        (1, 90, 3, 8),
    ] {
        check(&Attention {
            batch,
            steps,
            heads,
            width,
            segments: None,
        });
    }
}

/// More keys than a block holds, so that earlier sums are rescaled.
#[test]
fn keys_beyond_a_block() {
    check(&Attention {
        batch: 1,
        steps: 300,
        heads: 1,
        width: 3,
        segments: None,
    });
}

#[test]
fn segments_see_themselves_alone() {
    let segments: Vec<u32> = (0..2 * 60).map(|i| [5, 1, 5][i * 7 % 120 / 40]).collect();
    check(&Attention {
        batch: 2,
        steps: 60,
        heads: 2,
        width: 6,
        segments: Some(&segments),
    });
    let long: Vec<u32> = (0..310).map(|t| u32::from(t >= 20)).collect();
    check(&Attention {
        batch: 1,
        steps: 310,
        heads: 1,
        width: 2,
        segments: Some(&long),
    });
}

#[test]
fn as_in_pytorch() {
    let a = Attention {
        batch: 2,
        steps: 5,
        heads: 2,
        width: 3,
        segments: None,
    };
    let (qkv, dout) = (scaled(20, 180, 2.0), numbers(21, 60));
    for level in Simd::available() {
        let (mut out, mut log_sums) = (vec![0.0; 60], vec![0.0; 20]);
        a.forward_at(level, &qkv, &mut out, &mut log_sums);
        close("out", &out, &expected("attention.y"), 2e-6);
        let mut dqkv = vec![0.0; 180];
        a.backward_at(level, &qkv, &out, &log_sums, &dout, &mut dqkv);
        close("dqkv", &dqkv, &expected("attention.dqkv"), 2e-6);
    }
}
