//! Predicts an epoch on larger clusters: a model of the pipelines over peers' memory.
//!
//! One node a rank. Symbols: R nodes, D bytes of data in records of b bytes, f the share of the data
//! that the memory of all nodes holds, L loads of an epoch, B examples of a global batch.
//!
//! | pipeline | backend reads of an epoch | others' memory | resident |
//! |---|---|---|---|
//! | backend alone | every record separately | – | – |
//! | in memory (f ≥ 1) | none after the first epoch | remote share of D | D |
//! | hybrid, ordered | 1 − f of the records separately | remote share of f·D | f·D |
//! | hybrid, opportunistic | every unit, as a large read | remote share of D | two loads |
//!
//! The remote share is (R − 1)/R if slots are assigned in runs, and at most ½√((R − 1)/B) if they follow the holders
//! ([`expected_remote_share`]). Stages overlap (each works on another batch), so an epoch takes as long as its slowest
//! stage: the backend for all nodes together, and on each node the network, the copying, the decoding. Left out:
//! the collective between loads (microseconds against seconds), caches of the backend's
//! servers, and the consumer.

use pelton_plan::expected_remote_share;
use serde::{Deserialize, Serialize};

/// The capabilities of nodes and backend. Rates are bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Copying from a node's own memory into batches.
    pub local_bytes_per_s: f64,
    /// Reading from other nodes' memory, into one node, while all do so.
    pub network_bytes_per_s: f64,
    /// One-sided reads a second that one node can complete, of any length.
    pub network_reads_per_s: f64,
    /// Turning bytes into batches on one node.
    pub decode_bytes_per_s: f64,
    /// Large reads from the backend, by all nodes together.
    pub backend_bytes_per_s: f64,
    /// Random reads a second from the backend, by all nodes together.
    pub backend_reads_per_s: f64,
    /// Nodes needed to draw these rates; fewer nodes get a share each.
    pub backend_nodes: f64,
}

/// The data, and the number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Nodes, one rank each.
    pub nodes: u32,
    /// Bytes of the data.
    pub data_bytes: f64,
    /// Mean bytes of a record.
    pub record_bytes: f64,
    /// Examples of a global batch.
    pub batch: u64,
    /// Memory of each node for the data.
    pub memory_bytes: f64,
    /// Bytes of a unit, which the opportunistic pipeline reads at once.
    pub unit_bytes: f64,
    /// Loads of an epoch of the opportunistic pipeline; `None` for the fewest that fit.
    pub loads: Option<u64>,
    /// Whether slots of a batch go to the nodes that hold their records.
    pub near: bool,
}

/// The pipeline of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PredictedPipeline {
    /// Every record from the backend.
    Backend,
    /// From the memory of all nodes, as far as the data fits, in exactly the configured order.
    Ordered,
    /// From the memory of all nodes, load by load.
    Opportunistic,
}

/// A predicted epoch: seconds of each stage; the slowest decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochTime {
    /// Seconds of an epoch after the first.
    pub seconds: f64,
    /// Bytes a second into the batches of all nodes.
    pub bytes_per_s: f64,
    /// Seconds to fill the memory before the first epoch.
    pub load_s: f64,
    /// Seconds that the backend is busy.
    pub backend_s: f64,
    /// Seconds that the network of a node is busy.
    pub network_s: f64,
    /// Seconds that a node copies.
    pub local_s: f64,
    /// Seconds that a node decodes.
    pub decode_s: f64,
    /// Share of the data in memory.
    pub resident: f64,
    /// Share of reads from memory that go to other nodes.
    pub remote_share: f64,
    /// The slowest stage.
    pub bound: String,
}

impl Cluster {
    /// Seconds for `bytes` from the backend in `reads` random reads by `nodes` nodes at once.
    fn backend_seconds(&self, nodes: f64, bytes: f64, reads: f64) -> f64 {
        let drawn = (nodes / self.backend_nodes).min(1.0);
        (bytes / self.backend_bytes_per_s + reads / self.backend_reads_per_s) / drawn
    }
}

impl Workload {
    /// The share of the data in one load, if memory holds the share `held`.
    fn load(&self, held: f64) -> f64 {
        let largest = 0.5 * held;
        self.loads
            .map_or(largest, |loads| (1.0 / loads as f64).min(largest))
    }
}

