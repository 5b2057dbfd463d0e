//! Estimates of all classes from a part: draws, corrected sums, centred features, rows initialised at means.

use super::heads::{SGD, assert_close};
use super::*;

fn options(kind: &str, classes: u64, correct: bool) -> HeadOptions {
    HeadOptions {
        kind: kind.parse().unwrap(),
        logits: cosine(Margin::NONE),
        classes,
        d: D,
        correct,
        centre: false,
        seed: 5,
        precision: Precision::F32,
        scratch_bytes: 1 << 20,
    }
}

/// e^loss of an example is the sum over all classes as a multiple of its own e^z: with correction, its mean over the
/// draws of many steps is that of the full softmax; without, it is low.
#[test]
fn corrected_sums_have_no_bias() {
    let classes = 600;
    let (features, labels) = (numbers(D, 4), [3]);
    for kind in [
        "sampled:0.1",
        "near:0.1",
        "knn:10:0.1:0.5",
        "selective:1:0.15",
    ] {
        let mean = |correct: bool| {
            let options = options(kind, classes, correct);
            let mut head = class_head(&options, Comm::alone()).unwrap();
            head.renew(1, &|| false).unwrap();
            let exact = head
                .evaluate(&features, (&labels).into(), None)
                .unwrap()
                .loss
                .exp();
            let sums: Vec<f64> = (0..400)
                .map(|key| {
                    head.select(&labels, key).unwrap();
                    let (sums, _) = head.score(&features, (&labels).into(), 1.0, None).unwrap();
                    head.forget();
                    sums.loss.exp()
                })
                .collect();
            let mean = sums.iter().sum::<f64>() / 400.0;
            let square: f64 = sums.iter().map(|x| (x - mean).powi(2)).sum();
            // Draws in turn scatter less than this bound for independent ones.
            let deviation = (square / 400.0 / 400.0).sqrt();
            assert!(deviation < 0.05 * exact, "{kind}: {deviation} of {exact}");
            ((mean - exact) / deviation, mean / exact)
        };
        let (off, _) = mean(true);
        assert!(off.abs() < 4.0, "{kind}: off by {off} deviations");
        let (_, part) = mean(false);
        // The likely classes have more of it than others.
        let most = if kind.starts_with("near") { 0.8 } else { 0.5 };
        assert!(part < most, "{kind}: {part} of the sum");
    }
}

/// Draws resume in the middle of a round, on any number of ranks: each class is drawn once a round. A checkpoint
/// without the state of draws begins with the first round.
#[test]
fn draws_go_on_where_they_stood() {
    for kind in [
        "sampled:0.2",
        "near:0.3",
        "knn:4:0.3:0.6",
        "selective:2:0.5",
    ] {
        let options = options(kind, 211, true);
        let steps = |ranks: usize, saved: &[Vec<RowBlock<'_>>], steps: std::ops::Range<u64>| {
            let found = run_ranks(ranks, |comm| {
                let rank = comm.rank();
                let mut head = class_head(&options, comm)?;
                if saved.is_empty() {
                    head.renew(1, &|| false)?;
                } else {
                    head.load(&mut |name, rows| {
                        let mut values = Vec::new();
                        let mut end = 0;
                        for block in saved.iter().flatten().filter(|block| block.name == name) {
                            let held = block.values.len() / block.width;
                            end = block.first + held as u64;
                            let (from, to) = (rows.start.max(block.first), rows.end.min(end));
                            if from < to {
                                let at = |row: u64| (row - block.first) as usize * block.width;
                                values.extend_from_slice(&block.values[at(from)..at(to)]);
                            }
                        }
                        (rows.end <= end).then_some(values)
                    })?;
                }
                let mut losses = Vec::new();
                for step in steps.clone() {
                    let labels = [step * 7 % 211, step * 31 % 211];
                    head.select(&labels, step)?;
                    let (sums, _) =
                        head.score(&numbers(2 * D, step), (&labels).into(), 1.0, None)?;
                    losses.extend([head.active() as f64, sums.loss]);
                    head.forget();
                }
                Ok::<_, HeadError>((losses, (rank, super::heads::saved(head.as_ref()))))
            });
            let (losses, saved): (Vec<_>, Vec<_>) = found.unwrap().into_iter().unzip();
            let saved = saved
                .into_iter()
                .map(|(_, blocks)| blocks)
                .collect::<Vec<_>>();
            (losses[0].clone(), saved)
        };
        let (whole, _) = steps(1, &[], 0..13);
        for ranks in 1..=3 {
            let (first, saved) = steps(ranks, &[], 0..6);
            for others in 1..=3 {
                let (second, _) = steps(others, &saved, 6..13);
                let both = [&first[..], &second].concat();
                assert_close(&format!("{kind}, {ranks}, {others} ranks"), &whole, &both);
            }
            let mut before = saved.clone();
            before
                .iter_mut()
                .for_each(|blocks| blocks.retain(|block| block.name != "draws"));
            let (fresh, _) = steps(1, &before, 0..6);
            assert_close(&format!("{kind}, as before"), &first, &fresh);
        }
    }
}

