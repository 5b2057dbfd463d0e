//! Chooses the classes of characters, the fonts held out for the test, and the set of each picture.

use std::collections::{BTreeMap, HashMap};

use pelton_key::Digest;

use super::fonts::{Font, View};

/// If more characters of one file are equal, they are its picture for missing characters.
const MOST_ALIKE: usize = 16;
/// Families that share one in this many pictures of the smaller family are derived from each other and count as one.
const DERIVED: u32 = 10;

/// The settings.
pub(super) struct Wish {
    /// Least training pictures of a class.
    pub(super) min_fonts: u32,
    /// Most classes.
    pub(super) most_classes: Option<u32>,
    /// Share of the pictures in held-out families.
    pub(super) test_share: f64,
    /// Seed of the choice of families.
    pub(super) seed: u64,
}

/// The set of a picture, with its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assignment {
    Nowhere,
    Training(u32),
    Test(u32),
}

/// The choice.
pub(super) struct Choice {
    /// The assignment of each candidate, by index.
    pub(super) places: Vec<Assignment>,
    /// Names of the classes, in order.
    pub(super) names: Vec<String>,
    /// Families, and those held out.
    pub(super) families: usize,
    pub(super) test_families: Vec<String>,
    /// Pictures dropped because characters of two classes share them.
    pub(super) ambiguous: u64,
    /// Test pictures dropped because a training picture is equal.
    pub(super) equal: u64,
}

/// Disjoint sets of numbers, each named by its least member.
struct Sets(Vec<u32>);

impl Sets {
    fn new(count: usize) -> Sets {
        Sets((0..count as u32).collect())
    }

    fn of(&mut self, one: u32) -> u32 {
        let mut least = one;
        while self.0[least as usize] != least {
            // Path halving.
            self.0[least as usize] = self.0[self.0[least as usize] as usize];
            least = self.0[least as usize];
        }
        least
    }

    fn unite(&mut self, one: u32, other: u32) {
        let (one, other) = (self.of(one), self.of(other));
        self.0[one.max(other) as usize] = one.min(other);
    }

    fn all(mut self) -> Vec<u32> {
        (0..self.0.len() as u32).map(|one| self.of(one)).collect()
    }
}

/// Chooses classes and assignments for the views of `candidates` candidates.
pub(super) fn choose(
    mut views: Vec<View>,
    fonts: &[Font],
    candidates: usize,
    wish: &Wish,
) -> Choice {
    let family_of = families(&mut views, fonts);
    let characters = united_characters(&mut views, fonts);
    let class_of = |view: &View| characters[&view.character];
    // A picture shared by two classes is an example of neither.
    views.sort_unstable_by_key(|view| (view.picture, class_of(view), view.number));
    let mut ambiguous = 0;
    let mut kept: Vec<View> = Vec::with_capacity(views.len());
    for alike in views.chunk_by(|a, b| a.picture == b.picture) {
        if alike
            .iter()
            .all(|view| class_of(view) == class_of(&alike[0]))
        {
            kept.extend(alike)
        } else {
            ambiguous += alike.len() as u64
        }
    }
    drop(views);
    let mut pictures: HashMap<u32, u32> = HashMap::new();
    for alike in kept.chunk_by(|a, b| a.picture == b.picture) {
        *pictures.entry(class_of(&alike[0])).or_default() += 1;
    }
    kept.retain(|view| pictures[&class_of(view)] >= wish.min_fonts);
    let test = held_out(&kept, fonts, &family_of, wish);
    let is_test = |view: &View| test.contains_key(&family_of[view.font as usize]);

    // One view of each picture: a training one if there is any.
    kept.sort_unstable_by_key(|view| (view.picture, is_test(view), view.number));
    let mut equal = 0;
    let mut distinct: Vec<View> = Vec::with_capacity(kept.len());
    for alike in kept.chunk_by(|a, b| a.picture == b.picture) {
        distinct.push(alike[0]);
        let in_test = alike.iter().filter(|view| is_test(view)).count() as u64;
        equal += if is_test(&alike[0]) { 0 } else { in_test };
    }
    let mut training: BTreeMap<u32, u32> = BTreeMap::new();
    for view in distinct.iter().filter(|view| !is_test(view)) {
        *training.entry(class_of(view)).or_default() += 1;
    }
    let mut classes: Vec<(u32, u32)> = training
        .into_iter()
        .filter(|(_, count)| *count >= wish.min_fonts)
        .collect();
    classes.sort_by_key(|&(character, count)| (u32::MAX - count, character));
    classes.truncate(wish.most_classes.map_or(usize::MAX, |most| most as usize));
    let mut named: Vec<(String, u32)> = classes
        .iter()
        .map(|&(character, _)| (format!("U+{character:04X}"), character))
        .collect();
    named.sort();
    let numbers: HashMap<u32, u32> = (0..)
        .zip(&named)
        .map(|(number, (_, character))| (*character, number))
        .collect();
    let mut places = vec![Assignment::Nowhere; candidates];
    for view in &distinct {
        if let Some(&class) = numbers.get(&class_of(view)) {
            places[view.number as usize] = if is_test(view) {
                Assignment::Test(class)
            } else {
                Assignment::Training(class)
            };
        }
    }
    let mut all = family_of;
    all.sort_unstable();
    all.dedup();
    Choice {
        places,
        names: named.into_iter().map(|(name, _)| name).collect(),
        families: all.len(),
        test_families: test.into_values().collect(),
        ambiguous,
        equal,
    }
}

