//! Finds fonts below folders, and draws the glyphs of their characters one by one.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use pelton_data::DataError;
use pelton_key::Digest;
use pelton_run::{Event, Interrupt, Observer};
use pelton_storage::in_parallel;
use rayon::prelude::*;
use ttf_parser::{GlyphId, Tag, cmap, fonts_in_collection, name_id};

use super::render::Renderer;

/// Larger files are not fonts; the largest of Debian has 120 MB.
const MOST_FILE_BYTES: u64 = 1 << 30;
/// Deepest nesting of folders to search.
const MOST_DEPTH: usize = 32;
/// Glyphs drawn at once.
const CHUNK: usize = 4096;

/// Whether a character is for private use, without a meaning shared by fonts.
fn is_private(character: u32) -> bool {
    matches!(character, 0xe000..=0xf8ff | 0xf_0000..)
}

/// The font files in and below folders, in the order of their paths; follows links, and lists each file once.
///
/// Errors: a path that does not exist or cannot be listed.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, DataError> {
    let mut found = Vec::new();
    for path in paths {
        look_into(path, MOST_DEPTH, &mut found).map_err(|(path, error)| {
            DataError::Config(format!(
                "{}: cannot be listed ({error}); name a folder of fonts with `fonts`",
                path.display()
            ))
        })?;
    }
    found.sort();
    found.dedup();
    if found.is_empty() {
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        Err(DataError::Config(format!(
            "{}: contains no font (.ttf, .otf, .ttc or .otc); install fonts, or name another folder with `fonts`",
            names.join(", ")
        )))
    } else {
        Ok(found)
    }
}

