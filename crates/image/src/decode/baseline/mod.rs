//! Decodes baseline JPEG, the kind of most photos, as far as needed.
//!
//! When only a part of an image is needed, the data above and next to the part is only parsed, code by code, because
//! its lengths show where the next block begins; data below is not read. Only the blocks of the part, and
//! neighbouring chroma that is interpolated into it, become samples and pixels. The pixels are identical to those of
//! the whole image.
//!
//! Handles single-scan images, grey or YCbCr, with chroma at full or half resolution in either direction.
//! [`Scan::new`] refuses all others.
//!
//! Samples are those of zune-jpeg, which decodes the others, by the same formulas. Chroma is upsampled as in libjpeg:
//! samples coded beyond the image are not used, and in images up to 4 pixels wide samples are repeated instead.
//!
//! Each row of units, with the last row of samples of the previous one, becomes pixels before the next is decoded.

mod colour;
mod idct;

#[cfg(target_arch = "x86_64")]
use pelton_cpu::Simd;

use std::ops::Range;

use idct::{Block, PLACES};

use super::jpeg_errors::damaged;
use super::jpeg_markers::{Frame, segments};
use crate::crop::Rectangle;
use crate::huffman::{Bits, Table};
use crate::scratch::Scratch;
use crate::{ImageError, Pixels};

const QUANTISATION: u8 = 0xDB;
const HUFFMAN: u8 = 0xC4;
const START_OF_SCAN: u8 = 0xDA;
const APPLICATION_14: u8 = 0xEE;

/// Rows and columns of a block.
const SIDE: usize = 8;

/// An image that this decoder handles.
pub(super) struct Scan<'a> {
    frame: &'a Frame,
    /// Quantisation, and Huffman tables of DC and AC coefficients, of each component.
    steps: Vec<Block>,
    tables: Vec<[usize; 2]>,
    /// The end of each run of entropy-coded data, up to a restart marker.
    ends: Vec<usize>,
}

