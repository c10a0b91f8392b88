//! The words after `fermata resume`, in any order: the run, how to go on, and settings to change.

use std::path::PathBuf;

use clap::Parser;

use crate::cli::ending::Refusal;
use crate::cli::settings::SettingArgs;
use crate::cli::train::DETACH;
use crate::exit::Reason;
use crate::run::detach::DETACHED_CHILD;
use crate::trainer::config::{Accepts, Settings, TrainConfig, read_switch};

/// What a user asks of `resume`.
#[derive(Debug)]
pub struct ResumeWords {
    pub run: String,
    pub project: PathBuf,
    /// A checkpoint, or the number of an epoch.
    pub from: Option<String>,
    /// Name of the new run.
    pub branch: Option<String>,
    pub in_place: bool,
    pub detach: bool,
    /// This process was started by one that was to detach, and has no terminal.
    pub is_detached_child: bool,
    pub is_json: bool,
    pub edits: SettingArgs,
    has_edits: bool,
}

/// The settings among the words, read as every command reads them.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Edits {
    #[command(flatten)]
    settings: SettingArgs,
}

/// What was said, as it was said.
#[derive(Debug, Default)]
struct Options {
    run: Option<String>,
    project: Option<String>,
    from: Option<String>,
    branch: Option<String>,
    in_place: bool,
    detach: bool,
    is_detached_child: bool,
    is_json: bool,
    edits: Vec<String>,
}

impl ResumeWords {
    /// # Errors
    /// When no run is named, an option has no value, or options exclude each other.
    pub fn read(words: &[String]) -> Result<Self, Refusal> {
        let options = Options::read(words)?;
        let usage = |message: &str| Refusal::new(Reason::Usage, message);
        let run = options.run.ok_or_else(|| usage("no run is named; `fermata runs` lists them"))?;
        if options.branch.is_some() && options.in_place {
            return Err(usage("--branch and --in-place exclude each other: a branch leaves the run as it is"));
        }
        let has_edits = !options.edits.is_empty();
        let edits = Edits::try_parse_from(options.edits).map_err(|error| usage(&error.to_string()))?;
        Ok(Self {
            run,
            project: options.project.map_or_else(|| TrainConfig::default().project, PathBuf::from),
            from: options.from,
            branch: options.branch,
            in_place: options.in_place,
            detach: options.detach,
            is_detached_child: options.is_detached_child,
            is_json: options.is_json,
            edits: edits.settings,
            has_edits,
        })
    }

    /// Whether the run is simply to go on.
    pub fn is_plain(&self) -> bool {
        self.from.is_none() && self.branch.is_none() && !self.in_place && !self.has_edits
    }

    /// The same words for a process that does not detach.
    pub fn for_child(&self, words: &[String]) -> Vec<String> {
        words.iter().filter(|word| *word != DETACH).cloned().collect()
    }
}

impl Options {
    fn read(words: &[String]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let (key, inline) = split(word);
            let is_flag = word.starts_with("--");
            if options.take_switch(word) {
                continue;
            }
            if let Some(place) = options.place_of(key).filter(|_| is_flag || inline.is_some()) {
                let value = inline.or_else(|| words.next_if(|next| !next.starts_with("--")));
                let missing = || Refusal::new(Reason::BadValue, format!("`--{key}` needs a value"));
                *place = Some(value.filter(|value| !value.is_empty()).ok_or_else(missing)?.to_owned());
            } else if is_flag || inline.is_some() {
                options.edits.push(word.to_owned());
                let takes_next = is_flag && inline.is_none();
                let value = words.next_if(|next| takes_next && is_value_of(key, next));
                options.edits.extend(value.map(str::to_owned));
            } else if options.run.is_none() {
                options.run = Some(word.to_owned());
            } else {
                // Refused as no setting, unless it is a switch.
                options.edits.push(word.to_owned());
            }
        }
        Ok(options)
    }

    fn take_switch(&mut self, word: &str) -> bool {
        let place = match word {
            "--in-place" | "--in_place" => &mut self.in_place,
            DETACH => &mut self.detach,
            DETACHED_CHILD => &mut self.is_detached_child,
            "--json" => &mut self.is_json,
            _ => return false,
        };
        *place = true;
        true
    }

    fn place_of(&mut self, key: &str) -> Option<&mut Option<String>> {
        match key {
            "project" => Some(&mut self.project),
            "from" => Some(&mut self.from),
            "branch" => Some(&mut self.branch),
            _ => None,
        }
    }
}

