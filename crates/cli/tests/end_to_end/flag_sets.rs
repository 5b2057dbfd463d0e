//! Sets of flags with extreme values, generated from `--help` of every command: any command ends by itself or soon
//! after a signal, with a documented exit code and one sentence, and refuses absurd values.
//!
//! `PELTON_FLAG_SETS` sets the number of sets, `PELTON_FLAG_SEED` the seed.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pelton_tools::Augment;
use rustix::process::{Pid, Signal, kill_process};

use crate::command::Place;
use crate::data::random_bits;

/// Default number of sets.
const SETS: usize = 450;
/// Time for a command before it is interrupted.
const WORKS: Duration = Duration::from_secs(3);
/// Time for it to end after that, on a busy machine.
const ENDS: Duration = Duration::from_secs(10);
/// Address space of a command: beyond it an allocation fails, and with it the process.
const ADDRESSES_KIB: u64 = 12 << 20;

/// Every command with tiny data; `@` is the folder of that data.
#[cfg(feature = "nets")]
pub const COMMANDS: [&str; 25] = [
    "train linear @/train --epochs 2 --out run",
    "train linear @/train --epochs 2 --out run --solver coordinate-descent",
    "train linear demo:higgs:2000 --epochs 2 --out run",
    "train image demo:images:60 --model small --epochs 1 --out run",
    "train classify demo:classes:20:4:16 --model none --epochs 1 --out run",
    "train classify demo:images:60 --model small --epochs 1 --out run",
    "train language @/text --hidden 8 --epochs 1 --out run",
    "train language @/text --model transformer --hidden 8 --heads 2 --epochs 1 --out run",
    "eval @/linear @/train",
    "predict @/linear @/train",
    "predict @/classify @/few.csv",
    "eval @/classify @/few.csv --recall 1",
    "eval @/classify @/few.csv --pairs @/pairs",
    "classes @/classify --remove name0 --out run",
    "serve @/classify --port 0",
    "sample @/language --words 5",
    "index @/train",
    "inspect @/train",
    "pack @/train --out packed.prow",
    "probe . --size 1MiB --seconds 0.001",
    "bench @/train",
    "bench @/text --decode words",
    "bench demo:images:60",
    "buckets @/text",
    "vocabulary @/text --out words",
];

/// Values that are invalid for most flags, and values that are far too large.
const VALUES: [&[u8]; 13] = [
    b"-1",
    b"0",
    b"nan",
    b"inf",
    b"1e308",
    b"99999999999",
    b"",
    b"1/1000000",
    b"-0.5",
    b"0.1",
    "\u{e9}\u{4e2d}".as_bytes(),
    b"caf\xe9",
    b"18446744073709551615",
];

/// Flags that take a name, a text or an address, for which nearly any value is valid.
const NAMES: [&str; 17] = [
    "--out",
    "--embeddings",
    "--gallery",
    "--pairs",
    "--state",
    "--log",
    "--prompt",
    "--cache-dir",
    "--column",
    "--positive",
    "--label",
    "--classes",
    "--keep-classes",
    "--file-column",
    "--validation",
    "--host",
    "--sample",
];

/// Flags for which 0 is valid.
const ZERO: [&str; 31] = [
    "--embeddings",
    "--gallery",
    "--pairs",
    "--seed",
    "--id",
    "--port",
    "--momentum",
    "--weight-decay",
    "--warmup",
    "--smoothing",
    "--dropout",
    "--compute-ms",
    "--cache-fraction",
    "--checkpoint-every",
    "--remote-cache",
    "--temperature",
    "--threads",
    "--words",
    "--top",
    "--prompt",
    "--out",
    "--state",
    "--log",
    "--cache-dir",
    "--label",
    "--positive",
    "--column",
    "--keep-classes",
    "--classes",
    "--validation",
    "--host",
];

/// Flags for sizes of something in memory, or numbers of threads.
const SIZES: [&str; 14] = [
    "--threads",
    "--feed-threads",
    "--read-threads",
    "--ranks",
    "--embedding",
    "--hidden",
    "--layers",
    "--heads",
    "--positions",
    "--micro-batches",
    "--width",
    "--carry",
    "--seconds",
    "--scale",
];

