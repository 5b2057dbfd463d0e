//! The messages of Arrow's files and streams.

use std::collections::VecDeque;

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Endianness, MessageHeader, root_as_footer, root_as_message};
use arrow_schema::SchemaRef;

use crate::columns::buffers::Span;
use crate::columns::table::{TableFile, Wrong, guarded};

/// First and last bytes of a file.
pub(crate) const MAGIC: &[u8; 6] = b"ARROW1";
/// Starts a message; older messages start with their length.
const CONTINUATION: u32 = u32::MAX;
/// Bytes of a message to read first: most have at most this before their body.
const READ_AHEAD: u64 = 4096;
/// Longest description of a batch.
const MOST_MESSAGE_BYTES: u64 = 256 << 20;

/// A message in the file.
pub(super) struct Message {
    pub(super) description: Vec<u8>,
    pub(super) body: Span,
}

/// Names of columns that have dictionaries, with the id of each.
pub(super) type Dictionaries = Vec<(Vec<String>, i64)>;

/// Iterates over the messages of a stream from its start, or over those that the footer of a file lists. A file
/// begins with its schema too, but some writers (polars from 1.44 on) omit the length before it, and only the footer
/// has it.
#[derive(Clone)]
pub(super) struct Messages {
    pub(super) file: TableFile,
    /// Offset of the next message of a stream.
    at: u64,
    /// For a file, its footer.
    footer: Option<Footer>,
}

#[derive(Clone)]
struct Footer {
    schema: SchemaRef,
    ids: Dictionaries,
    /// Offsets of messages still to come: dictionaries, then batches.
    blocks: VecDeque<Listed>,
}

/// A message listed by the footer: its offset, the length of its description with its prefix, and of its body.
type Listed = (u64, u64, u64);

impl Messages {
    pub(super) fn new(file: TableFile) -> Result<Messages, Wrong> {
        let head = file.read(&[(0, file.size.min(8))])?.remove(0);
        let footer = if head.starts_with(MAGIC) {
            Some(Footer::read(&file)?)
        } else {
            None
        };
        Ok(Messages {
            file,
            at: 0,
            footer,
        })
    }

    pub(super) fn next(&mut self) -> Result<Option<Message>, Wrong> {
        match &mut self.footer {
            Some(footer) => {
                let block = footer.blocks.pop_front();
                block.map(|block| listed(&self.file, block)).transpose()
            }
            None => self.next_of_stream(),
        }
    }

    fn next_of_stream(&mut self) -> Result<Option<Message>, Wrong> {
        let left = self.file.size - self.at;
        if left == 0 {
            return Ok(None);
        }
        let cut = |at: u64| Wrong::Damaged(format!("it is cut off in the message at byte {at}"));
        let read =
            |at: u64, length: u64| Ok::<_, Wrong>(self.file.read(&[(at, length)])?.remove(0));
        let begin = read(self.at, left.min(READ_AHEAD))?;
        let word = |i: usize| {
            let word = begin.get(4 * i..4 * i + 4)?.try_into().expect("four bytes");
            Some(u32::from_le_bytes(word))
        };
        let (length, skip) = match word(0) {
            Some(CONTINUATION) => (word(1), 8),
            other => (other, 4),
        };
        let length = u64::from(length.ok_or_else(|| cut(self.at))?);
        if length == 0 {
            return Ok(None);
        }
        if length > MOST_MESSAGE_BYTES || length > left - skip {
            return Err(cut(self.at));
        }
        let (from, to) = (skip as usize, (skip + length) as usize);
        let description = match begin.get(from..to) {
            Some(there) => there.to_vec(),
            None => read(self.at + skip, length)?,
        };
        let root = guarded(|| {
            let root = root_as_message(&description);
            root.map_err(|_| no_message(&format!("the message at byte {}", self.at)))
        })?;
        let body = u64::try_from(root.bodyLength()).ok();
        let offset = self.at + skip + length;
        let end = body.and_then(|body| offset.checked_add(body));
        let Some(end) = end.filter(|end| *end <= self.file.size) else {
            return Err(cut(self.at));
        };
        self.at = end;
        Ok(Some(Message {
            description,
            body: Span {
                offset,
                length: end - offset,
            },
        }))
    }

    /// The schema, and the dictionary ids of the columns that have one.
    pub(super) fn schema(&mut self) -> Result<(SchemaRef, Dictionaries), Wrong> {
        if let Some(footer) = &self.footer {
            return Ok((SchemaRef::clone(&footer.schema), footer.ids.clone()));
        }
        let what = || no_message("its schema");
        let message = self.next()?.ok_or_else(what)?;
        guarded(|| {
            let root = root_as_message(&message.description).map_err(|_| what())?;
            schema_of(root.header_as_schema().ok_or_else(what)?)
        })
    }
}

