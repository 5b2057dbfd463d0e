//! Pipelines that cannot be made.

use pelton_plan::{
    Batching, BucketPolicy, Catalog, Echo, Last, Order, Part, Plan, PlanSpec, Selection,
};

use crate::streams::length_of;

fn check_refused(change: impl FnOnce(&mut PlanSpec), says: &str) {
    let mut spec = PlanSpec::new(Order::Full, 8, 0);
    change(&mut spec);
    let mut over = Catalog::new(100);
    if !says.starts_with("bucket policy auto") {
        over = over.with_lengths(&length_of);
    }
    let refused = Plan::new(&spec, over);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains(says), "{message}");
}

#[test]
fn impossible_streams_are_refused_with_a_remedy() {
    let parts = |parts: &[(u64, u64, f64)]| {
        let part = |&(start, end, weight)| Part {
            ids: start..end,
            weight,
        };
        Some(parts.iter().map(part).collect::<Vec<Part>>())
    };
    let mixed = |of: &[(u64, u64, f64)], says: &str| {
        check_refused(|spec| spec.mixture = parts(of), says);
    };
    for weight in [-1.0, f64::NAN, f64::INFINITY] {
        mixed(
            &[(0, 9, 1.0), (9, 20, weight)],
            "part 1 of the mixture has the weight",
        );
    }
    mixed(&[], "at least one part a positive weight");
    mixed(&[(0, 9, 0.0)], "at least one part a positive weight");
    mixed(&[(0, 9, f64::MAX)], "weight 1.7976931348623157e308: give");
    mixed(
        &[(0, 9, 1.0), (9, 9, 1.0)],
        "part 1 of the mixture has a weight but no records",
    );
    mixed(&[(0, 101, 1.0)], "records 0..101, but there are 100");
    mixed(
        &[(0, 9, 1.0), (9, 19, 0.05)],
        "part 1 of the mixture gets less than one of the 19 examples",
    );
    #[allow(clippy::reversed_empty_ranges)]
    mixed(&[(9, 3, 1.0)], "records 9..3, but there are 100");
    check_refused(
        |spec| {
            spec.mixture = parts(&[(0, 9, 1.0)]);
            spec.epoch_examples = Some(1 << 60);
        },
        "give 9007199254740992 or fewer",
    );
    check_refused(
        |spec| {
            spec.mixture = parts(&[(0, 9, 1.0)]);
            spec.order = Order::Sequential;
        },
        "give `order` full",
    );
    check_refused(|spec| spec.epoch_examples = Some(7), "not 7 examples");
    let echo = |text: &str| text.parse::<Echo>().unwrap();
    check_refused(
        |spec| (spec.echo, spec.batch_echo) = (echo("2"), echo("1.5")),
        "examples are echoed 2 times and batches 1.5 times",
    );
    check_refused(
        |spec| spec.buckets = Some(BucketPolicy::Auto),
        "bucket policy auto needs",
    );
    check_refused(
        |spec| {
            spec.buckets = Some("pack:5".parse().unwrap());
            spec.batch_echo = echo("2");
        },
        "give rows of 20 tokens",
    );
    check_refused(
        |spec| {
            spec.buckets = Some("static:9".parse().unwrap());
            spec.last = Last::Drop;
        },
        "`last` drop cannot be used with buckets",
    );
    check_refused(
        |spec| spec.batching = Batching::Examples(0),
        "give `batch` 1 or more",
    );
    let other = Selection::new(99, |_| true);
    let spec = PlanSpec::new(Order::Full, 8, 0);
    let refused = Plan::new(&spec, Catalog::new(100).with_selection(Some(other))).unwrap_err();
    assert!(
        refused.to_string().contains("a selection from 99 records"),
        "{refused}"
    );
}
