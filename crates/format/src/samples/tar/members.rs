//! The members of one sample of a tar file, without copying.

use std::borrow::Cow;

use crate::locate::tar::walk::{Entry, Step, step};

/// One member of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The part of the file name after its first dot, such as `jpg` or `seg.png`; empty if it has none.
    pub extension: &'a [u8],
    /// Name of the file without its folders.
    pub file_name: &'a [u8],
    /// The bytes of the file.
    pub bytes: &'a [u8],
}

impl<'a> Member<'a> {
    /// The name of its sample: the file name without folders and extension.
    pub fn key(&self) -> &'a [u8] {
        match self.extension {
            [] => self.file_name,
            extension => &self.file_name[..self.file_name.len() - extension.len() - 1],
        }
    }

    /// Whether the extension is `extension`, in upper or lower case.
    pub fn is(&self, extension: &str) -> bool {
        self.extension.eq_ignore_ascii_case(extension.as_bytes())
    }

    /// The extension as text, with marks for bytes that are not UTF-8.
    pub fn extension_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.extension)
    }
}

/// Splits a row of a data set that holds [`Contents::Members`](crate::Contents::Members) into its members, without
/// copying. Entries that are not regular files, or have a name that starts with a dot, are skipped; iteration ends
/// early in a damaged group, which a decoded row never is.
pub fn members(group: &[u8]) -> Members<'_> {
    Members { group, at: 0 }
}

/// Iterator over the members of a sample.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    group: &'a [u8],
    at: u64,
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        loop {
            let Ok(Step::Entry(entry)) = step(&mut &*self.group, self.at) else {
                self.at = self.group.len() as u64;
                return None;
            };
            self.at = entry.end;
            if let Some(member) = member_of(self.group, &entry) {
                return Some(member);
            }
        }
    }
}

fn member_of<'a>(group: &'a [u8], entry: &Entry) -> Option<Member<'a>> {
    let name = &group[entry.name.start as usize..entry.name.end as usize];
    let parts = NameParts::new(name)?;
    entry.is_file().then(|| Member {
        extension: parts.extension,
        file_name: &name[parts.folder.len()..],
        bytes: &group[entry.data as usize..][..entry.size as usize],
    })
}

/// A name split as WebDataset does: folder and stem identify the sample, the extension the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameParts<'a> {
    /// Including the slash at its end.
    pub(crate) folder: &'a [u8],
    pub(crate) stem: &'a [u8],
    pub(crate) extension: &'a [u8],
}

impl<'a> NameParts<'a> {
    /// `None` if the file name is empty or starts with a dot.
    pub(crate) fn new(name: &'a [u8]) -> Option<NameParts<'a>> {
        let slash = memchr::memrchr(b'/', name).map_or(0, |slash| slash + 1);
        let (folder, file) = name.split_at(slash);
        let dot = memchr::memchr(b'.', file).unwrap_or(file.len());
        if dot == 0 {
            return None;
        }
        Some(NameParts {
            folder,
            stem: &file[..dot],
            extension: file.get(dot + 1..).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, folder: &str, stem: &str, extension: &str) {
        let parts = NameParts::new(name.as_bytes()).unwrap();
        assert_eq!(parts.folder, folder.as_bytes());
        assert_eq!(parts.stem, stem.as_bytes());
        assert_eq!(parts.extension, extension.as_bytes());
    }

    #[test]
    fn names() {
        check("a/b.c/0001.seg.png", "a/b.c/", "0001", "seg.png");
        check("0001", "", "0001", "");
        check("a.", "", "a", "");
        for name in ["", ".DS_Store", "a/._0001.jpg", "folder/"] {
            assert_eq!(NameParts::new(name.as_bytes()), None);
        }
    }
}
