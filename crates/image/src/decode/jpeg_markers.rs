//! The markers of a JPEG: a walk over them finds what the image declares, where its scans are, and what is missing,
//! without decoding anything.
//!
//! Cost: a search for 0xFF through the file, some microseconds.

use std::ops::Range;

use super::jpeg_errors::{cut_short, damaged, unsupported};
use crate::ImageError;

const RESTARTS: Range<u8> = 0xD0..0xD8;
const END_OF_IMAGE: u8 = 0xD9;
const START_OF_SCAN: u8 = 0xDA;
const RESTART_INTERVAL: u8 = 0xDD;

/// Coefficients of a block.
const COEFFICIENTS: usize = 64;
/// A coefficient that has not been sent at all.
const NOTHING: u8 = u8::MAX;

/// The content of the markers.
#[derive(Debug)]
pub(super) struct Frame {
    pub width: u32,
    pub height: u32,
    pub components: Vec<Component>,
    pub sequential: bool,
    pub scans: Vec<Scan>,
    /// The end of the image, after its end marker.
    pub end: usize,
}

/// A component: its name, and its samples across and down for each unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Component {
    name: u8,
    across: u32,
    down: u32,
    quantisation: u8,
}

impl Component {
    pub fn name(&self) -> u8 {
        self.name
    }

    /// Samples across and down for each unit.
    pub fn sampling(&self) -> (u32, u32) {
        (self.across, self.down)
    }

    /// The index of its quantisation table.
    pub fn quantisation(&self) -> usize {
        usize::from(self.quantisation)
    }
}

/// One scan.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    /// The start of its marker.
    pub begin: usize,
    /// The start of the marker that ends its data.
    pub end: usize,
    /// Names and tables of its components, two bytes each.
    pub components: Vec<[u8; 2]>,
    /// First and last coefficient.
    pub coefficients: (u8, u8),
    /// Bits that were not sent before (0 for a first scan of these coefficients), and bits that are not sent yet.
    pub bits: (u8, u8),
    /// Bytes of data, without restart markers and the zeros after 0xFF.
    data: usize,
    /// Units between two restart markers; 0 without them.
    pub interval: u32,
    /// Starts of restart markers.
    pub restarts: Vec<usize>,
}

impl Scan {
    /// Whether it refines coefficients that are partly known: many bits may come between two codes.
    pub fn refines_many(&self) -> bool {
        self.bits.0 > 0 && self.coefficients.0 > 0
    }
}

impl Frame {
    /// Whether everything is in one scan of whole coefficients.
    pub fn is_one_scan(&self) -> bool {
        let [scan] = self.scans.as_slice() else {
            return false;
        };
        self.sequential && scan.components.len() == self.components.len()
    }

    /// Refuses an image if its markers show that data are missing: a scan with a wrong number of restart markers or
    /// with too few bits, or no scan at all for some coefficients.
    pub fn check(&self) -> Result<(), ImageError> {
        for scan in &self.scans {
            self.check_restarts(scan)?;
            // One bit for each block, and nothing else.
            let refines_means = scan.bits.0 > 0 && scan.coefficients.0 == 0;
            if !self.sequential
                && refines_means
                && (scan.data as u64) < self.blocks(scan).div_ceil(8)
            {
                return Err(damaged("a scan has fewer bits than blocks"));
            }
        }
        if self.is_one_scan() {
            Ok(())
        } else {
            self.check_whole()
        }
    }

    fn check_restarts(&self, scan: &Scan) -> Result<(), ImageError> {
        if scan.interval == 0 {
            return Ok(());
        }
        let units = self.units(scan);
        // Some encoders write another one after the last interval.
        let interval = u64::from(scan.interval);
        let (least, most) = (units.saturating_sub(1) / interval, units / interval);
        let found = scan.restarts.len() as u64;
        if (least..=most).contains(&found) {
            return Ok(());
        }
        Err(damaged(format!(
            "it has {found} restart markers instead of {least}"
        )))
    }

    /// Checks that every coefficient of every component is sent to its last bit. The standard does not require it,
    /// but all encoders do so: an image that ends earlier was truncated and closed by another tool.
    fn check_whole(&self) -> Result<(), ImageError> {
        let mut missing = vec![[NOTHING; COEFFICIENTS]; self.components.len()];
        for scan in &self.scans {
            let (from, to) = scan.coefficients;
            for [name, _] in &scan.components {
                let number = self.number_of(*name)?;
                let Some(sent) = missing[number].get_mut(usize::from(from)..=usize::from(to))
                else {
                    return Err(damaged("a scan is of coefficients that there are not"));
                };
                sent.fill(if self.sequential { 0 } else { scan.bits.1 });
            }
        }
        if missing.iter().flatten().all(|&bits| bits == 0) {
            Ok(())
        } else {
            Err(damaged("its last scans are missing"))
        }
    }

