//! The best classes of examples.

use pelton_comm::Comm;

use crate::error::HeadError;

/// The `k` best of the pushed classes; of equal scores the class with the smaller id.
#[derive(Clone, Debug)]
pub(crate) struct Best {
    k: usize,
    kept: Vec<(u64, f32)>,
    least: f32,
}

impl Best {
    pub(crate) fn new(k: usize) -> Best {
        Best {
            k,
            kept: Vec::new(),
            least: f32::NEG_INFINITY,
        }
    }

    /// Scores below it are not among the best.
    #[inline]
    pub(crate) fn least(&self) -> f32 {
        self.least
    }

    /// The best of both.
    pub(crate) fn merged(mut self, other: Best) -> Best {
        self.kept.extend(other.kept);
        self.cut();
        self
    }

    pub(crate) fn push(&mut self, class: u64, score: f32) {
        if score < self.least {
            return;
        }
        self.kept.push((class, score));
        if self.kept.len() >= 2 * self.k + 16 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.kept
            .sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        self.kept.truncate(self.k);
        if let Some(last) = self.kept.get(self.k.wrapping_sub(1)) {
            self.least = last.1;
        }
    }

    pub(crate) fn sorted(mut self) -> Vec<(u64, f32)> {
        self.cut();
        self.kept
    }
}

/// The best of all ranks, from those of each.
pub(crate) fn best_of_all(
    best: Vec<Best>,
    k: usize,
    comm: &Comm,
) -> Result<Vec<Vec<(u64, f32)>>, HeadError> {
    let batch = best.len();
    let lists: Vec<Vec<(u64, f32)>> = best.into_iter().map(Best::sorted).collect();
    if comm.size() == 1 {
        return Ok(lists);
    }
    let flat = lists.iter().flat_map(|list| {
        list.iter()
            .map(|&(class, score)| [class, score.to_bits().into()])
    });
    let mut message: Vec<u64> = lists.iter().map(|list| list.len() as u64).collect();
    message.extend(flat.flatten());
    let mut all = vec![Best::new(k); batch];
    for from_rank in comm.all_gather_ragged(&message)? {
        let (counts, mut rest) = from_rank.split_at(batch);
        for (best, &count) in all.iter_mut().zip(counts) {
            let (list, after) = rest.split_at(2 * count as usize);
            for pair in list.chunks_exact(2) {
                best.push(pair[0], f32::from_bits(pair[1] as u32));
            }
            rest = after;
        }
    }
    Ok(all.into_iter().map(Best::sorted).collect())
}
