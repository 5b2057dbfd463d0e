//! Progress of a command: a progress bar on a terminal, plain lines elsewhere. Everything here goes to standard error;
//! standard output is for results only. Failed writes there are ignored, since a full disk or a closed terminal must
//! not end a job.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use pelton_train::{EpochRecord, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::flags;

/// Standard error, as a writer that never fails.
pub struct Unfailing;

impl Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line to standard error.
pub fn say(line: impl fmt::Display) {
    // One write, so that lines of several processes do not mix.
    let _ = Unfailing.write_all(format!("{line}\n").as_bytes());
}

/// [`say`] with the arguments of `format!`.
macro_rules! say {
    ($($part:tt)*) => { $crate::console::say(format_args!($($part)*)) };
}

/// Shows the events of a job.
pub struct Console {
    bar: Option<ProgressBar>,
    last_line: Instant,
    printed_heading: bool,
}

impl Console {
    /// A console on standard error.
    pub fn new() -> Console {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{msg:24} [{bar:32}] {percent:>3} % {eta}")
                .expect("the template is valid");
            bar.set_style(style.progress_chars("=> "));
            bar
        });
        Console {
            bar,
            last_line: Instant::now(),
            printed_heading: false,
        }
    }

    /// Shows one event.
    pub fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Note(note) => self.line(&flags::named(note)),
            Event::Progress { what, done, total } => self.progress(what, done, total),
            Event::Epoch(record) => self.epoch(record),
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    fn progress(&mut self, what: &str, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            if bar.message() != what {
                // Work done before a resume does not count towards the speed.
                bar.set_message(what.to_string());
                bar.set_length(total);
                bar.set_position(done.saturating_sub(1));
                bar.reset_eta();
            }
            bar.set_length(total);
            bar.set_position(done);
        } else if self.last_line.elapsed() >= Duration::from_secs(10) {
            self.last_line = Instant::now();
            say!("{what}: {done} of {total}");
        }
    }

    fn epoch(&mut self, record: &EpochRecord) {
        if !self.printed_heading {
            self.printed_heading = true;
            self.line("epoch  passes        primal          dual       gap   wait   compute");
        }
        let mark = if record.certified { ' ' } else { '~' };
        let mut text = format!(
            "{:5}  {:6.2}  {:12.6e}{mark} {:12.6e}  {:8.2e}  {:4.1}s  {:7.1}s",
            record.epoch,
            record.passes,
            record.primal,
            record.dual,
            record.relative_gap,
            record.wait_s,
            record.compute_s
        );
        if let Some(difference) = record.relative_difference {
            text += &format!("  difference {difference:.2e}");
        }
        self.last_line = Instant::now();
        self.line(&text);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A flag that the first Ctrl-C, SIGTERM or SIGHUP sets; another Ctrl-C or SIGTERM ends the process at once.
///
/// A terminal that closes may send SIGHUP twice. Under `nohup` SIGHUP is ignored and stays ignored.
pub fn interrupt_flag() -> Arc<AtomicBool> {
    // One for all steps of a command: a signal during one is not lost to the next.
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    Arc::clone(FLAG.get_or_init(registered))
}

fn registered() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The first handler ends the process only when the flag is already set.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag));
        let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
    }
    if !ignores_hangup().unwrap_or(true) {
        let _ = signal_hook::flag::register(SIGHUP, Arc::clone(&flag));
    }
    flag
}

/// Whether this process ignores SIGHUP; `None` if the system does not tell.
fn ignores_hangup() -> Option<bool> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    let ignored = u64::from_str_radix(ignored.trim(), 16).ok()?;
    Some(ignored >> (SIGHUP - 1) & 1 == 1)
}

/// Turns growth of a file beyond `ulimit -f`, which otherwise ends the process, into an error of the write.
pub fn outlive_large_files() {
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Prints an error as one sentence, with its causes if they add anything.
pub fn say_error(error: &anyhow::Error) {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        // The message already says that the file does not exist.
        let absent = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        if cause.downcast_ref().is_some_and(absent) {
            continue;
        }
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    say!("pelton: {}", one_line(&flags::named(&text)));
}

/// Messages of the standard library about invalid numbers, with plainer replacements.
const PLAIN_WORDS: [(&str, &str); 5] = [
    (
        "invalid digit found in string",
        "give a whole number, 0 or more",
    ),
    (
        "number too large to fit in target type",
        "give a number below 2^64",
    ),
    (
        "cannot parse integer from empty string",
        "give a whole number, 0 or more",
    ),
    (
        "is not in 0..=4294967295",
        "is too small or too large; give a whole number from 0 to 4294967295",
    ),
    ("invalid float literal", "give a number such as 0.5"),
];

/// Prints an error in the arguments as one sentence: clap's message and tips without the usage, which `--help` shows.
pub fn say_usage_error(error: &clap::Error) {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    let text = error.to_string();
    let text = match error.kind() {
        DisplayHelpOnMissingArgumentOrSubcommand => "no command is given",
        _ => text.split("\n\nUsage:").next().unwrap_or(&text),
    };
    let text = text.split("\n\nFor more information").next();
    let mut text = one_line(text.unwrap_or_default().trim_start_matches("error: "));
    for (said, meant) in PLAIN_WORDS {
        text = text.replace(said, meant);
    }
    say!("pelton: {text}; --help shows how");
}

/// The same text with its lines joined.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut joined = String::new();
    for line in lines {
        if !joined.is_empty() {
            joined += if joined.ends_with([':', ',', ';']) {
                " "
            } else {
                "; "
            };
        }
        joined += line;
    }
    joined
}
