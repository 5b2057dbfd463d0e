use pelton_format::{Layout, Rows};

use super::quantizer::{Quantizer, padded};
use super::*;
use crate::loss::Loss;
use crate::random::Stream;

/// Numbers in [−1, 1).
fn numbers(stream: &mut Stream, count: usize) -> Vec<f32> {
    let number = |_| (stream.next() >> 40) as f32 / (1 << 23) as f32 - 1.0;
    (0..count).map(number).collect()
}

fn table(rows: &[Vec<f32>]) -> RowTable {
    let width = rows[0].len();
    let mut segment = Rows::new(Layout::Dense { width });
    for (i, row) in rows.iter().enumerate() {
        segment.push_dense(i as u32 % 2, row);
    }
    RowTable::from_rows(segment, (0..rows.len() as u64).collect())
}

fn decoded(q: &Quantizer, codes: &[u8]) -> Vec<f32> {
    let unit = |j: usize| {
        let mut w = vec![0.0; q.padded()];
        w[j] = 1.0;
        q.dot(codes, &w)
    };
    (0..q.features).map(unit).collect()
}

#[test]
fn values_come_back_within_half_a_step() {
    let mut stream = Stream::new(1);
    for features in [128, 130, 143] {
        let rows: Vec<Vec<f32>> = (0..300)
            .map(|i| {
                let mut row = numbers(&mut stream, features);
                row[3] = 7.25;
                row[4] = if i % 3 == 0 { -0.5 } else { 1.5 };
                row[5] *= 1e-3;
                row[6] = row[6] * 1e3 + 5e4;
                row
            })
            .collect();
        let q = Quantizer::from_rows(features, &table(&rows));
        assert_eq!(q.padded(), padded(features));
        for row in &rows {
            let mut x = row.clone();
            x.resize(q.padded(), 0.0);
            let mut codes = vec![0; q.padded()];
            let (norm, error) = q.encode(&x, &mut codes);
            let values = decoded(&q, &codes);
            assert_eq!(values[3], row[3]);
            let mut errors = 0.0;
            for (j, (value, x)) in values.iter().zip(row).enumerate() {
                let most = 0.51 * q.steps[j] + 1e-6 * x.abs();
                assert!((value - x).abs() <= most, "{j}: {value} for {x}");
                errors += f64::from(value - x).powi(2);
            }
            assert!((f64::from(error) / errors - 1.0).abs() < 1e-3);
            assert!(q.steps[0] < 2.6 / 255.0 && q.steps[5] < 2.6e-3 / 255.0);
            let expected: f64 = values.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            assert!((f64::from(norm) / expected - 1.0).abs() < 1e-5);
        }
    }
}

#[test]
fn features_beyond_reach_stay_finite() {
    let rows = vec![vec![f32::MAX; 128], vec![-f32::MAX; 128], vec![0.0; 128]];
    let q = Quantizer::from_rows(128, &table(&rows));
    for row in &rows {
        let mut codes = vec![0; q.padded()];
        assert!(!q.encode(row, &mut codes).0.is_nan());
        assert!(decoded(&q, &codes).iter().all(|value| value.is_finite()));
    }
}

#[test]
fn every_level_gives_the_same_codes_weights_and_duals() {
    let problem = Problem::new(Loss::Hinge, 1.0, 150, 2).unwrap();
    let problem = problem.with_bias(0.5).unwrap();
    let mut stream = Stream::new(5);
    let rows: Vec<Vec<f32>> = (0..400).map(|_| numbers(&mut stream, 150)).collect();
    let block = table(&rows);
    let run = |simd| {
        let mut weights = Weights::zeros(&problem);
        let mut duals = Duals::zeros(&problem, 400);
        let mut cache = QuantizedCache::new(&problem, 400, 300);
        let mut scratch = Scratch::new(simd);
        let slack: Vec<f32> = (0..400).map(|i| i as f32).collect();
        cache.take_in(&problem, &block, &slack, &weights, simd);
        let inner = InnerPasses::Fixed(3);
        let report = cache.solve(&problem, &mut weights, &mut duals, inner, 7, &mut scratch);
        let report = report.unwrap();
        assert_eq!(report.visits >= 300, report.passes == 3);
        let pending = cache.before[0].iter().filter(|before| !before.is_nan());
        assert!(pending.count() > 100);
        cache.settle(&problem, &block, &mut weights, &duals, simd);
        assert!(cache.before[0].iter().all(|before| before.is_nan()));
        (weights, duals, cache.codes)
    };
    let levels: Vec<_> = Simd::available().into_iter().map(run).collect();
    assert!(levels.windows(2).all(|pair| pair[0] == pair[1]));
    let (weights, duals, _) = &levels[0];
    assert!(duals.stored(0)[..300].iter().any(|&alpha| alpha > 0.0));
    assert!(duals.stored(0)[300..].iter().all(|&alpha| alpha == 0.0));
    let mut exact = crate::certificate::DualBound::new(&problem);
    exact.add(&problem, &block, duals, Simd::best());
    for (w, exact) in weights.vector(0).iter().zip(&exact.sums[0]) {
        assert!((f64::from(*w) - exact).abs() < 1e-5, "{w} {exact}");
    }
}

