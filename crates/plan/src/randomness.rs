//! How well an order shuffles, as a number between 0 (file order) and 1 (any order equally likely).
//!
//! Two numbers, because the published one is a heuristic:
//!
//! **RL**, the randomness level of DeepIO (Zhu et al., MASCOTS 2018). A perfect shuffle draws the
//! record for each position from the k that are left; the paper weighs that draw's log2(k) bits with its chance 1/k,
//! which sums to H(N) = Σ_{k=1..N} log2(k)/k. Shuffling N/c chunks of c records has N/c draws, so RL(c) = H(N/c)/H(N)
//! ≈ (1 − ln c/ln N)².
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
//! | opportunistic, u units in n loads | see [`Randomness`] | (ln(u!/∏u_g!) + Σ ln(m_g!))/ln(N!), u_g units and m_g = N·u_g/u records in load g |
//! | mixture, balanced classes | as RL\* | (Σ ln(n_j!) + ln(sequences of parts))/ln(N!), n_j examples of part j |
//!
//! With one record or none there is one order and every order reaches it: 1 for both.

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
/// there; we keep its weight 1/k and insert the bits actually drawn, log2 min(q, k): RL = (H(q) +
/// log2(q)·Σ_{k=q+1..N} 1/k)/H(N) ≈ 1 − (1 − ln q/ln N)². An initial shuffle is the same in every epoch and adds
/// nothing to either number.
///
/// *block*: the assignment is drawn once, so between epochs only the order of blocks can differ.
///
/// *opportunistic*: u units are divided into loads of u_g units each, u!/∏u_g! choices, and the m_g records of a load
/// come in any order: two choices never give one order, since the records of the first load come first. m_g is
/// approximated by its mean N·u_g/u, which matters if units are few and uneven. For RL we weigh as for *queue*: a
/// record drawn when k of all are left has the weight 1/k and the bits drawn, log2 of the records of its load that
/// are left; the choice of the units of a load, log2 of a binomial coefficient, comes with its first record.
// Differs from Zhu et al.: their P(i, r) = N_c/(N_f − N_c·r) · 1/(N_mem − i) is not a distribution when memory holds a
// part of the data, and their RL then exceeds 1 (3.5 for a thousand loads), though they define it as 0 to 100 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Randomness {
    /// Randomness level, after DeepIO.
    pub rl: f64,
    /// Exact entropy relative to a perfect shuffle (RL*).
    pub rl_exact: f64,
}

impl Randomness {
    pub(crate) const PERFECT: Randomness = Randomness {
        rl: 1.0,
        rl_exact: 1.0,
    };
    pub(crate) const NONE: Randomness = Randomness {
        rl: 0.0,
        rl_exact: 0.0,
    };

