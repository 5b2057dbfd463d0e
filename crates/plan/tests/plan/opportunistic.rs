//! Invariants of opportunistic orders, in addition to those of every plan: a plain model of the order, loads that
//! cover the epoch and serve each batch, and cuts of every kind.

use pelton_key::{Stage, key};
use pelton_plan::{Catalog, Order, Permutation, Plan, PlanSpec, Units};
use proptest::prelude::*;

use crate::{ids_of, step_at};

fn plan(units: Units, loads: u64, batch: u64, seed: u64) -> Plan {
    let unit_bytes = units.unit_bytes();
    let order = Order::Opportunistic { loads, unit_bytes };
    Plan::new(&PlanSpec::new(order, batch, seed), Catalog::of_units(units)).unwrap()
}

/// The order of an epoch as its definition reads, everything stored.
fn model(units: &Units, loads: u64, seed: u64, epoch: u64) -> Vec<Vec<u64>> {
    let unit_order = Permutation::new(units.len(), key(seed, epoch, Stage::LoadUnits));
    (0..loads)
        .map(|load| {
            let edge = |load| load * units.len() / loads;
            let records: Vec<u64> = (edge(load)..edge(load + 1))
                .flat_map(|place| units.unit_records(unit_order.get(place)))
                .collect();
            let stage = Stage::LoadRecords(load);
            let inside = Permutation::new(records.len() as u64, key(seed, epoch, stage));
            (0..records.len() as u64)
                .map(|place| records[inside.get(place) as usize])
                .collect()
        })
        .collect()
}

fn check(units: &Units, loads: u64, seed: u64, epoch: u64) {
    let plan = plan(units.clone(), loads, 7, seed);
    let records = units.records();
    let model = model(units, loads, seed, epoch);
    assert_eq!(plan.loads(), Some(loads));
    let order = plan.epoch_order(epoch).unwrap();
    let ids = ids_of(&plan, epoch);
    assert_eq!(ids, model.concat(), "{units:?} in {loads}");

    let mut next = 0;
    for (load, expected) in model.iter().enumerate() {
        let load = load as u64;
        let positions = order.load_positions(load).unwrap();
        assert_eq!(positions, next..next + expected.len() as u64);
        next = positions.end;
        let read = order.load_units(load).unwrap();
        assert!(read.is_sorted());
        let mut read: Vec<u64> = read
            .into_iter()
            .flat_map(|unit| units.unit_records(unit))
            .collect();
        let mut expected = expected.clone();
        expected.sort_unstable();
        read.sort_unstable();
        assert_eq!(read, expected, "units of load {load}");
        for id in expected {
            assert_eq!(order.load_of(id), Some(load));
        }
    }
    assert_eq!(next, records);
    assert_eq!(order.load_positions(loads), None);

    // A batch draws only from the loads whose positions it covers.
    for step in 0..plan.steps(epoch) {
        let covered = order.step_positions(step).unwrap();
        for id in step_at(&plan, epoch, step).ids {
            let load = order.load_of(id).unwrap();
            let served = order.load_positions(load).unwrap();
            assert!(served.start < covered.end && covered.start < served.end);
        }
    }
    // From any position on, the rest is the same.
    for start in (0..records).step_by(1 + records as usize / 40) {
        let mut rest = vec![0; (records - start).min(300) as usize];
        order.fill(start, &mut rest);
        assert_eq!(rest, ids[start as usize..][..rest.len()]);
    }
    let mut places: Vec<u64> = (0..records).rev().collect();
    order.positions_of_each(&mut places);
    order.ids_of_each(&mut places);
    assert!(places.iter().rev().copied().eq(0..records));
}

#[test]
fn small_cuts_of_every_kind_follow_the_model() {
    for records in 0..=24 {
        let cuts = [
            Units::fixed(records, 1, 1),
            Units::fixed(records, 1, 5),
            Units::fixed(records, 0, 3),
            Units::from_lengths((0..records).map(|_| 0), 4),
            Units::from_lengths((0..records).map(|id| id % 3), 2),
            Units::from_lengths((0..records).map(|id| if id == 3 { 100 } else { 1 }), 6),
        ];
        for units in cuts {
            for loads in 1..=units.len().max(1) {
                for epoch in [0, 1, 2, 0] {
                    check(&units, loads, 5, epoch);
                }
            }
        }
    }
}

