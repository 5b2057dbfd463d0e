use super::*;
use crate::simd::Simd;
use crate::{Lstm, LstmGradients, LstmInput, LstmWeights, Position, positions_of_lengths};

/// x, h0, c0, w_ih, w_hh and the sum of biases, one after the other, in f64.
fn parts(s: &Lstm) -> [usize; 6] {
    let Lstm {
        steps,
        batch,
        input,
        hidden,
    } = *s;
    [
        steps * batch * input,
        batch * hidden,
        batch * hidden,
        4 * hidden * input,
        4 * hidden * hidden,
        4 * hidden,
    ]
}

/// Outputs of all steps and cells of all steps.
fn plain(s: &Lstm, all: &[f64], positions: Option<&[Position]>) -> (Vec<f64>, Vec<f64>) {
    let mut rest = all;
    let [x, h0, c0, w_ih, w_hh, b] = parts(s).map(|n| {
        let (part, after) = rest.split_at(n);
        rest = after;
        part
    });
    let Lstm {
        steps,
        batch,
        input,
        hidden,
    } = *s;
    let (mut h, mut c) = (h0.to_vec(), c0.to_vec());
    let (mut ys, mut cs) = (Vec::new(), Vec::new());
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for t in 0..steps {
        for row in 0..batch {
            let (h, c) = (
                &mut h[row * hidden..][..hidden],
                &mut c[row * hidden..][..hidden],
            );
            match positions.map_or(Position::Next, |p| p[t * batch + row]) {
                Position::Hold => continue,
                Position::Reset => {
                    h.fill(0.0);
                    c.fill(0.0);
                }
                Position::Next => {}
            }
            let x = &x[(t * batch + row) * input..][..input];
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let z: Vec<f64> = (0..4 * hidden)
                .map(|j| {
                    b[j] + dot(&w_ih[j * input..][..input], x)
                        + dot(&w_hh[j * hidden..][..hidden], h)
                })
                .collect();
            for u in 0..hidden {
                let [i, f, g, o] = [0, 1, 2, 3].map(|gate| z[gate * hidden + u]);
                c[u] = sigmoid(f) * c[u] + sigmoid(i) * g.tanh();
                h[u] = sigmoid(o) * c[u].tanh();
            }
        }
        ys.extend(&h);
        cs.extend(&c);
    }
    (ys, cs)
}

struct Case {
    sizes: Lstm,
    tensors: [Vec<f32>; 6],
    dy: Vec<f32>,
    dcn: Vec<f32>,
    positions: Option<Vec<Position>>,
}

struct Results {
    y: Vec<f32>,
    cells: Vec<f32>,
    /// By x, h0, c0, w_ih, w_hh, b.
    gradients: Vec<f32>,
}

impl Case {
    fn run(&self, level: Simd) -> Results {
        let s = &self.sizes;
        let [x, h0, c0, w_ih, w_hh, b] = &self.tensors;
        let positions = self.positions.as_deref();
        let input = LstmInput {
            x,
            h0,
            c0,
            positions,
        };
        let zeros = vec![0.0; b.len()];
        let weights = LstmWeights {
            w_ih,
            w_hh,
            b_ih: b,
            b_hh: &zeros,
        };
        let rows = s.steps * s.batch;
        let (mut y, mut cells) = (vec![9.0; rows * s.hidden], vec![9.0; rows * s.hidden]);
        let mut gates = vec![9.0; rows * 4 * s.hidden];
        s.forward_at(level, input, weights, &mut y, &mut cells, &mut gates);
        let [mut dx, mut dh0, _, mut dw_ih, mut dw_hh, mut db] = parts(s).map(|n| vec![0.0; n]);
        let mut dc0 = self.dcn.clone();
        let gradients = LstmGradients {
            dx: Some(&mut dx),
            dh0: &mut dh0,
            dc0: &mut dc0,
            dw_ih: &mut dw_ih,
            dw_hh: &mut dw_hh,
            db: &mut db,
        };
        s.backward_at(
            level,
            input,
            weights,
            (&y, &cells, &mut gates),
            &self.dy,
            gradients,
        );
        Results {
            y,
            cells,
            gradients: [dx, dh0, dc0, dw_ih, dw_hh, db].concat(),
        }
    }

    fn check(&self) {
        let s = &self.sizes;
        let all = wide(&self.tensors.concat());
        let positions = self.positions.as_deref();
        let (y, cells) = plain(s, &all, positions);
        let sample = spread(all.len(), 60);
        let last = (s.steps - 1) * s.batch * s.hidden;
        let slopes = slopes(&all, &sample, |all| {
            let (y, cells) = plain(s, all, positions);
            let dot = |a: &[f64], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, &b)| a * f64::from(b)).sum()
            };
            dot(&y, &self.dy) + dot(&cells[last..], &self.dcn)
        });
        for level in Simd::available() {
            let got = self.run(level);
            close("y", &got.y, &y, 2e-6);
            close("cells", &got.cells, &cells, 2e-6);
            close("gradients", &pick(&got.gradients, &sample), &slopes, 5e-6);
        }
    }
}

