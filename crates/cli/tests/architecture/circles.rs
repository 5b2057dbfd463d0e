//! Finds files that import each other: to read one, a reader would have to know the other first.
//!
//! The imports of a file from its crate are found in its text: paths in `use` and in code, resolved through `pub use`
//! to the defining file. `pub use` and `mod` lines are not imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module by its names from the crate's root.
type Module = Vec<String>;

/// The names that a file uses and re-exports.
#[derive(Default)]
struct Names {
    named: Vec<Vec<String>>,
    passed_on: BTreeMap<String, Vec<String>>,
}

/// Which modules use which.
type Uses = BTreeMap<Module, BTreeSet<Module>>;

/// The circles of files of a crate, given as (path below `src`, text that ships): each as the sorted names of its files
/// without `.rs`.
pub fn of_files(files: &[(String, String)]) -> BTreeSet<Vec<String>> {
    let circles = circles(&uses(files)).into_iter();
    circles
        .map(|circle| circle.iter().map(shown).collect())
        .collect()
}

/// The circles among the files and folders of one folder, where what is in a folder counts as the folder.
pub fn of_folders(files: &[(String, String)]) -> BTreeSet<Vec<String>> {
    let uses = uses(files);
    let is_folder = |module: &Module| {
        uses.keys()
            .any(|m| m.len() > module.len() && m.starts_with(module))
    };
    // The file of a folder is one more file in it.
    let path = |module: &Module| {
        let own = is_folder(module).then(|| "mod".to_string());
        module.iter().cloned().chain(own).collect::<Module>()
    };
    let mut levels: BTreeMap<Module, Uses> = BTreeMap::new();
    for (from, used) in &uses {
        for to in used {
            let (from, to) = (path(from), path(to));
            let level = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            let of_level = levels.entry(from[..level].to_vec()).or_default();
            let [from, to] = [from, to].map(|path| path[..=level].to_vec());
            of_level.entry(to.clone()).or_default();
            of_level.entry(from).or_default().insert(to);
        }
    }
    let circles = levels.values().flat_map(circles);
    circles
        .map(|circle| circle.iter().map(shown).collect())
        .collect()
}

fn uses(files: &[(String, String)]) -> Uses {
    let crate_files: BTreeMap<Module, Names> = files
        .iter()
        .map(|(path, text)| (module_of(path), names_of(&tokens(text))))
        .collect();
    let of_one = |(module, names): (&Module, &Names)| {
        let found = |path: &Vec<String>| resolve(&crate_files, module, path, 0);
        let mut used: BTreeSet<Module> = names.named.iter().filter_map(found).collect();
        used.remove(module);
        (module.clone(), used)
    };
    crate_files.iter().map(of_one).collect()
}

fn circles(uses: &Uses) -> BTreeSet<Vec<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = uses
        .iter()
        .map(|(from, used)| {
            let mut seen = BTreeSet::new();
            let mut next: Vec<&Module> = used.iter().collect();
            while let Some(module) = next.pop() {
                if seen.insert(module) {
                    next.extend(&uses[module]);
                }
            }
            (from, seen)
        })
        .collect();
    let of_one = |from: &Module| {
        let back = |to: &&Module| reached[from].contains(*to) && reached[*to].contains(from);
        let circle: Vec<Module> = uses.keys().filter(back).cloned().collect();
        (!circle.is_empty()).then_some(circle)
    };
    uses.keys().filter_map(of_one).collect()
}

fn shown(module: &Module) -> String {
    if module.is_empty() {
        "lib".to_string()
    } else {
        module.join("/")
    }
}

/// `feed/mod.rs` and `feed.rs` are the module feed, `lib.rs` and `main.rs` the root.
fn module_of(path: &str) -> Module {
    let parts = Path::new(path).with_extension("");
    let mut parts: Module = parts
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if matches!(parts.last().map(String::as_str), Some("mod"))
        || parts == ["lib"]
        || parts == ["main"]
    {
        parts.pop();
    }
    parts
}

/// Tokens: names, `::`, and other single characters; skips text in quotes.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => after_string(rest),
            '_' | 'a'..='z' | 'A'..='Z' => rest
                .find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
                .unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            '\'' if rest.starts_with("'\"'") => 3,
            first => first.len_utf8(),
        };
        let (token, after) = rest.split_at(end);
        if first != '"' && !first.is_whitespace() {
            found.push(token);
        }
        rest = after;
    }
    found
}

fn after_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
}

fn names_of(tokens: &[&str]) -> Names {
    let mut names = Names::default();
    let mut at = 0;
    while at < tokens.len() {
        let before = |back: usize| at.checked_sub(back).map(|at| tokens[at]);
        if tokens[at] == "use" {
            let public = before(1) == Some("pub") || before(4) == Some("pub");
            let mut paths = Vec::new();
            at += 1;
            tree(tokens, &mut at, &[], &mut paths);
            if public {
                names.passed_on.extend(
                    paths
                        .into_iter()
                        .filter_map(|path| Some((path.last()?.clone(), path))),
                )
            } else {
                names.named.extend(paths)
            }
        } else if is_name(tokens[at]) && !matches!(before(1), Some("::" | ".")) {
            let mut path = vec![tokens[at].to_string()];
            while tokens.get(at + 1) == Some(&"::")
                && tokens.get(at + 2).is_some_and(|t| is_name(t))
            {
                at += 2;
                path.push(tokens[at].to_string());
            }
            at += 1;
            if path.len() > 1 {
                names.named.push(path);
            }
        } else {
            at += 1;
        }
    }
    names
}