impl<'a> Scan<'a> {
    /// The scan of an image, and its tables; `None` if the image is of another kind or incomplete.
    pub fn new(
        bytes: &'a [u8],
        frame: &'a Frame,
        scratch: &mut Scratch,
    ) -> Result<Option<Scan<'a>>, ImageError> {
        let sampling: Vec<(u32, u32)> = frame.components.iter().map(|c| c.sampling()).collect();
        let known = match sampling[..] {
            [_] => true,
            [(across, down), (1, 1), (1, 1)] => across <= 2 && down <= 2,
            _ => false,
        };
        if !known || !frame.is_one_scan() {
            return Ok(None);
        }
        let scan = &frame.scans[0];
        if scan.interval == 0 && !scan.restarts.is_empty() {
            return Ok(None);
        }
        let mut quantisation: [Option<Block>; 4] = [None; 4];
        let mut defined = [[false; 4]; 2];
        for segment in segments(bytes) {
            let content = segment.content;
            match segment.marker {
                QUANTISATION if !take_steps(content, &mut quantisation) => return Ok(None),
                HUFFMAN if !take_tables(content, scratch, &mut defined)? => return Ok(None),
                // Other colour spaces than YCbCr.
                APPLICATION_14 if content.starts_with(b"Adobe") && content.get(11) != Some(&1) => {
                    return Ok(None);
                }
                START_OF_SCAN => {
                    return Ok(
                        Scan::with(frame, &quantisation, &defined).map(|found| Scan {
                            ends: unstuff(bytes, segment.behind, scan, &mut scratch.data),
                            ..found
                        }),
                    );
                }
                _ => (),
            }
        }
        Ok(None)
    }

    /// A table that the headers of the scan name, if it exists.
    fn with(
        frame: &'a Frame,
        quantisation: &[Option<Block>; 4],
        defined: &[[bool; 4]; 2],
    ) -> Option<Scan<'a>> {
        let mut steps = Vec::new();
        let mut tables = Vec::new();
        let names: Vec<u8> = frame.components.iter().map(|c| c.name()).collect();
        if names == *b"RGB" {
            return None;
        }
        for (component, &[name, table]) in frame.components.iter().zip(&frame.scans[0].components) {
            let (means, others) = (usize::from(table >> 4), usize::from(table & 15));
            let both = defined[0].get(means)? & defined[1].get(others)?;
            if name != component.name() || !both {
                return None;
            }
            steps.push((*quantisation.get(component.quantisation())?)?);
            tables.push([means, others]);
        }
        Some(Scan {
            frame,
            steps,
            tables,
            ends: Vec::new(),
        })
    }

    /// Decodes a part of the image, which is inside it.
    pub fn decode(
        &self,
        part: Rectangle,
        scratch: &mut Scratch,
        pixels: &mut Pixels,
    ) -> Result<(), ImageError> {
        let channels = self.steps.len();
        let out = pixels.reshape(part.height, part.width, channels);
        #[cfg(target_arch = "x86_64")]
        if Simd::current() >= Simd::Avx2 {
            return wide::decode(self, part, scratch, out).map_err(damaged);
        }
        self.decode_with(&Plain, part, scratch, out)
            .map_err(damaged)
    }

    #[inline(always)]
    fn decode_with(
        &self,
        kernels: &impl Kernels,
        part: Rectangle,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<(), &'static str> {
        let Scratch {
            data,
            tables,
            planes,
            rows,
        } = scratch;
        let (across, down) = self.frame.finest();
        let (across, down) = (across as usize, down as usize);
        let units = (self.frame.width as usize).div_ceil(SIDE * across);
        let unit_rows = (self.frame.height as usize).div_ceil(SIDE * down);
        let mut components: Vec<Component<'_>> = Vec::with_capacity(3);
        for (number, plane) in planes.iter_mut().enumerate().take(self.steps.len()) {
            let (own_across, own_down) = self.frame.components[number].sampling();
            let (own_across, own_down) = (own_across as usize, own_down as usize);
            let [means, others] = self.tables[number];
            let (width, height) = (self.frame.width as usize, self.frame.height as usize);
            let columns = Stretch::new(part.left, part.width, own_across, across, width);
            let lines = Stretch::new(part.top, part.height, own_down, down, height);
            let repeats = columns.scale == 2 && columns.all <= MOST_REPEATED;
            plane.resize(columns.samples() * (own_down * SIDE + 1), 0);
            components.push(Component {
                tables: [&tables[0][means], &tables[1][others]],
                steps: &self.steps[number],
                mean: 0,
                first: 0,
                varies: [false; 4],
                repeats,
                columns,
                lines,
                plane,
            });
        }
        let (first_unit_row, last_unit_row) =
            components.iter().fold((usize::MAX, 0), |(first, last), c| {
                (
                    first.min(c.lines.blocks.start / c.lines.own),
                    last.max((c.lines.blocks.end - 1) / c.lines.own),
                )
            });
        let last_unit = components
            .iter()
            .map(|c| (c.columns.blocks.end - 1) / c.columns.own)
            .max();
        let last_unit = last_unit.unwrap_or(0);

        let interval = match self.frame.scans[0].interval {
            0 => u64::MAX,
            interval => u64::from(interval),
        };
        let mut begin = 0;
        let mut ends = self.ends.iter();
        let mut bits = Bits::new(&[]);
        let mut left = 0;
        // Coefficients of a unit become samples once all of them are decoded: a vector load right after narrow stores
        // to the same memory would stall.
        let mut blocks = [[0i16; 256]; 6];
        let mut nothing = [0i16; 256];
        let mut written = part.top as usize;
        for unit_row in 0..=last_unit_row {
            let is_last = unit_row == last_unit_row;
            if unit_row > first_unit_row {
                components.iter_mut().for_each(Component::keep_last_row);
            }
            let units = if is_last { last_unit + 1 } else { units };
            for unit in 0..units {
                if left == 0 {
                    if bits.overrun() {
                        return Err(TOO_SHORT);
                    }
                    let &end = ends.next().ok_or(TOO_SHORT)?;
                    bits = Bits::new(&data[begin..end]);
                    begin = end;
                    components
                        .iter_mut()
                        .for_each(|component| component.mean = 0);
                    left = interval;
                }
                left -= 1;
                let mut kept = 0;
                for component in &mut components {
                    component.first = kept;
                    for line in component.lines.of_unit(unit_row) {
                        for column in component.columns.of_unit(unit) {
                            let (tables, mean) = (component.tables, &mut component.mean);
                            if component.lines.blocks.contains(&line)
                                && component.columns.blocks.contains(&column)
                            {
                                let block = &mut blocks[kept];
                                block[..64].fill(0);
                                component.varies[kept - component.first] =
                                    bits.block::<true>(tables, mean, &PLACES, block)?;
                                kept += 1;
                            } else {
                                bits.block::<false>(tables, mean, &PLACES, &mut nothing)?;
                            }
                        }
                    }
                }
                if kept == 0 {
                    continue;
                }
                for component in &mut components {
                    let mut number = 0;
                    let stride = component.columns.samples();
                    for line in component.lines.of_unit(unit_row) {
                        for column in component.columns.of_unit(unit) {
                            if !component.lines.blocks.contains(&line)
                                || !component.columns.blocks.contains(&column)
                            {
                                continue;
                            }
                            let block = &blocks[component.first + number];
                            let block: &Block = block.first_chunk().expect("64 of them");
                            let top = 1 + (line - unit_row * component.lines.own) * SIDE;
                            let left = (column - component.columns.blocks.start) * SIDE;
                            let out = &mut component.plane[top * stride + left..];
                            if component.varies[number] {
                                kernels.samples(block, component.steps, out, stride)
                            } else {
                                idct::flat(block[0], component.steps[0], out, stride)
                            }
                            number += 1;
                        }
                    }
                }
            }
            if bits.overrun() {
                return Err(TOO_SHORT);
            }
            if unit_row < first_unit_row {
                continue;
            }
            // The last row of the unit needs chroma of the next one, if any.
            let ready =
                (unit_row + 1) * down * SIDE - usize::from(down > 1 && unit_row + 1 < unit_rows);
            let end = ready.min((part.top + part.height) as usize);
            let row = part.width as usize * components.len();
            let lines = out[(written - part.top as usize) * row..].chunks_exact_mut(row);
            for (line, out) in (written..end).zip(lines) {
                write_row(kernels, &components, unit_row, line, part, rows, out);
            }
            written = written.max(end);
        }
        Ok(())
    }
}

