//! How much is asked of a server at once, and how long for.

use std::time::Duration;

/// How much is asked of a server at once, and how long for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Requests under way at once, over all files.
    pub in_flight: usize,
    /// Most bytes of a request; longer ranges are several.
    pub request_bytes: u64,
    /// Largest hole between two ranges that is fetched over instead of making another request.
    pub gap_bytes: u64,
    /// How long a server may send nothing before the request is made again.
    pub stall: Duration,
    /// How long one request is made again, next to the time that its bytes take at 64 KiB a second.
    pub deadline: Duration,
}

/// Bytes a second at which a request still ends within its deadline.
pub(crate) const SLOWEST: u64 = 64 << 10;

impl Default for RemoteOptions {
    /// 128 requests of at most 1 MiB: with 20 ms before the first byte some 6 000 records a second, and 1 GB/s and
    /// more of longer ranges.
    fn default() -> RemoteOptions {
        RemoteOptions {
            in_flight: 128,
            request_bytes: 1 << 20,
            gap_bytes: 64 << 10,
            stall: Duration::from_secs(10),
            deadline: Duration::from_secs(60),
        }
    }
}
