//! Rows that take part now and then, and rows that wait.

use super::*;

/// Rows that take part now and then move as if momentum were applied in every step, with gradients of 0 in between;
/// rates and momentum change from step to step.
#[test]
fn rows_that_wait_move_with_their_momentum() {
    let (classes, d) = (7, 4);
    let sgd = |nesterov| Rule::Sgd {
        momentum: 0.0,
        nesterov,
    };
    for rule in [sgd(false), sgd(true), LARS] {
        let weights = numbers(classes * d, 3);
        let mut head = Head::new(
            ClassRows::new(0, d, weights.clone()),
            cosine(Margin::NONE),
            Precision::F32,
            classes as u64,
            0,
        );
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let (mut w, mut v) = (wide(&weights), vec![0.0; classes * d]);
        for step in 0..300u64 {
            let active: Vec<u32> = (0..classes as u32)
                .filter(|&row| {
                    row == 0 || mix(step ^ (u64::from(row) << 40)).is_multiple_of(5) && step < 200
                })
                .collect();
            let (rate, momentum) = (
                0.1 + 0.3 * (step % 3) as f32,
                [0.9, 0.5, 0.95][step as usize % 3],
            );
            let rule = match rule {
                Rule::Sgd { nesterov, .. } => Rule::Sgd { momentum, nesterov },
                Rule::Lars { trust, .. } => Rule::Lars { momentum, trust },
                adamw => adamw,
            };
            let counts = vec![1.0; active.len()];
            head.wake(Active::Rows(&active, &counts));
            let before = head.rows().weights().to_vec();
            for &row in &active {
                let at = row as usize * d..(row as usize + 1) * d;
                for (w, before) in w[at.clone()].iter().zip(&before[at]) {
                    assert!(
                        (w - f64::from(*before)).abs() < 2e-5,
                        "step {step}: {w} {before}"
                    );
                }
            }
            let features = numbers(2 * d, step);
            let mut scored = head
                .score(&features, (&[0, 0]).into(), Active::Rows(&active, &counts))
                .unwrap();
            head.reduce(&mut scored, 0.5, None, &Comm::alone()).unwrap();
            let update = Update {
                rule,
                rate,
                weight_decay: 1e-3,
                scale: 1.0,
            };
            head.update(std::slice::from_ref(&scored), &update, &Comm::alone())
                .unwrap();
            // For active rows the step shows the gradient.
            let factor = match rule {
                Rule::Sgd { .. } => f64::from(rate),
                _ => 1.0,
            };
            for row in 0..classes {
                for i in row * d..(row + 1) * d {
                    v[i] *= f64::from(momentum);
                    let mut gradient = 0.0;
                    if active.contains(&(row as u32)) {
                        gradient = f64::from(head.rows().velocity[i]) - v[i];
                        v[i] += gradient;
                    }
                    w[i] -= factor
                        * match rule {
                            Rule::Sgd { nesterov: true, .. } => {
                                gradient + f64::from(momentum) * v[i]
                            }
                            _ => v[i],
                        };
                }
            }
        }
        head.wake(Active::All);
        let found = wide(head.rows().weights());
        for (w, found) in w.iter().zip(found) {
            assert!((w - found).abs() < 2e-5, "{w} {found}");
        }
        assert!(
            wide(&weights[d..])
                .iter()
                .zip(&w[d..])
                .any(|(a, b)| (a - b).abs() > 1e-3)
        );
    }
}

