//! Tar files of samples, as WebDataset writes them: consecutive members with one key are a record.
//!
//! The key of a member is its path up to the first dot of the file name; the rest is its extension. A record is the
//! range of the file from the first header of its first member to the next record, so it is read with one access, and
//! [`members`](crate::samples::tar::members) splits it. Folders between members belong to the record before them.
//! Links, devices and names that start with a dot are skipped and counted in a note. It refuses sparse members, because
//! their data are not contiguous; a key that appears again later, because one range cannot hold both parts; and, as
//! WebDataset does, an extension that a sample has twice, because it is ambiguous.
//!
//! The class of a record is the number in its member `cls`, 0 if there is none, or the value of a key of its member
//! `json` (`classes.rs`).
//!
//! Cost: one walk over the headers, 512 bytes a member if members are long, all of the file if they are short; kept in
//! a sidecar. 8 bytes a record during the walk. Scanning chunks in several threads was rejected: each header depends on
//! the one before, and one thread keeps up with memory.

pub(crate) mod classes;
pub(crate) mod members;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::byte_source::ByteSource;
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::locate::places::located::Located;
use crate::locate::places::sidecar::RecordShape;
use crate::locate::sample::SampleShape;
use crate::locate::tar::header::BLOCK;
use crate::locate::tar::walk::{Broken, Entry, Step, step};
use crate::record::cells::label_column::LabelColumn;
use crate::record::contents::Contents;
use crate::record::error::{FormatError, FormatErrorKind, excerpt};
use crate::record::json::JsonKey;
use crate::record::kind::Head;
use crate::record::mixing::mix;
use crate::samples::tar::classes::TarClasses;
use crate::samples::tar::members::NameParts;

/// Distinguishes its sidecars.
const SHAPE: u64 = 6;
/// How records are found, in words.
const HEADERS: &str = "from a walk over the headers of members";
/// How far after an archive's end to look for further content.
const LOOK_BEHIND_END: u64 = 1 << 20;
/// Assumed mean bytes of a sample for building the list of offsets.
const EXPECTED_SAMPLE_BYTES: u64 = 16 << 10;

/// Counts of a walk besides records; the order is that of the sidecar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tallies {
    links: u64,
    devices: u64,
    others: u64,
    hidden: u64,
    unlabelled: u64,
    /// 1 if the archive lacks the final block of zeros.
    unended: u64,
    /// Offset of content after the end; 0 if there is none.
    behind: u64,
}

impl Tallies {
    fn words(self) -> Vec<u64> {
        let Tallies {
            links,
            devices,
            others,
            hidden,
            unlabelled,
            unended,
            behind,
        } = self;
        vec![links, devices, others, hidden, unlabelled, unended, behind]
    }

    fn from_words(words: &[u64]) -> Tallies {
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        Tallies {
            links: at(0),
            devices: at(1),
            others: at(2),
            hidden: at(3),
            unlabelled: at(4),
            unended: at(5),
            behind: at(6),
        }
    }

    fn notes(self, path: &str, records: u64) -> Vec<String> {
        let mut notes = Vec::new();
        let passed = [
            (self.links, "links"),
            (self.devices, "devices or pipes"),
            (self.others, "entries of unknown type"),
            (self.hidden, "files whose names start with a dot"),
        ];
        for (count, what) in passed.into_iter().filter(|(count, _)| *count > 0) {
            notes.push(format!(
                "{path}: {count} {what} are not members of samples and are skipped"
            ));
        }
        if self.unlabelled == records {
            notes.push(format!(
                "{path}: no sample has a member .cls, so none has a label"
            ));
        } else if self.unlabelled > 0 {
            let count = self.unlabelled;
            notes.push(format!(
                "{path}: {count} of {records} samples have no member .cls and count as class 0"
            ));
        }
        if self.unended > 0 {
            notes.push(format!("{path}: ends without the blocks of zeros that end an archive; make sure that it is whole"));
        }
        if self.behind > 0 {
            let at = self.behind;
            notes.push(format!("{path}: the bytes from {at} on, after the end of the archive, are left out; extract and join archives with tar --concatenate"));
        }
        notes
    }
}

