//! Which rank takes which slot of a global batch, so that most elements are on the rank that uses them.
//!
//! In synchronous training a step uses the whole global batch, no matter which rank computes which part:
//! assigning its slots to the ranks that hold their elements changes neither the batch, its randomness nor the
//! step's result, only the traffic. DeepIO's ranks take a fixed run of slots each, and (R − 1)/R of the bytes are
//! remote.

use crate::split::local_slots;

/// The rank that takes each slot of a global batch: its holder as far as shares allow.
///
/// `holders[i]` is the rank that holds the element of slot i; a number from `world_size` on means that no rank
/// does. Every rank takes as many slots as [`local_slots`] gives it, so that ranks stay equally loaded. Slots go,
/// in order, to their holders while these have room; those left over go, in order, to the ranks with room, in rank
/// order. No other assignment with these shares makes more slots local: a rank can take at most min(its share, its
/// elements) of its own, and it takes exactly that. Deterministic; every rank computes the same from the same
/// batch.
///
/// **How much stays remote.** Let B slots have holders that are equally likely to be any of R ranks,
/// as when the ranks hold equal shares of the data and the batch is a uniformly random sample of it.
/// h_r slots have the holder r, Σ h_r = B, E h_r = B/R. Were shares exactly B/R, then Σ (h_r − B/R)⁺
/// slots would be remote, half of Σ |h_r − B/R| because the deviations sum to 0. Each h_r has at most
/// the binomial variance B·(R − 1)/R² (less when sampling without replacement), so that by Jensen
/// E |h_r − B/R| ≤ √(B·(R − 1))/R, and the expected remote share is at most
///
/// ½ · R/B · √(B·(R − 1))/R = ½·√((R − 1)/B).
///
/// Shares are whole numbers: with x = B mod R, R − x ranks take x/R less than B/R, which adds at
/// most x·(R − x)/(R·B) ≤ R/(4·B). [`expected_remote_share`] is this sum. Without the assignment
/// (R − 1)/R are remote.
///
/// Cost: O(B + R). Asserts `world_size > 0`.
///
/// ```
/// use pelton_plan::assign_slots;
/// // Rank 1 holds three elements and takes two of them; slot 3, held by nobody, and slot 2 go where
/// // room is left.
/// assert_eq!(assign_slots(&[1, 1, 1, 9, 0, 2], 3), [1, 1, 0, 2, 0, 2]);
/// ```
pub fn assign_slots(holders: &[u32], world_size: u32) -> Vec<u32> {
    assert!(world_size > 0, "a batch needs a rank to take it");
    let mut room: Vec<u64> = (0..world_size)
        .map(|rank| {
            let slots = local_slots(holders.len() as u64, rank, world_size);
            slots.end - slots.start
        })
        .collect();
    let mut takers = vec![world_size; holders.len()];
    for (taker, &holder) in takers.iter_mut().zip(holders) {
        if let Some(room) = room.get_mut(holder as usize).filter(|room| **room > 0) {
            *room -= 1;
            *taker = holder;
        }
    }
    let mut rank = 0;
    for taker in takers.iter_mut().filter(|taker| **taker == world_size) {
        // Rooms sum to the slots, so that some rank has room while a slot is left.
        while room[rank] == 0 {
            rank += 1;
        }
        room[rank] -= 1;
        *taker = rank as u32;
    }
    takers
}

/// The most, on average, of a global batch that [`assign_slots`] leaves remote when holders are
/// equally likely to be any of the ranks: ½·√((R − 1)/B) and the rounding of shares, and never more
/// than the (R − 1)/R of a fixed split. 0 for one rank or an empty batch.
pub fn expected_remote_share(batch: u64, ranks: u32) -> f64 {
    if batch == 0 || ranks <= 1 {
        return 0.0;
    }
    let (b, r) = (batch as f64, f64::from(ranks));
    let longer = (batch % u64::from(ranks)) as f64;
    let rounding = longer * (r - longer) / (r * b);
    let bound = 0.5 * ((r - 1.0) / b).sqrt() + rounding;
    bound.min((r - 1.0) / r)
}
