//! Files that shrink, grow or are rewritten while a feed reads them: on every access path and at any read, the feed
//! ends with an error that names the file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::fixtures::Watched;
use pelton_fetch::{Access, Fetch, FetchError, FetchOptions};
use pelton_format::{Dataset, OpenOptions};
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
use pelton_storage::RangeRead;

const RECORDS: u64 = 4_000;

fn shrink(file: &File) {
    file.set_len(file.metadata().unwrap().len() / 3).unwrap();
}

fn empty(file: &File) {
    file.set_len(0).unwrap();
}

fn grow(file: &File) {
    file.set_len(file.metadata().unwrap().len() + 1).unwrap();
}

/// As an editor that keeps the size does.
fn rewrite(file: &File) {
    let later = SystemTime::now() + Duration::from_secs(10);
    file.set_modified(later).unwrap();
}

fn text(path: &Path) {
    let features: String = (2..80).map(|index| format!(" {index}:0.5")).collect();
    let line = |id| format!("{} 1:{id}{features}\n", if id % 2 == 0 { 1 } else { -1 });
    std::fs::write(path, (0..RECORDS).map(line).collect::<String>()).unwrap();
}

/// Runs a feed over a file that changes at batch `at` of its reads, and returns its error; `None` if it reached the
/// end. The budget is so small that every path needs more than five batches.
fn run(access: Access, order: Order, change: fn(&File), at: u64) -> Option<FetchError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    text(&path);
    let dataset = Dataset::open(std::slice::from_ref(&path), &OpenOptions::default()).unwrap();
    let dataset = dataset.with_storage(|inner| {
        let path = path.clone();
        let watch = move |number, _: &[RangeRead<'_>]| {
            if number == at {
                change(&File::options().write(true).open(&path).unwrap());
            }
        };
        Arc::new(Watched::new(inner, Box::new(watch)))
    });
    let plan = Plan::new(
        &PlanSpec::new(order, Batching::Batches(10), 1),
        Catalog::new(RECORDS),
    )
    .unwrap();
    let options = FetchOptions {
        access,
        threads: 1,
        end_epoch: Some(3),
        scratch_dir: Some(folder.path().to_path_buf()),
        ..FetchOptions::with_memory(2 << 20)
    };
    let mut feed = Fetch::new(Arc::new(dataset), Arc::new(plan), &options).unwrap();
    let error = loop {
        match feed.next_batch() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("data: "), "{error}");
    Some(error)
}

#[test]
fn a_change_at_any_read_ends_the_feed() {
    let window = Access::Window { gap_bytes: None };
    let block = Order::Block {
        blocks: 10,
        permute: true,
    };
    let changes = [
        ("shrink", shrink as fn(&File)),
        ("empty", empty),
        ("grow", grow),
        ("rewrite", rewrite),
    ];
    for (access, order) in [
        (Access::Direct, Order::Full),
        (Access::Direct, block),
        (window, Order::Full),
        (window, Order::Sequential),
        (Access::Scatter, Order::Full),
        (Access::Scatter, block),
    ] {
        for (name, change) in changes {
            for at in [0, 1, 2, 4] {
                let case = format!("{access} {order} {name} at {at}");
                match run(access, order, change, at) {
                    Some(FetchError::Shrunk { .. }) if ["shrink", "empty"].contains(&name) => {}
                    Some(error) if error.to_string().contains("changed while it was read") => {}
                    Some(error) => panic!("{case}: {error}"),
                    None => panic!("{case}: it went unnoticed"),
                }
            }
        }
    }
}
