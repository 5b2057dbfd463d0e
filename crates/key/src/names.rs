//! Enums whose values have names in settings.

/// Defines an enum with a name for each value, and with it `Display`, `FromStr` (its error lists the names) and `ALL`: a
/// further value is one line. More names of a value, after `|`, are read as well.
///
/// ```
/// pelton_key::names! {
///     /// A side.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Side: "a side" {
///         /// Towards the west.
///         Left = "left" | "l",
///         /// Towards the east.
///         Right = "right",
///     }
/// }
/// assert_eq!("l".parse(), Ok(Side::Left));
/// assert_eq!(Side::Right.to_string(), "right");
/// assert_eq!(Side::ALL.len(), 2);
/// assert_eq!("up".parse::<Side>().unwrap_err(), "`up` is not a side: use left or right");
/// ```
#[macro_export]
macro_rules! names {
    ($(#[$of_all:meta])* $see:vis enum $type:ident: $what:literal {
        $($(#[$of_one:meta])* $value:ident = $name:literal $(| $other:literal)*),+ $(,)?
    }) => {
        $(#[$of_all])*
        $see enum $type {
            $($(#[$of_one])* $value),+
        }

        #[allow(dead_code)]
        impl $type {
            /// All values.
            $see const ALL: &'static [$type] = &[$($type::$value),+];

            /// All names, as a sentence lists them.
            $see fn names() -> ::std::string::String {
                $crate::listed(&[$($name),+])
            }

            /// Its name in settings.
            $see const fn name(self) -> &'static str {
                match self {
                    $($type::$value => $name),+
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = ::std::string::String;

            fn from_str(text: &str) -> ::std::result::Result<$type, ::std::string::String> {
                match text {
                    $($name $(| $other)* => Ok($type::$value),)+
                    _ => Err(::std::format!("`{text}` is not {}: use {}", $what, $type::names())),
                }
            }
        }
    };
}

/// Names as a sentence lists them: `a, b or c`.
pub fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}
