//! Blocks that several ranks solve together: w stays the sum of what the duals say, the same on all ranks,
//! and the dual value gets where one rank takes it.

mod support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::{
    DualBound, Duals, InnerPasses, LinearError, Loss, Peers, Problem, Scratch, Simd, Weights,
    dual_value, solve_block, solve_share,
};
use support::Table;

struct Case {
    problem: Problem,
    rows: Rows,
}

fn case(layout: Layout, loss: Loss, rows: usize, features: usize, classes: usize) -> Case {
    let problem = Problem::new(loss, 0.5, features, classes).unwrap();
    Case {
        problem: problem.with_bias(0.7).unwrap(),
        rows: support::planted(layout, rows, features, classes, 9),
    }
}

/// Every rank's weights, and the duals of all rows, after some epochs of one block.
fn solved(case: &Case, ranks: usize, epochs: u64, inner: InnerPasses) -> (Vec<Weights>, Duals) {
    let records = case.rows.len();
    let all = support::table(case.rows.clone());
    let table = Table::new(ranks);
    let run = |rank: usize| {
        // The last rank of many has no rows.
        let holders = if ranks > 3 { ranks - 1 } else { ranks };
        let mine: Vec<u64> = (0..records as u64)
            .filter(|id| *id as usize % holders == rank)
            .collect();
        let share = all.select(&mine);
        let mut weights = Weights::zeros(&case.problem);
        let mut duals = Duals::zeros(&case.problem, records);
        let mut scratch = Scratch::new(Simd::best());
        let mut peers = Peers {
            rank,
            ranks,
            exchange: &mut |what| table.exchange(rank, what),
        };
        let mut before = 0.0;
        for epoch in 0..epochs {
            let solved = solve_share(
                &case.problem,
                &share,
                &mut weights,
                &mut duals,
                inner,
                epoch,
                true,
                &mut scratch,
                &mut peers,
            )
            .unwrap();
            assert_eq!(solved.centre.is_some(), ranks > 1);
            let dual = dual_value(&weights, &duals);
            assert!(dual >= before * (1.0 - 1e-6), "{dual} after {before}");
            before = dual;
        }
        (weights, duals, mine)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..ranks)
            .map(|rank| scope.spawn(move || run(rank)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut alpha = vec![vec![0.0; records]; case.problem.subproblems()];
    for (_, duals, mine) in &results {
        for (subproblem, alpha) in alpha.iter_mut().enumerate() {
            for &id in mine {
                alpha[id as usize] = duals.stored(subproblem)[id as usize];
            }
        }
    }
    let duals = Duals::from_parts(records, alpha, results[0].1.terms().to_vec());
    let weights = results.into_iter().map(|(weights, ..)| weights).collect();
    (weights, duals)
}

fn check_consistent(case: &Case, all: &RowTable, weights: &[Weights], duals: &Duals) {
    let mut bound = DualBound::new(&case.problem);
    bound.add(&case.problem, all, duals, Simd::best());
    for (subproblem, sum) in bound.sums.iter().enumerate() {
        let w = weights[0].vector(subproblem);
        let largest = sum
            .iter()
            .fold(0.0_f64, |most, value| most.max(value.abs()));
        for (found, expected) in w.iter().zip(sum) {
            let off = (f64::from(*found) - expected).abs();
            assert!(off <= 1e-4 * largest, "{found} {expected}");
        }
        for other in weights {
            assert!(other.vector(subproblem) == w, "the same on all ranks");
        }
    }
}

#[test]
fn ranks_get_where_one_rank_gets_and_agree_on_w() {
    let inner = InnerPasses::Until {
        epsilon: 1e-3,
        at_most: 300,
    };
    for layout in [Layout::Dense { width: 30 }, Layout::Sparse] {
        for (loss, classes) in [
            (Loss::Hinge, 2),
            (Loss::SquaredHinge, 3),
            (Loss::Logistic, 2),
        ] {
            let case = case(layout, loss, 900, 30, classes);
            let all = support::table(case.rows.clone());
            let mut alone = (
                Weights::zeros(&case.problem),
                Duals::zeros(&case.problem, 900),
            );
            let mut scratch = Scratch::new(Simd::best());
            let (w, duals) = (&mut alone.0, &mut alone.1);
            for epoch in 0..3 {
                solve_block(&case.problem, &all, w, duals, inner, epoch, &mut scratch).unwrap();
            }
            let expected = dual_value(&alone.0, &alone.1);
            for ranks in [1, 2, 3, 5] {
                let (weights, duals) = solved(&case, ranks, 3, inner);
                check_consistent(&case, &all, &weights, &duals);
                let dual = dual_value(&weights[0], &duals);
                let off = (dual / expected - 1.0).abs();
                assert!(off < 1e-3, "{layout:?} {loss:?} {ranks}: {dual} {expected}");
            }
        }
    }
}

#[test]
fn features_that_are_exchanged_now_and_then_leave_w_exact() {
    // More shared features than are popular, and some that only one rank has.
    let case = case(Layout::Sparse, Loss::Hinge, 60, 60_000, 2);
    let all = support::table(case.rows.clone());
    for ranks in [2, 3] {
        let (weights, duals) = solved(&case, ranks, 4, InnerPasses::Fixed(3));
        check_consistent(&case, &all, &weights, &duals);
        assert!(dual_value(&weights[0], &duals) > 0.0);
    }
}

#[test]
fn the_same_ranks_give_the_same_bits() {
    let case = case(Layout::Dense { width: 20 }, Loss::Hinge, 2000, 20, 2);
    let once = solved(&case, 3, 2, InnerPasses::Fixed(20));
    let again = solved(&case, 3, 2, InnerPasses::Fixed(20));
    assert!(once.0 == again.0 && once.1 == again.1);
}

/// One of them is told to end: all give the block up, and it has changed nothing.
#[test]
fn ranks_give_a_block_up_together() {
    const RANKS: usize = 3;
    for (layout, loss) in [
        (Layout::Dense { width: 12 }, Loss::Logistic),
        (Layout::Sparse, Loss::Hinge),
    ] {
        let case = case(layout, loss, 900, 12, 2);
        let all = support::table(case.rows.clone());
        let table = Table::new(RANKS);
        let run = |rank: usize| {
            let mine: Vec<u64> = (0..900).filter(|id| *id as usize % RANKS == rank).collect();
            let share = all.select(&mine);
            let mut weights = Weights::zeros(&case.problem);
            let mut duals = Duals::zeros(&case.problem, 900);
            let mut scratch = Scratch::new(Simd::best());
            scratch.end_when(Arc::new(AtomicBool::new(rank == 1)));
            let mut peers = Peers {
                rank,
                ranks: RANKS,
                exchange: &mut |what| table.exchange(rank, what),
            };
            let mut solve = |passes, weights: &mut _, duals: &mut _| {
                let inner = InnerPasses::Fixed(passes);
                let key = u64::from(passes);
                solve_share(
                    &case.problem,
                    &share,
                    weights,
                    duals,
                    inner,
                    key,
                    true,
                    &mut scratch,
                    &mut peers,
                )
            };
            solve(1, &mut weights, &mut duals).unwrap();
            let before = (weights.clone(), duals.clone());
            let given_up = solve(u32::MAX, &mut weights, &mut duals).unwrap_err();
            assert!(
                matches!(given_up, LinearError::Interrupted { undone: true }),
                "{given_up}"
            );
            assert!((weights, duals) == before, "{layout:?}, rank {rank}");
        };
        std::thread::scope(|scope| {
            for rank in 0..RANKS {
                let run = &run;
                scope.spawn(move || run(rank));
            }
        });
    }
}
