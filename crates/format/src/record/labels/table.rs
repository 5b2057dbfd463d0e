//! A table with the class of each image of a folder: CSV or TSV with one row an image.
//!
//! The first line names the columns. A row belongs to a file if its name is the file's path below the folder or its
//! file name, with or without the extension. Cells may be quoted, with `""` for a quote.

use std::collections::HashMap;
use std::path::Path;

use crate::record::cells::heading::{Heading, cells, may_delimit};
use crate::record::cells::label_column::LabelColumn;
use crate::record::cells::quoted::{never_closes, records};
use crate::record::error::{FormatError, excerpt};

/// Larger files are refused.
const MOST_BYTES: u64 = 4 << 30;

/// Classes by name of image.
pub(crate) struct LabelTable {
    classes: HashMap<Vec<u8>, u32>,
    used: Vec<bool>,
    row_of: HashMap<Vec<u8>, usize>,
    /// Names of the classes, ascending.
    pub(crate) names: Vec<String>,
}

impl LabelTable {
    /// Reads a table with the names of images in column `file` and their classes in column `label`.
    pub(crate) fn read(
        path: &Path,
        file: &LabelColumn,
        label: &LabelColumn,
    ) -> Result<LabelTable, FormatError> {
        let status = pelton_storage::regular_file(path)?;
        if status.len() > MOST_BYTES {
            let what = "it is larger than 4 GiB; check that it is the table";
            return Err(FormatError::new(what).in_file(path));
        }
        let bytes =
            pelton_storage::read_file(path).map_err(|e| FormatError::io(path, "read it", e))?;
        LabelTable::parse(&bytes, file, label).map_err(|error| error.in_file(path))
    }

    /// Parses the table in these bytes.
    pub(crate) fn parse(
        bytes: &[u8],
        file: &LabelColumn,
        label: &LabelColumn,
    ) -> Result<LabelTable, FormatError> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let first = records(bytes, may_delimit).next();
        let first = first.ok_or_else(FormatError::empty)?;
        let (_, first) = first.map_err(never_closes)?;
        let delimiter = if first.contains(&b'\t') { b'\t' } else { b',' };
        let heading = Heading::read(first, delimiter, false);
        let file = heading.label(file, true)?;
        let label = heading.label(label, true)?;
        if file == label {
            let what = format!(
                "column {} cannot name both the image and its class; name two with `file_column` and `label`",
                file + 1
            );
            return Err(FormatError::new(what).at_line(1));
        }
        let mut rows: Vec<(Vec<u8>, String)> = Vec::new();
        for record in records(bytes, |byte| byte == delimiter).skip(1) {
            let (number, record) = record.map_err(never_closes)?;
            let cells = cells(record, delimiter, false);
            let (Some(file), Some(label)) = (cells.get(file), cells.get(label)) else {
                let what = format!(
                    "it has {} columns, but the heading has {}; make all lines alike",
                    cells.len(),
                    heading.columns
                );
                return Err(FormatError::new(what).at_line(number));
            };
            if file.is_empty() || label.is_empty() {
                let what =
                    "the name of the image or its class is empty; fill it in or remove the line";
                return Err(FormatError::new(what).at_line(number));
            }
            rows.push((file.to_vec(), String::from_utf8_lossy(label).into_owned()));
        }
        LabelTable::new(rows).map_err(|name| {
            FormatError::new(format!(
                "the image {:?} has rows with different classes; keep one of them",
                excerpt(&name)
            ))
        })
    }

    fn new(rows: Vec<(Vec<u8>, String)>) -> Result<LabelTable, Vec<u8>> {
        let mut names: Vec<String> = rows.iter().map(|(_, class)| class.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let mut table = LabelTable {
            classes: HashMap::with_capacity(rows.len()),
            used: Vec::new(),
            row_of: HashMap::with_capacity(rows.len()),
            names,
        };
        for (file, class) in rows {
            let class = table.names.binary_search(&class).unwrap_or(0) as u32;
            match table.classes.insert(file.clone(), class) {
                None => {
                    table.row_of.insert(file, table.used.len());
                    table.used.push(false);
                }
                Some(before) if before == class => {}
                Some(_) => return Err(file),
            }
        }
        Ok(table)
    }

    /// The class of the image at `path` below its folder.
    pub(crate) fn class_of(&mut self, path: &[u8]) -> Option<u32> {
        let slash = memchr::memrchr(b'/', path).map_or(0, |slash| slash + 1);
        let dot = memchr::memrchr(b'.', path).filter(|dot| *dot > slash);
        let stem = dot.unwrap_or(path.len());
        for name in [path, &path[..stem], &path[slash..], &path[slash..stem]] {
            if let Some(&class) = self.classes.get(name) {
                self.used[self.row_of[name]] = true;
                return Some(class);
            }
        }
        None
    }

    /// Rows that matched no image so far.
    pub(crate) fn unused(&self) -> usize {
        self.used.iter().filter(|used| !**used).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        let row = |file: &str, class: &str| (file.as_bytes().to_vec(), class.to_string());
        let rows = vec![
            row("a/1.jpg", "x"),
            row("2", "y"),
            row("3.jpg", "x"),
            row("9", "z"),
        ];
        let mut table = LabelTable::new(rows).ok().unwrap();
        assert_eq!(table.names, ["x", "y", "z"]);
        assert_eq!(table.class_of(b"a/1.jpg"), Some(0));
        assert_eq!(table.class_of(b"b/2.jpg"), Some(1));
        assert_eq!(table.class_of(b"b/3.jpg"), Some(0));
        assert_eq!(table.class_of(b"b/4.jpg"), None);
        assert_eq!(table.unused(), 1);
        let twice = vec![row("1", "x"), row("1", "y")];
        assert_eq!(LabelTable::new(twice).err(), Some(b"1".to_vec()));
    }
}
