//! Total time on this machine's disk: the command itself trains, bypassing the page cache, inside a control group
//! limited to the memory of the run, so the page cache could not help either (LIRS section 5.1 limits memory with
//! cgroups).
//!
//! If the system does not permit such a group, the page cache is emptied and reads bypass it, and the row says so.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pelton_run::Interrupt;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::data_in_memory::DataInMemory;
use super::method::Method;
use super::modelled::Times;
use crate::table::ReproduceConfig;

/// Memory of a process in addition to its budget and tables: program, threads, buffers of the system.
const PROCESS_BYTES: u64 = 64 << 20;

/// The access paths that serve a method; empty if the data would have to be shuffled first.
pub(super) fn paths(method: Method) -> &'static [&'static str] {
    match method {
        // Blocks are written once and read every epoch.
        Method::FixedBmf | Method::PermutedBmf => &["scatter"],
        Method::LirsRow => &["direct", "window", "scatter"],
        // A unit is one range: its rows are neighbours.
        Method::LirsPage => &["window:0"],
        Method::Queue | Method::FileOrder => &[],
    }
}

/// A measured run.
#[derive(Serialize, Deserialize)]
pub(super) struct Measured {
    pub times: Times,
    /// Memory budget over the bytes of the data.
    pub memory_share: f64,
    /// How the page cache was excluded.
    pub cache: String,
    /// Peak resident memory of the run.
    pub peak_rss_bytes: u64,
    /// Limit of its control group.
    pub limit_bytes: Option<u64>,
}

/// Trains `epochs` epochs of a method by one access path; an error gives the reason.
pub(super) fn train(
    config: &ReproduceConfig,
    held: &DataInMemory,
    method: Method,
    access: &str,
    epochs: u64,
    interrupt: &Interrupt,
) -> Result<Measured, String> {
    let program = config
        .program
        .as_deref()
        .ok_or("no program is given to run")?;
    let memory_bytes = memory_bytes(config, held);
    let arguments = arguments(config, held, method, access, epochs, memory_bytes);
    let limit_bytes = memory_bytes + table_bytes(held) + PROCESS_BYTES;
    held.opened
        .drop_page_cache()
        .map_err(|error| error.to_string())?;
    let group = MemoryGroup::create(limit_bytes);
    let output = match &group {
        Some(group) => output_of(&mut group.command(program, &arguments), interrupt),
        None => output_of(Command::new(program).args(&arguments), interrupt),
    };
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    if group.is_some() && output.status.signal() == Some(Signal::KILL.as_raw()) {
        let limit = limit_bytes as f64 / 1e6;
        return Err(format!(
            "it was killed: it needs more than the {limit:.0} MB of its group"
        ));
    }
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("no reason given");
        return Err(format!("{}: {last}", output.status));
    }
    let figures: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("its figures cannot be read: {error}"))?;
    let seconds = |name: &str| figures[name].as_f64().unwrap_or(f64::NAN);
    Ok(Measured {
        times: Times {
            total_s: seconds("wall_s"),
            prepare_s: seconds("prepare_s"),
            load_s: seconds("load_s"),
            compute_s: seconds("compute_s"),
            overlap_s: seconds("overlap_s"),
            epochs: epochs as f64,
        },
        memory_share: memory_bytes as f64 / held.dataset().bytes() as f64,
        cache: match group {
            Some(_) => "direct reads in a memory-limited group",
            None => {
                "page cache emptied and direct reads: no memory-limited group is permitted here"
            }
        }
        .to_string(),
        peak_rss_bytes: figures["peak_rss_bytes"].as_u64().unwrap_or(0),
        limit_bytes: group.map(|_| limit_bytes),
    })
}

/// The output of a command. An interruption of the job kills it and discards the output.
fn output_of(command: &mut Command, interrupt: &Interrupt) -> io::Result<Output> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let ended = AtomicBool::new(false);
    let process = Pid::from_child(&child);
    std::thread::scope(|scope| {
        let watch = || {
            while !ended.load(Ordering::Relaxed) {
                if interrupt.load(Ordering::Relaxed) {
                    // The command may have ended just now.
                    let _ = kill_process(process, Signal::KILL);
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, watch) {
            let _ = kill_process(process, Signal::KILL);
            return Err(error);
        }
        let output = child.wait_with_output();
        ended.store(true, Ordering::Relaxed);
        output
    })
}

/// The budget: a share of the data, and at least the smallest buffers of every path.
fn memory_bytes(config: &ReproduceConfig, held: &DataInMemory) -> u64 {
    const LEAST: u64 = 16 << 20;
    let share = config.experiment.memory_share;
    let dataset = held.dataset();
    // A quarter of the budget is for two buffers a block, of two of the largest rows each.
    let buffer = (2 * dataset.record_bytes().max()).next_multiple_of(8192);
    let buffers = 4 * 2 * held.blocks * buffer;
    ((dataset.bytes() as f64 * share) as u64)
        .max(LEAST)
        .max(buffers)
}

/// α of every row, and w with its snapshot and the mean that becomes the next one.
fn table_bytes(held: &DataInMemory) -> u64 {
    4 * (held.dataset().records() + 3 * held.dataset().features())
}

fn arguments(
    config: &ReproduceConfig,
    held: &DataInMemory,
    method: Method,
    access: &str,
    epochs: u64,
    memory_bytes: u64,
) -> Vec<String> {
    let order = method.order(held.blocks, held.dataset().records());
    let folder = config.out.join("measured");
    let mut arguments = vec!["train".to_string(), "linear".to_string()];
    arguments.extend(held.config.paths.iter().cloned());
    let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    for (name, value) in [("loss", "hinge"), ("intercept", "none"), ("scale", "none")] {
        flag(name, value.to_string());
    }
    flag("order", order.to_string());
    flag("access", access.to_string());
    flag("blocks", held.blocks.to_string());
    flag("memory", memory_bytes.to_string());
    flag("epochs", epochs.max(1).to_string());
    flag("io", "direct".to_string());
    flag("checkpoint-every", "1e9".to_string());
    flag("out", folder.display().to_string());
    if let Some(cache) = &held.config.cache_dir {
        flag("cache-dir", cache.display().to_string());
    }
    arguments.extend(["--overwrite".to_string(), "--json".to_string()]);
    arguments
}

/// A control group with a memory limit, removed when dropped.
struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    /// A group limited to `bytes`; `None` if this process may not create one.
    fn create(bytes: u64) -> Option<MemoryGroup> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("pelton-{}-{number}", std::process::id());
        // Version 1, then version 2.
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        for (root, limit) in kinds {
            let folder = Path::new(root).join(&name);
            if std::fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = MemoryGroup { folder };
            if std::fs::write(group.folder.join(limit), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// The command, started inside the group by a shell that joins it first.
    fn command(&self, program: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg("echo $$ > \"$0\" && exec \"$@\"")
            .arg(self.folder.join("cgroup.procs"))
            .arg(program)
            .args(arguments);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // An empty group that cannot be removed does no harm.
        let _ = std::fs::remove_dir(&self.folder);
    }
}
