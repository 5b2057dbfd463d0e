//! Invariants of plans of every order: each epoch is a permutation, batches tile it, ranks tile batches, positions
//! invert, and neighbouring seeds and epochs are unrelated.

use pelton_plan::{
    Batching, Catalog, Last, Order, Place, Plan, PlanError, PlanSpec, StepBatch, Units, local_slots,
};
use proptest::prelude::*;

use crate::streams::lasts;
use crate::{ids_of, step_at, steps_of};

/// Record lengths that make units of uneven sizes.
fn lengths(records: u64) -> impl Iterator<Item = u64> {
    (0..records).map(|id| 1 + id.wrapping_mul(0x9E37_79B9) % 17)
}

fn plan(records: u64, order: Order, batching: (Batching, Last), seed: u64) -> Plan {
    let over = match order {
        Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } => {
            Catalog::of_units(Units::from_lengths(lengths(records), unit_bytes))
        }
        _ => Catalog::new(records),
    };
    let (batching, last) = batching;
    let spec = PlanSpec {
        last,
        ..PlanSpec::new(order, batching, seed)
    };
    Plan::new(&spec, over).unwrap()
}

/// Batches of `examples`, with even last ones.
fn of(examples: u64) -> (Batching, Last) {
    (Batching::Examples(examples), Last::Even)
}

fn check_plan(plan: &Plan, epoch: u64) {
    let records = plan.records();
    let steps = steps_of(plan, epoch);
    assert_eq!(steps.len() as u64, plan.steps(epoch));
    let order = plan.epoch_order(epoch);
    let mut batched = Vec::new();
    for (step, batch) in (0..).zip(&steps) {
        assert!(!batch.is_empty(), "step {step} of {plan:?} is empty");
        assert_eq!(batch.ends_epoch, step + 1 == plan.steps(epoch));
        assert_eq!(plan.step_len(epoch, step), Some(batch.len() as u64));
        let positions = batched.len() as u64..(batched.len() + batch.len()) as u64;
        assert!(batch.positions.iter().copied().eq(positions.clone()));
        if let Some(order) = &order {
            assert_eq!(order.step_positions(step), Some(positions));
        }
        batched.extend(&batch.ids);
    }
    assert_eq!(plan.step_len(epoch, plan.steps(epoch)), None);
    let drops = plan.last() == Last::Drop
        && matches!(plan.batching(), Batching::Examples(_))
        && !matches!(plan.order(), Order::Block { .. });
    let smallest = steps.iter().map(|batch| batch.len() as u64).min();
    match plan.order() {
        // In another epoch it may be smaller.
        Order::Page { .. } => assert!(plan.smallest_batch(epoch) <= smallest),
        _ => assert_eq!(plan.smallest_batch(epoch), smallest),
    }
    assert_eq!(plan.left_out(epoch), records - batched.len() as u64);
    let mut sorted = batched.clone();
    sorted.sort_unstable();
    if drops {
        assert!(sorted.is_sorted_by(|a, b| a < b) && sorted.last() < Some(&records));
    } else {
        assert!(
            sorted.iter().copied().eq(0..records),
            "{plan:?} is no permutation"
        );
    }

    // Starting in the middle gives what walking forwards gave, on into the next epoch.
    let middle = plan.steps(epoch) / 2;
    let mut walk = plan.walk(
        Place {
            epoch,
            step: middle,
        },
        None,
    );
    let mut batch = StepBatch::default();
    for expected in &steps[middle as usize..] {
        assert!(walk.next(&mut batch));
        assert_eq!(&batch, expected);
    }
    assert_eq!(walk.next(&mut batch), !steps.is_empty());
    if let Some(after) = epoch.checked_add(1).filter(|_| !steps.is_empty()) {
        assert_eq!(batch, step_at(plan, after, 0));
    }

    let Some(order) = order else {
        return;
    };
    let mut ids = vec![0; records as usize];
    order.fill(0, &mut ids);
    assert_eq!(batched, ids[..batched.len()]);
    let mut again = vec![0; (records - records / 3) as usize];
    order.fill(records / 3, &mut again);
    assert_eq!(again, ids[(records / 3) as usize..]);
    let mut positions = vec![0; records as usize];
    order.positions_of(0..records, &mut positions);
    for (position, &id) in ids.iter().enumerate() {
        assert_eq!(positions[id as usize], position as u64);
    }
    let mut places = ids.clone();
    order.positions_of_each(&mut places);
    assert!(places.iter().copied().eq(0..records));
    order.ids_of_each(&mut places);
    assert_eq!(places, ids);
    for id in [0, records / 2, records.saturating_sub(1)] {
        if id < records {
            assert_eq!(order.position_of(id), positions[id as usize]);
        }
    }
}

fn orders(records: u64) -> Vec<Order> {
    let mut orders = vec![
        Order::Sequential,
        Order::Full,
        Order::Page { unit_bytes: 1 },
        Order::Page { unit_bytes: 40 },
        Order::Queue {
            examples: 1,
            initial_shuffle: false,
        },
        Order::Queue {
            examples: 9,
            initial_shuffle: true,
        },
        Order::Queue {
            examples: 1 << 63,
            initial_shuffle: false,
        },
    ];
    for loads in [1, 2, 3, 7] {
        for unit_bytes in [1, 9, 40] {
            let units = Units::from_lengths(lengths(records), unit_bytes);
            if loads <= units.len().max(1) {
                orders.push(Order::Opportunistic { loads, unit_bytes });
            }
        }
    }
    for blocks in [1, 2, 7, records] {
        if (1..=records).contains(&blocks) {
            orders.push(Order::Block {
                blocks,
                permute: false,
            });
            orders.push(Order::Block {
                blocks,
                permute: true,
            });
        }
    }
    orders
}

