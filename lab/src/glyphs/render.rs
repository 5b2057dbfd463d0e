//! A glyph's outline as a picture of bytes: 255 is ink, 0 is paper.
//!
//! The em square fills the picture except for a margin, and the glyph keeps its position in it: a full stop stays apart
//! from a raised dot, a hyphen from an underscore, 一 from ー. Rejected: scaling each glyph to its bounding box, because
//! all of these would look equal. Only glyphs beyond the square are moved into it, and glyphs larger than the square
//! are scaled down.

use ttf_parser::{Face, GlyphId, OutlineBuilder};
use zeno::{Command, Mask, Point, Scratch, Transform};

/// Share of the em below the baseline, as in the ideographic em box.
const BELOW_BASELINE: f32 = 0.12;

/// Draws glyphs, reusing memory.
#[derive(Default)]
pub(super) struct Renderer {
    path: Path,
    scratch: Scratch,
}

impl Renderer {
    /// Draws a glyph of a font with `em` units an em to `picture`, `side` × `side` bytes. Returns whether there is ink;
    /// a damaged outline has none.
    pub(super) fn draw(
        &mut self,
        font: &Face<'_>,
        glyph: GlyphId,
        [em, advance]: [f32; 2],
        side: u32,
        picture: &mut [u8],
    ) -> bool {
        self.path.commands.clear();
        picture.fill(0);
        if font.outline_glyph(glyph, &mut self.path).is_none() {
            return false;
        }
        let Some([left, bottom, right, top]) = self.path.bounds() else {
            return false;
        };
        let margin = side as f32 / 32.0;
        let room = side as f32 - 2.0 * margin;
        let scale = (room / em)
            .min(room / (right - left))
            .min(room / (top - bottom));
        if !scale.is_normal() {
            return false;
        }
        // Clamps the start of the glyph so that it stays within the margins.
        let within = |start: f32, length: f32| {
            start.clamp(margin, (side as f32 - margin - length).max(margin))
        };
        let x = (side as f32 - advance * scale) / 2.0 + left * scale;
        let y = side as f32 - margin - (BELOW_BASELINE * em + top) * scale;
        let x = within(x, (right - left) * scale) - left * scale;
        let y = within(y, (top - bottom) * scale) + top * scale;
        let transform = Transform::new(scale, 0.0, 0.0, -scale, x, y);
        Mask::with_scratch(self.path.commands.as_slice(), &mut self.scratch)
            .transform(Some(transform))
            .size(side, side)
            .render_into(picture, None);
        picture.iter().any(|&ink| ink > 0)
    }
}

/// An outline in units of its font.
#[derive(Default)]
struct Path {
    commands: Vec<Command>,
}

impl Path {
    /// Left, bottom, right and top of all points, including control points; `None` for an outline without area.
    fn bounds(&self) -> Option<[f32; 4]> {
        let mut bounds = [f32::MAX, f32::MAX, f32::MIN, f32::MIN];
        let mut add = |p: &Point| {
            let [left, bottom, right, top] = bounds;
            bounds = [left.min(p.x), bottom.min(p.y), right.max(p.x), top.max(p.y)];
        };
        for command in &self.commands {
            match command {
                Command::MoveTo(p) | Command::LineTo(p) => add(p),
                Command::QuadTo(c, p) => [c, p].map(&mut add).into_iter().collect(),
                Command::CurveTo(c, d, p) => [c, d, p].map(&mut add).into_iter().collect(),
                Command::Close => {}
            }
        }
        let [left, bottom, right, top] = bounds;
        (left < right && bottom < top).then_some(bounds)
    }
}

impl OutlineBuilder for Path {
    fn move_to(&mut self, x: f32, y: f32) {
        self.commands.push(Command::MoveTo(Point::new(x, y)));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.commands.push(Command::LineTo(Point::new(x, y)));
    }

    fn quad_to(&mut self, cx: f32, cy: f32, x: f32, y: f32) {
        self.commands
            .push(Command::QuadTo(Point::new(cx, cy), Point::new(x, y)));
    }

    fn curve_to(&mut self, cx: f32, cy: f32, dx: f32, dy: f32, x: f32, y: f32) {
        let [c, d, p] = [[cx, cy], [dx, dy], [x, y]].map(|[x, y]| Point::new(x, y));
        self.commands.push(Command::CurveTo(c, d, p));
    }

    fn close(&mut self) {
        self.commands.push(Command::Close);
    }
}