    /// `chunks` runs of records in random order.
    pub(crate) fn chunks(records: u64, chunks: u64) -> Randomness {
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

/// RL* of reading `units` units in `loads` groups of near-equal numbers of units.
pub(crate) fn exact_level_of_units(units: u64, records: u64, loads: u64) -> f64 {
    let records_a_unit = records as f64 / units as f64;
    let group = |units_of_load: u64, groups: u64| {
        let units_of_load = units_of_load as f64;
        let inside = ln_factorial(units_of_load * records_a_unit);
        groups as f64 * (inside - ln_factorial(units_of_load))
    };
    let (short, longer) = (units / loads, units % loads);
    let groups = group(short, loads - longer) + group(short + 1, longer);
    (ln_factorial(units as f64) + groups) / ln_factorial(records as f64)
}

/// RL of reading `units` units in `loads` loads, taken as equal even if `loads` does not divide: with g = u/n units
/// and M = N/n records a load,
///
/// RL·H(N) = Σ_{r=1..n} ( log2 C(r·g, g)/(r·M) + Σ_{k=1..M} log2(k)/((r − 1)·M + k) ), r loads to come.
///
/// At most 1: the draws after any record have no more bits than all orders of the records left, and later bits weigh
/// more. It is 1 for one load, and if a load is one record.
///
/// Both sums are added up to 256 terms and integrated beyond, by the midpoint rule backwards:
/// Σ_{a..b} f ≈ ∫_{a−½}^{b+½} f. Cost: under a tenth of a second for any N.
pub(crate) fn level_of_loads(units: u64, records: u64, loads: u64) -> f64 {
    let n = loads.min(units) as f64;
    let (load_units, load_records) = (units as f64 / n, records as f64 / n);
    let round = |left: f64| {
        let choice = ln_binomial(left * load_units, load_units) / std::f64::consts::LN_2;
        choice / (left * load_records) + bits_of_load((left - 1.0) * load_records, load_records)
    };
    let plain: f64 = (1..=loads.min(units).min(PLAIN_TERMS))
        .map(|left| round(left as f64))
        .sum();
    let rest = integral(PLAIN_TERMS as f64 + 0.5, n + 0.5, round);
    ((plain + rest) / harmonic_log(records)).min(1.0)
}

/// ln of n over k.
fn ln_binomial(n: f64, k: f64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// Σ_{k=1..m} log2(k)/(after + k), a fraction of the term after the last whole one included.
fn bits_of_load(after: f64, m: f64) -> f64 {
    let term = |k: f64| k.log2() / (after + k);
    let whole = m.floor();
    let plain: f64 = (1..=(whole as u64).min(PLAIN_TERMS))
        .map(|k| term(k as f64))
        .sum();
    let rest = integral(PLAIN_TERMS as f64 + 0.5, whole + 0.5, term);
    plain + rest + (m - whole) * term(whole + 1.0)
}

/// Terms of a sum that are added up before the rest is integrated.
const PLAIN_TERMS: u64 = 256;

/// ∫_a^b f(x) dx for f about as smooth as ln(x)/x, 0 if b ≤ a: five-point Gauss–Legendre in ln x on panels a factor
/// of at most 4 long.
fn integral(a: f64, b: f64, f: impl Fn(f64) -> f64) -> f64 {
    const NODES: [(f64, f64); 3] = [
        (0.0, 0.568_888_888_888_888_9),
        (0.538_469_310_105_683_1, 0.478_628_670_499_366_47),
        (0.906_179_845_938_664, 0.236_926_885_056_189_08),
    ];
    if b <= a {
        return 0.0;
    }
    let (from, to) = (a.ln(), b.ln());
    let panels = ((to - from) / 4.0_f64.ln()).ceil().max(1.0);
    let half = (to - from) / panels / 2.0;
    let at = |t: f64| {
        let x = t.exp();
        x * f(x)
    };
    let panel = |middle: f64| -> f64 {
        let pair = |(node, weight): (f64, f64)| match node {
            0.0 => weight * at(middle),
            _ => weight * (at(middle - node * half) + at(middle + node * half)),
        };
        half * NODES.map(pair).iter().sum::<f64>()
    };
    (0..panels as u64)
        .map(|i| panel(from + (2 * i + 1) as f64 * half))
        .sum()
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

/// Σ_{k=1..n} 1/k, by the same method.
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
    use crate::orders::Order;

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

    /// Every draw with its weight, units and records dividing evenly.
    fn plain_level_of_loads(units: u64, records: u64, loads: u64) -> f64 {
        let (memory, load_units) = (records / loads, units / loads);
        let mut bits = 0.0;
        for i in 0..records {
            let left = (records - i) as f64;
            if i % memory == 0 {
                let units_left = units - i / memory * load_units;
                let ways: f64 = (0..load_units)
                    .map(|j| ((units_left - j) as f64 / (load_units - j) as f64).log2())
                    .sum();
                bits += ways / left;
            }
            bits += ((memory - i % memory) as f64).log2() / left;
        }
        bits / harmonic_log(records)
    }

    #[test]
    fn the_level_of_loads_equals_its_plain_sum() {
        for (units, records, loads) in [
            (12, 12, 1),
            (12, 12, 3),
            (12, 12, 12),
            (16, 10_000, 8),
            (1024, 1 << 20, 1),
            (1024, 1 << 20, 2),
            (1024, 1 << 20, 16),
            (1024, 1 << 20, 1024),
            (1 << 16, 1 << 20, 256),
            (1 << 20, 1 << 20, 1 << 16),
            (1 << 20, 1 << 20, 1 << 20),
        ] {
            let expected = plain_level_of_loads(units, records, loads);
            let value = level_of_loads(units, records, loads);
            near(value, expected, 1e-5);
            assert!(
                expected <= 1.0 + 1e-9,
                "{units} {records} {loads}: {expected}"
            );
        }
    }

    /// It was 3.54 for a thousand loads: the published weights are not a distribution.
    #[test]
    fn levels_of_loads_are_from_0_to_1() {
        for records in [2_u64, 3, 10, 97, 1000, 12_345, 1_281_167] {
            for units in [1, 2, 7, 100, 1024, records] {
                for loads in [1, 2, 3, 10, 1000, units] {
                    let order = Order::Opportunistic {
                        loads,
                        unit_bytes: 1,
                    };
                    let units = units.min(records);
                    let level = order.randomness(records, units);
                    let case = format!("{units} units of {records} in {loads}: {level:?}");
                    assert!((0.0..=1.0).contains(&level.rl), "{case}");
                    assert!(units == 1 || loads == 1 || level.rl > 0.0, "{case}");
                }
            }
        }
    }

    #[test]
    fn the_level_of_loads_is_quick_and_smooth_where_loads_do_not_divide() {
        let start = std::time::Instant::now();
        const MANY: u64 = 1_000_000_000;
        for loads in [1, 7, 1000, 999_999, 123_456_789, MANY] {
            assert!(
                (0.8..=1.0).contains(&level_of_loads(MANY, MANY, loads)),
                "{loads}"
            );
        }
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
        let around = [997, 1000, 1003].map(|records| level_of_loads(100, records, 10));
        near(around[0], around[1], 0.002);
        near(around[0], around[2], 0.002);
    }

    /// With a quarter of 1 024 files in memory at a time RL* is 89.4 %, with an eighth 84.1 %.
    #[test]
    fn levels_of_loads() {
        let level = |loads| {
            let order = Order::Opportunistic {
                loads,
                unit_bytes: 1,
            };
            order.randomness(1_281_167, 1024)
        };
        near(level(4).rl_exact, 0.894, 0.0005);
        near(level(8).rl_exact, 0.841, 0.0005);
        near(level(1).rl_exact, 1.0, 1e-12);
        near(level(1).rl, 1.0, 1e-6);
        near(
            level(1024).rl_exact,
            (ln_factorial(1024.0) + 1024.0 * ln_factorial(1_281_167.0 / 1024.0))
                / ln_factorial(1_281_167.0),
            1e-12,
        );
        assert!(
            level(4).rl > level(8).rl && level(4).rl < 1.0,
            "{:?}",
            level(4)
        );
    }

    /// Five units of two records in two loads: 5!/(2!·3!) · 4!·6! of 10! orders.
    #[test]
    fn loads_by_hand() {
        let order = Order::Opportunistic {
            loads: 2,
            unit_bytes: 1,
        };
        let orders = 10.0 * 24.0 * 720.0;
        let level = order.randomness(10, 5).rl_exact;
        near(level, f64::ln(orders) / ln_factorial(10.0), 1e-12);
        near(order.randomness(10, 10).rl_exact, 1.0, 1e-12);
        assert_eq!(order.randomness(1, 1), Randomness::PERFECT);
    }

    /// Six records in three units of two: 3! of 6! orders.
    #[test]
    fn small_cases_by_hand() {
        let page = Order::Page { unit_bytes: 1 }.randomness(6, 3);
        near(page.rl_exact, 6_f64.ln() / 720_f64.ln(), 1e-12);
        let h = |n: u32| {
            (1..=n)
                .map(|k| f64::from(k).log2() / f64::from(k))
                .sum::<f64>()
        };
        near(page.rl, h(3) / h(6), 1e-12);
        let block = Order::Block {
            blocks: 3,
            permute: true,
        }
        .randomness(6, 0);
        assert_eq!(block, page);
    }

    #[test]
    fn the_ends_of_the_scale() {
        let fixed = Order::Block {
            blocks: 4,
            permute: false,
        };
        assert_eq!(fixed.randomness(100, 0), Randomness::NONE);
        assert_eq!(Order::Sequential.randomness(100, 0), Randomness::NONE);
        assert_eq!(Order::Full.randomness(100, 0), Randomness::PERFECT);
        assert_eq!(Randomness::queue(100, 1), Randomness::NONE);
        assert_eq!(Randomness::queue(100, 100), Randomness::PERFECT);
        assert_eq!(Order::Sequential.randomness(1, 0), Randomness::PERFECT);
        let permuted = Order::Block {
            blocks: 100,
            permute: true,
        }
        .randomness(100, 0);
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