/// Loads of more than 1 024 records take computed permutations, and many units a computed order.
#[test]
fn large_cuts_follow_the_model() {
    let uneven = |records: u64| (0..records).map(|id| id.wrapping_mul(0x9E37_79B9) % 97);
    check(&Units::fixed(20_011, 1, 3), 3, 1, 4);
    check(&Units::fixed(20_011, 1, 1), 9, 1, 4);
    check(&Units::from_lengths(uneven(30_000), 300), 4, 2, 9);
    check(&Units::from_lengths(uneven(30_000), 300), 60, 2, 9);
    // One huge run of empty records next to units of one.
    let lopsided = (0..5000).map(|id| if id < 4000 { 0 } else { 10 });
    check(&Units::from_lengths(lopsided, 10), 11, 2, 9);
}

#[test]
fn more_loads_than_units_are_refused_with_a_remedy() {
    let order = |loads| Order::Opportunistic {
        loads,
        unit_bytes: 8,
    };
    let new = |records, loads| Plan::new(&PlanSpec::new(order(loads), 1, 0), Catalog::new(records));
    let message = new(10, 11).unwrap_err().to_string();
    assert!(message.contains("from 1 to 10 loads"), "{message}");
    let units = Units::fixed(10, 4, 8);
    let refused = Plan::new(&PlanSpec::new(order(6), 1, 0), Catalog::of_units(units));
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("5 units of 8 bytes"), "{message}");
    assert!(message.contains("from 1 to 5 loads"), "{message}");
    assert!(new(10, 0).is_err());
    assert!(new(0, 2).is_err());
    assert_eq!(new(0, 1).unwrap().steps(0), 0);
    assert!(
        new(1 << 40, 1 << 25)
            .unwrap_err()
            .to_string()
            .contains("16777216")
    );
    let empty = Order::Opportunistic {
        loads: 1,
        unit_bytes: 0,
    };
    let refused = Plan::new(&PlanSpec::new(empty, 1, 0), Catalog::new(9));
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("opportunistic:8:1048576"), "{message}");
}

#[test]
fn the_largest_plan_is_sought_anywhere() {
    let records = 1 << 63;
    let plan = plan(Units::fixed(records, 1, 1000), 1 << 20, 4096, 3);
    let order = plan.epoch_order(8).unwrap();
    for position in [0, 1, records / 2 + 5, records - 4] {
        let mut ids = [0; 4];
        order.fill(position, &mut ids);
        order.positions_of_each(&mut ids);
        assert!(ids.iter().copied().eq(position..position + 4));
    }
}

#[test]
fn tables_are_accounted_for() {
    let even = plan(Units::fixed(1 << 30, 112, 1 << 20), 8, 1, 0);
    assert!(
        even.memory_bytes(None) < 100_000,
        "{}",
        even.memory_bytes(None)
    );
    let lengths = (0..100_000).map(|id| 1 + id % 7);
    let units = Units::from_lengths(lengths, 50);
    let table = units.table_bytes() + 12 * units.len();
    let uneven = plan(units, 8, 1, 0).memory_bytes(None);
    assert!(
        (table..table + 100_000).contains(&uneven),
        "{uneven} of {table}"
    );
}

proptest! {
    #[test]
    fn every_cut_follows_the_model(
        lengths in prop::collection::vec(0_u64..60, 0..3000),
        unit_bytes in 1_u64..2000,
        loads in 1_u64..40,
        seed in any::<u64>(),
        epoch in any::<u64>(),
    ) {
        let units = Units::from_lengths(lengths.iter().copied(), unit_bytes);
        let loads = loads.min(units.len().max(1));
        check(&units, loads, seed, epoch);
    }
}
