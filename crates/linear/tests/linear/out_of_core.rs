//! Training block by block with rows left unread: it still reaches the optimum, and a pass over all
//! rows finds those that were left out wrongly.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::{
    Certificate, DualBound, EpochOutcome, GRACE, InnerPasses, LinearError, Loss, LossSum,
    OutOfCore, OutOfCoreOptions, Problem, SavedState, Simd,
};
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};

const ROWS: u64 = 3000;
const FEATURES: usize = 40;

fn run(layout: Layout, skip: bool) -> (OutOfCore, Rows) {
    let rows = support::planted(layout, ROWS as usize, FEATURES, 2, 5);
    let problem = Arc::new(Problem::new(Loss::Hinge, 1.0, FEATURES, 2).unwrap());
    let options = OutOfCoreOptions {
        inner: InnerPasses::Until {
            epsilon: 0.01,
            at_most: 200,
        },
        tighten: None,
        skip,
        coded_rows: 0,
        snapshots: false,
        held: false,
        seed: 3,
    };
    (OutOfCore::new(problem, ROWS, options), rows)
}

fn saved(solver: &OutOfCore) -> SavedState<'_> {
    solver.save()
}

/// Trains one epoch.
fn epoch(
    solver: &mut OutOfCore,
    rows: &Rows,
    plan: &Plan,
    number: u64,
    reads_all: bool,
) -> EpochOutcome {
    solver.begin_epoch(number, reads_all).unwrap();
    for step in 0..plan.steps(0) {
        let mut ids = Vec::new();
        ids.extend(plan.step_ids(number, step));
        ids.retain(|&id| solver.wants(id));
        let mut block = Rows::new(rows.layout());
        for &id in &ids {
            block.push(rows.label(id as usize), rows.row(id as usize));
        }
        solver
            .train(&RowTable::from_rows(block, ids), step)
            .unwrap();
    }
    solver.end_epoch()
}

fn gap(solver: &mut OutOfCore, rows: &Rows) -> f64 {
    let table = RowTable::from_rows(rows.clone(), (0..ROWS).collect());
    let mut losses = LossSum::new(solver.problem());
    let mut bound = DualBound::new(solver.problem());
    solver
        .check_rows(&table, false, &mut losses, &mut bound)
        .unwrap();
    let certificate = Certificate {
        primal: losses.primal(solver.problem(), solver.weights()),
        dual: bound.value(solver.problem()),
    };
    certificate.relative_gap()
}

/// The gap after 30 epochs, or the first one below 1e-4, and the rows read.
fn reached(layout: Layout, skip: bool) -> (f64, u64) {
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Batches(10), 1),
        Catalog::new(ROWS),
    )
    .unwrap();
    let (mut solver, rows) = run(layout, skip);
    let (mut read, mut reached) = (0, f64::INFINITY);
    for number in 0..30 {
        read += epoch(&mut solver, &rows, &plan, number, false).rows;
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
        let (plain, all_rows) = reached(layout, false);
        assert!(plain < 0.01);
        let (gap, rows) = reached(layout, true);
        assert!(gap < 1e-4 || gap < 2.0 * plain, "{layout:?}: {gap} {plain}");
        assert!(rows < all_rows / 2, "{layout:?}: {rows} of {all_rows}");
    }
}

#[test]
fn a_pass_over_all_rows_wakes_those_that_are_settled_no_more() {
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Batches(10), 1),
        Catalog::new(ROWS),
    )
    .unwrap();
    let (mut solver, rows) = run(Layout::Sparse, true);
    epoch(&mut solver, &rows, &plan, 0, false);
    solver.begin_epoch(1, false).unwrap();
    let wanted = |solver: &OutOfCore| (0..ROWS).filter(|&id| solver.wants(id)).count();
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
        .filter(|&id| !solver.wants(id) && violating(&solver, id))
        .count();
    assert!(missed > 0, "the case must occur");
    gap(&mut solver, &rows);
    assert_eq!(wanted(&solver), before + missed);
    for id in 0..ROWS {
        assert!(solver.wants(id) || !violating(&solver, id));
    }
}

