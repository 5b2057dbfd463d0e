//! Fonts below folders, and the glyphs of their characters one after the other.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use pelton_data::DataError;
use pelton_key::Digest;
use pelton_run::{Event, Interrupt, Observer};
use pelton_storage::in_parallel;
use rayon::prelude::*;
use skrifa::instance::{LocationRef, Size};
use skrifa::metrics::GlyphMetrics;
use skrifa::outline::OutlineGlyphCollection;
use skrifa::raw::FileRef;
use skrifa::string::StringId;
use skrifa::{FontRef, GlyphId, MetadataProvider, Tag};

use super::render::Renderer;

/// Larger files are not fonts; the largest of Debian has 120 MB.
const MOST_FILE_BYTES: u64 = 1 << 30;
/// Folders within folders that are looked into.
const MOST_DEPTH: usize = 32;
/// Glyphs drawn at once.
const CHUNK: usize = 4096;

/// Characters without a meaning that fonts share: those for private use.
fn is_private(character: u32) -> bool {
    matches!(character, 0xe000..=0xf8ff | 0xf_0000..)
}

/// The files of fonts in and below folders, in the order of their paths, links followed and each once.
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

/// A character as one font draws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// Number of the candidate, in the order in which [`Fonts::draw`] goes over them.
    pub(super) number: u32,
    /// The character.
    pub(super) character: u32,
    /// Number of the font.
    pub(super) font: u32,
    /// Digest of the picture.
    pub(super) picture: u64,
}

/// A font: a face of a file.
#[derive(Debug)]
pub(super) struct Font {
    /// Number of its file.
    pub(super) file: usize,
    /// Name of its family.
    pub(super) family: String,
}

/// Fonts to draw, and problems found meanwhile.
pub(super) struct Fonts<'a, 'b> {
    pub(super) files: Vec<PathBuf>,
    pub(super) side: u32,
    pub(super) interrupt: &'a Interrupt,
    pub(super) observer: Observer<'b>,
    /// Fonts that were drawn.
    pub(super) fonts: Vec<Font>,
    /// Which files and faces are none or lack what is needed, and why.
    pub(super) problems: Vec<String>,
}

/// A glyph that may be drawn.
struct Candidate {
    number: u32,
    character: u32,
    glyph: GlyphId,
}

impl Fonts<'_, '_> {
    /// Draws every character of every font that `wanted` selects, by its index, and returns the pictures in
    /// order, the same each time.
    ///
    /// Errors: an interruption, a file that went away, those of `take`.
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
            let faces = FileRef::new(&bytes).map(|file| file.fonts().collect::<Vec<_>>());
            let mut drawn = HashSet::new();
            for face in faces.unwrap_or_else(|error| vec![Err(error)]) {
                let face = face.map_err(|error| error.to_string());
                let face = face.and_then(|font| Face::new(font).map_err(str::to_owned));
                match face {
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
                    picture: Digest::new(0).words(picture.chunks(8).map(word)).value(),
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

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
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
    font: FontRef<'a>,
    glyphs: OutlineGlyphCollection<'a>,
    metrics: GlyphMetrics<'a>,
    em: f32,
    /// Where its outlines begin in the file: faces of a collection may share them.
    outlines: usize,
}

impl<'a> Face<'a> {
    fn new(font: FontRef<'a>) -> Result<Face<'a>, &'static str> {
        let tables = [b"glyf", b"CFF ", b"CFF2"].map(|tag| font.table_data(Tag::new(tag)));
        let table = tables
            .into_iter()
            .flatten()
            .next()
            .ok_or("it has no outlines")?;
        let em = font
            .metrics(Size::unscaled(), LocationRef::default())
            .units_per_em;
        let glyphs = font.outline_glyphs();
        if em == 0 || glyphs.format().is_none() {
            return Err("it is damaged");
        }
        if !font.charmap().has_map() || font.charmap().is_symbol() {
            return Err("it has no table of Unicode characters");
        }
        let outlines = table.as_bytes().as_ptr() as usize;
        let metrics = font.glyph_metrics(Size::unscaled(), LocationRef::default());
        Ok(Face {
            font,
            glyphs,
            metrics,
            em: f32::from(em),
            outlines,
        })
    }

    fn family(&self) -> String {
        let named = |id| self.font.localized_strings(id).english_or_first();
        let name =
            named(StringId::TYPOGRAPHIC_FAMILY_NAME).or_else(|| named(StringId::FAMILY_NAME));
        name.map_or_else(String::new, |name| name.to_string())
    }

    /// Its characters in their order, without those that a face before drew by the same glyph.
    fn candidates(
        &self,
        drawn: &mut HashSet<(usize, u32, u32)>,
        number: &mut u32,
    ) -> Vec<Candidate> {
        let mappings = self.font.charmap().mappings();
        let mappings: BTreeMap<u32, GlyphId> = mappings
            .filter(|(character, glyph)| glyph.to_u32() > 0 && !is_private(*character))
            .collect();
        let mut candidates = Vec::new();
        for (character, glyph) in mappings {
            if drawn.insert((self.outlines, character, glyph.to_u32())) {
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

    /// Draws a glyph; says whether there is one to see. A damaged one counts as missing.
    fn draw(&self, id: GlyphId, side: u32, renderer: &mut Renderer, picture: &mut [u8]) -> bool {
        let advance = self.metrics.advance_width(id).unwrap_or(self.em);
        let glyph = self.glyphs.get(id);
        glyph.is_some_and(|glyph| {
            renderer
                .draw(&glyph, [self.em, advance], side, picture)
                .unwrap_or(false)
        })
    }
}
