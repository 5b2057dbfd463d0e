//! Numbers of text, JSON and NumPy's arrays, as a stage makes fields from them: with the stated type and lengths, or
//! an error.
#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use pelton_feed::{Appearance, DecodeFields, DecodeSetting, Sample, Slots, Stage, Value};

fn check(spelling: &str, source: &str, bytes: &[u8]) {
    let Ok(DecodeSetting::Fields(fields)) = spelling.parse() else {
        panic!("{spelling}");
    };
    let stage = DecodeFields::new(&fields);
    let mut sample = Sample::new(&source.into(), Value::Bytes(Cow::Borrowed(bytes)));
    let at = Appearance {
        id: 0,
        label: 0,
        copy: 0,
        key: 0,
        first: true,
    };
    if stage.run(&mut sample, &mut Slots::default(), &at, &mut ()).is_err() {
        return;
    }
    let value = sample.get("a").expect("the field was made");
    let elements: usize = value.dims().iter().product();
    assert_eq!(value.bytes().len(), elements * value.dtype().bytes());
    if spelling.ends_with("[2]") {
        assert_eq!(value.dims(), [2]);
    }
}

fuzz_target!(|bytes: &[u8]| {
    for kind in ["f32[]", "i64[2]", "u8", "i32[]", "f64[2]"] {
        check(&format!("a=x:{kind}"), "x", bytes);
        check(&format!("a=x.json:k:{kind}"), "x.json", bytes);
        check(&format!("a=x.npy:{kind}"), "x.npy", bytes);
    }
});
