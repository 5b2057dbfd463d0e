//! A class in a member `json`: what is found is what a plain reader of JSON finds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::JsonKey;
use pelton_format::raw::read_json_class;

fn check(json: &[u8], key: &JsonKey, parts: &[&str]) {
    let found = read_json_class(json, key);
    let plain = serde_json::from_slice::<serde_json::Value>(json).ok();
    let plain = plain.as_ref().and_then(|value| {
        let step = |value: &'_ serde_json::Value, part: &&str| value.as_object()?.get(*part).cloned();
        parts.iter().try_fold(value.clone(), |value, part| step(&value, part))
    });
    match found {
        Some(Ok(number)) => assert_eq!(plain.and_then(|value| value.as_f64()), Some(number as f64)),
        Some(Err(name)) => {
            assert!(!name.is_empty());
            assert_eq!(plain.as_ref().and_then(|value| value.as_str()), Some(name.as_str()));
        }
        None => {
            let is_class = plain.is_some_and(|value| value.is_i64() && value.as_i64().is_some_and(|n| n.abs() < 1 << 53));
            assert!(!is_class);
        }
    }
}

fuzz_target!(|json: &[u8]| {
    check(json, &"a".parse().expect("a key"), &["a"]);
    check(json, &"a.b".parse().expect("a key"), &["a", "b"]);
});
