//! Names, passwords and queries of addresses: no output or file shows them, except `run.toml`, which then only its
//! owner can read.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::command::{Ended, Place};

const SECRETS: [&[u8]; 4] = [b"joe", b"hunter2", b"topsecret", b"alsosecret"];

/// Serves files by name, ignoring anything after it; returns `HOST:PORT`.
pub fn serve(files: Vec<(&'static str, Vec<u8>)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let files = Arc::new(files);
    std::thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            let files = Arc::clone(&files);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
                while answer(&files, &mut reader, &stream).is_some() {}
            });
        }
    });
    address.to_string()
}

fn answer(
    files: &[(&str, Vec<u8>)],
    reader: &mut BufReader<TcpStream>,
    mut out: &TcpStream,
) -> Option<()> {
    let (mut target, mut range, mut user) = (String::new(), None, false);
    for number in 0.. {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        if number == 0 {
            target = line.split(' ').nth(1)?.to_owned();
        } else if let Some(bytes) = line.to_lowercase().strip_prefix("range: bytes=") {
            let (from, to) = bytes.split_once('-')?;
            range = Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?));
        }
        // joe:hunter2
        user |= line.ends_with("Basic am9lOmh1bnRlcjI=");
    }
    let path = target.trim_start_matches('/').split('?').next()?;
    let found = files.iter().find(|(name, _)| *name == path);
    let Some((_, bytes)) = found.filter(|_| user && target.contains("topsecret")) else {
        write!(out, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").ok()?;
        return Some(());
    };
    let (from, to) = range?;
    let to = to.min(bytes.len() - 1);
    let (size, length) = (bytes.len(), to + 1 - from);
    let head = "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nContent-Range: bytes";
    write!(
        out,
        "{head} {from}-{to}/{size}\r\nContent-Length: {length}\r\n\r\n"
    )
    .ok()?;
    out.write_all(&bytes[from..=to]).ok()
}

fn has_secret(bytes: &[u8]) -> bool {
    SECRETS
        .iter()
        .any(|secret| bytes.windows(secret.len()).any(|window| window == *secret))
}

fn check_files(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let (path, mode) = entry
            .map(|entry| (entry.path(), entry.metadata().unwrap().permissions().mode()))
            .unwrap();
        let name = path.display().to_string();
        assert!(!has_secret(name.as_bytes()), "{name}");
        if path.is_dir() {
            check_files(&path);
        } else if has_secret(&std::fs::read(&path).unwrap()) {
            assert!(name.ends_with("/run.toml"), "{name}");
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}

fn check(place: &Place, line: &str, is_right: bool) -> Ended {
    let mut command = place.command(line);
    command.env("PELTON_LOG", "trace");
    let ended = Ended::from(command.output().unwrap());
    let code = ended.code.unwrap_or(-1);
    assert_eq!(code == 0, is_right, "{line}\n{}", ended.stderr);
    assert!((0..=2).contains(&code), "{line}\n{}", ended.stderr);
    for text in [&ended.stdout, &ended.stderr] {
        assert!(!has_secret(text.as_bytes()), "{line}\n{text}");
    }
    check_files(&place.path("."));
    ended
}

#[test]
fn secrets_of_addresses_are_not_shown() {
    let rows = crate::data::libsvm(2000);
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zipped.write_all(rows.as_bytes()).unwrap();
    let bad = rows.replacen(" 1:", " nonsense:", 1);
    let files = vec![
        ("a.svm", rows.clone().into_bytes()),
        ("b.svm.gz", zipped.finish().unwrap()),
        ("bad.svm", bad.into_bytes()),
        ("c.csv", "1,2,3\n0,5,6\n".repeat(500).into_bytes()),
    ];
    let host = serve(files);
    let place = Place::new();
    let url = |name: &str| {
        format!("http://joe:hunter2@{host}/{name}?X-Amz-Signature=topsecret&token=alsosecret")
    };
    let (a, b, bad, none) = (
        url("a.svm"),
        url("b.svm.gz"),
        url("bad.svm"),
        url("none.svm"),
    );
    let train = format!("train svm {a} {b} --test {a} --epochs 2");
    check(
        &place,
        &format!("{train} --out run --remote-cache 1GB"),
        true,
    );
    // The saved files are enough to resume, and to start again.
    check(&place, "train svm --resume --out run", true);
    check(&place, "train svm --config run/run.toml --out again", true);
    check(&place, &format!("eval run {a}"), true);
    check(&place, &format!("predict run {b} -o predictions"), true);
    check(&place, &format!("inspect {a}"), true);
    check(&place, &format!("index {a} --json"), true);
    check(&place, &format!("pack {b} -o packed.prow"), true);
    let bench = format!(
        "bench {} --label first --batch 100 --state state --log log --json",
        url("c.csv")
    );
    check(&place, &bench, true);
    let ended = check(&place, &format!("train svm {bad} --out bad"), false);
    assert!(ended.stderr.contains(&format!("http://{host}/bad.svm")));
    let ended = check(&place, &format!("train svm {none} --out none"), false);
    assert!(ended.stderr.contains("404"), "{}", ended.stderr);
    check(&place, &format!("bench {none} {a}"), false);
    for name in [
        "s3://joe:hunter2@b/a?x=topsecret".to_owned(),
        format!("http://joe:hunter2@{host}/*.svm?x=topsecret"),
        format!("http://joe:hunter2/topsecret@{host}/a.svm"),
    ] {
        check(&place, &format!("bench {name}"), false);
    }
    check(&place, &format!("bench {a} --label-file {none}"), false);
    check(&place, &format!("eval run/{a}/x {a}"), false);
}
