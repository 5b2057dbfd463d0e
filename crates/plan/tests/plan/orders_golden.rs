//! The sequences never change: compares the crate with `golden/orders.txt`, which a second implementation,
//! `golden/orders.py`, wrote.

use pelton_plan::{Batching, Catalog, Last, Order, Place, Plan, PlanSpec, StepBatch, Units};

const RECORD_BYTES: u64 = 112;

fn check_line(line: &str) {
    let mut words = line.split(' ');
    let order: Order = words.next().unwrap().parse().unwrap();
    let mut numbers = words.map(|word| word.parse::<u64>().unwrap());
    let records = numbers.next().unwrap();
    let (seed, epoch) = (numbers.next().unwrap(), numbers.next().unwrap());
    let expected: Vec<u64> = numbers.collect();
    match order {
        // The first ids of the first load.
        Order::Opportunistic { .. } => assert!(!expected.is_empty(), "{line}"),
        _ => assert_eq!(expected.len() as u64, records.min(12), "{line}"),
    }

    let mut over = Catalog::new(records);
    if let Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } = order {
        over = Catalog::of_units(Units::fixed(records, RECORD_BYTES, unit_bytes));
    }
    let plan = Plan::new(&PlanSpec::new(order, 5, seed), over).unwrap();
    let mut ids = vec![0; expected.len()];
    if let Some(order) = plan.epoch_order(epoch) {
        order.fill(0, &mut ids);
    } else {
        let mut walk = plan.walk(Place { epoch, step: 0 }, None);
        let (mut found, mut batch) = (Vec::new(), StepBatch::default());
        while found.len() < ids.len() && walk.next(&mut batch) {
            found.extend_from_slice(&batch.ids);
        }
        ids.clone_from_slice(&found[..expected.len()]);
    }
    assert_eq!(ids, expected, "{line}");
}

#[test]
fn every_order_gives_the_recorded_sequence() {
    let recorded = include_str!("golden/orders.txt");
    let lines = recorded.lines().filter(|line| !line.starts_with('#'));
    lines.clone().for_each(check_line);
    for form in Order::forms().split([',', ' ']) {
        let name = form.split([':', '[']).next().unwrap_or_default();
        let is_order = !["", "or", "sequential"].contains(&name) && !form.starts_with('(');
        let found = lines.clone().filter(|line| line.starts_with(name));
        assert!(!is_order || found.count() >= 20, "{form}: run orders.py");
    }
}

/// Checkpoints store fingerprints, so they must not change either.
#[test]
fn fingerprints_stay_and_tell_plans_apart() {
    let mut seen = std::collections::HashMap::new();
    for records in [10_u64, 1000] {
        for seed in [0, 1] {
            for order in [
                "sequential",
                "full",
                "page:64",
                "page:65",
                "queue:4",
                "queue:4:shuffled",
                "block:4",
                "block:4:permute",
                "opportunistic:4",
                "opportunistic:5",
                "opportunistic:4:64",
            ] {
                for (batching, last) in [
                    (Batching::Examples(4), Last::Even),
                    (Batching::Examples(4), Last::Short),
                    (Batching::Examples(4), Last::Drop),
                    (Batching::Batches(4), Last::Even),
                    (Batching::Examples(5), Last::Even),
                ] {
                    let order: Order = order.parse().unwrap();
                    let spec = PlanSpec {
                        last,
                        ..PlanSpec::new(order, batching, seed)
                    };
                    let plan = Plan::new(&spec, Catalog::new(records)).unwrap();
                    let says = format!("{records} {seed} {order} {batching} {last}");
                    if let Some(other) = seen.insert(plan.fingerprint(), says.clone()) {
                        // Blocks do not look at the batching.
                        assert!(matches!(order, Order::Block { .. }), "{says} and {other}");
                    }
                }
            }
        }
    }
    let page = PlanSpec::new(Order::Page { unit_bytes: 3 }, 2, 0);
    let cut = |lengths: [u64; 6]| {
        Plan::new(&page, Catalog::of_units(Units::from_lengths(lengths, 3))).unwrap()
    };
    assert_ne!(
        cut([1, 2, 1, 2, 1, 2]).fingerprint(),
        cut([1, 1, 1, 1, 1, 1]).fingerprint()
    );
    let loads = "opportunistic:4:64".parse().unwrap();
    let plan = Plan::new(&PlanSpec::new(loads, 64, 7), Catalog::new(1000)).unwrap();
    assert_eq!(plan.fingerprint(), 3_947_124_608_238_865_467);
    let plan = Plan::new(&PlanSpec::new(Order::Full, 64, 7), Catalog::new(1000)).unwrap();
    assert_eq!(plan.fingerprint(), 14_709_386_575_062_990_913);
}
