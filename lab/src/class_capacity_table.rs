//! `plan-capacity --classes N`: predicts training over very many classes on other devices.

use std::io::Write;

use crate::class_capacity::{
    ClassCluster, ClassMemory, ClassTime, ClassWorkload, DEVICES, NetSize, predict_classes,
};
use pelton_train::{check_range, check_share};
use serde_json::{Value, json};

use crate::capacity_arguments::CapacityArguments;
use pelton_cli::bytes::{Memory, human};
use pelton_cli::output::{Failure, bytes_of, positive, print_json, print_with, usage};

/// A machine's network unless stated: 25 Gbit/s.
const NETWORK: Memory = Memory::Bytes(3_125_000_000);

/// A predicted row of the table.
struct Row {
    devices: u64,
    method: &'static str,
    memory: ClassMemory,
    time: ClassTime,
}

/// Predicts memory and time of full softmax and of its extensions one by one, and prints them with their assumptions.
pub fn plan(classes: u64, arguments: &CapacityArguments) -> Result<(), Failure> {
    let (cluster, full) = stated(classes, arguments)?;
    let of = &arguments.classes;
    let batch = arguments.batch;
    if of.neighbours > classes {
        return Err(usage(anyhow::anyhow!(
            "--neighbours {} of {classes} classes; give at most as many as there are",
            of.neighbours
        )));
    }
    let knn = ClassWorkload {
        neighbours: of.neighbours,
        active: share(of.active, "active")?,
        ..full
    };
    let overlap = ClassWorkload {
        overlap: true,
        ..knn
    };
    let sparse = ClassWorkload {
        sparse: Some(share(of.density, "density")?),
        selection_s: positive(of.selection_ms, "selection_ms")? / 1e3,
        ..overlap
    };
    let methods = [
        ("full", full),
        ("knn", knn),
        ("+ overlap", overlap),
        ("+ sparse gradients", sparse),
    ];
    let mut rows = Vec::new();
    for &devices in &of.devices {
        for (method, workload) in &methods {
            let (memory, time) = predict_classes(&cluster, workload, devices, batch);
            rows.push(Row {
                devices,
                method,
                memory,
                time,
            });
        }
    }
    if arguments.json {
        return print_json(&figures(&cluster, &sparse, batch, &rows));
    }
    print_with(|out| {
        writeln!(
            out,
            "predicted for {classes} classes of {} features, batches of {batch}",
            full.features
        )?;
        writeln!(
            out,
            "devices method              a device's memory  net ms  head ms  select ms  wait ms  images/s  graph h  epoch h  {} epochs, days",
            full.epochs
        )?;
        for row in &rows {
            let (memory, time) = (&row.memory, &row.time);
            let bytes = human(memory.peak_bytes);
            let fits = if memory.fits { "" } else { " (too much)" };
            writeln!(
                out,
                "{:>7} {:<18}{:>19} {:>7.1} {:>8.1} {:>10.1} {:>8.1} {:>9.0} {:>8.2} {:>8.2} {:>10.1}",
                row.devices,
                row.method,
                format!("{bytes}{fits}"),
                1e3 * time.net_s,
                1e3 * time.head_s,
                1e3 * time.selection_s,
                1e3 * time.communication_s,
                time.samples_per_s,
                time.graph_s / 3600.0,
                time.epoch_s / 3600.0,
                time.training_days,
            )?;
        }
        writeln!(out)?;
        let assumed = assumptions(&cluster, &sparse);
        assumed.iter().try_for_each(|line| writeln!(out, "{line}"))
    })
}

/// A share, from 0 to 1.
fn share(value: f64, setting: &str) -> Result<f64, Failure> {
    check_share(setting, value)?;
    Ok(value)
}

/// A size of the feature net.
fn size(value: f64, setting: &str) -> Result<f64, Failure> {
    check_range(setting, value, 1.0..=1e15)?;
    Ok(value)
}

