//! The machinery behind the settings: one table entry per key gives its field, default, range, help and parser.
//!
//! [`settings!`] makes a config struct and its table from a single list, so that adding a key is adding one entry
//! there.

use std::fmt;

use super::ConfigError;
use super::value::read_switch;

/// What a key accepts: shown in the help and in error messages, and enforced when a value is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Accepts {
    /// A whole number, ends included.
    Whole { min: i64, max: i64 },
    /// A finite number, ends included.
    Number { min: f64, max: f64 },
    /// A finite number, the lower end excluded.
    NumberAbove { min: f64, max: f64 },
    /// True or False, in the spellings that the reference's command line takes.
    Switch,
    /// One of a few words, in any case.
    OneOf(&'static [&'static str]),
    /// Anything but an empty text; the words describe it.
    Text(&'static str),
    /// A file, or `None`; the words describe it.
    OptionalFile(&'static str),
}

/// One key of a config `C`: its table entry.
pub struct Setting<C: 'static> {
    /// Name on the command line and in `args.yaml`.
    pub key: &'static str,
    /// What the key means, with unit and the effect of special values: the doc comment of its field.
    pub help: &'static str,
    pub accepts: Accepts,
    /// Reads a value into the config; `None`, with the config unchanged, if the value is not accepted.
    pub set: fn(&mut C, &str, &Accepts) -> Option<()>,
    /// The value as a user would write it.
    pub show: fn(&C) -> String,
}

/// A key of the reference that this program does not have, with the one value that says what it does anyway.
pub struct FixedKey {
    pub key: &'static str,
    /// Accepted and without effect; `-` accepts no value.
    pub only: &'static str,
}

/// A config whose keys stand in a table.
pub trait Settings: Default + 'static {
    fn table() -> &'static [Setting<Self>];

    /// Keys that the reference has and this config has not.
    fn fixed_keys() -> &'static [FixedKey];

    /// The table entry of a key; `-` in place of `_` is accepted.
    fn find(key: &str) -> Option<&'static Setting<Self>> {
        let key = key.replace('-', "_");
        Self::table().iter().find(|setting| setting.key == key)
    }

    /// Reads one value into its field.
    ///
    /// # Errors
    /// When the key is unknown or not supported, or the value is not accepted; the config is then unchanged.
    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let Some(setting) = Self::find(key) else { return self.set_fixed(key, value) };
        (setting.set)(self, value, &setting.accepts).ok_or_else(|| ConfigError::BadValue {
            key: setting.key,
            value: value.to_owned(),
            accepts: setting.accepts,
        })
    }

    /// Lets a fixed key pass when its value changes nothing.
    fn set_fixed(&self, key: &str, value: &str) -> Result<(), ConfigError> {
        let name = key.replace('-', "_");
        let Some(fixed) = Self::fixed_keys().iter().find(|fixed| fixed.key == name) else {
            return Err(ConfigError::UnknownKey { key: key.to_owned(), suggestion: nearest_key::<Self>(&name) });
        };
        if says_the_same(value, fixed.only) {
            return Ok(());
        }
        Err(ConfigError::NotSupported { key: fixed.key, value: value.to_owned(), only: fixed.only })
    }
}

/// The key of the table that looks most like `key`, if any does.
fn nearest_key<C: Settings>(key: &str) -> Option<&'static str> {
    nearest(key, C::table().iter().map(|setting| setting.key))
}

/// The word most like `word`, by Jaro-Winkler similarity (which favours a common beginning), if any is near enough.
/// Of several equally like, the first.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Below this, words have little in common: `foo` is 0.6 like `project`, `batch_size` is 0.9 like `batch`.
    const NEAR_ENOUGH: f64 = 0.7;
    let word = word.to_lowercase();
    known
        .map(|candidate| (strsim::jaro_winkler(&word, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= NEAR_ENOUGH)
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, candidate)| candidate)
}

fn says_the_same(value: &str, only: &str) -> bool {
    match (read_switch(value), read_switch(only), value.parse::<f64>(), only.parse::<f64>()) {
        (Some(value), Some(only), ..) => value == only,
        (_, _, Ok(value), Ok(only)) => value == only,
        _ => only != "-" && value.eq_ignore_ascii_case(only),
    }
}

impl fmt::Display for Accepts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Number { min, max } => write!(f, "a number from {min} to {max}"),
            Self::NumberAbove { min, max } => write!(f, "a number above {min} and up to {max}"),
            Self::Switch => f.write_str("True or False"),
            Self::OneOf([word]) => write!(f, "only {word} in this version"),
            Self::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Self::Text(what) => f.write_str(what),
            Self::OptionalFile(what) => write!(f, "{what}, or None"),
        }
    }
}

/// A raw identifier's plain name: `r#box` is the key `box`.
pub const fn plain_name(identifier: &'static str) -> &'static str {
    match identifier.as_bytes() {
        [b'r', b'#', ..] => identifier.split_at(2).1,
        _ => identifier,
    }
}

/// Declares a config: for each key `/// help` `name: Type = default, accepts;`, which becomes a public field with that
/// doc comment, its default, and its entry in [`Settings::table`]. A `flatten` part lists keys of a struct that has
/// defaults of its own, `/// help` `name: accepts;`.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $Config:ident {
            $( $(#[doc = $help:literal])+ $key:ident: $Type:ty = $default:expr, $accepts:expr; )*
        }
        $(
            $(#[$flat_meta:meta])*
            flatten $part:ident: $Part:ty {
                $( $(#[doc = $part_help:literal])+ $part_key:ident: $part_accepts:expr; )*
            }
        )?
        fixed { $( $fixed_key:literal: $only:literal; )* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $Config {
            $( $(#[doc = $help])+ pub $key: $Type, )*
            $( $(#[$flat_meta])* #[serde(flatten)] pub $part: $Part, )?
        }

        impl Default for $Config {
            fn default() -> Self {
                Self { $( $key: $default, )* $( $part: <$Part>::default(), )? }
            }
        }

        impl $crate::trainer::config::Settings for $Config {
            fn table() -> &'static [$crate::trainer::config::Setting<Self>] {
                use $crate::trainer::config::{Setting, SettingValue, plain_name};
                const TABLE: &[Setting<$Config>] = &[
                    $( Setting {
                        key: plain_name(stringify!($key)),
                        help: concat!($($help),+),
                        accepts: $accepts,
                        set: |config, text, accepts| {
                            config.$key = SettingValue::read(text, accepts)?;
                            Some(())
                        },
                        show: |config| SettingValue::show(&config.$key),
                    }, )*
                    $( $( Setting {
                        key: stringify!($part_key),
                        help: concat!($($part_help),+),
                        accepts: $part_accepts,
                        set: |config, text, accepts| {
                            config.$part.$part_key = SettingValue::read(text, accepts)?;
                            Some(())
                        },
                        show: |config| SettingValue::show(&config.$part.$part_key),
                    }, )* )?
                ];
                TABLE
            }

            fn fixed_keys() -> &'static [$crate::trainer::config::FixedKey] {
                &[ $( $crate::trainer::config::FixedKey { key: $fixed_key, only: $only }, )* ]
            }
        }
    };
}
pub(crate) use settings;
