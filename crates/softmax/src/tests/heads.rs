//! Heads of all kinds: over ranks, in micro-batches, saved and loaded.

use super::*;

/// A head of a kind after three steps of two micro-batches, on `ranks` ranks: sums, gradient of the features, and all
/// saved blocks concatenated.
fn trained(
    kind: HeadKind,
    centre: bool,
    ranks: usize,
    rule: Rule,
    micro: usize,
) -> (Vec<f64>, Vec<RowBlock<'static>>) {
    let classes = 61u64;
    let options = HeadOptions {
        kind,
        logits: cosine(Margin::NONE),
        classes,
        d: D,
        correct: true,
        centre,
        seed: 5,
        precision: Precision::F32,
        scratch_bytes: 1 << 20,
    };
    let results = run_ranks(ranks, |comm| {
        let mut head = class_head(&options, comm.duplicate()?)?;
        let mut figures = Vec::new();
        head.renew(1, &|| false)?;
        for step in 0..3u64 {
            let features = numbers(12 * D, step);
            let labels: Vec<u64> = (0..12).map(|i| (i * 7 + step * 3) % classes).collect();
            head.select(&labels, step)?;
            let parts = features
                .chunks(12 / micro * D)
                .zip(labels.chunks(12 / micro));
            for (place, (features, labels)) in parts.enumerate() {
                // The weight of a micro-batch is known when it is scored, or later.
                let later = [1.0, 0.25][place % 2];
                let (sums, mut gradient) =
                    head.score(features, labels.into(), 0.1 / later, None)?;
                head.weigh(place, later);
                comm.all_reduce(&mut gradient, pelton_comm::Reduction::Sum)?;
                figures.extend([head.active() as f64, sums.loss]);
                figures.extend(gradient.iter().map(|&g| f64::from(g)));
            }
            head.update(&Update {
                rule,
                rate: 0.5,
                weight_decay: 1e-3,
                scale: 1.0,
            })?;
        }
        let sums = head.evaluate(&numbers(4 * D, 9), (&[1, 2, 3, 60]).into(), None)?;
        figures.extend([sums.loss, sums.correct() as f64]);
        Ok::<_, HeadError>((figures, saved(head.as_ref())))
    })
    .unwrap();
    let figures = results[0].0.clone();
    let mut blocks = results[0].1.clone();
    for (_, more) in &results[1..] {
        for (block, more) in blocks.iter_mut().zip(more) {
            assert_eq!((block.name == more.name, block.total), (true, more.total));
            block.values.to_mut().extend_from_slice(&more.values);
        }
    }
    // Values that are equal on all ranks.
    for block in &mut blocks {
        if block.total == ranks as u64 {
            let alike = block.values.chunks(block.width);
            assert!(alike.clone().all(|row| row == &block.values[..block.width]));
            let width = block.width;
            block.values.to_mut().truncate(width);
        }
    }
    (figures, blocks)
}

pub(super) const KINDS: [HeadKind; 6] = [
    HeadKind::Full,
    HeadKind::Knn {
        neighbours: 4,
        active: 0.5,
        drawn: 0.5,
    },
    HeadKind::Sampled { active: 0.6 },
    HeadKind::Selective {
        trees: 3,
        active: 0.7,
    },
    HeadKind::Mach {
        buckets: 13,
        repetitions: 3,
    },
    NEAR,
];

/// Each micro-batch has classes of its own.
pub(super) const NEAR: HeadKind = HeadKind::Near { active: 0.5 };

pub(super) const SGD: Rule = Rule::Sgd {
    momentum: 0.9,
    nesterov: false,
};

/// Steps without state.
const STILL: Rule = Rule::Sgd {
    momentum: 0.0,
    nesterov: false,
};

/// With an ε that keeps roundings of small gradients small.
const ADAMW: Rule = Rule::AdamW {
    mean_decay: 0.9,
    square_decay: 0.99,
    epsilon: 1e-2,
};

