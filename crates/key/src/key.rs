//! Keys: every random decision is made from hash(seed, epoch, stage).
//!
//! Adding seed and epoch, as is often done, makes seed 0 epoch 1 the same as seed 1 epoch 0: a run
//! repeated with the next seed then sees the same orders one epoch later. Each argument here goes
//! through a full 64-bit mix before the next one enters, so for two fixed arguments the key is a
//! bijection of the third, and no simple relation between arguments carries over.
//!
//! A key has 64 bits because a seed has: a run can reach 2^64 of the N! orders of its records.

use crate::mix::{GOLDEN_GAMMA, mix};

/// The purpose of a key. Two stages of one epoch never share a key.
///
/// The numbers behind the stages are part of the golden vectors and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The order of records or units in an epoch.
    Order,
    /// The order of blocks in an epoch.
    BlockOrder,
    /// The assignment of records to blocks, made once for all epochs (use epoch 0).
    BlockAssignment,
    /// The draws of a shuffle buffer in an epoch.
    Queue,
    /// The one shuffle of the file before a shuffle buffer reads it (use epoch 0).
    InitialShuffle,
    /// The order in which the units of an opportunistic order are loaded in an epoch.
    LoadUnits,
    /// The order of the records of one load in an epoch; the number is the load's.
    LoadRecords(u64),
    /// The order of packed rows within one look-ahead of an epoch; the number is the look-ahead's.
    PackedRows(u64),
    /// The order of the repeats of one window of an epoch; the number is the window's.
    Echo(u64),
    /// The order of the repeats of one window of batches; the number is the window's.
    BatchEcho(u64),
    /// The order in which one pass over a part of a mixture takes its records (the pass is used as the epoch); the
    /// number is the part's.
    Part(u64),
    /// The parts of a mixture's examples: the choice's index among those of one node is used as the epoch; the number
    /// is the node's.
    Mixed(u64),
    /// Augmentation of the examples of an epoch.
    Augment,
    /// The repeats drawn while the consumer waits, distinguished by the batches of repeats before (used as the epoch)
    /// and the number of the round.
    EchoDraw(u64),
    /// The order in which a solver visits its rows; the number identifies the block.
    Inner(u64),
    /// The choice of records held out of training (use epoch 0).
    HeldOut,
    /// Generated data; the number identifies generator and column.
    Demo(u32),
    /// Samples drawn for checks and probes.
    Sample(u32),
    /// The words that a language model generates (use epoch 0).
    Words,
    /// Dropout in an epoch.
    Dropout,
    /// Parameters of a net before training (use epoch 0).
    Parameters,
}

impl Stage {
    #[inline]
    fn words(self) -> (u64, u64) {
        match self {
            Stage::Order => (1, 0),
            Stage::BlockOrder => (2, 0),
            Stage::BlockAssignment => (3, 0),
            Stage::Queue => (4, 0),
            Stage::InitialShuffle => (5, 0),
            Stage::Inner(number) => (6, number),
            Stage::Demo(number) => (7, u64::from(number)),
            Stage::Sample(number) => (8, u64::from(number)),
            Stage::LoadUnits => (9, 0),
            Stage::LoadRecords(load) => (10, load),
            Stage::PackedRows(window) => (12, window),
            Stage::Echo(window) => (13, window),
            Stage::BatchEcho(window) => (15, window),
            Stage::Part(part) => (16, part),
            Stage::Mixed(node) => (22, node),
            Stage::Augment => (14, 0),
            Stage::EchoDraw(round) => (17, round),
            Stage::Words => (21, 0),
            Stage::Dropout => (20, 0),
            Stage::Parameters => (19, 0),
            Stage::HeldOut => (18, 0),
        }
    }
}

/// The key of one random decision.
///
/// ```
/// use pelton_key::{Stage, key};
/// assert_ne!(key(0, 1, Stage::Order), key(1, 0, Stage::Order));
/// ```
#[inline]
pub fn key(seed: u64, epoch: u64, stage: Stage) -> u64 {
    let (kind, number) = stage.words();
    let mut state = mix(seed.wrapping_add(GOLDEN_GAMMA));
    for word in [epoch, kind, number] {
        state = mix(state.wrapping_add(word).wrapping_mul(GOLDEN_GAMMA) ^ 0x5045_4C54_4F4E_0001);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_small_arguments_share_a_key() {
        let mut seen = HashSet::new();
        let mut keys = 0;
        for seed in 0..40 {
            for epoch in 0..40 {
                for stage in [
                    Stage::Order,
                    Stage::BlockOrder,
                    Stage::BlockAssignment,
                    Stage::Queue,
                    Stage::InitialShuffle,
                    Stage::Inner(0),
                    Stage::Inner(1),
                    Stage::Demo(0),
                    Stage::Demo(1),
                    Stage::Sample(0),
                    Stage::LoadUnits,
                    Stage::LoadRecords(0),
                    Stage::LoadRecords(1),
                    Stage::PackedRows(0),
                    Stage::PackedRows(1),
                    Stage::Echo(0),
                    Stage::Echo(1),
                    Stage::BatchEcho(0),
                    Stage::BatchEcho(1),
                    Stage::Part(0),
                    Stage::Part(1),
                    Stage::Mixed(0),
                    Stage::Mixed(1),
                    Stage::Augment,
                    Stage::EchoDraw(0),
                    Stage::EchoDraw(1),
                    Stage::HeldOut,
                ] {
                    seen.insert(key(seed, epoch, stage));
                    keys += 1;
                }
            }
        }
        assert_eq!(seen.len(), keys);
    }

    /// `key(7, 3, 14)` and `key(0, 0, 14)` of `tests/golden/orders.py`.
    #[test]
    fn keys_of_augmentation_stay() {
        assert_eq!(key(7, 3, Stage::Augment), 0xF24F_80D2_3F44_6D0E);
        assert_eq!(key(0, 0, Stage::Augment), 0xCDED_8A76_D237_7C31);
    }

    #[test]
    fn every_seed_bit_moves_about_half_of_the_key() {
        for bit in 0..64 {
            let mut flips = 0;
            for seed in 0..256_u64 {
                let change = key(seed, 3, Stage::Order) ^ key(seed ^ (1 << bit), 3, Stage::Order);
                flips += change.count_ones();
            }
            let mean = f64::from(flips) / 256.0;
            // 256 keys × 64 fair bits: standard deviation of the mean 0.25.
            assert!((mean - 32.0).abs() < 1.5, "bit {bit}: {mean} bits change");
        }
    }
}
