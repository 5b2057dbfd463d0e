//! The environment of a command: standard streams that cannot be written, signals, limits of the system. None of them
//! ends a job that can do without, and none ends it without a message.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Ended, Place};
use crate::flag_sets::{COMMANDS, data};

/// Runs every command in a separate folder through the script `around`, with `RUN` for the command line; returns the
/// exit codes that the script writes to the file `code`, with the output.
fn codes(data: &Place, around: &str) -> Vec<(String, String, String)> {
    let each = COMMANDS.iter().map(|command| {
        let place = Place::new();
        let folder = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(place.path("."), folder).unwrap();
        let line = command.replace('@', data.path("").to_str().unwrap());
        // A server gets a signal to end.
        let run = format!("timeout --preserve-status -s INT 3 $PELTON {line}");
        let cache = data.path("cache");
        let script = format!(
            "export PELTON_LOG=debug PELTON_CACHE={}; {}",
            cache.display(),
            around.replace("RUN", &run)
        );
        let ended = place.shell(&script);
        let code = std::fs::read_to_string(place.path("code")).unwrap_or_default();
        (line, code.trim().to_string(), ended.stderr)
    });
    each.collect()
}

/// Jobs once ended with a panic.
#[test]
fn a_job_needs_no_standard_stream() {
    let data = data();
    // Some of the commands refuse this data.
    let usual: Vec<String> = codes(&data, "RUN >/dev/null 2>&1; echo $? > code")
        .into_iter()
        .map(|(_, code, _)| code)
        .collect();
    assert!(usual.iter().filter(|code| *code == "0").count() > 15);
    std::thread::scope(|scope| {
        for around in [
            "RUN 2>/dev/full; echo $? > code",
            "RUN <&- >&- 2>&-; echo $? > code",
            "{ RUN; echo $? > code; } 2>&1 | true",
        ] {
            let (data, usual) = (&data, &usual);
            scope.spawn(move || {
                for ((line, code, _), usual) in codes(data, around).iter().zip(usual) {
                    // The signal may arrive before a command ends by itself, or before a server serves.
                    if ![code, usual].contains(&&"130".to_string()) {
                        assert_eq!(code, usual, "{line}: {around}");
                    }
                }
            });
        }
    });
    // Bad requests, with an error that cannot be printed.
    for around in [
        "$PELTON nothing 2>/dev/full; echo $? > code",
        "$PELTON eval nowhere x 2>/dev/full; echo $? > code",
        "PELTON_LOG=loud $PELTON index train 2>/dev/full; echo $? > code",
    ] {
        data.shell(around);
        assert_eq!(data.read("code"), b"2\n", "{around}");
    }
}

/// A refused thread once made Rayon's global pool panic.
#[test]
fn refused_threads_are_fewer_threads_or_an_error() {
    let data = data();
    // Limits of a user count all processes of the user, and do not apply to root.
    let user = 60_000 + std::process::id() % 5000;
    let other_user = if rustix::process::getuid().is_root() {
        format!("setpriv --reuid={user} --clear-groups ")
    } else {
        String::new()
    };
    let tried = data.shell(&format!(
        "chmod -R a+rwX . && {other_user}prlimit --nproc=9 $PELTON --version && ! {other_user}prlimit --nproc=1 sh -c '(true)'"
    ));
    if tried.code != Some(0) {
        eprintln!("SKIPPED: this user cannot limit its processes");
        return;
    }
    // `timeout` is one more process.
    for limit in [2, 4] {
        let around =
            format!("{other_user}prlimit --nproc={limit} RUN 2>said; echo $? > code; cat said >&2");
        for (line, code, said) in codes(&data, &around) {
            assert!(!said.contains("panicked"), "{line}: {said}");
            let reported = said.lines().filter(|line| line.starts_with("pelton:"));
            match code.as_str() {
                "0" => assert_eq!(reported.count(), 0, "{line}: {said}"),
                "1" | "2" => assert_eq!(reported.count(), 1, "{line}: {said}"),
                _ => panic!("{line}: exit code {code}: {said}"),
            }
        }
    }
}

/// The run was once killed by SIGXFSZ.
#[test]
fn a_file_beyond_the_limit_is_an_error() {
    let place = Place::new();
    place.higgs(3000);
    let run =
        |limit: u32, line: &str| place.shell(&format!("ulimit -f {limit}; exec $PELTON {line}"));
    let line = "train svm higgs.prow --epochs 2 --out run";
    run(2, line).refused(line, 1, &["run", "File too large"]);
    place.shell("ulimit -f 0; exec $PELTON train linear higgs.prow --epochs 2 --out other 2>said");
    assert!(place.read("said").is_empty());
    // The run resumes from the last state that fitted.
    place.ok("train svm higgs.prow --epochs 2 --resume --out run");
}

fn started(place: &Place, before: &str) -> std::process::Child {
    let line = "train svm higgs.prow --epochs 100000 --checkpoint-every 0 --memory 1/8";
    let line = place.words(line).join(" ");
    let mut command = std::process::Command::new("sh");
    let script = format!(
        "{before} exec {} {line} --out run",
        crate::program().display()
    );
    let streams = [(); 2].map(|()| std::process::Stdio::piped());
    let [out, err] = streams;
    command.args(["-c", &script]).current_dir(place.path(""));
    let child = command.stdout(out).stderr(err).spawn().unwrap();
    let began = Instant::now();
    while !place.path("run/checkpoint/manifest.json").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "a checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// A terminal that closes sends SIGHUP, possibly twice, and takes standard error with it.
#[test]
fn a_closed_terminal_saves_the_run() {
    let place = Place::new();
    place.higgs(30000);
    let mut child = started(&place, "");
    drop(child.stderr.take());
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    }
    assert_eq!(Ended::of(child).code, Some(130));
}

#[test]
fn a_run_without_a_terminal_outlives_it() {
    let place = Place::new();
    place.higgs(30000);
    let mut child = started(&place, "trap '' HUP;");
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(Ended::of(child).code, Some(130));
}
