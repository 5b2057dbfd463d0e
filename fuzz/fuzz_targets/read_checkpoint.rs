//! A checkpoint: one that is accepted gives a solver that can go on. Checksums are not compared, so that
//! the checks behind them are reached.
#![no_main]

mod edits;

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use pelton_format::{Layout, RowTable, Rows, Slot};
use pelton_linear::{InnerPasses, Loss, OutOfCore, OutOfCoreOptions, Problem};
use pelton_train::raw::{encode_checkpoint, restore_checkpoint};

const RECORDS: u64 = 7;

fn rows(ids: &[u64]) -> Rows {
    let mut rows = Rows::new(Layout::Sparse);
    for id in ids {
        let pushed = rows.push_sparse_with(|indices, values| {
            indices.extend([*id as u32 % 4, 4]);
            values.extend([1.0, *id as f32 - 3.0]);
            Ok::<u32, ()>(*id as u32 % 3)
        });
        pushed.expect("a good row");
    }
    rows
}

fn solver() -> OutOfCore {
    let problem = Problem::new(Loss::Hinge, 1.0, 5, 3).expect("a good problem");
    let options = OutOfCoreOptions {
        inner: InnerPasses::Fixed(2),
        tighten_to: None,
        skip: true,
        cache_bytes: 4096,
        coded_rows: 0,
        snapshots: true,
        seed: 1,
    };
    OutOfCore::new(Arc::new(problem), RECORDS, Layout::Sparse, options)
}

fn block(ids: std::ops::Range<u64>) -> RowTable {
    let ids: Vec<u64> = ids.collect();
    let slots = (0..ids.len() as u32).map(|row| Slot { segment: 0, row });
    RowTable::from_parts(vec![rows(&ids)], slots.collect(), ids)
}

fn train(solver: &mut OutOfCore, epoch: u64) {
    if solver.begin_epoch(epoch, true).is_err() {
        return;
    }
    for step in 0..2 {
        let ids = if step == 0 { 0..4 } else { 4..RECORDS };
        if solver.train_rows(&mut block(ids), step).is_err() {
            return;
        }
    }
}

fn good() -> &'static [u8] {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    GOOD.get_or_init(|| {
        let mut solver = solver();
        train(&mut solver, 0);
        solver.end_epoch().expect("an epoch of every row");
        train(&mut solver, 1);
        encode_checkpoint(&solver)
    })
}

fuzz_target!(|bytes: &[u8]| {
    for file in [bytes, &edits::edited(good(), bytes)] {
        let mut solver = solver();
        if restore_checkpoint(file, &mut solver, RECORDS, rows).is_ok() {
            let _ = solver.end_epoch();
            let epoch = solver.epoch().saturating_add(1);
            train(&mut solver, epoch);
        }
    }
});