impl Footer {
    /// It precedes its length and the last word of the file.
    fn read(file: &TableFile) -> Result<Footer, Wrong> {
        const TAIL: u64 = 4 + MAGIC.len() as u64;
        let at = file.size.saturating_sub(TAIL);
        let tail = file.read(&[(at, file.size - at)])?.remove(0);
        let length = tail.split_first_chunk::<4>();
        let Some((length, MAGIC)) =
            length.and_then(|(length, end)| Some((length, end.first_chunk()?)))
        else {
            return Err(Wrong::Damaged(
                "its end is not that of an Arrow file".into(),
            ));
        };
        let length = u64::from(u32::from_le_bytes(*length));
        let what = || no_message("its footer");
        if length > MOST_MESSAGE_BYTES || length > at {
            return Err(what());
        }
        let bytes = file.read(&[(at - length, length)])?.remove(0);
        guarded(|| {
            let root = root_as_footer(&bytes).map_err(|_| what())?;
            let (schema, ids) = schema_of(root.schema().ok_or_else(what)?)?;
            let dictionaries = root.dictionaries().into_iter().flatten();
            let batches = root.recordBatches().into_iter().flatten();
            let block = |block: &arrow_ipc::Block| {
                let offset = u64::try_from(block.offset()).ok()?;
                let description = u64::try_from(block.metaDataLength()).ok()?;
                Some((offset, description, u64::try_from(block.bodyLength()).ok()?))
            };
            let blocks: Option<VecDeque<Listed>> = dictionaries.chain(batches).map(block).collect();
            Ok(Footer {
                schema,
                ids,
                blocks: blocks.ok_or_else(what)?,
            })
        })
    }
}

/// A message that a footer lists.
fn listed(file: &TableFile, (offset, length, body): Listed) -> Result<Message, Wrong> {
    let what = || no_message(&format!("the message at byte {offset}"));
    let start = offset.checked_add(length).ok_or_else(what)?;
    let end = start.checked_add(body).filter(|end| *end <= file.size);
    if length > MOST_MESSAGE_BYTES || end.is_none() {
        return Err(what());
    }
    let bytes = file.read(&[(offset, length)])?.remove(0);
    // Its length may precede it, after a marker or without.
    let description = guarded(|| {
        let skips: &[usize] = if bytes.starts_with(&CONTINUATION.to_le_bytes()) {
            &[8]
        } else {
            &[4, 0]
        };
        let mut parts = skips.iter().filter_map(|skip| bytes.get(*skip..));
        let part = parts.find(|part| root_as_message(part).is_ok());
        part.map(<[u8]>::to_vec).ok_or_else(what)
    })?;
    Ok(Message {
        description,
        body: Span {
            offset: start,
            length: body,
        },
    })
}

fn schema_of(stored: arrow_ipc::Schema<'_>) -> Result<(SchemaRef, Dictionaries), Wrong> {
    if stored.endianness() != Endianness::Little {
        let what = "its numbers are big-endian; write it on a common machine";
        return Err(Wrong::Damaged(what.into()));
    }
    let schema = try_fb_to_schema(stored)
        .map_err(|error| Wrong::Damaged(format!("its schema does not hold together ({error})")))?;
    let mut ids = Vec::new();
    for field in stored.fields().into_iter().flatten() {
        add_ids(field, &[], &mut ids);
    }
    Ok((schema.into(), ids))
}

fn add_ids(field: arrow_ipc::Field<'_>, outer: &[String], ids: &mut Vec<(Vec<String>, i64)>) {
    let name = field.name().unwrap_or_default().to_owned();
    let path = [outer, &[name]].concat();
    if let Some(dictionary) = field.dictionary() {
        ids.push((path.clone(), dictionary.id()));
    }
    for child in field.children().into_iter().flatten() {
        add_ids(child, &path, ids);
    }
}

/// Whether these are the first bytes of a stream that begins with a schema.
pub(crate) fn begins_stream(head: &[u8]) -> bool {
    let Some((prefix, rest)) = head.split_first_chunk::<8>() else {
        return false;
    };
    let length = u32::from_le_bytes(prefix[4..].try_into().expect("four bytes")) as usize;
    prefix[..4] == CONTINUATION.to_le_bytes()
        && length > 0
        && rest
            .get(..length)
            .and_then(|message| root_as_message(message).ok())
            .is_some_and(|message| message.header_type() == MessageHeader::Schema)
}

pub(super) fn no_message(what: &str) -> Wrong {
    Wrong::Damaged(format!("{what} does not hold together"))
}
