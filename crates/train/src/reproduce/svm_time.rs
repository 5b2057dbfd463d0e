//! Total time by device: T = T_prepare + Σ (T_load + T_compute − T_overlap) (LIRS eq. 1).
//!
//! Modelled devices price the pages each method touches, in pages of 4 KiB as the paper counts them:
//!
//! | method | before training | an epoch |
//! |---|---|---|
//! | BMF | sequential read, random write of every row | sequential read |
//! | LIRS, rows | sequential read where rows are sparse, else nothing | every row by itself |
//! | LIRS, pages | the same | every unit by itself |
//! | queue | sequential read and random write, once | sequential read |
//!
//! As in the paper loading and computing do not overlap there: a block is as large as memory.
//!
//! This machine's disk is measured: the same training by the command itself, reading past the page
//! cache, inside a control group whose memory is limited so that the cache could not help either.

use std::path::{Path, PathBuf};
use std::process::Command;

use pelton_storage::{DeviceModel, DeviceUse};
use serde::Serialize;
use serde_json::Value;

use super::ReproduceConfig;
use super::shapes::Loaded;
use super::svm::Method;
use crate::error::TrainError;
use crate::event::{Event, Observer};

const PAGE: u64 = 4096;

/// Seconds of a run, split as LIRS equation 1 does.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Times {
    pub total_s: f64,
    pub prepare_s: f64,
    pub load_s: f64,
    pub compute_s: f64,
    pub overlap_s: f64,
    pub epochs: f64,
}

/// Pages that reading `length` bytes at `offset` touches.
fn touched(offset: u64, length: u64) -> u64 {
    (offset + length).div_ceil(PAGE) - offset / PAGE
}

/// What one epoch of a method asks of a device.
fn epoch_use(loaded: &Loaded, method: Method) -> DeviceUse {
    let dataset = &loaded.dataset;
    let mut used = DeviceUse::default();
    match method {
        Method::FixedBmf | Method::PermutedBmf | Method::Queue => {
            used.sequential_read_pages = dataset.bytes().div_ceil(PAGE);
        }
        Method::LirsRow => {
            for id in 0..dataset.records() {
                let place = dataset.locate(id);
                used.random_read_pages += 1;
                used.sequential_read_pages += touched(place.offset, place.length) - 1;
            }
        }
        Method::LirsPage => {
            // A unit is read as one range: its first page at random, the others after it.
            let (mut start, mut bytes) = (0, 0);
            for id in 0..dataset.records() {
                let place = dataset.locate(id);
                if bytes == 0 {
                    start = place.offset;
                }
                bytes += place.length;
                if bytes >= PAGE || id + 1 == dataset.records() {
                    used.random_read_pages += 1;
                    used.sequential_read_pages += touched(start, bytes) - 1;
                    bytes = 0;
                }
            }
        }
    }
    used
}

fn prepare_use(loaded: &Loaded, method: Method) -> DeviceUse {
    let dataset = &loaded.dataset;
    let sequential_read_pages = dataset.bytes().div_ceil(PAGE);
    let sparse = loaded.shape.is_none_or(|shape| shape.sparse);
    match method {
        Method::FixedBmf | Method::PermutedBmf | Method::Queue => DeviceUse {
            sequential_read_pages,
            random_write_pages: (0..dataset.records())
                .map(|id| dataset.locate(id).length.div_ceil(PAGE))
                .sum(),
            ..DeviceUse::default()
        },
        _ if sparse => DeviceUse {
            sequential_read_pages,
            ..DeviceUse::default()
        },
        _ => DeviceUse::default(),
    }
}

