//! Data on a web server: the commands do with addresses what they do with files.

#[path = "../../../remote/tests/support/server.rs"]
mod server;

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use server::{Behaviour, Fault, Server};

use crate::command::{Ended, Place};

/// A server of some of a place's files.
fn served(place: &Place, names: &[&str]) -> Server {
    let server = Server::start(Behaviour::default());
    for name in names {
        server.put(name, place.read(name));
    }
    server
}

/// Two tar files of 30 samples each.
fn tars(place: &Place) {
    let script = "mkdir s; for i in $(seq -w 0 59); do \
        head -c $((i * 911 % 9000 + 1)) /dev/urandom > s/$i.bin; echo $((i % 7)) > s/$i.cls; done; \
        cd s; tar cf ../t-00.tar --sort=name [0-2]*; tar cf ../t-01.tar --sort=name [3-5]*";
    // `expr` counts numbers with a leading zero as decimal.
    let script = script.replace("$((i * 911 % 9000 + 1))", "$(expr $i \\* 911 % 9000 + 1)");
    let script = script.replace("$((i % 7))", "$(expr $i % 7)");
    place.shell(&script).succeeded("tar");
}

#[test]
fn addresses_give_the_batches_that_files_give() {
    let place = Place::new();
    tars(&place);
    let server = served(&place, &["t-00.tar", "t-01.tar"]);
    let line = |data: &str, log: &str| {
        format!("bench {data} --batch 7 --epochs 2 --seed 5 --decode none --log {log}")
    };
    let here = place.json(&line("t-{00..01}.tar", "here.log"));
    let there = place.json(&line(&server.url("t-{00..01}.tar"), "there.log"));
    assert_eq!(here["examples"], 120);
    assert_eq!(there["examples"], 120);
    let expected = place.read("here.log");
    assert!(!expected.is_empty() && place.read("there.log") == expected);
    // The index is kept: the headers are not walked over again.
    let before = server.requests();
    let figures = place.json(&format!("index {}", server.url("t-{00..01}.tar")));
    assert_eq!(figures["records"], 60);
    assert_eq!(figures["source"], "sidecar");
    assert_eq!(server.requests() - before, 2);
    let shown = |data: &str| {
        let shown = place.ok(&format!("inspect {data} --id 41")).stdout;
        shown.replace(data.rsplit_once("t-").unwrap().0, "")
    };
    assert_eq!(
        shown(&server.url("t-{00..01}.tar")),
        shown("t-{00..01}.tar")
    );
}

#[test]
fn what_was_read_is_kept_where_that_is_asked_for() {
    let place = Place::new();
    tars(&place);
    let server = served(&place, &["t-00.tar", "t-01.tar"]);
    let data = server.url("t-{00..01}.tar");
    let without = place.ok(&format!("bench {data} --epochs 1 --batch 10"));
    assert!(
        without
            .stderr
            .contains("what is read again is fetched again; --remote-cache keeps it"),
        "{}",
        without.stderr
    );
    let line = format!("bench {data} --epochs 3 --batch 10 --decode none --remote-cache 100MB");
    let with = place.ok(&line);
    assert!(!with.stderr.contains("fetched again"), "{}", with.stderr);
    let before = server.requests();
    place.ok(&line);
    assert_eq!(server.requests() - before, 2);
    // Another state of a file is another file.
    server.put("t-01.tar", place.read("t-00.tar"));
    let figures = place.json(&line);
    assert_eq!(figures["examples"], 180);
    place.refuses(
        &format!("bench {data} --remote-cache 1/8"),
        2,
        &["is a share, and a size such as 50GB is needed"],
    );
}

#[test]
fn models_train_and_predict_from_addresses() {
    let place = Place::new();
    let rows: String = (0..3000)
        .map(|i: u32| format!("{} 1:{} 2:{}\n", 1 - 2 * (i as i32 % 2), i % 2, i % 97))
        .collect();
    place.write("a.svm", &rows);
    place.shell("gzip -k a.svm").succeeded("gzip");
    let server = served(&place, &["a.svm", "a.svm.gz"]);
    let mut models = Vec::new();
    for (run, data) in [
        ("file", "a.svm".to_owned()),
        ("address", server.url("a.svm")),
        ("packed", server.url("a.svm.gz")),
    ] {
        place.ok(&format!(
            "train linear {data} --epochs 3 --solver coordinate-descent --out {run}"
        ));
        models.push(place.read(&format!("{run}/model.safetensors")));
        let figures = place.json(&format!("eval {run} {data}"));
        assert_eq!(
            figures["examples"].as_u64().or(figures["rows"].as_u64()),
            Some(3000),
            "{figures}"
        );
    }
    assert!(models[0] == models[1] && models[0] == models[2]);
}

#[test]
fn what_cannot_be_read_is_said_in_a_sentence() {
    let place = Place::new();
    tars(&place);
    let server = served(&place, &["t-00.tar", "t-01.tar"]);
    let none = server.url("none.tar");
    let said =
        format!("{none}: bytes 0 to 65536: the server answered 404 Not Found; check the name");
    place.refuses(&format!("bench {none}"), 2, &[&said]);
    server.faults([Fault::Status(403, "")]);
    let data = server.url("t-00.tar");
    place.refuses(
        &format!("bench {data}"),
        2,
        &["403 Forbidden", "check the credentials"],
    );
    server.faults([Fault::Whole]);
    place.refuses(
        &format!("bench {data}"),
        2,
        &["with the whole file (200 OK)"],
    );
    place.refuses(
        &format!("bench {}", server.url("t-*.tar")),
        2,
        &["a web server does not list its files", "{000..099}"],
    );
    place.refuses(
        "bench gopher://x/y",
        2,
        &["gopher:// is not known; give s3://"],
    );
    place.refuses(
        "bench t-{00..0x}.tar",
        2,
        &["has {00..0x}, which is no range such as {000..099}"],
    );
    // Opened and changed before its records are read: at the first requests for those.
    server.faults([Fault::None, Fault::None, Fault::Rewritten]);
    let ended = place.run(&format!("bench {data} --decode none --epochs 1"));
    ended.refused("bench", 1, &["changed after it was listed", "ETag"]);
}

fn signal_after(child: Child, pause: Duration) -> (Ended, Duration) {
    std::thread::sleep(pause);
    let began = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    (Ended::of(child), began.elapsed())
}

/// Whether a server is silent while a file is opened or while records are read.
#[test]
fn an_interruption_does_not_wait_for_a_server() {
    let place = Place::new();
    tars(&place);
    let server = served(&place, &["t-00.tar", "t-01.tar"]);
    let data = server.url("t-{00..01}.tar");
    place.ok(&format!("index {data}"));
    for silent_after in [0, 2] {
        let silence = std::iter::repeat_n(Fault::Silence(Duration::from_secs(60)), 200);
        server.faults(std::iter::repeat_n(Fault::None, silent_after).chain(silence));
        let line = format!("bench {data} --decode none --epochs 1");
        let (ended, took) = signal_after(place.start(&line), Duration::from_secs(2));
        ended.refused(&line, 130, &["interrupted"]);
        assert!(took < Duration::from_millis(1500), "{took:?}");
    }
}
