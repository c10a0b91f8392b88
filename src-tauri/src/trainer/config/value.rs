//! The types that a setting's field may have: how each is read from text and shown.

use std::path::PathBuf;

use super::setting::Accepts;
use crate::dataset::Split;
use crate::trainer::device::DeviceChoice;

/// True and False in the spellings of Python, YAML and shells.
pub fn read_switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// A type that a setting's field may have.
pub trait SettingValue: Sized {
    /// The value written as `text`, or `None` if it is not of this type or not accepted.
    fn read(text: &str, accepts: &Accepts) -> Option<Self>;

    /// The value as a user would write it.
    fn show(&self) -> String;
}

macro_rules! whole_values {
    ($($Type:ty)+) => {$(
        impl SettingValue for $Type {
            fn read(text: &str, accepts: &Accepts) -> Option<Self> {
                let value: i64 = text.parse().ok()?;
                let Accepts::Whole { min, max } = accepts else { return None };
                if (*min..=*max).contains(&value) { value.try_into().ok() } else { None }
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+};
}
whole_values!(i64 u64 u32 usize);

macro_rules! number_values {
    ($($Type:ty)+) => {$(
        impl SettingValue for $Type {
            fn read(text: &str, accepts: &Accepts) -> Option<Self> {
                let value: f64 = text.parse().ok()?;
                // A NaN is inside no range, an infinity beyond every one.
                let is_accepted = match accepts {
                    Accepts::Number { min, max } => (*min..=*max).contains(&value),
                    Accepts::NumberAbove { min, max } => value > *min && value <= *max,
                    _ => false,
                };
                if is_accepted { Some(value as $Type) } else { None }
            }

            fn show(&self) -> String {
                format!("{self:?}")
            }
        }
    )+};
}
number_values!(f32 f64);

impl SettingValue for bool {
    fn read(text: &str, _: &Accepts) -> Option<Self> {
        read_switch(text)
    }

    fn show(&self) -> String {
        if *self { "True" } else { "False" }.to_owned()
    }
}

impl SettingValue for String {
    fn read(text: &str, accepts: &Accepts) -> Option<Self> {
        match accepts {
            Accepts::OneOf(words) => {
                words.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| word.to_string())
            }
            _ => Some(text.to_owned()).filter(|text| !text.is_empty()),
        }
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl SettingValue for PathBuf {
    fn read(text: &str, _: &Accepts) -> Option<Self> {
        Some(Self::from(text)).filter(|path| !path.as_os_str().is_empty())
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl SettingValue for Option<PathBuf> {
    /// `None` and `False` mean no file; `True` names none, so it is not accepted.
    fn read(text: &str, _: &Accepts) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "" | "true" => None,
            "none" | "null" | "false" => Some(None),
            _ => Some(Some(PathBuf::from(text))),
        }
    }

    fn show(&self) -> String {
        self.as_ref().map_or("None".to_owned(), |path| path.display().to_string())
    }
}

impl SettingValue for Split {
    fn read(text: &str, _: &Accepts) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "train" => Some(Self::Train),
            "val" => Some(Self::Val),
            "test" => Some(Self::Test),
            _ => None,
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
        .to_owned()
    }
}

impl SettingValue for DeviceChoice {
    fn read(text: &str, _: &Accepts) -> Option<Self> {
        text.parse().ok()
    }

    fn show(&self) -> String {
        self.to_string()
    }
}