/// Times on the devices of LIRS Table 2.
pub(super) fn modelled(
    loaded: &Loaded,
    method: Method,
    epochs: f64,
    compute_s: f64,
) -> Result<Vec<(String, Times)>, TrainError> {
    let (epoch, prepare) = (epoch_use(loaded, method), prepare_use(loaded, method));
    let models = [
        ("HDD", DeviceModel::hdd()),
        ("SSD", DeviceModel::ssd()),
        ("Optane", DeviceModel::optane()),
    ];
    Ok(models
        .into_iter()
        .map(|(name, model)| {
            let prepare_s = model.seconds(&prepare);
            let load_s = epochs * model.seconds(&epoch);
            let compute_s = epochs * compute_s;
            let times = Times {
                total_s: prepare_s + load_s + compute_s,
                prepare_s,
                load_s,
                compute_s,
                overlap_s: 0.0,
                epochs,
            };
            (name.to_string(), times)
        })
        .collect())
}

/// Times on this machine's disk, one for each access path that can serve the method.
pub(super) fn measured(
    config: &ReproduceConfig,
    loaded: &Loaded,
    method: Method,
    epochs: u64,
    observer: Observer<'_>,
) -> Result<Vec<(String, Times)>, TrainError> {
    let paths: &[&str] = match method {
        Method::FixedBmf | Method::PermutedBmf => &["scatter"],
        Method::LirsRow => &["direct", "window", "scatter"],
        Method::LirsPage => &["direct"],
        Method::Queue => return Ok(Vec::new()),
    };
    let mut measured = Vec::new();
    for access in paths {
        match measure(config, loaded, method, access, epochs) {
            Ok(named) => measured.push(named),
            Err(problem) => observer(Event::Note(&format!(
                "{}, {}, {access}: not measured: {problem}",
                loaded.name,
                method.name()
            ))),
        }
    }
    Ok(measured)
}

fn measure(
    config: &ReproduceConfig,
    loaded: &Loaded,
    method: Method,
    access: &str,
    epochs: u64,
) -> Result<(String, Times), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let order = method.order(loaded.blocks, loaded.dataset.records());
    // Two blocks and the solver's table fit, as with the memory of the paper's machine.
    let memory = (loaded.dataset.bytes() / 4).max(8 << 20);
    let tables = 4 * (loaded.dataset.records() + 3 * loaded.dataset.features()) + (64 << 20);
    let mut arguments: Vec<String> = ["train", "linear"].map(String::from).to_vec();
    arguments.extend(loaded.data.paths.iter().cloned());
    let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    flag("order", order.to_string());
    flag("access", access.to_string());
    flag("blocks", loaded.blocks.to_string());
    flag("memory", memory.to_string());
    flag("epochs", epochs.max(1).to_string());
    flag("io", "direct".to_string());
    flag("out", config.out.join("measured").display().to_string());
    if let Some(cache) = &loaded.data.cache_dir {
        flag("cache-dir", cache.display().to_string());
    }
    if let Some(positive) = loaded.data.positive {
        flag("positive", positive.to_string());
    }
    arguments.extend(["--overwrite".to_string(), "--json".to_string()]);
    let group = MemoryGroup::create(memory + tables);
    let output = match &group {
        Some(group) => group.command(&program, &arguments).output(),
        None => Command::new(&program).args(&arguments).output(),
    };
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.lines().last().unwrap_or("it failed").to_string());
    }
    let figures: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let seconds = |name: &str| figures[name].as_f64().unwrap_or(f64::NAN);
    let limit = match &group {
        Some(_) => "memory-limited group",
        None => "direct reads, no memory-limited group permitted",
    };
    let ours = if access == "direct" { "" } else { " [ours]" };
    let times = Times {
        total_s: seconds("wall_s"),
        prepare_s: seconds("prepare_s"),
        load_s: seconds("load_s"),
        compute_s: seconds("compute_s"),
        overlap_s: seconds("overlap_s"),
        epochs: epochs as f64,
    };
    Ok((
        format!("this disk by {access}{ours}, measured, {limit}"),
        times,
    ))
}

/// A control group with a memory limit, removed when dropped.
struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    /// A group limited to `bytes`; `None` where this process may not make one.
    fn create(bytes: u64) -> Option<MemoryGroup> {
        let name = format!("pelton-{}", std::process::id());
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
        let _ = std::fs::remove_dir(&self.folder);
    }
}
