//! `bench` over ranks and peers' memory.

use crate::command::{Place, number};

const RECORDS: u64 = 6000;

fn place() -> Place {
    let place = Place::new();
    place.libsvm("train", RECORDS);
    place
}

fn count(figures: &serde_json::Value, key: &str) -> u64 {
    figures[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {figures}"))
}

#[test]
fn ranks_share_every_batch() {
    let place = place();
    let alone = place.json("bench train --batch 100 --epochs 2");
    assert_eq!(count(&alone, "ranks"), 1);
    for ranks in [2, 3, 7] {
        let line = format!("bench train --batch 100 --epochs 2 --ranks {ranks}");
        let figures = place.json(&line);
        assert_eq!(count(&figures, "ranks"), ranks);
        assert_eq!(count(&figures, "examples"), 2 * RECORDS);
        assert_eq!(figures["used_bytes"], alone["used_bytes"]);
        let (sum, expected) = (number(&figures, "checksum"), number(&alone, "checksum"));
        assert!((sum - expected).abs() <= 1e-9 * expected.abs().max(1.0));
    }
    // Most ranks get nothing of a batch.
    let figures = place.json("bench train --batch 3 --ranks 8 --memory 16MiB");
    assert_eq!(count(&figures, "examples"), RECORDS);
}

#[test]
fn memory_that_holds_the_data_reads_it_once_a_run() {
    let place = place();
    let bytes = std::fs::metadata(place.path("train")).unwrap().len();
    let used = count(&place.json("bench train"), "used_bytes");
    for flags in ["", " --anywhere"] {
        let line = format!(
            "bench train --io buffered --batch 500 --epochs 3 --ranks 3 --cache peers{flags}"
        );
        let figures = place.json(&line);
        assert_eq!(figures["pipeline"], "in memory", "{figures}");
        assert_eq!(figures["mode"], "ordered");
        assert_eq!(count(&figures, "backend_bytes"), bytes);
        let [local, remote] = ["local_bytes", "remote_bytes"].map(|key| count(&figures, key));
        assert_eq!(local + remote, 3 * used);
        let share = remote as f64 / (local + remote) as f64;
        match flags {
            " --anywhere" => assert!((share - 2.0 / 3.0).abs() < 0.03, "{share}"),
            _ => assert!(share < 0.5 * (2.0f64 / 500.0).sqrt() + 0.005, "{share}"),
        }
    }
}

#[test]
fn memory_that_holds_a_part_reads_each_byte_once_an_epoch_at_most() {
    let place = place();
    let bytes = std::fs::metadata(place.path("train")).unwrap().len();
    let line = "bench train --io buffered --batch 200 --epochs 2 --ranks 2 --cache peers \
                --peer-memory 1/4 --memory 16MiB";
    let ordered = place.json(&format!("{line} --mode ordered"));
    let fixed = count(&ordered, "backend_bytes") as f64 / bytes as f64;
    // A quarter is read once, three quarters in both epochs.
    assert!((fixed - 1.75).abs() < 0.01, "{ordered}");
    assert_eq!(number(&ordered, "rl_exact"), 1.0);
    let loads = place.json(&format!("{line} --mode opportunistic --unit-bytes 2KiB"));
    assert_eq!(loads["mode"], "opportunistic");
    assert_eq!(count(&loads, "examples"), 2 * RECORDS);
    assert!(count(&loads, "backend_bytes") <= 2 * bytes, "{loads}");
    let level = number(&loads, "rl_exact");
    assert!(level > 0.6 && level < 1.0, "{loads}");
    // More loads reduce shuffling.
    let smaller = line.replace("--batch 200", "--batch 100");
    let more = place.json(&format!(
        "{smaller} --mode opportunistic:20 --unit-bytes 2KiB"
    ));
    let read = count(&more, "backend_bytes") as f64 / bytes as f64;
    assert!(read <= 2.0 && read > 1.8, "{more}");
    assert!(number(&more, "rl_exact") < level, "{more}");
    assert_eq!(more["used_bytes"], loads["used_bytes"]);
    let sums = [&ordered, &loads].map(|figures| number(figures, "checksum"));
    assert!((sums[0] - sums[1]).abs() <= 1e-9 * sums[0].abs().max(1.0));
    assert_eq!(ordered["used_bytes"], loads["used_bytes"]);
}

#[test]
fn what_ranks_and_peers_cannot_do_is_said() {
    let place = place();
    place.refuses("bench train --ranks 0", 2, &["--ranks 0", "give 1 to"]);
    place.refuses("bench train --mode opportunistic", 2, &["--cache"]);
    place.refuses("bench train --cache disk", 2, &["peers"]);
    for mode in ["opportunistic:0", "opportunistic:many"] {
        let line = format!("bench train --cache peers --mode {mode}");
        place.refuses(&line, 2, &["--mode", "loads"]);
    }
    place.refuses(
        "bench train --cache peers --mode random",
        2,
        &["ordered, opportunistic"],
    );
    place.refuses(
        "bench absent --ranks 3",
        2,
        &["absent: no such file", "check the path"],
    );
    let line = "bench train --batch 500 --ranks 2 --cache peers --peer-memory 1/4 \
                --mode opportunistic --unit-bytes 2KiB";
    place.refuses(line, 2, &["batches of 500 examples", "--batch"]);
    // By default batches are as large as fit.
    place.ok(&line.replace("--batch 500 ", ""));
    let line = "bench train --ranks 2 --cache peers --peer-memory 1KB --mode opportunistic";
    place.refuses(line, 2, &["memory"]);
}

#[test]
fn a_launcher_without_its_library_is_refused() {
    let place = place();
    let mut command = place.command("bench train");
    let ended = command
        .env("OMPI_COMM_WORLD_SIZE", "4")
        .env("PELTON_MPI", "/absent/libmpi.so")
        .output()
        .unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(said.contains("PELTON_MPI: /absent/libmpi.so"), "{said}");
}

/// Each process would do the whole job, and on separate disks both would succeed.
#[test]
fn processes_of_other_launchers_are_refused() {
    let place = place();
    place.write("text", "a b\n".repeat(50));
    let lines = [
        "train linear train --epochs 1 --out run",
        "train image train --model mlp --epochs 1 --out run",
        "train classify demo:classes:20:4:16 --model none --epochs 1 --out run",
        "train language text --epochs 1 --out run",
        "bench train",
    ];
    let nets = cfg!(feature = "nets");
    for line in lines
        .iter()
        .filter(|line| nets || !line.starts_with("train ") || line.contains("linear"))
    {
        for variables in [
            [("RANK", "1"), ("WORLD_SIZE", "2")],
            [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")],
        ] {
            let ended = place.command(line).envs(variables).output().unwrap();
            let ended = crate::command::Ended::from(ended);
            ended.refused(line, 2, &["started 2 processes", "--ranks 2", "mpirun"]);
        }
        assert!(!place.path("run").exists());
    }
    for variables in [
        [("RANK", "0"), ("WORLD_SIZE", "1")],
        [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")],
    ] {
        let ended = place
            .command("bench train")
            .envs(variables)
            .output()
            .unwrap();
        assert!(ended.status.success(), "{variables:?}");
    }
    let mut one = place.command("bench train --ranks 1");
    let ended = one.envs([("RANK", "1"), ("WORLD_SIZE", "2")]).output();
    assert!(ended.unwrap().status.success());
}

/// Ids of every rank's log, in order.
fn logged(place: &Place, name: &str, ranks: usize) -> Vec<u64> {
    let logs = (0..ranks).map(|rank| match rank {
        0 => place.path(name),
        rank => place.path(&format!("{name}.{rank}")),
    });
    let mut ids: Vec<u64> = logs
        .flat_map(|path| {
            let bytes = std::fs::read(path).unwrap();
            let (ids, _) = bytes.as_chunks();
            ids.iter()
                .map(|&id| u64::from_le_bytes(id))
                .collect::<Vec<_>>()
        })
        .collect();
    ids.sort_unstable();
    ids
}

/// Sentences of unequal length; some wait in buckets while other loads replace theirs.
fn sentences(place: &Place) {
    let words = |i: usize| "word ".repeat(1 + i * 7 % 23);
    let text: String = (0..4000)
        .map(|i| format!("line{i} {}\n", words(i)))
        .collect();
    std::fs::write(place.path("text.txt"), text).unwrap();
}

/// Every example comes as often as it should, from memory for a quarter, with any pipeline on top.
#[test]
fn pipelines_read_through_peers_memory() {
    let place = Place::new();
    sentences(&place);
    for (number, flags) in [
        "",
        "--buckets auto",
        "--buckets static:8,16 --echo before:2:256",
        "--buckets pack:64",
        "--echo after:3",
        "--echo read:2:64",
    ]
    .iter()
    .enumerate()
    {
        for memory in [
            "",
            "--peer-memory 1/4",
            "--peer-memory 1/4 --mode opportunistic --unit-bytes 2KiB",
        ] {
            let name = format!("log{number}{}", memory.len());
            // A row of a packed batch has many sentences, and three batches must fit in a load.
            let batch = if flags.contains("pack") { 6 } else { 20 };
            let line = format!(
                "bench text.txt --decode words {flags} --batch {batch} --epochs 2 --ranks 3 --cache peers {memory} \
                 --state {name}.state --log {name}"
            );
            let figures = place.json(&line);
            let examples = count(&figures, "examples");
            let ids = logged(&place, &name, 3);
            let copies = examples / 4000;
            if !flags.contains("pack") {
                assert_eq!((examples % 4000, ids.len() as u64), (0, examples), "{line}");
                let each = ids
                    .chunk_by(|a, b| a == b)
                    .all(|same| same.len() as u64 == copies);
                assert!(each, "{line}");
            }
            assert_eq!(
                count(&figures, "fresh_examples"),
                2 * 4000,
                "{line}: {figures}"
            );
            let memory_bytes = count(&figures, "local_bytes") + count(&figures, "remote_bytes");
            assert!(memory_bytes > 0, "{line}: {figures}");
        }
    }
}

/// A run through peers' memory, saved in the middle of buckets and echo, resumes with the remaining examples, also on
/// another number of ranks.
#[test]
fn a_pipeline_through_peers_memory_goes_on() {
    let place = Place::new();
    sentences(&place);
    let line = "bench text.txt --decode words --buckets auto --echo before:2:256 --batch 20 --cache peers \
                --peer-memory 1/4 --mode opportunistic:9 --unit-bytes 2KiB --state state --log log";
    place.json(&format!("{line} --ranks 3 --epochs 1"));
    place.json(&format!("{line} --ranks 2 --epochs 2"));
    let ids = logged(&place, "log", 3);
    assert_eq!(ids.len(), 4 * 4000);
    assert!(ids.chunk_by(|a, b| a == b).all(|same| same.len() == 4));
}
