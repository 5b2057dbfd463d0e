//! The largest numbers by magnitude of many layers, exactly (Song et al., KDD 2020, section 3.3.2, Table 6).
//!
//! Selects the k largest of each layer; of equal magnitudes the first ones, and NaN counts as largest, so it
//! is noticed. All methods select the same. Cost for n numbers: `Sampled` reads them once, `Radix`
//! twice, `DivideAndConquer` partly sorts chunks, `Loop` partly sorts each layer as a whole.

use rayon::prelude::*;

use crate::simd::{self, Kernel, Simd};

/// Methods of selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopK {
    /// Layer by layer, each as a whole on one thread: the plain reference.
    Loop,
    /// The k largest of chunks, then of these; layer by layer.
    DivideAndConquer,
    /// The same, with the chunks of all layers in one go.
    Grouped,
    /// Counts of leading bits show which numbers can be among the largest; all layers at once.
    Radix,
    /// A sample gives a threshold slightly below the k-th largest; everything above it is collected, and if
    /// that is too little, the layer is selected by counts. All layers in one go.
    Sampled,
}

impl TopK {
    /// All, with their names.
    pub const ALL: [(&'static str, TopK); 5] = [
        ("loop", TopK::Loop),
        ("divide and conquer", TopK::DivideAndConquer),
        ("grouped", TopK::Grouped),
        ("radix", TopK::Radix),
        ("sampled", TopK::Sampled),
    ];
}

/// Numbers of a chunk.
const CHUNK: usize = 1 << 16;
/// Numbers that are looked at together before any is picked up.
const TOGETHER: usize = 32;
/// Leading bits of a magnitude in the histogram: the exponent and four more.
const COUNTED_BITS: u32 = 12;
/// Layers below this size are simply sorted.
const SHORT: usize = 4096;

/// A number's rank: the larger the earlier. Magnitude first, then the lower index.
fn rank(value: f32, index: usize) -> u64 {
    u64::from(magnitude(value)) << 32 | u64::from(!(index as u32))
}

#[inline(always)]
fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// The indices of the `k` largest of `ranks`, ascending.
fn largest(mut ranks: Vec<u64>, k: usize) -> Vec<u32> {
    if k < ranks.len() {
        if k > 0 {
            ranks.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
        }
        ranks.truncate(k);
    }
    let mut indices: Vec<u32> = ranks.into_iter().map(|rank| !(rank as u32)).collect();
    indices.sort_unstable();
    indices
}

fn ranks(layer: &[f32], from: usize) -> Vec<u64> {
    layer.iter().zip(from..).map(|(&x, i)| rank(x, i)).collect()
}

/// The k largest by magnitude of each layer, as indices in ascending order.
///
/// Panics if a layer has more than 2³² − 1 numbers.
pub fn top_k(layers: &[(&[f32], usize)], method: TopK) -> Vec<Vec<u32>> {
    assert!(
        layers
            .iter()
            .all(|(layer, _)| layer.len() < u32::MAX as usize),
        "indices are of 32 bits"
    );
    match method {
        TopK::Loop => layers
            .iter()
            .map(|&(x, k)| largest(ranks(x, 0), k))
            .collect(),
        TopK::DivideAndConquer => layers
            .iter()
            .flat_map(|layer| divide_and_conquer(std::slice::from_ref(layer)))
            .collect(),
        TopK::Grouped => divide_and_conquer(layers),
        TopK::Radix => radix(layers),
        TopK::Sampled => sampled(layers),
    }
}

/// Chunks of all layers: layer, and start of the chunk.
fn chunks(layers: &[(&[f32], usize)]) -> Vec<(usize, usize)> {
    let of_layer = |(at, (layer, _)): (usize, &(&[f32], usize))| {
        (0..layer.len()).step_by(CHUNK).map(move |from| (at, from))
    };
    layers.iter().enumerate().flat_map(of_layer).collect()
}

/// The results of chunks, layer by layer.
fn by_layer<T>(layers: usize, found: Vec<(usize, Vec<T>)>) -> Vec<Vec<T>> {
    let mut all: Vec<Vec<T>> = (0..layers).map(|_| Vec::new()).collect();
    for (layer, found) in found {
        all[layer].extend(found);
    }
    all
}

fn chunk<'a>(layers: &[(&'a [f32], usize)], (layer, from): (usize, usize)) -> &'a [f32] {
    let all = layers[layer].0;
    &all[from..(from + CHUNK).min(all.len())]
}

fn divide_and_conquer(layers: &[(&[f32], usize)]) -> Vec<Vec<u32>> {
    let of_chunk = |at: (usize, usize)| {
        let k = layers[at.0].1;
        let mut ranks = ranks(chunk(layers, at), at.1);
        if k < ranks.len() {
            if k > 0 {
                ranks.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
            }
            ranks.truncate(k);
        }
        (at.0, ranks)
    };
    let found = chunks(layers).into_par_iter().map(of_chunk).collect();
    let all = by_layer(layers.len(), found).into_par_iter().zip(layers);
    all.map(|(ranks, &(_, k))| largest(ranks, k)).collect()
}