/// A tar file of samples (WebDataset).
pub(crate) struct Tar;

impl Format for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    /// By the checksum of the first header, in any dialect.
    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        let first = head.bytes.first_chunk::<512>();
        if first.is_some_and(crate::locate::tar::header::has_checksum) {
            Some(Match::Magic)
        } else {
            head.ends_in(&["tar", "tgz"]).then_some(Match::Name)
        }
    }

    fn refuses_label(&self, label: &LabelColumn) -> Option<&'static str> {
        matches!(label, LabelColumn::Name(_)).then_some(
            "give `label` json:KEY, a key of the members .json, or leave it out for the members .cls",
        )
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let key = match &source.options.label {
            LabelColumn::Json(key) => Some(key),
            _ => None,
        };
        let label = key.map_or(0, key_hash);
        let shape = RecordShape::Classed {
            format: SHAPE,
            label,
        };
        let (located, index) = source.located(shape, 0, notes, || scan(source, key))?;
        let records = located.starts.len();
        if records == 0 {
            return Err(FormatError::empty());
        }
        let path = source.path.display().to_string();
        notes.extend(Tallies::from_words(&located.tallies).notes(&path, records));
        let shape = SampleShape::Group { label };
        let shard = Shard::samples(Contents::Members, 0, Vec::new(), shape);
        let shard = shard.at(located, index, HEADERS);
        Ok(Shard {
            nonzeros: shard.bytes,
            ..shard
        })
    }
}

/// Distinguishes keys in sidecars and fingerprints; 0 means no key.
fn key_hash(key: &JsonKey) -> u64 {
    let text = key.to_string();
    let hash = text
        .bytes()
        .fold(1, |hash, byte| mix(hash, u64::from(byte)));
    hash.max(1)
}

fn scan(source: &Source<'_>, key: Option<&JsonKey>) -> Result<Located, FormatError> {
    let mut window = source.window()?;
    let check_interrupt = || source.options.check_interrupt();
    scan_samples(&mut window, key, source.options.tolerant, check_interrupt)
}

/// Walks over all headers and groups members into samples; with a key, classes are its values in members `json`. If the
/// walk cannot continue, a tolerant one ends with a sample that cannot be decoded.
pub(crate) fn scan_samples(
    source: &mut impl ByteSource,
    key: Option<&JsonKey>,
    tolerant: bool,
    check_interrupt: impl Fn() -> Result<(), FormatError>,
) -> Result<Located, FormatError> {
    let mut samples = Samples::new(key, tolerant);
    let mut at = 0;
    loop {
        let entry = match step(source, at) {
            Ok(Step::Entry(entry)) => entry,
            Ok(Step::End { has_block }) => {
                samples.tallies.unended = u64::from(!has_block);
                break;
            }
            Err(Broken::Truncated { .. } | Broken::Damaged { .. })
                if tolerant && at < source.size() =>
            {
                samples.add_broken(source, at)?;
                return samples.finish();
            }
            Err(why) => {
                let member = member_at(source, &why).unwrap_or_else(|| samples.last_name());
                return Err(broken(&member, why));
            }
        };
        at = entry.end;
        samples.add(source, &entry)?;
        check_interrupt()?;
    }
    samples.tallies.behind = behind_end(source, at)?;
    samples.finish()
}

/// The walk cannot continue at `member`.
fn broken(member: &str, why: Broken) -> FormatError {
    match why {
        Broken::Truncated { start, needed } => {
            let what = format!(
                "it is cut off: member {member} needs the file to reach byte {needed}; fetch it again"
            );
            FormatError::malformed(start, what)
        }
        Broken::Damaged { at, what } => FormatError::malformed(
            at,
            format!("the file is damaged: {what}; fetch or make it again"),
        ),
        Broken::Failed(error) => error.into(),
    }
}

