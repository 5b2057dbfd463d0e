//! How well an order shuffles, as a number between 0 (file order) and 1 (any order equally likely).
//!
//! Two numbers, because the published one is a heuristic:
//!
//! **RL**, the randomness level of DeepIO (Zhu et al., MASCOTS 2018). A perfect shuffle draws the
//! record for each place from the k that are left; the paper weighs that draw's log2(k) bits with
//! its chance 1/k, which sums to H(N) = Σ_{k=1..N} log2(k)/k. Shuffling N/c chunks of c records has
//! N/c draws, so RL(c) = H(N/c)/H(N) ≈ (1 − ln c/ln N)².
//!
//! **RL\***, the exact entropy: ln(orders an epoch can have) / ln(N!), every reachable order being
//! equally likely. It counts what RL only suggests.
//!
//! "Can have" is over keys. One run has a 64-bit seed, so of the N! orders it can reach 2^64 in an
//! epoch; like the paper, which does not count its generator's state either, we call an order
//! perfect (1) when no key-independent rule limits it.
//!
//! | order | RL | RL\* |
//! |---|---|---|
//! | sequential | 0 | 0 |
//! | full | 1 | 1 |
//! | page, u units | H(u)/H(N) | ln(u!)/ln(N!) |
//! | queue of q | see [`Randomness`] | ((N − q)·ln q + ln q!)/ln(N!) |
//! | block, fixed | 0 | 0 |
//! | block, B permuted | H(B)/H(N) | ln(B!)/ln(N!) |
//!
//! With one record or none there is one order and every order reaches it: 1 for both.

use crate::order::Order;

/// How well an order shuffles: 0 for file order, 1 when any order is equally likely.
///
/// `rl` is DeepIO's level, H(m)/H(N) with H(n) = Σ_{k≤n} log2(k)/k for m things in random order;
/// `rl_exact` is ln(orders an epoch can have)/ln(N!). Both are 0 for an order that is the same in
/// every epoch and 1 for `full`, and for at most one record.
///
/// *page*: the units are in random order, m of them, so m! orders.
///
/// *queue*: a slot is drawn from min(q, k) records when k are left, and different draws give
/// different outputs (the record that comes out names its slot), so q^(N−q)·q! orders are reachable,
/// each equally likely. The paper gives no RL for a buffer, and its formula is not a probability
/// there; we keep its weight 1/k and put in the bits actually drawn, log2 min(q, k):
/// RL = (H(q) + log2(q)·Σ_{k=q+1..N} 1/k)/H(N) ≈ 1 − (1 − ln q/ln N)². An initial shuffle is the
/// same in every epoch and adds nothing to either number.
///
/// *block*: the assignment is drawn once, so between epochs only the order of blocks can differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Randomness {
    /// Randomness level as published.
    pub rl: f64,
    /// Exact entropy relative to a perfect shuffle (RL*).
    pub rl_exact: f64,
}

impl Randomness {
    const PERFECT: Randomness = Randomness {
        rl: 1.0,
        rl_exact: 1.0,
    };
    const NONE: Randomness = Randomness {
        rl: 0.0,
        rl_exact: 0.0,
    };

    /// Of an order over `records` records; `units` is the number of page units (ignored elsewhere).
    pub(crate) fn of(order: Order, records: u64, units: u64) -> Randomness {
        if records <= 1 {
            return Randomness::PERFECT;
        }
        match order {
            Order::Sequential | Order::Block { permute: false, .. } => Randomness::NONE,
            Order::Full => Randomness::PERFECT,
            Order::Page { .. } => Randomness::chunks(records, units),
            Order::Block {
                blocks,
                permute: true,
            } => Randomness::chunks(records, blocks),
            Order::Queue { examples, .. } => Randomness::queue(records, examples),
        }
    }

    /// `chunks` runs of records in random order.
    fn chunks(records: u64, chunks: u64) -> Randomness {
        Randomness {
            rl: harmonic_log(chunks) / harmonic_log(records),
            rl_exact: ln_factorial(chunks as f64) / ln_factorial(records as f64),
        }
    }

    pub(crate) fn queue(records: u64, examples: u64) -> Randomness {
        if records <= 1 || examples >= records {
            return Randomness::PERFECT;
        }
        let (n, q) = (records as f64, examples as f64);
        let rest = harmonic(records) - harmonic(examples);
        Randomness {
            rl: (harmonic_log(examples) + q.log2() * rest) / harmonic_log(records),
            rl_exact: ((n - q) * q.ln() + ln_factorial(q)) / ln_factorial(n),
        }
    }
}

/// RL of shuffling `records` records in whole chunks of `chunk`: H(⌊records/chunk⌋)/H(records).
/// Asserts `chunk > 0`.
pub fn randomness_level(records: u64, chunk: u64) -> f64 {
    if records <= 1 {
        1.0
    } else {
        harmonic_log(records / chunk) / harmonic_log(records)
    }
}

/// RL* of reading `files` files of `records` records in all in `loads` random groups, each group
/// shuffled in memory: files!/((files/loads)!)^loads · ((records/loads)!)^loads orders.
///
/// The factorials are of real arguments, so the counts need not divide.
pub fn exact_level_of_loads(files: f64, records: f64, loads: f64) -> f64 {
    if records <= 1.0 {
        return 1.0;
    }
    let groups = ln_factorial(files) - loads * ln_factorial(files / loads);
    (groups + loads * ln_factorial(records / loads)) / ln_factorial(records)
}