/// Flags that need another flag.
const WITH: [(&str, &str); 6] = [
    ("--peer-memory", "--cache peers"),
    ("--mode", "--cache peers"),
    ("--anywhere", "--cache peers"),
    ("--vocabulary", "--decode words"),
    ("--pair", "--decode words"),
    ("--log", "--state state"),
];

/// Spellings that end with a number.
const SPELLINGS: [(&str, &str); 29] = [
    ("--grow", "cosine:"),
    ("--grow", "inverse:4:"),
    ("--order", "queue:"),
    ("--order", "page:"),
    ("--order", "block:"),
    ("--order", "opportunistic:"),
    ("--order", "opportunistic:2:"),
    ("--access", "window:"),
    ("--echo", "read:"),
    ("--echo", "batch:2:"),
    ("--echo", "auto:"),
    ("--schedule", "step:"),
    ("--schedule", "step:1:"),
    ("--inner-passes", "until:"),
    ("--inner-passes", "until:0.1:"),
    ("--buckets", "optimal:"),
    ("--buckets", "static:"),
    ("--buckets", "tokens:"),
    ("--buckets", "pack:9:"),
    ("--policy", "tokens:"),
    ("--on-bad-record", "skip:"),
    ("--mode", "opportunistic:"),
    ("--logits", "cosine:"),
    ("--logits", "arcface:"),
    ("--class-weight", "1="),
    ("--format", "tokens:"),
    ("--format", "bytes:"),
    ("--mix", "1,"),
    ("--remote-cache", "1/"),
];

/// The spellings of a flag; of `--augment` up to the last number of each step.
fn spellings(flag: &str) -> impl Iterator<Item = &'static str> {
    let steps = Augment::steps().iter().filter(move |_| flag == "--augment");
    let examples = steps.flat_map(|step| step.examples);
    let last = examples.filter_map(|text| Some(&text[..=text.rfind(':')?]));
    let others = SPELLINGS.iter().filter(move |(name, _)| *name == flag);
    others.map(|(_, spelling)| *spelling).chain(last)
}

/// Whether a value of a flag must be refused.
fn is_absurd(flag: &str, value: &[u8]) -> bool {
    let behind = spellings(flag).filter_map(|text| value.strip_prefix(text.as_bytes()));
    if let Some(behind) = behind.min_by_key(|behind| behind.len()) {
        let may_be = [&b"0"[..], b"0.1", b"99999999999", b"18446744073709551615"];
        return !may_be.contains(&behind);
    }

    if NAMES.contains(&flag) {
        return false;
    }
    let is_memory = flag.ends_with("memory");
    match value {
        // No augmentation, not even the default one of nets.
        b"" if flag == "--augment" => false,
        b"0" => !ZERO.contains(&flag),
        b"0.1" => false,
        b"1/1000000" => !is_memory,
        b"99999999999" | b"18446744073709551615" => SIZES.contains(&flag),
        _ => true,
    }
}

/// A flag as `--help` shows it.
#[derive(Clone, Debug)]
struct Flag {
    name: String,
    takes_value: bool,
}

/// The flags of a command, from its own help.
fn flags(place: &Place, command: &str) -> Vec<Flag> {
    let names: Vec<&str> = command
        .split_whitespace()
        .take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
        .filter(|word| !word.starts_with('-'))
        .collect();
    // `bench` is followed by data, `train` by a kind of model.
    let depth = if names[0] == "train" { 2 } else { 1 };
    let help = place
        .ok(&format!("{} --help", names[..depth].join(" ")))
        .stdout;
    let lines = help.lines().map(str::trim_start);
    let flags = lines.filter_map(|line| {
        let name = line
            .split([' ', '[', '.'])
            .find(|word| word.starts_with("--"))?;
        let is_flag =
            line.starts_with("--") || line.starts_with('-') && line[2..].starts_with(", --");
        (is_flag && name != "--help" && name != "--version").then(|| Flag {
            name: name.to_string(),
            takes_value: line.contains(&format!("{name} <")) || line.contains(&format!("{name} [")),
        })
    });
    let flags: Vec<Flag> = flags.collect();
    assert!(
        flags.iter().any(|flag| flag.takes_value),
        "{command}: {help}"
    );
    flags
}

