//! A vocabulary as a file: lines that people can read, with a checksum.
//!
//! ```text
//! pelton-vocabulary 1
//! tokenizer whitespace
//! tokens 6
//! 0 <pad>
//! 2 <unk>
//! 0 <bos>
//! 0 <eos>
//! 7 the
//! 3 cat
//! crc32c 0a1b2c3d
//! ```
//!
//! A line has a count and a token; its index among these lines is the token's id. Words contain no white space, so
//! lines are unambiguous for any bytes. If tokens are bytes, there are no such lines. The checksum covers everything
//! before its line. A file is valid only exactly as it would be written, so the same vocabulary is always the same
//! file.

use std::cmp::Reverse;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use pelton_storage::{StorageError, WholeFile};

use crate::error::TextError;
use crate::tokenizer::Tokenizer;
use crate::vocabulary::{Special, Vocabulary, VocabularyOptions, with_specials};
use crate::white_space::is_white_space;

/// Starts the first line, which ends with the version.
const HEAD: &str = "pelton-vocabulary ";
/// The version that is written and read.
const VERSION: u32 = 1;
/// Most bytes of a file: offsets of words in memory have 32 bits.
const MOST_BYTES: u64 = u32::MAX as u64;
/// Bytes of the last line.
const LAST_LINE: usize = "crc32c 00000000\n".len();
/// Fewest bytes of a line with a token.
const LEAST_LINE: usize = "1 a\n".len();

impl Vocabulary {
    /// Writes a file, whole or not at all: under a temporary name in the same folder, then renamed.
    ///
    /// Errors: the path cannot be written, or the vocabulary is larger than can be loaded.
    pub fn save(&self, path: &Path) -> Result<(), TextError> {
        let file = WholeFile::create(path).map_err(|error| io_error(path, "write it", error))?;
        self.save_in(file)
    }

    /// The same into a file opened earlier.
    pub fn save_in(&self, mut file: WholeFile) -> Result<(), TextError> {
        let bytes = self.to_file();
        let (path, size) = (file.path().to_path_buf(), bytes.len() as u64);
        if size > MOST_BYTES {
            return Err(too_large(&path, size));
        }
        let written = file.write_all(&bytes).and_then(|()| file.publish());
        written.map_err(|error| io_error(&path, "write it", error))
    }

    /// Reads a file that [`Vocabulary::save`] wrote.
    ///
    /// Errors: the file cannot be read, is of another kind or version, or was changed.
    pub fn load(path: &Path) -> Result<Vocabulary, TextError> {
        let status = fs::metadata(path).map_err(|error| io_error(path, "open it", error))?;
        if !status.is_file() {
            // Opening a pipe would wait for its writer.
            return Err(not_a_vocabulary(path));
        }
        if status.len() > MOST_BYTES {
            return Err(too_large(path, status.len()));
        }
        let mut file =
            pelton_storage::open_file(path).map_err(|error| io_error(path, "open it", error))?;
        let mut bytes = Vec::new();
        let mut read = |most: u64| {
            (&mut file)
                .take(most)
                .read_to_end(&mut bytes)
                .map_err(|error| io_error(path, "read it", error))
        };
        // Reads no more than this of a file of another kind.
        read(HEAD.len() as u64)?;
        read(MOST_BYTES)?;
        Vocabulary::from_file(&bytes, path)
    }

    /// The bytes of its file.
    pub(crate) fn to_file(&self) -> Vec<u8> {
        let mut file = format!(
            "{HEAD}{VERSION}\ntokenizer {}\ntokens {}\n",
            self.tokenizer(),
            self.size()
        )
        .into_bytes();
        for (id, count) in (0..).map_while(|id| self.count(id).map(|count| (id, count))) {
            file.extend_from_slice(count.to_string().as_bytes());
            file.push(b' ');
            file.extend_from_slice(self.token(id).unwrap_or_default());
            file.push(b'\n');
        }
        let checksum = crc32c::crc32c(&file);
        file.extend_from_slice(format!("crc32c {checksum:08x}\n").as_bytes());
        file
    }

    /// A vocabulary from the bytes of its file; `path` is for messages.
    pub(crate) fn from_file(file: &[u8], path: &Path) -> Result<Vocabulary, TextError> {
        let version = version(file).ok_or_else(|| not_a_vocabulary(path))?;
        if version != VERSION.to_string() {
            let found: String = version.chars().take(20).collect();
            return Err(TextError::new(format!(
                "{}: is a vocabulary of version {found}, and this program reads version {VERSION}; update it, or build the vocabulary again",
                path.display()
            )));
        }
        let body = checked_body(file, path)?;
        Lines::new(body)
            .vocabulary()
            .map_err(|wrong| wrong.into_error(path))
    }
}

/// The version in the first line, if the file is a vocabulary.
fn version(file: &[u8]) -> Option<String> {
    let rest = file.strip_prefix(HEAD.as_bytes())?;
    let line = rest.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

/// All but the last line, after verifying its checksum.
fn checked_body<'a>(file: &'a [u8], path: &Path) -> Result<&'a [u8], TextError> {
    let body = &file[..file.len().saturating_sub(LAST_LINE)];
    let stated = std::str::from_utf8(&file[body.len()..])
        .ok()
        .and_then(|line| line.strip_prefix("crc32c ")?.strip_suffix('\n'))
        .filter(|digits| {
            digits
                .bytes()
                .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        })
        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let Some(stated) = stated else {
        let lines = file.iter().filter(|byte| **byte == b'\n').count() as u64;
        let within = u64::from(file.last() != Some(&b'\n'));
        let wrong = Wrong {
            line: lines + within,
            what: "the last line is not a checksum; the file was cut or changed",
        };
        return Err(wrong.into_error(path));
    };
    match crc32c::crc32c(body) {
        found if found == stated => Ok(body),
        found => Err(TextError::new(format!(
            "{}: its checksum is {found:08x}, but its last line says {stated:08x}; it was changed or cut: fetch it again or build it again",
            path.display()
        ))),
    }
}