/// The key, and the value that is joined to it. What is not written like a key is no setting but a path.
fn split(word: &str) -> (&str, Option<&str>) {
    let bare = word.strip_prefix("--").unwrap_or(word);
    let is_key = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    match bare.split_once('=') {
        Some((key, value)) if is_key(key) => (key, Some(value)),
        _ => (bare, None),
    }
}

/// Whether the word after a setting's flag is its value: a switch takes only a word for True or False.
fn is_value_of(key: &str, next: &str) -> bool {
    match TrainConfig::find(key) {
        Some(setting) if setting.accepts == Accepts::Switch => read_switch(next).is_some(),
        _ => !next.starts_with("--"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<ResumeWords, Refusal> {
        ResumeWords::read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_may_come_in_any_order() {
        for line in [
            "exp --from 3 --branch other --epochs 8 --val False lr0=0.5 --project my/runs --detach",
            "--epochs 8 exp lr0=0.5 --from=3 --branch=other project=my/runs --val=False --detach",
            "--detach --project=my/runs --from 3 lr0=0.5 --val False exp epochs=8 branch=other",
            "--val False --branch other --epochs=8 --from 3 --detach --lr0 0.5 exp --project my/runs",
        ] {
            let words = read(line).unwrap();
            assert_eq!((words.run.as_str(), words.project.to_str()), ("exp", Some("my/runs")), "{line}");
            assert_eq!((words.from.as_deref(), words.branch.as_deref()), (Some("3"), Some("other")), "{line}");
            assert!(words.detach && !words.in_place && !words.is_plain(), "{line}");
            let config = words.edits.apply(TrainConfig::default()).unwrap();
            assert_eq!((config.epochs, config.lr0, config.val), (8, 0.5, false), "{line}");
        }
    }

    #[test]
    fn a_run_alone_simply_goes_on() {
        let words = read("exp").unwrap();
        assert!(words.is_plain());
        assert_eq!(words.project.to_str(), Some("runs"));
        assert!(!read("exp --in-place").unwrap().is_plain());
        assert!(!read("exp epochs=9").unwrap().is_plain());
        assert!(read("exp --detach --json").unwrap().is_plain());
    }

    #[test]
    fn a_path_with_an_equals_sign_is_a_run() {
        assert_eq!(read("runs/lr=0.1").unwrap().run, "runs/lr=0.1");
    }

    #[test]
    fn what_is_missing_or_excludes_itself_is_refused() {
        assert_eq!(read("epochs=3").unwrap_err().ending.reason, Reason::Usage);
        assert_eq!(read("exp --from").unwrap_err().message, "`--from` needs a value");
        assert_eq!(read("exp --branch --detach").unwrap_err().ending.reason, Reason::BadValue);
        assert_eq!(read("exp --branch a --in-place").unwrap_err().ending.reason, Reason::Usage);
        let words = read("exp other").unwrap();
        assert_eq!(words.edits.apply(TrainConfig::default()).unwrap_err().reason(), Reason::Usage);
        let words = read("exp --epoch 3").unwrap();
        assert_eq!(words.edits.apply(TrainConfig::default()).unwrap_err().reason(), Reason::UnknownKey);
    }

    #[test]
    fn a_child_gets_the_same_words_without_detaching() {
        let line: Vec<_> = ["exp", "--detach", "epochs=3"].map(str::to_owned).to_vec();
        let mut child = ResumeWords::read(&line).unwrap().for_child(&line);
        assert_eq!(child, ["exp", "epochs=3"]);
        child.push(DETACHED_CHILD.to_owned());
        let words = ResumeWords::read(&child).unwrap();
        assert!(words.is_detached_child && !words.detach);
    }
}