/// The name in the header of a truncated member, if the file contains that much of it.
fn member_at(source: &mut impl ByteSource, why: &Broken) -> Option<String> {
    let Broken::Truncated { start, .. } = *why else {
        return None;
    };
    if start.checked_add(BLOCK as u64)? > source.size() {
        return None;
    }
    let block = source.bytes(start, BLOCK).ok()?;
    let header = crate::locate::tar::header::parse(block.first_chunk()?).ok()??;
    Some(excerpt(&block[header.name]))
}

/// Offset of the first non-zero byte after the block at `end`; 0 if there is none.
fn behind_end(source: &mut impl ByteSource, end: u64) -> std::io::Result<u64> {
    let last = source.size().min(end.saturating_add(LOOK_BEHIND_END));
    let mut at = end;
    while at < last {
        let length = (last - at).min(BLOCK as u64);
        if source
            .bytes(at, length as usize)?
            .iter()
            .any(|byte| *byte != 0)
        {
            return Ok(at);
        }
        at += length;
    }
    Ok(0)
}

/// Samples so far.
struct Samples<'a> {
    starts: EliasFanoBuilder,
    classes: TarClasses<'a>,
    /// Hashes of the keys: two of a million collide by chance once in 10^7 archives.
    seen: HashSet<u64>,
    /// Hashes of the extensions of the last sample's members, in lower case.
    extensions: HashSet<u64>,
    hasher: RandomState,
    key: u64,
    /// The last member's name, for messages.
    name: Vec<u8>,
    /// The common start of the names of the last sample's members.
    sample: Vec<u8>,
    end: u64,
    longest: u64,
    tolerant: bool,
    first_bad: Option<u64>,
    tallies: Tallies,
}

