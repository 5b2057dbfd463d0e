//! Experiments.
use std::sync::Arc;
use std::time::Instant;
use pelton_comm::{run_ranks, CommError, Reduction};
use pelton_linear::*;
use pelton_format::{Dataset, OpenOptions, RowTable, Slot};
use pelton_feed::{Feed, FeedOptions, Access};
use pelton_plan::{Plan, Order, Batching, local_slots};

#[derive(Debug)]
struct E(String);
impl std::fmt::Display for E { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(&self.0) } }
impl From<CommError> for E { fn from(e: CommError) -> E { E(e.to_string()) } }
impl From<LinearError> for E { fn from(e: LinearError) -> E { E(e.to_string()) } }

fn load(dataset: &Arc<Dataset>) -> RowTable {
    let options = FeedOptions { access: Access::Window { gap_bytes: None }, end_epoch: Some(1), epoch_barrier: true, ..FeedOptions::with_memory(1 << 30) };
    let plan = Plan::new(dataset.records(), Order::Sequential, Batching::Examples(256), 0).unwrap();
    let mut feed = Feed::new(Arc::clone(dataset), Arc::new(plan), &options).unwrap();
    let (mut segments, mut slots, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(batch) = feed.next_batch().unwrap() {
        let base = segments.len() as u32;
        let rows = std::mem::take(&mut batch.rows);
        ids.extend_from_slice(rows.ids());
        slots.extend(rows.slots().iter().map(|slot| Slot { segment: slot.segment + base, row: slot.row }));
        segments.extend(rows.into_segments().unwrap());
    }
    RowTable::from_parts(segments, slots, ids)
}

fn env(name: &str, or: f32) -> f32 { std::env::var(name).map_or(or, |v| v.parse().unwrap()) }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let path = &a[1];
    let loss: Loss = a[2].parse().unwrap();
    let ranks: usize = a[3].parse().unwrap();
    let round: usize = a[4].parse().unwrap();
    let sigma: f32 = a[5].parse().unwrap();
    let margin: f32 = a[6].parse().unwrap();
    let memory: f32 = a[7].parse().unwrap();
    let epochs: u64 = a[8].parse().unwrap();
    let dataset = Arc::new(Dataset::open(&[path.into()], &OpenOptions::default()).unwrap());
    let all = load(&dataset);
    let n = all.len() as u64;
    let problem = Problem::new(loss, 1.0, dataset.features() as usize, dataset.labels().len()).unwrap();
    // stripes
    let stripe = (n / 32 / ranks as u64).clamp(1, 2048) * ranks as u64;
    let shares: Vec<RowTable> = (0..ranks).map(|r| {
        let mut rows = Vec::new();
        let mut at = 0;
        while at < n { let len = stripe.min(n - at); let s = local_slots(len, r as u32, ranks as u32); rows.extend(at + s.start..at + s.end); at += len; }
        all.select(&rows)
    }).collect();
    let out = run_ranks(ranks, |comm| {
        let mut weights = Weights::zeros(&problem);
        let mut duals = Duals::zeros(&problem, n as usize);
        let mut scratch = Scratch::new(Simd::best());
        let mut spent = 0.0;
        let mut waited = 0.0;
        for epoch in 0..epochs {
            let epsilon = (0.1f32 * 0.5f32.powi(epoch as i32)).max(1e-6);
            let mut wait = 0.0;
            let mut exchange = |x: Exchange<'_>| { let t = Instant::now(); let r = match x {
                Exchange::Sum(v) => comm.all_reduce(v, Reduction::Sum),
                Exchange::SumWide(v) => comm.all_reduce(v, Reduction::Sum),
                Exchange::Largest(v) => comm.all_reduce(v, Reduction::Max),
                Exchange::Gather(v, to) => comm.all_gather_ragged(v).map(|all| *to = all),
                Exchange::GatherBits(v, to) => comm.all_gather_ragged(v).map(|all| *to = all),
            }; wait += t.elapsed().as_secs_f64(); r.map_err(E::from) };
            let inner = if std::env::var("FIXED").is_ok() { InnerPasses::Fixed(std::env::var("FIXED").unwrap().parse().unwrap()) } else { InnerPasses::Until { epsilon, at_most: 200 } };
            let mut center: Vec<f32> = Vec::new();
            let began = Instant::now();
            let mine = &shares[comm.rank()];
            let (report, stats) = if ranks == 1 && round == 0 {
                (solve_block(&problem, mine, &mut weights, &mut duals, inner, epoch, &mut scratch)?, [0.0; 4])
            } else {
                let mut peers = Peers { rank: comm.rank(), ranks, exchange: &mut exchange };
                let r = solve_share(&problem, mine, &mut weights, &mut duals, inner, epoch, &mut scratch, &mut peers)?;
                center = r.centre.vector(0).to_vec();
                if comm.rank() == 0 { } (r.report, [r.rounds[0] as f64, r.rounds[1] as f64, 0.0, 0.0])
            };
            spent += began.elapsed().as_secs_f64();
            waited += wait;
            let cw = if center.is_empty() { weights.clone() } else { Weights::from_vectors(problem.features(), None, vec![center.clone()]) };
            let mut closs = LossSum::new(&problem); closs.add(&problem, mine, &cw, Simd::best())?; comm.all_reduce(&mut closs.loss, Reduction::Sum)?;
            let mut losses = LossSum::new(&problem);
            losses.add(&problem, mine, &weights, Simd::best())?;
            let mut l = losses.loss.clone();
            comm.all_reduce(&mut l, Reduction::Sum)?;
            let vis = [report.visits];
            losses.loss = l;
            let c = Certificate { primal: losses.primal(&weights), dual: dual_value(&weights, &duals) };
            if comm.rank() == 0 {
                println!("epoch {epoch} passes {} visits/n {:.2} D {:.6e} gap {:.2e} cgap {:.2e} viol {:.1e} t {spent:.3} wait {waited:.3} rounds {} damped {} rho {:.2} sigma {:.2}", report.passes, vis[0] as f64 / n as f64, c.dual, c.relative_gap(), (closs.primal(&cw) - c.dual) / c.dual, report.violation, stats[0], stats[1], stats[2] / stats[0], stats[3] / stats[0]);
            }
            let mut g = [c.relative_gap().min((closs.primal(&cw) - c.dual) / c.dual)];
            comm.all_reduce(&mut g, Reduction::Max)?;
            if g[0] < 3e-4 { break; }
        }
        Ok::<_, E>(())
    });
    if let Err(e) = out { println!("{e}"); }
}