/// Features without the mean of their batch.
fn centred(features: &[f64]) -> Vec<f64> {
    let rows = features.len() / D;
    let mean = |j: usize| features.iter().skip(j).step_by(D).sum::<f64>() / rows as f64;
    let means: Vec<f64> = (0..D).map(mean).collect();
    let all = features.iter().enumerate();
    all.map(|(i, x)| x - means[i % D]).collect()
}

/// The loss depends on the mean of the batch, too; afterwards the running mean is subtracted.
#[test]
fn centred_features_have_the_gradient_of_the_definition() {
    let mut case = Case::new(cosine(Margin::angle(0.3)), 6, 61, 3);
    // Far from zero, as features are.
    for (i, x) in case.features.iter_mut().enumerate() {
        *x += 0.5 * (i % D) as f32;
    }
    let options = HeadOptions {
        logits: case.logits,
        centre: true,
        ..options("full", 61, true)
    };
    let mut head = class_head(&options, Comm::alone()).unwrap();
    case.weights = head.save(true)[0].values.to_vec();
    let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| x.into()).collect() };
    let (x, w) = (wide(&case.features), wide(&case.weights));
    assert_eq!(head.mean(), Some(vec![0.0; D]));
    let (sums, gradient) = head
        .score(&case.features, (&case.labels).into(), 0.5, None)
        .unwrap();
    let loss = case.loss(&centred(&x), &w);
    assert!(
        (sums.loss - loss).abs() < 1e-5 * loss,
        "{} {loss}",
        sums.loss
    );
    for (i, found) in gradient.into_iter().enumerate() {
        let exact = 0.5 * slope(&case.features, i, |x| case.loss(&centred(x), &w));
        assert!(
            (f64::from(found) - exact).abs() < 2e-5,
            "x{i}: {found} {exact}"
        );
    }
    // The first mean is taken as it is, of later ones a hundredth.
    let means = |features: &[f64]| -> Vec<f64> {
        let less = centred(features);
        (0..D).map(|j| features[j] - less[j]).collect()
    };
    let twice: Vec<f32> = case.features.iter().map(|x| 2.0 * x).collect();
    head.score(&twice, (&case.labels).into(), 0.5, None)
        .unwrap();
    for (found, mean) in head.mean().unwrap().into_iter().zip(means(&x)) {
        assert!(
            (f64::from(found) - 1.01 * mean).abs() < 1e-6,
            "{found} {mean}"
        );
    }
    let moved: Vec<f64> = x
        .iter()
        .zip(means(&x).iter().cycle())
        .map(|(x, m)| x - 1.01 * m)
        .collect();
    case.logits = cosine(Margin::NONE);
    let plain = HeadOptions {
        logits: case.logits,
        ..options
    };
    let mut other = class_head(&plain, Comm::alone()).unwrap();
    let saved = head.save(true);
    let block = |name: &str| {
        saved
            .iter()
            .find(|block| block.name == name)
            .map(|block| block.values.to_vec())
    };
    other.load(&mut |name, _| block(name)).unwrap();
    let loss = case.loss(&moved, &w);
    let sums = other
        .evaluate(&case.features, (&case.labels).into(), None)
        .unwrap();
    assert!(
        (sums.loss - loss).abs() < 1e-5 * loss,
        "{} {loss}",
        sums.loss
    );
    let best = other.top(&case.features[..D], 61).unwrap().remove(0);
    for (class, cosine) in best {
        let row = &w[class as usize * D..][..D];
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let x = &moved[..D];
        let exact = dot(x, row) / (dot(x, x) * dot(row, row)).sqrt();
        assert!((f64::from(cosine) - exact).abs() < 1e-5, "{cosine} {exact}");
    }
}

/// One example minus its mean has no direction: it counts, but has no gradient.
#[test]
fn examples_that_are_all_equal_stay_numbers_without_their_mean() {
    let options = HeadOptions {
        centre: true,
        ..options("full", 61, true)
    };
    let mut head = class_head(&options, Comm::alone()).unwrap();
    for labels in [&[3u64][..], &[3, 4], &[3, 4, 5]] {
        let features = numbers(D, 1).repeat(labels.len());
        let (sums, gradient) = head.score(&features, labels.into(), 1.0, None).unwrap();
        assert!(sums.loss.is_finite());
        assert!(gradient.iter().all(|x| x.abs() < 1e-3), "{gradient:?}");
    }
}