/// The paths of a `use` tree, from `at` on; moves `at` past its last name.
fn tree(tokens: &[&str], at: &mut usize, prefix: &[String], paths: &mut Vec<Vec<String>>) {
    let mut path = prefix.to_vec();
    while let Some(&token) = tokens.get(*at) {
        *at += 1;
        match token {
            "{" => {
                while tokens.get(*at).is_some_and(|token| *token != "}") {
                    tree(tokens, at, &path, paths);
                    *at += usize::from(tokens.get(*at) == Some(&","));
                }
                *at += 1;
                return;
            }
            // The local name does not matter.
            "as" => *at += 1,
            "::" | "*" => {}
            name if is_name(name) => path.push(name.to_string()),
            _ => {
                *at -= 1;
                break;
            }
        }
    }
    paths.push(path);
}

/// The file that defines `path` as seen from `module`; `None` if it is in another crate.
fn resolve(
    files: &BTreeMap<Module, Names>,
    module: &Module,
    path: &[String],
    depth: usize,
) -> Option<Module> {
    let mut path = path;
    let mut base = module.clone();
    match path.first()?.as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            while path.get(1).is_some_and(|name| name == "super") {
                base.pop();
                path = &path[1..];
            }
            base.pop();
        }
        first => {
            let mut child = base.clone();
            child.push(first.to_string());
            if !files.contains_key(&child) {
                return None;
            }
            base = child;
        }
    }
    path = &path[1..];
    while let Some(name) = path.first() {
        let mut child = base.clone();
        child.push(name.clone());
        if !files.contains_key(&child) {
            break;
        }
        base = child;
        path = &path[1..];
    }
    let passed_on = path
        .first()
        .and_then(|name| files.get(&base)?.passed_on.get(name));
    match passed_on {
        Some(from) if depth < 8 => {
            let whole: Vec<String> = from.iter().chain(&path[1..]).cloned().collect();
            resolve(files, &base, &whole, depth + 1)
        }
        _ => Some(base),
    }
}

#[test]
fn circles_are_found_through_what_is_passed_on() {
    let check = |files: &[(&str, &str)], expected: &[&[&str]]| {
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(path, text)| (path.to_string(), text.to_string()))
            .collect();
        let expected = expected
            .iter()
            .map(|circle| circle.iter().map(|file| file.to_string()).collect())
            .collect();
        assert_eq!(of_files(&files), expected);
    };
    let root = ("lib.rs", "mod a; mod b; pub use a::{A, one::One as Other};");
    check(
        &[
            root,
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "fn f() { \"crate::a::A\"; }"),
        ],
        &[],
    );
    check(
        &[
            root,
            ("a.rs", "use std::fmt; use super::b::{B, C};"),
            ("b.rs", "fn f(_: crate::A) {}"),
        ],
        &[&["a", "b"]],
    );
    check(
        &[
            root,
            ("a/mod.rs", "mod one; use one::One;"),
            ("a/one.rs", "use super::A;"),
        ],
        &[&["a", "a/one"]],
    );
    check(
        &[
            root,
            ("a/mod.rs", "pub use one::A;"),
            ("a/one.rs", "use super::two; use super::A;"),
            ("a/two.rs", ""),
        ],
        &[],
    );
    check(
        &[
            root,
            ("a.rs", "fn f() { super::f(); }"),
            ("b.rs", ""),
            ("main.rs", "fn f() { a::f() }"),
        ],
        &[&["lib", "a"]],
    );
}

#[test]
fn a_folder_counts_as_what_is_in_it() {
    let check = |own: &[(&str, &str)], expected: &[&[&str]]| {
        let folders = [("lib.rs", ""), ("a/mod.rs", ""), ("b/mod.rs", "")];
        let given = |path: &str| own.iter().any(|(name, _)| *name == path);
        let rest = folders.iter().filter(|(path, _)| !given(path));
        let files: Vec<(String, String)> = rest
            .chain(own)
            .map(|(path, text)| (path.to_string(), text.to_string()))
            .collect();
        assert!(of_files(&files).is_empty());
        let names = |circle: &&[&str]| circle.iter().map(|name| name.to_string()).collect();
        assert_eq!(of_folders(&files), expected.iter().map(names).collect());
    };
    let down = ("a/one.rs", "use crate::b::two::Two;");
    let two = ("b/two.rs", "");
    check(&[down, two, ("b/three.rs", "")], &[]);
    let up = ("b/three.rs", "use crate::a::four::Four;");
    check(&[down, two, up, ("a/four.rs", "")], &[&["a", "b"]]);
    let of_child = ("a/mod.rs", "use c::one::One;");
    let child = [
        ("a/c/mod.rs", ""),
        ("a/c/one.rs", ""),
        ("a/c/two.rs", "use crate::a::A;"),
    ];
    check(&[&[of_child][..], &child].concat(), &[&["a/c", "a/mod"]]);
}
