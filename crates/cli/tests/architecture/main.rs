//! The code matches ARCHITECTURE.md: imports between crates, the crates that print and exit, and the dependencies with
//! their reasons.

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates that each crate may use. A crate uses only crates listed before it.
const ARROWS: [(&str, &[&str]); 25] = [
    ("cpu", &[]),
    ("key", &[]),
    ("batch", &[]),
    ("kernels", &["cpu", "key"]),
    ("storage", &["key"]),
    ("remote", &["storage", "key"]),
    ("text", &["storage", "key"]),
    ("format", &["batch", "storage", "text", "key", "cpu"]),
    ("plan", &["key", "cpu"]),
    ("comm", &[]),
    ("image", &["key", "cpu"]),
    ("cache", &["comm", "plan", "format", "storage", "key"]),
    ("fetch", &["plan", "format", "storage", "key"]),
    (
        "feed",
        &[
            "fetch", "batch", "image", "text", "plan", "format", "storage", "key",
        ],
    ),
    ("linear", &["plan", "format", "storage", "key", "cpu"]),
    ("softmax", &["kernels", "comm", "key"]),
    ("nn", &["softmax", "kernels", "batch", "comm", "key"]),
    ("run", &["comm", "storage", "key"]),
    (
        "data",
        &[
            "run", "feed", "fetch", "batch", "cache", "comm", "image", "plan", "format", "text",
            "remote", "storage", "key",
        ],
    ),
    (
        "train",
        &[
            "data", "run", "nn", "softmax", "linear", "feed", "fetch", "batch", "comm", "image",
            "plan", "format", "text", "storage", "key",
        ],
    ),
    (
        "tools",
        &[
            "data", "run", "softmax", "feed", "fetch", "batch", "comm", "image", "plan", "format",
            "text", "storage", "key",
        ],
    ),
    (
        "serve",
        &[
            "train", "run", "nn", "softmax", "feed", "batch", "comm", "image", "format", "storage",
            "key",
        ],
    ),
    ("cli", &["serve", "tools", "train", "comm", "cpu"]),
    (
        "lab",
        &[
            "cli", "train", "tools", "data", "run", "nn", "softmax", "linear", "feed", "fetch",
            "batch", "comm", "image", "plan", "format", "text", "storage", "kernels", "key",
        ],
    ),
    (
        "python",
        &[
            "cli", "train", "data", "run", "softmax", "feed", "fetch", "batch", "comm", "plan",
            "format", "storage", "key",
        ],
    ),
];
/// Crates that print, exit, name flags and have a binary.
const PROGRAMS: [&str; 2] = ["cli", "lab"];
/// Most lines of a source file.
const MOST_LINES: usize = 700;

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.unwrap().parent().unwrap().to_path_buf()
}

/// The folder of a crate.
fn folder(name: &str) -> PathBuf {
    match name {
        "lab" | "python" => root().join(name),
        name => root().join("crates").join(name),
    }
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {errors}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect(key)
}

/// The name of a crate of this workspace without `pelton-`.
fn own(name: &str) -> Option<&str> {
    name.strip_prefix("pelton-")
}

fn dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"]
        .as_array()
        .expect("dependencies")
        .iter()
}

/// Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        // A crate may lack some of the folders.
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

#[test]
fn every_crate_is_on_the_map() {
    let found: BTreeSet<String> = packages()
        .iter()
        .map(|package| {
            own(text(package, "name"))
                .expect("names begin with pelton-")
                .to_string()
        })
        .collect();
    let mapped = ARROWS.iter().map(|(name, _)| (*name).to_string()).collect();
    assert_eq!(found, mapped);
    let story = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, _) in ARROWS {
        let heading = match name {
            "lab" | "python" => format!("`{name}`"),
            name => format!("crates/{name}"),
        };
        assert!(
            story.contains(&heading),
            "ARCHITECTURE.md has nothing on {heading}"
        );
    }
}

