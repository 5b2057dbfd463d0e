//! Classes drawn by their shares, against softmaxes in f64; lists of classes.

use super::heads::{SGD, assert_close, saved};
use super::*;
use crate::head::Head;
use crate::near::{LISTED, Lists, draw};

/// Class vectors in clusters, and features near some of them.
fn clustered(classes: usize, batch: usize) -> (Vec<f32>, Vec<f32>, Vec<u64>) {
    let (centres, noise) = (numbers(classes / 20 * D, 1), numbers(classes * D, 2));
    let row = |class: usize| {
        let centre = &centres[class / 20 % (classes / 20) * D..][..D];
        let noise = &noise[class * D..][..D];
        let both = centre.iter().zip(noise);
        both.map(|(c, n)| c + 0.3 * n).collect::<Vec<f32>>()
    };
    let weights: Vec<f32> = (0..classes).flat_map(row).collect();
    let labels: Vec<u64> = (0..batch).map(|i| (i * 7919 % classes) as u64).collect();
    let noise = numbers(batch * D, 3);
    let own = labels.iter().flat_map(|&y| row(y as usize));
    let features = own.zip(noise).map(|(w, n)| w + 0.2 * n).collect();
    (weights, features, labels)
}

fn of_rank(weights: &[f32], comm: &Comm) -> ClassRows {
    let own = share(weights.len() / D, comm.rank(), comm.size());
    ClassRows::new(
        own.start as u64,
        D,
        weights[own.start * D..own.end * D].to_vec(),
    )
}

/// By the definition: the largest part of each class in an example's softmax.
#[test]
fn shares_are_those_of_softmaxes_in_f64() {
    let (classes, batch) = (700, 9);
    let (weights, mut features, _) = clustered(classes, batch);
    // An example that is sure of its class, and one that is not.
    features[..D].iter_mut().for_each(|x| *x *= 5.0);
    features[D..2 * D].iter_mut().for_each(|x| *x *= 0.1);
    for logits in [cosine(Margin::cosine(0.2)), Logits::Product] {
        let scale = f64::from(logits.scale());
        let unit = |x: &[f32]| -> Vec<f64> {
            let length = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let by = if logits.is_cosine() { length } else { 1.0 };
            x.iter().map(|&x| f64::from(x) / by).collect()
        };
        let mut expected = vec![0.0_f64; classes];
        for x in features.chunks(D).map(unit) {
            let product = |w: &[f32]| unit(w).iter().zip(&x).map(|(w, x)| w * x).sum::<f64>();
            let e = |w: &[f32]| (scale * product(w)).exp();
            let e: Vec<f64> = weights.chunks(D).map(e).collect();
            let sum: f64 = e.iter().sum();
            let each = expected.iter_mut().zip(e);
            each.for_each(|(most, e)| *most = most.max(e / sum));
        }
        let mut of_one = Vec::new();
        for ranks in 1..=3 {
            let found = run_ranks(ranks, |comm| {
                let rows = of_rank(&weights, &comm);
                let head = Head::new(rows, logits, Precision::F32, classes as u64, 0);
                let unit = crate::index::unit(&features, D, logits);
                let mut lists = Lists::single(D, head.rows().len());
                lists.shares(&head, classes as u64, &unit, &comm)
            });
            let found = found.unwrap().concat();
            for (found, expected) in found.iter().zip(&expected) {
                // Logits up to 16 from sums of seven products.
                let found = f64::from(*found).exp();
                assert!((found / expected - 1.0).abs() < 5e-4, "{found} {expected}");
            }
            if ranks == 1 {
                of_one = found;
            } else {
                assert_eq!(found, of_one, "{ranks} ranks");
            }
        }
    }
}

