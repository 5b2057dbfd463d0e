//! Ranks on hosts without a shared disk: each has its own files. Those of rank 0 count, and every rank names a rank
//! with other inputs before the first step.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pelton_comm::tcp::Listener;
use pelton_comm::{Comm, run_ranks};
use pelton_data::DataConfig;
use pelton_run::{Interrupt, RunContext, RunOptions};
use pelton_train::{LinearConfig, LinearSummary, Solver, TrainError, linear};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs a job on ranks that communicate only through connections; returns the results by rank.
fn hosts<T: Send>(
    ranks: usize,
    job: impl Fn(&Comm) -> Result<T, TrainError> + Sync,
) -> Vec<Result<T, TrainError>> {
    let listeners: Vec<Listener> = (0..ranks).map(|_| Listener::open(HERE).unwrap()).collect();
    let addresses = listeners
        .iter()
        .map(|one| (HERE, one.port().unwrap()).into());
    let addresses: Vec<SocketAddr> = addresses.collect();
    thread::scope(|scope| {
        let run = |(rank, listener): (usize, Listener)| {
            let (addresses, job) = (&addresses, &job);
            scope.spawn(move || {
                let connected = listener.connect(rank, addresses, 3, Duration::from_secs(20));
                let (comm, handle) = connected.unwrap();
                let result = job(&comm);
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

/// The run folder on the host of a rank.
fn out(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("host-{rank}"))
}

fn options(folder: &Path, rank: usize, resume: bool) -> RunOptions {
    RunOptions {
        out: out(folder, rank),
        resume,
        overwrite: false,
    }
}

/// Every rank's error names the rank that differs, and how.
#[track_caller]
fn check_named<T: std::fmt::Debug>(results: Vec<Result<T, TrainError>>, expected: &str) {
    for (rank, result) in results.into_iter().enumerate() {
        let error = result.expect_err(expected);
        let text = error.to_string();
        assert!(
            text.contains(expected),
            "rank {rank}: {text}, not {expected}"
        );
        assert!(
            text.contains("give every rank the same"),
            "rank {rank}: {text}"
        );
        assert_eq!(error.exit_code(), 2, "rank {rank}: {text}");
    }
}

/// Lines of two classes, separable by two features; `line` may change them.
fn table(folder: &Path, name: &str, line: impl Fn(String) -> String) -> String {
    let text = |i: usize| {
        let (label, x) = (i % 2, (i * 7 % 31) as f64 / 10.0);
        line(format!("{x},{},{label}\n", 3.0 * label as f64 + x / 5.0))
    };
    let path = folder.join(name);
    std::fs::write(&path, (0..200).map(text).collect::<String>()).unwrap();
    path.display().to_string()
}

fn linear(path: String, cache: &Path, solver: Solver) -> LinearConfig {
    LinearConfig {
        data: DataConfig {
            paths: vec![path],
            cache_dir: Some(cache.to_path_buf()),
            ..DataConfig::default()
        },
        solver,
        epochs: 3,
        threads: 1,
        ..LinearConfig::default()
    }
}

fn train_linear(
    config: &LinearConfig,
    options: &RunOptions,
    comm: &Comm,
) -> Result<LinearSummary, TrainError> {
    let interrupt = Interrupt::default();
    linear::run(
        config,
        RunContext::new(comm, &interrupt, &mut |_| ()).in_folder(options),
    )
}

const SOLVERS: [Solver; 2] = [Solver::Auto, Solver::Newton];

#[test]
fn other_data_on_one_host_is_named_before_linear_training() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let same = table(folder, "same.csv", |line| line);
    let flipped = table(folder, "flipped.csv", |line| {
        let (rest, label) = line.trim().rsplit_once(',').unwrap();
        format!("{rest},{}\n", 1 - label.parse::<u8>().unwrap())
    });
    let swapped = {
        let mut lines: Vec<String> = std::fs::read_to_string(&same)
            .unwrap()
            .lines()
            .map(|line| format!("{line}\n"))
            .collect();
        lines.swap(20, 91);
        let path = folder.join("swapped.csv");
        std::fs::write(&path, lines.concat()).unwrap();
        path.display().to_string()
    };
    for solver in SOLVERS {
        for (other, what) in [
            (&flipped, "rank 1 has data with the fingerprint"),
            (&swapped, "rank 1 has data with the fingerprint"),
        ] {
            let results = hosts(3, |comm| {
                let path = if comm.rank() == 1 { other } else { &same };
                let config = linear(path.clone(), &folder.join("cache"), solver);
                train_linear(&config, &options(folder, comm.rank(), false), comm)
            });
            check_named(results, what);
            assert!(!out(folder, 0).exists(), "nothing was begun");
        }
        // Also as threads of one process, which open shared files once.
        let error = run_ranks(2, |comm| {
            let path = if comm.rank() == 1 { &flipped } else { &same };
            let config = linear(path.clone(), &folder.join("cache"), solver);
            train_linear(&config, &options(folder, comm.rank(), false), &comm)
        });
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("rank 1 has data with the fingerprint"),
            "{error}"
        );
    }
}

#[test]
fn other_settings_of_one_host_are_named_before_linear_training() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let same = table(folder, "same.csv", |line| line);
    type Change = fn(&mut LinearConfig);
    let changes: [(Change, &str); 4] = [
        (
            |config| config.seed = 5,
            "rank 2 has `seed` 5, but rank 0 has 0",
        ),
        (
            |config| config.cost = 2.0,
            "rank 2 has `cost` 2.0, but rank 0 has 1.0",
        ),
        (
            |config| config.data.label = "first".to_string(),
            "rank 2 has `label` first, but rank 0 has last",
        ),
        (
            |config| config.test = config.data.paths.clone(),
            "rank 2 has `test` given, but rank 0 has none",
        ),
    ];
    for (change, what) in changes {
        let results = hosts(3, |comm| {
            let mut config = linear(same.clone(), &folder.join("cache"), SOLVERS[0]);
            if comm.rank() == 2 {
                change(&mut config);
            }
            train_linear(&config, &options(folder, comm.rank(), false), comm)
        });
        check_named(results, what);
    }
    let results = hosts(2, |comm| {
        let config = linear(same.clone(), &folder.join("cache"), SOLVERS[0]);
        train_linear(
            &config,
            &options(folder, comm.rank(), comm.rank() == 1),
            comm,
        )
    });
    check_named(results, "rank 1 has `resume` true, but rank 0 has false");
    // Each machine may set its own memory and threads, if they lead to the same blocks.
    let results = hosts(2, |comm| {
        let config = LinearConfig {
            memory_bytes: (1 + comm.rank() as u64) << 28,
            threads: 1 + comm.rank(),
            ..linear(
                same.clone(),
                &folder.join(format!("cache-{}", comm.rank())),
                SOLVERS[0],
            )
        };
        train_linear(&config, &options(folder, comm.rank(), false), comm)
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

/// Rank 0's checkpoint counts, whatever the other hosts have.
#[test]
fn a_linear_run_goes_on_from_the_checkpoint_of_rank_0() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let same = table(folder, "same.csv", |line| line);
    let model = |out: &Path| std::fs::read(out.join("model.txt")).unwrap();
    for solver in SOLVERS {
        let at = |name: &str| folder.join(format!("{solver}-{name}"));
        let train = |name: &str, epochs: u64, resume: bool| {
            let results = hosts(2, |comm| {
                let config = LinearConfig {
                    epochs,
                    ..linear(same.clone(), &folder.join("cache"), solver)
                };
                let options = options(&at(name), comm.rank(), resume);
                train_linear(&config, &options, comm)
            });
            for result in results {
                result.unwrap();
            }
        };
        train("whole", 4, false);
        train("parts", 2, false);
        assert!(!out(&at("parts"), 1).exists(), "rank 0 alone writes");
        train("parts", 4, true);
        let [whole, parts] = ["whole", "parts"].map(|name| model(&out(&at(name), 0)));
        assert_eq!(whole, parts, "{solver}");
        // The host of rank 1 has a stale run, that of rank 0 none.
        train("stale", 2, false);
        std::fs::rename(out(&at("stale"), 0), out(&at("stale"), 1)).unwrap();
        train("stale", 4, true);
        assert_eq!(model(&out(&at("stale"), 0)), whole, "{solver}");
    }
}

#[cfg(feature = "nets")]
mod nets {
    use pelton_train::{ImageConfig, LanguageConfig, NetSummary, image, language};

    use super::*;

    /// CIFAR-10's format: a class, then three planes of 32 × 32 with a mean that depends on the class.
    fn images(folder: &Path, name: &str, class: impl Fn(usize) -> usize) -> String {
        let image = |i: usize| {
            let pixels = (0..3072).map(move |at| (i * 7 % 10 * 20 + at * (i + 3) % 47) as u8);
            std::iter::once(class(i) as u8)
                .chain(pixels)
                .collect::<Vec<u8>>()
        };
        let path = folder.join(name).join("data_batch_1.bin");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, (0..60).flat_map(image).collect::<Vec<u8>>()).unwrap();
        path.display().to_string()
    }

    fn sentences(folder: &Path, name: &str, words: usize) -> String {
        let line = |i: usize| {
            let words = (0..2 + i % 7).map(|at| format!("w{}", (i + at * at) % words));
            words.collect::<Vec<_>>().join(" ") + "\n"
        };
        let path = folder.join(name);
        std::fs::write(&path, (0..60).map(line).collect::<String>()).unwrap();
        path.display().to_string()
    }

    fn small_image(path: String, cache: &Path) -> ImageConfig {
        let mut config = ImageConfig {
            width: 0.25,
            ..ImageConfig::default()
        };
        config.data.paths = vec![path];
        config.data.cache_dir = Some(cache.to_path_buf());
        config.fit.validation = "0.2".parse().ok();
        config.fit.schedule = "constant".parse().unwrap();
        config.fit.epochs = 2;
        config.fit.batch = 24;
        config
    }

    fn small_language(path: String, cache: &Path) -> LanguageConfig {
        let mut config = LanguageConfig {
            hidden: 16,
            ..LanguageConfig::default()
        };
        config.data.paths = vec![path];
        config.data.cache_dir = Some(cache.to_path_buf());
        config.fit.schedule = "constant".parse().unwrap();
        config.fit.epochs = 2;
        config.fit.batch = 8;
        config.fit.rate = Some(1.0);
        config
    }

    fn train_image(
        config: &ImageConfig,
        options: &RunOptions,
        comm: &Comm,
    ) -> Result<NetSummary, TrainError> {
        let interrupt = Interrupt::default();
        image::run(
            config,
            RunContext::new(comm, &interrupt, &mut |_| ()).in_folder(options),
        )
    }

    fn train_language(
        config: &LanguageConfig,
        options: &RunOptions,
        comm: &Comm,
    ) -> Result<NetSummary, TrainError> {
        let interrupt = Interrupt::default();
        language::run(
            config,
            RunContext::new(comm, &interrupt, &mut |_| ()).in_folder(options),
        )
    }

    #[test]
    fn other_data_or_settings_of_one_host_are_named_before_a_net_is_trained() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let cache = |rank: usize| folder.join(format!("cache-{rank}"));
        let same = images(folder, "same", |i| i * 7 % 10);
        let flipped = images(folder, "flipped", |i| 9 - i * 7 % 10);
        type Change = fn(&mut ImageConfig, &str);
        let changes: [(Change, &str); 4] = [
            (
                |config, other| config.data.paths = vec![other.to_string()],
                "rank 1 has data with the fingerprint",
            ),
            (
                |config, _| config.fit.seed = 4,
                "rank 1 has `seed` 4, but rank 0 has 0",
            ),
            (
                |config, _| config.pipeline.augment = "flip".parse().ok(),
                "rank 1 has `augment` flip, but rank 0 has none",
            ),
            (
                |config, _| config.fit.validation = "0.3".parse().ok(),
                "rank 1 has `validation` 0.3, but rank 0 has 0.2",
            ),
        ];
        for (change, what) in changes {
            let results = hosts(2, |comm| {
                let mut config = small_image(same.clone(), &cache(comm.rank()));
                if comm.rank() == 1 {
                    change(&mut config, &flipped);
                }
                train_image(&config, &options(folder, comm.rank(), false), comm)
            });
            check_named(results, what);
        }
        let texts = [13, 14].map(|words| sentences(folder, &format!("{words}.txt"), words));
        let results = hosts(2, |comm| {
            let config = small_language(texts[comm.rank()].clone(), &cache(comm.rank()));
            train_language(&config, &options(folder, comm.rank(), false), comm)
        });
        check_named(results, "rank 1 has data with the fingerprint");
    }

    /// Each host has its own file of word ids.
    #[test]
    fn another_vocabulary_on_one_host_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let text = sentences(folder, "train.txt", 13);
        let words = pelton_text::Vocabulary::from_text(
            &std::fs::read(&text).unwrap(),
            &pelton_text::VocabularyOptions::default(),
        )
        .unwrap();
        let limited = words.limited(1, Some(12)).unwrap();
        for (rank, vocabulary) in [words, limited].iter().enumerate() {
            vocabulary
                .save(&folder.join(format!("{rank}.vocabulary")))
                .unwrap();
        }
        let results = hosts(2, |comm| {
            let mut config = small_language(text.clone(), &folder.join("cache"));
            let file = folder.join(format!("{}.vocabulary", comm.rank()));
            config.pipeline.vocabulary = Some(file);
            train_language(&config, &options(folder, comm.rank(), false), comm)
        });
        check_named(results, "rank 1 has a vocabulary with the fingerprint");
    }

    /// The run of the report: rank 0's host has a checkpoint and the other has none, or one of another run.
    #[test]
    fn a_net_goes_on_from_the_checkpoint_of_rank_0() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let path = images(folder, "same", |i| i * 7 % 10);
        let model = |out: &Path| std::fs::read(out.join("model.safetensors")).unwrap();
        let train = |name: &str, epochs: u64, resume: bool| {
            let at = folder.join(name);
            let results = hosts(2, |comm| {
                let mut config = small_image(path.clone(), &folder.join("cache"));
                config.fit.epochs = epochs;
                train_image(&config, &options(&at, comm.rank(), resume), comm)
            });
            let losses: Vec<f64> = results
                .into_iter()
                .map(|one| one.unwrap().test_loss.unwrap_or(0.0))
                .collect();
            assert_eq!(losses[0], losses[1]);
            at
        };
        let tensors = |out: &Path| {
            let bytes = model(out);
            let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            bytes[header..].to_vec()
        };
        let whole = train("whole", 3, false);
        train("parts", 1, false);
        let parts = train("parts", 3, true);
        assert_eq!(tensors(&out(&whole, 0)), tensors(&out(&parts, 0)));
        assert!(!out(&parts, 1).exists(), "rank 0 alone writes");
        let stale = train("stale", 1, false);
        std::fs::rename(out(&stale, 0), out(&stale, 1)).unwrap();
        train("stale", 3, true);
        assert_eq!(tensors(&out(&whole, 0)), tensors(&out(&stale, 0)));
    }

    /// Rows of a head reach the folder of rank 0, and return to the ranks that resume, be they fewer or more.
    #[test]
    fn rows_of_a_head_need_no_folder_that_all_share() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let train = |name: &str, ranks: usize, epochs: u64, shared: bool| {
            let mut config = ImageConfig::for_classify();
            config.width = 0.125;
            config.data.paths = vec!["demo:classes:120:4:16".to_string()];
            config.data.cache_dir = Some(folder.join("cache"));
            config.fit.epochs = epochs;
            config.fit.batch = 40;
            let results = hosts(ranks, |comm| {
                let rank = if shared { 0 } else { comm.rank() };
                train_image(&config, &options(&folder.join(name), rank, true), comm)
            });
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        };
        let model = |name: &str| {
            let rows = out(&folder.join(name), 0);
            let files = std::fs::read_dir(rows).unwrap().map(|file| file.unwrap());
            let mut files: Vec<_> = files
                .filter(|file| file.file_name().to_str().unwrap().starts_with("model"))
                .map(|file| std::fs::read(file.path()).unwrap())
                .collect();
            files.sort();
            files
        };
        for (name, shared) in [("together", true), ("apart", false)] {
            train(name, 2, 1, shared);
            train(name, 2, 3, shared);
        }
        assert_eq!(model("together").len(), 3, "the net, and rows of two ranks");
        assert!(model("together") == model("apart"));
        // On other numbers of ranks.
        for ranks in [3, 1] {
            train("fewer", 2, 1, false);
            train("fewer", ranks, 2, false);
            assert_eq!(model("fewer").len(), ranks + 1);
            std::fs::remove_dir_all(folder.join("fewer")).unwrap();
        }
        let left = std::fs::read_dir(folder.join("apart")).unwrap();
        let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["host-0"], "nothing is left on other hosts");
    }

    #[test]
    fn repeats_by_the_clock_are_refused_on_ranks() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let path = images(folder, "same", |i| i * 7 % 10);
        let results = hosts(2, |comm| {
            let mut config = small_image(path.clone(), &folder.join("cache"));
            config.pipeline.echo = Some("auto".parse().unwrap());
            train_image(&config, &options(folder, comm.rank(), false), comm)
        });
        for result in results {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("give a fixed number of repeats"), "{error}");
        }
    }
}