#[test]
fn every_small_plan_holds() {
    for records in 0..=33 {
        for order in orders(records) {
            for batching in [
                of(1),
                of(5),
                of(1000),
                (Batching::Examples(5), Last::Short),
                (Batching::Examples(5), Last::Drop),
            ] {
                for epoch in 0..3 {
                    check_plan(&plan(records, order, batching, 1), epoch);
                }
            }
        }
    }
}

fn any_order() -> impl Strategy<Value = Order> {
    prop_oneof![
        Just(Order::Sequential),
        Just(Order::Full),
        (1_u64..300).prop_map(|unit_bytes| Order::Page { unit_bytes }),
        (1_u64..4000, any::<bool>()).prop_map(|(examples, initial_shuffle)| Order::Queue {
            examples,
            initial_shuffle
        }),
        (1_u64..50, any::<bool>()).prop_map(|(blocks, permute)| Order::Block { blocks, permute }),
        (1_u64..50, 1_u64..300)
            .prop_map(|(loads, unit_bytes)| Order::Opportunistic { loads, unit_bytes }),
    ]
}

/// A word of an order's text, a count, or something near one.
fn any_piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "sequential",
            "full",
            "page",
            "queue",
            "block",
            "opportunistic",
            "shuffled",
            "permute",
        ])
        .prop_map(str::to_owned),
        any::<u64>().prop_map(|number| number.to_string()),
        (0_u64..3).prop_map(|number| number.to_string()),
        "[0-9a-zA-Z+ _.:-]{0,4}",
    ]
}

fn any_batching() -> impl Strategy<Value = (Batching, Last)> {
    let batching = prop_oneof![
        (1_u64..5000).prop_map(Batching::Examples),
        (1_u64..8).prop_map(Batching::Batches),
    ];
    (batching, lasts())
}

proptest! {
    #[test]
    fn every_plan_holds(
        records in 2000_u64..6000,
        order in any_order(),
        batching in any_batching(),
        seed in any::<u64>(),
        epoch in any::<u64>(),
    ) {
        check_plan(&plan(records, order, batching, seed), epoch);
    }

    #[test]
    fn every_order_is_read_as_it_is_written(order in any_order()) {
        prop_assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
    }

    /// Pieces of valid text in any arrangement are read or refused, and text that is read is equal when written.
    #[test]
    fn any_text_is_read_or_refused(pieces in prop::collection::vec(any_piece(), 0..5)) {
        let text = pieces.join(":");
        match text.parse::<Order>() {
            Ok(order) => {
                let written = order.to_string();
                prop_assert!(written.starts_with(&pieces[0]), "{} became {}", text, written);
                prop_assert_eq!(written.parse::<Order>().unwrap(), order);
            }
            Err(PlanError::UnknownOrder { text: named, .. } | PlanError::BadCount { text: named, .. }) => {
                prop_assert_eq!(named, text);
            }
            Err(error) => prop_assert!(false, "{}: {}", text, error),
        }
    }

    #[test]
    fn ranks_share_a_batch_out_exactly_once(
        records in 1_u64..500,
        examples in 1_u64..600,
        world_size in 1_u32..700,
        seed in any::<u64>(),
    ) {
        let plan = plan(records, Order::Full, of(examples), seed);
        for batch in steps_of(&plan, 4) {
            let batch = batch.ids;
            let mut shared: Vec<u64> = Vec::new();
            for rank in 0..world_size {
                let slots = local_slots(batch.len() as u64, rank, world_size);
                shared.extend(&batch[slots.start as usize..slots.end as usize]);
            }
            prop_assert_eq!(shared, batch);
        }
    }

    #[test]
    fn epochs_and_seeds_are_strangers(
        order in any_order(),
        seed in any::<u64>(),
        epoch in any::<u64>(),
    ) {
        let here = plan(3000, order, of(64), seed);
        let next_seed = plan(3000, order, of(64), seed.wrapping_add(1));
        let ids = ids_of(&here, epoch);
        let next_epoch = ids_of(&here, epoch.wrapping_add(1));
        let varies = match order {
            Order::Sequential | Order::Queue { examples: 1, .. } => false,
            Order::Block { blocks, permute } => permute && blocks > 5,
            _ => true,
        };
        if here.is_same_every_epoch() {
            prop_assert_eq!(&ids, &next_epoch);
        }
        if varies {
            prop_assert_ne!(&ids, &next_epoch);
            // A key of seed + epoch would make these two the same.
            prop_assert_ne!(&next_epoch, &ids_of(&next_seed, epoch));
        }
        if matches!(order, Order::Block { .. }) {
            let sorted = |epoch| {
                let mut blocks: Vec<Vec<u64>> =
                    steps_of(&here, epoch).into_iter().map(|batch| batch.ids).collect();
                blocks.sort_unstable();
                blocks
            };
            prop_assert_eq!(sorted(epoch), sorted(epoch ^ 1));
        }
    }
}

#[test]
fn seed_0_epoch_1_is_not_seed_1_epoch_0() {
    for order in orders(3000) {
        let zero = plan(3000, order, of(10), 0);
        let one = plan(3000, order, of(10), 1);
        if !matches!(
            order,
            Order::Sequential
                | Order::Queue {
                    examples: 1,
                    initial_shuffle: false
                }
                | Order::Block { blocks: 3000, .. }
        ) {
            assert_ne!(ids_of(&zero, 1), ids_of(&one, 0), "{order}");
        }
    }
}
