//! Flags of `plan-capacity`.

use clap::Args;

use pelton_cli::bytes::Memory;
use pelton_cli::output::{Failure, positive};
use pelton_train::check_share;

/// `plan-capacity`
#[derive(Debug, Args)]
pub struct CapacityArguments {
    /// Training over many classes, instead of feeding data.
    #[command(flatten)]
    pub classes: ClassCapacityArguments,
    /// Numbers of nodes, one rank each
    #[arg(long, value_delimiter = ',', default_value = "16,64,256,1024,4096")]
    pub nodes: Vec<u32>,
    /// Bytes of the data
    #[arg(long, default_value = "1280GB")]
    pub data_size: Memory,
    /// Mean bytes of a record
    #[arg(long, default_value = "110KB")]
    pub record_size: Memory,
    /// Memory of each node for the data: a size, or a share of the data over all nodes (1/4)
    #[arg(long, default_value = "20GB")]
    pub node_memory: Memory,
    /// Examples of a global batch
    #[arg(long, value_parser = whole, default_value = "4096")]
    pub batch: u64,
    /// Bytes that the opportunistic pipeline reads at once
    #[arg(long, default_value = "1MiB")]
    pub unit_size: Memory,
    /// Loads of an epoch of the opportunistic pipeline (default: as few as fit)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub loads: Option<u64>,
    /// Bytes a second into one node over the network (default: 12.5GB; with --classes 3.125GB)
    #[arg(long)]
    pub network: Option<Memory>,
    /// Share of the network's bytes a second that remains when all nodes send: headers of messages, and links they share
    /// (default: 0.95; with --classes 1)
    #[arg(long)]
    pub network_share: Option<f64>,
    /// Microseconds that a message takes in addition to its bytes, with --classes
    #[arg(long, default_value_t = 5.0)]
    pub latency: f64,
    /// Bytes a second that a node copies from its memory into batches
    #[arg(long, default_value = "10GB")]
    pub copying: Memory,
    /// One-sided reads a second into one node
    #[arg(long, default_value_t = 2e6)]
    pub network_reads: f64,
    /// Bytes a second that one node turns into batches, such as `pelton bench` measures (default: not a
    /// limit)
    #[arg(long)]
    pub node_rate: Option<Memory>,
    /// Bytes a second from the backend by all nodes together (default: DeepIO's parallel file system)
    #[arg(long, default_value = "4662.49MB")]
    pub backend: Memory,
    /// Reads a second from the backend at random places (default: hard disks of that bandwidth)
    #[arg(long, default_value_t = 17_071.0)]
    pub backend_reads: f64,
    /// Nodes that it takes to draw the backend's rates
    #[arg(long, default_value_t = 16.0)]
    pub backend_nodes: f64,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

impl CapacityArguments {
    /// The share of the network's rate that remains when all nodes send.
    ///
    /// Errors: a share that is not above 0 and at most 1.
    pub fn network_share(&self, usual: f64) -> Result<f64, Failure> {
        let share = self.network_share.unwrap_or(usual);
        check_share("network_share", share)?;
        positive(share, "network_share")
    }
}

/// `plan-capacity --classes N`: defaults are those of the paper on 100 million classes.
#[derive(Debug, Args)]
#[group(requires = "classes", conflicts_with_all = ["nodes", "data_size", "record_size", "node_memory", "unit_size", "loads", "network_reads", "copying", "node_rate", "backend", "backend_reads", "backend_nodes"])]
pub struct ClassCapacityArguments {
    /// Predict training over this many classes (1e8), instead of feeding data
    #[arg(long, value_name = "N", value_parser = whole)]
    pub classes: Option<u64>,
    /// Numbers of devices
    #[arg(long, value_delimiter = ',', value_parser = whole, default_value = "256")]
    pub devices: Vec<u64>,
    /// Kind of device: v100, a100, h100 or h200, with the figures of its maker
    #[arg(long, default_value = "v100")]
    pub device: String,
    /// Bytes of a device's memory (default: its maker's)
    #[arg(long)]
    pub device_memory: Option<Memory>,
    /// Peak operations a second of a device (default: its maker's, in the precision of --number-bytes)
    #[arg(long)]
    pub device_flops: Option<f64>,
    /// Bytes a second of a device's memory (default: its maker's)
    #[arg(long)]
    pub device_bandwidth: Option<Memory>,
    /// Devices that share a node's network
    #[arg(long, value_parser = whole, default_value = "8")]
    pub node_devices: u64,
    /// Share of the peak that net, head and graph reach: 0.13 gives all published figures within 25 %
    #[arg(long, default_value_t = 0.13)]
    pub peak_share: f64,
    /// Features of an example
    #[arg(long, value_parser = whole, default_value = "512")]
    pub features: u64,
    /// Neighbours of a class in the graph
    #[arg(long, value_parser = whole, default_value = "1000")]
    pub neighbours: u64,
    /// Share of the classes that is active with the graph
    #[arg(long, default_value_t = 0.1)]
    pub active: f64,
    /// Bytes of a weight of the head: 4, or 2 without a master copy
    #[arg(long, default_value = "4", value_parser = ["2", "4"])]
    pub weight_bytes: String,
    /// Bytes of an activation and of a number that travels: 2 (mixed precision) or 4
    #[arg(long, default_value = "2", value_parser = ["2", "4"])]
    pub number_bytes: String,
    /// Train without momentum
    #[arg(long)]
    pub no_momentum: bool,
    /// Examples of a class in an epoch
    #[arg(long, default_value_t = 27.0)]
    pub views: f64,
    /// Epochs
    #[arg(long, default_value_t = 20.0)]
    pub epochs: f64,
    /// Operations of an example in the feature net, forward and backward (default: ResNet-50)
    #[arg(long, default_value_t = 24.6e9)]
    pub net_operations: f64,
    /// Weights of the feature net (default: ResNet-50)
    #[arg(long, default_value_t = 25.6e6)]
    pub net_parameters: f64,
    /// Numbers of an example that the feature net keeps for its backward pass (default: ResNet-50)
    #[arg(long, default_value_t = 22e6)]
    pub net_activations: f64,
    /// Part of the feature net's gradients that is sent once they are selected
    #[arg(long, default_value_t = 0.001)]
    pub density: f64,
    /// Milliseconds to select them (default: Table 6)
    #[arg(long, default_value_t = 11.81)]
    pub selection_ms: f64,
}

/// A whole number from 1 to 1e9, also such as 1e8.
fn whole(text: &str) -> Result<u64, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "not a number: write 1000000 or 1e6".to_string())?;
    if (1.0..=1e9).contains(&number) && number.fract() == 0.0 {
        Ok(number as u64)
    } else {
        Err("not a whole number from 1 to 1e9".to_string())
    }
}
