//! Ids a second on one core, for the permutation in bulk, forwards and backwards, and for each order, batch by
//! batch: `cargo run --release -p pelton-plan --example ids_per_second`.
//!
//! Prints one CSV line a case, with the median of seven runs.

use std::hint::black_box;
use std::time::Instant;

use pelton_plan::{Catalog, Order, Permutation, Place, Plan, PlanSpec, StepBatch, Units};

const RUNS: usize = 7;
const RUN_IDS: u64 = 1 << 23;
const BATCH: u64 = 4096;

fn main() {
    println!("case,records,million_ids_per_s");
    for records in [
        1_000_000,
        (1 << 20) + 1,
        11_000_000,
        1 << 24,
        1 << 31,
        (1 << 31) + 1,
        1 << 32,
        (1 << 32) + 1,
        1 << 40,
        (1 << 40) + 1,
    ] {
        let permutation = Permutation::new(records, 42);
        let mut out = vec![0; BATCH as usize];
        let batches = RUN_IDS / BATCH;
        let start_of = |batch: u64| (batch * BATCH) % (records - BATCH);
        report("permutation", records, || {
            for batch in 0..batches {
                permutation.fill(start_of(batch), black_box(&mut out));
            }
            batches * BATCH
        });
        report("permutation inverse", records, || {
            for batch in 0..batches {
                permutation.fill_positions(start_of(batch), black_box(&mut out));
            }
            batches * BATCH
        });
        report("permutation one by one", records, || {
            let ids = RUN_IDS / 8;
            let sum: u64 = (0..ids)
                .map(|id| permutation.get(id % records))
                .fold(0, u64::wrapping_add);
            black_box(sum);
            ids
        });
    }
    for text in [
        "sequential",
        "full",
        "page:4096",
        "queue:10000",
        "queue:1000000:shuffled",
        "block:40:permute",
        "opportunistic:8",
        "opportunistic:1000",
    ] {
        let records = 11_000_000;
        let order: Order = text.parse().expect("a known order");
        let mut over = Catalog::new(records);
        if let Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } = order {
            over = Catalog::of_units(Units::fixed(records, 112, unit_bytes));
        }
        let plan = Plan::new(&PlanSpec::new(order, BATCH, 42), over).expect("a sound plan");
        batch_by_batch(text, &plan);
    }
    for unit_bytes in [1 << 10, 1 << 16] {
        let order = Order::Opportunistic {
            loads: 8,
            unit_bytes,
        };
        let records = 11_000_000;
        let lengths = (0..records).map(|id: u64| 50 + id.wrapping_mul(0x9E37_79B9) % 150);
        let over = Catalog::of_units(Units::from_lengths(lengths, unit_bytes));
        let plan = Plan::new(&PlanSpec::new(order, BATCH, 42), over).expect("a sound plan");
        batch_by_batch(&format!("{order} uneven"), &plan);
    }
}

fn batch_by_batch(case: &str, plan: &Plan) {
    let mut batch = StepBatch::default();
    let mut walk = plan.walk(Place::default(), None);
    report(case, plan.records(), || {
        for _ in 0..plan.steps(0) {
            walk.next(black_box(&mut batch));
        }
        plan.records()
    });
}

fn report(case: &str, records: u64, mut run: impl FnMut() -> u64) {
    let mut rates: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let ids = run();
            ids as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{case},{records},{:.1}", rates[RUNS / 2]);
}
