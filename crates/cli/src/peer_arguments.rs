//! The flags of peers' memory.

use anyhow::Result;
use clap::{Args, ValueEnum};
use pelton_tools::bench::{PeerConfig, PeerMode};

use crate::bytes::Memory;

/// What lies between the backend and the feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheKind {
    /// The memory of all ranks
    Peers,
}

/// The memory of all ranks between the backend and the feeds.
#[derive(Debug, Args)]
pub struct PeerArguments {
    /// Read through the memory of all ranks: peers
    #[arg(long, value_enum)]
    pub cache: Option<CacheKind>,
    /// Memory of all ranks together for the data: a size, or a share of the data
    #[arg(long, default_value = "1/1", requires = "cache")]
    pub peer_memory: Memory,
    /// How data larger than that is taken: ordered (in exactly the order asked for) or opportunistic[:LOADS]
    /// (from what is in memory, load by load; by default as few loads an epoch as fit)
    #[arg(long, default_value = "ordered", requires = "cache")]
    pub mode: PeerMode,
    /// Bytes that --mode opportunistic reads from the backend at once
    #[arg(long, default_value = "1MiB", requires = "cache")]
    pub unit_bytes: Memory,
    /// Deal out the slots of a batch in runs, instead of to the ranks that hold their records
    #[arg(long, requires = "cache")]
    pub anywhere: bool,
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
        Ok(Some(PeerConfig {
            memory_bytes,
            memory_share,
            mode: self.mode,
            unit_bytes: self.unit_bytes.bytes("--unit-bytes")?,
            near: !self.anywhere,
        }))
    }
}
