//! Scratch version.
struct Instant(f64);
impl Instant {
    fn now() -> Instant {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Instant(t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9)
    }
    fn elapsed(&self) -> std::time::Duration {
        std::time::Duration::from_secs_f64(Instant::now().0 - self.0)
    }
}

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;

struct Numbers(u64);
impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

fn higgs(count: usize) -> (Rows, usize) {
    let mut n = Numbers(1);
    let planted: Vec<f64> = (0..28).map(|_| n.normal()).collect();
    let norm = planted.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut rows = Rows::new(Layout::Dense { width: 28 });
    for _ in 0..count {
        let x: Vec<f32> = (0..28).map(|_| n.normal() as f32).collect();
        let score: f64 = planted
            .iter()
            .zip(&x)
            .map(|(a, &b)| a * f64::from(b))
            .sum::<f64>()
            / norm;
        let y = score + 1.5 * n.normal() > 0.0;
        rows.push_dense(u32::from(!y), &x);
    }
    (rows, 28)
}

fn kdd(count: usize, features: usize) -> (Rows, usize) {
    let mut n = Numbers(2);
    let mut rows = Rows::new(Layout::Sparse);
    for _ in 0..count {
        let length = 20 + (n.next() % 20) as usize;
        let mut score = 0.0;
        let mut indices: Vec<u32> = Vec::new();
        for _ in 0..length {
            let rank = ((features as f64).powf(n.uniform()) - 1.0) as u64;
            // scattered over the index space
            let index = (u128::from(rank.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17))
                * features as u128
                >> 64) as u32;
            indices.push(index);
            score += Numbers(rank.wrapping_mul(77) + 5).normal();
        }
        indices.sort_unstable();
        indices.dedup();
        let value = (1.0 / (indices.len() as f64).sqrt()) as f32;
        let y = score / (length as f64).sqrt() + 0.5 * n.normal() > -1.0;
        rows.push_sparse(u32::from(!y), &indices, &vec![value; indices.len()]);
    }
    (rows, features)
}

fn write(rows: &Rows, features: usize, folder: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let bytes = |name: &str, b: &[u8]| std::fs::write(format!("{folder}/{name}"), b).unwrap();
    let ends: Vec<u64> = (0..rows.len()).map(|i| rows.span(i).end as u64).collect();
    let signs: Vec<f32> = (0..rows.len())
        .map(|i| if rows.label(i) == 0 { 1.0 } else { -1.0 })
        .collect();
    let indices: Vec<u32> = match rows.layout() {
        Layout::Dense { width } => (0..rows.values().len())
            .map(|i| (i % width) as u32)
            .collect(),
        Layout::Sparse => rows.indices().to_vec(),
    };
    bytes(
        "ends.u64",
        &ends
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect::<Vec<_>>(),
    );
    bytes(
        "indices.u32",
        &indices
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect::<Vec<_>>(),
    );
    bytes(
        "values.f32",
        &rows
            .values()
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect::<Vec<_>>(),
    );
    bytes(
        "signs.f32",
        &signs
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect::<Vec<_>>(),
    );
    bytes("features.txt", features.to_string().as_bytes());
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (rows, features) = match args[1].as_str() {
        "higgs" => higgs(500_000),
        _ => kdd(1_000_000, 30_000_000),
    };
    if args.len() > 2 {
        write(&rows, features, &args[2]);
    }
    let count = rows.len();
    let table = RowTable::from_rows(rows, (0..count as u64).collect());
    let problem = Problem::new(Loss::Hinge, 1.0, features, 2).unwrap();
    let list: Vec<u32> = std::env::var("M")
        .unwrap_or("1 2 3 4 6 8 12 16 24 100".into())
        .split(' ')
        .map(|x| x.parse().unwrap())
        .collect();
    for m in list {
        let mut weights = Weights::zeros(&problem);
        let mut duals = Duals::zeros(&problem, count);
        let mut scratch = Scratch::new(Simd::best());
        let inner = InnerPasses::Until {
            epsilon: 1e-3,
            at_most: m,
        };
        let start = Instant::now();
        let r = solve_block(
            &problem,
            &table,
            &mut weights,
            &mut duals,
            inner,
            1,
            &mut scratch,
        )
        .unwrap();
        let t = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let mut sum = LossSum::new(&problem);
        sum.add(&problem, &table, &weights, Simd::best()).unwrap();
        let c = Certificate {
            primal: sum.primal(&weights),
            dual: dual_value(&weights, &duals),
        };
        let te = start.elapsed().as_secs_f64();
        println!(
            "{m} {t:.3}s {:.1} ns/visit, eval {te:.3}, gap {:.2e} P {} acc {:.4} {r:?}",
            t * 1e9 / r.visits as f64,
            c.relative_gap(),
            c.primal,
            sum.accuracy()
        );
    }
}