impl<'a> Samples<'a> {
    fn new(key: Option<&'a JsonKey>, tolerant: bool) -> Samples<'a> {
        Samples {
            starts: EliasFanoBuilder::new(EXPECTED_SAMPLE_BYTES),
            classes: TarClasses::new(key),
            seen: HashSet::new(),
            extensions: HashSet::new(),
            hasher: RandomState::new(),
            key: 0,
            name: Vec::new(),
            sample: Vec::new(),
            end: 0,
            longest: 0,
            tolerant,
            first_bad: None,
            tallies: Tallies::default(),
        }
    }

    fn last_name(&self) -> String {
        match self.name.as_slice() {
            [] => "the first".into(),
            name => format!("the one after {}", excerpt(name)),
        }
    }

    fn add(&mut self, source: &mut impl ByteSource, entry: &Entry) -> Result<(), FormatError> {
        self.read_name(source, entry)?;
        if entry.sparse {
            let what = format!(
                "member {} is sparse, so its bytes are not contiguous; make the archive again without --sparse",
                excerpt(&self.name)
            );
            return Err(FormatError::malformed(entry.start, what));
        }
        match entry.kind {
            _ if entry.is_file() => {}
            b'5' => return Ok(()),
            b'1' | b'2' => {
                self.tallies.links += 1;
                return Ok(());
            }
            b'3' | b'4' | b'6' => {
                self.tallies.devices += 1;
                return Ok(());
            }
            _ => {
                self.tallies.others += 1;
                return Ok(());
            }
        }
        let Some(parts) = NameParts::new(&self.name) else {
            self.tallies.hidden += 1;
            return Ok(());
        };
        let class_bytes = self.classes.bytes_of(parts.extension, entry.size);
        let key = self.hasher.hash_one((parts.folder, parts.stem));
        let extension = self.hasher.hash_one(parts.extension.to_ascii_lowercase());
        if self.starts.is_empty() || key != self.key {
            if !self.seen.insert(key) {
                let what = format!(
                    "members of sample {} appear again after other samples; make the archive again with its members in order of their names",
                    excerpt(&[parts.folder, parts.stem].concat())
                );
                return Err(FormatError::malformed(entry.start, what));
            }
            let length = parts.folder.len() + parts.stem.len();
            self.key = key;
            self.close_sample(entry.start)?;
            self.starts.push(entry.start);
            self.classes.begin();
            self.sample.clear();
            self.sample.extend_from_slice(&self.name[..length]);
            // A cleared set would keep the capacity of the largest sample, and clearing it take as long.
            self.extensions = HashSet::new();
        }
        if !self.extensions.insert(extension) {
            let what = format!(
                "member {} has the same extension as an earlier member of its sample (case does not matter); leave one of the two out and make the archive again",
                excerpt(&self.name)
            );
            return Err(FormatError::malformed(entry.start, what));
        }
        self.end = entry.end;
        let Some(length) = class_bytes else {
            return Ok(());
        };
        match self.read_class(source, entry, length) {
            Err(error) if self.tolerant && matches!(error.kind(), FormatErrorKind::Record) => {
                self.give_up_last();
                Ok(())
            }
            read => read,
        }
    }

    /// The last sample cannot be decoded.
    fn give_up_last(&mut self) {
        self.classes.forget();
        self.first_bad.get_or_insert(self.starts.len() - 1);
    }

    /// The archive is cut off or damaged at the header at `at`. Ends with a sample that reaches into it: the last
    /// sample including its unreadable next member, unless that header names another sample.
    fn add_broken(&mut self, source: &mut impl ByteSource, at: u64) -> Result<(), FormatError> {
        let end = source.size().min(at + BLOCK as u64);
        let block = source.bytes(at, (end - at) as usize)?;
        let header = block
            .first_chunk()
            .and_then(|block| crate::locate::tar::header::parse(block).ok()?)
            .filter(|header| matches!(header.kind, b'0' | 0 | b'7'));
        let name = header.map(|header| match &block[header.prefix] {
            [] => block[header.name].to_vec(),
            prefix => [prefix, b"/", &block[header.name]].concat(),
        });
        let parts = name.as_deref().and_then(NameParts::new);
        let key = parts.map(|parts| self.hasher.hash_one((parts.folder, parts.stem)));
        if self.starts.is_empty() || key.is_some_and(|key| key != self.key) {
            self.close_sample(at)?;
            self.starts.push(at);
            self.classes.begin();
        }
        self.give_up_last();
        self.end = end;
        Ok(())
    }

    fn read_name(
        &mut self,
        source: &mut impl ByteSource,
        entry: &Entry,
    ) -> Result<(), FormatError> {
        self.name.clear();
        for range in [&entry.prefix, &entry.name] {
            let length = (range.end - range.start) as usize;
            let part = source.bytes(range.start, length)?;
            self.name.extend_from_slice(part);
            if range == &entry.prefix && length > 0 {
                self.name.push(b'/');
            }
        }
        Ok(())
    }

    /// Ends the last sample at `end`, the start of the next one.
    fn close_sample(&mut self, end: u64) -> Result<(), FormatError> {
        if let Some(last) = self.starts.last() {
            self.longest = self.longest.max(end - last);
            let has_class = match self.classes.end_sample(&self.sample) {
                Err(_) if self.tolerant => {
                    self.give_up_last();
                    true
                }
                ended => ended?,
            };
            self.tallies.unlabelled += u64::from(!has_class);
        }
        Ok(())
    }

    fn read_class(
        &mut self,
        source: &mut impl ByteSource,
        entry: &Entry,
        length: u64,
    ) -> Result<(), FormatError> {
        let bytes = source.bytes(entry.data, length as usize)?;
        self.classes.read(bytes, entry, &self.name, &self.sample)
    }

    fn finish(mut self) -> Result<Located, FormatError> {
        self.close_sample(self.end)?;
        let first = self.starts.len();
        let classes = self.classes.finish();
        let starts = self.starts.finish(self.end);
        debug_assert_eq!(first, starts.len());
        let begin = starts.walk(0).next().unwrap_or(0);
        Ok(Located {
            first_bad: self.first_bad,
            nonzeros: self.end - begin,
            starts,
            end: self.end,
            labels: classes.labels,
            names: classes.names,
            codes: classes.codes,
            index_end: 0,
            longest: self.longest,
            tallies: self.tallies.words(),
        })
    }
}
