//! Predictions of the capacity model for the runs measured here, and for more nodes.

use crate::node_capacity::{Cluster, PredictedPipeline, Workload, predict};
use pelton_storage::{DeviceModel, PAGE_BYTES};
use pelton_tools::bench::PeerMode;
use serde_json::{Value, json};

use super::read_path::{Measured, ReadPath, Shape, row};
use crate::experiment::SetConfig;
use crate::table::Row;

/// Assumptions of the predictions.
pub(super) const ASSUMPTIONS: &str = "predictions: stages overlap and the slowest decides; copying and decoding as fast a node as measured here with one rank, 12.5 GB/s and 2 million one-sided reads a second into a node (stated), backend as modelled here and shared by all nodes from 16 on; no contention in the network, no caches in the backend's servers, no consumer";

/// Node counts to predict.
const NODES: [u32; 5] = [16, 64, 256, 1024, 4096];
/// Data, and memory of a node, for predictions: at 16 nodes memory holds a quarter.
const DATA_BYTES: f64 = 1.28e12;
const NODE_MEMORY_BYTES: f64 = 20e9;
/// The paper's backend rates on 16 nodes, in MB/s: 10 GB a node, and 512 MB a node, which servers and clients cache.
const PUBLISHED_LARGE: f64 = 4662.49;
const PUBLISHED_SMALL: f64 = 7411.98;

/// The model compared with measured rates, with published rates, and for larger clusters.
pub(super) fn rows(set: &SetConfig, shape: Shape, all: &[Measured]) -> Vec<Row> {
    let one = all
        .iter()
        .find(|measured| measured.ranks == 1 && measured.way == ReadPath::Near);
    let Some(one) = one else {
        return Vec::new();
    };
    let node = one.median(|run| run.bytes_per_s);
    let cluster = cluster(node);
    let record_bytes = one.median(|run| run.used_bytes as f64 / run.examples.max(1) as f64);
    let unit_bytes = shape.unit_bytes as f64;
    let mut rows = Vec::new();
    // All ranks share this machine's cores.
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    for measured in all {
        let (pipeline, near) = match measured.way {
            ReadPath::Backend => (PredictedPipeline::Backend, false),
            ReadPath::Hybrid(PeerMode::Ordered, _) => (PredictedPipeline::Ordered, true),
            ReadPath::Hybrid(PeerMode::Opportunistic { .. }, _) => {
                (PredictedPipeline::Opportunistic, true)
            }
            ReadPath::Anywhere | ReadPath::Near => continue,
        };
        let loads = match measured.way {
            ReadPath::Hybrid(PeerMode::Opportunistic { loads }, _) => loads,
            _ => None,
        };
        let ranks = measured.ranks as f64;
        let shared = (cores / ranks).min(1.0);
        let epochs = measured.way.epochs() as f64;
        let data_bytes = measured.median(|run| run.used_bytes as f64) / epochs;
        let workload = Workload {
            nodes: measured.ranks as u32,
            data_bytes,
            record_bytes,
            batch: shape.batch,
            memory_bytes: measured.way.memory() * data_bytes / ranks,
            unit_bytes,
            loads,
            near,
        };
        let cluster = Cluster {
            local_bytes_per_s: cluster.local_bytes_per_s * shared,
            network_bytes_per_s: cluster.local_bytes_per_s * shared,
            decode_bytes_per_s: cluster.decode_bytes_per_s * shared,
            ..cluster
        };
        let predicted = predict(&cluster, &workload, pipeline).seconds;
        let seconds = measured.median(|run| run.taking_s()) / epochs;
        let method = format!("ranks {}, {}", measured.ranks, measured.way.name());
        let figure = "measured seconds of an epoch over predicted";
        rows.push(row(
            set,
            method,
            figure,
            seconds / predicted,
            "this machine, backend modelled",
        ));
    }
    rows.extend(beside_published(set, &cluster));
    rows.extend(beyond(set, &cluster, record_bytes, unit_bytes));
    rows
}

/// The backend of `--device-model pfs`, for 16 nodes and more; nodes as fast as one rank here.
fn cluster(node_bytes_per_s: f64) -> Cluster {
    const SHARERS: f64 = 16.0;
    let share = DeviceModel::parallel_file_system();
    Cluster {
        local_bytes_per_s: node_bytes_per_s,
        network_bytes_per_s: 12.5e9,
        network_reads_per_s: 2e6,
        decode_bytes_per_s: node_bytes_per_s,
        backend_bytes_per_s: SHARERS * share.sequential_read_iops * PAGE_BYTES as f64,
        backend_reads_per_s: SHARERS * share.random_read_iops,
        backend_nodes: SHARERS,
    }
}

/// The two rates that the paper prints: large files read whole by 16 nodes.
fn beside_published(set: &SetConfig, cluster: &Cluster) -> Vec<Row> {
    let whole_files = |data_bytes: f64| {
        let workload = Workload {
            nodes: 16,
            data_bytes,
            record_bytes: data_bytes / 16.0,
            batch: 16,
            memory_bytes: 0.0,
            unit_bytes: data_bytes / 16.0,
            loads: None,
            near: false,
        };
        let fast = Cluster {
            decode_bytes_per_s: f64::INFINITY,
            ..*cluster
        };
        predict(&fast, &workload, PredictedPipeline::Backend).bytes_per_s / 1e6
    };
    let published = |method: &str, published: f64, predicted: f64, differs: &str| Row {
        published: json!(published),
        ..row(
            set,
            method.to_string(),
            "MB a second from the backend by 16 nodes (predicted)",
            predicted,
            differs,
        )
    };
    vec![
        published(
            "10 GB a node",
            PUBLISHED_LARGE,
            whole_files(160e9),
            "the rate is what the model was given",
        ),
        published(
            "512 MB a node",
            PUBLISHED_SMALL,
            whole_files(8e9),
            "the paper's servers and clients cache so little data; the model has no such caches",
        ),
    ]
}

/// Epochs on larger clusters.
fn beyond(set: &SetConfig, cluster: &Cluster, record_bytes: f64, unit_bytes: f64) -> Vec<Row> {
    let ways = [
        (PredictedPipeline::Backend, None, "backend alone"),
        (
            PredictedPipeline::Ordered,
            None,
            "ordered, slots to their holders",
        ),
        (
            PredictedPipeline::Opportunistic,
            None,
            "opportunistic, slots to their holders",
        ),
        (
            PredictedPipeline::Opportunistic,
            Some(32),
            "opportunistic in 32 loads, slots to their holders",
        ),
    ];
    let mut rows = Vec::new();
    for (pipeline, loads, name) in ways {
        for nodes in NODES {
            let workload = Workload {
                nodes,
                data_bytes: DATA_BYTES,
                record_bytes,
                batch: 64 * u64::from(nodes),
                memory_bytes: NODE_MEMORY_BYTES,
                unit_bytes,
                loads,
                near: true,
            };
            let epoch = predict(cluster, &workload, pipeline);
            let held = (100.0 * epoch.resident).round();
            rows.push(Row {
                measured: Value::String(format!("{:.1} ({})", epoch.seconds, epoch.bound)),
                ..row(
                    set,
                    format!("{nodes} nodes, {name}, {held} % in memory"),
                    "seconds of an epoch over 1.28 TB (predicted; what bounds it)",
                    0.0,
                    "predicted from measured and stated figures; 20 GB of memory a node, 64 examples a node",
                )
            });
        }
    }
    rows
}
