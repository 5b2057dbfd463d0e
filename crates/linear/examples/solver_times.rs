//! Time of each solver to a gap of 1e-6 on dense rows in memory: the figures behind `modelled_costs` and `lbfgs_cost`.
//!
//! ```text
//! cargo run --release -p pelton-linear --example solver_times [ROWS COLUMNS] > times.csv
//! ```
//!
//! Columns follow one another with a correlation of 0.5. A line has the median of three runs: loss, rows, columns,
//! solver, milliseconds of all threads, passes or visits a row, gap, and milliseconds by the model.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;

const WANTED: f64 = 1e-6;
/// Time limit of coordinate descent, in seconds.
const MOST_SECONDS: f64 = 5.0;

fn main() -> Result<(), LinearError> {
    let arguments: Vec<usize> = std::env::args()
        .skip(1)
        .map(|argument| argument.parse().expect("a number of rows, then of columns"))
        .collect();
    let (counts, widths) = match arguments[..] {
        [count, width] => (vec![count], vec![width]),
        _ => (vec![2_000, 20_000, 100_000], vec![10, 50, 200, 500]),
    };
    println!("loss,rows,columns,solver,ms,passes,gap,modelled_ms");
    for loss in [Loss::Logistic, Loss::Squared] {
        for &count in &counts {
            for &width in &widths {
                compare(loss, count, width)?;
            }
        }
    }
    Ok(())
}

fn compare(loss: Loss, count: usize, width: usize) -> Result<(), LinearError> {
    let rows = rows(loss, count, width);
    let problem = Problem::new(loss, 1.0, width, 2)?.with_free_bias();
    let problem = Arc::new(problem);
    let simd = Simd::best();
    let newton = || Newton::new(Arc::clone(&problem), count, WANTED, simd);
    let lbfgs = || Lbfgs::new(Arc::clone(&problem), count, WANTED, simd);
    let (records, values) = (count as u64, width as f64);
    let (visit, newton_ns) = modelled_costs(&problem, records, values);
    let lbfgs_ns = lbfgs_cost(&problem, records, values);
    let by_descent = descent(&problem, &rows)?;
    let visits_ns = visit * (by_descent.1 * count) as f64;
    let models = [newton_ns, lbfgs_ns, visits_ns];
    let runs = [
        ("newton", median(|| by_passes(newton(), &rows))?),
        ("l-bfgs", median(|| by_passes(lbfgs(), &rows))?),
        ("coordinate-descent", by_descent),
    ];
    for ((solver, (seconds, passes, gap)), model) in runs.into_iter().zip(models) {
        println!(
            "{loss},{count},{width},{solver},{:.2},{passes},{gap:.1e},{:.2}",
            1e3 * seconds,
            1e-6 * model
        );
    }
    Ok(())
}

type Run = (f64, usize, f64);

fn median(mut run: impl FnMut() -> Result<Run, LinearError>) -> Result<Run, LinearError> {
    let mut runs = [run()?, run()?, run()?];
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(runs[1])
}

fn by_passes(mut solver: impl PassSolver, rows: &RowTable) -> Result<Run, LinearError> {
    let (began, never) = (cpu_seconds(), AtomicBool::new(false));
    let mut passes = 0;
    loop {
        passes += 1;
        solver.begin_pass();
        solver.add(rows, &never)?;
        let found = solver.end_pass(&mut alone::<LinearError>)?;
        if found.done || passes == 300 {
            let gap = found.certificate.relative_gap();
            return Ok((cpu_seconds() - began, passes, gap));
        }
    }
}

/// Coordinate descent in f32, then in f64 once f32 makes no more progress; does not time its certificates.
fn descent(problem: &Problem, rows: &RowTable) -> Result<Run, LinearError> {
    let options = OutOfCoreOptions {
        inner: InnerPasses::Fixed(10),
        tighten: None,
        skip: false,
        coded_rows: 0,
        snapshots: false,
        held: true,
        seed: 1,
    };
    let mut solver = OutOfCore::new(Arc::new(problem.clone()), rows.len() as u64, options);
    let (mut seconds, mut visits, mut gap) = (0.0, 0, f64::INFINITY);
    for epoch in 0.. {
        let began = cpu_seconds();
        solver.begin_epoch(epoch, false)?;
        solver.train(rows, 0)?;
        visits += solver.end_epoch().visits;
        seconds += cpu_seconds() - began;
        let before = gap;
        gap = solver.certify(rows)?.0.relative_gap();
        if gap <= WANTED || seconds > MOST_SECONDS || gap > 0.9 * before {
            break;
        }
    }
    Ok((seconds, visits as usize / rows.len(), gap))
}

/// Of all threads.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Random numbers: SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal.
    fn normal(&mut self) -> f64 {
        (0..6).map(|_| self.uniform()).sum::<f64>() * std::f64::consts::SQRT_2 - 3.0 * 2_f64.sqrt()
    }
}

fn rows(loss: Loss, count: usize, width: usize) -> RowTable {
    let mut numbers = Numbers(7);
    let planted: Vec<f64> = (0..width).map(|_| numbers.normal()).collect();
    let norm = planted.iter().map(|w| w * w).sum::<f64>().sqrt();
    let mut rows = Rows::new(Layout::Dense { width });
    let mut row = vec![0.0; width];
    for _ in 0..count {
        let mut before = numbers.normal();
        for x in &mut row {
            before = 0.5 * before + 0.75_f64.sqrt() * numbers.normal();
            *x = before as f32;
        }
        let score: f64 = planted
            .iter()
            .zip(&row)
            .map(|(w, &x)| w * f64::from(x))
            .sum();
        let target = (score / norm + numbers.normal()) as f32;
        let label = if loss.has_real_targets() {
            target.to_bits()
        } else {
            u32::from(target > 0.3)
        };
        rows.push_dense(label, &row);
    }
    RowTable::from_rows(rows, (0..count as u64).collect())
}
