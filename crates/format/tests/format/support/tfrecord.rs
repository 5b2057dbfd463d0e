//! Writes TFRecords and Examples by hand, so that tests have every fault.

/// The values of a feature.
#[derive(Clone, Debug)]
pub enum Values {
    Bytes(Vec<Vec<u8>>),
    Floats(Vec<f32>),
    Integers(Vec<i64>),
    /// Unpacked numbers, as old writers store them.
    Unpacked(Vec<i64>),
    /// No list at all.
    None,
}

pub fn text(value: &str) -> Values {
    Values::Bytes(vec![value.as_bytes().to_vec()])
}

pub fn integer(value: i64) -> Values {
    Values::Integers(vec![value])
}

/// A number in as many bytes as it needs.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A length-delimited field of a message.
pub fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2], &varint(bytes.len() as u64)[..], bytes].concat()
}

/// One entry of the map of features.
pub fn feature(name: &str, values: &Values) -> Vec<u8> {
    let value = match values {
        Values::Bytes(all) => field(
            1,
            &all.iter().flat_map(|one| field(1, one)).collect::<Vec<_>>(),
        ),
        Values::Floats(all) => {
            let packed: Vec<u8> = all.iter().flat_map(|one| one.to_le_bytes()).collect();
            field(2, &field(1, &packed))
        }
        Values::Integers(all) => {
            let packed: Vec<u8> = all.iter().flat_map(|one| varint(*one as u64)).collect();
            field(3, &field(1, &packed))
        }
        Values::Unpacked(all) => {
            let single = |one: &i64| [&[8][..], &varint(*one as u64)].concat();
            field(3, &all.iter().flat_map(single).collect::<Vec<_>>())
        }
        Values::None => Vec::new(),
    };
    field(1, &[field(1, name.as_bytes()), field(2, &value)].concat())
}

/// A `tf.train.Example`.
pub fn example(features: &[(&str, Values)]) -> Vec<u8> {
    let map = features
        .iter()
        .flat_map(|(name, values)| feature(name, values));
    field(1, &map.collect::<Vec<_>>())
}

pub fn masked(bytes: &[u8]) -> [u8; 4] {
    let crc = crc32c::crc32c(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// A record of a TFRecord file.
pub fn record(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), bytes, &masked(bytes)].concat()
}