/// Sums in another order differ by roundings, which three steps make larger.
pub(super) fn assert_close(what: &str, a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= 2e-4 * (1.0 + a.abs()), "{what}: {a} {b}");
    }
}

/// Everything that a head saves, as owned blocks.
pub(super) fn saved(head: &dyn ClassHead) -> Vec<RowBlock<'static>> {
    let blocks = head.save(true).into_iter();
    blocks.map(RowBlock::into_owned).collect()
}

pub(super) fn values(blocks: &[RowBlock<'_>]) -> Vec<f64> {
    let all = blocks.iter().flat_map(|block| &block.values[..]);
    all.map(|&x| f64::from(x)).collect()
}

#[test]
fn every_head_is_the_same_on_any_number_of_ranks() {
    for (kind, centre) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, false), (kind, true)])
    {
        for rule in [SGD, STILL, LARS, ADAMW] {
            let (figures, blocks) = trained(kind, centre, 1, rule, 1);
            for ranks in 2..=4 {
                let what = format!("{kind}, centred {centre}, {rule:?}, {ranks} ranks");
                let (of_ranks, saved) = trained(kind, centre, ranks, rule, 1);
                assert_close(&what, &figures, &of_ranks);
                assert_close(&what, &values(&blocks), &values(&saved));
            }
        }
    }
}

