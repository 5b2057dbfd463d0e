//! Walks entered with a hint are those without: at any step, of any pipeline, with any hint.

use pelton_key::mix;
use pelton_plan::{Hint, Place, Plan, StepBatch};
use proptest::prelude::*;

use crate::steps_of;
use crate::streams::{PlanCase, pipelines};

/// Walks on from a step and compares what comes with the uninterrupted epoch.
fn check_from(plan: &Plan, steps: &[StepBatch], epoch: u64, step: usize, hint: Option<&Hint>) {
    let place = Place {
        epoch,
        step: step as u64,
    };
    let mut walk = plan.walk(place, hint);
    let mut batch = StepBatch::default();
    for expected in steps[step..].iter().take(30) {
        assert!(walk.next(&mut batch));
        assert_eq!(&batch, expected, "from {step}");
    }
}

/// The hints that a walk through the epoch gives before each step.
fn hints_of(plan: &Plan, epoch: u64, steps: usize) -> Vec<Option<Hint>> {
    let mut walk = plan.walk(Place { epoch, step: 0 }, None);
    let mut batch = StepBatch::default();
    let hints = (0..steps).map(|_| {
        let hint = walk.hint();
        walk.next(&mut batch);
        hint
    });
    hints.collect()
}

fn check(pipeline: &PlanCase) {
    let (plan, epoch) = (pipeline.make(), pipeline.epoch);
    let steps = steps_of(&plan, epoch);
    let hints = hints_of(&plan, epoch, steps.len());
    for draw in 0..12_u64 {
        if steps.is_empty() {
            return;
        }
        let step = (mix(draw ^ pipeline.spec.seed) % steps.len() as u64) as usize;
        check_from(&plan, &steps, epoch, step, None);
        // The hint of the step, of one before it, and of one after it, which is not used.
        let other = (mix(draw + 99) % steps.len() as u64) as usize;
        for of in [step, other] {
            if let Some(hint) = &hints[of] {
                assert!(hint.as_bytes().len() <= Hint::MOST_BYTES);
                let stored: Hint = hint.to_string().parse().unwrap();
                check_from(&plan, &steps, epoch, step, Some(&stored));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_hint_changes_nothing(pipeline in pipelines(false)) {
        check(&pipeline);
    }

    #[test]
    fn a_hint_changes_nothing_of_a_mixture(pipeline in pipelines(true)) {
        check(&pipeline);
    }

    #[test]
    fn a_foreign_hint_changes_nothing(one in pipelines(false), other in pipelines(false)) {
        let (plan, foreign) = (one.make(), other.make());
        let steps = steps_of(&plan, one.epoch);
        let found = hints_of(&foreign, one.epoch, steps_of(&foreign, one.epoch).len());
        for hint in found.iter().flatten().step_by(5) {
            for step in (0..steps.len()).step_by(7) {
                check_from(&plan, &steps, one.epoch, step, Some(hint));
            }
        }
        // Nor one of another epoch.
        for hint in hints_of(&plan, one.epoch + 1, steps.len() / 2).iter().flatten().step_by(5) {
            check_from(&plan, &steps, one.epoch, steps.len() - 1, Some(hint));
        }
    }
}

#[test]
fn buckets_and_rows_have_hints_and_nothing_else_has() {
    for (order, policy, hinted) in [
        ("full", "auto", true),
        ("page:12", "auto", true),
        ("full", "pack:24:16", true),
        ("full", "", false),
        ("queue:9", "auto", false),
    ] {
        let plan = PlanCase::plain(900, order, policy).make();
        let hints = hints_of(&plan, 2, 40);
        assert_eq!(hints[0], None, "nothing comes before the first step");
        for hint in &hints[1..] {
            assert_eq!(hint.is_some(), hinted, "{order} {policy}");
        }
    }
}
