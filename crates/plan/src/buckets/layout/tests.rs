//! Boundaries by hand, exact figures, and RL* against all orders of small epochs.

use std::collections::HashSet;

use super::*;
use crate::batching::{Cuts, Last};

fn layout(policy: &str, batch: u64, lengths: &[u32]) -> BucketLayout {
    let histogram = LengthHistogram::new(lengths.iter().copied());
    BucketLayout::new(&policy.parse().unwrap(), batch, &histogram).unwrap()
}

fn check_ends(policy: &str, batch: u64, lengths: &[u32], expected: &[u32]) {
    let layout = layout(policy, batch, lengths);
    let ends: Vec<u32> = layout
        .buckets()
        .iter()
        .map(|bucket| bucket.longest)
        .collect();
    assert_eq!(ends, expected, "{policy}");
    let held: u64 = layout.buckets().iter().map(|bucket| bucket.sentences).sum();
    assert_eq!(held, lengths.len() as u64);
    assert_eq!(layout.sentences(), held);
    for &length in lengths {
        let bucket = layout.bucket_of(length);
        assert!(length <= ends[bucket] && (bucket == 0 || length > ends[bucket - 1]));
    }
}

const LENGTHS: [u32; 10] = [1, 1, 2, 3, 3, 5, 5, 5, 9, 12];

#[test]
fn boundaries_by_hand() {
    check_ends("none", 2, &LENGTHS, &[12]);
    check_ends("static:3,8,20", 2, &LENGTHS, &[3, 8, 20]);
    // The last bucket stretches; a bucket without sentences is left out.
    check_ends("static:3,8", 2, &LENGTHS, &[3, 12]);
    check_ends("static:3,4,12", 2, &LENGTHS, &[3, 12]);
    check_ends("auto", 2, &LENGTHS, &[1, 3, 5, 12]);
    check_ends("auto", 4, &LENGTHS, &[3, 12]);
    check_ends("auto", 100, &LENGTHS, &[12]);
    // 1: 10 sentences a batch, 2: 5, 3: 3, 5: 2, 9: 1; 12 exceeds a batch.
    check_ends("tokens:10", 1, &LENGTHS, &[3, 5, 9, 12]);
    check_ends("optimal:2", 1, &LENGTHS, &[5, 12]);
    for policy in ["none", "static:4", "auto", "optimal:3", "tokens:7"] {
        check_ends(policy, 3, &[], &[]);
        check_ends(
            policy,
            3,
            &[0, 0],
            &[if policy == "static:4" { 4 } else { 0 }],
        );
    }
}

#[test]
fn sentences_beyond_the_last_boundary_are_counted() {
    assert_eq!(layout("static:5,8", 2, &LENGTHS).stretched(), 2);
    assert_eq!(layout("static:5,12", 2, &LENGTHS).stretched(), 0);
    assert_eq!(layout("auto", 2, &LENGTHS).stretched(), 0);
}

#[test]
fn padding_by_hand() {
    let tokens: u32 = LENGTHS.iter().sum();
    let check = |policy, cells: u32| {
        let expected = f64::from(cells - tokens) / f64::from(cells);
        assert_eq!(
            layout(policy, 2, &LENGTHS).padded_fraction(),
            expected,
            "{policy}"
        );
    };
    check("none", 120);
    check("static:3,8", 5 * 3 + 5 * 12);
    check("auto", 2 + 3 * 3 + 3 * 5 + 2 * 12);
    // Alone, neither 9 nor 12 is padded.
    check("tokens:8", 5 * 3 + 3 * 5 + 9 + 12);
    check("optimal:100", tokens);
    assert_eq!(layout("none", 2, &[]).padded_fraction(), 0.0);
    assert_eq!(layout("none", 2, &[0, 0]).padded_fraction(), 0.0);
}

#[test]
fn token_batches_stay_within_their_limit() {
    for max in 1..40 {
        let layout = layout(&format!("tokens:{max}"), 1, &LENGTHS);
        for bucket in layout.buckets() {
            let cells = bucket.capacity * u64::from(bucket.longest);
            assert!(if bucket.alone {
                bucket.capacity == 1
            } else {
                cells <= max
            });
        }
        let alone = layout.buckets().iter().filter(|bucket| bucket.alone);
        let longer = LENGTHS
            .iter()
            .filter(|&&length| u64::from(length) > max)
            .count();
        assert_eq!(
            alone.map(|bucket| bucket.sentences).sum::<u64>(),
            longer as u64
        );
    }
}

