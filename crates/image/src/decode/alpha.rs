//! Alpha, which is dropped.

/// Drops the last of `CHANNELS` + 1 channels in place, keeping the memory.
pub(super) fn drop_alpha<const CHANNELS: usize>(data: &mut Vec<u8>) {
    let pixels = data.len() / (CHANNELS + 1);
    for pixel in 1..pixels {
        let from = pixel * (CHANNELS + 1);
        data.copy_within(from..from + CHANNELS, pixel * CHANNELS);
    }
    data.truncate(pixels * CHANNELS);
}