/// With AdamW rows that take no part stay, the others take the steps of its definition with their own counts of steps,
/// and a velocity of another rule is taken to its end first.
#[test]
fn rows_of_adamw_wait_where_they_are() {
    let (classes, d) = (5, 4);
    let weights = numbers(classes * d, 3);
    let rows = ClassRows::new(0, d, weights);
    let mut head = Head::new(
        rows,
        cosine(Margin::NONE),
        Precision::F32,
        classes as u64,
        0,
    );
    let (b1, b2) = (f64::from(0.9f32), f64::from(0.99f32));
    let adamw = Rule::AdamW {
        mean_decay: 0.9,
        square_decay: 0.99,
        epsilon: 1e-6,
    };
    let momentum = Rule::Sgd {
        momentum: 0.9,
        nesterov: false,
    };
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let [mut m, mut v] = [(); 2].map(|()| vec![0.0; classes * d]);
    let (mut steps, mut expected) = (vec![0; classes], vec![]);
    for step in 0..40u64 {
        let active: Vec<u32> = (0..classes as u32)
            .filter(|&row| row == 0 || (step + u64::from(row)).is_multiple_of(3))
            .collect();
        let counts = vec![1.0; active.len()];
        head.wake(Active::Rows(&active, &counts));
        let features = numbers(2 * d, step);
        let mut scored = head
            .score(&features, (&[0, 0]).into(), Active::Rows(&active, &counts))
            .unwrap();
        head.reduce(&mut scored, 0.5, None, &Comm::alone()).unwrap();
        let update = Update {
            rule: if step < 3 { momentum } else { adamw },
            rate: 0.01,
            weight_decay: 0.1,
            scale: 1.0,
        };
        if step == 3 {
            let mut settled = head.clone();
            settled.wake(Active::All);
            expected = wide(settled.rows().weights());
        }
        head.update(std::slice::from_ref(&scored), &update, &Comm::alone())
            .unwrap();
        if step < 3 {
            continue;
        }
        for row in active.iter().map(|&row| row as usize) {
            steps[row] += 1;
            let corrected = |x: f64, decay: f64| x / (1.0 - decay.powi(steps[row]));
            for i in row * d..(row + 1) * d {
                // The mean shows the gradient.
                let gradient = (f64::from(head.rows().velocity[i]) - b1 * m[i]) / (1.0 - b1);
                m[i] = b1 * m[i] + (1.0 - b1) * gradient;
                v[i] = b2 * v[i] + (1.0 - b2) * gradient * gradient;
                let root = corrected(v[i], b2).sqrt() + 1e-6;
                expected[i] -= 0.01 * (0.1 * expected[i] + corrected(m[i], b1) / root);
            }
        }
        for (w, expected) in wide(head.rows().weights()).iter().zip(&expected) {
            assert!((w - expected).abs() < 1e-5, "step {step}: {w} {expected}");
        }
    }
    assert_eq!(steps, [37, 12, 12, 13, 12]);
}

#[test]
fn saved_vectors_have_moved_as_far_as_those_that_settle() {
    let d = 7;
    let options = HeadOptions {
        kind: "sampled:0.2".parse().unwrap(),
        logits: Logits::Product,
        classes: 40,
        d,
        correct: true,
        centre: true,
        precision: Precision::F32,
        seed: 5,
        scratch_bytes: 1 << 20,
    };
    let mut head = class_head(&options, Comm::alone()).unwrap();
    let update = Update {
        rule: Rule::Sgd {
            momentum: 0.9,
            nesterov: false,
        },
        rate: 0.5,
        weight_decay: 0.0,
        scale: 1.0,
    };
    let labels = [3, 17, 8];
    for step in 0..6 {
        head.select(&labels, step).unwrap();
        let mut rng = KeyedRng::new(step);
        let features: Vec<f32> = (0..3 * d)
            .map(|_| 2.0 * rng.next_f64() as f32 - 1.0)
            .collect();
        head.score(&features, (&labels).into(), 1.0, None).unwrap();
        head.update(&update).unwrap();
    }
    let vectors = |head: &dyn ClassHead| {
        let saved = head.save(true);
        let mut read = |name: &str, rows: std::ops::Range<u64>| {
            let block = saved.iter().find(|block| block.name == name)?;
            let at = |row: u64| row as usize * block.width;
            Some(block.values[at(rows.start)..at(rows.end)].to_vec())
        };
        (
            read("weights", 0..40).unwrap(),
            class_vectors(&mut read, 0..40).unwrap(),
        )
    };
    let (raw, moved) = vectors(head.as_ref());
    assert_ne!(raw, moved);
    head.settle();
    let (raw, settled) = vectors(head.as_ref());
    assert_eq!((&raw, &moved), (&settled, &settled));
}