/// A command line, and its flags with values that must be refused.
struct Set {
    words: Vec<OsString>,
    absurd: Vec<String>,
}

impl Set {
    fn shown(&self) -> String {
        let words = self.words.iter().map(|word| format!("{word:?}"));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// One of `VALUES`, after a spelling if the flag has any.
fn value_of(flag: &str, below: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let spellings: Vec<&str> = spellings(flag).collect();
    let chosen = below(spellings.len() + 1);
    let spelling = spellings.get(chosen).copied().unwrap_or_default();
    [spelling.as_bytes(), VALUES[below(VALUES.len())]].concat()
}

/// The command with one to three flags of `flags`, the first with a value from `VALUES`.
fn set(command: &str, flags: &[Flag], data: &Path, state: &mut u64) -> Set {
    let mut below = |n: usize| (random_bits(state) % n as u64) as usize;
    let mut given: Vec<(String, Option<Vec<u8>>)> = Vec::new();
    let valued: Vec<&Flag> = flags.iter().filter(|flag| flag.takes_value).collect();
    let first = &valued[below(valued.len())].name;
    given.push((first.clone(), Some(value_of(first, &mut below))));
    for _ in 0..below(3) {
        let flag = &flags[below(flags.len())];
        let value = flag.takes_value.then(|| value_of(&flag.name, &mut below));
        if given.iter().all(|(name, _)| *name != flag.name) {
            given.push((flag.name.clone(), value));
        }
    }
    let absurd = given.iter().filter_map(|(name, value)| {
        value
            .as_ref()
            .filter(|value| is_absurd(name, value))
            .map(|_| name.clone())
    });
    let absurd = absurd.collect();
    let mut words: Vec<OsString> = Vec::new();
    let mut skips = false;
    let line = command.replace('@', data.to_str().unwrap());
    for word in line.split_whitespace() {
        if word.starts_with("--") {
            skips = given.iter().any(|(name, _)| name == word);
        }
        if !skips {
            words.push(word.into());
        }
    }
    for (name, with) in WITH {
        let is_given = |flag: &str| given.iter().any(|(name, _)| name == flag);
        let (flag, _) = with.split_once(' ').unwrap();
        let is_there = words.iter().any(|word| word == flag);
        if is_given(name) && !is_given(flag) && !is_there {
            words.extend(with.split(' ').map(OsString::from));
        }
    }
    for (name, value) in given {
        match value {
            // The value may begin with a hyphen.
            Some(value) => words.push(OsString::from_vec([name.as_bytes(), b"=", &value].concat())),
            None => words.push(name.into()),
        }
    }
    Set { words, absurd }
}

/// How a command ended, and whether it was interrupted.
struct Ran {
    output: Output,
    was_interrupted: bool,
    took: Duration,
}

#[expect(clippy::zombie_processes)] // it has ended, or is killed and waited for
fn run(set: &Set, cache: &Path) -> Result<Ran, String> {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {ADDRESSES_KIB}; ulimit -c 0; exec \"$0\" \"$@\"");
    command
        .args([OsStr::new("-c"), script.as_ref()])
        .arg(crate::program())
        .args(&set.words)
        .current_dir(place.path())
        .env("PELTON_CACHE", cache)
        .env_remove("PELTON_LOG")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(place.path().join(".stdout")).unwrap())
        .stderr(std::fs::File::create(place.path().join(".stderr")).unwrap());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    let (mut was_interrupted, mut status) = (false, None);
    while status.is_none() {
        std::thread::sleep(Duration::from_millis(2));
        status = child.try_wait().unwrap();
        if !was_interrupted && began.elapsed() > WORKS {
            let pid = Pid::from_child(&child);
            // It may just have ended.
            let _ = kill_process(pid, Signal::INT);
            was_interrupted = true;
        }
        if began.elapsed() > WORKS + ENDS {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("still runs {ENDS:?} after a signal"));
        }
    }
    let read = |name: &str| std::fs::read(place.path().join(name)).unwrap();
    let output = Output {
        status: status.unwrap(),
        stdout: read(".stdout"),
        stderr: read(".stderr"),
    };
    Ok(Ran {
        output,
        was_interrupted,
        took: began.elapsed(),
    })
}