/// At large scales, with all classes taking part, loss, gradient and evaluation do not depend on the kind of head, and
/// equal those of a sum in f64.
#[test]
fn every_head_takes_any_scale() {
    let kinds = ["full", "near:1", "knn:4:1", "sampled:1", "selective:3:1"];
    for scale in [1.0, 60.0, 88.0, 128.0, 1000.0] {
        for margin in [Margin::NONE, Margin::cosine(0.2), Margin::angle(0.5)] {
            let logits = Logits::Cosine { scale, margin };
            let mut case = Case::new(logits, 7, 61, 3);
            for kind in kinds {
                let options = HeadOptions {
                    kind: kind.parse().unwrap(),
                    logits,
                    classes: 61,
                    d: D,
                    correct: true,
                    centre: false,
                    seed: 5,
                    precision: Precision::F32,
                    scratch_bytes: 1 << 20,
                };
                case.weights = class_head(&options, Comm::alone()).unwrap().save(true)[0]
                    .values
                    .to_vec();
                let (loss, by_features, _) = case.exact();
                let part = 1e-6 * (8.0 + f64::from(scale));
                for ranks in 1..=4 {
                    let what = format!("{kind}, {logits}, {ranks} ranks");
                    let found = run_ranks(ranks, |comm| {
                        let mut head = class_head(&options, comm.duplicate()?)?;
                        head.renew(1, &|| false)?;
                        head.select(&case.labels, 1)?;
                        let measured =
                            head.evaluate(&case.features, (&case.labels).into(), None)?;
                        let (sums, mut gradient) =
                            head.score(&case.features, (&case.labels).into(), 0.5, None)?;
                        assert_eq!(head.active(), 61);
                        comm.all_reduce(&mut gradient, pelton_comm::Reduction::Sum)?;
                        Ok::<_, HeadError>((measured.loss, sums.loss, gradient))
                    });
                    let (measured, trained, gradient) = found.unwrap().remove(0);
                    for found in [measured, trained] {
                        assert!(
                            (found - loss).abs() <= part * loss.max(1.0),
                            "{what}: {found} {loss}"
                        );
                    }
                    let most = by_features.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
                    for (found, exact) in gradient.iter().zip(&by_features) {
                        let found = f64::from(*found);
                        assert!(
                            (found - exact).abs() <= part * most,
                            "{what}: {found} {exact}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn micro_batches_of_a_step_come_to_the_whole_batch() {
    for kind in KINDS.into_iter().filter(|kind| *kind != NEAR) {
        for rule in [SGD, LARS] {
            let (_, whole) = trained(kind, false, 2, rule, 1);
            for micro in [2, 3, 12] {
                let (_, parts) = trained(kind, false, 2, rule, micro);
                let what = format!("{kind}, {rule:?}, {micro} micro-batches");
                assert_close(&what, &values(&whole), &values(&parts));
            }
        }
    }
}

#[test]
fn a_micro_batch_that_counts_twice_is_as_two() {
    for kind in KINDS.into_iter().filter(|kind| *kind != NEAR) {
        let blocks = |twice: bool, by_factors: bool| {
            let options = HeadOptions {
                kind,
                logits: cosine(Margin::angle(0.2)),
                classes: 61,
                d: D,
                correct: true,
                centre: false,
                seed: 5,
                precision: Precision::F32,
                scratch_bytes: 1 << 20,
            };
            let mut head = class_head(&options, Comm::alone()).unwrap();
            head.renew(1, &|| false).unwrap();
            let (one, other) = (numbers(3 * D, 1), numbers(2 * D, 2));
            head.select(&[4, 9, 60, 11, 4], 7).unwrap();
            if by_factors {
                let (all, factors) = ([&one[..], &other].concat(), [1.0, 1.0, 1.0, 2.0, 2.0]);
                head.score(&all, (&[4, 9, 60, 11, 4]).into(), 0.2, Some(&factors))
                    .unwrap();
            } else {
                head.score(&one, (&[4, 9, 60]).into(), 0.2, None).unwrap();
                head.score(&other, (&[11, 4]).into(), 0.2, None).unwrap();
                if twice {
                    head.weigh(1, 2.0)
                } else {
                    drop(head.score(&other, (&[11, 4]).into(), 0.2, None).unwrap())
                }
            }
            let update = Update {
                rule: SGD,
                rate: 0.5,
                weight_decay: 0.0,
                scale: 1.0,
            };
            head.update(&update).unwrap();
            values(&head.save(true))
        };
        let expected = blocks(false, false);
        assert_close(&kind.to_string(), &blocks(true, false), &expected);
        assert_close(&kind.to_string(), &blocks(false, true), &expected);
    }
}

/// The norm is that of a plain descent step, for any number of ranks and micro-batches; a scale makes the step smaller.
#[test]
fn gradients_have_a_norm_and_a_scale() {
    for kind in KINDS {
        let step = |ranks: usize, micro: usize, scale: f32| -> (f64, Vec<f64>) {
            let options = HeadOptions {
                kind,
                logits: cosine(Margin::angle(0.2)),
                classes: 61,
                d: D,
                correct: true,
                centre: false,
                seed: 5,
                precision: Precision::F32,
                scratch_bytes: 1 << 20,
            };
            let results = run_ranks(ranks, |comm| {
                let mut head = class_head(&options, comm.duplicate()?)?;
                head.renew(1, &|| false)?;
                let (features, labels) =
                    (numbers(12 * D, 4), [3, 9, 60, 11, 9, 7, 8, 1, 2, 0, 5, 6]);
                head.select(&labels, 7)?;
                let values = |head: &dyn ClassHead| -> Result<Vec<f64>, HeadError> {
                    let own = head
                        .save(true)
                        .into_iter()
                        .filter(|b| b.name.ends_with("weights"));
                    let own: Vec<f32> = own.flat_map(|block| block.values.into_owned()).collect();
                    let all = comm.all_gather_ragged(&own)?.concat();
                    Ok(all.into_iter().map(f64::from).collect())
                };
                let before = values(head.as_ref())?;
                let parts = features
                    .chunks(12 / micro * D)
                    .zip(labels.chunks(12 / micro));
                for (features, labels) in parts {
                    head.score(features, labels.into(), 0.5, None)?;
                }
                let square = head.gradient_square()?;
                head.update(&Update {
                    rule: Rule::Sgd {
                        momentum: 0.0,
                        nesterov: false,
                    },
                    rate: 1.0,
                    weight_decay: 0.0,
                    scale,
                })?;
                let moved = values(head.as_ref())?;
                let steps = before.iter().zip(moved).map(|(a, b)| a - b).collect();
                Ok::<_, HeadError>((square, steps))
            });
            results.unwrap().remove(0)
        };
        let (square, whole) = step(1, 1, 1.0);
        let norm: f64 = whole.iter().map(|x| x * x).sum();
        assert!(
            (square - norm).abs() < 1e-5 * norm,
            "{kind}: {square} {norm}"
        );
        let of_parts = |(_, micro): &(usize, usize)| *micro == 1 || kind != NEAR;
        let divided = [(1, 3), (2, 1), (4, 1), (3, 2), (4, 12)];
        for (ranks, micro) in divided.into_iter().filter(of_parts) {
            let (other, _) = step(ranks, micro, 1.0);
            assert!(
                (square - other).abs() < 1e-4 * square,
                "{kind}: {square} {other}"
            );
        }
        let (_, half) = step(1, if kind == NEAR { 1 } else { 2 }, 0.5);
        let whole: Vec<f64> = whole.iter().map(|x| 0.5 * x).collect();
        assert_close(&kind.to_string(), &whole, &half);
    }
}

#[test]
fn heads_go_on_from_what_was_saved_on_other_ranks() {
    for (kind, rule) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, SGD), (kind, ADAMW)])
    {
        let (_, saved) = trained(kind, true, 4, rule, 1);
        let goes_on = |ranks: usize| {
            let options = HeadOptions {
                kind,
                logits: cosine(Margin::NONE),
                classes: 61,
                d: D,
                correct: true,
                centre: true,
                seed: 99,
                precision: Precision::F32,
                scratch_bytes: 0,
            };
            let results = run_ranks(ranks, |comm| {
                let mut head = class_head(&options, comm)?;
                head.load(&mut |name, rows| {
                    let block = saved.iter().find(|block| block.name == name)?;
                    let at = |row: u64| row as usize * block.width;
                    Some(block.values.get(at(rows.start)..at(rows.end))?.to_vec())
                })?;
                let labels = [3, 9, 60];
                head.select(&labels, 8)?;
                let (sums, _) = head.score(&numbers(3 * D, 4), (&labels).into(), 1.0, None)?;
                head.update(&Update {
                    rule,
                    rate: 0.5,
                    weight_decay: 0.0,
                    scale: 1.0,
                })?;
                let best = head.top(&numbers(2 * D, 5), 3)?;
                Ok::<_, HeadError>((sums.loss, best))
            });
            results.unwrap().remove(0)
        };
        let (loss, best) = goes_on(1);
        for ranks in [2, 3] {
            let (other_loss, other_best) = goes_on(ranks);
            assert_close(&kind.to_string(), &[loss], &[other_loss]);
            let classes = |best: &[Vec<(u64, f32)>]| -> Vec<u64> {
                best.iter().flatten().map(|(class, _)| *class).collect()
            };
            assert_eq!(classes(&best), classes(&other_best), "{kind}");
        }
    }
}

#[test]
fn lars_takes_the_step_of_its_definition() {
    let case = Case::new(cosine(Margin::NONE), 6, 11, 3);
    let lars = |rate: f32| Update {
        rule: Rule::Lars {
            momentum: 0.0,
            trust: 0.02,
        },
        rate,
        weight_decay: 0.01,
        scale: 1.0,
    };
    // A step of plain descent shows the gradient.
    let plain = Update {
        rule: Rule::Sgd {
            momentum: 0.0,
            nesterov: false,
        },
        rate: 1.0,
        weight_decay: 0.0,
        scale: 1.0,
    };
    let (_, _, stepped) = case.step(&Comm::alone(), 0, plain);
    let w: Vec<f64> = case.weights.iter().map(|&w| f64::from(w)).collect();
    let g: Vec<f64> = w
        .iter()
        .zip(&stepped)
        .map(|(w, s)| w - f64::from(*s))
        .collect();
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let lambda = 0.02 * norm(&w) / (norm(&g) + 0.01 * norm(&w));
    let (_, _, found) = case.step(&Comm::alone(), 0, lars(0.7));
    for ((w, g), found) in w.iter().zip(&g).zip(found) {
        let expected = w - 0.7 * lambda * (g + 0.01 * w);
        // A few roundings of numbers below 1.
        assert!(
            (expected - f64::from(found)).abs() < 1e-6,
            "{expected} {found}"
        );
    }
}

/// LARS adds to the velocity of a step a vector with the length of the rate and the trust times all weights of all
/// ranks, including those of classes that take no part or have waited.
#[test]
fn lars_goes_by_the_length_of_the_whole_head() {
    let classes = 61;
    for kind in &KINDS[..4] {
        for ranks in [1, 2, 4] {
            let options = HeadOptions {
                kind: *kind,
                logits: cosine(Margin::NONE),
                classes,
                d: D,
                correct: true,
                centre: false,
                seed: 5,
                precision: Precision::F32,
                scratch_bytes: 1 << 20,
            };
            let steps = run_ranks(ranks, |comm| {
                let own = share(classes as usize, comm.rank(), comm.size());
                let own = own.start as u64..own.end as u64;
                let mut head = class_head(&options, comm.duplicate()?)?;
                head.renew(1, &|| false)?;
                let mut steps = Vec::new();
                for step in 0..6 {
                    let labels = [3, 9, step * 11];
                    head.select(&labels, step)?;
                    let before = saved(head.as_ref());
                    head.score(&numbers(3 * D, step), (&labels).into(), 0.3, None)?;
                    head.update(&Update {
                        rule: LARS,
                        rate: 0.5,
                        weight_decay: 0.0,
                        scale: 1.0,
                    })?;
                    let after = head.save(true);
                    let block = |blocks: &[RowBlock<'_>], name: &str| {
                        let block = blocks.iter().find(|block| block.name == name);
                        block.map(|block| block.values.to_vec())
                    };
                    let weights = class_vectors(&mut |name, _| block(&before, name), own.clone());
                    let square = |numbers: &[f32]| -> f64 {
                        numbers.iter().map(|&x| f64::from(x).powi(2)).sum()
                    };
                    let mut squares = [square(&weights.unwrap()), 0.0];
                    let moved = block(&after, "velocity").unwrap();
                    let held = block(&before, "velocity").unwrap_or_else(|| vec![0.0; moved.len()]);
                    let waited = block(&after, "waited").unwrap();
                    for row in (0..waited.len() / 3).filter(|row| waited[3 * row] == 0.0) {
                        let at = row * D..(row + 1) * D;
                        let rows = moved[at.clone()].iter().zip(&held[at]);
                        let added: Vec<f32> = rows.map(|(v, before)| v - 0.9 * before).collect();
                        squares[1] += square(&added);
                    }
                    comm.all_reduce(&mut squares, pelton_comm::Reduction::Sum)?;
                    steps.push(squares.map(f64::sqrt));
                }
                Ok::<_, HeadError>(steps)
            });
            for [weights, added] in steps.unwrap().remove(0) {
                let expected = 0.5 * 0.1 * weights;
                assert!(
                    (added - expected).abs() < 1e-5 * expected,
                    "{kind}, {ranks} ranks: {added} {expected}"
                );
            }
        }
    }
}

/// NaN weights have no neighbours and no leaf: every rank names their class.
#[test]
fn weights_that_are_not_finite_are_an_error() {
    for kind in [KINDS[1], KINDS[3]] {
        for (ranks, wrong) in [(1, f32::NAN), (2, f32::INFINITY), (3, 1e19)] {
            let options = HeadOptions {
                kind,
                logits: cosine(Margin::NONE),
                classes: 61,
                d: D,
                correct: true,
                centre: false,
                seed: 5,
                precision: Precision::F32,
                scratch_bytes: 0,
            };
            let refused = run_ranks(ranks, |comm| {
                let mut head = class_head(&options, comm)?;
                head.load(&mut |name, rows| {
                    let of_class = |class: u64| vec![if class < 40 { 1.0 } else { wrong }; D];
                    (name == "weights").then(|| rows.flat_map(of_class).collect())
                })?;
                Ok::<_, HeadError>(head.renew(1, &|| false).unwrap_err().to_string())
            });
            for error in refused.unwrap() {
                let said = ["class 40", "not a number", "lower the learning rate"];
                assert!(said.iter().all(|part| error.contains(part)), "{error}");
            }
        }
    }
}

#[test]
fn heads_refuse_what_cannot_be() {
    let options = |kind, classes| HeadOptions {
        kind,
        logits: Logits::Product,
        classes,
        d: 2,
        correct: true,
        centre: false,
        seed: 0,
        precision: Precision::F32,
        scratch_bytes: 0,
    };
    let refused = |options: &HeadOptions| match class_head(options, Comm::alone()) {
        Ok(_) => panic!("{options:?}"),
        Err(error) => error.to_string(),
    };
    let many = KINDS[1];
    assert!(refused(&options(HeadKind::Full, 0)).contains("1 to 4294967295"));
    let mut head = class_head(&options(many, 5), Comm::alone()).unwrap();
    let label = head.select(&[2, 5], 0).unwrap_err().to_string();
    assert!(
        label.contains("label 5, but there are 5 classes"),
        "{label}"
    );
    assert!(matches!(head.select(&[2], 0), Err(HeadError::NotRenewed)));
    assert!(matches!(
        head.renew(1, &|| true),
        Err(HeadError::Interrupted)
    ));
    head.renew(1, &|| false).unwrap();
    // The budget of half the classes is smaller than the batch's own, which take part all the same.
    head.select(&[0, 1, 2, 3, 4], 0).unwrap();
    assert_eq!(head.active(), 5);
    let nan = head.score(&[f32::NAN, 0.0], (&[1]).into(), 1.0, None);
    assert!(matches!(nan, Err(HeadError::NotFinite { example: 0 })));
    let missing = head.load(&mut |_, _| None).unwrap_err().to_string();
    assert!(missing.contains("weights"), "{missing}");
}

#[test]
fn classes_begin_with_numbers_of_their_own_and_all_may_take_part() {
    let options = HeadOptions {
        kind: HeadKind::Sampled { active: 1.0 },
        logits: cosine(Margin::NONE),
        classes: 300,
        d: 16,
        correct: true,
        centre: false,
        seed: 1,
        precision: Precision::F32,
        scratch_bytes: 0,
    };
    let mut head = class_head(&options, Comm::alone()).unwrap();
    let mut bits: Vec<u32> = head.save(true)[0]
        .values
        .iter()
        .map(|x| x.to_bits())
        .collect();
    bits.sort_unstable();
    bits.dedup();
    // Of 4800 numbers a few may be equal by chance.
    assert!(bits.len() > 4790, "{}", bits.len());
    head.select(&[3, 4], 7).unwrap();
    assert_eq!(head.active(), 300);
    assert!(head.top(&[], 3).unwrap().is_empty());
    let part = HeadOptions {
        kind: HeadKind::Sampled { active: 0.5 },
        ..options
    };
    let mut head = class_head(&part, Comm::alone()).unwrap();
    let mean: f64 = (0..100)
        .map(|key| {
            head.select(&[3], key).unwrap();
            head.active() as f64
        })
        .sum::<f64>()
        / 100.0;
    // 150 less two deviations of the draws.
    assert!((mean - 126.0).abs() < 4.0, "{mean}");
}
