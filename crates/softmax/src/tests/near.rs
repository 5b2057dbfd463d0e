//! Classes near the features of a batch, against sorting in f64; lists of classes.

use std::collections::BTreeSet;

use super::heads::{SGD, assert_close, saved};
use super::*;
use crate::graph::{Budget, Selection};
use crate::head::Head;
use crate::near::{LISTED, Lists, add_nearest};

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

/// By the definition: how far each class's logit is from the largest of an example, at best; then the classes.
#[test]
fn the_nearest_classes_are_those_of_sorting_in_f64() {
    let (classes, batch, room) = (700, 9, 60);
    let (weights, mut features, labels) = clustered(classes, batch);
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
        let mut near = vec![f64::NEG_INFINITY; classes];
        for x in features.chunks(D).map(unit) {
            let product = |w: &[f32]| unit(w).iter().zip(&x).map(|(w, x)| w * x).sum::<f64>();
            let z: Vec<f64> = weights.chunks(D).map(|w| scale * product(w)).collect();
            let most = z.iter().copied().fold(f64::MIN, f64::max);
            near.iter_mut()
                .zip(z)
                .for_each(|(near, z)| *near = near.max(z - most));
        }
        let mut order: Vec<u64> = (0..classes as u64)
            .filter(|c| !labels.contains(c))
            .collect();
        order.sort_by(|&a, &b| near[b as usize].total_cmp(&near[a as usize]));
        let mut expected: BTreeSet<u64> = order[..room - batch].iter().copied().collect();
        expected.extend(&labels);
        let gap = near[order[room - batch - 1] as usize] - near[order[room - batch] as usize];
        assert!(gap > 1e-4, "too close to tell apart: {gap}");
        for ranks in 1..=3 {
            let found = run_ranks(ranks, |comm| {
                let rows = of_rank(&weights, &comm);
                let own = rows.classes();
                let head = Head::new(rows, logits, Precision::F32, classes as u64, 0);
                let unit = crate::index::unit(&features, D, logits);
                let mut lists = Lists::single(D, head.rows().len());
                let found = lists.nearness(&head, classes as u64, &unit, &comm)?;
                let mut selection = Selection::default();
                selection.begin(own.clone(), &labels);
                add_nearest(
                    &found,
                    &labels,
                    room as u64,
                    own.clone(),
                    &mut selection,
                    &comm,
                )?;
                let budget = Budget {
                    near: room as u64,
                    all: room as u64,
                    corrected: true,
                };
                let mut draws = Draws::new(1);
                let chosen = selection.choose(budget, classes as u64, 1, &mut draws, &comm)?;
                let mine: Vec<u64> = chosen
                    .rows
                    .iter()
                    .map(|row| own.start + u64::from(*row))
                    .collect();
                Ok::<_, HeadError>((found, comm.all_gather_ragged(&mine)?.concat()))
            });
            let found = found.unwrap();
            let chosen: BTreeSet<u64> = found[0].1.iter().copied().collect();
            assert_eq!(chosen, expected, "{logits}, {ranks} ranks");
            let all = found.iter().flat_map(|(found, _)| found);
            for (found, exact) in all.zip(&near) {
                // Logits up to 16 from sums of seven products.
                assert!((f64::from(*found) - exact).abs() < 2e-4, "{found} {exact}");
            }
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
        kind: "near:0.2:0.5".parse().unwrap(),
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
                let (sums, _) = head.score(&features, &labels, 1.0 / 64.0, None)?;
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