fn case(steps: usize, batch: usize, input: usize, hidden: usize) -> Case {
    let sizes = Lstm {
        steps,
        batch,
        input,
        hidden,
    };
    let mut seed = 0;
    let by = [1.0, 1.0, 1.0, 0.5, 1.0 / (hidden as f32).sqrt(), 0.5];
    let tensors = parts(&sizes).map(|n| {
        seed += 1;
        scaled(seed, n, by[seed as usize - 1])
    });
    Case {
        sizes,
        tensors,
        dy: numbers(8, steps * batch * hidden),
        dcn: numbers(9, batch * hidden),
        positions: None,
    }
}

#[test]
fn odd_shapes() {
    for (steps, batch, input, hidden) in [
        (1, 1, 1, 1),
        (3, 1, 2, 20),
        (2, 3, 5, 16),
        (4, 33, 3, 7),
        (2, 2, 4, 75),
        (3, 15, 1, 33),
    ] {
        case(steps, batch, input, hidden).check();
    }
}

/// More numbers in a row than a tile takes at once.
#[test]
fn hidden_units_beyond_a_block() {
    case(2, 2, 1, 270).check();
}

#[test]
fn lengths_resets_and_holds() {
    let mut held = case(5, 3, 4, 19);
    held.positions = Some(positions_of_lengths(5, &[5, 2, 0]));
    held.check();
    let y = held.run(Simd::current()).y;
    let row = |t: usize, b: usize| &y[(t * 3 + b) * 19..][..19];
    assert_eq!(row(4, 1), row(1, 1));
    assert_eq!(row(4, 2), &held.tensors[1][2 * 19..]);

    let mut mixed = case(6, 17, 3, 18);
    let kinds = [
        Position::Next,
        Position::Next,
        Position::Reset,
        Position::Hold,
    ];
    mixed.positions = Some((0..6 * 17).map(|i| kinds[i * 7 / 3 % 4]).collect());
    mixed.check();
}

/// Two sentences in one row, the second after a reset, give the same results as alone.
#[test]
fn nothing_leaks_over_a_reset() {
    let mut both = case(7, 1, 3, 21);
    both.tensors[1].fill(0.0);
    both.tensors[2].fill(0.0);
    both.dcn.fill(0.0);
    let positions = (0..7).map(|t| {
        if t == 4 {
            Position::Reset
        } else {
            Position::Next
        }
    });
    both.positions = Some(positions.collect());
    let [x, .., b] = parts(&both.sizes);
    let got = both.run(Simd::current());
    let mut alone = case(3, 1, 3, 21);
    for i in 1..6 {
        alone.tensors[i] = both.tensors[i].clone();
    }
    alone.tensors[0] = both.tensors[0][4 * 3..].to_vec();
    alone.dy = both.dy[4 * 21..].to_vec();
    alone.dcn.fill(0.0);
    let expected = alone.run(Simd::current());
    close("y", &got.y[4 * 21..], &wide(&expected.y), 1e-6);
    close(
        "dx",
        &got.gradients[4 * 3..x],
        &wide(&expected.gradients[..3 * 3]),
        1e-6,
    );
    assert_eq!(b, 84);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let mut case = case(9, 5, 8, 150);
    let kinds = [
        Position::Next,
        Position::Next,
        Position::Reset,
        Position::Next,
        Position::Hold,
    ];
    case.positions = Some((0..45).map(|i| kinds[i * 7 / 3 % 5]).collect());
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("a pool").install(|| case.run(Simd::current()))
    };
    let one = with(1);
    for threads in [2, 3, 16] {
        let many = with(threads);
        assert_eq!(one.y, many.y);
        assert_eq!(one.gradients, many.gradients);
    }
}

#[test]
fn as_in_pytorch() {
    let sizes = Lstm {
        steps: 4,
        batch: 3,
        input: 5,
        hidden: 7,
    };
    let mut seed = 9;
    let mut tensors = parts(&sizes).map(|n| {
        seed += 1;
        numbers(seed, n)
    });
    for (b, second) in tensors[5].iter_mut().zip(numbers(16, 28)) {
        *b += second;
    }
    let case = Case {
        sizes,
        tensors,
        dy: numbers(17, 84),
        dcn: numbers(18, 21),
        positions: None,
    };
    for level in Simd::available() {
        let got = case.run(level);
        close("y", &got.y, &expected("lstm.y"), 2e-6);
        close("cn", &got.cells[63..], &expected("lstm.cn"), 2e-6);
        let gradients: Vec<f64> = ["dx", "dh0", "dc0", "dw_ih", "dw_hh", "db_ih"]
            .iter()
            .flat_map(|name| expected(&format!("lstm.{name}")))
            .collect();
        close("gradients", &got.gradients, &gradients, 5e-6);
    }
}
