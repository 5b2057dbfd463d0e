//! LIRS Tables 3 and 4 and Figures 9 and 10: block minimization with fixed and permuted blocks, LIRS
//! by row and by page, and a shuffle queue, on one scale of time: epochs.
//!
//! Rows lie in memory and each step's block is listed from the plan, so that every method trains on
//! exactly the blocks it would read; the objective is evaluated between epochs, outside the timed
//! region. What reading costs is added by `svm_time`.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pelton_linear::{
    Certificate, InnerPasses, LossSum, OutOfCore, OutOfCoreOptions, Simd, Weights,
};
use pelton_plan::{Batching, Order};
use serde_json::{Value, json};

use super::shapes::{Loaded, SHAPES, load_real, load_shape};
use super::svm_time::{self, Times};
use super::{ReproduceConfig, Reproduction, Row, interrupted, median};
use crate::error::TrainError;
use crate::event::{Event, Observer};
use crate::linear::plan_of;

/// Epochs that fixed block minimization runs (Table 3).
const EPOCHS: u64 = 30;

/// An order of training, by the names of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    FixedBmf,
    PermutedBmf,
    LirsRow,
    LirsPage,
    Queue,
}

impl Method {
    pub const ALL: [Method; 5] = [
        Method::FixedBmf,
        Method::PermutedBmf,
        Method::LirsRow,
        Method::LirsPage,
        Method::Queue,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Method::FixedBmf => "BMF, fixed blocks",
            Method::PermutedBmf => "BMF, permuted blocks",
            Method::LirsRow => "LIRS, rows",
            Method::LirsPage => "LIRS, 4 KiB pages",
            Method::Queue => "queue of one block, shuffled once",
        }
    }

    pub fn order(self, blocks: u64, records: u64) -> Order {
        match self {
            Method::FixedBmf => Order::Block {
                blocks,
                permute: false,
            },
            Method::PermutedBmf => Order::Block {
                blocks,
                permute: true,
            },
            Method::LirsRow => Order::Full,
            Method::LirsPage => Order::Page { unit_bytes: 4096 },
            Method::Queue => Order::Queue {
                examples: records.div_ceil(blocks),
                initial_shuffle: true,
            },
        }
    }
}

/// One run of a method: the state after each epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// Relative difference to the optimum after each epoch.
    pub differences: Vec<f64>,
    /// Seconds of computing in each epoch.
    pub compute_s: Vec<f64>,
    /// Test accuracy at the end, in percent.
    pub accuracy: f64,
}

impl Run {
    /// Epochs until the relative difference was at most `target`.
    pub fn epochs_to(&self, target: f64) -> Option<u64> {
        let reached = self.differences.iter().position(|&d| d <= target)?;
        Some(reached as u64 + 1)
    }

    fn best(&self) -> f64 {
        self.differences.iter().copied().fold(f64::MAX, f64::min)
    }
}

fn solver(loaded: &Loaded, inner: InnerPasses, seed: u64) -> OutOfCore {
    let options = OutOfCoreOptions {
        inner,
        skip: false,
        cache_bytes: 0,
        snapshots: false,
        seed,
    };
    let problem = Arc::new(loaded.problem.clone());
    OutOfCore::new(
        problem,
        loaded.dataset.records(),
        loaded.dataset.layout(),
        options,
    )
}

fn primal(loaded: &Loaded, weights: &Weights) -> Result<f64, TrainError> {
    let mut losses = LossSum::new(&loaded.problem);
    losses.add(&loaded.problem, &loaded.rows, weights, Simd::best())?;
    Ok(losses.primal(weights))
}

/// The optimum, to a relative gap of 1e-6 or as near as 300 sweeps over all rows come.
pub(super) fn optimum(loaded: &Loaded, interrupt: &AtomicBool) -> Result<Certificate, TrainError> {
    let inner = InnerPasses::Until {
        epsilon: 1e-5,
        at_most: 40,
    };
    let mut solver = solver(loaded, inner, 0);
    let mut rows = loaded.rows.clone();
    let mut best: Option<Certificate> = None;
    for epoch in 0..300 {
        if interrupt.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        solver.begin_epoch(epoch, true)?;
        solver.train_rows(&mut rows, 0)?;
        let certificate = Certificate {
            primal: primal(loaded, solver.weights())?,
            dual: solver.dual(),
        };
        let kept = best.get_or_insert(certificate);
        kept.primal = kept.primal.min(certificate.primal);
        kept.dual = kept.dual.max(certificate.dual);
        if kept.relative_gap() <= 1e-6 {
            break;
        }
    }
    Ok(best.expect("at least one epoch ran"))
}

