//! `plan-capacity`: epochs on larger clusters.

use std::io::Write;

use pelton_cli::bytes::{Memory, human};
use pelton_cli::output::{Failure, bytes_of, positive, print_json, print_with, usage};
use serde_json::{Value, json};

use crate::capacity_arguments::CapacityArguments;
use crate::class_capacity_table;
use crate::node_capacity::{Cluster, EpochTime, PredictedPipeline, Workload, predict};

/// Pipelines in the order of the columns, with whether slots follow the holders of their records.
const COLUMNS: [(PredictedPipeline, bool, &str); 5] = [
    (PredictedPipeline::Backend, false, "backend"),
    (PredictedPipeline::Ordered, false, "ordered"),
    (PredictedPipeline::Ordered, true, "ordered, near"),
    (PredictedPipeline::Opportunistic, false, "opportunistic"),
    (
        PredictedPipeline::Opportunistic,
        true,
        "opportunistic, near",
    ),
];

/// Bytes a second into a node unless stated.
const NETWORK: Memory = Memory::Bytes(12_500_000_000);

/// Predicts epochs and prints them with their assumptions.
pub fn plan(arguments: CapacityArguments) -> Result<(), Failure> {
    if let Some(classes) = arguments.classes.classes {
        return class_capacity_table::plan(classes, &arguments);
    }
    let bytes = |memory, flag| bytes_of(memory, flag).map(|bytes| bytes as f64);
    let network_share = arguments.network_share(0.95)?;
    let cluster = Cluster {
        local_bytes_per_s: bytes(arguments.copying, "--copying")?,
        network_bytes_per_s: network_share
            * bytes(arguments.network.unwrap_or(NETWORK), "--network")?,
        network_reads_per_s: positive(arguments.network_reads, "network_reads")?,
        decode_bytes_per_s: match arguments.node_rate {
            Some(rate) => bytes(rate, "--node-rate")?,
            None => f64::INFINITY,
        },
        backend_bytes_per_s: bytes(arguments.backend, "--backend")?,
        backend_reads_per_s: positive(arguments.backend_reads, "backend_reads")?,
        backend_nodes: positive(arguments.backend_nodes, "backend_nodes")?,
    };
    let workload = Workload {
        nodes: 1,
        data_bytes: bytes(arguments.data_size, "--data-size")?,
        record_bytes: bytes(arguments.record_size, "--record-size")?,
        batch: arguments.batch,
        memory_bytes: 0.0,
        unit_bytes: bytes(arguments.unit_size, "--unit-size")?,
        loads: arguments.loads,
        near: false,
    };
    let mut rows: Vec<(u32, Vec<EpochTime>)> = Vec::new();
    for &nodes in &arguments.nodes {
        if nodes == 0 {
            return Err(usage(anyhow::anyhow!(
                "--nodes 0 reads nothing; give 1 or more"
            )));
        }
        let memory_bytes = match arguments.node_memory {
            Memory::Bytes(bytes) => bytes as f64,
            Memory::Share(share) => share * workload.data_bytes / f64::from(nodes),
        };
        let of = |&(pipeline, near, _): &(PredictedPipeline, bool, &str)| {
            let workload = Workload {
                nodes,
                memory_bytes,
                near,
                ..workload
            };
            predict(&cluster, &workload, pipeline)
        };
        rows.push((nodes, COLUMNS.iter().map(of).collect()));
    }
    if arguments.json {
        return print_json(&figures(&cluster, &workload, &rows));
    }
    let assumed = assumptions(&cluster, &workload);
    print_with(|out| {
        writeln!(out, "predicted seconds of an epoch (and what bounds it)")?;
        write!(out, "{:>6}", "nodes")?;
        for (_, _, name) in COLUMNS {
            write!(out, "{name:>22}")?;
        }
        writeln!(out)?;
        for (nodes, times) in &rows {
            write!(out, "{nodes:>6}")?;
            for time in times {
                let cell = format!("{:.3} {}", time.seconds, time.bound);
                write!(out, "{cell:>22}")?;
            }
            writeln!(out)?;
        }
        writeln!(out)?;
        assumed.iter().try_for_each(|line| writeln!(out, "{line}"))
    })
}

fn assumptions(cluster: &Cluster, workload: &Workload) -> Vec<String> {
    let rate = |value: f64| {
        if value.is_finite() {
            format!("{}/s", human(value as u64))
        } else {
            "no limit".to_string()
        }
    };
    vec![
        format!(
            "stated: copying from memory {}; network {} when all nodes send, and {:.2e} reads a second into a node; decoding {}",
            rate(cluster.local_bytes_per_s),
            rate(cluster.network_bytes_per_s),
            cluster.network_reads_per_s,
            rate(cluster.decode_bytes_per_s)
        ),
        format!(
            "stated: backend {} and {:.0} reads a second by all nodes together, drawn in full by {} nodes or more",
            rate(cluster.backend_bytes_per_s),
            cluster.backend_reads_per_s,
            cluster.backend_nodes
        ),
        format!(
            "stated: {} of data in records of {}, batches of {}",
            human(workload.data_bytes as u64),
            human(workload.record_bytes as u64),
            workload.batch
        ),
        "assumed: stages overlap, so the slowest decides; no caches in the backend's servers, a consumer that is never waited for; near: expected remote share at its bound".to_string(),
    ]
}

fn figures(cluster: &Cluster, workload: &Workload, rows: &[(u32, Vec<EpochTime>)]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .flat_map(|(nodes, times)| {
            times.iter().zip(COLUMNS).map(move |(time, (pipeline, near, _))| {
                json!({"nodes": nodes, "pipeline": pipeline, "near": near, "epoch": time})
            })
        })
        .collect();
    json!({"cluster": cluster, "workload": workload, "rows": rows})
}