/// Up to this many samples in a row, libjpeg repeats them if there are half as many as pixels.
const MOST_REPEATED: usize = 2;

const TOO_SHORT: &str = "its data end before the image does";

/// The loops that have a plain and a wide form.
trait Kernels {
    /// Samples of a block, in rows that are `stride` apart.
    fn samples(&self, block: &Block, steps: &Block, out: &mut [u8], stride: usize);
    /// Mixes luma and the colours blue and red into pixels.
    fn mix(&self, luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]);
}

struct Plain;

impl Kernels for Plain {
    fn samples(&self, block: &Block, steps: &Block, out: &mut [u8], stride: usize) {
        idct::plain(block, steps, out, stride);
    }

    fn mix(&self, luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
        colour::plain(luma, blue, red, out);
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod wide {
    use crate::decode::baseline::*;

    /// Only constructed if the processor has AVX2.
    struct Wide;

    impl Kernels for Wide {
        #[inline(always)]
        fn samples(&self, block: &Block, steps: &Block, out: &mut [u8], stride: usize) {
            // SAFETY: the processor has AVX2.
            unsafe { idct::wide::samples(block, steps, out, stride) }
        }

        #[inline(always)]
        fn mix(&self, luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
            // SAFETY: the processor has AVX2.
            unsafe { colour::wide::mix(luma, blue, red, out) }
        }
    }

    /// Asserts that the processor has AVX2 and BMI2.
    pub fn decode(
        scan: &Scan<'_>,
        part: Rectangle,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<(), &'static str> {
        assert!(Simd::Avx2.is_available());
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
        fn with_avx2(
            scan: &Scan<'_>,
            part: Rectangle,
            scratch: &mut Scratch,
            out: &mut [u8],
        ) -> Result<(), &'static str> {
            scan.decode_with(&Wide, part, scratch, out)
        }
        // SAFETY: the processor has AVX2, as just asserted.
        unsafe { with_avx2(scan, part, scratch, out) }
    }
}

/// The state of one component during decoding.
struct Component<'a> {
    tables: [&'a Table; 2],
    steps: &'a Block,
    /// The DC value of the previous block.
    mean: i16,
    /// The first of its blocks among those of the unit, and whether they have AC coefficients.
    first: usize,
    varies: [bool; 4],
    /// Whether its samples are repeated rather than interpolated.
    repeats: bool,
    columns: Stretch,
    lines: Stretch,
    /// The last row of samples of the units before, and those of this row of units.
    plane: &'a mut Vec<u8>,
}

impl Component<'_> {
    fn keep_last_row(&mut self) {
        let last = self.plane.len() - self.columns.samples();
        self.plane.copy_within(last.., 0);
    }

