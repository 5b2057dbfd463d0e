//! Predicts a head over very many classes on other devices: memory and time of a step, an epoch, a training.
//!
//! Symbols: N classes of d features on R devices, n = ⌈N/R⌉ rows a device; of a batch of B examples A classes are
//! active, a = ⌈A/R⌉ on a device; K neighbours in the graph; P weights of the feature net; w bytes of a number that is
//! sent.
//!
//! | memory of a device | bytes |
//! |---|---|
//! | weights, momentum | 4·n·d or 2·n·d (no master copy), each |
//! | counters | 4·n, and 8 for each step of an epoch |
//! | graph | 8·(N + 1) offsets, 8·n·K neighbours on this device on average, 4·n·K of its own classes |
//! | building the graph, in addition | 8·n·d for own and passed rows and nearest lists, or a new graph and the part
//! sent |
//! | features | 4·3·B·d: gathered, of length 1, gradient |
//! | logits | 4·a·B, or none if they are recomputed; and a chunk of 1024 classes |
//! | feature net | 12·P; 8·P more if gradients are sparse; activations |
//!
//! | time | of |
//! |---|---|
//! | feature net | its operations for B/R examples |
//! | head | 6·B·a·d operations, 8 without kept logits; or its bytes through the device's memory, if slower |
//! | features | 2·B·d·w through a node's network: all-gather, reduce-scatter |
//! | gradients | 2·P·w through it (a ring), or (R − 1)·8 bytes for each weight that a device sends, after selecting |
//! | graph | (2R − 1)·n²·d operations, about 2·N²·d/R; or the ring of all rows through the network, if slower |
//!
//! Bytes go through the network at a share of its rate, since messages have headers and meet on the way, and each message
//! takes a latency in addition. Communication within a node takes no time. Left out: reading data, evaluation, checkpoints, sums of the softmax
//! (three numbers an example), stragglers. The caller states the properties of the program: the share of the peak that
//! products reach, the operations of the feature net, and whether communication overlaps.

use pelton_comm::reduction_messages;
use serde::{Deserialize, Serialize};

/// Classes of a chunk of a head.
const CHUNK: u64 = 1024;

/// Part of a device's memory that logits may take; if they would take more, they are recomputed.
const LOGITS: f64 = 0.25;

/// Published figures of a device: memory, dense operations a second in half (tensor cores) and single precision,
/// bytes a second of its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Its name.
    pub name: &'static str,
    /// Bytes of its memory.
    pub memory_bytes: f64,
    /// Operations a second in half precision.
    pub half_flops: f64,
    /// Operations a second in single precision.
    pub single_flops: f64,
    /// Bytes a second of its memory.
    pub memory_bytes_per_s: f64,
}

/// Makers' data sheets of the boards for servers (SXM).
pub const DEVICES: [Device; 4] = [
    Device::new("v100", 32e9, 125e12, 15.7e12, 900e9),
    Device::new("a100", 80e9, 312e12, 19.5e12, 2039e9),
    Device::new("h100", 80e9, 989e12, 67e12, 3350e9),
    Device::new("h200", 141e9, 989e12, 67e12, 4800e9),
];

impl Device {
    const fn new(name: &'static str, memory: f64, half: f64, single: f64, bandwidth: f64) -> Self {
        Device {
            name,
            memory_bytes: memory,
            half_flops: half,
            single_flops: single,
            memory_bytes_per_s: bandwidth,
        }
    }
}

/// The capabilities of each device and node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassCluster {
    /// Bytes of a device's memory.
    pub memory_bytes: f64,
    /// Peak operations a second of a device.
    pub flops: f64,
    /// Bytes a second of a device's memory.
    pub memory_bytes_per_s: f64,
    /// Devices that share a node's network.
    pub node_devices: u64,
    /// Bytes a second into a node, and the same out of it.
    pub network_bytes_per_s: f64,
    /// Share of that rate that remains when all nodes send.
    pub network_share: f64,
    /// Seconds that a message takes in addition to its bytes.
    pub latency_s: f64,
    /// Share of the peak that net, head and graph reach.
    pub share: f64,
}

/// The feature net.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetSize {
    /// Operations of an example, forward and backward.
    pub operations: f64,
    /// Weights.
    pub parameters: f64,
    /// Numbers per example kept for the backward pass.
    pub activations: f64,
}

