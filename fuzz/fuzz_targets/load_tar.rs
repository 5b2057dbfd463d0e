//! A tar file: samples follow one another within it, and each is complete by itself.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_format::members;
use pelton_format::raw::{is_whole_group, load_tar, mend_tar};

/// A header with a name, a size in octal digits and a type.
fn header(name: &[u8], size: &[u8; 11], kind: u8) -> [u8; 512] {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name);
    block[124..135].copy_from_slice(size);
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block
}

fn padded(bytes: &[u8]) -> [u8; 512] {
    let mut block = [0; 512];
    block[..bytes.len()].copy_from_slice(bytes);
    block
}

fn good() -> Vec<u8> {
    [
        header(b"pax", b"00000000013", b'x'),
        padded(b"11 path=ab\n"),
        header(b"a.cls", b"00000000001", b'0'),
        padded(b"3"),
        header(b"././@LongLink", b"00000000005", b'L'),
        padded(b"b.jpg"),
        header(b"cut", b"00000000004", b'0'),
        padded(b"data"),
        header(b"b.cls", b"00000000001", b'0'),
        padded(b"7"),
        [0; 512],
        [0; 512],
    ]
    .concat()
}

fn check(bytes: &[u8]) {
    let Some(samples) = load_tar(bytes) else {
        return;
    };
    let mut end = 0;
    for (range, label) in samples {
        assert!(range.start >= end && range.start < range.end && range.end <= bytes.len());
        end = range.end;
        assert!(label.is_finite());
        let group = &bytes[range];
        assert!(is_whole_group(group));
        let total: usize = members(group).map(|member| member.bytes.len()).sum();
        assert!(total <= group.len());
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut edited = edits::edited(&good(), bytes);
    mend_tar(&mut edited);
    check(&edited);
});