/// The cluster, and full softmax on it.
fn stated(
    classes: u64,
    arguments: &CapacityArguments,
) -> Result<(ClassCluster, ClassWorkload), Failure> {
    let of = &arguments.classes;
    let Some(device) = DEVICES.iter().find(|device| device.name == of.device) else {
        let names: Vec<&str> = DEVICES.iter().map(|device| device.name).collect();
        return Err(usage(anyhow::anyhow!(
            "--device {} is unknown; give one of {}, and --device-memory, --device-flops and --device-bandwidth for another",
            of.device,
            names.join(", ")
        )));
    };
    let bytes = |memory: Option<Memory>, flag, otherwise: f64| match memory {
        Some(memory) => bytes_of(memory, flag).map(|bytes| bytes as f64),
        None => Ok(otherwise),
    };
    let peak = match of.number_bytes.as_str() {
        "2" => device.half_flops,
        _ => device.single_flops,
    };
    let cluster = ClassCluster {
        memory_bytes: bytes(of.device_memory, "--device-memory", device.memory_bytes)?,
        flops: positive(of.device_flops.unwrap_or(peak), "device_flops")?,
        memory_bytes_per_s: bytes(
            of.device_bandwidth,
            "--device-bandwidth",
            device.memory_bytes_per_s,
        )?,
        node_devices: of.node_devices,
        network_bytes_per_s: bytes_of(arguments.network.unwrap_or(NETWORK), "--network")? as f64,
        network_share: arguments.network_share(1.0)?,
        latency_s: 1e-6 * positive(arguments.latency, "latency")?,
        share: share(of.peak_share, "peak_share")?,
    };
    let width = |text: &str| if text == "2" { 2 } else { 4 };
    let net = NetSize {
        operations: size(of.net_operations, "net_operations")?,
        parameters: size(of.net_parameters, "net_parameters")?,
        activations: size(of.net_activations, "net_activations")?,
    };
    let examples = positive(of.views, "views")? * classes as f64;
    let full = ClassWorkload {
        classes,
        features: of.features,
        neighbours: 0,
        active: 1.0,
        weight_bytes: width(&of.weight_bytes),
        momentum: !of.no_momentum,
        number_bytes: width(&of.number_bytes),
        examples: examples.ceil() as u64,
        epochs: positive(of.epochs, "epochs")?,
        net,
        sparse: None,
        selection_s: 0.0,
        overlap: false,
    };
    Ok((cluster, full))
}

fn assumptions(cluster: &ClassCluster, workload: &ClassWorkload) -> Vec<String> {
    let net = &workload.net;
    vec![
        format!(
            "stated: devices of {}, {:.4e} operations and {} a second, reaching a share of {}",
            human(cluster.memory_bytes as u64),
            cluster.flops,
            human(cluster.memory_bytes_per_s as u64),
            cluster.share
        ),
        format!(
            "stated: {} devices share a network of {}/s, of which a share of {} remains when all send; {} µs a message; inside a node nothing is waited for",
            cluster.node_devices,
            human(cluster.network_bytes_per_s as u64),
            cluster.network_share,
            1e6 * cluster.latency_s
        ),
        format!(
            "stated: {} examples an epoch; a net of {:.3e} weights, {:.3e} operations and {:.3e} kept numbers an example",
            workload.examples, net.parameters, net.operations, net.activations
        ),
        format!(
            "stated: weights of {} bytes, {} momentum; activations and what travels {} bytes a number",
            workload.weight_bytes,
            if workload.momentum { "with" } else { "without" },
            workload.number_bytes
        ),
        format!(
            "stated: knn has {} neighbours and {} of the classes active, a graph an epoch; {} of the gradients are sent, selected in {} ms",
            workload.neighbours,
            workload.active,
            workload.sparse.unwrap_or(1.0),
            1e3 * workload.selection_s
        ),
        "assumed: all ranks are equally fast; reading data, evaluation and checkpoints are not counted; with overlap, what travels hides behind the net".to_string(),
    ]
}

fn figures(cluster: &ClassCluster, workload: &ClassWorkload, batch: u64, rows: &[Row]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({"devices": row.devices, "method": row.method, "memory": row.memory, "time": row.time})
        })
        .collect();
    json!({"cluster": cluster, "workload": workload, "batch": batch, "rows": rows})
}