/// How long an epoch takes.
pub fn predict(cluster: &Cluster, workload: &Workload, pipeline: PredictedPipeline) -> EpochTime {
    let nodes = f64::from(workload.nodes.max(1));
    let data = workload.data_bytes;
    let held = (nodes * workload.memory_bytes / data).min(1.0);
    // With any pipeline, data that fits is read once.
    let resident = match pipeline {
        PredictedPipeline::Backend => 0.0,
        _ => held,
    };
    let records = data / workload.record_bytes;
    let (backend_bytes, backend_reads, from_memory) = match pipeline {
        _ if resident >= 1.0 => (0.0, 0.0, 1.0),
        PredictedPipeline::Backend => (data, records, 0.0),
        PredictedPipeline::Ordered => (
            (1.0 - resident) * data,
            (1.0 - resident) * records,
            resident,
        ),
        PredictedPipeline::Opportunistic => (data, data / workload.unit_bytes, 1.0),
    };
    let remote_share = if workload.near {
        expected_remote_share(workload.batch, workload.nodes)
    } else {
        (nodes - 1.0) / nodes
    };
    let of_a_node = from_memory * data / nodes;
    let remote = remote_share * of_a_node;
    let network_s = (remote / cluster.network_bytes_per_s)
        .max(remote / workload.record_bytes / cluster.network_reads_per_s);
    let local_s = (of_a_node - remote) / cluster.local_bytes_per_s;
    let decode_s = data / nodes / cluster.decode_bytes_per_s;
    let backend_s = cluster.backend_seconds(nodes, backend_bytes, backend_reads);
    let stages = [
        ("backend", backend_s),
        ("network", network_s),
        ("copying", local_s),
        ("decoding", decode_s),
    ];
    let (bound, seconds) = stages
        .into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there are stages");
    let loaded = match pipeline {
        PredictedPipeline::Opportunistic if resident < 1.0 => workload.load(held),
        _ => resident,
    };
    let reads = loaded * data / workload.unit_bytes;
    EpochTime {
        seconds,
        bytes_per_s: data / seconds,
        load_s: cluster.backend_seconds(nodes, loaded * data, reads),
        backend_s,
        network_s,
        local_s,
        decode_s,
        resident,
        remote_share: if from_memory > 0.0 { remote_share } else { 0.0 },
        bound: bound.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;

    fn cluster() -> Cluster {
        Cluster {
            local_bytes_per_s: 8.0 * GB,
            network_bytes_per_s: 4.0 * GB,
            network_reads_per_s: 1e6,
            decode_bytes_per_s: 2.0 * GB,
            backend_bytes_per_s: 4.0 * GB,
            backend_reads_per_s: 1e4,
            backend_nodes: 16.0,
        }
    }

    fn workload() -> Workload {
        Workload {
            nodes: 16,
            data_bytes: 160.0 * GB,
            record_bytes: 1e5,
            batch: 4096,
            memory_bytes: 10.0 * GB,
            unit_bytes: 1e6,
            loads: None,
            near: false,
        }
    }

    fn near(value: f64, expected: f64) {
        assert!(
            (value / expected - 1.0).abs() < 1e-9,
            "{value}, not {expected}"
        );
    }

    #[test]
    fn in_memory_the_backend_rests() {
        let time = predict(&cluster(), &workload(), PredictedPipeline::Ordered);
        assert_eq!((time.backend_s, time.resident), (0.0, 1.0));
        near(time.remote_share, 15.0 / 16.0);
        near(time.network_s, 10.0 * 15.0 / 16.0 / 4.0);
        near(time.local_s, 10.0 / 16.0 / 8.0);
        near(time.seconds, 5.0);
        assert_eq!(time.bound, "decoding");
        near(time.load_s, 40.0 + 160e9 / 1e6 / 1e4);
        let opportunistic = predict(&cluster(), &workload(), PredictedPipeline::Opportunistic);
        assert_eq!(opportunistic, time);
    }

    #[test]
    fn a_quarter_of_the_memory_reads_small_records_or_large_units() {
        let workload = Workload {
            memory_bytes: 2.5 * GB,
            ..workload()
        };
        let ordered = predict(&cluster(), &workload, PredictedPipeline::Ordered);
        near(ordered.backend_s, 30.0 + 0.75 * 1.6e6 / 1e4);
        let opportunistic = predict(&cluster(), &workload, PredictedPipeline::Opportunistic);
        near(opportunistic.backend_s, 40.0 + 1.6e5 / 1e4);
        assert_eq!(opportunistic.bound, "backend");
        near(opportunistic.load_s, opportunistic.backend_s / 8.0);
        let backend = predict(&cluster(), &workload, PredictedPipeline::Backend);
        near(backend.seconds, 40.0 + 160.0);
        assert_eq!(
            (backend.network_s, backend.local_s, backend.load_s),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn small_loads_begin_early() {
        let workload = Workload {
            memory_bytes: 2.5 * GB,
            loads: Some(16),
            ..workload()
        };
        let time = predict(&cluster(), &workload, PredictedPipeline::Opportunistic);
        near(time.backend_s, 40.0 + 1.6e5 / 1e4);
        near(time.load_s, time.backend_s / 16.0);
        for loads in [1, 8] {
            let few = Workload {
                loads: Some(loads),
                ..workload
            };
            let fewest = Workload {
                loads: None,
                ..workload
            };
            let [few, fewest] =
                [few, fewest].map(|it| predict(&cluster(), &it, PredictedPipeline::Opportunistic));
            assert_eq!(few, fewest);
        }
    }

    #[test]
    fn few_nodes_draw_a_share_of_the_backend() {
        for nodes in [1, 2, 4, 8] {
            let workload = Workload {
                nodes,
                memory_bytes: 0.0,
                ..workload()
            };
            let time = predict(&cluster(), &workload, PredictedPipeline::Backend);
            near(time.seconds, 200.0 * 16.0 / f64::from(nodes));
        }
    }

    #[test]
    fn short_records_are_bound_by_reads_and_near_slots_need_few() {
        let short = Workload {
            record_bytes: 100.0,
            ..workload()
        };
        let time = predict(&cluster(), &short, PredictedPipeline::Ordered);
        assert_eq!(time.bound, "network");
        near(time.network_s, 10e9 * 15.0 / 16.0 / 100.0 / 1e6);
        let near_slots = predict(
            &cluster(),
            &Workload {
                near: true,
                ..short
            },
            PredictedPipeline::Ordered,
        );
        assert!(near_slots.remote_share < 0.04, "{near_slots:?}");
        assert!(near_slots.network_s < time.network_s / 20.0);
    }
}
