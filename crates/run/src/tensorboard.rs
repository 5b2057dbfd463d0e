//! TensorBoard event files with scalars: records framed as TFRecord, messages encoded by hand.
//!
//! ```text
//! record  length u64 | masked CRC32C of the length u32 | bytes | masked CRC32C of the bytes u32
//! Event   1 wall_time double | 2 step int64 | 3 file_version string | 5 summary | 7 session_log
//! Summary 1 value { 1 tag string | 2 simple_value float }
//! ```
//!
//! Three message types with five fields take forty lines. Rejected: a protobuf library with generated code. Sources:
//! `tensorflow/core/util/event.proto`, `summary.proto`, `lib/io/record_writer.h`.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes one event file.
#[derive(Debug)]
pub struct EventWriter {
    file: File,
}

impl EventWriter {
    /// Starts an event file in `folder` with first step `step`. TensorBoard then hides steps from there on in earlier
    /// files of the folder, as a resumed run needs.
    pub fn create(folder: &Path, step: u64) -> io::Result<EventWriter> {
        let now = seconds();
        // Microseconds and process id distinguish files of the same second.
        let name = format!(
            "events.out.tfevents.{:.0}.pelton.{}.{}",
            now.floor(),
            std::process::id(),
            (now.fract() * 1e6) as u32
        );
        let file = File::create_new(folder.join(name))?;
        let mut writer = EventWriter { file };
        writer.record(&event(now, 0, |event| {
            bytes_field(event, 3, b"brain.Event:2");
        }))?;
        writer.record(&event(now, step, |event| {
            // SessionLog { status: START }
            bytes_field(event, 7, &[1 << 3, 1]);
        }))?;
        Ok(writer)
    }

    /// Appends the values of some tags at a step.
    pub fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> io::Result<()> {
        let mut summary = Vec::new();
        for (tag, value) in values {
            let mut entry = Vec::new();
            bytes_field(&mut entry, 1, tag.as_bytes());
            entry.push(2 << 3 | FIXED_32);
            entry.extend_from_slice(&(*value as f32).to_le_bytes());
            bytes_field(&mut summary, 1, &entry);
        }
        self.record(&event(seconds(), step, |event| {
            bytes_field(event, 5, &summary);
        }))
    }

    fn record(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = (bytes.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(bytes.len() + 16);
        record.extend_from_slice(&length);
        record.extend_from_slice(&masked_crc(&length).to_le_bytes());
        record.extend_from_slice(bytes);
        record.extend_from_slice(&masked_crc(bytes).to_le_bytes());
        // One write a record, so that a concurrent reader never waits for half of one.
        self.file.write_all(&record)
    }
}

const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const LENGTH: u8 = 2;
const FIXED_32: u8 = 5;

fn seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// A masked checksum: it is stored next to the data it covers, and a checksum over both must not degenerate.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

fn event(wall_time: f64, step: u64, what: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut event = vec![1 << 3 | FIXED_64];
    event.extend_from_slice(&wall_time.to_le_bytes());
    event.push(2 << 3 | VARINT);
    varint(&mut event, step);
    what(&mut event);
    event
}

fn bytes_field(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | LENGTH);
    varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of a message: number and payload; a varint or fixed value as its 8 bytes.
    fn fields(mut message: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut fields = Vec::new();
        while let [key, rest @ ..] = message {
            message = rest;
            let payload = match key & 7 {
                VARINT => take_varint(&mut message).to_le_bytes().to_vec(),
                FIXED_64 => take(&mut message, 8),
                FIXED_32 => take(&mut message, 4),
                LENGTH => {
                    let length = take_varint(&mut message) as usize;
                    take(&mut message, length)
                }
                wire => panic!("wire type {wire}"),
            };
            fields.push((key >> 3, payload));
        }
        fields
    }

    fn take(bytes: &mut &[u8], count: usize) -> Vec<u8> {
        let (taken, rest) = bytes.split_at(count);
        *bytes = rest;
        taken.to_vec()
    }

    fn take_varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = take(bytes, 1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn records(mut file: &[u8]) -> Vec<Vec<(u8, Vec<u8>)>> {
        let mut records = Vec::new();
        while !file.is_empty() {
            let length = take(&mut file, 8);
            assert_eq!(take(&mut file, 4), masked_crc(&length).to_le_bytes());
            let count = u64::from_le_bytes(length.try_into().unwrap());
            let bytes = take(&mut file, count as usize);
            assert_eq!(take(&mut file, 4), masked_crc(&bytes).to_le_bytes());
            records.push(fields(&bytes));
        }
        records
    }

    #[test]
    fn what_is_written_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path(), 4).unwrap();
        let long = "t".repeat(300);
        writer.scalars(300, &[("gap", 1e-3), (&long, 2.5)]).unwrap();
        let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap();
        let records = records(&std::fs::read(path.unwrap().path()).unwrap());
        let [version, session, scalars] = &records[..] else {
            panic!("{} records", records.len());
        };
        assert_eq!(version[2], (3, b"brain.Event:2".to_vec()));
        assert_eq!(session[1], (2, 4u64.to_le_bytes().to_vec()));
        assert_eq!(session[2], (7, vec![8, 1]));
        assert_eq!(scalars[1], (2, 300u64.to_le_bytes().to_vec()));
        let found: Vec<(String, f32)> = fields(&scalars[2].1)
            .into_iter()
            .map(|(number, entry)| {
                assert_eq!(number, 1);
                let entry = fields(&entry);
                let tag = String::from_utf8(entry[0].1.clone()).unwrap();
                (
                    tag,
                    f32::from_le_bytes(entry[1].1.clone().try_into().unwrap()),
                )
            })
            .collect();
        assert_eq!(found, [("gap".to_string(), 1e-3), (long, 2.5)]);
    }

    /// The value that TensorFlow's record writer stores before a record of 24 bytes.
    #[test]
    fn checksums_are_masked() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        let expected = 0xe306_9283u32.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(masked_crc(b"123456789"), expected);
    }

    #[test]
    fn two_files_of_one_folder_have_different_names() {
        let folder = tempfile::tempdir().unwrap();
        for step in 0..3 {
            EventWriter::create(folder.path(), step).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
