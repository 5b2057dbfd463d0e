//! Peak resident memory stays within the budget, α, w, the location table and 64 MiB, on data larger
//! than all of these together.

use crate::command::{Place, number};
use crate::data::wide;

const MIB: f64 = 1048576.0;

fn check(place: &Place, data: &str, budget_mib: f64, table: f64, flags: &str) {
    let line = format!(
        "train svm {data} --memory {budget_mib}MiB --epochs 2 --inner-passes 1 {flags} \
         --overwrite --out run"
    );
    let figures = place.json(&line);
    let alpha = 4.0 * number(&figures, "records");
    let w = 4.0 * number(&figures, "features");
    let bound = budget_mib * MIB + alpha + w + table + 64.0 * MIB;
    let peak = number(&figures, "peak_rss_bytes");
    assert!(
        peak <= bound,
        "{line}: {:.1} MiB over {:.1}",
        peak / MIB,
        bound / MIB
    );
    let size = std::fs::metadata(place.path(data)).unwrap().len() as f64;
    assert!(size > bound, "{data}: {:.1} MiB", size / MIB);
    eprintln!("{line}: {:.1} MiB of {:.1}", peak / MIB, bound / MIB);
}

#[test]
fn fixed_rows_in_every_order_by_every_path() {
    let place = Place::new();
    place.higgs(800_000);
    for order in [
        "full",
        "page:65536",
        "queue:1000",
        "block:100",
        "opportunistic:16",
        "sequential",
    ] {
        check(
            &place,
            "higgs.prow",
            8.0,
            0.0,
            &format!("--order {order} --access window"),
        );
    }
    for access in ["auto", "direct", "scatter"] {
        check(
            &place,
            "higgs.prow",
            8.0,
            0.0,
            &format!("--access {access}"),
        );
    }
    for access in ["window", "scatter"] {
        check(
            &place,
            "higgs.prow",
            8.0,
            0.0,
            &format!("--access {access} --skip"),
        );
    }
}

#[test]
fn text_with_a_location_table() {
    let place = Place::new();
    let rows = crate::data::libsvm(20_000);
    let mut file = std::fs::File::create(place.path("train")).unwrap();
    for _ in 0..60 {
        std::io::Write::write_all(&mut file, rows.as_bytes()).unwrap();
    }
    let table = number(&place.json("index train"), "index_bytes");
    for order in ["full", "page:65536", "sequential"] {
        check(&place, "train", 8.0, table, &format!("--order {order}"));
    }
}

#[test]
fn rows_kept_as_codes() {
    let place = Place::new();
    place.ok("pack demo:epsilon:12000 --out epsilon.prow");
    // Two tables of 4 bytes a record next to α.
    let tables = 8.0 * 12_000.0;
    for flags in ["", "--cache-fraction 0.9"] {
        check(&place, "epsilon.prow", 6.0, tables, flags);
    }
}

#[test]
fn a_share_of_the_data_is_one_of_its_files() {
    let place = Place::new();
    place.libsvm("text", 20_000);
    place.ok("pack text -o text.prow");
    for line in [
        "train svm text --out run --overwrite",
        "train svm text.prow --out run --overwrite",
        "bench text --batch 100",
    ] {
        let name = line
            .split(' ')
            .find(|word| word.starts_with("text"))
            .unwrap();
        let size = std::fs::metadata(place.path(name)).unwrap().len() as f64;
        let figures = place.json(&format!("{line} --epochs 1 --memory 2/3"));
        let share = number(&figures, "memory_bytes") / size;
        assert!((share - 2.0 / 3.0).abs() < 0.01, "{line}: {share}");
    }
}

/// A sixteenth of the budget has no room for a row with three read buffers, but for some rows with one; these many
/// features leave no room for a copy of w.
#[test]
fn a_budget_that_can_train_can_certify() {
    let place = Place::new();
    let rows = crate::data::libsvm(20_000);
    place.write("wide", rows.replacen('\n', " 100000:1\n", 1));
    let line = "train svm wide --memory 1MiB --blocks 40 --overwrite --out run";
    for flags in [
        "--access window",
        "--access direct",
        "--access scatter",
        "--access window --skip",
    ] {
        let ended = |threads| {
            let line = format!("{line} {flags} --target 2e-3 --epochs 60 --threads {threads}");
            let figures = place.json(&line);
            assert!(number(&figures, "relative_gap") <= 2e-3, "{figures}");
            (
                figures["epochs"].clone(),
                place.read("run/model.safetensors"),
            )
        };
        assert!(ended(1) == ended(3), "{flags}");
    }
    place.ok(&format!("{line} --optimum auto --epochs 3"));
}

#[test]
fn rows_kept_as_codes_save_passes() {
    let place = Place::new();
    place.write("wide.csv", wide(8000));
    let passes = |flags: &str| {
        let line = format!(
            "train svm wide.csv --memory 1/12 --target 1e-3 --epochs 40 {flags} --overwrite --out run --json"
        );
        let ended = place.run(&line);
        assert!(matches!(ended.code, Some(0 | 3)), "{}", ended.stderr);
        let figures = ended.json();
        (number(&figures, "passes"), number(&figures, "relative_gap"))
    };
    let (kept, gap) = passes("");
    assert!(gap <= 1e-3, "{gap}");
    let (blocks, _) = passes("--cache-fraction 0");
    assert!(3.0 * kept < blocks, "{kept} {blocks}");
}

/// A bucket with an endless list of files is refused, with memory for one page of the list.
#[test]
fn a_list_without_end_takes_no_memory() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                let file = "<Contents><Key>a/b</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>";
                let chunk = file.repeat(1000);
                let chunk = format!("{:x}\r\n{chunk}\r\n", chunk.len());
                let mut sent = write!(stream, "{head}12\r\n<ListBucketResult>\r\n");
                // Until the client disconnects.
                while sent.is_ok() {
                    sent = stream.write_all(chunk.as_bytes());
                }
            });
        }
    });
    let place = Place::new();
    let mut command = place.command("bench s3://bucket/a/*.csv");
    command
        .envs([("AWS_ENDPOINT_URL", &*endpoint), ("AWS_ALLOW_HTTP", "true")])
        .envs([("AWS_SKIP_SIGNATURE", "true"), ("AWS_REGION", "us-east-1")])
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0u64;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let ended = crate::command::Ended::of(child);
    ended.refused("bench", 2, &["list is longer than 64 MiB"]);
    assert!((1..400 << 10).contains(&peak_kib), "{peak_kib} KiB");
}
