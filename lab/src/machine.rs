//! Other load on this machine while a table is measured, and a description of the machine and the code.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Ticks of `/proc` a second, on every Linux.
const TICKS: f64 = 100.0;
/// Share of the machine that other work may take before the table refuses times.
const MOST_OTHERS: f64 = 0.1;

/// The work of other processes since a moment.
pub(crate) struct Others {
    began: Instant,
    busy: f64,
    own: f64,
}

impl Others {
    /// Starts counting now.
    pub(crate) fn now() -> Option<Others> {
        let all = std::fs::read_to_string("/proc/stat").ok()?;
        let own = std::fs::read_to_string("/proc/self/stat").ok()?;
        let number = |text: &str| text.parse::<f64>().ok();
        // user, nice, system, idle, iowait, irq, softirq, steal
        let all: Vec<f64> = all
            .lines()
            .next()?
            .split_whitespace()
            .skip(1)
            .filter_map(number)
            .collect();
        let busy = [0, 1, 2, 5, 6, 7]
            .iter()
            .filter_map(|&at| all.get(at))
            .sum();
        // The name, in brackets, may contain blanks. Fields 14 to 17: user, system, and those of children.
        let own: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
        let own = own
            .get(11..15)?
            .iter()
            .filter_map(|text| number(text))
            .sum();
        Some(Others {
            began: Instant::now(),
            busy,
            own,
        })
    }

    /// Processors that other processes took on average.
    pub(crate) fn processors(&self) -> Option<f64> {
        let now = Others::now()?;
        let ticks = TICKS * (now.began - self.began).as_secs_f64();
        Some(((now.busy - self.busy - (now.own - self.own)) / ticks).max(0.0))
    }
}

/// Processors of this process.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processors that other work takes, if that would distort times.
pub(crate) fn busy() -> Option<f64> {
    let others = Others::now()?;
    std::thread::sleep(Duration::from_secs(1));
    let others = others.processors()?;
    (others > MOST_OTHERS * processors() as f64).then_some(others)
}

/// The output of a program run in the repository, if it exists and succeeds.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program)
        .current_dir(folder)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

/// The commit of the repository at the first call, with `+` if its code differs from the commit; empty if unknown.
pub(crate) fn commit() -> &'static str {
    static COMMIT: OnceLock<String> = OnceLock::new();
    COMMIT.get_or_init(|| {
        let Some(commit) = said("git", &["rev-parse", "--short=10", "HEAD"]) else {
            return String::new();
        };
        let of_code = ["../Cargo.lock", "../crates", "../experiments", "."];
        let mut arguments = vec!["status", "--porcelain", "--untracked-files=no", "--"];
        arguments.extend(of_code);
        let changed = said("git", &arguments).is_some_and(|files| !files.is_empty());
        commit + if changed { "+" } else { "" }
    })
}

/// Date, processors, memory and commit.
pub(crate) fn description() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |path: &str, name: &str| {
        let text = read(path);
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let model =
        field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let memory = memory.map_or(String::new(), |kib| {
        format!(", {:.0} GiB", kib / f64::from(1 << 20))
    });
    let date = said("date", &["+%F"]).unwrap_or_default();
    format!(
        "{date}; {model}, {} processors{memory}; commit {}",
        processors(),
        commit()
    )
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn work_of_others_is_distinguished_from_our_own() {
        let busy = |what: &mut dyn FnMut()| {
            let others = Others::now().unwrap();
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(700) {
                what();
            }
            others.processors().unwrap()
        };
        let idle = busy(&mut || std::thread::sleep(Duration::from_millis(10)));
        let own = busy(&mut || _ = std::hint::black_box([0u8; 4096]));
        let spin = ["-c", "while :; do :; done"];
        let mut child = Command::new("sh").args(spin).spawn().unwrap();
        let loaded = busy(&mut || std::thread::sleep(Duration::from_millis(10)));
        child.kill().unwrap();
        child.wait().unwrap();
        // Other tests run at the same time and take the rest.
        let most = processors() as f64 + 0.2;
        assert!(idle <= most && own <= most - 0.5, "{idle} {own}");
        assert!((0.2..=most).contains(&loaded), "{loaded}");
    }
}