/// A problem of wide dense rows, with `coded_rows` of them cached quantised.
fn wide(loss: Loss, classes: usize, coded_rows: usize) -> (OutOfCore, Rows) {
    const WIDTH: usize = 150;
    let layout = Layout::Dense { width: WIDTH };
    let rows = support::planted(layout, ROWS as usize, WIDTH, classes, 8);
    let problem = Problem::new(loss, 0.1, WIDTH, classes).unwrap();
    let options = OutOfCoreOptions {
        inner: InnerPasses::Until {
            epsilon: 0.1,
            at_most: 200,
        },
        tighten: None,
        skip: false,
        coded_rows,
        snapshots: true,
        held: false,
        seed: 3,
    };
    let problem = Arc::new(problem.with_bias(0.5).unwrap());
    (OutOfCore::new(problem, ROWS, options), rows)
}

/// The relative gap that each epoch certifies; the certificate is checked against all rows.
fn certified(loss: Loss, classes: usize, coded_rows: usize, epochs: u64) -> Vec<f64> {
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Batches(30), 1),
        Catalog::new(ROWS),
    )
    .unwrap();
    let (mut solver, rows) = wide(loss, classes, coded_rows);
    let all = RowTable::from_rows(rows.clone(), (0..ROWS).collect());
    let mut gaps = Vec::new();
    for number in 0..epochs {
        let outcome = epoch(&mut solver, &rows, &plan, number, true);
        let Some(primal) = outcome.certified_primal else {
            continue;
        };
        let snapshot = &solver.snapshot().unwrap().weights;
        let mut losses = LossSum::new(solver.problem());
        losses
            .add(solver.problem(), &all, snapshot, Simd::best())
            .unwrap();
        assert!((losses.primal(solver.problem(), snapshot) / primal - 1.0).abs() < 1e-12);
        let dual = exact_dual(&solver, &all);
        assert!(
            outcome.dual <= dual && (outcome.dual / dual - 1.0).abs() < 1e-10,
            "{loss:?}: {} {dual}",
            outcome.dual
        );
        gaps.push(Certificate { primal, dual }.relative_gap());
    }
    gaps
}

/// D(α) with w = Σ α_i y_i x_i summed again, row by row.
fn exact_dual(solver: &OutOfCore, all: &RowTable) -> f64 {
    let (problem, duals) = (solver.problem(), solver.duals());
    let dual = |subproblem| support::dual_value(problem, all, duals, subproblem);
    (0..problem.subproblems()).map(dual).sum()
}

#[test]
fn rows_kept_as_codes_save_epochs_and_leave_w_exact() {
    for (loss, classes) in [
        (Loss::Hinge, 2),
        (Loss::Hinge, 3),
        (Loss::SquaredHinge, 2),
        (Loss::Logistic, 2),
    ] {
        let plain = certified(loss, classes, 0, 3);
        let coded = certified(loss, classes, ROWS as usize / 2, 3);
        assert_eq!((plain.len(), coded.len()), (2, 2));
        assert!(coded[0] < 0.5 * plain[0], "{loss:?}: {coded:?} {plain:?}");
        assert!(coded[1] < 0.5 * plain[1], "{loss:?}: {coded:?} {plain:?}");
    }
}

#[test]
fn a_last_pass_makes_w_exact_and_certifies_the_best_weights() {
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Batches(30), 1),
        Catalog::new(ROWS),
    )
    .unwrap();
    let (mut solver, rows) = wide(Loss::Hinge, 2, ROWS as usize / 2);
    let all = RowTable::from_rows(rows.clone(), (0..ROWS).collect());
    epoch(&mut solver, &rows, &plan, 0, true);
    assert!(solver.take_best_as_snapshot().unwrap());
    let before = exact_dual(&solver, &all);
    let inexact = (solver.dual() / before - 1.0).abs();
    let mut losses = LossSum::new(solver.problem());
    let mut bound = DualBound::new(solver.problem());
    solver
        .check_rows(&all, true, &mut losses, &mut bound)
        .unwrap();
    let dual = exact_dual(&solver, &all);
    assert_eq!(before, dual, "the pass changes no α");
    assert!((solver.dual() / dual - 1.0).abs() < 1e-6);
    assert!(inexact > 1e-5, "the case must occur: {inexact}");
    let primal = losses.primal(solver.problem(), &solver.snapshot().unwrap().weights);
    let reached = Certificate { primal, dual }.relative_gap();
    assert!(reached < 0.01, "{reached}");
}