    /// A row of samples of this component, which must be in this row of units or the last one of the previous.
    fn row(&self, unit_row: usize, line: usize) -> &[u8] {
        let row = self.columns.samples();
        let place = line + 1 - unit_row * self.lines.own * SIDE;
        &self.plane[place * row..(place + 1) * row]
    }
}

/// The needed part of a component along one axis.
struct Stretch {
    /// Blocks of a unit.
    own: usize,
    /// Pixels a sample.
    scale: usize,
    /// Samples of the image, without those coded beyond it.
    all: usize,
    blocks: Range<usize>,
}

impl Stretch {
    /// For `length` pixels from `start` on, of `pixels`; the finest component has `finest` blocks a unit.
    fn new(start: u32, length: u32, own: usize, finest: usize, pixels: usize) -> Stretch {
        let scale = finest / own;
        let all = pixels.div_ceil(scale);
        let (first, last) = (start as usize, (start + length - 1) as usize);
        // Interpolated samples need their neighbours.
        let (first, last) = match scale {
            1 => (first, last),
            _ => (
                (first / scale).saturating_sub(1),
                (last / scale + 1).min(all - 1),
            ),
        };
        Stretch {
            own,
            scale,
            all,
            blocks: first / SIDE..last / SIDE + 1,
        }
    }

    fn samples(&self) -> usize {
        self.blocks.len() * SIDE
    }

    /// The blocks of a unit.
    fn of_unit(&self, unit: usize) -> Range<usize> {
        unit * self.own..(unit + 1) * self.own
    }

    /// The position of a pixel in a row of all of these samples, upsampled.
    fn place(&self, pixel: u32) -> usize {
        pixel as usize - self.blocks.start * SIDE * self.scale
    }
}

/// Makes a row of pixels from the samples of a row of units and the last samples of the previous row.
#[inline(always)]
fn write_row(
    kernels: &impl Kernels,
    components: &[Component<'_>],
    unit_row: usize,
    line: usize,
    part: Rectangle,
    [blue, spread_blue, red, spread_red]: &mut [Vec<u8>; 4],
    out: &mut [u8],
) {
    let width = part.width as usize;
    let luma = &components[0];
    let at = luma.columns.place(part.left);
    let luma = &luma.row(unit_row, line)[at..at + width];
    let [_, colours @ ..] = components else {
        return;
    };
    let [first, second] = colours else {
        out.copy_from_slice(luma);
        return;
    };
    let first = full_row(first, unit_row, line, part, blue, spread_blue);
    let second = full_row(second, unit_row, line, part, red, spread_red);
    kernels.mix(luma, first, second, out);
}

/// A row of chroma, a sample for each pixel.
#[inline(always)]
fn full_row<'a>(
    component: &'a Component<'_>,
    unit_row: usize,
    line: usize,
    part: Rectangle,
    blended: &'a mut Vec<u8>,
    spread: &'a mut Vec<u8>,
) -> &'a [u8] {
    let (lines, columns) = (&component.lines, &component.columns);
    let near = line / lines.scale;
    let row = component.row(unit_row, near);
    let begin = columns.blocks.start * SIDE;
    let row = &row[..row.len().min(columns.all - begin)];
    let row = match lines.scale {
        1 => row,
        _ if component.repeats => row,
        _ => {
            let far = match line % 2 {
                0 => near.saturating_sub(1),
                _ => (near + 1).min(lines.all - 1),
            };
            blended.resize(row.len(), 0);
            colour::blend(row, component.row(unit_row, far), blended);
            blended
        }
    };
    let row = match columns.scale {
        1 => row,
        _ => {
            spread.resize(2 * row.len(), 0);
            if component.repeats {
                colour::repeat(row, spread);
            } else {
                colour::spread(row, spread);
            }
            spread
        }
    };
    let at = columns.place(part.left);
    &row[at..at + part.width as usize]
}

