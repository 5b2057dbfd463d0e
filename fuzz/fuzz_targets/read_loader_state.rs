//! The state of a loader: an accepted one is written and read unchanged.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_feed::LoaderState;

const GOOD: &str = "{\"version\":1,\"data\":\"00000000deadbeef\",\"plan\":\"0123456789abcdef\",\
                    \"stages\":\"0000002a00c0ffee\",\"hint\":\"00ff\",\"epoch\":3,\"step\":70,\"auto_batches\":2,\
                    \"files\":\"00c0ffee00c0ffee\"}";

fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(state) = LoaderState::from_json(text) else {
        return;
    };
    let again = LoaderState::from_json(&state.to_json());
    assert_eq!(again.expect("a state that was written"), state);
}

fuzz_target!(|bytes: &[u8]| {
    assert!(LoaderState::from_json(GOOD).is_ok());
    check(bytes);
    check(&edits::edited(GOOD.as_bytes(), bytes));
});
