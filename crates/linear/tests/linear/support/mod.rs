//! Synthetic rows with a planted separator, shared by the tests.

use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, Mutex};

use pelton_format::{Layout, Row, RowTable, Rows};
use pelton_linear::{
    Certificate, Duals, Exchange, LinearError, Loss, PassFigures, PassSolver, Problem, Weights,
    alone,
};

/// Numbers for test data: xorshift64*, Vigna 2016.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound
    }

    /// Uniform in [−1, 1).
    pub fn symmetric(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// `count` rows of `classes` classes: dense of `features` features, or sparse with about a fifth of
/// them. Every seventh label is wrong at random, so that the classes are not separable.
pub fn planted(layout: Layout, count: usize, features: usize, classes: usize, seed: u64) -> Rows {
    let mut numbers = Numbers::new(seed);
    let centres: Vec<f32> = (0..classes * features)
        .map(|_| numbers.symmetric())
        .collect();
    let mut rows = Rows::new(layout);
    for _ in 0..count {
        let keep = |numbers: &mut Numbers| layout != Layout::Sparse || numbers.below(5) == 0;
        let row: Vec<f32> = (0..features)
            .map(|_| {
                if keep(&mut numbers) {
                    numbers.symmetric()
                } else {
                    0.0
                }
            })
            .collect();
        let score = |class: usize| -> f32 {
            let centre = &centres[class * features..(class + 1) * features];
            centre.iter().zip(&row).map(|(c, x)| c * x).sum()
        };
        let mut label = (0..classes)
            .max_by(|&a, &b| score(a).total_cmp(&score(b)))
            .unwrap();
        if numbers.below(7) == 0 {
            label = numbers.below(classes);
        }
        push(&mut rows, label as u32, &row);
    }
    rows
}

/// Appends a row, leaving its zeros out when rows are sparse.
pub fn push(rows: &mut Rows, label: u32, row: &[f32]) {
    match rows.layout() {
        Layout::Dense { .. } => rows.push_dense(label, row),
        Layout::Sparse => {
            let indices: Vec<u32> = (0..row.len() as u32)
                .filter(|&i| row[i as usize] != 0.0)
                .collect();
            let values: Vec<f32> = indices.iter().map(|&i| row[i as usize]).collect();
            rows.push_sparse(label, &indices, &values);
        }
        Layout::Bytes => panic!("rows are features"),
    }
}

/// All rows of a segment under the ids 0, 1, …
pub fn table(rows: Rows) -> RowTable {
    let ids = (0..rows.len() as u64).collect();
    RowTable::from_rows(rows, ids)
}

/// The dual value of a subproblem from its definition: row by row, f64, using only the α from the library; with a free
/// bias those of the heavier side are scaled to balance both.
pub fn dual_value(problem: &Problem, rows: &RowTable, duals: &Duals, subproblem: usize) -> f64 {
    let mut w = vec![0.0_f64; problem.features() + 1];
    let mut terms = 0.0;
    let is_real = problem.loss().has_real_targets();
    let sign_of = |i: usize| match is_real {
        true => 1.0,
        false => problem.sign(subproblem, rows.label(i)),
    };
    let alpha_of = |i: usize| duals.alpha(problem, subproblem, rows.id(i), rows.label(i));
    let mut factors = [1.0; 2];
    if problem.bias_is_free() {
        let weight = |sign: f64| -> f64 {
            let signed = |i: usize| f64::from(sign_of(i)) * alpha_of(i) * sign;
            (0..rows.len()).map(|i| signed(i).max(0.0)).sum()
        };
        let sides = [weight(1.0), weight(-1.0)];
        let lighter = sides[0].min(sides[1]);
        factors = sides.map(|side| if side > 0.0 { lighter / side } else { 1.0 });
    }
    for i in 0..rows.len() {
        let class = rows.label(i);
        let is_negative = f64::from(sign_of(i)) * alpha_of(i) < 0.0;
        let alpha = alpha_of(i) * factors[usize::from(is_negative)];
        let cost = problem.cost_of(if is_real { 0 } else { class }, rows.id(i));
        let target = f64::from(f32::from_bits(class));
        let squared = |epsilon: f64, cost: f64| {
            target * alpha - epsilon * alpha.abs() - alpha * alpha / (2.0 * cost)
        };
        terms += match problem.loss() {
            Loss::Hinge => alpha,
            Loss::SquaredHinge => alpha - alpha * alpha / (4.0 * cost),
            Loss::Logistic | Loss::Multinomial if alpha <= 0.0 || alpha >= cost => 0.0,
            Loss::Logistic | Loss::Multinomial => {
                let share = alpha / cost;
                -cost * (share * share.ln() + (1.0 - share) * (-share).ln_1p())
            }
            Loss::Squared | Loss::Huber(_) => squared(0.0, cost),
            Loss::EpsilonInsensitive(epsilon) => target * alpha - epsilon * alpha.abs(),
            Loss::SquaredEpsilonInsensitive(epsilon) => squared(epsilon, 2.0 * cost),
            Loss::Poisson => {
                let mean = target - alpha / cost;
                let entropy = |m: f64| if m > 0.0 { m * m.ln() } else { 0.0 };
                cost * (mean - entropy(mean) + entropy(target) - target)
            }
        };
        let scale = alpha * f64::from(sign_of(i));
        for (w, x) in w.iter_mut().zip(dense(rows.row(i), problem.features())) {
            *w += scale * x;
        }
        let bias = problem.bias().filter(|_| !problem.bias_is_free());
        w[problem.features()] += scale * f64::from(bias.unwrap_or(0.0));
    }
    terms - 0.5 * w.iter().map(|w| w * w).sum::<f64>()
}

/// P over all subproblems from its definition: row by row, f64, without the library.
pub fn primal_value(problem: &Problem, rows: &RowTable, weights: &Weights) -> f64 {
    let regularised = problem.features() + usize::from(problem.bias().is_some());
    let regularised = regularised - usize::from(problem.bias_is_free());
    let share = problem.penalty().l1_share();
    let mut value = 0.0;
    for s in 0..problem.subproblems() {
        for &w in &weights.vector(s)[..regularised] {
            let w = f64::from(w);
            value += share * w.abs() + 0.5 * (1.0 - share) * w * w;
        }
    }
    for i in 0..rows.len() {
        let mut x = dense(rows.row(i), problem.features());
        x.extend(problem.bias().map(f64::from));
        let label = rows.label(i);
        let is_real = problem.loss().has_real_targets();
        let cost = problem.cost_of(if is_real { 0 } else { label }, rows.id(i));
        let value_of = |s: usize| -> f64 {
            let w = weights.vector(s).iter().map(|&w| f64::from(w));
            w.zip(&x).map(|(w, x)| w * x).sum()
        };
        if problem.is_coupled() {
            let own = value_of(label as usize);
            let above: Vec<f64> = (0..problem.classes())
                .filter(|class| *class != label as usize)
                .map(|class| value_of(class) - own)
                .collect();
            let most = above.iter().copied().fold(0.0, f64::max);
            let sum: f64 = above.iter().map(|above| (above - most).exp()).sum();
            value += cost
                * if most == 0.0 {
                    sum.ln_1p()
                } else {
                    most + (sum + (-most).exp()).ln()
                };
            continue;
        }
        for s in 0..problem.subproblems() {
            let (sign, target) = match is_real {
                true => (1.0, f64::from(f32::from_bits(label))),
                false => (f64::from(problem.sign(s, label)), 1.0),
            };
            value += cost * loss_value(problem.loss(), sign * value_of(s), target);
        }
    }
    value
}

/// ξ(u; t) from its definition.
fn loss_value(loss: Loss, u: f64, target: f64) -> f64 {
    let off = (target - u).abs();
    match loss {
        Loss::Hinge => (1.0 - u).max(0.0),
        Loss::SquaredHinge => (1.0 - u).max(0.0).powi(2),
        Loss::Logistic | Loss::Multinomial => (-u.abs()).exp().ln_1p() + (-u).max(0.0),
        Loss::Squared => 0.5 * off * off,
        Loss::EpsilonInsensitive(epsilon) => (off - epsilon).max(0.0),
        Loss::SquaredEpsilonInsensitive(epsilon) => (off - epsilon).max(0.0).powi(2),
        Loss::Huber(epsilon) if off <= epsilon => 0.5 * off * off,
        Loss::Huber(epsilon) => epsilon * off - 0.5 * epsilon * epsilon,
        Loss::Poisson if target > 0.0 => {
            let z = u - target.ln();
            target * (z.exp_m1() - z)
        }
        Loss::Poisson => u.exp(),
    }
}

/// The values of a row, zeros too.
pub fn dense(row: Row<'_>, features: usize) -> Vec<f64> {
    let mut values = vec![0.0; features];
    match row {
        Row::Dense(row) => values
            .iter_mut()
            .zip(row)
            .for_each(|(v, &x)| *v = f64::from(x)),
        Row::Sparse { indices, values: x } => {
            for (&index, &x) in indices.iter().zip(x) {
                values[index as usize] = f64::from(x);
            }
        }
        Row::Bytes(_) => panic!("rows are features"),
    }
    values
}

/// Lets the ranks of a test meet.
struct Table {
    barrier: Barrier,
    reported: Mutex<Vec<Vec<u64>>>,
}

impl Table {
    pub fn new(ranks: usize) -> Table {
        Table {
            barrier: Barrier::new(ranks),
            reported: Mutex::new(vec![Vec::new(); ranks]),
        }
    }

    /// The values of all ranks, by rank.
    fn all(&self, rank: usize, own: Vec<u64>) -> Vec<Vec<u64>> {
        self.reported.lock().unwrap()[rank] = own;
        self.barrier.wait();
        let all = self.reported.lock().unwrap().clone();
        self.barrier.wait();
        all
    }

    fn reduce(&self, rank: usize, values: &[f64], with: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let own = values.iter().map(|value| value.to_bits()).collect();
        let mut all = self.all(rank, own).into_iter();
        let numbers =
            |reported: Vec<u64>| reported.into_iter().map(f64::from_bits).collect::<Vec<_>>();
        let first = numbers(all.next().unwrap());
        all.fold(first, |sums, reported| {
            let pairs = sums.into_iter().zip(numbers(reported));
            pairs.map(|(a, b)| with(a, b)).collect()
        })
    }

    pub fn exchange(&self, rank: usize, what: Exchange<'_>) -> Result<(), LinearError> {
        match what {
            Exchange::Sum(values) => {
                let sums = self.reduce(rank, values, |a, b| a + b);
                values.copy_from_slice(&sums);
            }
            Exchange::Largest(values) => {
                let largest = self.reduce(rank, values, f64::max);
                values.copy_from_slice(&largest);
            }
            Exchange::Gather(values) => {
                let own = values.iter().map(|value| value.to_bits()).collect();
                let all = self.all(rank, own).concat();
                *values = all.into_iter().map(f64::from_bits).collect();
            }
        }
        Ok(())
    }
}

/// Makes passes over rows to the end; returns the results of the last, and the number of passes.
pub fn passes(
    solver: &mut dyn PassSolver,
    rows: &RowTable,
) -> Result<(PassFigures, usize), LinearError> {
    for pass in 1.. {
        solver.begin_pass();
        assert!(solver.add(rows, &AtomicBool::new(false))?);
        let found = solver.end_pass(&mut alone::<LinearError>)?;
        if found.done || pass == 300 {
            return Ok((found, pass));
        }
    }
    unreachable!()
}

/// Runs a method of passes on ranks that split the rows of `rows`, each with a solver from `new`; returns certificate,
/// weights and passes of each.
pub fn over_ranks<S: PassSolver>(
    rows: &Rows,
    ranks: usize,
    new: impl Fn() -> S + Sync,
) -> Vec<(Certificate, Weights, usize)> {
    let meeting = Table::new(ranks);
    let never = AtomicBool::new(false);
    let run = |rank: usize| {
        let mine: Vec<u64> = (rank as u64..rows.len() as u64).step_by(ranks).collect();
        let mut own = Rows::new(rows.layout());
        for &id in &mine {
            own.push(rows.label(id as usize), rows.row(id as usize));
        }
        let own = RowTable::from_rows(own, mine);
        let mut solver = new();
        for pass in 1..=300_usize {
            solver.begin_pass();
            solver.add(&own, &never).unwrap();
            let found = solver.end_pass(&mut |what| meeting.exchange(rank, what));
            let found = found.unwrap();
            if found.done {
                return (found.certificate, solver.best().0, pass);
            }
        }
        panic!("no end")
    };
    std::thread::scope(|scope| {
        let run = &run;
        let ranks = (0..ranks).map(|rank| scope.spawn(move || run(rank)));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
