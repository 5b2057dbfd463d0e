//! The memory of the scatter path in addition to panes.

use pelton_format::Dataset;

use crate::kept_bitmap;
use crate::options::FetchOptions;

/// Panes planned beyond those there is memory for, so loading continues while the consumer plans; none if the
/// consumer chooses records by its progress.
pub(crate) fn panes_ahead(options: &FetchOptions) -> u64 {
    u64::from(!options.epoch_barrier)
}

/// Bytes of the budget that bucket buffers may take, for tails and for transfers. A consumer that
/// declines records learns from batch to batch, so that larger batches save reads; its buckets are many and their
/// blocks small.
pub(crate) fn buffer_bytes(options: &FetchOptions) -> u64 {
    let part = if options.epoch_barrier { 8 } else { 4 };
    options.memory_bytes / part
}

/// Bytes of them for tails.
pub(crate) fn tail_bytes(options: &FetchOptions) -> u64 {
    let buffers = buffer_bytes(options);
    if options.epoch_barrier {
        buffers / 4 * 3
    } else {
        buffers / 2
    }
}

/// Bytes of the budget that are not for panes.
pub(crate) fn reserved_bytes(dataset: &Dataset, options: &FetchOptions) -> u64 {
    let kept = if options.epoch_barrier {
        dataset.records() as f64 * kept_bitmap::BYTES_PER_POSITION
    } else {
        0.0
    };
    buffer_bytes(options) + kept as u64
}
