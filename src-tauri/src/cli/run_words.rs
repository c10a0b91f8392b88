//! Which run a command is about: RUN and the project's folder.

use std::path::{Path, PathBuf};

use clap::Args;

use super::ending::Refusal;
use crate::exit::Reason;
use crate::run::find::{FindError, find_run};
use crate::trainer::run_folder::RunPaths;

/// The words of a command that is about one run.
#[derive(Debug, Args)]
pub struct RunWords {
    /// The run: its name, its id or the first six digits of that or more, or a path.
    #[arg(value_name = "RUN", required = true)]
    words: Vec<String>,
    #[command(flatten)]
    project: ProjectWord,
}

/// Where runs are looked for.
#[derive(Debug, Args)]
pub struct ProjectWord {
    /// Folder that holds the runs; `project=DIR` is the same.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    project: PathBuf,
}

impl RunWords {
    /// The run that the words name; there is no other word beside it.
    ///
    /// # Errors
    /// When there is no such run, or there are other words.
    pub fn find(&self) -> Result<RunPaths, Refusal> {
        let (paths, rest) = self.find_with_rest()?;
        rest.first().map_or(Ok(paths), |word| Err(superfluous(word)))
    }

    /// The run that the first word names, and the words after it.
    ///
    /// # Errors
    /// When there is no such run.
    pub fn find_with_rest(&self) -> Result<(RunPaths, Vec<&str>), Refusal> {
        let (project, mut words) = self.project.split_off(&self.words);
        if words.is_empty() {
            return Err(Refusal::new(Reason::Usage, "no run is named; `fermata runs` lists them"));
        }
        let run = words.remove(0);
        Ok((find_run(run, project)?, words))
    }
}

impl ProjectWord {
    /// The project's folder, and the words that do not name it.
    pub fn split_off<'a>(&'a self, words: &'a [String]) -> (&'a Path, Vec<&'a str>) {
        let named = words.iter().rev().find_map(|word| word.strip_prefix(PROJECT_KEY));
        let rest = words.iter().map(String::as_str).filter(|word| !word.starts_with(PROJECT_KEY)).collect();
        (named.map_or(self.project.as_path(), Path::new), rest)
    }
}

const PROJECT_KEY: &str = "project=";

/// One word too many.
pub fn superfluous(word: &str) -> Refusal {
    Refusal::new(Reason::Usage, format!("`{word}` is one word too many; --help shows what the command takes"))
}

impl From<FindError> for Refusal {
    fn from(error: FindError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::run::timeline::fixture::Run;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunWords,
    }

    fn find(words: &[&str]) -> Result<RunPaths, Refusal> {
        Line::try_parse_from([&["fermata"], words].concat()).unwrap().run.find()
    }

    #[test]
    fn the_project_can_be_named_in_both_ways() {
        let run = Run::of_epochs(1);
        let project = run.project().to_str().unwrap();
        let (word, flag) = (format!("project={project}"), format!("--project={project}"));
        for words in [["exp", &word], [word.as_str(), "exp"], ["exp", &flag], [&flag, "exp"]] {
            assert_eq!(&find(&words).unwrap(), run.paths(), "{words:?}");
        }
        assert_eq!(find(&["exp"]).unwrap_err().ending.reason, Reason::PathMissing, "not in `runs`");
    }

    #[test]
    fn a_second_word_and_no_word_are_refused() {
        let run = Run::of_epochs(1);
        let project = format!("project={}", run.project().to_str().unwrap());
        assert_eq!(find(&["exp", "more", &project]).unwrap_err().ending.reason, Reason::Usage);
        assert_eq!(find(&[&project]).unwrap_err().ending.reason, Reason::Usage);
        assert!(Line::try_parse_from(["fermata"]).is_err());
    }
}
