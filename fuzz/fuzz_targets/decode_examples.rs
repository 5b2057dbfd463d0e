//! A record that should be a `tf.train.Example`, before and after a valid one: their rows read as rows.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::decode_examples;

/// Features x (two integers), y (a float), s (two strings), e (nothing) and label (7).
const GOOD: &[u8] = b"\x0a\x44\
    \x0a\x0d\x0a\x01x\x12\x08\x1a\x06\x0a\x04\x01\x96\x81\x01\
    \x0a\x0d\x0a\x01y\x12\x08\x12\x06\x0a\x04\x00\x00\xc0\x3f\
    \x0a\x0e\x0a\x01s\x12\x09\x0a\x07\x0a\x01a\x0a\x02bc\
    \x0a\x05\x0a\x01e\x12\x00\
    \x0a\x0d\x0a\x05label\x12\x04\x1a\x02\x08\x07";

fn check(examples: &[&[u8]]) {
    let Some((fields, rows)) = decode_examples(examples) else { return };
    for (row, label) in rows.into_iter().flatten() {
        assert!(fields.split(&row).is_ok() && label.is_finite());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let rows = decode_examples(&[GOOD]).and_then(|(_, mut rows)| rows.pop()?);
    assert_eq!(rows.map(|(_, label)| label), Some(7.0));
    check(&[GOOD, bytes]);
    check(&[bytes, GOOD]);
    let edited = edits::edited(GOOD, bytes);
    check(&[GOOD, &edited]);
    check(&[&edited, GOOD]);
});
