//! A checkpoint: an accepted one gives a solver that can resume, or a net arrays of the stated sizes; a manifest
//! names only files inside its folder.
#![no_main]

mod edits;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use pelton_format::{Layout, RowTable, Rows, Slot};
use pelton_linear::{InnerPasses, Loss, OutOfCore, OutOfCoreOptions, Problem};
use pelton_run::{Checkpoint, Dtype, Manifest, Set};
use pelton_train::raw::{encode_checkpoint, restore_checkpoint};

const RECORDS: u64 = 7;
const DENSE: Layout = Layout::Dense { width: 5 };

/// State of rows between blocks: for sparse rows whether they are settled, for dense ones their quantised values.
#[derive(Clone, Copy)]
enum Kept {
    Settled,
    Codes,
}

fn rows(kept: Kept, ids: &[u64]) -> Rows {
    if let Kept::Codes = kept {
        let mut rows = Rows::new(DENSE);
        for id in ids {
            let x = *id as f32;
            rows.push_dense(*id as u32 % 3, &[x, 1.0 - x, 0.5, x * x, -1.0]);
        }
        return rows;
    }
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

fn solver(kept: Kept) -> OutOfCore {
    let problem = Problem::new(Loss::Hinge, 1.0, 5, 3).expect("a good problem");
    let options = OutOfCoreOptions {
        inner: InnerPasses::Fixed(2),
        tighten: None,
        skip: matches!(kept, Kept::Settled),
        coded_rows: if let Kept::Codes = kept { 4 } else { 0 },
        snapshots: true,
        held: false,
        seed: 1,
    };
    OutOfCore::new(Arc::new(problem), RECORDS, options)
}

fn block(kept: Kept, ids: std::ops::Range<u64>) -> RowTable {
    let ids: Vec<u64> = ids.collect();
    let slots = (0..ids.len() as u32).map(|row| Slot { segment: 0, row });
    RowTable::from_parts(vec![rows(kept, &ids)], slots.collect(), ids)
}

fn train(kept: Kept, solver: &mut OutOfCore, epoch: u64) {
    if solver.begin_epoch(epoch, true).is_err() {
        return;
    }
    for step in 0..2 {
        let ids = if step == 0 { 0..4 } else { 4..RECORDS };
        if solver.train(&block(kept, ids), step).is_err() {
            return;
        }
    }
}

fn good(kept: Kept) -> &'static [u8] {
    static GOOD: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
    GOOD[kept as usize].get_or_init(|| {
        let mut solver = solver(kept);
        train(kept, &mut solver, 0);
        solver.end_epoch();
        train(kept, &mut solver, 1);
        encode_checkpoint(&solver)
    })
}

/// The part of a checkpoint that a net uses.
fn arrays(file: &[u8]) {
    let Ok(checkpoint) = Checkpoint::parse(file, Path::new("checkpoint")) else {
        return;
    };
    for (name, shape) in checkpoint.names() {
        if let Ok(values) = checkpoint.required::<f32>(&name, Dtype::F32) {
            assert_eq!(values.len(), shape.iter().product::<usize>());
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::parse(bytes, Path::new("run"), Set::Model) {
        let paths = manifest.files().keys().map(|name| manifest.path(name));
        paths.for_each(|path| assert!(path.starts_with("run") && !path.ends_with("..")));
    }
    for kept in [Kept::Settled, Kept::Codes] {
        for file in [bytes, &edits::edited(good(kept), bytes)] {
            arrays(file);
            let mut solver = solver(kept);
            if restore_checkpoint(file, &mut solver).is_ok() {
                solver.end_epoch();
                let epoch = solver.epoch().saturating_add(1);
                train(kept, &mut solver, epoch);
            }
        }
    }
});
