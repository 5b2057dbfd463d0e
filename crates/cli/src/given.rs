//! The flags of a configuration, made of its settings. One that is left out keeps the value of `--config`, or the default.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::marker::PhantomData;
use std::path::Path;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use pelton_train::{Configured, Form, Setting, path_text};

/// The settings of `C` that were given as flags.
#[derive(Debug)]
pub struct Given<C> {
    texts: BTreeMap<&'static str, Vec<String>>,
    of: PhantomData<C>,
}

impl<C> Default for Given<C> {
    fn default() -> Given<C> {
        Given {
            texts: BTreeMap::new(),
            of: PhantomData,
        }
    }
}

impl<C: Configured> Given<C> {
    /// Whether this setting was given.
    pub fn has(&self, setting: &str) -> bool {
        self.texts.contains_key(setting)
    }

    /// Whether this setting was given, and as `true`.
    pub fn is_true(&self, setting: &str) -> bool {
        self.texts
            .get(setting)
            .is_some_and(|text| *text == ["true"])
    }

    /// Whether any was.
    pub fn any(&self) -> bool {
        !self.texts.is_empty()
    }

    /// Writes what was given over a configuration.
    pub fn apply(&self, config: &mut C) {
        for setting in C::SETTINGS {
            if let Some(texts) = self.texts.get(setting.name) {
                (setting.set)(config, texts).expect("each text was checked when it was parsed");
            }
        }
    }
}

impl<C: Configured + Clone + Send + Sync> Args for Given<C> {
    fn augment_args(command: Command) -> Command {
        command.args(C::SETTINGS.iter().map(flag::<C>))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Given::<C>::augment_args(command)
    }
}

impl<C: Configured> FromArgMatches for Given<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given<C>, clap::Error> {
        let mut given = Given::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in C::SETTINGS {
            let name = setting.name;
            if matches.value_source(name) != Some(ValueSource::CommandLine) {
                continue;
            }
            let texts = match setting.form {
                Form::Switch => Vec::new(),
                Form::One | Form::Bool | Form::Each | Form::Commas => {
                    let texts = matches.get_many::<String>(name);
                    texts.into_iter().flatten().cloned().collect()
                }
            };
            self.texts.insert(name, texts);
        }
        Ok(())
    }
}

fn flag<C: Configured + Send + Sync>(setting: &'static Setting<C>) -> Arg {
    let check = |text: OsString| {
        let text = path_text(Path::new(&text));
        (setting.set)(&mut C::default(), std::slice::from_ref(&text))?;
        Ok::<_, String>(text)
    };
    let arg = Arg::new(setting.name)
        .long(setting.name.replace('_', "-"))
        .help(with_flags(&(setting.help)()))
        .help_heading(C::HEADING);
    let arg = match setting.needs {
        "" => arg,
        other => arg.requires(other),
    };
    if setting.form == Form::Switch {
        return arg.action(ArgAction::SetTrue);
    }
    let value = match (setting.value, setting.form) {
        ("", Form::Bool) => "BOOL".to_string(),
        ("", _) => setting.name.to_uppercase(),
        (value, _) => value.to_string(),
    };
    let arg = arg
        .value_name(value)
        .value_parser(OsStringValueParser::new().try_map(check));
    match setting.form {
        Form::One | Form::Switch => arg,
        Form::Bool => arg.num_args(0..=1).default_missing_value("true"),
        Form::Each => arg.action(ArgAction::Append),
        Form::Commas => arg.action(ArgAction::Append).value_delimiter(','),
    }
}

/// A help text with each setting in backquotes as its flag.
fn with_flags(help: &str) -> String {
    let is_name = |part: &str| {
        part.bytes()
            .all(|byte| byte == b'_' || byte.is_ascii_lowercase())
    };
    let mut shown = String::new();
    for (number, part) in help.split('`').enumerate() {
        match part {
            name if number % 2 == 1 && is_name(name) => {
                shown += &format!("--{}", name.replace('_', "-"));
            }
            quoted if number % 2 == 1 => shown += &format!("`{quoted}`"),
            text => shown += text,
        }
    }
    shown
}