#[test]
fn the_rows_of_least_slack_are_held() {
    let problem = Problem::new(Loss::Hinge, 1.0, 128, 2).unwrap();
    let weights = Weights::zeros(&problem);
    let mut stream = Stream::new(9);
    let all: Vec<Vec<f32>> = (0..90).map(|_| numbers(&mut stream, 128)).collect();
    let slack_of = |id: u64| (id * 37 % 101) as f32 / 100.0 - 0.3;
    let mut cache = QuantizedCache::new(&problem, 90, 20);
    // These rows only define the quantizer; none is cached.
    let slack = [f32::INFINITY; 90];
    cache.take_in(&problem, &table(&all), &slack, &weights, Simd::best());
    assert!(cache.is_empty());
    let mut seen: Vec<u64> = Vec::new();
    for start in (0..90).step_by(10) {
        let mut segment = Rows::new(Layout::Dense { width: 128 });
        let ids: Vec<u64> = (start..start + 10).collect();
        for &id in &ids {
            segment.push_dense(id as u32 % 2, &all[id as usize]);
        }
        let block = RowTable::from_rows(segment, ids.clone());
        let slack: Vec<f32> = ids.iter().map(|&id| slack_of(id)).collect();
        cache.take_in(&problem, &block, &slack, &weights, Simd::best());
        seen.extend(ids);
        seen.sort_by(|&a, &b| slack_of(a).total_cmp(&slack_of(b)).then(a.cmp(&b)));
        seen.truncate(20);
        let mut held = cache.ids.clone();
        held.sort_unstable();
        let mut expected = seen.clone();
        expected.sort_unstable();
        assert_eq!(held, expected);
        for (slot, &id) in cache.ids.iter().enumerate() {
            assert_eq!(cache.slots[id as usize], slot as u32);
            assert_eq!(cache.labels[slot], id as u32 % 2);
            let q = cache.quantizer.as_ref().unwrap();
            let mut x = all[id as usize].clone();
            x.resize(q.padded(), 0.0);
            let mut codes = vec![0; q.padded()];
            q.encode(&x, &mut codes);
            assert_eq!(
                codes,
                cache.codes[slot * q.padded()..(slot + 1) * q.padded()]
            );
        }
    }
}

#[test]
fn saved_parts_of_another_shape_are_refused() {
    let problem = Problem::new(Loss::Hinge, 1.0, 128, 2).unwrap();
    let mut stream = Stream::new(3);
    let rows: Vec<Vec<f32>> = (0..30).map(|_| numbers(&mut stream, 128)).collect();
    let mut cache = QuantizedCache::new(&problem, 30, 10);
    let weights = Weights::zeros(&problem);
    cache.take_in(&problem, &table(&rows), &[0.5; 30], &weights, Simd::best());
    let good = cache.save();
    assert!(cache.fits(&good));
    type Damage = fn(&mut SavedCodes<'_>);
    let damages: [Damage; 7] = [
        |saved| saved.quantizer.to_mut().truncate(255),
        |saved| saved.quantizer.to_mut().clear(),
        |saved| saved.ids.to_mut()[3] = 30,
        |saved| saved.ids.to_mut()[3] = saved.ids[4],
        |saved| saved.residuals.to_mut().clear(),
        |saved| saved.slack.to_mut().push(0.0),
        |saved| saved.before.clear(),
    ];
    for (number, damage) in damages.iter().enumerate() {
        let mut saved = good.clone();
        damage(&mut saved);
        assert!(!cache.fits(&saved), "damage {number}");
    }
    // A smaller one takes as many as it has room for.
    let mut smaller = QuantizedCache::new(&problem, 30, 4);
    smaller.restore(good.clone());
    assert_eq!(smaller.ids, good.ids[..4]);
    let mut other = QuantizedCache::new(&problem, 30, 10);
    other.restore(good.clone());
    assert_eq!(other.save().ids, good.ids);
    let held: Vec<Vec<f32>> = cache
        .ids
        .iter()
        .map(|&id| rows[id as usize].clone())
        .collect();
    let mut segment = Rows::new(Layout::Dense { width: 128 });
    for (row, &id) in held.iter().zip(&cache.ids) {
        segment.push_dense(id as u32 % 2, row);
    }
    let again = RowTable::from_rows(segment, cache.ids.clone());
    other.encode_again(&problem, 0, &again, Simd::best());
    assert_eq!((&other.codes, &other.norms), (&cache.codes, &cache.norms));
    assert_eq!(other.labels, cache.labels);
}

#[test]
fn rows_out_of_range_are_not_solved_for() {
    let problem = Problem::new(Loss::Hinge, 1.0, 128, 2).unwrap();
    let mut stream = Stream::new(4);
    let mut rows: Vec<Vec<f32>> = (0..300).map(|_| numbers(&mut stream, 128)).collect();
    let mut weights = Weights::zeros(&problem);
    let mut duals = Duals::zeros(&problem, 300);
    let mut cache = QuantizedCache::new(&problem, 300, 300);
    let mut scratch = Scratch::new(Simd::best());
    cache.take_in(&problem, &table(&rows), &[0.0; 300], &weights, Simd::best());
    for row in &mut rows[7..10] {
        row[5] = 30.0;
    }
    cache.take_in(&problem, &table(&rows), &[0.0; 300], &weights, Simd::best());
    let unfit = |&id: &usize| cache.norms[cache.slots[id] as usize] == UNFIT;
    assert_eq!((0..300).filter(unfit).collect::<Vec<_>>(), [7, 8, 9]);
    let inner = InnerPasses::Fixed(2);
    let report = cache.solve(&problem, &mut weights, &mut duals, inner, 1, &mut scratch);
    let report = report.unwrap();
    assert!(report.visits >= 297 && report.visits < 600);
    assert!((7..10).all(|id| duals.stored(0)[id] == 0.0));
    assert!(duals.stored(0).iter().filter(|&&alpha| alpha > 0.0).count() > 50);
}
