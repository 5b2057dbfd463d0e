//! One picture for display: decoded, scaled down, written as PNG. For `inspect`; pipelines use a faster decoder.

use std::io::Cursor;

use image::{ImageReader, Limits, RgbImage};
use pelton_format::{Contents, Field, PICTURE_EXTENSIONS, members};
use pelton_image::Format;

/// Largest side of an image to decode.
const MOST_SIDE: u32 = 20_000;
/// Most bytes that decoding may take.
const MOST_BYTES: u64 = 1 << 30;

/// A picture of 8-bit red, green and blue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Red, green and blue of each pixel, row after row.
    pub rgb: Vec<u8>,
}

impl Picture {
    /// The picture in a row of bytes; `None` if such rows have no picture, an error if it cannot be decoded.
    pub fn from_row(contents: Contents, row: &[u8]) -> Option<Result<Picture, String>> {
        match contents {
            Contents::Pixels { .. } => Some(Ok(Picture::of_pixels(contents, row)?)),
            Contents::Image => Some(Picture::decode(row)),
            Contents::Members => members(row)
                .find(|member| {
                    let last = member.extension.rsplit(|byte| *byte == b'.').next();
                    PICTURE_EXTENSIONS.iter().any(|known| {
                        last.is_some_and(|last| last.eq_ignore_ascii_case(known.as_bytes()))
                    })
                })
                .map(|member| Picture::decode(member.bytes)),
            _ => None,
        }
    }

