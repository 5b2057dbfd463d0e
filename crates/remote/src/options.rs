//! Limits of requests to servers.

use std::time::Duration;

/// Limits of requests to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Requests in flight at once, over all files.
    pub in_flight: usize,
    /// Most bytes of a request; longer ranges are several.
    pub request_bytes: u64,
    /// Largest gap between two ranges that is fetched instead of making another request.
    pub gap_bytes: u64,
    /// Longest silence of a server before the request is repeated.
    pub stall: Duration,
    /// How long one request is repeated, in addition to the time of its bytes at 64 KiB a second.
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
