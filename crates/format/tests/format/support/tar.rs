//! Writes tar files by hand, so that tests have every dialect and every fault.

/// A header of 512 bytes with its checksum, in the ustar dialect.
pub fn header(name: &[u8], size: u64, kind: u8) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut block);
    block
}

/// Puts the checksum of a header right.
pub fn seal(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Data with the zeros that pad them.
pub fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(512), 0);
    padded
}

/// An entry of any kind.
pub fn entry(name: &str, bytes: &[u8], kind: u8) -> Vec<u8> {
    [
        header(name.as_bytes(), bytes.len() as u64, kind),
        padded(bytes),
    ]
    .concat()
}

/// A regular file.
pub fn member(name: &str, bytes: &[u8]) -> Vec<u8> {
    entry(name, bytes, b'0')
}

/// A regular file under a long name, as GNU tar writes it.
pub fn gnu_long(name: &str, bytes: &[u8]) -> Vec<u8> {
    let zero_ended = [name.as_bytes(), b"\0"].concat();
    [
        header(b"././@LongLink", zero_ended.len() as u64, b'L'),
        padded(&zero_ended),
        member("cut", bytes),
    ]
    .concat()
}

/// The records of a pax header.
pub fn pax_records(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        // The length counts its own digits.
        let length = (1..6)
            .map(|digits| rest + digits)
            .find(|all| all.to_string().len() + rest == *all);
        let length = length.expect("records are short");
        text.extend(format!("{length} {key}={value}\n").bytes());
    }
    text
}

/// A regular file behind a pax header.
pub fn pax(records: &[(&str, &str)], name: &str, bytes: &[u8]) -> Vec<u8> {
    [
        entry("PaxHeaders/x", &pax_records(records), b'x'),
        member(name, bytes),
    ]
    .concat()
}

/// The end of an archive.
pub fn end() -> Vec<u8> {
    vec![0; 1024]
}