    /// Name and tables of the component of a scan with the fewest blocks.
    pub fn coarsest(&self, scan: &Scan) -> Option<[u8; 2]> {
        let blocks = |name: u8| {
            let number = self.number_of(name).ok()?;
            Some(self.components[number].across * self.components[number].down)
        };
        let known = scan
            .components
            .iter()
            .filter(|[name, _]| blocks(*name).is_some());
        known.copied().min_by_key(|[name, _]| blocks(*name))
    }

    fn number_of(&self, name: u8) -> Result<usize, ImageError> {
        let place = self.components.iter().position(|known| known.name == name);
        place.ok_or_else(|| damaged("a scan is of a component that there is not"))
    }

    /// The unit of restart intervals: blocks of the only component of a scan, otherwise units with blocks of all.
    fn units(&self, scan: &Scan) -> u64 {
        let (across, down) = self.finest();
        let sides = match scan.components.as_slice() {
            [[name, _]] => {
                let own = self.components.iter().find(|known| known.name == *name);
                let (own_across, own_down) =
                    own.map_or((across, down), |own| (own.across, own.down));
                let samples = |side: u32, own: u32, finest: u32| (side * own).div_ceil(finest);
                (
                    samples(self.width, own_across, across).div_ceil(8),
                    samples(self.height, own_down, down).div_ceil(8),
                )
            }
            _ => (
                self.width.div_ceil(8 * across),
                self.height.div_ceil(8 * down),
            ),
        };
        u64::from(sides.0) * u64::from(sides.1)
    }

    /// Blocks of all components of a scan.
    fn blocks(&self, scan: &Scan) -> u64 {
        let a_unit: u64 = match scan.components.as_slice() {
            [_] => 1,
            all => {
                let known = all
                    .iter()
                    .filter_map(|[name, _]| self.number_of(*name).ok());
                known
                    .map(|number| self.components[number])
                    .map(|own| u64::from(own.across * own.down))
                    .sum()
            }
        };
        self.units(scan) * a_unit
    }

    /// Samples across and down of the finest component.
    pub fn finest(&self) -> (u32, u32) {
        let across = self.components.iter().map(|own| own.across).max();
        let down = self.components.iter().map(|own| own.down).max();
        (across.unwrap_or(1), down.unwrap_or(1))
    }
}

/// Walks over the markers to the end of the image.
pub(super) fn walk(bytes: &[u8]) -> Result<Frame, ImageError> {
    let mut frame: Option<Frame> = None;
    let mut interval = 0;
    // After the start marker, which the caller has checked.
    let mut at = 2;
    loop {
        let found = next_marker(bytes, at).ok_or_else(|| cut_short(bytes))?;
        let Found { marker, behind, .. } = found;
        // The scan with data that end here, or continue after a restart marker.
        let scan = frame.as_mut().and_then(|frame| frame.scans.last_mut());
        if let Some(scan) = scan.filter(|scan| scan.end == 0) {
            scan.data += found.begin - at - found.stuffed;
            if RESTARTS.contains(&marker) {
                scan.restarts.push(found.begin)
            } else {
                scan.end = found.begin
            }
        }
        at = behind;
        // Restarts, and markers without a length.
        if RESTARTS.contains(&marker) || matches!(marker, 0x01 | 0xD8) {
            continue;
        }
        if marker == END_OF_IMAGE {
            let frame = frame.ok_or_else(|| damaged("it has no frame header"))?;
            return Ok(Frame {
                end: behind,
                ..frame
            });
        }
        let segment = segment(bytes, behind).ok_or_else(|| cut_short(bytes))?;
        at += segment.len();
        match (marker, segment) {
            (_, [] | [_]) => return Err(damaged("a segment is shorter than its own length")),
            (RESTART_INTERVAL, &[_, _, high, low, ..]) => {
                interval = u32::from(u16::from_be_bytes([high, low]));
            }
            (START_OF_SCAN, _) => {
                let frame = frame.as_mut();
                let frame =
                    frame.ok_or_else(|| damaged("its data come before its frame header"))?;
                frame.scans.push(scan_of(segment, found.begin, interval)?);
            }
            _ if is_frame(marker) && frame.is_none() => frame = Some(frame_of(marker, segment)?),
            _ => (),
        }
    }
}

/// The start of an EXIF segment.
pub(super) const EXIF: &[u8] = b"Exif\0\0";

