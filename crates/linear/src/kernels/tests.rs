//! Every level against f64 sums on random shapes.

use pelton_format::Layout;

use super::*;
use crate::step::Outcome;
use crate::visit::{RowAddress, Segment};

/// Numbers in [−1, 1).
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut stream = crate::random::Stream::new(seed);
    (0..count)
        .map(|_| (stream.next() >> 40) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

/// Moves w by a fixed multiple of each row and notes w·x.
struct Walk(Vec<f32>);

const SCALE: f32 = 0.01;

impl Step for Walk {
    fn step(&mut self, visit: &mut Visit, dot: f32) -> Outcome {
        self.0.push(dot);
        visit.gradient = dot;
        Outcome {
            scale: SCALE,
            settled: visit.label == 1,
        }
    }
}

/// A shape: rows of a layout with their entries as (index, value), so that the reference is the same
/// for dense and sparse rows.
struct Case {
    values: Vec<f32>,
    indices: Vec<u32>,
    places: Vec<RowAddress>,
    entries: Vec<Vec<(usize, f32)>>,
    layout: Layout,
    features: usize,
}

fn dense(width: usize, features: usize, rows: usize) -> Case {
    let values = numbers(width as u64, width * rows);
    let used = width.min(features);
    let entries = values
        .chunks(width)
        .map(|row| row[..used].iter().copied().enumerate().collect());
    let places = (0..rows as u32).map(|start| RowAddress {
        segment: 0,
        start,
        length: used as u32,
    });
    Case {
        entries: entries.collect(),
        places: places.collect(),
        indices: Vec::new(),
        values,
        layout: Layout::Dense { width },
        features,
    }
}

fn sparse(features: usize, rows: usize) -> Case {
    let mut stream = crate::random::Stream::new(features as u64);
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    let (mut places, mut entries) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let mut row_indices: Vec<u32> = (0..row % 70)
            .map(|_| (stream.next() % features as u64) as u32)
            .collect();
        row_indices.sort_unstable();
        row_indices.dedup();
        let row_values = numbers(row as u64 + 9, row_indices.len());
        let length = row_indices.len() as u32;
        places.push(RowAddress {
            segment: 0,
            start: indices.len() as u32,
            length,
        });
        let pairs = row_indices
            .iter()
            .map(|&i| i as usize)
            .zip(row_values.iter().copied());
        entries.push(pairs.collect());
        indices.extend(row_indices);
        values.extend(row_values);
    }
    Case {
        values,
        indices,
        places,
        entries,
        layout: Layout::Sparse,
        features,
    }
}

/// Sums of n products of numbers below 1 and `most` in f32: each of at most 2n + 4 roundings errs by
/// 2^-24 of a partial sum, which is at most n·most.
fn tolerance(n: usize, most: f64) -> f64 {
    (2 * n + 4) as f64 * (n + 1) as f64 * most * 2.0_f64.powi(-24)
}

fn check(case: &Case, bias: f32) {
    let segment = Segment {
        values: &case.values,
        indices: &case.indices,
    };
    let (layout, features) = (case.layout, case.features);
    let rows = BlockRows {
        segments: vec![segment],
        layout,
        features,
        bias,
    };
    let start = numbers(77, features + usize::from(bias != 0.0));
    let mut order: Vec<u32> = (0..case.places.len() as u32).collect();
    crate::random::Stream::new(5).shuffle(&mut order);
    let visit = |(i, &place): (usize, &RowAddress)| Visit {
        place,
        label: (i % 2) as u32,
        alpha: 0.0,
        gradient: 0.0,
        q: 1.0,
        inverse_q: 1.0,
    };
    let bias_entry = (bias != 0.0).then_some((features, bias));
    let entries: Vec<Vec<(usize, f32)>> = case
        .entries
        .iter()
        .map(|row| row.iter().copied().chain(bias_entry).collect())
        .collect();
    for simd in Simd::available() {
        let name = format!("{simd:?} {layout:?} features {features} bias {bias}");
        let mut out = vec![f64::NAN; case.places.len()];
        sweep(simd, &rows, &start, &case.places, &mut out);
        let exact: Vec<f64> = start.iter().map(|&w| f64::from(w)).collect();
        let dot = |w: &[f64], row: &[(usize, f32)]| -> f64 {
            row.iter().map(|&(i, x)| w[i] * f64::from(x)).sum()
        };
        for (row, &out) in entries.iter().zip(&out) {
            let error = (out - dot(&exact, row)).abs();
            assert!(
                error <= tolerance(row.len(), 1.0) * 2.0_f64.powi(-29),
                "{name}: sweep errs by {error}"
            );
        }

        let mut visits: Vec<Visit> = case.places.iter().enumerate().map(visit).collect();
        let mut settled = vec![false; visits.len()];
        let (mut w, mut walk, mut exact) = (start.clone(), Walk(Vec::new()), exact);
        pass(
            simd,
            &rows,
            &mut w,
            &mut walk,
            &mut visits,
            &order,
            &mut settled,
        );
        // Each of the visits moves a weight by at most SCALE and rounds it once.
        let drift = case.places.len() as f64 * 2.0 * 2.0_f64.powi(-24);
        for (&i, &found) in order.iter().zip(&walk.0) {
            let row = &entries[i as usize];
            let error = (f64::from(found) - dot(&exact, row)).abs();
            let allowed = tolerance(row.len(), 2.0) + drift * row.len() as f64;
            assert!(
                error <= allowed,
                "{name}: visit errs by {error}, allowed {allowed}"
            );
            assert_eq!(visits[i as usize].gradient, found);
            assert_eq!(settled[i as usize], i % 2 == 1);
            row.iter()
                .for_each(|&(i, x)| exact[i] += f64::from(SCALE) * f64::from(x));
        }
        for (i, (&found, &exact)) in w.iter().zip(&exact).enumerate() {
            let error = (f64::from(found) - exact).abs();
            assert!(error <= drift, "{name}: weight {i} errs by {error}");
        }
    }
}

#[test]
fn dense_rows_of_every_width() {
    for width in (1..=67).chain([128, 1000]) {
        for bias in [0.0, 0.5] {
            check(&dense(width, width, 50), bias);
        }
    }
}

#[test]
fn sparse_rows_of_every_length() {
    for features in [1, 2, 40, 1000, 100_000] {
        for bias in [0.0, 0.5] {
            check(&sparse(features, 140), bias);
        }
    }
}

#[test]
fn a_model_of_fewer_features_sees_the_first_of_a_dense_row() {
    let case = dense(50, 20, 30);
    let segment = Segment {
        values: &case.values,
        indices: &[],
    };
    let rows = BlockRows {
        segments: vec![segment],
        layout: case.layout,
        features: 20,
        bias: 0.0,
    };
    let w = numbers(3, 20);
    for simd in Simd::available() {
        let mut out = vec![0.0; case.places.len()];
        sweep(simd, &rows, &w, &case.places, &mut out);
        for (row, &out) in case.entries.iter().zip(&out) {
            let exact: f64 = row
                .iter()
                .map(|&(i, x)| f64::from(w[i]) * f64::from(x))
                .sum();
            assert!(
                (out - exact).abs() <= tolerance(20, 1.0) * 2.0_f64.powi(-29),
                "{simd:?}"
            );
        }
    }
}

#[test]
fn weights_beyond_the_reach_of_a_gather_take_the_plain_kernels() {
    let most = i32::MAX as usize;
    for (length, expected) in [
        (0, Simd::best().0),
        (most, Simd::best().0),
        (most + 1, Level::Portable),
    ] {
        assert_eq!(level(Simd::best(), length), expected, "{length}");
    }
}