/// Trains by `order`; ends after `epochs` or when the relative difference is at most `stop_at`.
pub(super) fn run(
    loaded: &Loaded,
    order: Order,
    inner: InnerPasses,
    seed: u64,
    epochs: u64,
    optimum: f64,
    stop_at: f64,
    interrupt: &AtomicBool,
) -> Result<Run, TrainError> {
    let plan = plan_of(
        &loaded.dataset,
        order,
        Batching::Batches(loaded.blocks),
        seed,
    )?;
    let mut solver = solver(loaded, inner, seed);
    let mut result = Run::default();
    let mut ids = Vec::new();
    for epoch in 0..epochs {
        let mut computing = 0.0;
        solver.begin_epoch(epoch, true)?;
        for step in 0..plan.steps() {
            if interrupt.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            ids.clear();
            plan.batch_ids(epoch, step, &mut ids);
            let mut block = loaded.rows.select(&ids);
            let began = Instant::now();
            solver.train_rows(&mut block, step)?;
            computing += began.elapsed().as_secs_f64();
        }
        let difference = (primal(loaded, solver.weights())? - optimum) / optimum;
        result.differences.push(difference);
        result.compute_s.push(computing);
        if difference <= stop_at {
            break;
        }
    }
    let evaluated = loaded.test.as_ref().unwrap_or(&loaded.rows);
    let mut losses = LossSum::new(&loaded.problem);
    losses.add(&loaded.problem, evaluated, solver.weights(), Simd::best())?;
    result.accuracy = 100.0 * losses.accuracy();
    Ok(result)
}

const INNER: [InnerPasses; 4] = [
    InnerPasses::Fixed(1),
    InnerPasses::Fixed(3),
    InnerPasses::Fixed(10),
    InnerPasses::Until {
        epsilon: 0.1,
        at_most: 200,
    },
];

/// Everything measured on one data set.
struct Sweep<'a> {
    config: &'a ReproduceConfig,
    loaded: &'a Loaded,
    optimum: f64,
    raw: &'a mut dyn Write,
    rows: Vec<Row>,
}

/// Tables 3 and 4, Figures 9 and 10.
pub(super) fn lirs_svm(
    config: &ReproduceConfig,
    interrupt: &AtomicBool,
    observer: Observer<'_>,
) -> Result<Reproduction, TrainError> {
    let path = config.out.join("lirs-svm-runs.csv");
    let failed = |error: std::io::Error| {
        TrainError::Config(format!("{}: cannot be written: {error}", path.display()))
    };
    let mut raw = std::fs::File::create(&path).map_err(failed)?;
    let heading = "data,rows,blocks,method,inner,seed,epoch,relative_difference,compute_s,accuracy";
    writeln!(raw, "{heading}").map_err(failed)?;
    let mut rows = Vec::new();
    let mut notes = vec![
        format!("relative differences refer to an optimum with a relative duality gap of 1e-6; raw runs in {}", path.display()),
        "HDD, SSD and Optane times are modelled from LIRS Table 2; compute times and this disk's are measured".to_string(),
    ];
    let mut sets = Vec::new();
    for shape in SHAPES {
        sets.push(load_shape(config, shape, observer)?);
    }
    if let Some(folder) = &config.real_data {
        sets.extend(load_real(folder, &config.out.join("data"), observer)?);
    }
    let total = sets.len() as u64;
    for (done, loaded) in sets.iter().enumerate() {
        observer(Event::Progress {
            what: &loaded.name,
            done: done as u64,
            total,
        });
        let optimum = optimum(loaded, interrupt)?;
        if optimum.relative_gap() > 1e-6 {
            notes.push(format!(
                "{}: the optimum is known to {:.1e} only",
                loaded.name,
                optimum.relative_gap()
            ));
        }
        let mut sweep = Sweep {
            config,
            loaded,
            optimum: optimum.primal,
            raw: &mut raw,
            rows: Vec::new(),
        };
        sweep.all(interrupt, observer)?;
        rows.extend(sweep.rows);
    }
    Ok(Reproduction {
        name: config.name.clone(),
        rows,
        notes,
    })
}

