//! Seconds until the middle and the last step of an epoch of a stream are known:
//! `cargo run --release -p pelton-plan --example stream_seek [RECORDS [every|CASE]]`.
//!
//! Prints one CSV line a case: making the plan (passes over the lengths, where it asks for them), the first seek into
//! an epoch that was not looked at before, counting its steps included, and walking on from there. A seek is
//! index arithmetic on one thread; beside its time by the clock stands the time the thread had a processor, which tells
//! more where others use the machine. `every` goes through all combinations of what can be asked for; a case by itself
//! is written as the first six columns of its line.

use std::hint::black_box;
use std::time::Instant;

use pelton_key::mix;
use pelton_plan::{Order, Part, Selection, StreamBatch, StreamPlan, StreamSpec};

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
type Case = [&'static str; 6];

const CASES: [Case; 36] = [
    ["full", "", "1", "1", "", ""],
    ["full", "", "1", "1", "9 of 10", ""],
    ["full", "", "2", "1", "9 of 10", ""],
    ["full", "", "1.5:65536", "1", "", ""],
    ["full", "", "1", "2.5", "", ""],
    ["full", "", "1", "1", "9 of 10", "3 parts"],
    ["full", "", "2", "1", "9 of 10", "3 parts"],
    ["page:4096", "", "1", "1", "9 of 10", ""],
    ["page:4096", "", "2", "1", "", ""],
    ["queue:10000", "", "1", "1", "", ""],
    ["queue:10000", "", "2", "1", "", ""],
    ["full", "auto", "1", "1", "", ""],
    ["full", "auto", "1", "1", "9 of 10", ""],
    ["full", "auto", "1", "2", "9 of 10", ""],
    ["full", "auto", "2", "1", "", ""],
    ["full", "auto", "1.5", "1", "", ""],
    ["full", "auto", "1", "1", "", "3 parts"],
    ["full", "auto", "2", "1", "9 of 10", "3 parts"],
    ["full", "auto", "1", "1", "", "small parts"],
    ["page:4096", "auto", "1", "1", "", ""],
    ["queue:10000", "auto", "1", "1", "", ""],
    ["queue:10000", "auto", "2", "1", "", ""],
    ["opportunistic:8:4096", "auto", "1", "1", "", ""],
    ["full", "tokens:4096", "2", "1", "", ""],
    ["full", "pack:256", "1", "1", "", ""],
    ["full", "pack:256", "1", "1", "9 of 10", ""],
    ["full", "pack:256", "2", "1", "", ""],
    ["full", "pack:256", "1.5:65536", "1", "", ""],
    ["full", "pack:256", "1", "1", "", "3 parts"],
    ["full", "pack:256", "2", "1", "", "3 parts"],
    ["full", "pack:256", "2", "1", "9 of 10", "100 parts"],
    ["full", "pack:256", "2", "1", "", "small parts"],
    ["page:4096", "pack:256", "1", "1", "", ""],
    ["queue:1000000:shuffled", "pack:256", "2", "1", "", ""],
    ["full", "pack:100:1000", "3.25", "1", "", ""],
    ["full", "pack:100:1000", "2", "1", "", "small parts"],
];

const ORDERS: [&str; 10] = [
    "full",
    "sequential",
    "page:4096",
    "page:262144",
    "queue:10000",
    "queue:1000000:shuffled",
    "block:40",
    "block:1000:permute",
    "opportunistic:8:4096",
    "opportunistic:1000:65536",
];
const POLICIES: [&str; 8] = [
    "",
    "none",
    "static:10,20,30,40,50,60",
    "auto",
    "optimal:8",
    "tokens:4096",
    "pack:256",
    "pack:100:1000",
];
const ECHOES: [[&str; 2]; 5] = [
    ["1", "1"],
    ["1", "2"],
    ["2", "1"],
    ["1.5:65536", "1"],
    ["3.25", "1"],
];
const FILTERS: [&str; 2] = ["", "9 of 10"];
const MIXTURES: [&str; 4] = ["", "3 parts", "100 parts", "small parts"];

/// All combinations; a mixture has an order of its own.
fn every() -> Vec<Case> {
    let mut cases = Vec::new();
    for mixture in MIXTURES {
        for order in &ORDERS[..if mixture.is_empty() { ORDERS.len() } else { 1 }] {
            for policy in POLICIES {
                for [echo, batch_echo] in ECHOES {
                    cases.extend(
                        FILTERS.map(|filter| [*order, policy, echo, batch_echo, filter, mixture]),
                    );
                }
            }
        }
    }
    cases
}

/// Parts with their weights: a small, a middling and a large one; many alike; two whose records come thousands of
/// times an epoch and one that hardly comes.
fn parts(mixture: &str, records: u64) -> Option<Vec<Part>> {
    let (ends, weights) = match mixture {
        "3 parts" => (
            vec![records / 100, records / 2, records],
            vec![0.2, 0.3, 0.5],
        ),
        "100 parts" => (
            (1..=100).map(|end| records / 100 * end).collect(),
            vec![1.0; 100],
        ),
        "small parts" => (vec![10, 1000, records], vec![0.2, 0.3, 0.5]),
        _ => return None,
    };
    let starts = std::iter::once(0).chain(ends.clone());
    let parts = starts.zip(ends).zip(weights);
    Some(
        parts
            .map(|((start, end), weight)| Part {
                ids: start..end,
                weight,
            })
            .collect(),
    )
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let records: u64 = arguments.next().map_or(100_000_000, |text| {
        text.parse().expect("a number of records")
    });
    let asked = arguments.next().unwrap_or_default();
    let mut cases = match asked.as_str() {
        "" => CASES.to_vec(),
        _ => every(),
    };
    if !["", "every"].contains(&asked.as_str()) {
        cases.retain(|case| case.join(",") == asked);
    }
    println!(
        "order,buckets,echo,batch_echo,filter,mixture,records,batch,plan_s,seek_middle_s,seek_last_s,\
         seek_middle_cpu_s,seek_last_cpu_s,walk_cpu_us_a_step,memory_bytes"
    );
    for case in cases {
        let [order, policy, echo, batch_echo, filter, mixture] = case;
        let order: Order = order.parse().expect("a known order");
        let mut spec = StreamSpec::new(order, 32, 7);
        spec.echo = echo.parse().expect("an echo");
        spec.batch_echo = batch_echo.parse().expect("an echo");
        spec.buckets = (!policy.is_empty()).then(|| policy.parse().expect("a known policy"));
        spec.mixture = parts(mixture, records);
        spec.epoch_examples = spec.mixture.is_some().then_some(records);
        let keeps = |id: u64| !mix(id ^ 0xF1).is_multiple_of(10);
        let selection = (!filter.is_empty()).then(|| Selection::new(records, keeps));
        let units = match order {
            Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } => {
                Some(pelton_plan::Units::fixed(records, 88, unit_bytes))
            }
            _ => None,
        };
        let began = Instant::now();
        let stream = StreamPlan::new(records, &spec, selection, units, Some(&length_of));
        let stream = stream.expect("a sound stream");
        let made = began.elapsed().as_secs_f64();
        let [middle, last, middle_cpu, last_cpu, walk] = times(&stream);
        println!(
            "{},{records},32,{made:.3},{middle:.3},{last:.3},{middle_cpu:.3},{last_cpu:.3},{:.2},{}",
            case.map(|text| text.replace(',', " ")).join(","),
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
