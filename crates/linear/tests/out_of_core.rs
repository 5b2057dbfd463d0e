//! Training block by block with rows left unread: it still reaches the optimum, and a pass over all
//! rows finds those that were left out wrongly.

mod support;

use std::sync::Arc;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::{
    Certificate, InnerPasses, Loss, LossSum, OutOfCore, OutOfCoreOptions, Problem,
};
use pelton_plan::{Batching, Order, Plan};

const ROWS: u64 = 3000;
const FEATURES: usize = 40;

fn run(layout: Layout, skip: bool, cache_bytes: usize) -> (OutOfCore, Rows) {
    let rows = support::planted(layout, ROWS as usize, FEATURES, 2, 5);
    let problem = Arc::new(Problem::new(Loss::Hinge, 1.0, FEATURES, 2).unwrap());
    let options = OutOfCoreOptions {
        inner: InnerPasses::Until {
            epsilon: 0.01,
            at_most: 200,
        },
        tighten_to: None,
        skip,
        cache_bytes,
        coded_rows: 0,
        snapshots: false,
        seed: 3,
    };
    (OutOfCore::new(problem, ROWS, layout, options), rows)
}

/// Trains one epoch; returns the rows read.
fn epoch(solver: &mut OutOfCore, rows: &Rows, plan: &Plan, number: u64, reads_all: bool) -> u64 {
    solver.begin_epoch(number, reads_all).unwrap();
    for step in 0..plan.steps() {
        let mut ids = Vec::new();
        plan.batch_ids(number, step, &mut ids);
        ids.retain(|&id| solver.wants(id, false));
        let mut block = Rows::new(rows.layout());
        for &id in &ids {
            block.push(rows.label(id as usize), rows.row(id as usize));
        }
        solver
            .train_rows(&mut RowTable::from_rows(block, ids), step)
            .unwrap();
    }
    solver.end_epoch().unwrap().rows
}

fn gap(solver: &mut OutOfCore, rows: &Rows) -> f64 {
    let table = RowTable::from_rows(rows.clone(), (0..ROWS).collect());
    let mut losses = LossSum::new(solver.problem());
    solver.check_rows(&table, false, &mut losses).unwrap();
    let certificate = Certificate {
        primal: losses.primal(solver.weights()),
        dual: solver.dual(),
    };
    certificate.relative_gap()
}

/// The gap after 30 epochs, or the first one below 1e-4, and the rows read.
fn reached(layout: Layout, skip: bool, cache_bytes: usize) -> (f64, u64) {
    let plan = Plan::new(ROWS, Order::Full, Batching::Batches(10), 1).unwrap();
    let (mut solver, rows) = run(layout, skip, cache_bytes);
    let (mut read, mut reached) = (0, f64::INFINITY);
    for number in 0..30 {
        read += epoch(&mut solver, &rows, &plan, number, false);
        reached = gap(&mut solver, &rows);
        if reached < 1e-4 {
            break;
        }
    }
    (reached, read)
}

#[test]
fn rows_left_unread_cost_no_accuracy() {
    for layout in [Layout::Dense { width: FEATURES }, Layout::Sparse] {
        let (plain, all_rows) = reached(layout, false, 0);
        assert!(plain < 0.01);
        for (skip, cache_bytes) in [(true, 0), (false, 30_000), (true, 30_000)] {
            let (gap, rows) = reached(layout, skip, cache_bytes);
            assert!(gap < 1e-4 || gap < 2.0 * plain, "{layout:?}: {gap} {plain}");
            assert!(rows < all_rows / 2, "{layout:?}: {rows} of {all_rows}");
        }
    }
}

#[test]
fn a_pass_over_all_rows_wakes_those_that_are_settled_no_more() {
    let plan = Plan::new(ROWS, Order::Full, Batching::Batches(10), 1).unwrap();
    let (mut solver, rows) = run(Layout::Sparse, true, 0);
    epoch(&mut solver, &rows, &plan, 0, false);
    solver.begin_epoch(1, false).unwrap();
    let wanted = |solver: &OutOfCore| (0..ROWS).filter(|&id| solver.wants(id, false)).count();
    let before = wanted(&solver);
    let violating = |solver: &OutOfCore, id: u64| {
        let i = id as usize;
        let mut one = Rows::new(Layout::Sparse);
        one.push(rows.label(i), rows.row(i));
        let one = RowTable::from_rows(one, vec![id]);
        let simd = pelton_linear::Simd::best();
        let duals = solver.duals();
        pelton_linear::gap_of_rows(solver.problem(), &one, solver.weights(), duals, simd).unwrap()
            > 0.0
    };
    let missed = (0..ROWS)
        .filter(|&id| !solver.wants(id, false) && violating(&solver, id))
        .count();
    assert!(missed > 0, "the case must occur");
    gap(&mut solver, &rows);
    assert_eq!(wanted(&solver), before + missed);
    for id in 0..ROWS {
        assert!(solver.wants(id, false) || !violating(&solver, id));
    }
}
