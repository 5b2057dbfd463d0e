//! A loader that is refused for its memory names a budget that holds it, and a window of the echo that fits into the
//! budget it was given: neither is one byte or one example off.

use std::sync::Arc;

use crate::fixtures::open;
use pelton_feed::{EchoPoint, FeedError, Loader, LoaderOptions, Stages};
use pelton_fetch::FetchError;
use pelton_format::Dataset;
use pelton_plan::{Catalog, Order, Plan, PlanSpec};

fn lines(folder: &std::path::Path, records: usize) -> Arc<Dataset> {
    let line = |id: usize| format!("id {id} {}\n", "word ".repeat(id * 7 % 13));
    let path = folder.join("lines.txt");
    std::fs::write(&path, (0..records).map(line).collect::<String>()).unwrap();
    open(&[path])
}

fn stream(dataset: &Dataset, echo: &str, batch_echo: &str) -> Arc<Plan> {
    let spec = PlanSpec {
        echo: echo.parse().unwrap(),
        batch_echo: batch_echo.parse().unwrap(),
        ..PlanSpec::new(Order::Full, 16, 7)
    };
    Arc::new(Plan::new(&spec, Catalog::new(dataset.records())).unwrap())
}

/// The error of a loader with too small a budget; `None` for one that begins.
fn refusal(
    dataset: &Arc<Dataset>,
    stream: &Arc<Plan>,
    options: &LoaderOptions,
) -> Option<FeedError> {
    let (dataset, stream) = (Arc::clone(dataset), Arc::clone(stream));
    let error = Loader::new(dataset, stream, Stages::default(), options).err()?;
    assert!(
        matches!(error, FeedError::Fetch(FetchError::BudgetTooSmall { .. })),
        "{error}"
    );
    Some(error)
}

#[test]
fn the_budget_that_is_named_is_the_least() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 20_000);
    for (echo, batch_echo) in [("1", "1"), ("2:4000", "1"), ("1", "3:20")] {
        let stream = stream(&dataset, echo, batch_echo);
        for (memory_bytes, world_size) in [(1, 1), (100_000, 1), (200_000, 2)] {
            let options = |memory_bytes| LoaderOptions {
                world_size,
                ..LoaderOptions::with_memory(memory_bytes)
            };
            let error = refusal(&dataset, &stream, &options(memory_bytes)).unwrap();
            let FeedError::Fetch(FetchError::BudgetTooSmall { needed, budget, .. }) = error else {
                unreachable!();
            };
            assert_eq!(budget, memory_bytes);
            assert!(refusal(&dataset, &stream, &options(needed)).is_none());
            let less = refusal(&dataset, &stream, &options(needed - 1));
            assert!(less.is_some(), "{needed} is not the least");
        }
    }
}

#[test]
fn the_window_that_is_named_is_the_largest() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 20_000);
    let options = |echo_point| LoaderOptions {
        echo_point,
        ..LoaderOptions::with_memory(900_000)
    };
    for (name, factor, echo_point) in [
        ("read", "2", EchoPoint::Read),
        ("before", "2", EchoPoint::BeforeAugment),
        ("after", "1.5", EchoPoint::AfterAugment),
        ("batch", "3", EchoPoint::BeforeAugment),
    ] {
        let of_window = |window: u32| {
            let echo = format!("{factor}:{window}");
            match name {
                "batch" => stream(&dataset, "1", &echo),
                _ => stream(&dataset, &echo, "1"),
            }
        };
        let options = options(echo_point);
        let error = refusal(&dataset, &of_window(9_000), &options).unwrap();
        let text = error.to_string();
        let flag = format!("examples held for echo (`echo` {name}:{factor}:");
        let (_, rest) = text.split_once(&flag).unwrap_or_else(|| panic!("{text}"));
        let (window, _) = rest.split_once(" would fit)").unwrap();
        let window: u32 = window.parse().unwrap();
        assert!(
            refusal(&dataset, &of_window(window), &options).is_none(),
            "{text}"
        );
        assert!(
            refusal(&dataset, &of_window(window + 1), &options).is_some(),
            "{text}"
        );
    }
    // If no window is small enough, the error names none.
    let stream = stream(&dataset, "2:9000", "1");
    let error = refusal(&dataset, &stream, &LoaderOptions::with_memory(50_000)).unwrap();
    let text = error.to_string();
    assert!(text.contains("held for echo; raise `memory`"), "{text}");
}