/// Checks how a set of flags ended.
fn judge(set: &Set, ran: &Ran) -> Result<(), String> {
    let stderr = std::str::from_utf8(&ran.output.stderr).map_err(|_| "messages are not UTF-8")?;
    let status = ran.output.status;
    if let Some(signal) = status.signal() {
        return Err(format!("ended by signal {signal}: {stderr}"));
    }
    let code = status.code().unwrap();
    if ![0, 1, 2, 3, 130].contains(&code) || stderr.contains("panicked") {
        return Err(format!("exit code {code}: {stderr}"));
    }
    let said: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with("pelton:"))
        .collect();
    if said.len() != usize::from(code != 0)
        || code != 0 && stderr.lines().last() != said.first().copied()
    {
        return Err(format!(
            "exit code {code} without one sentence at the end: {stderr}"
        ));
    }
    if said
        .iter()
        .any(|said| said.contains("Some(") || said.contains("os error 22"))
    {
        return Err(format!("not for people: {stderr}"));
    }
    if !set.absurd.is_empty() && code != 2 {
        return Err(format!(
            "{} accepted, exit code {code}: {stderr}",
            set.absurd.join(", ")
        ));
    }
    if code == 130 && !ran.was_interrupted {
        return Err(format!("interrupted by nobody: {stderr}"));
    }
    Ok(())
}

/// Tiny data, and runs of every kind.
#[cfg(feature = "nets")]
pub fn data() -> Place {
    let place = Place::new();
    place.libsvm("train", 60);
    let words = ["one", "two", "three", "four"];
    let line = |i: usize| words[..1 + i % 4].join(" ") + "\n";
    place.write("text", (0..60).map(line).collect::<String>());
    let row = |i: usize| format!("name{},{},{}\n", i % 3, i % 3, (i * 7) % 5);
    place.write("few.csv", (0..60).map(row).collect::<String>());
    place.write("pairs", "0 1 1\n0 2 0\n");
    place.ok("train linear train --epochs 2 --out linear");
    place.ok("train classify few.csv --label 1 --model none --epochs 1 --batch 20 --out classify");
    place.ok("train language text --hidden 8 --epochs 1 --out language");
    for demo in ["demo:images:60", "demo:classes:20:4:16", "demo:higgs:2000"] {
        place.ok(&format!("index {demo}"));
    }
    place
}

#[cfg(feature = "nets")]
#[test]
fn no_set_of_flags_aborts_hangs_or_means_nothing() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let count = number("PELTON_FLAG_SETS").unwrap_or(SETS as u64) as usize;
    let mut state = number("PELTON_FLAG_SEED").unwrap_or(1);
    let place = data();
    let all: Vec<Vec<Flag>> = COMMANDS.iter().map(|line| flags(&place, line)).collect();
    let known: BTreeSet<&str> = all
        .iter()
        .flatten()
        .map(|flag| flag.name.as_str())
        .collect();
    let listed = NAMES
        .iter()
        .chain(&ZERO)
        .chain(&SIZES)
        .chain(WITH.iter().map(|(flag, _)| flag));
    for flag in listed {
        assert!(known.contains(flag), "no command has the flag {flag}");
    }
    let sets: Vec<Set> = (0..count)
        .map(|i| {
            let command = i % COMMANDS.len();
            set(
                COMMANDS[command],
                &all[command],
                &place.path(""),
                &mut state,
            )
        })
        .collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let cache = place.path("cache");
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism()
            .map_or(2, usize::from)
            .max(2)
        {
            scope.spawn(|| {
                while let Some(set) = sets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let judged = run(set, &cache).and_then(|ran| {
                        if std::env::var_os("PELTON_FLAG_SHOW").is_some() {
                            let said = String::from_utf8_lossy(&ran.output.stderr);
                            let last = said.lines().last().unwrap_or_default();
                            eprintln!(
                                "{:?} {:.1?} {}\n    {last}",
                                ran.output.status.code(),
                                ran.took,
                                set.shown()
                            );
                        }
                        judge(set, &ran)
                    });
                    if let Err(what) = judged {
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("{}\n    {what}", set.shown()));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {count} sets:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
