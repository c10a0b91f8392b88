//! Settings on the command line: `key=value`, `--key value`, `--key=value`, and a switch by its name alone.

use std::fmt::Write;

use clap::Args;

use crate::trainer::config::{Accepts, ConfigError, Settings, read_switch};

/// The words after a command that takes settings.
#[derive(Debug, Clone, Args)]
pub struct SettingArgs {
    /// Settings, such as `epochs=50`; `--epochs 50` and `--epochs=50` are the same.
    #[arg(value_name = "KEY=VALUE", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl SettingArgs {
    /// Whether help is asked for anywhere among the settings.
    pub fn has_help(&self) -> bool {
        self.words.iter().any(|word| word == "--help" || word == "-h")
    }

    /// The words without this one; `None` if it is not among them.
    pub fn without(&self, flag: &str) -> Option<Self> {
        let words: Vec<String> = self.words.iter().filter(|word| *word != flag).cloned().collect();
        (words.len() < self.words.len()).then_some(Self { words })
    }

    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// The settings in `config`, changed as the words say; of a key that comes twice the last counts.
    ///
    /// # Errors
    /// At the first word that is no setting, names no key, or has a value that is not accepted.
    pub fn apply<C: Settings>(&self, mut config: C) -> Result<C, ConfigError> {
        let mut words = self.words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let bare = word.strip_prefix("--").unwrap_or(word);
            if let Some((key, value)) = bare.split_once('=') {
                config.set(key, value)?;
                continue;
            }
            let is_flag = bare.len() < word.len();
            let known = C::find(bare);
            let is_switch = known.is_some_and(|setting| setting.accepts == Accepts::Switch);
            let next = words.peek().copied().filter(|next| is_flag && takes(next, is_switch));
            match (next, known) {
                (Some(value), _) => {
                    words.next();
                    config.set(bare, value)?;
                }
                (None, Some(_)) if is_switch => config.set(bare, "True")?,
                (None, Some(setting)) => {
                    return Err(ConfigError::NoValue { key: setting.key, accepts: setting.accepts });
                }
                (None, None) if is_flag => config.set(bare, "")?,
                (None, None) => return Err(ConfigError::NotASetting { argument: word.to_owned() }),
            }
        }
        Ok(config)
    }
}

/// Whether `next` is the value of the flag before it. A negative number is, another flag is not, and a switch takes
/// only a word for True or False.
fn takes(next: &str, is_switch: bool) -> bool {
    if is_switch { read_switch(next).is_some() } else { !next.starts_with("--") }
}

/// A line for each key: its name, its value in `defaults`, what it means and what it takes.
pub fn settings_help<C: Settings>(defaults: &C) -> String {
    let mut help = "Settings, with their defaults:\n".to_owned();
    for setting in C::table() {
        let shown = format!("{}={}", setting.key, (setting.show)(defaults));
        // Writing to a String cannot fail.
        let _ = writeln!(help, "  {shown:<24} {} [{}]", setting.help.trim(), setting.accepts);
    }
    help
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Reason;
    use crate::trainer::config::TrainConfig;

    fn apply(words: &[&str]) -> Result<TrainConfig, ConfigError> {
        SettingArgs { words: words.iter().map(ToString::to_string).collect() }.apply(TrainConfig::default())
    }

    #[test]
    fn all_spellings_of_a_setting_mean_the_same() {
        let expected = TrainConfig { save_period: -1, epochs: 3, exist_ok: true, ..TrainConfig::default() };
        for words in [
            vec!["epochs=3", "exist_ok=True", "save_period=-1"],
            vec!["--epochs", "3", "--exist-ok", "--save-period", "-1"],
            vec!["--epochs=3", "--exist_ok=true", "--save_period=-1"],
            vec!["--exist_ok", "1", "--epochs", "3"],
            vec!["exist_ok", "epochs=3"],
            vec!["epochs=9", "exist_ok", "epochs=3"],
        ] {
            assert_eq!(apply(&words).unwrap(), expected, "{words:?}");
        }
    }

    #[test]
    fn a_value_may_hold_an_equals_sign() {
        assert_eq!(apply(&["data=a=b.yaml"]).unwrap().data.to_str(), Some("a=b.yaml"));
        assert_eq!(apply(&["--data", "a=b.yaml"]).unwrap().data.to_str(), Some("a=b.yaml"));
    }

    #[test]
    fn words_that_are_no_settings_are_refused() {
        assert_eq!(apply(&["coco128"]).unwrap_err().reason(), Reason::Usage);
        assert_eq!(
            apply(&["--epochs"]).unwrap_err().to_string(),
            "`epochs` needs a value: a whole number from 1 to 1000000"
        );
        assert_eq!(apply(&["epochs"]).unwrap_err().reason(), Reason::BadValue);
        assert_eq!(apply(&["--epochs", "--val"]).unwrap_err().reason(), Reason::BadValue);
        assert_eq!(apply(&["--epoch", "3"]).unwrap_err().to_string(), "unknown key `epoch`, did you mean `epochs`?");
        assert_eq!(apply(&["--bath"]).unwrap_err().to_string(), "unknown key `bath`, did you mean `batch`?");
    }

    #[test]
    fn help_has_a_line_for_each_key() {
        let help = settings_help(&TrainConfig::default());
        assert_eq!(help.lines().count(), TrainConfig::table().len() + 1);
        assert!(
            help.contains("  lr0=0.01                 Learning rate at the start. [a number from 0 to 10]\n"),
            "{help}"
        );
    }
}
