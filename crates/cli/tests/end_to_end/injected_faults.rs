//! System calls that fail, and kills at system calls: a command succeeds with the right result or fails with one
//! sentence; it leaves no wrong file under a final name, and another run reaches the same result.
//!
//! The calls are chosen at random within a time limit, from a printed seed: `PELTON_FAULT_SEED` repeats it, and
//! `PELTON_FAULT_SECONDS` extends the time.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::command::{Ended, Place};
use crate::data::random_bits;

/// The kinds of calls, in the order of `injected_faults.c`, and the errors that each may give.
const KINDS: [(&str, &[i32]); 12] = [
    ("open", &[EACCES, EMFILE, EIO, EINTR]),
    ("read", &[EIO, EINTR]),
    ("write", &[ENOSPC, EIO, EINTR]),
    ("fsync", &[EIO, ENOSPC, EINVAL]),
    ("rename", &[EIO, EACCES, ENOSPC]),
    ("mmap", &[ENOMEM, EACCES]),
    ("flock", &[ENOLCK, ENOSYS, EOPNOTSUPP]),
    ("mkdir", &[EACCES, ENOSPC]),
    ("unlink", &[EACCES, EIO]),
    ("ftruncate", &[EIO, ENOSPC]),
    ("connect", &[ECONNREFUSED, EINTR]),
    ("recv", &[EIO, ECONNRESET, EINTR]),
];
const EINTR: i32 = 4;
const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const ENOLCK: i32 = 37;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const ECONNRESET: i32 = 104;
const ECONNREFUSED: i32 = 111;

/// A command line, the flag that resumes it, and its output files.
const JOBS: [(&str, &str, &[&str]); 10] = [
    (
        "train svm train.svm --epochs 3 --memory 1MiB --checkpoint-every 0 --seed 1 --out run",
        "--resume",
        &["run/model.safetensors"],
    ),
    (
        "train svm rows.prow --epochs 3 --memory 4MiB --access scatter --blocks 7 --seed 1 --out run",
        "--resume",
        &["run/model.safetensors"],
    ),
    (
        "train image table.csv --label first --model mlp --epochs 2 --batch 100 --checkpoint-every 0 --out run",
        "--resume",
        &["run/model.safetensors"],
    ),
    (
        "train classify table.csv --label first --model none --epochs 2 --batch 100 --checkpoint-every 0 --out run",
        "--resume",
        &["run/model.safetensors"],
    ),
    (
        "train language text --hidden 8 --epochs 2 --batch 20 --checkpoint-every 0 --out run",
        "--resume",
        &["run/model.safetensors"],
    ),
    ("predict linear train.svm -o out", "", &["out"]),
    ("pack train.svm -o out.prow", "", &["out.prow"]),
    (
        "bench table.csv --label first --batch 100 --log log --state state",
        "",
        &["log"],
    ),
    ("buckets text --out out.svg", "", &["out.svg"]),
    ("index train.svm", "", &[]),
];

/// The existing output files of a job.
type Results = BTreeMap<&'static str, Vec<u8>>;

struct Injector {
    place: Place,
    shim: PathBuf,
}

impl Injector {
    /// `None`, with a loud line, without a C compiler.
    fn new() -> Option<Injector> {
        let place = Place::new();
        let shim = place.path("shim.so");
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/end_to_end/injected_faults.c"
        );
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O1", "-shared", "-fPIC", source, "-ldl", "-o"])
            .arg(&shim);
        if !compiler.status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no C compiler (cc) for the calls that fail");
            return None;
        }
        place.libsvm("train.svm", 1000);
        place.higgs(3000);
        std::fs::rename(place.path("higgs.prow"), place.path("rows.prow")).unwrap();
        place.write("text", "one two three four\nfive six\nseven\n".repeat(40));
        let row = |i: u64| format!("{},{},{}\n", i % 4, i % 4 * 3 + i % 7, i % 11);
        place.write("table.csv", (0..600).map(row).collect::<String>());
        place.ok("train svm train.svm --epochs 1 --out linear");
        Some(Injector { place, shim })
    }

    /// Runs a line with a fault, without checking its end or its files.
    fn run(&self, line: &str, fault: &str) -> (Ended, Option<i32>) {
        let mut command = self.place.command(line);
        command
            .env("LD_PRELOAD", &self.shim)
            .env("FAULT", fault)
            .env("COUNTS", self.place.path("counts"))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("FAULT={fault} pelton {line}: still running after 60 s");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        (Ended::of(child), status.signal())
    }

    fn clear(&self) {
        for name in ["run", "out", "out.prow", "log", "state", "out.svg", "cache"] {
            let path = self.place.path(name);
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_dir_all(&path);
        }
        for name in ["train.svm", "text", "rows.prow", "table.csv"] {
            let _ = std::fs::remove_file(self.place.path(&format!("{name}.pelton-index")));
        }
    }

    fn results(&self, names: &[&'static str]) -> Results {
        let read = |name: &&'static str| {
            let bytes = std::fs::read(self.place.path(name)).ok()?;
            Some((*name, without_metadata(bytes)))
        };
        names.iter().filter_map(read).collect()
    }
}

