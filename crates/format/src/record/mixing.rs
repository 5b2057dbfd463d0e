//! Mixing values into a hash.

/// Mixes `value` into `hash`.
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    pelton_key::splitmix64(hash ^ value)
}
