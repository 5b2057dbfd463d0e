//! A disk that fills up while a run writes to it.

use crate::command::Place;

/// Runs `line` with the folder `full` on a separate disk of `size`; `None`, with a loud line, if this user cannot mount
/// one.
pub fn on_small_disk(place: &Place, size: &str, line: &str) -> Option<crate::command::Ended> {
    std::fs::create_dir_all(place.path("full")).unwrap();
    let unshare = "unshare --mount --map-root-user sh -c";
    let mount = format!("mount -t tmpfs -o mode=755,size={size} tmpfs full");
    if place.shell(&format!("{unshare} '{mount}'")).code != Some(0) {
        eprintln!("SKIPPED: this user cannot mount a small disk of its own");
        return None;
    }
    Some(place.shell(&format!("{unshare} '{mount} && exec $PELTON {line}'")))
}

fn check(size: &str, line: &str, code: i32, parts: &[&str]) {
    let place = Place::new();
    place.higgs(30000);
    place.libsvm("train", 3000);
    if let Some(ended) = on_small_disk(&place, size, line) {
        ended.refused(line, code, parts);
    }
}

#[test]
fn no_space_for_the_run_folder() {
    let line = "train svm higgs.prow --memory 1/8 --epochs 2 --out full/run";
    check("64k", line, 1, &["full/run", "no space", "--resume"]);
    check("4k", line, 1, &["full/run", "no space"]);
    // The error names the rank that writes, and the others end with it.
    let line = "train svm higgs.prow --memory 1/8 --epochs 3 --checkpoint-every 0 --ranks 3 --out full/run";
    check("4k", line, 1, &["rank 0: full/run", "no space"]);
}

#[test]
fn no_space_for_scratch_files() {
    let line =
        "train svm higgs.prow --memory 2MiB --access scatter --epochs 2 --scratch full --out run";
    check("1m", line, 1, &["full", "free"]);
}

#[test]
fn no_space_for_packed_and_generated_data() {
    check(
        "64k",
        "pack higgs.prow -o full/copy.prow",
        1,
        &["full/copy.prow", "no space"],
    );
    check(
        "64k",
        "train svm demo:higgs:50000 --cache-dir full --out run",
        1,
        &["full", "no space"],
    );
}

#[test]
fn no_space_for_a_vocabulary() {
    let line = "vocabulary train --format text --out full/v";
    check("4k", line, 1, &["full/v", "no space is left on the disk"]);
}

#[test]
fn no_space_for_where_a_pipeline_stands() {
    // The log of ids outgrows the disk; the state is the one saved before.
    let line = "bench higgs.prow --batch 50 --epochs 20 --state full/state --log full/log";
    check("64k", line, 1, &["log of the pipeline", "No space left"]);
    let line = "bench higgs.prow --batch 50 --state full/state";
    let parts = ["full/state", "space", "the same command"];
    check("0k,nr_inodes=1", line, 1, &parts);
}

#[test]
fn a_full_device_for_predictions() {
    let place = Place::new();
    place.libsvm("train", 3000);
    place.ok("train svm train --epochs 1 --out run");
    let line = "$PELTON predict run train > /dev/full";
    place.shell(line).refused(line, 1, &["results", "space"]);
    let line = "$PELTON index train --json > /dev/full";
    place.shell(line).refused(line, 1, &["results", "space"]);
}