#[test]
fn arrows_point_down() {
    let arrows = BTreeMap::from(ARROWS);
    let mut wrong = Vec::new();
    for package in packages() {
        let name = own(text(&package, "name")).unwrap().to_string();
        for dependency in dependencies(&package) {
            let used = text(dependency, "name");
            if own(used).is_some_and(|used| !arrows[name.as_str()].contains(&used)) {
                wrong.push(format!("pelton-{name} uses {used}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0], "see the arrows in ARCHITECTURE.md");
    for (place, (name, uses)) in ARROWS.iter().enumerate() {
        for used in *uses {
            let below = ARROWS[..place].iter().any(|(other, _)| other == used);
            assert!(below, "{name} uses {used}, which is not below it");
        }
    }
}

#[test]
fn only_programs_have_a_binary() {
    for package in packages() {
        for target in package["targets"].as_array().unwrap() {
            let is_binary = target["kind"].as_array().unwrap().contains(&"bin".into());
            let (crate_name, target) = (text(&package, "name"), text(target, "name"));
            assert!(
                !is_binary || ["pelton-cli", "pelton-lab"].contains(&crate_name),
                "{crate_name} has the binary {target}"
            );
        }
    }
}

/// Shipped lines of a source file: without comments and the test module, which ends a file.
fn shipped(source: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..)
        .zip(source.lines())
        .take_while(|(_, line)| !(line.starts_with("#[cfg(") && line.contains("test")))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Paths below `src` of a crate, and what ships of them.
fn shipped_files(name: &str) -> Vec<(String, String)> {
    let folder = folder(name).join("src");
    let files = sources(&folder).into_iter();
    files
        .filter(|path| {
            let below = path.strip_prefix(&folder).expect("it is below");
            path.file_name().is_some_and(|file| file != "tests.rs") && !below.starts_with("tests")
        })
        .map(|path| {
            let source = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = shipped(&source).map(|(_, line)| line).collect();
            let below = path.strip_prefix(&folder).unwrap();
            (below.to_string_lossy().into_owned(), lines.join("\n"))
        })
        .collect()
}

#[test]
fn files_and_folders_import_one_another_in_one_direction() {
    let mut found = BTreeSet::new();
    for (name, _) in ARROWS {
        let files = shipped_files(name);
        let circles = circles::of_files(&files)
            .into_iter()
            .chain(circles::of_folders(&files));
        found.extend(circles.map(|circle| (name.to_string(), circle)));
    }
    assert!(
        found.is_empty(),
        "files or folders that import one another; move what both need into a third: {found:#?}"
    );
}

/// A digest begins with the name of what it identifies; the same name for two things would let them be confused.
#[test]
fn digests_have_different_names() {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (name, _) in ARROWS {
        for (path, source) in shipped_files(name) {
            for call in source.split("Digest::new(").skip(1) {
                let given = call.split(')').next().unwrap_or_default();
                let earlier = names.insert(given.to_string(), path.clone());
                assert!(given.starts_with('"'), "{path}: name the digest of {given}");
                assert_eq!(earlier, None, "{path}: {given} is taken");
            }
        }
    }
    assert!(names.len() > 30, "{names:?}");
}

#[test]
fn flags_are_named_by_programs_only() {
    let mut wrong = Vec::new();
    for (name, _) in ARROWS.iter().filter(|(name, _)| !PROGRAMS.contains(name)) {
        for path in sources(&folder(name).join("src")) {
            let source = std::fs::read_to_string(&path).unwrap();
            for (number, line) in shipped(&source) {
                if names_flag(line) {
                    wrong.push(format!("{}:{number}: {}", path.display(), line.trim()));
                }
            }
        }
    }
    assert_eq!(
        wrong, [""; 0],
        "a library names the setting: `memory`, not --memory"
    );
}

/// Whether a line has a word that begins with two dashes, except in CSS and commands of other programs.
fn names_flag(line: &str) -> bool {
    const OTHERS: [&str; 3] = ["var(--", "tar --concatenate", "without --sparse"];
    let dashed = |(at, _): (usize, &str)| {
        let before = line[..at].chars().next_back();
        let after = line[at + 2..].chars().next();
        before.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '-')
            && after.is_some_and(|c| c.is_ascii_lowercase())
    };
    line.match_indices("--").any(dashed) && !OTHERS.iter().any(|other| line.contains(other))
}

#[test]
fn libraries_neither_print_nor_exit() {
    // These panic if the stream cannot be written.
    const OF_NOBODY: [&str; 3] = ["println!", "print!(", "dbg!("];
    const OF_PROGRAMS: [&str; 4] = [
        "process::exit",
        "process::abort",
        "io::stdout",
        "io::stderr",
    ];
    let mut wrong = Vec::new();
    for (name, _) in ARROWS {
        let mut forbidden = OF_NOBODY.to_vec();
        if !PROGRAMS.contains(&name) {
            forbidden.extend(OF_PROGRAMS);
        }
        for path in sources(&folder(name).join("src")) {
            if path.file_name().is_some_and(|file| file == "tests.rs") {
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            for (number, line) in shipped(&source) {
                if forbidden.iter().any(|word| line.contains(word)) {
                    wrong.push(format!("{}:{number}: {}", path.display(), line.trim()));
                }
            }
        }
    }
    assert_eq!(
        wrong, [""; 0],
        "only programs print, with `say` and `print_with`, and exit; return an error or tell the observer"
    );
}

/// So that `PELTON_CPU` limits every loop.
#[test]
fn one_crate_asks_the_processor() {
    let asks = concat!("is_x86_feature", "_detected");
    for folder in ["crates", "python/src"] {
        for path in sources(&root().join(folder)) {
            let is_cpu = path.starts_with(root().join("crates/cpu"));
            let source = std::fs::read_to_string(&path).unwrap();
            let asked = shipped(&source).find(|(_, line)| line.contains(asks));
            assert!(is_cpu || asked.is_none(), "{path:?}: {asked:?}");
        }
    }
}

#[test]
fn files_hold_one_concept() {
    for (name, _) in ARROWS {
        for path in sources(&folder(name)) {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(
                lines <= MOST_LINES,
                "{} has {lines} lines: divide it",
                path.display()
            );
        }
    }
}

/// Rows `| names | … |` below the heading "Dependencies" of ARCHITECTURE.md: each name with the last cell.
fn documented() -> BTreeMap<String, String> {
    let story = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = story.split_once("\n## Dependencies").expect("the heading");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let reason = cells.last().unwrap().to_string();
        let names = cells[0]
            .split(", ")
            .map(|name| name.trim_matches('`').to_string());
        names
            .map(move |name| (name, reason.clone()))
            .collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().expect("Cargo.toml is TOML");
    let declared: BTreeSet<String> = manifest["workspace"]["dependencies"]
        .as_table()
        .expect("a table")
        .keys()
        .filter(|name| own(name).is_none())
        .cloned()
        .collect();
    let documented = documented();
    let reasons: BTreeSet<String> = documented.keys().cloned().collect();
    assert_eq!(
        declared, reasons,
        "[workspace.dependencies] of Cargo.toml against the table in ARCHITECTURE.md"
    );
    for (name, reason) in &documented {
        assert!(
            reason.split_whitespace().count() >= 3,
            "{name}: {reason:?} is no reason"
        );
    }
    for package in packages() {
        for dependency in dependencies(&package) {
            let used = text(dependency, "name");
            let known = own(used).is_some() || declared.contains(used);
            assert!(
                known,
                "{} takes {used} past the workspace table",
                text(&package, "name")
            );
        }
    }
}
