//! How orders are written.

use pelton_plan::{Order, PlanError};

fn check(text: &str, expected: Order) {
    let order: Order = text.parse().unwrap();
    assert_eq!(order, expected);
    assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
}

#[test]
fn each_form_is_read_and_written() {
    check("sequential", Order::Sequential);
    check("full", Order::Full);
    check("page", Order::Page { unit_bytes: 4096 });
    check("page:512", Order::Page { unit_bytes: 512 });
    check(
        "queue:10000",
        Order::Queue {
            examples: 10_000,
            initial_shuffle: false,
        },
    );
    check(
        "queue:5:shuffled",
        Order::Queue {
            examples: 5,
            initial_shuffle: true,
        },
    );
    check(
        "block:40",
        Order::Block {
            blocks: 40,
            permute: false,
        },
    );
    check(
        "block:40:permute",
        Order::Block {
            blocks: 40,
            permute: true,
        },
    );
}

#[test]
fn loads_are_read_with_and_without_a_unit() {
    let order = |loads, unit_bytes| Order::Opportunistic { loads, unit_bytes };
    check("opportunistic:8", order(8, 1 << 20));
    check("opportunistic:3:512", order(3, 512));
    check("opportunistic:1:9223372036854775808", order(1, 1 << 63));
}

#[test]
fn other_text_is_refused_with_the_forms_that_work() {
    for text in [
        "",
        "Full",
        "full:3",
        "queue",
        "block",
        "block:4:permuted",
        "queue:4:x:y",
        "opportunistic",
        "opportunistic:4:4096:x",
        "Opportunistic:4",
    ] {
        let message = text.parse::<Order>().unwrap_err().to_string();
        assert!(
            message.contains("queue:EXAMPLES[:shuffled]"),
            "{text}: {message}"
        );
        assert!(message.contains(&format!("'{text}'")), "{message}");
    }
    for text in [
        "page:",
        "page:4k",
        "page:-1",
        "block:0",
        "opportunistic:",
        "opportunistic:0",
        "opportunistic:1/4",
        "opportunistic:8:0",
        "opportunistic:8:1MiB",
        "opportunistic:8:",
        "queue:99999999999999999999",
    ] {
        let error = text.parse::<Order>().unwrap_err();
        assert!(
            matches!(error, PlanError::BadCount { .. }),
            "{text}: {error}"
        );
    }
}

#[test]
fn the_documentation_lists_every_order() {
    let page = include_str!("../../../../docs/orders-and-access.md");
    for form in Order::forms().replace(" or ", ", ").split(", ") {
        let name = form.split([':', '[']).next().unwrap();
        assert!(page.contains(&format!("`{name}")), "{form}");
    }
}
