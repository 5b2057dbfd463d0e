//! Permutations are bijections, there and back.

use pelton_key::{Stage, key};
use pelton_plan::Permutation;

fn check_bijection(len: u64) {
    let permutation = Permutation::new(len, key(5, len, Stage::Order));
    let mut ids = vec![0; len as usize];
    permutation.fill(0, &mut ids);
    let mut seen = vec![false; len as usize];
    for &id in &ids {
        assert!(id < len, "{id} is outside 0..{len}");
        assert!(!seen[id as usize], "{id} occurs twice in 0..{len}");
        seen[id as usize] = true;
    }
    let mut positions = vec![0; len as usize];
    permutation.fill_positions(0, &mut positions);
    for (position, &id) in ids.iter().enumerate() {
        assert_eq!(
            positions[id as usize], position as u64,
            "inverse of {id} in 0..{len}"
        );
    }
    ids.reverse();
    permutation.positions_of_each(&mut ids);
    assert!(ids.iter().rev().copied().eq(0..len), "each of 0..{len}");
    permutation.get_each(&mut ids);
    permutation.positions_of_each(&mut ids);
    assert!(ids.iter().rev().copied().eq(0..len), "and back in 0..{len}");
    permutation.fill(0, &mut ids);
    for position in [0, len / 3, len.saturating_sub(1)] {
        if position < len {
            assert_eq!(permutation.get(position), ids[position as usize]);
            assert_eq!(permutation.position_of(ids[position as usize]), position);
        }
    }
}

#[test]
fn every_small_size_is_a_bijection() {
    for len in 0..=4096 {
        check_bijection(len);
    }
}

/// Around powers of two the network is fullest or emptiest. One public cycle-walking shuffle
/// loses an index at 2^16 + 1.
#[test]
fn sizes_around_powers_of_two_are_bijections() {
    for power in 12..=20 {
        for len in (1_u64 << power) - 2..=(1 << power) + 2 {
            check_bijection(len);
        }
    }
}

#[test]
fn huge_sizes_invert() {
    for len in [
        (1 << 32) - 1,
        1 << 32,
        (1 << 32) + 1,
        (1 << 40) + 7,
        u64::MAX,
    ] {
        let permutation = Permutation::new(len, 77);
        for start in [0, len / 2, len - 40] {
            let mut ids = [0; 40];
            permutation.fill(start, &mut ids);
            for (offset, &id) in ids.iter().enumerate() {
                assert!(id < len);
                assert_eq!(permutation.position_of(id), start + offset as u64);
                assert_eq!(permutation.get(start + offset as u64), id);
            }
        }
    }
}