fn look_into(
    path: &Path,
    depth: usize,
    found: &mut Vec<PathBuf>,
) -> Result<(), (PathBuf, std::io::Error)> {
    let failed = |error| (path.to_path_buf(), error);
    let path = fs::canonicalize(path).map_err(failed)?;
    let failed = |error| (path.clone(), error);
    if fs::metadata(&path).map_err(failed)?.is_file() {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        if ["ttf", "otf", "ttc", "otc"]
            .iter()
            .any(|known| extension == *known)
        {
            found.push(path);
        }
        return Ok(());
    }
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let is_linked_folder = kind.is_symlink() && !entry.path().is_file();
        if depth > 0 && (kind.is_dir() || kind.is_file() || kind.is_symlink() && !is_linked_folder)
        {
            look_into(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}

/// One font's drawing of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// Index of the candidate, in the order of [`Fonts::draw`].
    pub(super) number: u32,
    /// The character.
    pub(super) character: u32,
    /// Index of the font.
    pub(super) font: u32,
    /// Digest of the picture.
    pub(super) picture: u64,
}

/// A font: a face of a file.
#[derive(Debug)]
pub(super) struct Font {
    /// Index of its file.
    pub(super) file: usize,
    /// Name of its family.
    pub(super) family: String,
}

/// Fonts to draw, and problems found while drawing.
pub(super) struct Fonts<'a, 'b> {
    pub(super) files: Vec<PathBuf>,
    pub(super) side: u32,
    pub(super) interrupt: &'a Interrupt,
    pub(super) observer: Observer<'b>,
    /// Fonts that were drawn.
    pub(super) fonts: Vec<Font>,
    /// Files and faces that are not fonts or lack required tables, and why.
    pub(super) problems: Vec<String>,
}

/// A glyph to draw if wanted.
struct Candidate {
    number: u32,
    character: u32,
    glyph: GlyphId,
}

impl Fonts<'_, '_> {
    /// Draws every character of every font that `wanted` selects by index, and passes the pictures to `take` in order,
    /// the same each time.
    ///
    /// Errors: an interruption, a file that disappeared, those of `take`.
    pub(super) fn draw(
        &mut self,
        what: &'static str,
        wanted: impl Fn(u32) -> bool,
        mut take: impl FnMut(View, &[u8]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        self.fonts.clear();
        self.problems.clear();
        let mut number = 0;
        for file in 0..self.files.len() {
            let done = file as u64;
            let total = self.files.len() as u64;
            (self.observer)(Event::Progress { what, done, total });
            let path = self.files[file].clone();
            let bytes = read(&path)?;
            let mut drawn = HashSet::new();
            for index in 0..fonts_in_collection(&bytes).unwrap_or(1) {
                match Face::new(&bytes, index) {
                    Ok(face) => {
                        let candidates = face.candidates(&mut drawn, &mut number);
                        let font = self.fonts.len() as u32;
                        self.fonts.push(Font {
                            file,
                            family: face.family(),
                        });
                        self.draw_face(&face, font, &candidates, &wanted, &mut take)?;
                    }
                    Err(problem) => {
                        let text = format!("{}: left out: {problem}", path.display());
                        self.problems.push(text);
                    }
                }
            }
        }
        let total = self.files.len() as u64;
        (self.observer)(Event::Progress {
            what,
            done: total,
            total,
        });
        Ok(())
    }

    fn draw_face(
        &self,
        face: &Face<'_>,
        font: u32,
        candidates: &[Candidate],
        wanted: impl Fn(u32) -> bool,
        take: &mut impl FnMut(View, &[u8]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let (side, area) = (self.side, (self.side * self.side) as usize);
        let candidates: Vec<&Candidate> =
            candidates.iter().filter(|one| wanted(one.number)).collect();
        let mut pictures = vec![0; area * candidates.len().min(CHUNK)];
        for chunk in candidates.chunks(CHUNK) {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(DataError::Stopped {
                    job: "drawing glyphs",
                });
            }
            let draw = |renderer: &mut Renderer, (one, picture): (&&Candidate, &mut [u8])| {
                face.draw(one.glyph, side, renderer, picture).then(|| View {
                    number: one.number,
                    character: one.character,
                    font,
                    picture: Digest::new("picture of a glyph").bytes(picture).value(),
                })
            };
            let slots = pictures.par_chunks_mut(area);
            let drawn = chunk.par_iter().zip(slots);
            let drawn = drawn.map_init(Renderer::default, draw);
            let views: Vec<Option<View>> = in_parallel(|| drawn.collect())?;
            for (view, picture) in views.into_iter().zip(pictures.chunks(area)) {
                view.map_or(Ok(()), |view| take(view, picture))?;
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    let failed = |what: String| {
        DataError::Config(format!(
            "{}: {what}; leave it out of the folders of `fonts`",
            path.display()
        ))
    };
    let bytes = fs::metadata(path)
        .map_err(|error| failed(format!("cannot be read ({error})")))?
        .len();
    if bytes > MOST_FILE_BYTES {
        return Err(failed(format!(
            "has {bytes} bytes, more than the limit of {MOST_FILE_BYTES} for a font"
        )));
    }
    pelton_storage::read_file(path).map_err(|error| failed(format!("cannot be read ({error})")))
}

/// A face that can be drawn.
struct Face<'a> {
    font: ttf_parser::Face<'a>,
    /// Its characters.
    characters: cmap::Subtable<'a>,
    em: f32,
    /// Offset of its outlines in the file: faces of a collection may share them.
    outlines: usize,
}

impl<'a> Face<'a> {
    fn new(file: &'a [u8], index: u32) -> Result<Face<'a>, String> {
        let font = ttf_parser::Face::parse(file, index).map_err(|error| error.to_string())?;
        let tables = [b"glyf", b"CFF ", b"CFF2"];
        let table = tables
            .into_iter()
            .find_map(|tag| font.raw_face().table(Tag::from_bytes(tag)))
            .ok_or("it has no outlines")?;
        let outlines = table.as_ptr() as usize;
        let tables = font.tables();
        if tables.glyf.is_none() && tables.cff.is_none() && tables.cff2.is_none() {
            return Err("it is damaged".into());
        }
        // Characters beyond the first 65 536 are in a table with 32-bit codes.
        let all = tables.cmap.into_iter().flat_map(|cmap| cmap.subtables);
        let unicode = all.filter(cmap::Subtable::is_unicode);
        let is_wide =
            |table: &cmap::Subtable<'_>| matches!(table.format, cmap::Format::SegmentedCoverage(_));
        let characters = unicode
            .max_by_key(|table| (is_wide(table), table.platform_id as u8))
            .ok_or("it has no table of Unicode characters")?;
        let em = f32::from(font.units_per_em());
        Ok(Face {
            font,
            characters,
            em,
            outlines,
        })
    }

    fn family(&self) -> String {
        let named = |id: u16| {
            let names = self.font.names().into_iter();
            let names = names.filter(|name| name.name_id == id);
            let mut texts: Vec<(bool, String)> = names
                .filter_map(|name| {
                    // Names of old Macintosh tables are not Unicode.
                    let plain = || name.name.is_ascii().then(|| name.name.to_vec());
                    let text = name
                        .to_string()
                        .or_else(|| String::from_utf8(plain()?).ok())?;
                    let is_english =
                        name.is_unicode() && name.language_id & 0x3ff == 9 || name.language_id == 0;
                    Some((!is_english, text))
                })
                .collect();
            texts.sort_by_key(|(is_foreign, _)| *is_foreign);
            texts.into_iter().next().map(|(_, text)| text)
        };
        let name = named(name_id::TYPOGRAPHIC_FAMILY).or_else(|| named(name_id::FAMILY));
        name.unwrap_or_default()
    }

    /// Its characters in order, without those that an earlier face draws with the same glyph.
    fn candidates(
        &self,
        drawn: &mut HashSet<(usize, u32, u16)>,
        number: &mut u32,
    ) -> Vec<Candidate> {
        let mut mappings: BTreeMap<u32, GlyphId> = BTreeMap::new();
        self.characters.codepoints(|character| {
            let glyph = self.characters.glyph_index(character);
            if let Some(glyph) = glyph.filter(|glyph| glyph.0 > 0 && !is_private(character)) {
                mappings.insert(character, glyph);
            }
        });
        let mut candidates = Vec::new();
        for (character, glyph) in mappings {
            if drawn.insert((self.outlines, character, glyph.0)) {
                candidates.push(Candidate {
                    number: *number,
                    character,
                    glyph,
                });
                *number += 1;
            }
        }
        candidates
    }

    /// Draws a glyph; returns whether it has ink. A damaged glyph counts as missing.
    fn draw(&self, id: GlyphId, side: u32, renderer: &mut Renderer, picture: &mut [u8]) -> bool {
        let advance = self.font.glyph_hor_advance(id).map_or(self.em, f32::from);
        renderer.draw(&self.font, id, [self.em, advance], side, picture)
    }
}