/// The EXIF data, which may be among the headers before the first scan.
pub(super) fn exif(bytes: &[u8]) -> Option<&[u8]> {
    const APPLICATION_1: u8 = 0xE1;
    let headers = segments(bytes).take_while(|segment| segment.marker != START_OF_SCAN);
    let mut applications = headers.filter(|segment| segment.marker == APPLICATION_1);
    applications.find_map(|segment| segment.content.strip_prefix(EXIF))
}

/// A segment with a length.
pub(super) struct Segment<'a> {
    pub marker: u8,
    pub content: &'a [u8],
    /// The offset after it.
    pub behind: usize,
}

/// The segments in order, up to the end of the image or an invalid segment.
pub(super) fn segments(bytes: &[u8]) -> impl Iterator<Item = Segment<'_>> {
    let mut at = 2;
    std::iter::from_fn(move || {
        loop {
            let Found { marker, behind, .. } = next_marker(bytes, at)?;
            at = behind;
            if RESTARTS.contains(&marker) || matches!(marker, 0x01 | 0xD8) {
                continue;
            }
            if marker == END_OF_IMAGE {
                return None;
            }
            let segment = segment(bytes, behind)?;
            at += segment.len();
            let content = segment.get(2..).unwrap_or_default();
            return Some(Segment {
                marker,
                content,
                behind: at,
            });
        }
    })
}

/// A marker.
struct Found {
    marker: u8,
    /// Its start, including any number of 0xFF.
    begin: usize,
    /// The offset after it.
    behind: usize,
    /// Escaping zeros after 0xFF that were skipped.
    stuffed: usize,
}

/// The next marker at or after `at`. Before it is entropy-coded data, in which 0xFF is followed by 0, or stray bytes.
fn next_marker(bytes: &[u8], mut at: usize) -> Option<Found> {
    let mut stuffed = 0;
    loop {
        at += memchr::memchr(0xFF, bytes.get(at..)?)?;
        let begin = at;
        // A marker may have any number of 0xFF before it.
        while *bytes.get(at)? == 0xFF {
            at += 1;
        }
        let marker = bytes[at];
        at += 1;
        if marker != 0 {
            return Some(Found {
                marker,
                begin,
                behind: at,
                stuffed,
            });
        }
        stuffed += 1;
    }
}

/// A segment from its length on.
fn segment(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let length = bytes.get(at..at + 2)?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    bytes.get(at..at + length)
}

/// Frame headers; their range also contains the markers of tables (C4, CC) and a reserved one (C8).
fn is_frame(marker: u8) -> bool {
    matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC)
}

fn frame_of(marker: u8, segment: &[u8]) -> Result<Frame, ImageError> {
    let kind = match marker {
        0xC0..=0xC2 => None,
        0xC3 | 0xC7 | 0xCB | 0xCF => Some("it is lossless"),
        0xC5 | 0xC6 => Some("it is hierarchical"),
        _ => Some("it is arithmetically coded"),
    };
    if let Some(kind) = kind {
        return Err(unsupported(kind));
    }
    let &[_, _, bits, h0, h1, w0, w1, count, ..] = segment else {
        return Err(damaged("its frame header is too short"));
    };
    if bits != 8 {
        return Err(unsupported(format!("it has {bits} bits a channel")));
    }
    // Three bytes for each component: its name, its samples across and down, its table.
    let described = segment[8..].as_chunks::<3>().0;
    if described.len() < usize::from(count) {
        return Err(damaged("its frame header is too short"));
    }
    let components = described[..usize::from(count)]
        .iter()
        .map(|component| Component {
            name: component[0],
            // A single component is not interleaved, so its units are single blocks.
            across: if count == 1 {
                1
            } else {
                u32::from(component[1] >> 4).max(1)
            },
            down: if count == 1 {
                1
            } else {
                u32::from(component[1] & 15).max(1)
            },
            quantisation: component[2],
        });
    Ok(Frame {
        width: u32::from(u16::from_be_bytes([w0, w1])),
        height: u32::from(u16::from_be_bytes([h0, h1])),
        components: components.collect(),
        sequential: marker != 0xC2,
        scans: Vec::new(),
        end: 0,
    })
}

fn scan_of(segment: &[u8], begin: usize, interval: u32) -> Result<Scan, ImageError> {
    let too_short = || damaged("a scan header is too short");
    let count = usize::from(*segment.get(2).ok_or_else(too_short)?);
    let components = segment.get(3..3 + 2 * count).ok_or_else(too_short)?;
    let &[from, to, bits, ..] = &segment[3 + 2 * count..] else {
        return Err(too_short());
    };
    Ok(Scan {
        begin,
        end: 0,
        components: components.as_chunks().0.to_vec(),
        coefficients: (from, to),
        bits: (bits >> 4, bits & 15),
        data: 0,
        interval,
        restarts: Vec::new(),
    })
}
