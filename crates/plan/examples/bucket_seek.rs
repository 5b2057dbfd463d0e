//! Seconds until the middle and the last step of an epoch of buckets and of packed rows are known:
//! `cargo run --release -p pelton-plan --example bucket_seek [SENTENCES]`.
//!
//! Prints one CSV line a case: making the plan (two passes over the lengths for buckets, one for rows),
//! seeking in an epoch that was not looked at before, and walking on from there. A seek is index
//! arithmetic on one thread.

use std::hint::black_box;
use std::time::Instant;

use pelton_key::mix;
use pelton_plan::{Batching, BucketPlan, BucketPolicy, Order, PackPlan, Plan};

/// Lengths like those of text: mean 22, most below 60, some to 150.
fn length_of(id: u64) -> u32 {
    let random = mix(id);
    let sum: u64 = (0..4).map(|part| random >> (8 * part) & 0xF).sum();
    let tail = if random >> 32 & 0x3F == 0 {
        random >> 40 & 0x7F
    } else {
        0
    };
    (1 + sum * 7 / 10 + tail) as u32
}

fn main() {
    let sentences: u64 = std::env::args().nth(1).map_or(100_000_000, |text| {
        text.parse().expect("a number of sentences")
    });
    println!("policy,sentences,batch,plan_s,seek_middle_s,seek_last_s,walk_us_a_step,memory_bytes");
    for (policy, batch) in [
        ("none", 32),
        ("static:10,20,30,40,50,60", 32),
        ("auto", 32),
        ("auto", 4096),
        ("tokens:4096", 1),
        ("pack:256", 32),
    ] {
        let plan = Plan::new(sentences, Order::Full, Batching::Examples(batch), 7);
        let plan = plan.expect("a sound plan");
        let began = Instant::now();
        let parsed: BucketPolicy = policy.parse().expect("a known policy");
        let (made, times, memory) = if let BucketPolicy::Pack(packing) = parsed {
            let plan = PackPlan::new(plan, packing, length_of).expect("a sound packing");
            let made = began.elapsed().as_secs_f64();
            let steps = plan.steps(9);
            let mut rows = Vec::new();
            let times = times(steps, |epoch, step| {
                rows.clear();
                plan.batch_rows(epoch, step, black_box(&mut rows));
            });
            (made, times, plan.memory_bytes())
        } else {
            let plan = BucketPlan::new(plan, &parsed, length_of).expect("sound buckets");
            let made = began.elapsed().as_secs_f64();
            let mut ids = Vec::new();
            let times = times(plan.steps(), |epoch, step| {
                ids.clear();
                black_box(plan.batch_ids(epoch, step, &mut ids));
            });
            (made, times, plan.memory_bytes())
        };
        let [middle, last, walk] = times;
        let policy = policy.replace(',', " ");
        println!(
            "{policy},{sentences},{batch},{made:.3},{middle:.3},{last:.3},{:.2},{memory}",
            1e6 * walk
        );
    }
}

/// Seconds to the middle step of an epoch, to nearly the last of another, and of a step that follows.
fn times(steps: u64, mut batch: impl FnMut(u64, u64)) -> [f64; 3] {
    const WALKED: u64 = 1000;
    let mut seek = |epoch, step| {
        let began = Instant::now();
        batch(epoch, step);
        began.elapsed().as_secs_f64()
    };
    let middle = seek(1, steps / 2);
    let last = seek(2, steps - steps / 1000 - 1);
    let walked = WALKED.min(steps / 2 - 1);
    let walk: f64 = (1..=walked).map(|step| seek(1, steps / 2 + step)).sum();
    [middle, last, walk / walked as f64]
}