/// A part of a draw with one key, of these shares.
fn drawn(shares: &[f32], labels: &[u64], all: u64, key: u64, comm: &Comm) -> Vec<(u64, f32)> {
    let own = share(shares.len(), comm.rank(), comm.size());
    let (rows, counts) = draw(
        &shares[own.clone()],
        labels,
        (shares.len() as u64, all),
        own.start as u64..own.end as u64,
        key,
        comm,
    )
    .unwrap();
    let classes = rows.iter().map(|&row| own.start as u64 + u64::from(row));
    classes.zip(counts).collect()
}

/// The number of classes is kept, likely classes are always there, and sums over classes have the right mean.
#[test]
fn draws_have_their_size_and_the_right_means() {
    let (classes, all) = (500, 60);
    let mut of_class = numbers(classes, 4);
    // Many are hopeless, and lists may not have looked at some.
    of_class.iter_mut().for_each(|x| *x = 4.0 * *x - 9.0);
    of_class[..20].fill(-0.7);
    of_class[20..40].fill(f32::NEG_INFINITY);
    let labels = [7, 3, 499, 3];
    // A figure of each class that has nothing to do with its chance, and one that is its share.
    let figures = [
        numbers(classes, 5),
        of_class.iter().map(|x| x.exp()).collect(),
    ];
    let keys = 4000;
    run_ranks(1, |comm| {
        let mut sums = [[0.0_f64; 2]; 2];
        let mut times = vec![0; classes];
        for key in 0..keys {
            let found = drawn(&of_class, &labels, all, key, &comm);
            assert_eq!(found.len(), all as usize);
            for &(class, _) in &found {
                times[class as usize] += 1;
            }
            for (sums, figures) in sums.iter_mut().zip(&figures) {
                let of = |(class, count): &(u64, f32)| f64::from(figures[*class as usize] * count);
                let sum: f64 = found.iter().map(of).sum();
                *sums = [sums[0] + sum, sums[1] + sum * sum];
            }
        }
        // The 20 likely ones have a chance of more than 1/60 each.
        for class in (0..20).chain([499]) {
            assert_eq!(times[class], keys, "{class}");
        }
        let even = 0.2 / 497.0 * 35.0 * keys as f64;
        for (class, &times) in times.iter().enumerate() {
            assert!(f64::from(times as u32) > 0.5 * even, "{class}: {times}");
        }
        for ([sum, square], figures) in sums.iter().zip(&figures) {
            let (mean, exact) = (
                sum / keys as f64,
                figures.iter().map(|&x| f64::from(x)).sum::<f64>(),
            );
            let variance = square / keys as f64 - mean * mean;
            let error = (variance / keys as f64).sqrt();
            assert!(
                (mean - exact).abs() < 4.0 * error + 1e-6,
                "{mean} {exact} {error}"
            );
        }
        Ok::<_, HeadError>(())
    })
    .unwrap();
}

#[test]
fn draws_are_the_same_on_any_number_of_ranks() {
    let shares: Vec<f32> = numbers(300, 6).iter().map(|x| 3.0 * x - 8.0).collect();
    let labels = [5, 200, 7];
    for all in [0, 3, 4, 50, 299, 300] {
        let of = |ranks: usize| {
            let found = run_ranks(ranks, |comm| {
                Ok::<_, HeadError>(drawn(&shares, &labels, all, 11, &comm))
            });
            found.unwrap().concat()
        };
        let one = of(1);
        assert_eq!(one.len() as u64, all.max(3));
        assert!(one.is_sorted_by_key(|(class, _)| *class));
        assert!(labels.iter().all(|&label| one.contains(&(label, 1.0))));
        if all == 300 {
            assert!(one.iter().all(|(_, count)| *count == 1.0));
        }
        for ranks in 2..=4 {
            assert_eq!(of(ranks), one, "{all} of {ranks} ranks");
        }
    }
}