/// The training to predict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassWorkload {
    /// N.
    pub classes: u64,
    /// d.
    pub features: u64,
    /// K; 0 without a graph.
    pub neighbours: u64,
    /// Active share of the classes.
    pub active: f64,
    /// Bytes of a weight of the head: 4 or 2.
    pub weight_bytes: u64,
    /// Whether head and net have momentum.
    pub momentum: bool,
    /// Bytes of an activation and of a number that is sent: 4 or 2.
    pub number_bytes: u64,
    /// Examples of an epoch.
    pub examples: u64,
    /// Epochs.
    pub epochs: f64,
    /// The feature net.
    pub net: NetSize,
    /// Share of the net's gradients that is sent; `None` for all.
    pub sparse: Option<f64>,
    /// Seconds to select it.
    pub selection_s: f64,
    /// Whether features and gradients are sent while the net computes (micro-batches).
    pub overlap: bool,
}

/// Bytes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassMemory {
    pub weights_bytes: u64,
    pub momentum_bytes: u64,
    pub counters_bytes: u64,
    pub graph_bytes: u64,
    pub graph_build_bytes: u64,
    pub features_bytes: u64,
    pub logits_bytes: u64,
    pub net_bytes: u64,
    /// The larger of the memory for training and for building a graph while keeping the last one.
    pub peak_bytes: u64,
    /// Whether the device has enough.
    pub fits: bool,
}

/// Seconds, per step unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassTime {
    /// The feature net, forward and backward.
    pub net_s: f64,
    /// The head.
    pub head_s: f64,
    /// Selecting the gradients to send.
    pub selection_s: f64,
    /// Communication of features and of their gradients.
    pub features_travel_s: f64,
    /// Communication of the gradients of the net.
    pub gradients_travel_s: f64,
    /// Communication not hidden by computation.
    pub communication_s: f64,
    /// The whole step.
    pub step_s: f64,
    /// Examples a second.
    pub samples_per_s: f64,
    /// Building the graph, once an epoch.
    pub graph_s: f64,
    /// An epoch with its graph.
    pub epoch_s: f64,
    /// Days of all epochs.
    pub training_days: f64,
}

/// Memory and time of `devices` for steps of `batch` examples. Both are at least 1, rates above 0, K at most N.
pub fn predict_classes(
    cluster: &ClassCluster,
    workload: &ClassWorkload,
    devices: u64,
    batch: u64,
) -> (ClassMemory, ClassTime) {
    let active = (workload.active * workload.classes as f64).round() as u64;
    let rows = workload.classes.div_ceil(devices);
    let active = active.div_ceil(devices);
    let kept = 4 * active * batch;
    let logits = (kept as f64 <= LOGITS * cluster.memory_bytes).then_some(kept);
    let steps = workload.examples.div_ceil(batch);
    let memory = memory(cluster, workload, devices, batch, logits);

    let (d, width) = (workload.features as f64, workload.number_bytes as f64);
    let rate = cluster.share * cluster.flops;
    let examples = batch as f64;
    let net_s = batch.div_ceil(devices) as f64 * workload.net.operations / rate;
    let (operations, passes) = if logits.is_some() { (6.0, 3) } else { (8.0, 4) };
    // Weights are read twice or three times and written, momentum is read and written; logits are written and read.
    let row_bytes = passes * workload.weight_bytes + 2 * momentum_width(workload);
    let moved = active as f64 * d * row_bytes as f64 + 2.0 * logits.unwrap_or(0) as f64;
    let head_s =
        (operations * examples * active as f64 * d / rate).max(moved / cluster.memory_bytes_per_s);

    let others = if devices > cluster.node_devices {
        devices as f64 - 1.0
    } else {
        0.0
    };
    let remote = others / devices as f64;
    let rate_of_all = cluster.network_share * cluster.network_bytes_per_s;
    let travel = |bytes: f64, messages: f64| match bytes {
        0.0 => 0.0,
        _ => bytes / rate_of_all + messages * cluster.latency_s,
    };
    // Of an all-gather and of a reduce-scatter.
    let (all, reduction) = (others, reduction_messages(devices as usize) as f64);
    let features_travel_s = travel(2.0 * remote * examples * d * width, all + reduction);
    let parameters = workload.net.parameters;
    let gradients_travel_s = match workload.sparse {
        None => travel(2.0 * remote * parameters * width, 2.0 * reduction),
        Some(part) => travel(others * part * parameters * 8.0, all),
    };
    let selection_s = workload.sparse.map_or(0.0, |_| workload.selection_s);
    let hidden_s = if workload.overlap { net_s } else { 0.0 };
    let communication_s = (features_travel_s + gradients_travel_s - hidden_s).max(0.0);
    let step_s = net_s + head_s + selection_s + communication_s;

    let graph_s = match workload.neighbours {
        0 => 0.0,
        _ => {
            let n = rows as f64;
            let products = (2 * devices - 1) as f64 * n * n * d;
            (products / rate).max(travel(others * n * d * width, others))
        }
    };
    let epoch_s = steps as f64 * step_s + graph_s;
    let time = ClassTime {
        net_s,
        head_s,
        selection_s,
        features_travel_s,
        gradients_travel_s,
        communication_s,
        step_s,
        samples_per_s: examples / step_s,
        graph_s,
        epoch_s,
        training_days: workload.epochs * epoch_s / 86_400.0,
    };
    (memory, time)
}

