//! Limits of a container: memory without `--memory`, and a limited number of threads.
//!
//! The limits are those of control groups; without the right to create one these tests say so and end.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Ended, Place};

/// A control group with one limit, removed when dropped.
struct Group(PathBuf);

impl Group {
    /// A group below this process's own, in the hierarchy of `controller` (version 1) or the unified one (version 2).
    fn create(controller: &str, limits: [&str; 2], value: &str) -> Option<Group> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = |wanted: &str| {
            let line = groups.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                let is_it = controllers.split(',').any(|one| one == wanted);
                is_it.then_some(path.trim_start_matches('/'))
            });
            line.map(str::to_string)
        };
        let name = format!("pelton-{controller}-{}-{value}", std::process::id());
        let kinds = [
            (
                Path::new("/sys/fs/cgroup").join(controller),
                own(controller),
                limits[0],
            ),
            ("/sys/fs/cgroup".into(), own(""), limits[1]),
        ];
        for (root, own, limit) in kinds {
            let Some(own) = own else { continue };
            let folder = root.join(own).join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Group(folder);
            if fs::write(group.0.join(limit), value).is_ok() {
                return Some(group);
            }
        }
        eprintln!("SKIPPED: no control group with a limit of {controller} can be made here");
        None
    }

    fn of_memory(bytes: u64) -> Option<Group> {
        let limits = ["memory.limit_in_bytes", "memory.max"];
        Group::create("memory", limits, &bytes.to_string())
    }

    fn of_threads(most: usize) -> Option<Group> {
        Group::create("pids", ["pids.max"; 2], &most.to_string())
    }

    /// `pelton LINE` in this group.
    fn run(&self, place: &Place, line: &str) -> Ended {
        let members = self.0.join("cgroup.procs");
        place.shell(&format!(
            "echo $$ > {} && exec $PELTON {line}",
            members.display()
        ))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Rows of a label and `width` numbers, about `bytes` bytes in total.
fn table(place: &Place, name: &str, width: usize, bytes: usize) {
    let mut text = String::with_capacity(bytes + 1000);
    let mut state = 1u64;
    while text.len() < bytes {
        let mut sum = 0;
        let mut row = String::new();
        for _ in 0..width {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(99);
            let value = state >> 57;
            sum += value;
            row += &format!(",{value}");
        }
        text += &format!("{}{row}\n", u8::from(sum > 63 * width as u64));
    }
    place.write(name, text);
}

/// Each of these was once killed, since budgets did not depend on the available memory.
#[test]
fn jobs_fit_a_container_without_being_told() {
    const LIMIT: u64 = 64 << 20;
    let Some(group) = Group::of_memory(LIMIT) else {
        return;
    };
    let place = Place::new();
    table(&place, "wide.csv", 40, 80 << 20);
    fs::write(
        place.path("text.txt"),
        "some words of a text to learn\n".repeat(1 << 20),
    )
    .unwrap();
    let mut lines = vec![
        "index wide.csv --label 1",
        "train svm wide.csv --label 1 --solver newton --epochs 1 --out newton",
        "train svm wide.csv --label 1 --solver coordinate-descent --epochs 1 --out descent",
        "train svm wide.csv --label 1 --ranks 2 --epochs 1 --out ranks",
        "eval newton wide.csv --label 1",
        "bench wide.csv --label 1",
        "bench wide.csv --label 1 --ranks 2",
        "pack wide.csv --label 1 --out packed.pelton",
        "vocabulary text.txt --out words.vocab",
    ];
    if cfg!(feature = "nets") {
        lines.push(
            "train classify wide.csv --label 1 --model none --epochs 1 --batch 4096 --out net",
        );
    }
    for line in lines {
        group.run(&place, line).succeeded(line);
    }
    // A budget above the limit was once accepted without a note.
    table(&place, "few.csv", 40, 100_000);
    let few = group.run(
        &place,
        "bench few.csv --label 1 --decode none --memory 1GiB",
    );
    assert!(
        few.stderr
            .contains("--memory 1073 MB is more than the 67 MB"),
        "{}",
        few.stderr
    );
    let few = "train svm few.csv --label 1 --memory 1GiB --epochs 1 --out few";
    let few = group.run(&place, few).succeeded(few);
    assert!(
        few.stderr.contains("--memory 1073 MB is lowered to"),
        "{}",
        few.stderr
    );
    let toml = String::from_utf8(place.read("newton/run.toml")).unwrap();
    let expected = format!("memory_bytes = {}", LIMIT / 4);
    assert!(toml.contains(&expected), "{expected} in\n{toml}");
}

/// Threads that could not be started once caused panics.
#[test]
fn few_threads_are_enough_or_an_error_in_one_sentence() {
    if Group::of_threads(100).is_none() {
        return;
    }
    let place = Place::new();
    table(&place, "rows.csv", 5, 3_000_000);
    table(&place, "more.csv", 5, 200_000);
    fs::write(
        place.path("text.txt"),
        "some words of a text to learn\n".repeat(9999),
    )
    .unwrap();
    place.ok("train svm rows.csv --label 1 --epochs 1 --out model");
    let mut lines = vec![
        "index rows.csv more.csv --label 1",
        "train svm rows.csv more.csv --label 1 --solver newton --epochs 1 --overwrite --out newton",
        "train svm rows.csv --label 1 --solver coordinate-descent --access scatter --memory 2MB --epochs 2 --overwrite --out descent",
        "train svm rows.csv --label 1 --ranks 2 --epochs 1 --overwrite --out ranks",
        "bench rows.csv --label 1",
        "bench demo:higgs:3000 --ranks 2",
        "eval model rows.csv --label 1",
        "vocabulary text.txt --overwrite --out words.vocab",
        "probe . --size 1MiB --seconds 0.01",
    ];
    if cfg!(feature = "nets") {
        lines.push(
            "train classify rows.csv --label 1 --model none --epochs 1 --overwrite --out net",
        );
    }
    for threads in [1, 2, 3, 4, 6, 9] {
        let Some(group) = Group::of_threads(threads) else {
            return;
        };
        for line in &lines {
            let ended = group.run(&place, line);
            let said = format!("{line}, at most {threads} threads");
            match ended.code {
                Some(0) => drop(ended.succeeded(&said)),
                _ => ended.refused(&said, ended.code.unwrap_or(-1), &["thread"]),
            }
        }
    }
}
