//! The flags of peers' memory.

use anyhow::Result;
use clap::{Args, ValueEnum};
use pelton_tools::bench::{PeerConfig, PeerMode};

use crate::bytes::Memory;
use crate::data_arguments::refuse_idle;

/// Caches between the backend and the feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheKind {
    /// The memory of all ranks
    Peers,
}

/// The memory of all ranks between the backend and the feeds.
#[derive(Debug, Args)]
pub struct PeerArguments {
    /// Cache the data in the memory of all ranks: peers
    #[arg(long, value_enum)]
    pub cache: Option<CacheKind>,
    /// Memory for this cache, of all ranks together: a size, or a share of the data
    #[arg(long, default_value = "1/1", requires = "cache")]
    pub peer_memory: Memory,
    /// How to read data larger than that: ordered (in exactly the order asked for) or opportunistic[:LOADS]
    /// (from what is in memory, load by load; by default with as few loads an epoch as fit)
    #[arg(long, default_value = "ordered", requires = "cache")]
    pub mode: PeerMode,
    /// Bytes that --mode opportunistic reads from the backend at once (default: 1MiB)
    #[arg(long, requires = "cache")]
    pub unit_bytes: Option<Memory>,
    /// Assign the slots of a batch to ranks in runs, not to the ranks that hold the records: true or false
    /// (default: true for nets with batch norm, which need records of many classes on each rank; otherwise
    /// false)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", requires = "cache")]
    pub anywhere: Option<bool>,
}

impl PeerArguments {
    /// What was asked for.
    pub fn config(self) -> Result<Option<PeerConfig>> {
        let Some(CacheKind::Peers) = self.cache else {
            return Ok(None);
        };
        let (memory_bytes, memory_share) = match self.peer_memory {
            Memory::Bytes(bytes) => (bytes, None),
            Memory::Share(share) => (0, Some(share)),
        };
        refuse_idle(&[(
            self.unit_bytes.is_some() && self.mode == PeerMode::Ordered,
            "--unit-bytes",
            "with --mode ordered".to_string(),
        )])?;
        let unit_bytes = self.unit_bytes.map(|bytes| {
            let what = "--unit-bytes takes a size such as 256MiB, not a share";
            bytes.bytes().ok_or_else(|| anyhow::anyhow!(what))
        });
        Ok(Some(PeerConfig {
            memory_bytes,
            memory_share,
            mode: self.mode,
            unit_bytes: unit_bytes.transpose()?.unwrap_or(1 << 20),
            near: self.anywhere.map(|anywhere| !anywhere),
        }))
    }
}