/// Steps of a head with lists: the same classes and losses on any number of ranks, also after it was saved and loaded
/// in the middle, and while its lists are made again.
#[test]
fn lists_are_the_same_on_any_number_of_ranks_and_go_on() {
    let classes = LISTED as usize + 1234;
    let (weights, features, labels) = clustered(classes, 64);
    let options = HeadOptions {
        kind: "near:0.2".parse().unwrap(),
        logits: cosine(Margin::NONE),
        classes: classes as u64,
        d: D,
        correct: true,
        centre: false,
        seed: 5,
        precision: Precision::F32,
        scratch_bytes: 0,
    };
    let update = Update {
        rule: SGD,
        rate: 0.05,
        weight_decay: 0.0,
        scale: 1.0,
    };
    // Lists last for 4·184/0.2 examples.
    let steps = |ranks: usize, saved_before: &[RowBlock<'_>], steps: std::ops::Range<u64>| {
        let found = run_ranks(ranks, |comm| {
            let mut head = class_head(&options, comm.duplicate()?)?;
            head.load(&mut |name, rows| {
                if saved_before.is_empty() {
                    let rows = rows.start as usize * D..rows.end as usize * D;
                    return (name == "weights").then(|| weights[rows].to_vec());
                }
                let block = saved_before.iter().find(|block| block.name == name)?;
                let at = |row: u64| row as usize * block.width;
                Some(block.values.get(at(rows.start)..at(rows.end))?.to_vec())
            })?;
            let mut figures = Vec::new();
            for step in steps.clone() {
                head.select(&labels, step)?;
                let (sums, _) = head.score(&features, (&labels).into(), 1.0 / 64.0, None)?;
                head.update(&update)?;
                figures.extend([head.active() as f64, sums.loss]);
            }
            Ok::<_, HeadError>((figures, head.recall(), saved(head.as_ref())))
        });
        let mut found = found.unwrap();
        let mut blocks = found.remove(0);
        for (figures, recall, more) in found {
            assert_eq!((&figures, recall), (&blocks.0, blocks.1));
            for (block, more) in blocks.2.iter_mut().zip(more) {
                block.values.to_mut().extend_from_slice(&more.values);
            }
        }
        blocks
    };
    let (whole, [found, missed], all) = steps(1, &[], 0..70);
    assert!(found > 3 * missed, "{found} of {}", found + missed);
    let probes = all.iter().find(|block| block.name == "probes").unwrap();
    assert!(
        probes.values[0] < (classes as f32).sqrt() / 4.0,
        "{:?}",
        probes.values
    );
    for (ranks, others) in [(2, 3), (3, 1), (1, 2)] {
        let (first, _, blocks) = steps(ranks, &[], 0..35);
        let (second, ..) = steps(others, &blocks, 35..70);
        assert_close(
            &format!("{ranks}, {others} ranks"),
            &whole,
            &[first, second].concat(),
        );
    }
}

#[test]
fn lists_that_are_no_lists_are_refused() {
    let good = || {
        (
            vec![0.5; 3 * D],
            vec![0.0, 2.0, 1.0],
            Lists::single(D, 3).numbers(),
        )
    };
    type Parts = (Vec<f32>, Vec<f32>, Vec<f32>);
    let read = |change: &dyn Fn(&mut Parts)| {
        let mut parts = good();
        change(&mut parts);
        Lists::of_numbers(D, parts.0, &parts.1, &parts.2)
    };
    let lists = read(&|_| ()).expect("good lists");
    assert_eq!(
        Lists::of_numbers(D, lists.centres.clone(), &good().1, &lists.numbers()),
        Some(lists)
    );
    assert!(read(&|parts| parts.0.clear()).is_none());
    for wrong in [3.0, -1.0, 0.5, f32::NAN] {
        assert!(read(&|parts| parts.1[1] = wrong).is_none(), "{wrong}");
    }
    for (at, wrong) in [(0, 0.0), (0, 4.0), (0, 0.5), (5, -1.0)] {
        assert!(
            read(&|parts| parts.2[at] = wrong).is_none(),
            "{at}: {wrong}"
        );
    }
    assert!(read(&|parts| parts.2.truncate(7)).is_none());
}
