//! Plans that are refused, and what each message says to do instead.

use pelton_plan::{Batching, Catalog, Order, Plan, PlanError, PlanSpec, Units};

fn refusal(records: u64, order: &str, batching: Batching) -> PlanError {
    let order = match order {
        "page:0" => Order::Page { unit_bytes: 0 },
        "queue:0" => Order::Queue {
            examples: 0,
            initial_shuffle: false,
        },
        "block:0" => Order::Block {
            blocks: 0,
            permute: false,
        },
        text => text.parse().unwrap(),
    };
    Plan::new(&PlanSpec::new(order, batching, 0), Catalog::new(records)).unwrap_err()
}

fn check_refused(records: u64, order: &str, remedy: &str) {
    let message = refusal(records, order, Batching::Examples(1)).to_string();
    assert!(message.contains(remedy), "{message}");
}

#[test]
fn impossible_orders_are_refused_with_a_remedy() {
    check_refused(100, "block:0", "`order` block:40");
    check_refused(10, "block:11", "1 to 10 blocks");
    check_refused(0, "block:1", "0 records");
    check_refused(100, "queue:0", "`order` queue:10000");
    check_refused(100, "page:0", "`order` page:4096");
    check_refused(1 << 40, "queue:300000000", "`order` full");
    check_refused(1 << 40, "block:300000000:permute", "`order` full");
    check_refused((1 << 63) + 1, "full", "below 2^63");
    assert_eq!(
        refusal(9, "full", Batching::Examples(0)),
        PlanError::EmptyBatch
    );
    let batches = refusal(9, "full", Batching::Batches(10)).to_string();
    assert!(batches.contains("1 to 9 batches"), "{batches}");
}

#[test]
fn units_of_other_data_are_refused() {
    let over = |order, batching, units| {
        let records = 9;
        let over = Catalog {
            units: Some(units),
            ..Catalog::new(records)
        };
        Plan::new(&PlanSpec::new(order, batching, 0), over).unwrap_err()
    };
    let page = Order::Page { unit_bytes: 8 };
    for units in [Units::fixed(8, 4, 8), Units::fixed(9, 4, 16)] {
        let error = over(page, Batching::Examples(1), units);
        assert!(matches!(error, PlanError::UnitsMismatch { .. }), "{error}");
    }
    let error = over(Order::Full, Batching::Examples(1), Units::fixed(9, 4, 8));
    assert_eq!(
        error,
        PlanError::UnitsUnused {
            order: "full".to_owned()
        }
    );
    let error = over(page, Batching::Batches(9), Units::fixed(9, 4, 8));
    assert_eq!(
        error,
        PlanError::TooManyUnitBatches {
            batches: 9,
            units: 5,
            unit_bytes: 8,
            records: 9,
        }
    );
}

/// Asserts that `order` over units of `lengths` is refused with a sentence that has all `parts`.
fn check_units(lengths: &[u64], order: &str, batching: Batching, parts: &[&str]) {
    let order: Order = order.parse().unwrap();
    let (Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. }) = order else {
        panic!("{order} has units");
    };
    let units = Units::from_lengths(lengths.iter().copied(), unit_bytes);
    let refused = Plan::new(&PlanSpec::new(order, batching, 0), Catalog::of_units(units));
    let message = refused.unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "{part} in: {message}");
    }
}

/// The message used to say that three rows were three units of a mebibyte, too few for nine loads.
#[test]
fn units_are_counted_before_they_are_named() {
    let one = Batching::Examples(1);
    let check = |lengths: &[u64], order: &str, parts: &[&str]| {
        check_units(lengths, order, one, parts);
    };
    check(
        &[10; 3],
        "opportunistic:9",
        &[
            "9 loads of 3 records, which are 1 unit of 1048576 bytes",
            "give 1 load,",
            "opportunistic:3:1",
        ],
    );
    check(
        &[10; 30],
        "opportunistic:9:100",
        &[
            "9 loads of 30 records, which are 3 units of 100 bytes",
            "from 1 to 3 loads",
            "opportunistic:9:1",
        ],
    );
    check(
        &[10; 3],
        "opportunistic:4:10",
        &["4 loads of 3 records: give from 1 to 3 loads"],
    );
    check(
        &[],
        "opportunistic:2",
        &["2 loads of 0 records: give 1 load"],
    );
    check_units(
        &[10; 30],
        "page:100",
        Batching::Batches(4),
        &[
            "4 batches of 30 records, which are 3 units of 100 bytes",
            "`order` page:1",
            "`blocks`",
        ],
    );
    check_units(
        &[10; 30],
        "page:100",
        Batching::Batches(31),
        &["31 batches cannot be made from 30 records"],
    );
}

#[test]
fn the_smaller_units_that_are_named_serve() {
    let lengths = [0, 3, 700, 1, 1];
    for loads in 1..=5 {
        let order = Order::Opportunistic {
            loads,
            unit_bytes: 1,
        };
        let units = Units::from_lengths(lengths.map(|length| length.max(1)), 1);
        assert!(Plan::new(&PlanSpec::new(order, 1, 0), Catalog::of_units(units)).is_ok());
    }
}