/// Appends every order of `rest` after `made` to `all`.
fn orders(rest: &[usize], made: &[usize], all: &mut Vec<Vec<usize>>) {
    if rest.is_empty() {
        all.push(made.to_vec());
    }
    for &next in rest {
        let others: Vec<usize> = rest
            .iter()
            .copied()
            .filter(|&other| other != next)
            .collect();
        let mut longer = made.to_vec();
        longer.push(next);
        orders(&others, &longer, all);
    }
}

fn all_orders(things: usize) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    orders(&(0..things).collect::<Vec<_>>(), &[], &mut all);
    all
}

/// Batches as queues fill.
fn emitted(layout: &BucketLayout, lengths: &[u32], order: &[usize], last: Last) -> Vec<usize> {
    let runs = |bucket: &Bucket| Cuts::runs(bucket.sentences, bucket.capacity, last);
    let cuts: Vec<Cuts> = layout.buckets().iter().map(runs).collect();
    let mut queues = vec![Vec::new(); cuts.len()];
    let mut taken = vec![0; cuts.len()];
    let mut all = Vec::new();
    for &id in order {
        let bucket = layout.bucket_of(lengths[id]);
        queues[bucket].push(id);
        taken[bucket] += 1;
        let batches = cuts[bucket].steps_before(taken[bucket]);
        if cuts[bucket].start(batches) == taken[bucket] {
            all.append(&mut queues[bucket]);
        }
    }
    all
}

#[test]
fn reachable_orders_are_counted_exactly() {
    for (policy, batch, lengths) in [
        ("none", 2, vec![1, 2, 3, 4, 5]),
        ("static:1,2", 2, vec![1, 1, 1, 2, 2, 2]),
        ("static:1,2", 2, vec![1, 1, 1, 1, 2, 2, 2]),
        ("static:1,2,3", 1, vec![1, 1, 2, 2, 3, 3]),
        ("static:1,2,3", 2, vec![1, 2, 2, 3, 3, 3]),
        ("static:1,2,3", 5, vec![1, 2, 2, 3, 3, 3]),
        ("tokens:4", 1, vec![1, 1, 1, 1, 2, 2, 5]),
    ] {
        let layout = layout(policy, batch, &lengths);
        for last in [Last::Even, Last::Short] {
            let reached: HashSet<Vec<usize>> = all_orders(lengths.len())
                .iter()
                .map(|order| emitted(&layout, &lengths, order, last))
                .collect();
            let expected = (reached.len() as f64).ln() / ln_factorial(lengths.len() as f64);
            assert!(
                (layout.rl_exact() - expected).abs() < 1e-12,
                "{policy}: {}",
                reached.len()
            );
        }
    }
    assert_eq!(layout("none", 2, &[7]).rl_exact(), 1.0);
    assert_eq!(layout("none", 2, &[]).rl_exact(), 1.0);
}

fn check_refused(policy: &BucketPolicy, remedy: &str) {
    let histogram = LengthHistogram::new(LENGTHS);
    let message = BucketLayout::new(policy, 2, &histogram)
        .unwrap_err()
        .to_string();
    assert!(message.contains(remedy), "{message}");
}

#[test]
fn what_has_no_buckets_is_refused_with_a_remedy() {
    check_refused(&"pack:64".parse().unwrap(), "use none");
    check_refused(&BucketPolicy::Static(vec![]), "give at least one");
    check_refused(&BucketPolicy::Static(vec![3, 3]), "must increase");
    check_refused(&BucketPolicy::Optimal { buckets: 0 }, "at least 1");
    check_refused(&BucketPolicy::Tokens { max: 0 }, "at least 1");
    let many = LengthHistogram::new(0..70_000);
    let error = BucketLayout::new(&BucketPolicy::Auto, 1, &many).unwrap_err();
    assert!(error.to_string().contains("use optimal:65536"), "{error}");
    let error = BucketLayout::new(&BucketPolicy::Auto, 0, &many).unwrap_err();
    assert_eq!(error, PlanError::EmptyBatch);
}