fn radix(layers: &[(&[f32], usize)]) -> Vec<Vec<u32>> {
    let counts = chunks(layers).into_par_iter().map(|at| {
        let mut counts = vec![0u32; 1 << COUNTED_BITS];
        for &x in chunk(layers, at) {
            counts[(magnitude(x) >> (31 - COUNTED_BITS)) as usize] += 1;
        }
        (at.0, counts)
    });
    let mut least = vec![0u32; layers.len()];
    let mut sums: Vec<Vec<u64>> = layers.iter().map(|_| Vec::new()).collect();
    for (layer, counts) in counts.collect::<Vec<_>>() {
        let sums = &mut sums[layer];
        sums.resize(counts.len(), 0);
        sums.iter_mut()
            .zip(counts)
            .for_each(|(sum, n)| *sum += u64::from(n));
    }
    for ((least, sums), &(_, k)) in least.iter_mut().zip(sums).zip(layers) {
        let mut above = 0;
        let bin = (0..sums.len()).rev().find(|&bin| {
            above += sums[bin];
            above >= k as u64
        });
        *least = (bin.unwrap_or(0) as u32) << (31 - COUNTED_BITS);
    }
    picked(layers, &least)
}

/// The largest numbers of magnitude at least `least` in each layer, if there are enough.
fn picked(layers: &[(&[f32], usize)], least: &[u32]) -> Vec<Vec<u32>> {
    let level = Simd::current();
    let of_chunk = |at: (usize, usize)| {
        let mut found = Vec::new();
        let pick = Pick {
            numbers: chunk(layers, at),
            from: at.1,
            least: least[at.0],
            found: &mut found,
        };
        simd::run(level, pick);
        (at.0, found)
    };
    let found = chunks(layers).into_par_iter().map(of_chunk).collect();
    let all = by_layer(layers.len(), found).into_par_iter().zip(layers);
    all.map(|(ranks, layer)| {
        if ranks.len() < layer.1.min(layer.0.len()) {
            radix(std::slice::from_ref(layer)).remove(0)
        } else {
            largest(ranks, layer.1)
        }
    })
    .collect()
}

struct Pick<'a> {
    numbers: &'a [f32],
    from: usize,
    least: u32,
    found: &'a mut Vec<u64>,
}

impl Kernel for Pick<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (numbers, from) in self
            .numbers
            .chunks(TOGETHER)
            .zip((self.from..).step_by(TOGETHER))
        {
            let mut most = 0;
            for &x in numbers {
                most = most.max(magnitude(x));
            }
            if most >= self.least {
                for (&x, i) in numbers.iter().zip(from..) {
                    if magnitude(x) >= self.least {
                        self.found.push(rank(x, i));
                    }
                }
            }
        }
    }
}

fn sampled(layers: &[(&[f32], usize)]) -> Vec<Vec<u32>> {
    let least: Vec<u32> = layers
        .par_iter()
        .map(|&(layer, k)| threshold(layer, k))
        .collect();
    picked(layers, &least)
}

/// A magnitude that about k numbers and a few more reach, by a sample of one in a hundred.
fn threshold(layer: &[f32], k: usize) -> u32 {
    let n = layer.len();
    if n < SHORT || k * 4 > n {
        return 0;
    }
    let size = (n / 100).max(SHORT / 4);
    // Positions by the golden ratio: evenly spread, and out of step with any pattern in the layer.
    let at = |i: usize| {
        let part = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(part) * n as u128) >> 64) as usize
    };
    let mut sample: Vec<u32> = (0..size).map(|i| magnitude(layer[at(i)])).collect();
    let expected = k as f64 * size as f64 / n as f64;
    // Three deviations of a Poisson variable, and a little more for small ones.
    let kept = (expected + 3.0 * expected.sqrt() + 3.0).ceil() as usize;
    if kept >= size {
        return 0;
    }
    *sample.select_nth_unstable_by(kept, |a, b| b.cmp(a)).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By sorting everything.
    fn sorted(layer: &[f32], k: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..layer.len() as u32).collect();
        all.sort_by_key(|&i| std::cmp::Reverse(magnitude(layer[i as usize])));
        all.truncate(k);
        all.sort_unstable();
        all
    }

    fn check(layers: &[(&[f32], usize)]) {
        let expected: Vec<Vec<u32>> = layers.iter().map(|&(x, k)| sorted(x, k)).collect();
        for (name, method) in TopK::ALL {
            let sizes: Vec<_> = layers.iter().map(|(x, k)| (x.len(), k)).collect();
            assert_eq!(top_k(layers, method), expected, "{name} of {sizes:?}");
        }
    }

    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seed | 1);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        (0..n).map(|_| (next() - 0.5).powi(5)).collect()
    }

    #[test]
    fn every_method_selects_what_sorting_does() {
        for n in (0..70).chain([200, 4095, 4096, 5000, CHUNK, CHUNK + 1, 150_000]) {
            let layer = numbers(n, n as u64);
            for k in [0, 1, 2, n / 1000 + 1, n / 3, n.saturating_sub(1), n, n + 1] {
                check(&[(&layer, k)]);
            }
        }
        let layers: Vec<Vec<f32>> = [3, 0, 10_000, 70_000, 64].map(|n| numbers(n, 7)).to_vec();
        let with_k: Vec<(&[f32], usize)> = layers
            .iter()
            .map(|layer| (&layer[..], layer.len() / 50 + 1))
            .collect();
        check(&with_k);
    }

    #[test]
    fn equal_numbers_come_by_index_and_what_is_no_number_first() {
        let mut layer = vec![1.0f32; 10_000];
        check(&[(&layer, 100)]);
        layer[5_000] = f32::NAN;
        layer[6_000] = f32::NEG_INFINITY;
        layer[7_000] = -2.0;
        check(&[(&layer, 2), (&layer, 5)]);
        assert_eq!(
            top_k(&[(&layer, 3)], TopK::Sampled),
            [[5_000, 6_000, 7_000]]
        );
        check(&[(&[0.0; 5000], 7), (&[-0.0; 5000], 7)]);
        // A sample that misses the few that are large must be noticed.
        let mut sparse = vec![0.0f32; 200_000];
        sparse[199_999] = 1e-30;
        check(&[(&sparse, 200)]);
    }
}
