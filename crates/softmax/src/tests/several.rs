//! Several classes of an example, against the example repeated with each of them.

use super::heads::{KINDS, NEAR, SGD, assert_close, values};
use super::*;

const COUNTS: [usize; 7] = [2, 0, 3, 1, 1, 4, 2];

/// Loss of a step and of all classes, gradient of the features and saved blocks, of all ranks.
fn stepped(kind: HeadKind, logits: Logits, repeated: bool, comm: &Comm) -> Vec<Vec<f64>> {
    let options = HeadOptions {
        kind,
        logits,
        classes: 61,
        d: D,
        correct: true,
        centre: false,
        seed: 5,
        precision: Precision::F32,
        scratch_bytes: 1 << 20,
    };
    let once = numbers(COUNTS.len() * D, 3);
    // Some of one example fall into the same bucket of MACH.
    let classes: Vec<u64> = (0..13).map(|i| i * 9 % 61).collect();
    let factors: Vec<f32> = numbers(13, 8).iter().map(|x| x.abs()).collect();
    let owners = COUNTS.iter().enumerate();
    let owners = owners.flat_map(|(row, &count)| std::iter::repeat_n(row, count));
    let owners: Vec<usize> = owners.collect();
    let rows = owners.iter().map(|row| &once[row * D..][..D]);
    let (features, labels) = if repeated {
        (rows.collect::<Vec<_>>().concat(), (&classes).into())
    } else {
        let counts = Some(&COUNTS[..]);
        (
            once.clone(),
            Labels {
                classes: &classes,
                counts,
            },
        )
    };
    let mut head = class_head(&options, comm.duplicate().unwrap()).unwrap();
    head.renew(1, &|| false).unwrap();
    head.select(&classes, 7).unwrap();
    let scored = head.score(&features, labels, 0.2, Some(&factors));
    let (sums, mut gradient) = scored.unwrap();
    comm.all_reduce(&mut gradient, pelton_comm::Reduction::Sum)
        .unwrap();
    if repeated {
        let mut summed = vec![0.0; once.len()];
        for (row, from) in owners.iter().zip(gradient.chunks_exact(D)) {
            let own = &mut summed[row * D..][..D];
            own.iter_mut().zip(from).for_each(|(sum, g)| *sum += g);
        }
        gradient = summed;
    }
    let update = Update {
        rule: SGD,
        rate: 0.5,
        weight_decay: 0.0,
        scale: 1.0,
    };
    head.update(&update).unwrap();
    let all = head.evaluate(&features, labels, Some(&factors)).unwrap();
    let right: Vec<f64> = if repeated {
        let of = |row| {
            owners
                .iter()
                .zip(&all.right)
                .any(|(of, right)| *of == row && *right)
        };
        (0..COUNTS.len())
            .map(|row| f64::from(u8::from(of(row))))
            .collect()
    } else {
        all.right
            .iter()
            .map(|&right| f64::from(u8::from(right)))
            .collect()
    };
    let gradient = gradient.iter().map(|&g| f64::from(g)).collect();
    vec![
        vec![sums.loss, all.loss],
        right,
        gradient,
        values(&head.save(true)),
    ]
}

#[test]
fn several_classes_are_the_example_repeated() {
    let kinds = KINDS.into_iter().filter(|kind| *kind != NEAR);
    // `near` draws by features, of which there are fewer.
    for kind in kinds.chain([HeadKind::Near { active: 1.0 }]) {
        for scale in [8.0, 300.0] {
            for margin in [Margin::NONE, Margin::angle(0.4), COMBINED] {
                let logits = Logits::Cosine { scale, margin };
                for ranks in 1..=3 {
                    let found = run_ranks(ranks, |comm: Comm| {
                        let of = |repeated| stepped(kind, logits, repeated, &comm);
                        Ok::<_, HeadError>((of(false), of(true)))
                    });
                    for (found, expected) in found.unwrap() {
                        for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
                            let what = format!("{kind} {logits}, {ranks} ranks, part {part}");
                            assert_close(&what, found, expected);
                        }
                    }
                }
            }
        }
    }
}