/// Against means in f64, on any number of ranks; classes without an example keep their weights.
#[test]
fn rows_begin_at_the_means_of_their_classes() {
    let classes = 23;
    for (kind, centre) in [("full", false), ("full", true), ("sampled:0.5", true)] {
        let options = HeadOptions {
            centre,
            ..options(kind, classes, true)
        };
        let mut features = numbers(60 * D, 3);
        features.iter_mut().for_each(|x| *x += 0.7);
        // Classes 20 to 22 have no example, and class 7 one without a direction.
        let labels: Vec<u64> = (0..60).map(|i| i % 20).collect();
        if !centre {
            for i in [7, 27, 47] {
                features[i * D..][..D].fill(0.0);
            }
        }
        let begun = |ranks: usize| {
            let found = run_ranks(ranks, |comm| {
                let mut head = class_head(&options, comm.duplicate()?)?;
                let before = comm.all_gather_ragged(&head.save(true)[0].values)?.concat();
                for what in [Observed::Mean, Observed::Classes] {
                    for (x, y) in features.chunks(16 * D).zip(labels.chunks(16)) {
                        head.observe(what, x, y)?;
                    }
                }
                let missing = head.begin_at_means()?;
                let after = comm.all_gather_ragged(&head.save(true)[0].values)?.concat();
                head.select(&[1], 0)?;
                head.score(&features[..D], (&[1]).into(), 1.0, None)?;
                Ok::<_, HeadError>((missing, before, after))
            });
            found.unwrap().remove(0)
        };
        let wide: Vec<f64> = features.iter().map(|&x| x.into()).collect();
        let x = if centre { centred(&wide) } else { wide };
        let (missing, before, after) = begun(1);
        assert_eq!(missing, if centre { 3 } else { 4 });
        for class in 0..classes as usize {
            let mut mean = [0.0; D];
            let mut count = 0.0;
            for (x, _) in x
                .chunks(D)
                .zip(&labels)
                .filter(|(_, label)| **label == class as u64)
            {
                let length = x.iter().map(|x| x * x).sum::<f64>().sqrt();
                if length > 0.0 {
                    count += 1.0;
                    mean.iter_mut().zip(x).for_each(|(m, x)| *m += x / length);
                }
            }
            for (j, sum) in mean.into_iter().enumerate() {
                let at = class * D + j;
                let exact = if count > 0.0 {
                    sum / count
                } else {
                    before[at].into()
                };
                assert!(
                    (f64::from(after[at]) - exact).abs() < 1e-6,
                    "{class}: {} {exact}",
                    after[at]
                );
            }
        }
        for ranks in 2..=3 {
            assert_eq!(
                begun(ranks),
                (missing, before.clone(), after.clone()),
                "{ranks} ranks"
            );
        }
    }
    let mut mach = class_head(&options("mach:13:3", 61, true), Comm::alone()).unwrap();
    mach.observe(Observed::Classes, &numbers(4 * D, 3), &[1, 2, 3, 4])
        .unwrap();
    let missing = mach.begin_at_means().unwrap();
    assert!((3 * 13 - 12..3 * 13).contains(&missing), "{missing}");
    let wrong = mach.observe(Observed::Classes, &numbers(D, 3), &[61]);
    assert!(matches!(wrong, Err(HeadError::Label { label: 61, .. })));
}

/// Random weights have no neighbours: the first epoch draws, with as many rows in a step; learnt or loaded rows have
/// neighbours.
#[test]
fn random_rows_have_no_neighbours() {
    let options = options("knn:8:0.5:0.2", 211, true);
    let chosen = |head: &mut dyn ClassHead| {
        head.renew(0, &|| false).unwrap();
        let saved = head.save(true);
        let ids = saved
            .iter()
            .find(|block| block.name == "neighbours")
            .unwrap();
        let first = ids.values[1];
        let own = ids.values[..ids.width]
            .iter()
            .skip(1)
            .step_by(2)
            .all(|&x| x == first);
        head.select(&[3, 4], 1).unwrap();
        (own, head.active())
    };
    let mut head = class_head(&options, Comm::alone()).unwrap();
    let (alone, drawn) = chosen(head.as_mut());
    assert!(alone && (80..=110).contains(&drawn), "{drawn} of 105");
    head.score(&numbers(2 * D, 1), (&[3, 4]).into(), 1.0, None)
        .unwrap();
    let update = Update {
        rule: SGD,
        rate: 0.1,
        weight_decay: 0.0,
        scale: 1.0,
    };
    head.update(&update).unwrap();
    assert!(!chosen(head.as_mut()).0);
    let mut head = class_head(&options, Comm::alone()).unwrap();
    head.observe(Observed::Classes, &numbers(2 * D, 1), &[3, 4])
        .unwrap();
    head.begin_at_means().unwrap();
    assert!(!chosen(head.as_mut()).0);
}