/// Reads the quantisation steps of a segment. Returns whether all are supported.
fn take_steps(mut content: &[u8], known: &mut [Option<Block>; 4]) -> bool {
    while let [kind, rest @ ..] = content {
        let bytes = if kind >> 4 == 0 { 1 } else { 2 };
        let (Some(table), Some((steps, rest))) = (
            known.get_mut(usize::from(kind & 15)),
            rest.split_at_checked(64 * bytes),
        ) else {
            return false;
        };
        let mut block = [0; 64];
        for (step, &place) in steps.chunks_exact(bytes).zip(&PLACES) {
            let step = step.iter().fold(0, |all, &byte| all << 8 | u16::from(byte));
            let Ok(step) = i16::try_from(step) else {
                return false;
            };
            block[usize::from(place)] = step;
        }
        *table = Some(block);
        content = rest;
    }
    true
}

/// Reads the Huffman tables of a segment. Returns whether all are supported.
fn take_tables(
    mut content: &[u8],
    scratch: &mut Scratch,
    defined: &mut [[bool; 4]; 2],
) -> Result<bool, ImageError> {
    while let [kind, rest @ ..] = content {
        let (class, number) = (usize::from(kind >> 4), usize::from(kind & 15));
        let Some(counts) = rest.first_chunk::<16>() else {
            return Ok(false);
        };
        let count: usize = counts.iter().map(|&count| usize::from(count)).sum();
        let (true, Some((definition, rest))) = (
            class < 2 && number < 4 && count <= 256,
            rest.split_at_checked(16 + count),
        ) else {
            return Ok(false);
        };
        // For 8-bit samples no coefficient and no DC difference has more bits.
        let fits = |&value: &u8| match class {
            0 => value <= 11,
            _ => value & 15 <= 10,
        };
        if !definition[16..].iter().all(fits) {
            return Ok(false);
        }
        scratch.tables[class][number]
            .set(definition)
            .map_err(damaged)?;
        defined[class][number] = true;
        content = rest;
    }
    Ok(true)
}

/// The entropy-coded data of a scan without stuffed zeros, its runs between restart markers concatenated, and the end
/// of each.
fn unstuff(
    bytes: &[u8],
    mut from: usize,
    scan: &super::jpeg_markers::Scan,
    data: &mut Vec<u8>,
) -> Vec<usize> {
    data.clear();
    let ends = scan.restarts.iter().chain([&scan.end]);
    let ends = ends.map(|&end| {
        let mut rest = &bytes[from.min(end)..end];
        while let Some(at) = memchr::memchr(0xFF, rest) {
            data.extend_from_slice(&rest[..=at]);
            // More of them may follow before the zero.
            let others = rest[at..].iter().take_while(|&&byte| byte == 0xFF).count();
            rest = rest.get(at + others + 1..).unwrap_or_default();
        }
        data.extend_from_slice(rest);
        // After the marker, which may begin with any number of 0xFF.
        from = end
            + bytes[end..]
                .iter()
                .take_while(|&&byte| byte == 0xFF)
                .count()
            + 1;
        data.len()
    });
    ends.collect()
}
