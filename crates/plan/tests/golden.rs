//! The sequences are the same for ever: the crate against `golden/orders.txt`, which a second
//! implementation, `golden/orders.py`, wrote.

use pelton_plan::{Batching, Order, Plan, Units};

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

    let mut plan = Plan::new(records, order, Batching::Examples(5), seed).unwrap();
    if let Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } = order {
        plan = plan
            .with_units(Units::fixed(records, RECORD_BYTES, unit_bytes))
            .unwrap();
    }
    let mut ids = vec![0; expected.len()];
    plan.fill_ids(epoch, 0, &mut ids);
    assert_eq!(ids, expected, "{line}");
}

#[test]
fn every_order_gives_the_recorded_sequence() {
    let mut lines = 0;
    for line in include_str!("golden/orders.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        check_line(line);
        lines += 1;
    }
    assert_eq!(lines, 615);
}

/// Fingerprints stand in checkpoints, so they too stay as they are.
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
                for batching in ["4", "4:drop-last", "batches:4", "5"] {
                    let order: Order = order.parse().unwrap();
                    let batching: Batching = batching.parse().unwrap();
                    let plan = Plan::new(records, order, batching, seed).unwrap();
                    let says = format!("{records} {seed} {order} {batching}");
                    if let Some(other) = seen.insert(plan.fingerprint(), says.clone()) {
                        // Blocks do not look at the batching.
                        assert!(matches!(order, Order::Block { .. }), "{says} and {other}");
                    }
                }
            }
        }
    }
    let page = || Plan::new(6, Order::Page { unit_bytes: 3 }, Batching::Examples(2), 0).unwrap();
    let cut = |lengths: [u64; 6]| page().with_units(Units::from_lengths(lengths, 3)).unwrap();
    assert_ne!(
        cut([1, 2, 1, 2, 1, 2]).fingerprint(),
        cut([1, 1, 1, 1, 1, 1]).fingerprint()
    );
    let loads = "opportunistic:4:64".parse().unwrap();
    let plan = Plan::new(1000, loads, Batching::Examples(64), 7).unwrap();
    assert_eq!(plan.fingerprint(), 6_968_453_585_509_047_457);
    let plan = Plan::new(1000, Order::Full, Batching::Examples(64), 7).unwrap();
    assert_eq!(plan.fingerprint(), 17_615_767_515_884_294_472);
}
