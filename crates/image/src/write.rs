//! The last step: writes the pixels of a buffer into the caller's slice, cropped, mirrored, in the output's layout
//! and type, in one pass.
//!
//! Floats come from a table of 256 values a channel, computed as PyTorch does: v/255 − mean, divided by
//! the deviation, each step rounded. A table costs one load a value, and the results are the same bits
//! as PyTorch's.

use crate::Layout;
use crate::crop::Rectangle;

/// Pixels to write: a part of a buffer, perhaps mirrored.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub data: &'a [u8],
    /// Pixels of a row of the buffer.
    pub row: u32,
    pub channels: usize,
    pub area: Rectangle,
    pub mirrored: bool,
}

impl<'a> Part<'a> {
    pub fn rows(self) -> impl Iterator<Item = &'a [u8]> {
        let row = self.row as usize * self.channels;
        let start = self.area.left as usize * self.channels;
        let length = self.area.width as usize * self.channels;
        self.data
            .chunks_exact(row)
            .skip(self.area.top as usize)
            .take(self.area.height as usize)
            .map(move |whole| &whole[start..start + length])
    }
}

impl Part<'_> {
    /// Resizes to this height and width by the nearest pixel.
    pub fn nearest(self, (height, width): (u32, u32), out: &mut [u8]) {
        let at = |to: usize, from: u32, length: u32| {
            let place = (to as f64 + 0.5) * f64::from(from) / f64::from(length);
            (place as usize).min(from as usize - 1)
        };
        let size = self.channels;
        let columns: Vec<usize> = (0..width as usize)
            .map(|x| at(x, self.area.width, width) * size)
            .collect();
        let rows: Vec<&[u8]> = self.rows().collect();
        for (y, to) in out.chunks_exact_mut(width as usize * size).enumerate() {
            let row = rows[at(y, self.area.height, height)];
            for (pixel, &x) in to.chunks_exact_mut(size).zip(&columns) {
                pixel.copy_from_slice(&row[x..x + size]);
            }
        }
    }

    /// Writes pixels with any number of channels and `value_bytes` bytes a value.
    pub fn write_numbers(self, value_bytes: usize, layout: Layout, out: &mut [u8]) {
        let (size, row) = (self.channels, self.area.width as usize);
        let plane = row * self.area.height as usize * value_bytes;
        for (y, from) in self.rows().enumerate() {
            if layout == Layout::Hwc && !self.mirrored {
                out[y * from.len()..][..from.len()].copy_from_slice(from);
                continue;
            }
            for (x, pixel) in from.chunks_exact(size).enumerate() {
                let to = y * row + if self.mirrored { row - 1 - x } else { x };
                for (channel, value) in pixel.chunks_exact(value_bytes).enumerate() {
                    let place = match layout {
                        Layout::Hwc => to * size + channel * value_bytes,
                        Layout::Chw => channel * plane + to * value_bytes,
                    };
                    out[place..place + value_bytes].copy_from_slice(value);
                }
            }
        }
    }
}

/// A table of floats a channel.
pub(crate) type Tables = [[f32; 256]; 3];

/// The tables of a normalisation; mean 0 and deviation 1 give values from 0 to 1.
pub(crate) fn tables(mean: [f32; 3], deviation: [f32; 3]) -> Tables {
    std::array::from_fn(|channel| {
        std::array::from_fn(|value| (value as f32 / 255.0 - mean[channel]) / deviation[channel])
    })
}

/// Writes bytes. `out` has `channels` a pixel: as many as the part, or 3 if the part has 1.
pub(crate) fn bytes(part: Part<'_>, channels: usize, layout: Layout, out: &mut [u8]) {
    if part.channels == channels && !part.mirrored && (layout == Layout::Hwc || channels == 1) {
        let row = part.area.width as usize * channels;
        for (to, from) in out.chunks_exact_mut(row).zip(part.rows()) {
            to.copy_from_slice(from);
        }
        return;
    }
    write(part, channels, layout, out, |_, value| value);
}

/// Writes floats through tables.
pub(crate) fn floats(
    part: Part<'_>,
    channels: usize,
    layout: Layout,
    tables: &Tables,
    out: &mut [f32],
) {
    write(part, channels, layout, out, |channel, value| {
        tables[channel][usize::from(value)]
    });
}

fn write<T: Copy>(
    part: Part<'_>,
    channels: usize,
    layout: Layout,
    out: &mut [T],
    map: impl Fn(usize, u8) -> T + Copy,
) {
    match (part.channels, channels, layout) {
        (3, 3, Layout::Hwc) => side_by_side::<T, 3, 3>(part, out, map),
        (1, 3, Layout::Hwc) => side_by_side::<T, 1, 3>(part, out, map),
        (3, 3, Layout::Chw) => planes::<T, 3>(part, out, map),
        (1, 3, Layout::Chw) => planes::<T, 1>(part, out, map),
        (1, 1, _) => side_by_side::<T, 1, 1>(part, out, map),
        _ => unreachable!("grey is made of colours before they are written"),
    }
}

fn side_by_side<T: Copy, const FROM: usize, const TO: usize>(
    part: Part<'_>,
    out: &mut [T],
    map: impl Fn(usize, u8) -> T,
) {
    let row = part.area.width as usize * TO;
    for (to, from) in out.chunks_exact_mut(row).zip(part.rows()) {
        let to = to.as_chunks_mut::<TO>().0.iter_mut();
        let from = from.as_chunks::<FROM>().0.iter();
        let convert = |(to, from): (&mut [T; TO], &[u8; FROM])| {
            *to = std::array::from_fn(|channel| map(channel, from[channel % FROM]));
        };
        if part.mirrored {
            to.zip(from.rev()).for_each(convert);
        } else {
            to.zip(from).for_each(convert);
        }
    }
}

fn planes<T: Copy, const FROM: usize>(part: Part<'_>, out: &mut [T], map: impl Fn(usize, u8) -> T) {
    let row = part.area.width as usize;
    let plane = row * part.area.height as usize;
    let (red, others) = out.split_at_mut(plane);
    let (green, blue) = others.split_at_mut(plane);
    let planes = red
        .chunks_exact_mut(row)
        .zip(green.chunks_exact_mut(row))
        .zip(blue.chunks_exact_mut(row));
    for (((red, green), blue), from) in planes.zip(part.rows()) {
        let to = red.iter_mut().zip(green).zip(blue);
        let from = from.as_chunks::<FROM>().0.iter();
        let convert = |(((red, green), blue), from): (((&mut T, &mut T), &mut T), &[u8; FROM])| {
            *red = map(0, from[0]);
            *green = map(1, from[1 % FROM]);
            *blue = map(2, from[2 % FROM]);
        };
        if part.mirrored {
            to.zip(from.rev()).for_each(convert);
        } else {
            to.zip(from).for_each(convert);
        }
    }
}

/// Sets a part of a finished image to one value. Asserts that it is inside.
pub(crate) fn fill<T: Copy>(
    out: &mut [T],
    (height, width): (u32, u32),
    channels: usize,
    layout: Layout,
    area: Rectangle,
    value: T,
) {
    let (planes, values) = match layout {
        Layout::Hwc => (1, channels),
        Layout::Chw => (channels, 1),
    };
    let row = width as usize * values;
    let (start, length) = (area.left as usize * values, area.width as usize * values);
    for plane in out.chunks_exact_mut(row * height as usize).take(planes) {
        let rows = plane.chunks_exact_mut(row).skip(area.top as usize);
        for line in rows.take(area.height as usize) {
            line[start..start + length].fill(value);
        }
    }
}
