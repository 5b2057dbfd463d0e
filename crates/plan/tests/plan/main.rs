//! Invariants of plans.

use pelton_plan::{Place, Plan, StepBatch};

mod buckets;
mod hints;
mod locality;
mod opportunistic;
mod order_text;
mod orders_golden;
mod permutation;
mod plans;
mod policy_text;
mod refusals;
mod refused_streams;
mod samplers;
mod statistics;
mod stream_golden;
mod streams;

/// All steps of an epoch, as a walk from its start gives them.
fn steps_of(plan: &Plan, epoch: u64) -> Vec<StepBatch> {
    let mut walk = plan.walk(Place { epoch, step: 0 }, None);
    let mut steps = Vec::new();
    while walk.place().epoch == epoch {
        let mut batch = StepBatch::default();
        if !walk.next(&mut batch) {
            break;
        }
        steps.push(batch);
    }
    steps
}

/// One step.
fn step_at(plan: &Plan, epoch: u64, step: u64) -> StepBatch {
    let mut batch = StepBatch::default();
    assert!(plan.walk(Place { epoch, step }, None).next(&mut batch));
    assert_eq!((batch.epoch, batch.step), (epoch, step));
    batch
}

/// The records of an epoch in the order they come out.
fn ids_of(plan: &Plan, epoch: u64) -> Vec<u64> {
    let steps = steps_of(plan, epoch);
    steps.into_iter().flat_map(|batch| batch.ids).collect()
}
