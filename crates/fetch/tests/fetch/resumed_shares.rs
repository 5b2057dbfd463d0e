//! A run resumed with another number of ranks consumes exactly the remaining examples.
//!
//! Every id that any rank hands out is recorded with its epoch and step: what four ranks took before a
//! checkpoint and three after it are together the plan, each id once. Row counts alone would not show a record taken
//! twice from one left out.

use std::sync::Arc;

use pelton_fetch::{Access, Fetch, FetchOptions, Share};
use pelton_format::{Dataset, OpenOptions, Row};
use pelton_plan::{Batching, Catalog, Order, Place, Plan, PlanSpec, Units};
use proptest::prelude::*;

const EPOCHS: u64 = 3;

/// LIBSVM text; row `id` has the value `id + 1` after `id % 20` other features.
fn uneven_rows(folder: &tempfile::TempDir, records: u64) -> Arc<Dataset> {
    let mut text = String::new();
    for id in 0..records {
        text += if id % 2 == 0 { "+1" } else { "-1" };
        for feature in 0..id % 20 {
            text += &format!(" {}:0.25", feature + 1);
        }
        text += &format!(" {}:{}\n", id % 20 + 1, id + 1);
    }
    let path = folder.path().join("rows.libsvm");
    std::fs::write(&path, text).unwrap();
    Arc::new(Dataset::open(&[path], &OpenOptions::default()).unwrap())
}

fn plan_of(dataset: &Dataset, order: &str, batching: Batching) -> Arc<Plan> {
    let order: Order = order.parse().unwrap();
    let over = match order {
        Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } => {
            let lengths = (0..dataset.records()).map(|id| dataset.locate(id).length);
            Catalog::of_units(Units::from_lengths(lengths, unit_bytes))
        }
        _ => Catalog::new(dataset.records()),
    };
    Arc::new(Plan::new(&PlanSpec::new(order, batching, 7), over).unwrap())
}

/// The rank that takes a slot: that of a run of neighbours, or the one that holds the record.
#[derive(Clone, Copy, Debug)]
enum Division {
    Runs,
    Near,
}

impl Division {
    fn share(self, rank: u32, ranks: u32) -> Share {
        match self {
            Division::Runs => Share::new(rank, ranks),
            // No rank holds one record in five.
            Division::Near => Share::new(rank, ranks).near(Arc::new(move |epoch, id| {
                let stripe = (id / 7 + epoch) as u32;
                if id % 5 == 0 {
                    u32::MAX
                } else {
                    stripe % ranks
                }
            })),
        }
    }
}

/// (epoch, step, id) of every example handed out.
type Taken = Vec<(u64, u64, u64)>;

/// Consumes `steps` batches from `start` on, or all there are, with `ranks` feeds; returns the records of each rank,
/// and the common end.
fn consume(
    dataset: &Arc<Dataset>,
    plan: &Arc<Plan>,
    access: Access,
    division: Division,
    ranks: u32,
    start: Place,
    steps: usize,
) -> (Vec<Taken>, Place) {
    let mut stopped = None;
    let taken = (0..ranks).map(|rank| {
        let options = FetchOptions {
            access,
            start,
            end_epoch: Some(EPOCHS),
            share: Some(division.share(rank, ranks)),
            ..FetchOptions::with_memory(1 << 20)
        };
        let mut feed = Fetch::new(dataset.clone(), plan.clone(), &options).unwrap();
        let (mut taken, mut end) = (Taken::new(), start);
        for _ in 0..steps {
            let Some(batch) = feed.next_batch().unwrap() else {
                break;
            };
            for (row, &id) in batch.rows.ids().iter().enumerate() {
                let Row::Sparse { values, .. } = batch.rows.row(row) else {
                    panic!("text rows are sparse");
                };
                assert_eq!(values.last(), Some(&((id + 1) as f32)), "the row of {id}");
                taken.push((batch.epoch, batch.step, id));
            }
            end = batch.end;
        }
        assert_eq!(
            *stopped.get_or_insert(end),
            end,
            "rank {rank} stands elsewhere"
        );
        taken
    });
    let taken = taken.collect();
    (taken, stopped.unwrap())
}

fn planned(plan: &Plan) -> Taken {
    let mut all = Taken::new();
    for epoch in 0..EPOCHS {
        for step in 0..plan.steps(0) {
            let mut ids = Vec::new();
            ids.extend(plan.step_ids(epoch, step));
            all.extend(ids.into_iter().map(|id| (epoch, step, id)));
        }
    }
    all.sort_unstable();
    all
}

/// Four ranks take `before` batches, three take the rest.
fn check(records: u64, order: &str, batching: Batching, division: Division, before: f64) {
    let folder = tempfile::tempdir().unwrap();
    let dataset = uneven_rows(&folder, records);
    let plan = plan_of(&dataset, order, batching);
    let before = (before * (EPOCHS * plan.steps(0)) as f64) as usize;
    for access in [Access::Direct, Access::Window { gap_bytes: None }] {
        let run =
            |ranks, start, steps| consume(&dataset, &plan, access, division, ranks, start, steps);
        let (first, place) = run(4, Place::default(), before);
        let (rest, _) = run(3, place, usize::MAX);
        let mut taken: Taken = first.into_iter().chain(rest).flatten().collect();
        taken.sort_unstable();
        // Compared, not shown: a difference would be thousands of lines.
        let same = taken == planned(&plan);
        assert!(
            same,
            "{order}, {batching}, {division:?} by {access}, after {before} batches"
        );
    }
}

fn orders() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("full".to_string()),
        (1u64..3000).prop_map(|bytes| format!("page:{bytes}")),
        (1u64..8, 1u64..1000).prop_map(|(loads, bytes)| format!("opportunistic:{loads}:{bytes}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_four_ranks_leave_three_take(
        order in orders(),
        records in 100u64..700,
        batch in 1u64..90,
        near in any::<bool>(),
        before in 0.0f64..1.0,
    ) {
        let division = if near { Division::Near } else { Division::Runs };
        check(records, &order, Batching::Examples(batch), division, before);
    }
}

/// More ranks than examples in a batch, a last batch that is not full, and batches of near-equal size.
#[test]
fn odd_batches_are_divided_whole() {
    for division in [Division::Runs, Division::Near] {
        for order in ["full", "page:400", "opportunistic:3:500"] {
            for batching in [
                Batching::Examples(2),
                Batching::Examples(31),
                Batching::Batches(5),
            ] {
                check(240, order, batching, division, 0.4);
            }
        }
    }
}

/// The checks above must reject a rank that resumes one batch too early or too late.
#[test]
fn another_place_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = uneven_rows(&folder, 300);
    let plan = plan_of(&dataset, "full", Batching::Examples(20));
    let access = Access::Direct;
    let run =
        |ranks, start, steps| consume(&dataset, &plan, access, Division::Runs, ranks, start, steps);
    let (first, place) = run(4, Place::default(), 20);
    for step in [place.step - 1, place.step + 1] {
        let (rest, _) = run(3, Place { step, ..place }, usize::MAX);
        let mut taken: Taken = first.iter().cloned().chain(rest).flatten().collect();
        taken.sort_unstable();
        assert!(taken != planned(&plan));
    }
}
