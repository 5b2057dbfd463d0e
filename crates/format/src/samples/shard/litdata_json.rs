//! Converts lists and dictionaries of LitData's serialiser `json` to JSON text.
//!
//! A value is a tag of one byte and its content; lengths are u32, numbers little-endian. Older versions wrote JSON
//! itself, which never begins with a tag. Every value becomes text, for the same field may hold numbers in one sample
//! and strings in the next. As Python writes them, numbers that are not finite are NaN, Infinity and -Infinity.

/// Deepest nesting of dictionaries.
const MOST_DEPTH: usize = 64;
/// Most bytes of the text: short values may become several times as long.
const MOST_BYTES: usize = 1 << 30;
/// Larger bytes are not tags.
const LAST_TAG: u8 = 0x20;

/// The JSON text of a cell; `None` if its bytes are damaged.
pub(crate) fn json_text(cell: &[u8]) -> Option<Vec<u8>> {
    if cell.first().is_none_or(|tag| *tag > LAST_TAG) {
        return Some(cell.to_vec());
    }
    let (mut rest, mut text) = (cell, Vec::with_capacity(2 * cell.len()));
    value(&mut rest, MOST_DEPTH, &mut text)?;
    rest.is_empty().then_some(text)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    rest.split_off(..N)?.try_into().ok()
}

fn length(rest: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(take(rest)?) as usize)
}

fn value(rest: &mut &[u8], depth: usize, text: &mut Vec<u8>) -> Option<()> {
    let [tag] = take(rest)?;
    match tag {
        0 => {
            let length = length(rest)?;
            text.extend(rest.split_off(..length)?);
            Some(())
        }
        1 => list(rest, text, string),
        2 => list(rest, text, whole),
        3 => list(rest, text, real),
        4 => list(rest, text, truth),
        5 => {
            let depth = depth.checked_sub(1)?;
            entries(rest, text, b"{}", |rest, text| {
                string(rest, text)?;
                text.push(b':');
                value(rest, depth, text)
            })
        }
        6 => records(rest, text),
        7 => string(rest, text),
        8 => whole(rest, text),
        9 => real(rest, text),
        10 => truth(rest, text),
        11 => null(text),
        _ => None,
    }
}

fn list(
    rest: &mut &[u8],
    text: &mut Vec<u8>,
    item: impl FnMut(&mut &[u8], &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    entries(rest, text, b"[]", item)
}

/// A length and its entries, as text between these brackets.
fn entries(
    rest: &mut &[u8],
    text: &mut Vec<u8>,
    [open, close]: &[u8; 2],
    mut entry: impl FnMut(&mut &[u8], &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    text.push(*open);
    for i in 0..length(rest)? {
        if i > 0 {
            text.push(b',');
        }
        entry(rest, text)?;
        (text.len() <= MOST_BYTES).then_some(())?;
    }
    text.push(*close);
    Some(())
}

/// A list of dictionaries with the same keys, which come first.
fn records(rest: &mut &[u8], text: &mut Vec<u8>) -> Option<()> {
    let (count, keys) = (length(rest)?, length(rest)?);
    let mut names = Vec::new();
    for _ in 0..keys {
        let mut name = Vec::new();
        string(rest, &mut name)?;
        names.push(name);
    }
    text.push(b'[');
    for i in 0..count {
        text.extend(if i > 0 { &b",{"[..] } else { b"{" });
        for (j, name) in names.iter().enumerate() {
            if j > 0 {
                text.push(b',');
            }
            text.extend(name);
            text.push(b':');
            let [tag] = take(rest)?;
            match tag {
                0x10 => null(text),
                0x11 => string(rest, text),
                0x12 => whole(rest, text),
                0x13 => real(rest, text),
                0x14 => truth(rest, text),
                _ => None,
            }?;
        }
        text.push(b'}');
        (text.len() <= MOST_BYTES && !names.is_empty()).then_some(())?;
    }
    text.push(b']');
    Some(())
}

fn string(rest: &mut &[u8], text: &mut Vec<u8>) -> Option<()> {
    let length = length(rest)?;
    let string = str::from_utf8(rest.split_off(..length)?).ok()?;
    serde_json::to_writer(text, string).ok()
}

fn whole(rest: &mut &[u8], text: &mut Vec<u8>) -> Option<()> {
    text.extend(i64::from_le_bytes(take(rest)?).to_string().bytes());
    Some(())
}

fn real(rest: &mut &[u8], text: &mut Vec<u8>) -> Option<()> {
    let value = f64::from_le_bytes(take(rest)?);
    if value.is_finite() || value.is_nan() {
        text.extend(format!("{value:?}").bytes());
    } else {
        text.extend(if value > 0.0 {
            &b"Infinity"[..]
        } else {
            b"-Infinity"
        });
    }
    Some(())
}

fn truth(rest: &mut &[u8], text: &mut Vec<u8>) -> Option<()> {
    let [truth] = take(rest)?;
    text.extend(if truth == 0 { &b"false"[..] } else { b"true" });
    Some(())
}

fn null(text: &mut Vec<u8>) -> Option<()> {
    text.extend(b"null");
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are those of `litdata.streaming.serializers._nested_dumps`, litdata 0.2.76.
    #[test]
    fn values_that_litdata_wrote() {
        let check = |hex: &str, expected: &str| {
            let digits = (0..hex.len()).step_by(2);
            let bytes: Vec<u8> = digits
                .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
                .collect();
            let text = json_text(&bytes).map(|text| String::from_utf8(text).unwrap());
            assert_eq!(text.as_deref(), Some(expected));
            for cut in 1..bytes.len() {
                let text = json_text(&bytes[..cut]);
                assert!(text.is_none() || bytes[0] > LAST_TAG, "{hex} {cut}");
            }
            let more = [&bytes[..], b"\0"].concat();
            assert!(json_text(&more).is_none() || bytes[0] > LAST_TAG, "{hex}");
        };
        check(
            "02030000000100000000000000feffffffffffffffffffffffffffff7f",
            r#"[1,-2,9223372036854775807]"#,
        );
        check(
            "0304000000000000000000e03f9c7500883ce4377e000000000000f87f000000000000f0ff",
            r#"[0.5,1e300,NaN,-Infinity]"#,
        );
        check("010200000001000000610300000022c3a4", r#"["a","\"ä"]"#);
        check("0100000000", r#"[]"#);
        check("04020000000100", r#"[true,false]"#);
        check(
            "0506000000010000006b02010000000100000000000000010000006e0b01000000730701000000780100000069080700000000000000010000006609000000000000004001000000620a01",
            r#"{"k":[1],"n":null,"s":"x","i":7,"f":2.0,"b":true}"#,
        );
        check(
            "06020000000200000004000000726f6c65010000006e1104000000757365721201000000000000001103000000626f7410",
            r#"[{"role":"user","n":1},{"role":"bot","n":null}]"#,
        );
        check("00070000005b312c2261225d", r#"[1,"a"]"#);
        check("050100000001000000640500000000", r#"{"d":{}}"#);
        check("5b312c20325d", "[1, 2]");
        let deep = [&[5, 1, 0, 0, 0, 0, 0, 0, 0][..]; 70].concat();
        assert_eq!(json_text(&deep), None);
        assert_eq!(json_text(&[6, 255, 255, 255, 255, 0, 0, 0, 0]), None);
        assert_eq!(json_text(&[12]), None);
        assert_eq!(json_text(&[]), Some(Vec::new()));
    }
}
