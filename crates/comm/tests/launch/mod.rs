//! Starts the ranks of a test as processes, as launchers do. Tests of other crates use it too.

// Each test uses only a part of this.
#![allow(dead_code)]

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fmt, fs, io, thread};

use pelton_comm::{Comm, CommError, Launched, RankError, abort, launched, run_launched};
use rustix::process::{Pid, Signal, kill_process};

/// Launchers to test with: paths of `mpirun`, separated as in `PATH`. By default TCP, and `mpirun` if there is one.
const LAUNCHERS: &str = "PELTON_MPIRUN";
/// Marks the processes of a job.
const MARK: &str = "PELTON_TEST_JOB";
/// Names the job that the process of a test runs.
const ASKED: &str = "PELTON_TEST_RUNS";
/// Exit code of a job with a rank that failed as intended.
const FAILED: i32 = 70;
const LOOK: Duration = Duration::from_millis(10);
/// How long a process may go on after the launcher asked it to end.
const GRACE: Duration = Duration::from_secs(5);

/// How ranks are started.
#[derive(Clone, Debug)]
pub enum Launcher {
    /// By the variables of torchrun: an address at which all meet.
    Tcp,
    /// By this `mpirun`.
    Mpi(PathBuf),
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Launcher::Tcp => write!(f, "TCP"),
            Launcher::Mpi(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Launcher {
    /// All launchers of this machine; says so if there is no MPI.
    pub fn all() -> Vec<Launcher> {
        if let Some(paths) = env::var_os(LAUNCHERS) {
            return env::split_paths(&paths).map(Launcher::Mpi).collect();
        }
        let folders = env::var_os("PATH").unwrap_or_default();
        let files = env::split_paths(&folders).map(|folder| folder.join("mpirun"));
        let found = files.filter(|file| file.exists()).map(Launcher::Mpi).next();
        if found.is_none() {
            eprintln!("SKIPPED: ranks under MPI, as there is no mpirun in the path");
        }
        [Launcher::Tcp].into_iter().chain(found).collect()
    }

    /// Starts one process for each of these commands, rank 0 first. All write to two files, which [`Job::wait`] reads.
    ///
    /// Panics if it cannot.
    pub fn start(&self, commands: Vec<Command>) -> Job {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let outputs = ["out", "err"].map(|of| env::temp_dir().join(format!("pelton-{mark}.{of}")));
        let appending = |output: &PathBuf| {
            let file = File::options().create(true).append(true).open(output);
            Stdio::from(file.expect("a file for the output"))
        };
        let ranks = commands.len();
        let spawn = |mut command: Command| {
            command.stdin(Stdio::null()).env(MARK, &mark);
            command.stdout(appending(&outputs[0]));
            command.stderr(appending(&outputs[1]));
            command.spawn().expect("a process for a rank")
        };
        let children = match self {
            Launcher::Tcp => {
                let port = free_port().expect("a free port").to_string();
                let mut children = Vec::new();
                for (rank, mut command) in commands.into_iter().enumerate() {
                    let (rank, size) = (rank.to_string(), ranks.to_string());
                    command.envs([("RANK", &rank), ("WORLD_SIZE", &size)]);
                    command.envs([("MASTER_ADDR", "localhost"), ("MASTER_PORT", &port)]);
                    children.push(spawn(command));
                }
                children
            }
            Launcher::Mpi(path) => {
                let mut line = Command::new(path);
                for (place, command) in commands.iter().enumerate() {
                    if place > 0 {
                        line.arg(":");
                    }
                    line.args(["-n", "1"]).arg(command.get_program());
                    line.args(command.get_args());
                    for (name, value) in command.get_envs() {
                        line.env(name, value.unwrap_or_default());
                    }
                    if let Some(folder) = command.get_current_dir() {
                        line.current_dir(folder);
                    }
                }
                // Intel's is a script that looks for the rest there.
                let folders = env::var_os("PATH").unwrap_or_default();
                let own = path.parent().map(PathBuf::from);
                let folders = own.into_iter().chain(env::split_paths(&folders));
                line.env("PATH", env::join_paths(folders).expect("folders"));
                // Open MPI, of either line.
                line.envs([
                    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
                ]);
                vec![spawn(line)]
            }
        };
        Job {
            launcher: self.clone(),
            mark,
            outputs,
            ranks: children,
        }
    }

    /// Starts this many processes of the running test program, each of which [runs](runs) `job`.
    pub fn start_test(&self, ranks: usize, job: &str, variables: &[(&str, &str)]) -> Job {
        let own = || {
            let mut command = Command::new(env::current_exe().expect("the program of this test"));
            command.args(["as_rank", "--exact", "--nocapture", "--test-threads", "1"]);
            command.env(ASKED, job).envs(variables.iter().copied());
            command
        };
        self.start((0..ranks).map(|_| own()).collect())
    }
}

/// The job that this process of a test was started for; a test named `as_rank` asks and runs it.
pub fn asked_for() -> Option<String> {
    env::var(ASKED).ok()
}

/// Runs a job on the ranks of the launcher, or on this process alone, and ends the process if it fails: with exit code
/// 70 and the error on standard error.
pub fn run_or_end<E: fmt::Display + From<CommError>>(job: impl FnOnce(Comm) -> Result<(), E>) {
    let alone = |rank, source: E| RankError { rank, source };
    let result = match launched() {
        Ok(Some(how)) => run_launched(&how, &Arc::default(), &mut |_| (), job),
        Ok(None) => job(Comm::alone()).map_err(|source| alone(0, source)),
        Err(error) => Err(alone(0, error.into())),
    };
    if let Err(error) = result {
        // In one write, because the ranks share a file.
        eprint!("{}", format_args!("{error}\n"));
        abort(FAILED);
        exit(FAILED);
    }
}

/// Running ranks.
pub struct Job {
    launcher: Launcher,
    mark: String,
    /// Files of standard output and standard error.
    outputs: [PathBuf; 2],
    /// The processes, or the launcher.
    ranks: Vec<Child>,
}

/// How a job ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code: that of the first process to fail; none for a signal.
    pub code: Option<i32>,
    /// All that its ranks and their launcher wrote.
    pub output: String,
    /// From the call of [`Job::wait`].
    pub after: Duration,
}

impl Ended {
    /// Whether its ranks failed as intended; panics otherwise.
    #[track_caller]
    pub fn assert_failed(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(FAILED), "{}", self.output);
        for part in parts {
            assert!(self.output.contains(part), "{part}: {}", self.output);
        }
    }

