//! Settings, declared once: [`settings!`](crate::settings!) makes a configuration of entries with name, type, default,
//! how text sets it, and help. A program makes its flags of [`Configured::SETTINGS`]; the libraries name none.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use pelton_storage::{path_of_text, size};

/// How a setting takes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One text.
    One,
    /// None: naming it switches it on.
    Switch,
    /// `true` or `false`; named alone it is `true`.
    Bool,
    /// One text each time that it is named.
    Each,
    /// Several texts with commas between.
    Commas,
}

/// A setting of a configuration of type `C`.
#[derive(Debug)]
pub struct Setting<C> {
    /// Its name, with underscores.
    pub name: &'static str,
    /// What its text means, for help; empty for the name itself.
    pub value: &'static str,
    /// How it takes text.
    pub form: Form,
    /// A setting without which it has no meaning; empty for none.
    pub needs: &'static str,
    /// What it is for, in a sentence or two.
    pub help: fn() -> String,
    /// Sets it; of all forms but [`Form::Each`] and [`Form::Commas`] one text.
    ///
    /// Errors: a text that is not a value.
    pub set: fn(&mut C, &[String]) -> Result<(), String>,
}

/// A configuration with settings that people write as text.
pub trait Configured: Default + 'static {
    /// What its settings have in common, such as "Training".
    const HEADING: &'static str;
    /// In the order in which people read them.
    const SETTINGS: &'static [Setting<Self>];
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn one(texts: &[String]) -> &str {
    texts.first().map_or("", String::as_str)
}

/// Sets a value.
pub fn value<T: FromStr<Err: Display>>(field: &mut T, texts: &[String]) -> Result<(), String> {
    *field = parsed(one(texts))?;
    Ok(())
}

/// Sets a value that may be absent.
pub fn some<T: FromStr<Err: Display>>(
    field: &mut Option<T>,
    texts: &[String],
) -> Result<(), String> {
    *field = Some(parsed(one(texts))?);
    Ok(())
}

/// Sets the path of a file, of any bytes.
pub fn path(field: &mut Option<PathBuf>, texts: &[String]) -> Result<(), String> {
    *field = Some(path_of_text(one(texts)));
    Ok(())
}

/// Sets a number of bytes, such as `64MiB`.
pub fn bytes(field: &mut u64, texts: &[String]) -> Result<(), String> {
    *field = size(one(texts))?;
    Ok(())
}

/// Switches it on.
pub fn on(field: &mut bool, _: &[String]) -> Result<(), String> {
    *field = true;
    Ok(())
}

/// Sets all values of a list.
pub fn list<T: FromStr<Err: Display>>(field: &mut Vec<T>, texts: &[String]) -> Result<(), String> {
    *field = texts
        .iter()
        .map(|text| parsed(text))
        .collect::<Result<_, _>>()?;
    Ok(())
}

/// The same of a list that may be absent.
pub fn some_list<T: FromStr<Err: Display>>(
    field: &mut Option<Vec<T>>,
    texts: &[String],
) -> Result<(), String> {
    list(field.insert(Vec::new()), texts)
}

/// A configuration of entries
///
/// ```text
/// #[attributes] name: Type = default, flag(FORM, set, as "name", of "VALUE", needs "other", help text), "Help";
/// ```
///
/// `flag` is left out where only `run.toml` states the setting. `set` is a function of this module or one like them; the
/// help is the field's documentation too, unless `help` is an expression with another one.
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        pub struct $config:ident: $heading:literal {
            $(
                $(#[$of_field:meta])*
                $field:ident: $type:ty = $default:expr,
                $(flag(
                    $form:ident, $set:expr $(, as $name:literal)? $(, of $value:literal)?
                    $(, needs $needs:literal)? $(, help $more:expr)?
                ),)?
                $help:literal;
            )*
        }
    ) => {
        $(#[$attribute])*
        pub struct $config {
            $( #[doc = $help] $(#[$of_field])* pub $field: $type, )*
        }

        impl Default for $config {
            fn default() -> $config {
                $config { $($field: $default,)* }
            }
        }

        impl $crate::settings::Configured for $config {
            const HEADING: &'static str = $heading;
            const SETTINGS: &'static [$crate::settings::Setting<$config>] = &[
                $($(
                    $crate::settings::Setting {
                        name: [$($name,)? stringify!($field)][0],
                        value: [$($value,)? ""][0],
                        form: $crate::settings::Form::$form,
                        needs: [$($needs,)? ""][0],
                        help: || vec![$(String::from($more),)? String::from($help)].swap_remove(0),
                        set: |config, texts| $set(&mut config.$field, texts),
                    },
                )?)*
            ];
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    settings! {
        /// An example.
        #[derive(Debug, PartialEq)]
        pub struct Example: "Examples" {
            rate: Option<f64> = None, flag(One, some, of "NUMBER"), "Rate";
            names: Vec<String> = Vec::new(), flag(Commas, list, as "with_names", needs "rate"), "Names";
            quiet: bool = false, flag(Switch, on, help format!("Quiet: {}", 3)), "Quiet";
            memory: u64 = 7, flag(One, bytes), "Memory";
            inner: u32 = 5, "Not a flag";
        }
    }

    #[test]
    fn entries_become_fields_defaults_and_settings() {
        let mut config = Example::default();
        assert_eq!((config.memory, config.inner), (7, 5));
        let names: Vec<&str> = Example::SETTINGS
            .iter()
            .map(|setting| setting.name)
            .collect();
        assert_eq!(names, ["rate", "with_names", "quiet", "memory"]);
        let texts = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| text.to_string())
                .collect::<Vec<_>>()
        };
        for (setting, given) in
            Example::SETTINGS
                .iter()
                .zip([&["0.5"][..], &["a", "b"], &[], &["1KiB"]])
        {
            (setting.set)(&mut config, &texts(given)).unwrap();
        }
        let expected = Example {
            rate: Some(0.5),
            names: texts(&["a", "b"]),
            quiet: true,
            memory: 1024,
            inner: 5,
        };
        assert_eq!(config, expected);
        assert_eq!((Example::SETTINGS[2].help)(), "Quiet: 3");
        assert_eq!(
            (Example::SETTINGS[0].value, Example::SETTINGS[1].needs),
            ("NUMBER", "rate")
        );
        let wrong = (Example::SETTINGS[0].set)(&mut config, &texts(&["x"]));
        assert_eq!(wrong.unwrap_err(), "invalid float literal");
    }
}
