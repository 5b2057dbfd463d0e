//! A class in a member `json`: the result equals the value in a fully parsed tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::JsonKey;
use pelton_format::raw::read_json_class;
use serde_json::Value;

fn check(json: &[u8], key: &JsonKey, parts: &[&str]) {
    let found = read_json_class(json, key);
    // Strings next to the path may be invalid UTF-8, which the full parser refuses.
    let Ok(tree) = serde_json::from_slice::<Value>(json) else {
        return;
    };
    let there = parts.iter().try_fold(&tree, |value, part| value.as_object()?.get(*part));
    match found {
        Some(Ok(number)) => assert_eq!(there.and_then(Value::as_f64), Some(number as f64)),
        Some(Err(name)) => {
            assert!(!name.is_empty());
            assert_eq!(there.and_then(Value::as_str), Some(name.as_str()));
        }
        None => {
            let number = there.and_then(Value::as_i64);
            assert!(number.is_none_or(|number| number.unsigned_abs() > 1 << 53));
            assert!(there.and_then(Value::as_str).is_none_or(str::is_empty));
        }
    }
}

fuzz_target!(|json: &[u8]| {
    check(json, &"a".parse().expect("a key"), &["a"]);
    check(json, &"a.b".parse().expect("a key"), &["a", "b"]);
});
