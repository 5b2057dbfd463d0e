//! Seconds until the middle and the last step of an epoch of a stream are known:
//! `cargo run --release -p pelton-plan --example stream_seek [RECORDS]`.
//!
//! Prints one CSV line a case: making the plan (passes over the lengths, where it asks for them), the first seek into
//! an epoch that was not looked at before, counting its steps included, and walking on from there. A seek is
//! index arithmetic on one thread; beside its time by the clock stands the time the thread had a processor, which tells
//! more where others use the machine.

use std::hint::black_box;
use std::time::Instant;

use pelton_plan::{Order, Part, Selection, StreamBatch, StreamPlan, StreamSpec, mix};

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

/// Order, buckets, echo, echo of batches, filter, mixture.
const CASES: [(&str, &str, &str, &str, bool, bool); 26] = [
    ("full", "", "1", "1", false, false),
    ("full", "", "1", "1", true, false),
    ("full", "", "2", "1", true, false),
    ("full", "", "1.5:65536", "1", false, false),
    ("full", "", "1", "2.5", false, false),
    ("full", "", "1", "1", true, true),
    ("full", "", "2", "1", true, true),
    ("page:4096", "", "1", "1", true, false),
    ("page:4096", "", "2", "1", false, false),
    ("queue:10000", "", "1", "1", false, false),
    ("queue:10000", "", "2", "1", false, false),
    ("full", "auto", "1", "1", false, false),
    ("full", "auto", "1", "1", true, false),
    ("full", "auto", "1", "2", true, false),
    ("full", "auto", "2", "1", false, false),
    ("full", "auto", "1.5", "1", false, false),
    ("full", "auto", "1", "1", false, true),
    ("full", "auto", "2", "1", true, true),
    ("page:4096", "auto", "1", "1", false, false),
    ("queue:10000", "auto", "1", "1", false, false),
    ("full", "tokens:4096", "2", "1", false, false),
    ("full", "pack:256", "1", "1", false, false),
    ("full", "pack:256", "1", "1", true, false),
    ("full", "pack:256", "2", "1", false, false),
    ("full", "pack:256", "1", "1", false, true),
    ("page:4096", "pack:256", "1", "1", false, false),
];

fn main() {
    let records: u64 = std::env::args().nth(1).map_or(100_000_000, |text| {
        text.parse().expect("a number of records")
    });
    println!(
        "order,buckets,echo,batch_echo,filter,mixture,records,batch,plan_s,seek_middle_s,seek_last_s,\
         seek_middle_cpu_s,seek_last_cpu_s,walk_cpu_us_a_step,memory_bytes"
    );
    for (order, policy, echo, batch_echo, filtered, mixed) in CASES {
        let order: Order = order.parse().expect("a known order");
        let mut spec = StreamSpec::new(order, 32, 7);
        spec.echo = echo.parse().expect("an echo");
        spec.batch_echo = batch_echo.parse().expect("an echo");
        spec.buckets = (!policy.is_empty()).then(|| policy.parse().expect("a known policy"));
        if mixed {
            let ends = [0, records / 100, records / 2, records];
            let weights = [0.2, 0.3, 0.5];
            let part = |part: usize| Part {
                ids: ends[part]..ends[part + 1],
                weight: weights[part],
            };
            spec.mixture = Some((0..3).map(part).collect());
            spec.epoch_examples = Some(records);
        }
        let keeps = |id: u64| !mix(id ^ 0xF1).is_multiple_of(10);
        let selection = filtered.then(|| Selection::new(records, keeps));
        let units = match order {
            Order::Page { unit_bytes } => Some(pelton_plan::Units::fixed(records, 88, unit_bytes)),
            _ => None,
        };
        let began = Instant::now();
        let stream = StreamPlan::new(records, &spec, selection, units, Some(&length_of));
        let stream = stream.expect("a sound stream");
        let made = began.elapsed().as_secs_f64();
        let [middle, last, middle_cpu, last_cpu, walk] = times(&stream);
        println!(
            "{order},{policy},{echo},{batch_echo},{},{},{records},32,{made:.3},{middle:.3},{last:.3},{middle_cpu:.3},{last_cpu:.3},{:.2},{}",
            if filtered { "9 of 10" } else { "" },
            if mixed { "3 parts" } else { "" },
            1e6 * walk,
            stream.memory_bytes(),
        );
    }
}

/// Seconds that this thread has had a processor; by the clock where the system does not tell.
fn cpu_seconds(began: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat
        .split(' ')
        .next()
        .and_then(|first| first.parse::<u64>().ok());
    nanoseconds.map_or_else(|| began.elapsed().as_secs_f64(), |ns| 1e-9 * ns as f64)
}

/// Seconds to the middle step of an epoch and to nearly the last of another, by the clock and of a processor, and of a
/// step that follows.
fn times(stream: &StreamPlan) -> [f64; 5] {
    const WALKED: u64 = 1000;
    let mut batch = StreamBatch::default();
    let start = Instant::now();
    let mut seek = |epoch, place: f64| {
        let (began, cpu) = (Instant::now(), cpu_seconds(start));
        let step = (place * stream.steps(epoch) as f64) as u64;
        stream.batch(epoch, step, black_box(&mut batch));
        (
            began.elapsed().as_secs_f64(),
            cpu_seconds(start) - cpu,
            step,
        )
    };
    let (last, last_cpu, _) = seek(2, 0.999);
    let (middle, middle_cpu, step) = seek(1, 0.5);
    let cpu = cpu_seconds(start);
    for walked in 1..=WALKED {
        stream.batch(1, step + walked, black_box(&mut batch));
    }
    let walk = (cpu_seconds(start) - cpu) / WALKED as f64;
    [middle, last, middle_cpu, last_cpu, walk]
}
