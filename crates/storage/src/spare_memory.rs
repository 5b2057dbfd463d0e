//! How much memory this process may use, and how much the system can use to cache files.

use std::fs;
use std::path::Path;

/// Bytes of files that the system can still cache for this process: memory that is free or easily freed, or the limit
/// of its control groups, if that is less. 0 if the system does not say.
///
/// Cost: a few small files are read.
pub fn spare_memory() -> u64 {
    let available = of_machine("MemAvailable:").unwrap_or(0);
    available.min(of_groups()).min(spare_addresses())
}

/// Bytes of address space left to the process, if it is limited (`ulimit -v`).
fn spare_addresses() -> u64 {
    let Some(limit) = limit_of_addresses() else {
        return u64::MAX;
    };
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages
        .split(' ')
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    limit.saturating_sub(pages * rustix::param::page_size() as u64)
}

fn limit_of_addresses() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

/// Most bytes that this process may take: the machine's memory, or the limit of its control groups (as in a
/// container) or of its addresses, if that is less. `None` if the system does not say.
///
/// Cost: a few small files are read.
pub fn memory_limit() -> Option<u64> {
    let limit = of_machine("MemTotal:").unwrap_or(u64::MAX).min(of_groups());
    let limit = limit.min(limit_of_addresses().unwrap_or(u64::MAX));
    (limit < u64::MAX).then_some(limit)
}

/// The default memory budget of a job: `usual` bytes or, if that is less, a quarter of this process's limit, divided
/// by the `ranks` that share it. The rest is for data structures that grow with records, features and parameters, for
/// the program, and for cached files.
pub fn memory_budget(usual: u64, ranks: usize) -> u64 {
    share(memory_limit(), usual, ranks)
}

fn share(limit: Option<u64>, usual: u64, ranks: usize) -> u64 {
    let limit = limit.unwrap_or(u64::MAX);
    usual.min((limit / 4 / ranks.max(1) as u64).max(LEAST_BUDGET))
}

/// The least budget with which jobs work.
const LEAST_BUDGET: u64 = 1 << 20;

fn of_machine(name: &str) -> Option<u64> {
    of_meminfo(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

fn of_groups() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits(&groups, Path::new("/sys/fs/cgroup"))
}

/// A figure of `/proc/meminfo` in bytes.
fn of_meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The lowest memory limit of the control groups that `groups`, the text of `/proc/self/cgroup`, names, and of their
/// ancestors, under `root`. In a container the paths may be those of the host, and the limit is at the root.
fn limits(groups: &str, root: &Path) -> u64 {
    let mut least = u64::MAX;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        // Beyond `memory.high` a process is slowed to a crawl.
        let (root, names) = match controllers {
            "" => (root.to_path_buf(), &["memory.max", "memory.high"][..]),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (root.join("memory"), &["memory.limit_in_bytes"][..])
            }
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        for folder in group
            .ancestors()
            .take_while(|folder| folder.starts_with(&root))
        {
            for name in names {
                // "max" means no limit.
                let limit = fs::read_to_string(folder.join(name));
                let limit = limit.ok().and_then(|text| text.trim().parse().ok());
                least = least.min(limit.unwrap_or(u64::MAX));
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_machine_is_more_than_nothing() {
        if cfg!(target_os = "linux") {
            assert!(spare_memory() > 1 << 20);
            assert!(memory_limit().is_some_and(|limit| limit > 1 << 20));
        }
    }

    #[test]
    fn a_budget_is_a_quarter_of_what_there_is() {
        let check = |limit, ranks, expected: u64| {
            assert_eq!(share(limit, 1 << 30, ranks), expected, "{limit:?} {ranks}");
        };
        check(None, 1, 1 << 30);
        check(Some(64 << 30), 1, 1 << 30);
        check(Some(64 << 30), 64, 256 << 20);
        check(Some(128 << 20), 1, 32 << 20);
        check(Some(128 << 20), 4, 8 << 20);
        check(Some(1 << 20), 4, 1 << 20);
    }

    #[test]
    fn available_memory_is_in_kibibytes() {
        let text = "MemTotal:       24 kB\nMemFree: 1 kB\nMemAvailable:   20 kB\n";
        assert_eq!(of_meminfo(text, "MemAvailable:"), Some(20 * 1024));
        assert_eq!(of_meminfo("MemTotal: 24 kB\n", "MemAvailable:"), None);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_holds() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let check = |groups: &str, expected: u64| {
            assert_eq!(limits(groups, root.path()), expected, "{groups}");
        };
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "5000\n");
        write("a/high/memory.high", "400\n");
        write("memory/c/memory.limit_in_bytes", "700\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        check("0::/a/b\n", 5000);
        check("0::/a/unknown\n", 5000);
        check("0::/a/high/b\n", 400);
        check("0::/\n", u64::MAX);
        check("4:cpu,memory:/c\n3:cpu:/a\n0::/\n", 700);
        check("4:memory:/host/path\n", 9_223_372_036_854_771_712);
        check("nonsense\n", u64::MAX);
    }
}
