//! Resources used by the process so far, according to the system.

/// Largest resident memory of this process so far, in bytes; 0 if unknown.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Restarts [`peak_rss_bytes`] from the current value; false if the system does not allow it.
pub fn reset_peak_rss() -> bool {
    // 5: "reset the peak resident set size to the current value" (proc_pid_clear_refs(5)).
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// CPU seconds (user and system) of this process so far; 0 if unknown.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command name may contain spaces; the fields after its closing bracket do not. The first of them is field 3,
    // user and system ticks are fields 14 and 15.
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return 0.0;
    };
    let ticks: u64 = fields
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_process_knows_its_memory_and_time() {
        let block = vec![1u8; 32 << 20];
        let peak = super::peak_rss_bytes();
        assert!(peak as usize > block.len());
        drop(std::hint::black_box(block));
        if super::reset_peak_rss() {
            assert!(super::peak_rss_bytes() < peak);
        }
        let mut sum = 0u64;
        for i in 0..200_000_000u64 {
            sum = std::hint::black_box(sum ^ i);
        }
        assert!(super::cpu_seconds() > 0.0);
    }
}
