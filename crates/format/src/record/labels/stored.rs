//! The meaning of a file's labels in the data set.

use std::collections::HashMap;
use std::sync::Arc;

use crate::record::cells::decimal::cell_text;
use crate::record::cells::words::is_missing_label;
use crate::record::error::{Fault, excerpt};
use crate::record::labels::codes::{Codes, NO_CLASS};
use crate::record::labels::label_cell::{numeric_label, target};
use crate::record::labels::{Classes, FileLabels};

/// The label that a record states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Label<'a> {
    /// No label: the record has the first class.
    None,
    /// Not in the record: a list outside the records has it.
    Listed,
    /// A number, as people write labels.
    Number(f64),
    /// A position in the file's list of labels.
    Code(u32),
    /// A cell of text as written, in a column (from 0), and whether numbers have decimal commas.
    Cell(&'a [u8], usize, bool),
}

/// How the records of a file state their labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelForm {
    /// As indices into the file's list of labels, within or outside the records, or as numbers.
    Codes,
    /// As numbers alone.
    Numbers,
    /// As cells of text, with numbers or names.
    Cells,
}

/// The meaning of one file's labels.
#[derive(Clone, Debug)]
pub(crate) struct StoredLabels {
    classes: Classes,
    /// Of the indices into the file's labels.
    stored: StoredClasses,
    /// The codes of records with labels listed outside of them.
    pub(crate) codes: Codes,
    cells: Cells,
}

/// The meaning of cells of text.
#[derive(Clone, Debug)]
enum Cells {
    Numbers,
    /// The code that each name has.
    Names(Arc<HashMap<String, u32>>),
    /// Ignored: any content counts as the first class.
    Unread,
    /// Real targets.
    Targets,
}

impl StoredLabels {
    /// For a file with records that state `labels` in this form, with the names `names` if they have names; cells are
    /// names if `named`.
    pub(crate) fn new(
        labels: FileLabels,
        names: Vec<String>,
        codes: Codes,
        (form, named): (LabelForm, bool),
        classes: &Classes,
    ) -> StoredLabels {
        let (has_codes, cells) = match form {
            LabelForm::Codes => (true, Cells::Unread),
            LabelForm::Numbers => (false, Cells::Unread),
            LabelForm::Cells if classes.any => (false, Cells::Unread),
            LabelForm::Cells if classes.targets => (false, Cells::Targets),
            LabelForm::Cells if named => {
                let codes = (0..).zip(&names).map(|(code, name)| (name.clone(), code));
                (true, Cells::Names(Arc::new(codes.collect())))
            }
            LabelForm::Cells => (false, Cells::Numbers),
        };
        let labels = if has_codes { labels } else { FileLabels::None };
        StoredLabels {
            stored: StoredClasses::new(labels, names, classes),
            classes: classes.clone(),
            codes,
            cells,
        }
    }

    /// For a copy with records that hold the classes of the data set, or targets.
    pub(crate) fn of_copy(&self, classes: usize) -> StoredLabels {
        // A target is any bits but those of no class, which are not a number.
        let classes = if self.classes.targets {
            usize::MAX
        } else {
            classes
        };
        StoredLabels {
            stored: StoredClasses::Same(classes),
            codes: Codes::One,
            classes: Classes {
                centre: 0.0,
                ..self.classes.clone()
            },
            ..self.clone()
        }
    }

    /// The same with `centre` subtracted from targets.
    pub(crate) fn centred(&self, centre: f64) -> StoredLabels {
        let mut centred = self.clone();
        centred.classes.centre += centre;
        centred
    }

    /// The class of record `record`, which states `label`.
    #[inline]
    pub(crate) fn class(&self, record: u64, label: Label<'_>) -> Result<u32, Fault> {
        match label {
            Label::Number(value) => self.class_of(value),
            Label::Code(bits) if self.classes.centre != 0.0 => {
                self.class_of(f64::from(f32::from_bits(self.stored.class(bits)?)))
            }
            Label::Code(code) => self.stored.class(code),
            Label::Listed => self.listed(record),
            Label::None if self.classes.targets && !self.classes.any => Err(Fault::NO_TARGET),
            Label::None => Ok(0),
            Label::Cell(cell, column, decimal_comma) => {
                self.class_of_cell(cell, column, decimal_comma)
            }
        }
    }

    /// The class in the list outside the records.
    #[inline]
    pub(crate) fn listed(&self, record: u64) -> Result<u32, Fault> {
        self.stored.class(self.codes.get(record))
    }

    #[inline]
    fn class_of(&self, value: f64) -> Result<u32, Fault> {
        let class = self.classes.class_of(value);
        class.ok_or_else(|| {
            if self.classes.targets {
                Fault::large_target(value)
            } else {
                Fault::unknown_label(value)
            }
        })
    }

    #[inline]
    fn class_of_cell(&self, cell: &[u8], column: usize, decimal_comma: bool) -> Result<u32, Fault> {
        if let Cells::Unread = self.cells {
            return Ok(0);
        }
        let cell = &*cell_text(cell, decimal_comma, column)?;
        let codes = match &self.cells {
            Cells::Unread => return Ok(0),
            Cells::Targets => return self.class_of(target(cell, column)?),
            Cells::Numbers => return self.class_of(numeric_label(cell, column)?),
            Cells::Names(codes) => codes,
        };
        let name = std::str::from_utf8(cell).ok();
        match name.and_then(|name| codes.get(name)) {
            Some(code) => self.stored.class(*code),
            None if is_missing_label(cell) => Err(Fault::missing_label(column as u64 + 1)),
            None => Err(Fault::unknown_class(&excerpt(cell))),
        }
    }
}

/// The classes of codes, indices into the list of labels of a file.
#[derive(Clone, Debug)]
enum StoredClasses {
    /// The same as in the data set, which has this many.
    Same(usize),
    Listed {
        labels: Arc<[f64]>,
        names: Arc<[String]>,
        classes: Arc<[Option<u32>]>,
    },
}

impl StoredClasses {
    fn new(labels: FileLabels, names: Vec<String>, classes: &Classes) -> StoredClasses {
        let known = classes.labels.len();
        let labels = match labels {
            FileLabels::Count(count) if classes.are_counted() && count <= known => {
                return StoredClasses::Same(count);
            }
            labels => labels,
        };
        let mut found = (0..).zip(labels.iter());
        if found.all(|(class, label)| classes.class_of(label) == Some(class)) {
            return StoredClasses::Same(labels.iter().count());
        }
        StoredClasses::Listed {
            names: names.into(),
            classes: labels.iter().map(|label| classes.class_of(label)).collect(),
            labels: labels.iter().collect(),
        }
    }

    #[inline]
    fn class(&self, stored: u32) -> Result<u32, Fault> {
        const UNLISTED: Fault =
            Fault::fixed("its label is not in the file's list; the file is damaged: pack it again");
        match self {
            _ if stored == NO_CLASS => Err(Fault::NO_CLASS),
            StoredClasses::Same(count) if (stored as usize) < *count => Ok(stored),
            StoredClasses::Same(_) => Err(UNLISTED),
            StoredClasses::Listed {
                labels,
                names,
                classes,
            } => match classes.get(stored as usize) {
                Some(Some(class)) => Ok(*class),
                Some(None) => Err(match names.get(stored as usize) {
                    Some(name) => Fault::unknown_class(name),
                    None => Fault::unknown_label(labels[stored as usize]),
                }),
                None => Err(UNLISTED),
            },
        }
    }
}