/// The family of each font: fonts in one file, with one name, or with many pictures in common.
fn families(views: &mut [View], fonts: &[Font]) -> Vec<u32> {
    let mut sets = Sets::new(fonts.len());
    let (mut files, mut names) = (HashMap::new(), HashMap::new());
    for (number, font) in (0..).zip(fonts) {
        sets.unite(number, *files.entry(font.file).or_insert(number));
        if !font.family.is_empty() {
            sets.unite(number, *names.entry(&font.family).or_insert(number));
        }
    }
    views.sort_unstable_by_key(|view| (view.character, view.picture, view.number));
    let mut totals: HashMap<u32, u32> = HashMap::new();
    let mut shared: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for alike in views.chunk_by(|a, b| (a.character, a.picture) == (b.character, b.picture)) {
        let mut here: Vec<u32> = alike.iter().map(|view| sets.of(view.font)).collect();
        here.sort_unstable();
        here.dedup();
        for (i, &one) in here.iter().enumerate() {
            *totals.entry(one).or_default() += 1;
            here[..i]
                .iter()
                .for_each(|&other| *shared.entry((other, one)).or_default() += 1);
        }
    }
    for ((one, other), count) in shared {
        if count >= (totals[&one].min(totals[&other]) / DERIVED).max(1) {
            sets.unite(one, other);
        }
    }
    sets.all()
}

