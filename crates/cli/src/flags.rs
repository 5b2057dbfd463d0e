//! Names of settings as flags. Libraries say `memory`, a person types --memory.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use clap::CommandFactory;
use pelton_train::without_secrets;

use crate::arguments::Arguments;

/// Every long flag of every command, without its dashes.
static FLAGS: OnceLock<BTreeSet<String>> = OnceLock::new();

/// The flags of `pelton`, and those of another program that runs its jobs.
fn flags_of(mut commands: Vec<clap::Command>) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    commands.push(Arguments::command());
    while let Some(command) = commands.pop() {
        flags.extend(
            command
                .get_arguments()
                .filter_map(|flag| flag.get_long())
                .map(String::from),
        );
        commands.extend(command.get_subcommands().cloned());
    }
    flags
}

/// Also names the flags of this program.
pub(crate) fn know<A: CommandFactory>() {
    FLAGS.get_or_init(|| flags_of(vec![A::command()]));
}

/// The same text with each setting in backquotes as its flag, and without the secrets of addresses.
pub fn named(text: &str) -> String {
    let text = without_secrets(text);
    let flags = FLAGS.get_or_init(|| flags_of(Vec::new()));
    let mut pieces = text.split('`');
    let mut named = pieces.next().unwrap_or_default().to_string();
    // Whether a backquote stands before the piece that is still to be written.
    let mut open = false;
    for piece in pieces {
        let flag = piece.replace('_', "-");
        if !open && flags.contains(&flag) {
            named += "--";
            named += &flag;
            open = true;
            continue;
        }
        if !std::mem::take(&mut open) {
            named.push('`');
        }
        named += piece;
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_flags_and_other_words_stay() {
        for (said, shown) in [
            (
                "raise `memory`, or `on_bad_record` skip",
                "raise --memory, or --on-bad-record skip",
            ),
            ("`memory``ranks`", "--memory--ranks"),
            ("`memory", "--memory"),
            (
                "no `loss function` and no `such`",
                "no `loss function` and no `such`",
            ),
            ("`such` memory `", "`such` memory `"),
            ("", ""),
        ] {
            assert_eq!(named(said), shown);
        }
    }
}
