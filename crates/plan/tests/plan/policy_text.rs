//! How bucket policies are written.

use pelton_plan::{BucketPolicy, Packing};

fn check(text: &str, expected: BucketPolicy) {
    let policy: BucketPolicy = text.parse().unwrap();
    assert_eq!(policy, expected);
    assert_eq!(policy.to_string().parse::<BucketPolicy>().unwrap(), policy);
}

#[test]
fn each_form_is_read_and_written() {
    check("none", BucketPolicy::None);
    check("static:10,20,60", BucketPolicy::Static(vec![10, 20, 60]));
    check("static:7", BucketPolicy::Static(vec![7]));
    check("auto", BucketPolicy::Auto);
    check("optimal:8", BucketPolicy::Optimal { buckets: 8 });
    check("tokens:4096", BucketPolicy::Tokens { max: 4096 });
    let packing =
        |row_length, look_ahead| BucketPolicy::Pack(Packing::new(row_length, look_ahead).unwrap());
    check("pack:64", packing(64, Packing::DEFAULT_LOOK_AHEAD));
    check("pack:64:100", packing(64, 100));
}

fn check_refused(text: &str, remedy: &str) {
    let message = text.parse::<BucketPolicy>().unwrap_err().to_string();
    assert!(message.contains(remedy), "{text}: {message}");
}

#[test]
fn other_forms_are_refused_with_a_remedy() {
    for text in [
        "",
        "Auto",
        "auto:3",
        "static",
        "pack",
        "optimal",
        "pack:1:2:3",
    ] {
        check_refused(text, "use none, static:");
    }
    for text in [
        "static:",
        "static:1,,2",
        "static:0",
        "static:-1",
        "static:+1",
        "optimal:0",
        "optimal:x",
        "tokens:4294967296",
        "pack: 3",
        "pack:3:0",
    ] {
        check_refused(text, "a whole number from 1 to 4294967295");
    }
    check_refused("static:10,10", "boundary 10 follows 10");
    check_refused("static:10,20,5", "boundary 5 follows 20");
    check_refused("pack:4000000000", "or less");
    check_refused("pack:10:4000000000", "or less");
}