#[test]
fn a_run_with_codes_goes_on_bit_for_bit_from_any_block() {
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Batches(6), 1),
        Catalog::new(ROWS),
    )
    .unwrap();
    let block = |rows: &Rows, number, step| {
        let mut ids = Vec::new();
        ids.extend(plan.step_ids(number, step));
        let mut block = Rows::new(rows.layout());
        for &id in &ids {
            block.push(rows.label(id as usize), rows.row(id as usize));
        }
        RowTable::from_rows(block, ids)
    };
    let (mut whole, rows) = wide(Loss::Hinge, 3, 700);
    let (mut halted, _) = wide(Loss::Hinge, 3, 700);
    for number in 0..3 {
        whole.begin_epoch(number, true).unwrap();
        halted.begin_epoch(number, true).unwrap();
        for step in 0..plan.steps(0) {
            whole.train(&block(&rows, number, step), step).unwrap();
            halted.train(&block(&rows, number, step), step).unwrap();
            let (mut restored, _) = wide(Loss::Hinge, 3, 700);
            restored.restore(saved(&halted)).unwrap();
            let ids = restored.coded_ids().to_vec();
            for (number, ids) in ids.chunks(300).enumerate() {
                let mut held = Rows::new(rows.layout());
                for &id in ids {
                    held.push(rows.label(id as usize), rows.row(id as usize));
                }
                restored.encode_again(300 * number, &RowTable::from_rows(held, ids.to_vec()));
            }
            halted = restored;
        }
        let (whole, halted) = (whole.end_epoch(), halted.end_epoch());
        assert_eq!(whole, halted);
    }
    assert_eq!(whole.weights(), halted.weights());
    assert_eq!(whole.duals(), halted.duals());
}

#[test]
fn a_block_that_is_given_up_leaves_no_trace() {
    for (loss, classes, snapshots) in [
        (Loss::Logistic, 2, true),
        (Loss::Hinge, 2, false),
        (Loss::SquaredHinge, 3, true),
    ] {
        let layout = Layout::Dense { width: FEATURES };
        let rows = support::planted(layout, ROWS as usize, FEATURES, classes, 5);
        let table = support::table(rows);
        let problem = Arc::new(Problem::new(loss, 1.0, FEATURES, classes).unwrap());
        let trained = |passes, table: &RowTable| {
            let options = OutOfCoreOptions {
                inner: InnerPasses::Fixed(passes),
                tighten: None,
                skip: false,
                coded_rows: 0,
                snapshots,
                held: false,
                seed: 3,
            };
            let mut solver = OutOfCore::new(Arc::clone(&problem), ROWS, options);
            solver.begin_epoch(0, true).unwrap();
            solver.train(table, 0).unwrap();
            solver.end_epoch();
            solver.begin_epoch(1, true).unwrap();
            solver
        };
        // Enough passes to abandon a block in its second subproblem, if it has several.
        let mut passes = 50;
        let undisturbed = loop {
            let mut solver = trained(passes, &table);
            let began = Instant::now();
            solver.train(&table, 0).unwrap();
            if began.elapsed() >= 3 * GRACE {
                break solver;
            }
            passes *= 2;
        };
        let mut solver = trained(passes, &table);
        let asked = Arc::new(AtomicBool::new(true));
        solver.end_when(Arc::clone(&asked));
        let before = format!("{:?}", saved(&solver));
        let given_up = solver.train(&table, 0);
        assert!(
            matches!(given_up, Err(LinearError::Interrupted { undone: true })),
            "{given_up:?}"
        );
        assert_eq!(table.len() as u64, ROWS);
        assert!(format!("{:?}", saved(&solver)) == before, "{loss:?}");
        asked.store(false, Ordering::Relaxed);
        solver.train(&table, 0).unwrap();
        assert!(saved(&solver) == saved(&undisturbed), "{loss:?}");
    }
}