    /// Panics unless all succeeded.
    #[track_caller]
    pub fn assert_done(&self) {
        assert_eq!(self.code, Some(0), "{}", self.output);
    }
}

impl Job {
    /// What its ranks have written so far, to standard output and then to standard error.
    pub fn output(&self) -> String {
        let read = |file| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
        self.outputs.each_ref().map(read).concat()
    }

    /// Waits until its ranks have written `part`; panics if they end before.
    pub fn wait_for(&mut self, part: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.output().contains(part) {
            let ended = self.ranks.iter_mut().any(has_ended);
            let text = self.output();
            assert!(
                text.contains(part) || !ended && Instant::now() < until,
                "no `{part}`: {text}"
            );
            thread::sleep(LOOK);
        }
    }

    /// Sends a signal to a rank.
    ///
    /// Panics if the rank does not run.
    pub fn signal(&self, rank: usize, signal: Signal) {
        let pid = match &self.launcher {
            Launcher::Tcp => Some(self.ranks[rank].id()),
            Launcher::Mpi(_) => self.process_of(rank),
        };
        let pid = pid.and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.unwrap_or_else(|| panic!("rank {rank} does not run: {}", self.output()));
        kill_process(pid, signal).expect("a signal to a rank");
    }

    /// The process of a rank that another program started.
    fn process_of(&self, rank: usize) -> Option<u32> {
        let mark = format!("{MARK}={}", self.mark);
        let ranks = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].map(|name| format!("{name}={rank}"));
        fs::read_dir("/proc").ok()?.find_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let all = fs::read(entry.path().join("environ")).ok()?;
            let has = |text: &str| {
                all.split(|byte| *byte == 0)
                    .any(|one| one == text.as_bytes())
            };
            (has(&mark) && ranks.iter().any(|rank| has(rank))).then_some(pid)
        })
    }

    /// Waits for the end of all ranks; when one fails the others are ended, as launchers do.
    ///
    /// Panics if that takes longer than `limit`.
    pub fn wait(mut self, limit: Duration) -> Ended {
        let began = Instant::now();
        let mut code = Some(0);
        let (mut failed, mut asked): (Option<Instant>, bool) = (None, false);
        let mut left = std::mem::take(&mut self.ranks);
        while !left.is_empty() {
            left.retain_mut(|child| match child.try_wait() {
                Ok(Some(status)) => {
                    if !status.success() && failed.is_none() {
                        code = status.code();
                        failed = Some(Instant::now());
                    }
                    false
                }
                _ => true,
            });
            if failed.is_some() && !asked {
                asked = true;
                for pid in left
                    .iter()
                    .filter_map(|child| Pid::from_raw(child.id() as i32))
                {
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
            let late = failed.is_some_and(|failed| failed.elapsed() > GRACE);
            if began.elapsed() > limit || late {
                left.iter_mut().for_each(|child| drop(child.kill()));
                left.iter_mut().for_each(|child| drop(child.wait()));
                assert!(late, "no end within {limit:?}: {}", self.output());
                break;
            }
            thread::sleep(LOOK);
        }
        Ended {
            code,
            output: self.output(),
            after: began.elapsed(),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.ranks {
            let _ = child.kill();
            let _ = child.wait();
        }
        for file in &self.outputs {
            let _ = fs::remove_file(file);
        }
    }
}

fn has_ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

fn free_port() -> io::Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}

/// How this process was started, for a test of that.
pub fn stated_size() -> Option<usize> {
    launched()
        .ok()
        .flatten()
        .as_ref()
        .map_or(Some(1), Launched::size)
}
