//! Runs `pelton` in a separate folder and checks how it ended.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A temporary folder to run commands in. Nothing is written outside it.
pub struct Place {
    folder: tempfile::TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Place {
        Place {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The configuration of a run, without the line that names it.
    pub fn configuration(&self, run: &str) -> String {
        let text = String::from_utf8(self.read(&format!("{run}/run.toml"))).unwrap();
        let (name, config) = text.split_once('\n').unwrap();
        assert!(name.starts_with("# Run "), "{text}");
        config.to_string()
    }

    /// The command `pelton LINE` in this folder, with the [words](Place::words) of the line.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(crate::program());
        self.prepare(&mut command);
        command.args(self.words(line));
        command
    }

    /// The words of a line, separated by spaces; `train svm` is `train linear` with a [plain problem](plain), unless it
    /// continues a run or names a configuration.
    pub fn words(&self, line: &str) -> Vec<String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if let ["train", svm @ "svm", ..] = &mut words[..] {
            *svm = "linear";
            let out = words.iter().position(|word| *word == "--out");
            let run = out.and_then(|at| words.get(at + 1)).unwrap_or(&"run");
            let goes_on = words.contains(&"--resume")
                && (words.get(2) == Some(&"--resume") || self.path(run).join("run.toml").exists());
            if !goes_on && !words.contains(&"--config") {
                words.extend(plain(&words));
            }
        }
        words.into_iter().map(str::to_string).collect()
    }

    /// A shell script in this folder, in which `$PELTON` is the binary.
    pub fn shell(&self, script: &str) -> Ended {
        let mut command = Command::new("sh");
        self.prepare(&mut command);
        command.env("PELTON", crate::program());
        let script = match script.split_once("train svm") {
            None => script.to_string(),
            Some((before, rest)) => {
                let end = rest.find(['\'', '"', ';']).unwrap_or(rest.len());
                let words = self.words(&format!("train svm{}", &rest[..end])).join(" ");
                format!("{before}{words}{}", &rest[end..])
            }
        };
        Ended::from(command.args(["-c", &script]).output().unwrap())
    }

    fn prepare(&self, command: &mut Command) {
        command
            .current_dir(self.folder.path())
            .env("PELTON_CACHE", self.path("cache"))
            .env_remove("PELTON_LOG")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null());
    }

    /// Runs `pelton LINE` to its end.
    pub fn run(&self, line: &str) -> Ended {
        Ended::from(self.command(line).output().unwrap())
    }

    /// Runs `pelton LINE`, which must succeed.
    pub fn ok(&self, line: &str) -> Ended {
        self.run(line).succeeded(line)
    }

    /// Runs `pelton LINE --json`, which must succeed and print exactly one JSON object.
    pub fn json(&self, line: &str) -> Value {
        self.ok(&format!("{line} --json")).json()
    }

    /// Starts `pelton LINE` and returns at once.
    pub fn start(&self, line: &str) -> Child {
        let mut command = self.command(line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// `pelton LINE` must end with `code` and one sentence with all of `parts`.
    pub fn refuses(&self, line: &str, code: i32, parts: &[&str]) {
        self.run(line).refused(line, code, parts);
    }
}

/// The flags of `train linear` for a linear SVM without an intercept on unscaled features, which ends after its epochs;
/// without those in `given`.
fn plain(given: &[&str]) -> Vec<&'static str> {
    let has = |flags: &[&str]| flags.iter().any(|flag| given.contains(flag));
    let loss = given.iter().position(|word| *word == "--loss");
    let loss = loss.and_then(|at| given.get(at + 1)).unwrap_or(&"hinge");
    let is_of_classes = ["hinge", "squared-hinge", "logistic", "multinomial"].contains(loss);
    let is_demo = given.iter().any(|word| word.starts_with("demo:"));
    let mut flags = Vec::new();
    let mut add = |wanted: bool, flag: [&'static str; 2]| {
        if wanted && !has(&[flag[0]]) {
            flags.extend(flag);
        }
    };
    add(true, ["--loss", "hinge"]);
    add(is_of_classes && !has(&["--bias"]), ["--intercept", "none"]);
    add(true, ["--scale", "none"]);
    add(true, ["--missing", "error"]);
    add(!is_demo, ["--target", "none"]);
    flags
}

/// Waits until `child` handles SIGINT itself or has ended.
pub fn wait_for_handler(child: &mut Child) {
    const SIGINT_BIT: u64 = 1 << 1;
    let status = format!("/proc/{}/status", child.id());
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if caught.is_some_and(|mask| mask & SIGINT_BIT != 0) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "a handler");
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("output is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        }
    }
}

impl Ended {
    pub fn of(child: Child) -> Ended {
        Ended::from(child.wait_with_output().unwrap())
    }

    pub fn succeeded(self, line: &str) -> Ended {
        assert_eq!(self.code, Some(0), "{line}\n{}", self.stderr);
        self.free_of_panics(line);
        assert!(!self.stderr.contains("pelton:"), "{line}\n{}", self.stderr);
        self
    }

    pub fn json(&self) -> Value {
        let value: Value = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.stdout));
        assert!(value.is_object(), "{value}");
        value
    }

    /// Exactly one line on standard error begins with `pelton:`; it is the last, and contains `parts`.
    pub fn refused(&self, line: &str, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{line}\n{}", self.stderr);
        self.free_of_panics(line);
        let said: Vec<&str> = self
            .stderr
            .lines()
            .filter(|text| text.starts_with("pelton:"))
            .collect();
        assert_eq!(said.len(), 1, "{line}: one sentence\n{}", self.stderr);
        assert_eq!(self.stderr.lines().last(), Some(said[0]), "{line}: it ends");
        for part in parts {
            assert!(said[0].contains(part), "{line}: {part:?} in\n{}", said[0]);
        }
        assert!(
            !said[0].contains("Some("),
            "{line}: debug text\n{}",
            said[0]
        );
    }

    fn free_of_panics(&self, line: &str) {
        for text in ["panicked", "RUST_BACKTRACE"] {
            assert!(!self.stderr.contains(text), "{line}\n{}", self.stderr);
        }
    }
}

/// The figure `key`, which must be a finite number.
pub fn number(figures: &Value, key: &str) -> f64 {
    let value = figures[key].as_f64();
    value
        .filter(|value| value.is_finite())
        .unwrap_or_else(|| panic!("{key} in {figures}"))
}

/// Copies a file; the copy is always writable.
pub fn copy(from: &Path, to: &Path) {
    std::fs::write(to, std::fs::read(from).unwrap()).unwrap();
}