/// Bytes of a number of momentum.
fn momentum_width(workload: &ClassWorkload) -> u64 {
    if workload.momentum {
        workload.weight_bytes
    } else {
        0
    }
}

fn memory(
    cluster: &ClassCluster,
    workload: &ClassWorkload,
    devices: u64,
    batch: u64,
    logits: Option<u64>,
) -> ClassMemory {
    let (d, k) = (workload.features, workload.neighbours);
    let rows = workload.classes.div_ceil(devices);
    let weights_bytes = rows * d * workload.weight_bytes;
    let momentum_bytes = rows * d * momentum_width(workload);
    let steps = workload.examples.div_ceil(batch);
    let counters_bytes = 4 * rows + 8 * (1 + steps);
    let (mut graph_bytes, mut graph_build_bytes) = (0, 0);
    if k > 0 {
        graph_bytes = 8 * (workload.classes + 1) + 12 * rows * k;
        // A list is cut at 1.5 times its length, and grows by doubling.
        let lists = 8 * rows * (k + k / 2 + 16).next_power_of_two();
        let divided = graph_bytes + 8 * rows * k + 4 * rows * devices;
        graph_build_bytes = (8 * rows * d + lists).max(divided);
    }
    let features_bytes = 12 * batch * d;
    let logits_bytes = logits.unwrap_or(0) + 4 * CHUNK * 2 * (batch + d);
    let net = workload.net;
    let a_weight = if workload.sparse.is_some() {
        20.0
    } else {
        12.0
    };
    let weights_of_net = (a_weight * net.parameters) as u64;
    let activations = net.activations * workload.number_bytes as f64;
    let net_bytes = weights_of_net + (activations * batch.div_ceil(devices) as f64) as u64;
    let head = weights_bytes + momentum_bytes + counters_bytes + graph_bytes;
    let training = head + features_bytes + logits_bytes + net_bytes;
    let peak_bytes = training.max(head + graph_build_bytes + weights_of_net);
    ClassMemory {
        weights_bytes,
        momentum_bytes,
        counters_bytes,
        graph_bytes,
        graph_build_bytes,
        features_bytes,
        logits_bytes,
        net_bytes,
        peak_bytes,
        fits: peak_bytes as f64 <= cluster.memory_bytes,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pelton_comm::Comm;
    use pelton_softmax::{HeadOptions, Logits, Precision, class_head};

    use super::*;

    /// 100 M classes on 256 V100, 8 a machine with 25 Gbit/s; ResNet-50; 0.13 of the peak reproduces the days of full
    /// softmax.
    fn published() -> (ClassCluster, ClassWorkload) {
        let cluster = ClassCluster {
            memory_bytes: 32e9,
            flops: 125e12,
            memory_bytes_per_s: 900e9,
            node_devices: 8,
            network_bytes_per_s: 3.125e9,
            network_share: 1.0,
            latency_s: 5e-6,
            share: 0.13,
        };
        let net = NetSize {
            operations: 24.6e9,
            parameters: 25.6e6,
            activations: 22e6,
        };
        let workload = ClassWorkload {
            classes: 100_000_000,
            features: 512,
            neighbours: 0,
            active: 1.0,
            weight_bytes: 4,
            momentum: true,
            number_bytes: 2,
            examples: 2_700_000_000,
            epochs: 20.0,
            net,
            sparse: None,
            selection_s: 0.0,
            overlap: false,
        };
        (cluster, workload)
    }

    /// With all additions of the paper.
    fn with_all(full: &ClassWorkload) -> ClassWorkload {
        ClassWorkload {
            neighbours: 1000,
            active: 0.1,
            epochs: 8.0,
            sparse: Some(0.001),
            selection_s: 0.01181,
            overlap: true,
            ..*full
        }
    }

    #[test]
    fn a_hundred_million_classes_take_what_was_published() {
        let (cluster, full) = published();
        let (_, time) = predict_classes(&cluster, &full, 256, 4096);
        let near = |ours: f64, published: f64| {
            let ratio = ours / published;
            assert!((0.75..1.25).contains(&ratio), "{ours} for {published}");
        };
        near(time.training_days, 45.0);
        near(time.samples_per_s, 51_800.0 / 3.9);
        let (memory, time) = predict_classes(&cluster, &with_all(&full), 256, 4096);
        near(time.samples_per_s, 51_800.0);
        near(time.graph_s, 0.75 * 3600.0);
        near(time.training_days, 5.0);
        assert!(memory.fits);
        // About 190 GB of weights in all (section 3.1).
        near(memory.weights_bytes as f64 * 256.0 / 1024f64.powi(3), 190.0);
    }

    /// Raw runs of `bench/network_times.py`: 2 to 4 hosts at 1 Gbit/s.
    #[test]
    fn communication_takes_what_was_measured_at_a_gigabit() {
        let (cluster, published) = published();
        let cluster = ClassCluster {
            node_devices: 1,
            network_bytes_per_s: 125e6,
            network_share: 0.95,
            flops: 1e18,
            ..cluster
        };
        let runs = include_str!("../../bench/results/network_times.csv");
        let mut all = BTreeMap::<_, Vec<f64>>::new();
        for run in runs.lines().filter(|line| !line.starts_with(['#', 'r'])) {
            let [_, hosts, operation, bytes, seconds] = run.split(',').collect::<Vec<_>>()[..]
            else {
                panic!("{run}");
            };
            let of = all.entry((hosts, operation, bytes)).or_default();
            of.push(seconds.parse().unwrap());
        }
        assert_eq!(all.len(), 12);
        for ((hosts, operation, bytes), mut seconds) in all {
            let (devices, bytes): (u64, f64) = (hosts.parse().unwrap(), bytes.parse().unwrap());
            // Rows of 100 numbers of 4 bytes.
            let workload = ClassWorkload {
                classes: devices * (bytes / 400.0) as u64,
                features: 100,
                neighbours: 10,
                number_bytes: 4,
                net: NetSize {
                    parameters: bytes / 4.0,
                    ..published.net
                },
                // 8 bytes of each weight that is sent.
                sparse: (operation == "all_gather").then_some(0.5),
                ..published
            };
            let time = predict_classes(&cluster, &workload, devices, 4096).1;
            let predicted = match operation {
                "all_reduce" | "all_gather" => time.gradients_travel_s,
                "ring" => time.graph_s,
                _ => bytes / (0.95 * 125e6),
            };
            seconds.sort_by(f64::total_cmp);
            let ratio = seconds[seconds.len() / 2] / predicted;
            let within = (0.75..1.25).contains(&ratio);
            assert!(within, "{operation} on {hosts} hosts: {ratio}");
        }
    }

    #[test]
    fn memory_is_what_a_head_counts() {
        let (cluster, published) = published();
        for (kind, neighbours) in [("full", 0), ("knn:12:0.1", 12)] {
            let options = HeadOptions {
                kind: kind.parse().unwrap(),
                logits: Logits::Product,
                classes: 500,
                d: 16,
                correct: true,
                centre: false,
                precision: Precision::F32,
                seed: 3,
                scratch_bytes: 1 << 20,
            };
            let mut head = class_head(&options, Comm::alone()).unwrap();
            head.renew(0, &|| false).unwrap();
            let workload = ClassWorkload {
                classes: 500,
                features: 16,
                neighbours,
                momentum: false,
                examples: 500,
                ..published
            };
            let (memory, _) = predict_classes(&cluster, &workload, 1, 500);
            // The model counts one step more than the head has taken.
            let counted = head.bytes() as f64;
            let kept = memory.weights_bytes
                + memory.momentum_bytes
                + memory.counters_bytes
                + memory.graph_bytes;
            let ratio = kept as f64 / counted;
            assert!((0.99..1.01).contains(&ratio), "{memory:?} for {counted}");
        }
    }

    #[test]
    fn more_devices_less_memory_and_time() {
        let (cluster, full) = published();
        let all = with_all(&full);
        let of = |devices| predict_classes(&cluster, &all, devices, 8192);
        let (few, many) = (of(128), of(256));
        assert!(many.0.peak_bytes < few.0.peak_bytes);
        assert!(many.1.step_s < few.1.step_s && many.1.graph_s < few.1.graph_s);
        // Inside one node communication takes no time.
        assert_eq!(of(8).1.communication_s, 0.0);
        assert!(!of(8).0.fits);
    }
}