/// For each character, the one that names its class. Characters in most files come first; another joins the one that it
/// equals in most files, if that is at least half of the files with both. It must equal that one itself. Rejected:
/// joining characters that equal any member of a class, because п would bring π and и to n.
fn united_characters(views: &mut [View], fonts: &[Font]) -> HashMap<u32, u32> {
    let file_of = |view: &View| fonts[view.font as usize].file;
    views.sort_unstable_by_key(|view| (view.character, view.number));
    let mut files: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for view in views.iter() {
        files.entry(view.character).or_default().push(file_of(view));
    }
    files.values_mut().for_each(Vec::dedup);
    views.sort_unstable_by_key(|view| (file_of(view), view.picture, view.character, view.number));
    let mut alike: HashMap<u32, BTreeMap<u32, usize>> = HashMap::new();
    for same in views.chunk_by(|a, b| (file_of(a), a.picture) == (file_of(b), b.picture)) {
        let mut here: Vec<u32> = same.iter().map(|view| view.character).collect();
        here.dedup();
        for &one in here.iter().filter(|_| here.len() <= MOST_ALIKE) {
            let others = here.iter().filter(|other| **other != one);
            let counts = alike.entry(one).or_default();
            others.for_each(|other| *counts.entry(*other).or_default() += 1);
        }
    }
    let mut by_files: Vec<u32> = files.keys().copied().collect();
    by_files.sort_by_key(|character| (usize::MAX - files[character].len(), *character));
    let mut classes: HashMap<u32, u32> = HashMap::new();
    for one in by_files {
        let is_enough = |(other, count): &(&u32, &usize)| {
            let has = |file: &&usize| files[other].binary_search(file).is_ok();
            classes.get(other) == Some(*other)
                && 2 * **count >= files[&one].iter().filter(has).count()
        };
        let found = alike.get(&one).into_iter().flatten().filter(is_enough);
        let best = found.max_by_key(|(other, count)| (**count, u32::MAX - **other));
        let class = best.map_or(one, |(other, _)| *other);
        classes.insert(one, class);
    }
    classes
}

/// The held-out families with their names: in an order drawn by the seed, while they fit into the share.
fn held_out(
    views: &[View],
    fonts: &[Font],
    family_of: &[u32],
    wish: &Wish,
) -> BTreeMap<u32, String> {
    let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
    for view in views {
        *sizes.entry(family_of[view.font as usize]).or_default() += 1;
    }
    let mut drawn: Vec<(u64, u32, u64)> = sizes
        .into_iter()
        .map(|(family, size)| {
            // By name, so that adding a font does not change the draws of others.
            let name = fonts[family as usize].family.as_bytes();
            let draw = Digest::new("test family").word(wish.seed).bytes(name);
            (draw.value(), family, size)
        })
        .collect();
    drawn.sort_unstable();
    let mut room = (views.len() as f64 * wish.test_share) as u64;
    let mut test = BTreeMap::new();
    for (_, family, size) in drawn {
        if size <= room {
            room -= size;
            test.insert(family, fonts[family as usize].family.clone());
        }
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The classes of characters, from pictures by file; each file is a font of a separate family.
    fn classes(files: &[&[(char, u64)]]) -> Vec<(char, char)> {
        let font = |file| Font {
            file,
            family: String::new(),
        };
        let fonts: Vec<Font> = (0..files.len()).map(font).collect();
        let mut views = Vec::new();
        for (font, file) in (0..).zip(files) {
            for &(character, picture) in *file {
                let (number, character) = (views.len() as u32, character.into());
                views.push(View {
                    number,
                    character,
                    font,
                    picture,
                });
            }
        }
        let found: BTreeMap<u32, u32> = united_characters(&mut views, &fonts).into_iter().collect();
        let shown = |character| char::from_u32(character).expect("a character");
        found
            .into_iter()
            .map(|(one, class)| (shown(one), shown(class)))
            .collect()
    }

    #[test]
    fn characters_that_look_alike_are_one_class() {
        // b equals a in two of three files; c equals b in a file without a, and never a.
        let found = classes(&[
            &[('a', 1), ('b', 1)],
            &[('a', 2), ('b', 2)],
            &[('a', 3), ('b', 4), ('c', 5)],
            &[('a', 5)],
            &[('b', 6), ('c', 6)],
        ]);
        assert_eq!(found, [('a', 'a'), ('b', 'a'), ('c', 'c')]);
        // Equal in one of three files.
        let found = classes(&[
            &[('a', 1), ('b', 1)],
            &[('a', 2), ('b', 3)],
            &[('a', 4), ('b', 5)],
        ]);
        assert_eq!(found, [('a', 'a'), ('b', 'b')]);
        // A box for missing characters does not count.
        let boxes: Vec<(char, u64)> = ('a'..='z').map(|c| (c, 7)).collect();
        assert!(classes(&[&boxes]).iter().all(|(one, class)| one == class));
    }
}