/// The tensors of a model; its metadata contains times.
fn without_metadata(bytes: Vec<u8>) -> Vec<u8> {
    let header = bytes
        .first_chunk()
        .map(|length| u64::from_le_bytes(*length) as usize);
    let Some(text) = header.and_then(|length| bytes.get(8..8 + length)) else {
        return bytes;
    };
    let Ok(serde_json::Value::Object(mut header)) = serde_json::from_slice(text) else {
        return bytes;
    };
    header.remove("__metadata__");
    let mut plain = serde_json::to_vec(&header).unwrap();
    plain.extend_from_slice(&bytes[8 + text.len()..]);
    plain
}

/// Like some mounts of NFS and Lustre.
#[test]
fn file_systems_without_locks_and_syncs_of_folders() {
    let Some(injector) = Injector::new() else {
        return;
    };
    let (line, _, names) = JOBS[0];
    let kind = |name| KINDS.iter().position(|(kind, _)| *kind == name).unwrap();
    for error in [ENOLCK, ENOSYS, EOPNOTSUPP] {
        injector.clear();
        let (ended, _) = injector.run(line, &format!("{}:1:{error}", kind("flock")));
        let ended = ended.succeeded(line);
        assert!(
            ended.stderr.contains("cannot lock files"),
            "{}",
            ended.stderr
        );
        assert_eq!(injector.results(names).len(), 1);
    }
    // Files are synced, and then their folders: a run fails without the first, not without the second.
    let mut codes = Vec::new();
    for number in 1..=6 {
        injector.clear();
        let fault = format!("{}:{number}:{EINVAL}", kind("fsync"));
        codes.push(injector.run(line, &fault).0.code);
    }
    assert!(
        codes.iter().all(|code| [Some(0), Some(1)].contains(code)),
        "{codes:?}"
    );
    assert!(
        codes.contains(&Some(0)) && codes.contains(&Some(1)),
        "{codes:?}"
    );
}

#[test]
fn a_failed_call_ends_a_command_well_or_with_a_sentence() {
    let Some(injector) = Injector::new() else {
        return;
    };
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = variable("PELTON_FAULT_SEED").unwrap_or(now.unwrap().as_nanos() as u64 >> 8);
    let budget = Duration::from_secs(variable("PELTON_FAULT_SECONDS").unwrap_or(60));
    eprintln!("PELTON_FAULT_SEED={seed}");
    let mut state = seed;
    let mut pick = |n: u64| (random_bits(&mut state) >> 16) % n.max(1);
    let began = Instant::now();
    let whole: Vec<(Results, Vec<u64>)> = JOBS
        .iter()
        .map(|(line, _, names)| {
            injector.clear();
            injector.run(line, "-1:0:0").0.succeeded(line);
            let counts = String::from_utf8(injector.place.read("counts")).unwrap();
            let counts = counts.lines().map(|line| line.parse().unwrap()).collect();
            let results = injector.results(names);
            assert_eq!(results.len(), names.len(), "{line}");
            (results, counts)
        })
        .collect();
    let (mut tries, mut errors, mut faults) = (0, 0, Vec::new());
    while began.elapsed() < budget {
        let job = tries % JOBS.len();
        let ((line, repeated, names), (whole, counts)) = (JOBS[job], &whole[job]);
        tries += 1;
        let kind = pick(KINDS.len() as u64) as usize;
        if counts[kind] == 0 {
            continue;
        }
        let what = match pick(3) {
            0 => "kill".to_owned(),
            1 if ["read", "write", "recv"].contains(&KINDS[kind].0) => "short".to_owned(),
            _ => KINDS[kind].1[pick(KINDS[kind].1.len() as u64) as usize].to_string(),
        };
        let fault = format!("{kind}:{}:{what}", 1 + pick(counts[kind]));
        injector.clear();
        let (ended, signal) = injector.run(line, &fault);
        let said = ended
            .stderr
            .lines()
            .filter(|text| text.starts_with("pelton:"))
            .count();
        let results = injector.results(names);
        // A log grows, and is cut at the position in the state.
        let is_right = |(name, bytes): (&&str, &Vec<u8>)| {
            whole[name] == *bytes || *name == "log" && whole[name].starts_with(bytes)
        };
        let wrong = match (ended.code, signal) {
            (_, Some(9)) if what == "kill" => None,
            (Some(0), _) if results != *whole => Some("a result is missing or wrong"),
            (Some(0), _) => None,
            (Some(1 | 2), _) if said == 1 => None,
            (Some(1 | 2), _) => Some("it ends without one sentence"),
            _ => Some("it ends by a panic or a signal"),
        };
        let wrong = wrong.or((!results.iter().all(is_right)).then_some("a result is wrong"));
        let mut after = String::new();
        let wrong = wrong.or_else(|| {
            if ended.code == Some(0) || results == *whole && !names.is_empty() {
                return None;
            }
            errors += 1;
            let again = injector.place.run(&format!("{line} {repeated}"));
            after = again.stderr;
            (again.code != Some(0) || injector.results(names) != *whole)
                .then_some("another run does not reach the result")
        });
        if let Some(wrong) = wrong {
            let kind = KINDS[kind].0;
            faults.push(format!(
                "FAULT={fault} ({kind}) pelton {line}: {wrong}; code {:?}, signal {signal:?}\n{}{after}",
                ended.code, ended.stderr
            ));
        }
    }
    eprintln!("{tries} tries, {errors} of them broken off");
    assert!(faults.is_empty(), "seed {seed}\n{}", faults.join("\n"));
}
