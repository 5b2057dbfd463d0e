//! A real S3 server on the loopback device: signatures, regions, lists of many pages, profiles.
//!
//! What a client takes from the environment is set for a process of its own, one for each case.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use pelton_remote::{RemoteOptions, Stores};
use pelton_storage::conformance::check_storage;
use pelton_storage::{Storage, StorageError};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tempfile::tempdir;
use tokio::net::TcpListener;

const KEY: &str = "EXAMPLEKEY";
const SECRET: &str = "example/secret";
const CASE: &str = "PELTON_TEST_S3_CASE";

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// Serves the folders of `root` as buckets, as long as the process lives.
fn serve(root: &Path) -> SocketAddr {
    let files = FileSystem::new(root).expect("a folder");
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
    let service = builder.build();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            sender
                .send(listener.local_addr().expect("its address"))
                .expect("it is waited for");
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                let service = service.clone();
                tokio::spawn(async move {
                    let server = Builder::new(TokioExecutor::new());
                    // A client that goes away is no matter.
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                    Ok::<(), Infallible>(())
                });
            }
        });
    });
    receiver.recv().expect("it serves")
}

#[test]
fn a_server_of_buckets() {
    let root = tempdir().expect("a folder");
    let bucket = root.path().join("data");
    for folder in ["many", "a", "b", "c/deep"] {
        fs::create_dir_all(bucket.join(folder)).expect("a folder");
    }
    let put = |name: &str, bytes: &[u8]| fs::write(bucket.join(name), bytes).expect("written");
    put("train-000.tar", &pattern(200_003));
    for name in [
        "train-001.tar",
        "test.tar",
        "a/x1.tar",
        "b/x2.tar",
        "b/y.tar",
        "c/deep/x3.tar",
    ] {
        put(name, b"x");
    }
    put("with blank & plus+.tar", b"odd");
    for i in 0..1200 {
        put(&format!("many/{i:04}.csv"), b"1,2\n");
    }
    let home = tempdir().expect("a folder");
    fs::create_dir(home.path().join(".aws")).expect("a folder");
    let keys = format!("[other]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n");
    fs::write(home.path().join(".aws/credentials"), keys).expect("written");
    let endpoint = format!("http://{}", serve(root.path()));
    for (case, settings) in [
        (
            "reads",
            vec![
                ("AWS_ACCESS_KEY_ID", KEY),
                ("AWS_SECRET_ACCESS_KEY", SECRET),
            ],
        ),
        ("reads", vec![("AWS_PROFILE", "other")]),
        (
            "wrong key",
            vec![
                ("AWS_ACCESS_KEY_ID", KEY),
                ("AWS_SECRET_ACCESS_KEY", "wrong"),
            ],
        ),
        (
            "no key",
            vec![("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")],
        ),
    ] {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "client", "--ignored", "--nocapture"])
            .env_clear()
            .env("HOME", home.path())
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_REGION", "us-east-1")
            .env(CASE, case)
            .envs(settings)
            .output()
            .expect("run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case}: {said}");
    }
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn client() {
    let stores = Stores::new(RemoteOptions::default(), Arc::default());
    match std::env::var(CASE).as_deref() {
        Ok("reads") => reads(&stores),
        Ok("wrong key") => refused(
            &stores,
            Some(403),
            "(SignatureDoesNotMatch); check the credentials",
        ),
        Ok("no key") => refused(
            &stores,
            None,
            "no credentials are known; set AWS_ACCESS_KEY_ID",
        ),
        _ => {}
    }
}

fn refused(stores: &Stores, expected: Option<u16>, text: &str) {
    let error = stores
        .open("s3://data/train-000.tar", 10)
        .expect_err("refused");
    let StorageError::Remote { status, lasts, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(*status == expected && *lasts, "{error:?}");
    assert!(error.to_string().contains(text), "{error}");
    let error = stores
        .matching("s3://data/train-*.tar")
        .expect_err("refused");
    assert!(error.to_string().contains(text), "{error}");
}

fn reads(stores: &Stores) {
    let bytes = pattern(200_003);
    let (object, head) = stores
        .open("s3://data/train-000.tar", 1000)
        .expect("opened");
    assert_eq!(head, bytes[..1000]);
    assert_eq!(object.name(), "s3://data/train-000.tar");
    assert!(object.modified().is_some());
    check_storage(&object, &bytes);
    let (_, odd) = stores
        .open("s3://data/with blank & plus+.tar", 10)
        .expect("opened");
    assert_eq!(odd, b"odd");
    let error = stores
        .open("s3://data/none.tar", 10)
        .expect_err("nothing there");
    assert!(error.to_string().contains("s3://data/none.tar: bytes 0 to 10: the server answered 404 Not Found (NoSuchKey); check the name"), "{error}");
    let error = stores
        .open("s3://none/none.tar", 10)
        .expect_err("nothing there");
    assert!(error.to_string().contains("404 Not Found"), "{error}");
    let check = |pattern: &str, expected: &[&str]| {
        let found = stores.matching(pattern).expect(pattern);
        assert_eq!(found, expected, "{pattern}");
    };
    check(
        "s3://data/train-*.tar",
        &["s3://data/train-000.tar", "s3://data/train-001.tar"],
    );
    check("s3://data/t*t.t?r", &["s3://data/test.tar"]);
    check(
        "s3://data/[ab]/x*.tar",
        &["s3://data/a/x1.tar", "s3://data/b/x2.tar"],
    );
    check("s3://data/*/y.tar", &["s3://data/b/y.tar"]);
    check("s3://data/*/deep/x?.tar", &["s3://data/c/deep/x3.tar"]);
    let many = stores.matching("s3://data/many/*.csv").expect("many");
    assert_eq!(many.len(), 1200);
    assert!(many.is_sorted() && many[1199] == "s3://data/many/1199.csv");
    for (pattern, text) in [
        ("s3://data/x*.tar", "no file matches the pattern"),
        ("s3://data/none/*", "no file matches the pattern"),
        ("s3://data/***", "it is no pattern"),
        ("s3://none/*", "404 Not Found (NoSuchBucket)"),
    ] {
        let error = stores.matching(pattern).expect_err(pattern);
        assert!(error.to_string().contains(text), "{pattern}: {error}");
    }
    assert_eq!(object.size().expect("asked"), bytes.len() as u64);
}
