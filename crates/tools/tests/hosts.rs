//! Measuring on ranks without a shared disk, or with different inputs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pelton_comm::Comm;
use pelton_comm::tcp::Listener;
use pelton_data::{DataConfig, DataError, PeerConfig, PeerMode};
use pelton_fetch::{Access, OnBadRecord};
use pelton_plan::Order;
use pelton_run::{Interrupt, RunContext};
use pelton_tools::bench::{BenchConfig, BenchReport, StagesConfig, bench};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const RECORDS: u64 = 600;

/// Runs a job on ranks that communicate only through connections; returns the results by rank.
fn hosts(config: impl Fn(usize) -> BenchConfig + Sync) -> Vec<Result<BenchReport, DataError>> {
    let listeners = [(); 2].map(|()| Listener::open(HERE).unwrap());
    let addresses: Vec<SocketAddr> = listeners
        .iter()
        .map(|one| (HERE, one.port().unwrap()).into())
        .collect();
    thread::scope(|scope| {
        let run = |(rank, listener): (usize, Listener)| {
            let (addresses, config) = (&addresses, &config);
            scope.spawn(move || {
                let connected = listener.connect(rank, addresses, 3, Duration::from_secs(20));
                let (comm, handle): (Comm, _) = connected.unwrap();
                let interrupt = Interrupt::default();
                let result = bench(
                    &config(rank),
                    RunContext::new(&comm, &interrupt, &mut |_| ()),
                );
                if let Err(error) = &result {
                    handle.fail(&error.to_string());
                }
                result
            })
        };
        let threads: Vec<_> = listeners.into_iter().enumerate().map(run).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.collect()
    })
}

fn lines(folder: &Path, name: &str, last: u8) -> PathBuf {
    let path = folder.join(name);
    let line = |i: u64| format!("a line of text with number {i}\n");
    let mut text: Vec<u8> = (0..RECORDS).map(line).collect::<String>().into();
    let at = text.len() - 2;
    text[at] = last;
    std::fs::write(&path, text).unwrap();
    path
}

fn config(path: &Path, folder: &Path) -> BenchConfig {
    BenchConfig {
        data: DataConfig {
            paths: vec![path.display().to_string()],
            cache_dir: Some(folder.join("cache")),
            ..DataConfig::default()
        },
        order: Order::Full,
        batch: Some(20),
        access: Access::Auto,
        memory_bytes: 1 << 24,
        memory_share: None,
        epochs: 1,
        seed: 0,
        threads: 1,
        on_bad_record: OnBadRecord::Fail,
        scratch_dir: folder.to_path_buf(),
        cold: false,
        cache: None,
        stages: None,
    }
}

/// With and without stages and peers' memory.
fn variants(path: &Path, folder: &Path) -> Vec<BenchConfig> {
    let plain = config(path, folder);
    let cache = Some(PeerConfig {
        memory_bytes: 1 << 24,
        memory_share: None,
        mode: PeerMode::Ordered,
        unit_bytes: 1 << 20,
        near: Some(true),
    });
    let stages = Some(StagesConfig::default());
    vec![
        BenchConfig {
            stages: stages.clone(),
            ..plain.clone()
        },
        BenchConfig {
            cache,
            stages,
            ..plain.clone()
        },
        plain,
    ]
}

#[track_caller]
fn check_named(results: Vec<Result<BenchReport, DataError>>, expected: &str) {
    for (rank, result) in results.into_iter().enumerate() {
        let error = result.map(|report| report.examples).expect_err(expected);
        assert!(error.to_string().contains(expected), "rank {rank}: {error}");
        assert_eq!(error.exit_code(), 2, "rank {rank}: {error}");
    }
}

#[test]
fn other_data_or_settings_of_one_host_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (same, other) = (
        lines(folder, "same.txt", b'x'),
        lines(folder, "other.txt", b'y'),
    );
    for config in variants(&same, folder) {
        check_named(
            hosts(|rank| BenchConfig {
                seed: rank as u64,
                ..config.clone()
            }),
            "rank 1 has `seed` 1, but rank 0 has 0",
        );
        check_named(
            hosts(|rank| {
                let mut config = config.clone();
                if rank == 1 {
                    config.data.paths = vec![other.display().to_string()];
                }
                config
            }),
            "rank 1 has data with the fingerprint",
        );
        let results = hosts(|_| config.clone());
        for result in results {
            result.unwrap();
        }
    }
}

/// The state of a pipeline is on the host of rank 0; a stale one on the other host changes nothing.
#[test]
fn a_pipeline_goes_on_from_the_state_of_rank_0() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let same = lines(folder, "same.txt", b'x');
    let run = |epochs: u64| {
        let results = hosts(|rank| {
            let mut config = variants(&same, folder).swap_remove(0);
            config.epochs = epochs;
            config.stages.as_mut().unwrap().state = Some(folder.join(format!("state-{rank}")));
            config
        });
        let examples = results.into_iter().map(|result| result.unwrap().examples);
        examples.max().unwrap()
    };
    assert_eq!(run(1), RECORDS);
    assert!(!folder.join("state-1").exists(), "rank 0 alone writes");
    assert_eq!(run(3), 2 * RECORDS);
    std::fs::rename(folder.join("state-0"), folder.join("state-1")).unwrap();
    assert_eq!(run(1), RECORDS, "from the beginning");
}