    /// The picture in one of these fields.
    pub fn of_fields(fields: &[Field<'_>]) -> Option<Result<Picture, String>> {
        let mut fields = fields.iter();
        fields
            .find(|field| field.dtype.is_none() && Format::detect(field.bytes).is_some())
            .map(|field| Picture::decode(field.bytes))
    }

    /// One channel is grey; of four channels the last is dropped, of other counts only the first is shown.
    fn of_pixels(contents: Contents, row: &[u8]) -> Option<Picture> {
        let Contents::Pixels {
            height,
            width,
            channels,
            planar,
        } = contents
        else {
            return None;
        };
        let (pixels, channels) = (height as usize * width as usize, channels as usize);
        if channels == 0 || row.len() != pixels.checked_mul(channels)? {
            return None;
        }
        let at = |pixel: usize, channel: usize| {
            if planar {
                row[channel * pixels + pixel]
            } else {
                row[pixel * channels + channel]
            }
        };
        let shown = if matches!(channels, 3 | 4) {
            [0, 1, 2]
        } else {
            [0; 3]
        };
        Some(Picture {
            width,
            height,
            rgb: (0..pixels)
                .flat_map(|pixel| shown.map(|channel| at(pixel, channel)))
                .collect(),
        })
    }

    /// Decodes an encoded picture.
    fn decode(bytes: &[u8]) -> Result<Picture, String> {
        let mut limits = Limits::default();
        limits.max_image_width = Some(MOST_SIDE);
        limits.max_image_height = Some(MOST_SIDE);
        limits.max_alloc = Some(MOST_BYTES);
        let mut reader = ImageReader::new(Cursor::new(bytes))
            .with_guessed_format()
            .map_err(|error| error.to_string())?;
        reader.limits(limits);
        let image = reader.decode().map_err(|error| error.to_string())?;
        let rgb = image.into_rgb8();
        Ok(Picture {
            width: rgb.width(),
            height: rgb.height(),
            rgb: rgb.into_raw(),
        })
    }

    /// The picture as a PNG file.
    pub fn to_png(&self) -> Result<Vec<u8>, String> {
        let image = RgbImage::from_raw(self.width, self.height, self.rgb.clone())
            .ok_or("the picture's size does not fit its pixels")?;
        let mut png = Cursor::new(Vec::new());
        image
            .write_to(&mut png, image::ImageFormat::Png)
            .map_err(|error| error.to_string())?;
        Ok(png.into_inner())
    }

    /// The picture scaled down to fit `width` × `height`, each pixel the mean of those it covers; unchanged if
    /// it fits.
    pub fn fitted(&self, width: u32, height: u32) -> Picture {
        let scale = f64::max(
            f64::from(self.width) / f64::from(width.max(1)),
            f64::from(self.height) / f64::from(height.max(1)),
        );
        if scale <= 1.0 {
            return self.clone();
        }
        let small = |side: u32| ((f64::from(side) / scale).round() as u32).max(1);
        let (columns, rows) = (small(self.width), small(self.height));
        let span = |i: u32, parts: u32, side: u32| {
            let from = u64::from(i) * u64::from(side) / u64::from(parts);
            let to = u64::from(i + 1) * u64::from(side) / u64::from(parts);
            from as usize..(to as usize).max(from as usize + 1)
        };
        let mut rgb = Vec::with_capacity(3 * columns as usize * rows as usize);
        for row in 0..rows {
            for column in 0..columns {
                let mut sums = [0u64; 3];
                let mut count = 0;
                for y in span(row, rows, self.height) {
                    for x in span(column, columns, self.width) {
                        let at = 3 * (y * self.width as usize + x);
                        for (sum, value) in sums.iter_mut().zip(&self.rgb[at..at + 3]) {
                            *sum += u64::from(*value);
                        }
                        count += 1;
                    }
                }
                rgb.extend(sums.map(|sum| (sum / count) as u8));
            }
        }
        Picture {
            width: columns,
            height: rows,
            rgb,
        }
    }

    /// Red, green and blue of a pixel.
    pub fn pixel(&self, x: u32, y: u32) -> [u8; 3] {
        let at = 3 * (y as usize * self.width as usize + x as usize);
        [self.rgb[at], self.rgb[at + 1], self.rgb[at + 2]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels(height: u32, width: u32, channels: u32, planar: bool) -> Contents {
        Contents::Pixels {
            height,
            width,
            channels,
            planar,
        }
    }

    #[test]
    fn raw_pixels() {
        let grey = Picture::from_row(pixels(1, 2, 1, false), &[7, 9])
            .unwrap()
            .unwrap();
        assert_eq!(grey.rgb, [7, 7, 7, 9, 9, 9]);
        let planar = Picture::from_row(pixels(1, 2, 3, true), &[1, 2, 3, 4, 5, 6]);
        assert_eq!(planar.unwrap().unwrap().rgb, [1, 3, 5, 2, 4, 6]);
        let adjacent = Picture::from_row(pixels(2, 1, 3, false), &[1, 2, 3, 4, 5, 6]);
        assert_eq!(adjacent.unwrap().unwrap().pixel(0, 1), [4, 5, 6]);
        assert_eq!(Picture::from_row(pixels(2, 2, 1, false), &[1]), None);
        assert_eq!(Picture::from_row(Contents::Text, b"x"), None);
    }

    #[test]
    fn png_and_back() {
        let picture = Picture {
            width: 40,
            height: 30,
            rgb: (0..3600).map(|i| (i % 251) as u8).collect(),
        };
        let png = picture.to_png().unwrap();
        assert_eq!(
            Picture::from_row(Contents::Image, &png),
            Some(Ok(picture.clone()))
        );
        let half = Picture::from_row(Contents::Image, &png[..png.len() / 2]).unwrap();
        assert!(half.is_err());
        assert!(
            Picture::from_row(Contents::Image, b"no image")
                .unwrap()
                .is_err()
        );
        assert_eq!(picture.fitted(40, 30), picture);
        let small = picture.fitted(10, 10);
        assert_eq!((small.width, small.height, small.rgb.len()), (10, 8, 240));
    }

    /// A header that declares a huge picture is refused before memory is allocated.
    #[test]
    fn declared_sizes_are_bounded() {
        let mut png = Picture {
            width: 1,
            height: 1,
            rgb: vec![0; 3],
        }
        .to_png()
        .unwrap();
        png[16..24].copy_from_slice(&[0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30]);
        let mut crc = flate2::Crc::new();
        crc.update(&png[12..29]);
        png[29..33].copy_from_slice(&crc.sum().to_be_bytes());
        let error = Picture::from_row(Contents::Image, &png)
            .unwrap()
            .unwrap_err();
        assert!(
            error.to_lowercase().contains("limit") || error.contains("large"),
            "{error}"
        );
    }
}