/// An invalid line.
struct Wrong {
    line: u64,
    what: &'static str,
}

impl Wrong {
    fn into_error(self, path: &Path) -> TextError {
        let Wrong { line, what } = self;
        TextError::new(format!(
            "{}: line {line}: {what}; build the vocabulary again",
            path.display()
        ))
    }
}

/// The lines of a file one after another.
struct Lines<'a> {
    rest: &'a [u8],
    line: u64,
}

impl<'a> Lines<'a> {
    fn new(body: &'a [u8]) -> Lines<'a> {
        Lines {
            rest: body,
            line: 0,
        }
    }

    fn next(&mut self) -> Result<&'a [u8], Wrong> {
        self.line += 1;
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or(self.wrong("the file ends early"))?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(line)
    }

    fn wrong(&self, what: &'static str) -> Wrong {
        Wrong {
            line: self.line,
            what,
        }
    }

    fn vocabulary(mut self) -> Result<Vocabulary, Wrong> {
        self.next()?;
        let tokenizer = match self.next()? {
            b"tokenizer whitespace" => Tokenizer::Whitespace,
            b"tokenizer bytes" => Tokenizer::Bytes,
            _ => return Err(self.wrong("expected `tokenizer whitespace` or `tokenizer bytes`")),
        };
        let tokens = self.next()?.strip_prefix(b"tokens ").and_then(number);
        let tokens = tokens.ok_or(self.wrong("expected `tokens` and their number"))?;
        let vocabulary = match tokenizer {
            Tokenizer::Whitespace => self.words(tokens)?,
            Tokenizer::Bytes => {
                if tokens != u64::from(Special::COUNT) + 256 {
                    return Err(self.wrong("bytes are 260 tokens"));
                }
                let options = VocabularyOptions {
                    tokenizer,
                    ..VocabularyOptions::default()
                };
                let no_text: [&[u8]; 0] = [];
                Vocabulary::from_sentences(no_text, &options)
                    .map_err(|_| self.wrong("bytes are not tokens here"))?
            }
        };
        if !self.rest.is_empty() {
            self.line += 1;
            return Err(self.wrong("there are more tokens than line 3 says"));
        }
        Ok(vocabulary)
    }

    fn words(&mut self, tokens: u64) -> Result<Vocabulary, Wrong> {
        let most = (self.rest.len() / LEAST_LINE) as u64;
        if tokens < u64::from(Special::COUNT) || tokens > most {
            return Err(self.wrong("the file has not as many lines of tokens"));
        }
        let words = with_specials(tokens as usize, self.rest.len());
        let mut words = words.map_err(|_| self.wrong("there are too many tokens"))?;
        let mut counts = Vec::with_capacity(tokens as usize);
        for special in Special::ALL {
            let (count, word) = self.token()?;
            if word != special.spelling().as_bytes() {
                return Err(self.wrong("expected a special token: <pad>, <unk>, <bos>, <eos>"));
            }
            counts.push(count);
        }
        let mut last = None;
        for _ in u64::from(Special::COUNT)..tokens {
            let (count, word) = self.token()?;
            let place = (Reverse(count), word);
            if count == 0 || last.is_some_and(|last| last >= place) {
                return Err(self.wrong("words are not in order of their counts and bytes"));
            }
            last = Some(place);
            match words.insert(word) {
                Ok((_, true)) => counts.push(count),
                Ok((_, false)) => return Err(self.wrong("the word has come before")),
                Err(_) => return Err(self.wrong("there are too many tokens")),
            }
        }
        Ok(Vocabulary::from_parts(Tokenizer::Whitespace, words, counts))
    }

    /// The count and the token of a line.
    fn token(&mut self) -> Result<(u64, &'a [u8]), Wrong> {
        let line = self.next()?;
        let parts = line
            .iter()
            .position(|byte| *byte == b' ')
            .map(|blank| (number(&line[..blank]), &line[blank + 1..]));
        match parts {
            Some((Some(count), word))
                if !word.is_empty() && !word.iter().any(|byte| is_white_space(*byte)) =>
            {
                Ok((count, word))
            }
            _ => Err(self.wrong("expected a count, a blank and a token")),
        }
    }
}

/// A number as written: without a sign or leading zeros.
fn number(digits: &[u8]) -> Option<u64> {
    let is_written = digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits.first() != Some(&b'0'));
    let text = std::str::from_utf8(digits).ok()?;
    is_written.then(|| text.parse().ok()).flatten()
}

fn io_error(path: &Path, operation: &str, source: io::Error) -> TextError {
    StorageError::failed(path.display(), operation, source).into()
}

fn not_a_vocabulary(path: &Path) -> TextError {
    TextError::new(format!(
        "{}: is not a vocabulary; name a file that was saved as one, or make one with pelton vocabulary",
        path.display()
    ))
}

fn too_large(path: &Path, size: u64) -> TextError {
    TextError::new(format!(
        "{}: its {size} bytes are more than the {MOST_BYTES} of the largest vocabulary; name another file",
        path.display()
    ))
}
