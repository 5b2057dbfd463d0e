//! A subproblem between two passes, and its bounds from the sums of a look.

use crate::certificate::Certificate;
use crate::look::{Bounds, Rounding, Sums, View, gamma};
use crate::problem::Problem;

/// Looks in a row without progress after which training ends.
pub(super) const MOST_IDLE: u32 = 3;

/// One subproblem.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub w: Vec<f64>,
    /// Features of the working set.
    pub set: Vec<u32>,
    pub best_w: Vec<f32>,
    pub best_primal: f64,
    pub best_dual: f64,
    pub gap: f64,
    /// How far above ρ the largest |v_j| outside of the set is, as a share of ρ.
    pub outside: f64,
    pub idle: u32,
    pub at_best: bool,
    pub done: bool,
}

impl Point {
    pub fn new(length: usize) -> Point {
        Point {
            w: vec![0.0; length],
            set: Vec::new(),
            best_w: vec![0.0; length],
            best_primal: f64::INFINITY,
            // α = 0 is feasible.
            best_dual: 0.0,
            gap: f64::INFINITY,
            outside: 0.0,
            idle: 0,
            at_best: false,
            done: false,
        }
    }

    /// Takes the results of a look; returns v.
    pub fn end_look(
        &mut self,
        sums: &Sums,
        problem: &Problem,
        rounding: &Rounding,
        wanted: f64,
        totals: &[f64],
        squares: &[f64],
    ) -> Vec<f64> {
        let view = View::new(&self.w);
        let Bounds {
            primal,
            terms,
            v,
            slack,
        } = Bounds::new(sums, &view, problem, rounding);
        let improves = primal < self.best_primal;
        if improves {
            self.best_primal = primal;
            self.best_w.clone_from(&view.rounded);
        }
        self.at_best = self.best_w == view.rounded;
        // A coordinate is off by its additions times Σ abs(α x_j), which is at most ‖α‖ ‖x_j‖; the share of a side, by
        // those of the bias.
        let alphas = sums.alphas.sqrt();
        let records = rounding.rows;
        let off = |j: usize| {
            let (count, square) = match (totals.get(j), squares.get(j)) {
                (Some(count), Some(square)) => (*count, *square),
                _ => (
                    records,
                    records * f64::from(problem.bias().unwrap_or(0.0)).powi(2),
                ),
            };
            let shared = if slack > 1.0 { rounding.additions } else { 0.0 };
            let additions = slack * gamma(rounding.additions.min(count + 64.0).max(shared) + 16.0);
            additions * alphas * square.sqrt() * (1.0 + 1e-9)
        };
        let magnitudes: Vec<f64> = v
            .iter()
            .enumerate()
            .map(|(j, v)| v.abs() + off(j))
            .collect();
        let dual = self.bound(terms, &magnitudes, problem);
        let rises = dual > self.best_dual + 1e-3 * (self.best_primal - self.best_dual);
        self.best_dual = self.best_dual.max(dual);
        let certificate = Certificate {
            primal: self.best_primal,
            dual: self.best_dual,
        };
        self.gap = certificate.relative_gap();
        self.idle = if rises || improves { 0 } else { self.idle + 1 };
        // The target over all subproblems follows from that of each.
        self.done = self.gap <= wanted || self.idle >= MOST_IDLE;
        v
    }

    /// max over θ in 0 to 1 of θ `terms` − R*(θ v), of the magnitudes of v, less its rounding.
    fn bound(&self, terms: f64, magnitudes: &[f64], problem: &Problem) -> f64 {
        let penalty = problem.penalty();
        let share = penalty.l1_share();
        let most = magnitudes.iter().copied().fold(0.0, f64::max);
        let free = if most > share { share / most } else { 1.0 };
        let over: Vec<f64> = magnitudes.iter().copied().filter(|v| *v > share).collect();
        let rounding = gamma(over.len() as f64 + 16.0);
        let at = |theta: f64| {
            let conjugate = penalty.conjugate(over.iter().map(|v| theta * v)) * (1.0 + rounding);
            theta * terms - conjugate - 4.0 * f64::EPSILON * terms.abs()
        };
        // A little less, so that rounding does not lift any above ρ.
        let free = free * (1.0 - 4.0 * f64::EPSILON);
        if share == 1.0 {
            return if most > 1.0 {
                free * terms - 4.0 * f64::EPSILON * terms.abs()
            } else {
                at(1.0)
            };
        }
        // It is concave in θ.
        let (mut low, mut high) = (free, 1.0);
        let mut best = at(low).max(at(high));
        for _ in 0..40 {
            let third = (high - low) / 3.0;
            let (left, right) = (at(low + third), at(high - third));
            best = best.max(left).max(right);
            if left < right {
                low += third
            } else {
                high -= third
            }
        }
        best
    }

    pub fn to_numbers(&self) -> Vec<f64> {
        let own = |w: &[f64]| -> Vec<f64> {
            let pairs = w.iter().enumerate().filter(|(_, w)| **w != 0.0);
            pairs.flat_map(|(j, &w)| [j as f64, w]).collect()
        };
        let best: Vec<f64> = self.best_w.iter().map(|&w| f64::from(w)).collect();
        let (w, best) = (own(&self.w), own(&best));
        let mut numbers = vec![
            f64::from(u8::from(self.done)),
            self.best_primal,
            self.best_dual,
            self.gap,
            f64::from(self.idle),
            w.len() as f64,
        ];
        numbers.extend(w);
        numbers.extend(best);
        numbers
    }

    pub fn from_numbers(numbers: &[f64], length: usize) -> Option<Point> {
        let (figures, rest) = numbers.split_first_chunk::<6>()?;
        let &[done, best_primal, best_dual, gap, idle, count] = figures;
        let (w, best) = rest.split_at_checked(count as usize)?;
        let whole = |pairs: &[f64]| {
            let mut all = vec![0.0; length];
            let (pairs, rest) = pairs.as_chunks::<2>();
            for &[j, w] in pairs {
                *all.get_mut(j as usize)? = w;
            }
            rest.is_empty().then_some(all)
        };
        Some(Point {
            w: whole(w)?,
            set: Vec::new(),
            best_w: whole(best)?.iter().map(|&w| w as f32).collect(),
            best_primal,
            best_dual,
            gap,
            outside: 0.0,
            idle: idle as u32,
            at_best: false,
            done: done != 0.0,
        })
    }
}
