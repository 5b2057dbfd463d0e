//! Changes to a good file that a fuzzer chooses: deep checks are rarely reached from random bytes.

/// `good` with every four bytes of `script` read as an edit: an offset (two bytes), an operation, and its operand.
pub fn edited(good: &[u8], script: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for [low, high, kind, byte] in script.as_chunks::<4>().0 {
        if bytes.is_empty() {
            break;
        }
        let at = usize::from(u16::from_le_bytes([*low, *high])) % bytes.len();
        match kind % 5 {
            0 => bytes[at] ^= byte,
            1 => bytes[at] = *byte,
            2 => bytes.insert(at, *byte),
            3 => drop(bytes.drain(at..(at + usize::from(*byte)).min(bytes.len()))),
            _ => {
                // A digit replaces a digit, so that numbers in text change and stay numbers.
                if let Some(digit) = bytes[at..].iter_mut().find(|byte| byte.is_ascii_digit()) {
                    *digit = b'0' + byte % 10;
                }
            }
        }
    }
    bytes
}
