//! The best classes of records by a net.

use pelton_nn::{Input, NnError, Trainer};

/// The best classes of a row with their scores, the best first.
pub type Ranked = Vec<(u64, f32)>;

/// The `k` best classes of each row; scores are those of a head over many classes, otherwise probabilities.
pub fn best_classes(
    trainer: &mut dyn Trainer,
    input: Input<'_>,
    k: usize,
) -> Result<Vec<Ranked>, NnError> {
    if trainer.head().is_some() {
        return trainer.top(input, k);
    }
    let logits = trainer.logits(input)?;
    let best = |row: &[f32]| {
        let shares = softmax(row, 1.0);
        let best = likeliest(row, k).into_iter();
        best.map(|class| (class as u64, shares[class] as f32))
            .collect()
    };
    Ok(logits.chunks(trainer.net().classes).map(best).collect())
}

/// The indices of the largest numbers, the largest first; of equal ones the first.
pub(crate) fn likeliest(logits: &[f32], top: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    order.truncate(top.max(1));
    order
}

/// The probabilities of logits, divided by `temperature`.
pub(crate) fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let power = |&x: &f32| (f64::from(x - most) / temperature).exp();
    let powers: Vec<f64> = logits.iter().map(power).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|x| x / sum).collect()
}
