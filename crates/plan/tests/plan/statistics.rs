//! Random orders look random: positions, pairs, adjacent distances and neighbouring epochs, by
//! chi-square. Keys are fixed, so a result never flickers; a bound of five standard deviations would
//! fail one honest draw in a million.

use pelton_key::{Stage, key};
use pelton_plan::Permutation;

fn permutation(len: u64, epoch: u64) -> Permutation {
    Permutation::new(len, key(11, epoch, Stage::Order))
}

fn epoch_ids(len: u64, epoch: u64) -> Vec<u64> {
    let mut ids = vec![0; len as usize];
    permutation(len, epoch).fill(0, &mut ids);
    ids
}

/// Asserts that `counts` are draws from equal chances, up to `scale` for counts with fixed sums.
fn check_even(counts: &[u32], freedom: f64, scale: f64, what: &str) {
    let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let expected = total / counts.len() as f64;
    assert!(expected >= 5.0, "{what}: too few draws for the test");
    let chi: f64 = counts
        .iter()
        .map(|&count| (f64::from(count) - expected).powi(2) / expected)
        .sum();
    let deviations = (chi * scale - freedom) / (2.0 * freedom).sqrt();
    assert!(
        deviations.abs() < 5.0,
        "{what}: {deviations:.1} standard deviations off"
    );
}

/// Each element is at each position equally often over keys.
fn check_positions(len: u64, draws_a_cell: u64) {
    let mut counts = vec![0; (len * len) as usize];
    for epoch in 0..len * draws_a_cell {
        for (position, id) in epoch_ids(len, epoch).into_iter().enumerate() {
            counts[position * len as usize + id as usize] += 1;
        }
    }
    // Rows and columns of the table have fixed sums, which leaves (len − 1)² free cells.
    let n = len as f64;
    check_even(
        &counts,
        (n - 1.0).powi(2),
        (n - 1.0) / n,
        &format!("positions of {len}"),
    );
}

/// Each ordered pair of elements is at positions (first, second) equally often over keys.
fn check_pairs(len: u64, first: u64, second: u64, draws_a_cell: u64) {
    let mut counts = vec![0; (len * (len - 1)) as usize];
    for epoch in 0..len * (len - 1) * draws_a_cell {
        let permutation = permutation(len, epoch);
        let (a, b) = (permutation.get(first), permutation.get(second));
        counts[(a * (len - 1) + b - u64::from(b > a)) as usize] += 1;
    }
    let freedom = counts.len() as f64 - 1.0;
    check_even(
        &counts,
        freedom,
        1.0,
        &format!("pairs {first}, {second} of {len}"),
    );
}

#[test]
fn positions_are_even_for_small_sizes() {
    for len in [2, 3, 5, 8, 13, 17, 32, 47, 64] {
        check_positions(len, 200);
    }
}

/// The smallest sizes that are computed and not shuffled as a table.
#[test]
fn positions_are_even_for_the_smallest_networks() {
    for len in [1025, 1536, 2048] {
        check_positions(len, 6);
    }
}

#[test]
fn pairs_are_even() {
    for len in [5, 8, 17, 32, 64] {
        check_pairs(len, 0, 1, 50);
        check_pairs(len, 0, len - 1, 50);
        check_pairs(len, len / 2, len / 4, 50);
    }
    check_pairs(1025, 0, 1, 6);
    check_pairs(1025, 512, 513, 6);
    check_pairs(2048, 0, 1024, 5);
}

/// All 120 orders of five elements are equally likely.
#[test]
fn whole_orders_are_even() {
    let mut counts = std::collections::HashMap::new();
    for epoch in 0..120 * 200 {
        *counts.entry(epoch_ids(5, epoch)).or_insert(0_u32) += 1;
    }
    assert_eq!(counts.len(), 120);
    let counts: Vec<u32> = counts.into_values().collect();
    check_even(&counts, 119.0, 1.0, "orders of 5");
}

/// Pairs (x, y) from one long order fall evenly on a 64 × 64 grid.
fn check_grid(len: u64, pairs: impl Iterator<Item = (u64, u64)>, what: &str) {
    const CELLS: u64 = 64;
    let cell = |x: u64| (u128::from(x) * u128::from(CELLS) / u128::from(len)) as usize;
    let mut counts = vec![0; (CELLS * CELLS) as usize];
    for (x, y) in pairs {
        counts[cell(x) * CELLS as usize + cell(y)] += 1;
    }
    // Both margins are fixed by the permutation.
    let side = (CELLS - 1) as f64;
    check_even(&counts, side * side, 1.0, what);
}

#[test]
fn long_orders_are_even_in_every_direction() {
    for len in [65_537, 1 << 18, (1 << 20) + 3, 1_300_007] {
        let ids = epoch_ids(len, 1);
        let next = epoch_ids(len, 2);
        let numbered = (0..len).zip(ids.iter().copied());
        check_grid(len, numbered, &format!("place of {len}"));
        check_grid(
            len,
            ids.iter().copied().zip(next),
            &format!("next epoch of {len}"),
        );
        for lag in [1, 2, 3, 16, 255, 256, 1024, 4096] {
            let lagged = ids.iter().copied().zip(ids[lag..].iter().copied());
            check_grid(len, lagged, &format!("lag {lag} of {len}"));
        }
        let mut inverse = vec![0; len as usize];
        permutation(len, 1).fill_positions(0, &mut inverse);
        let lagged = inverse.iter().copied().zip(inverse[1..].iter().copied());
        check_grid(len, lagged, &format!("inverse of {len}"));
    }
}

/// Distances between neighbours, modulo the length, are even; so are their lowest bits, which show weak mixing first.
#[test]
fn adjacent_distances_are_even() {
    for len in [65_537_u64, 1 << 18, (1 << 20) + 3, (1 << 33) + 9] {
        let mut ids = vec![0; len.min(1 << 20) as usize];
        permutation(len, 5).fill(len / 3 * u64::from(len > 1 << 32), &mut ids);
        let mut buckets = vec![0; 256];
        let mut low_bits = vec![0; 256];
        for pair in ids.windows(2) {
            let distance = (pair[1] + len - pair[0]) % len;
            buckets[(u128::from(distance - 1) * 256 / u128::from(len - 1)) as usize] += 1;
            low_bits[((pair[0] ^ pair[1].rotate_left(4)) & 255) as usize] += 1;
        }
        // The number of distances does not divide by 256; the unevenness is below 0.4 % a bucket.
        check_even(&buckets, 255.0, 1.0, &format!("distances of {len}"));
        check_even(&low_bits, 255.0, 1.0, &format!("low bits of {len}"));
    }
}