impl Sweep<'_> {
    fn all(&mut self, interrupt: &AtomicBool, observer: Observer<'_>) -> Result<(), TrainError> {
        for inner in INNER {
            let mut reference = f64::NAN;
            for method in Method::ALL {
                let mut runs = Vec::new();
                for seed in 0..self.config.seeds {
                    // The others stop where fixed blocks got at best.
                    let stop_at = if method == Method::FixedBmf {
                        0.0
                    } else {
                        reference
                    };
                    let records = self.loaded.dataset.records();
                    let run = run(
                        self.loaded,
                        method.order(self.loaded.blocks, records),
                        inner,
                        seed,
                        EPOCHS,
                        self.optimum,
                        stop_at,
                        interrupt,
                    )?;
                    self.write_raw(method, inner, seed, &run)?;
                    runs.push(run);
                }
                if method == Method::FixedBmf {
                    let mut best: Vec<f64> = runs.iter().map(Run::best).collect();
                    reference = median(&mut best);
                }
                self.table_3_and_4(method, inner, reference, &runs);
                if matches!(inner, InnerPasses::Until { .. }) {
                    self.figure_10(method, reference, &runs, observer)?;
                }
            }
        }
        Ok(())
    }

    fn write_raw(
        &mut self,
        method: Method,
        inner: InnerPasses,
        seed: u64,
        run: &Run,
    ) -> Result<(), TrainError> {
        let loaded = self.loaded;
        for (epoch, (difference, seconds)) in run.differences.iter().zip(&run.compute_s).enumerate()
        {
            let line = format!(
                "{},{},{},\"{}\",{inner},{seed},{},{difference:e},{seconds:.6},{:.4}",
                loaded.name,
                loaded.dataset.records(),
                loaded.blocks,
                method.name(),
                epoch + 1,
                run.accuracy
            );
            writeln!(self.raw, "{line}").map_err(|error| {
                TrainError::Config(format!("the raw runs cannot be written: {error}"))
            })?;
        }
        Ok(())
    }

    fn differs(&self) -> String {
        match self.loaded.shape {
            Some(shape) => format!(
                "generated data of the same shape, {} of {} rows; published inner passes are not stated",
                self.loaded.dataset.records(),
                shape.published_rows
            ),
            None => "a real data set that the paper does not use".to_string(),
        }
    }

    fn push(
        &mut self,
        table: &str,
        method: String,
        figure: &str,
        published: Value,
        measured: Value,
    ) {
        self.rows.push(Row {
            table: table.to_string(),
            data: self.loaded.name.clone(),
            method,
            figure: figure.to_string(),
            published,
            measured,
            differs: self.differs(),
        });
    }

    fn table_3_and_4(&mut self, method: Method, inner: InnerPasses, reference: f64, runs: &[Run]) {
        let case = format!("{}, inner {inner}", method.name());
        let lirs = matches!(method, Method::LirsRow | Method::LirsPage);
        let published = self.loaded.shape.map_or(Value::Null, |shape| match method {
            Method::FixedBmf => json!(EPOCHS),
            Method::LirsRow => json!(shape.published_epochs),
            _ => Value::Null,
        });
        let reached: Vec<f64> = runs
            .iter()
            .filter_map(|run| run.epochs_to(reference))
            .map(|epochs| epochs as f64)
            .collect();
        let measured = if method == Method::FixedBmf {
            json!(EPOCHS)
        } else if 2 * reached.len() > runs.len() {
            // Runs that did not get there within the epochs count as the slowest.
            let mut all = reached;
            all.resize(runs.len(), EPOCHS as f64 + 1.0);
            json!(median(&mut all))
        } else {
            json!(format!("over {EPOCHS}"))
        };
        self.push(
            "Table 3",
            case.clone(),
            "epochs to the best of 30 epochs of fixed BMF",
            published,
            measured,
        );
        let mut accuracy: Vec<f64> = runs.iter().map(|run| run.accuracy).collect();
        let published = self.loaded.shape.map_or(Value::Null, |shape| {
            json!(shape.published_accuracy[usize::from(lirs)])
        });
        let measured = json!(median(&mut accuracy));
        self.push(
            "Table 4",
            case.clone(),
            "accuracy in percent",
            published,
            measured,
        );
        let series: Vec<f64> = runs[0].differences.clone();
        self.push(
            "Figure 9",
            case,
            "relative difference by epoch, first seed",
            Value::Null,
            json!(series),
        );
    }

    fn figure_10(
        &mut self,
        method: Method,
        reference: f64,
        runs: &[Run],
        observer: Observer<'_>,
    ) -> Result<(), TrainError> {
        let mut epochs: Vec<f64> = runs
            .iter()
            .map(|run| run.epochs_to(reference).unwrap_or(EPOCHS) as f64)
            .collect();
        let epochs = if method == Method::FixedBmf {
            EPOCHS as f64
        } else {
            median(&mut epochs)
        };
        let mut compute: Vec<f64> = runs
            .iter()
            .map(|run| run.compute_s.iter().sum::<f64>() / run.compute_s.len() as f64)
            .collect();
        let compute_s = median(&mut compute);
        for (device, times) in svm_time::modelled(self.loaded, method, epochs, compute_s)? {
            self.push_times(method, &format!("{device}, modelled"), times);
        }
        let measured =
            svm_time::measured(self.config, self.loaded, method, epochs as u64, observer)?;
        for (device, times) in measured {
            self.push_times(method, &device, times);
        }
        Ok(())
    }

    fn push_times(&mut self, method: Method, device: &str, times: Times) {
        self.push(
            "Figure 10",
            format!("{}, {device}", method.name()),
            "seconds to the best of fixed BMF: total, preparing, loading, computing, overlap",
            Value::Null,
            json!(times),
        );
    }
}
