//! Seconds until a step late in a long epoch is known, with a hint and without:
//! `cargo run --release -p pelton-plan --example resume_seconds [RECORDS]`.
//!
//! Prints one CSV line a case, for a plan not used before. One thread, no I/O.

use std::hint::black_box;
use std::time::Instant;

use pelton_key::mix;
use pelton_plan::{Batching, Catalog, Part, Place, Plan, PlanSpec, StepBatch};

/// Lengths like those of text: mean 22, most below 60, some to 150.
fn length_of(id: u64) -> u32 {
    let random = mix(id);
    let sum: u64 = (0..4).map(|part| random >> (8 * part) & 0xF).sum();
    let tail = match random >> 32 & 0x3F {
        0 => random >> 40 & 0x7F,
        _ => 0,
    };
    (1 + sum * 7 / 10 + tail) as u32
}

fn main() {
    let records: u64 = std::env::args().nth(1).map_or(100_000_000, |text| {
        text.parse().expect("a number of records")
    });
    println!("order,buckets,echo,batch_echo,parts,plan_s,without_s,with_s,hint_bytes");
    for (order, buckets, echo, batch_echo, parts) in [
        ("full", "", "1", "1", 1),
        ("full", "", "2", "1", 1),
        ("page:4096", "", "1", "1", 1),
        ("queue:10000", "", "1", "1", 1),
        ("full", "auto", "1", "1", 1),
        ("full", "auto", "2", "1", 1),
        ("full", "auto", "1", "2:64", 1),
        ("full", "auto", "1", "1", 3),
        ("queue:10000", "auto", "1", "1", 1),
        ("full", "pack:256", "1", "1", 1),
        ("full", "pack:256", "2", "1", 3),
    ] {
        let mut spec = PlanSpec::new(order.parse().expect("an order"), 32, 7);
        spec.buckets = (!buckets.is_empty()).then(|| buckets.parse().expect("a policy"));
        spec.echo = echo.parse().expect("an echo");
        spec.batch_echo = batch_echo.parse().expect("an echo");
        if parts > 1 {
            let part = |number| Part {
                ids: number * records / parts..(number + 1) * records / parts,
                weight: (number + 1) as f64,
            };
            spec.mixture = Some((0..parts).map(part).collect());
        }
        let began = Instant::now();
        let plan = Plan::new(&spec, Catalog::new(records).with_lengths(&length_of));
        let plan = plan.expect("a sound plan");
        let made = began.elapsed().as_secs_f64();
        // Nine tenths of the epoch, or a step that exists for certain if rows are packed.
        let draws = match spec.batching {
            Batching::Examples(batch) => batch * if buckets.starts_with("pack") { 12 } else { 1 },
            _ => 1,
        };
        let place = Place {
            epoch: 3,
            step: plan.appearances() / draws * 9 / 10,
        };
        let mut batch = StepBatch::default();
        let began = Instant::now();
        let mut walk = plan.walk(place, None);
        walk.next(&mut batch);
        let without = began.elapsed().as_secs_f64();
        let hint = plan.walk(place, None).hint();
        let began = Instant::now();
        let mut entered = plan.walk(place, hint.as_ref());
        entered.next(black_box(&mut batch));
        let with = began.elapsed().as_secs_f64();
        let bytes = hint.map_or(0, |hint| hint.as_bytes().len());
        println!(
            "{order},{buckets},{echo},{batch_echo},{parts},{made:.2},{without:.3},{with:.3},{bytes}"
        );
    }
}
