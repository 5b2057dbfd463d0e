//! A scan over records that are Examples: their classes, and the counts of values of their features.
//!
//! A record that it cannot parse is reported as bad when it is read, not here. A record with a new label or a new count
//! of values counts only if its checksum fits: damage adds no classes, and does not make lengths vary.

use crate::locate::scanned::Scanned;
use std::io;
use std::ops::Range;

use crate::locate::places::byte_source::ByteSource;
use crate::locate::places::located::words_of;
use crate::record::error::excerpt;
use crate::record::labels::classes_so_far::ClassesSoFar;
use crate::samples::framed::example::{Broken, Class, Feature, Features, Kind, class_of, measure};
use crate::samples::framed::example_fields::ExampleFields;

/// Records up to this many bytes are read whole, which is faster than hopping.
const WHOLE: u64 = 16 << 10;

/// The state after the records so far.
pub(crate) struct ExampleScan {
    fields: ExampleFields,
    classes: ClassesSoFar,
    /// Values of each feature, and their bytes.
    totals: Vec<(u64, u64)>,
    records: u64,
    /// Records with a feature that the first one lacks, and the name of the first such feature.
    with_more: u64,
    more: String,
    met: Vec<Met>,
    name: String,
}

/// A feature of the current record.
struct Met {
    feature: usize,
    kind: Option<Kind>,
    values: u64,
    bytes: u64,
}

/// Other contents of the current record.
struct Rest {
    has_more: bool,
    label: Label,
}

#[derive(Clone, Copy, PartialEq)]
enum Label {
    None,
    Number(f64),
    /// The range of its name in the buffer for names.
    Name,
}

impl ExampleScan {
    /// A scan over records, with the fields of the first.
    pub(crate) fn new(fields: ExampleFields) -> ExampleScan {
        ExampleScan {
            totals: vec![(0, 0); fields.known.len()],
            fields,
            classes: ClassesSoFar::default(),
            records: 0,
            with_more: 0,
            more: String::new(),
            met: Vec::new(),
            name: String::new(),
        }
    }

    /// How many classes there are.
    pub(crate) fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Scans the next record; `is_sound` says whether its checksum fits.
    pub(crate) fn add<S: ByteSource>(
        &mut self,
        source: &mut S,
        example: Range<u64>,
        is_sound: impl FnOnce(&mut S) -> io::Result<bool>,
    ) -> io::Result<()> {
        self.records += 1;
        let length = example.end - example.start;
        let looked = if length <= WHOLE {
            self.look_at(
                &mut source.bytes(example.start, length as usize)?,
                0..length,
            )
        } else {
            self.look_at(source, example)
        };
        let rest = match looked {
            Ok(rest) => rest,
            Err(Broken::Failed(error)) => return Err(error),
            Err(Broken::Damaged { .. }) => {
                self.classes.push_none();
                return Ok(());
            }
        };
        if self.is_news(rest.label) && !is_sound(source)? {
            self.classes.push_none();
            return Ok(());
        }
        for met in &self.met {
            let known = &mut self.fields.known[met.feature];
            let (values, bytes) = &mut self.totals[met.feature];
            *values += met.values;
            *bytes += met.bytes;
            known.kind = known.kind.or(met.kind);
            known.count = known.count.and(met.values);
        }
        self.with_more += u64::from(rest.has_more);
        match rest.label {
            Label::Number(value) => self.classes.push_number(value),
            Label::Name => self.classes.push_name(&self.name),
            Label::None => self.classes.push_none(),
        }
        Ok(())
    }

    /// The next record cannot be read.
    pub(crate) fn add_unread(&mut self) {
        self.records += 1;
        self.classes.push_none();
    }

    /// Whether the record adds a label, or changes the kind or count of a feature.
    fn is_news(&self, label: Label) -> bool {
        let is_news = |met: &Met| {
            let known = &self.fields.known[met.feature];
            known.count != known.count.and(met.values) || known.kind.is_none() && met.kind.is_some()
        };
        self.met.iter().any(is_news)
            || match label {
                Label::None => false,
                Label::Number(value) => !self.classes.knows_number(value),
                Label::Name => !self.classes.knows_name(&self.name),
            }
    }

    #[inline]
    fn look_at(
        &mut self,
        source: &mut impl ByteSource,
        example: Range<u64>,
    ) -> Result<Rest, Broken> {
        self.met.clear();
        let mut rest = Rest {
            has_more: false,
            label: Label::None,
        };
        let mut walk = Features::new(example);
        let mut place = 0;
        while let Some(Feature { name, kind, list }) = walk.next(source)? {
            let name = source.bytes(name.start, (name.end - name.start) as usize)?;
            let found = self.fields.find(place, name);
            place += 1;
            let Some(feature) = found else {
                if self.with_more == 0 && !rest.has_more {
                    self.more = excerpt(name);
                }
                rest.has_more = true;
                continue;
            };
            let (values, bytes) = match kind {
                Some(kind) => measure(source, kind, &list)?,
                None => (0, 0),
            };
            // An empty list has no kind.
            let kind = kind.filter(|_| values > 0);
            let known = self.fields.known[feature].kind;
            if kind.is_some() && known.is_some() && kind != known {
                return Err(Broken::Damaged {
                    at: list.start,
                    what: "a feature is of another kind",
                });
            }
            if let (true, Some(kind)) = (self.fields.is_label(feature), kind) {
                rest.label = self.label(source, kind, &list)?;
                continue;
            }
            self.met.push(Met {
                feature,
                kind,
                values,
                bytes,
            });
        }
        Ok(rest)
    }

    fn label(
        &mut self,
        source: &mut impl ByteSource,
        kind: Kind,
        list: &Range<u64>,
    ) -> Result<Label, Broken> {
        Ok(match class_of(source, kind, list)? {
            Some(Class::Number(value)) => Label::Number(value),
            Some(Class::Name(name)) => {
                self.name.clear();
                self.name.push_str(name);
                Label::Name
            }
            None => Label::None,
        })
    }

    /// The result of the scan.
    pub(crate) fn finish(self) -> Scanned {
        let fields = self.fields.described();
        let (labels, names, codes) = self.classes.finish();
        let first = [vec![self.with_more], words_of(&self.more)].concat();
        Scanned {
            labels,
            names,
            codes,
            row_bytes: fields.row_bytes(self.records, &self.totals),
            tallies: first.into_iter().chain(fields.words()).collect(),
        }
    }
}