/// ln(x!) = ln Γ(x + 1).
pub fn ln_factorial(x: f64) -> f64 {
    libm::lgamma(x + 1.0)
}

/// Below this the sums are added up; above, the expansions below are exact to rounding.
const DIRECT_TERMS: u64 = 64;

/// H(n) = Σ_{k=1..n} log2(k)/k.
///
/// By Euler–Maclaurin, with f(k) = ln(k)/k: Σ f = ln²n/2 + γ₁ + f(n)/2 + f′(n)/12 − f‴(n)/720 + …,
/// γ₁ the first Stieltjes constant. The next term is below 1e-12 from n = 64 on; less is summed.
pub fn harmonic_log(n: u64) -> f64 {
    const STIELTJES_1: f64 = -0.072_815_845_483_676_72;
    if n < DIRECT_TERMS {
        return (1..=n).map(|k| (k as f64).log2() / k as f64).sum();
    }
    let n = n as f64;
    let l = n.ln();
    let first = (1.0 - l) / (n * n);
    let third = (11.0 - 6.0 * l) / n.powi(4);
    let sum = l * l / 2.0 + STIELTJES_1 + l / (2.0 * n) + first / 12.0 - third / 720.0;
    sum / std::f64::consts::LN_2
}

/// Σ_{k=1..n} 1/k, in the same way.
fn harmonic(n: u64) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    if n < DIRECT_TERMS {
        return (1..=n).map(|k| 1.0 / k as f64).sum();
    }
    let n = n as f64;
    n.ln() + EULER + 1.0 / (2.0 * n) - 1.0 / (12.0 * n * n) + 1.0 / (120.0 * n.powi(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64, tolerance: f64) {
        assert!(
            (value - expected).abs() <= tolerance,
            "{value} is not {expected} ± {tolerance}"
        );
    }

    #[test]
    fn expansions_equal_the_sums() {
        let (mut h, mut logs) = (0.0, 0.0);
        for n in 1..=200_000_u32 {
            let k = f64::from(n);
            h += 1.0 / k;
            logs += k.log2() / k;
            near(harmonic(n.into()), h, 1e-10);
            near(harmonic_log(n.into()), logs, 1e-9);
        }
    }

    #[test]
    fn ln_factorial_equals_the_sum_of_logarithms() {
        let mut sum = 0.0;
        for n in 1..=100_000_u32 {
            sum += f64::from(n).ln();
            near(
                ln_factorial(f64::from(n)) / sum.max(1.0),
                sum / sum.max(1.0),
                1e-12,
            );
        }
    }

    /// DeepIO prints 73, 49 and 16 % for chunks of 4, 16 and 256 records; N near 11 500 gives them.
    #[test]
    fn published_levels_of_chunks() {
        near(randomness_level(11_500, 4), 0.725, 0.0005);
        near(randomness_level(11_500, 16), 0.494, 0.0005);
        near(randomness_level(11_500, 256), 0.163, 0.0005);
        near(randomness_level(11_500, 1), 1.0, 0.0);
    }

    #[test]
    fn exact_levels_of_file_loads() {
        near(
            exact_level_of_loads(1024.0, 1_281_167.0, 4.0),
            0.894,
            0.0005,
        );
        near(
            exact_level_of_loads(1024.0, 1_281_167.0, 8.0),
            0.841,
            0.0005,
        );
        near(exact_level_of_loads(1024.0, 1_281_167.0, 1.0), 1.0, 1e-12);
    }

    /// Six records in three units of two: 3! of 6! orders.
    #[test]
    fn small_cases_by_hand() {
        let page = Randomness::of(Order::Page { unit_bytes: 1 }, 6, 3);
        near(page.rl_exact, 6_f64.ln() / 720_f64.ln(), 1e-12);
        let h = |n: u32| {
            (1..=n)
                .map(|k| f64::from(k).log2() / f64::from(k))
                .sum::<f64>()
        };
        near(page.rl, h(3) / h(6), 1e-12);
        let block = Randomness::of(
            Order::Block {
                blocks: 3,
                permute: true,
            },
            6,
            0,
        );
        assert_eq!(block, page);
    }

    #[test]
    fn the_ends_of_the_scale() {
        let fixed = Order::Block {
            blocks: 4,
            permute: false,
        };
        assert_eq!(Randomness::of(fixed, 100, 0), Randomness::NONE);
        assert_eq!(Randomness::of(Order::Sequential, 100, 0), Randomness::NONE);
        assert_eq!(Randomness::of(Order::Full, 100, 0), Randomness::PERFECT);
        assert_eq!(Randomness::queue(100, 1), Randomness::NONE);
        assert_eq!(Randomness::queue(100, 100), Randomness::PERFECT);
        assert_eq!(Randomness::of(Order::Sequential, 1, 0), Randomness::PERFECT);
        let permuted = Randomness::of(
            Order::Block {
                blocks: 100,
                permute: true,
            },
            100,
            0,
        );
        assert_eq!(permuted, Randomness::PERFECT);
    }

    #[test]
    fn a_larger_buffer_shuffles_more_and_never_more_than_all() {
        let mut before = Randomness::queue(1_000_000, 1);
        for power in 1..20 {
            let level = Randomness::queue(1_000_000, 1 << power);
            assert!(level.rl > before.rl && level.rl_exact > before.rl_exact);
            assert!(level.rl < 1.0 && level.rl_exact < 1.0, "{level:?}");
            before = level;
        }
        let level = Randomness::queue(1_000_000, 1000);
        near(level.rl, 0.75, 0.02); // 1 − (1 − 1/2)²
    }
}
