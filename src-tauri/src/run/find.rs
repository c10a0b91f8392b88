//! The runs of a project: found by what a user calls them, listed, and looked at, whether somebody is there or not.

mod position;
mod state;
mod summary;

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::checkpoint::StoreError;
use crate::exit::Reason;
use crate::trainer::config::nearest;
use crate::trainer::run_folder::{FileLock, RunFolderError, RunPaths, RunRecord};

pub use position::position_of;
pub use state::{RunState, state_by, state_of};
pub use summary::{BestEpoch, RunSummary, list_runs};

/// Fewer digits of an id may also be a name, or belong to several runs.
const MIN_ID_DIGITS: usize = 6;

/// A run was not found, or what is in its folder cannot be read.
#[derive(Debug, Error)]
pub enum FindError {
    #[error("there is no run `{text}` in `{}`{}", .project.display(), did_you_mean(.nearest))]
    NoSuchRun { text: String, project: PathBuf, nearest: Option<String> },
    #[error("`{}` holds no run; its folder has a run.json", .path.display())]
    NotARun { path: PathBuf },
    #[error("the id `{text}` may be that of {}; give more of its digits", .names.join(" or "))]
    SeveralRuns { text: String, names: Vec<String> },
    #[error(transparent)]
    Folder(#[from] RunFolderError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn did_you_mean(nearest: &Option<String>) -> String {
    let hint = "; `fermata runs` lists them, and project= names another folder";
    nearest.as_ref().map_or_else(|| hint.to_owned(), |name| format!(", did you mean `{name}`?"))
}

impl FindError {
    /// What the process ends with when this ends it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoSuchRun { .. } | Self::NotARun { .. } => Reason::PathMissing,
            Self::SeveralRuns { .. } => Reason::Usage,
            Self::Folder(error) => error.reason(),
            Self::Store(error) => error.reason(),
        }
    }
}

/// The run that `text` names: a folder's name in `project`, an id or the beginning of one, or a path.
///
/// # Errors
/// When there is none, or several have ids that begin so.
pub fn find_run(text: &str, project: &Path) -> Result<RunPaths, FindError> {
    let is_name = !text.is_empty() && !text.contains(['/', '\\']) && text != "." && text != "..";
    let named = RunPaths::of(project.join(text));
    if is_name && is_run(&named) {
        return Ok(named);
    }
    let by_id = runs_by_id(text, project)?;
    match by_id.as_slice() {
        [run] => return Ok(run.clone()),
        [] => {}
        several => {
            let names = several.iter().map(RunPaths::name).collect();
            return Err(FindError::SeveralRuns { text: text.to_owned(), names });
        }
    }
    let path = RunPaths::of(text);
    if is_run(&path) {
        return Ok(path);
    }
    let folder = [named, path].into_iter().find(|paths| !text.is_empty() && paths.root().is_dir());
    Err(folder.map_or_else(|| no_such_run(text, project), |paths| FindError::NotARun { path: paths.root().to_owned() }))
}

/// A folder is a run from its first `run.json`, and already while its supervisor prepares it.
fn is_run(paths: &RunPaths) -> bool {
    paths.run_json().is_file() || FileLock::is_held(&paths.supervisor_lock())
}

fn runs_by_id(text: &str, project: &Path) -> Result<Vec<RunPaths>, FindError> {
    let text = text.to_ascii_lowercase();
    if text.len() < MIN_ID_DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Vec::new());
    }
    let mut runs = runs_in(project)?;
    // A run whose file cannot be read has no id to be found by.
    runs.retain(|paths| RunRecord::read(&paths.run_json()).is_ok_and(|record| record.id.starts_with(&text)));
    Ok(runs)
}

fn no_such_run(text: &str, project: &Path) -> FindError {
    // The error to tell is that there is no such run; without a readable folder there is nothing to suggest.
    let names: Vec<_> = runs_in(project).unwrap_or_default().iter().map(RunPaths::name).collect();
    let nearest = nearest(text, names.iter().map(String::as_str)).map(ToOwned::to_owned);
    FindError::NoSuchRun { text: text.to_owned(), project: project.to_owned(), nearest }
}

/// Every run in a project, by name; none if there is no such folder. Folders that begin with a dot are not complete.
fn runs_in(project: &Path) -> Result<Vec<RunPaths>, RunFolderError> {
    let fault = |error| RunFolderError::io(project, error);
    let entries = match fs::read_dir(project) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        entries => entries.map_err(fault)?,
    };
    let mut runs = Vec::new();
    for entry in entries {
        let paths = RunPaths::of(entry.map_err(fault)?.path());
        let is_hidden = paths.root().file_name().is_none_or(begins_with_a_dot);
        if !is_hidden && is_run(&paths) {
            runs.push(paths);
        }
    }
    runs.sort_by_key(RunPaths::name);
    Ok(runs)
}

fn begins_with_a_dot(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timeline::fixture::{Run, record};

    fn add(run: &Run, name: &str, id: &str) {
        let paths = run.beside(name);
        fs::create_dir(paths.root()).unwrap();
        record(id).write(&paths.run_json()).unwrap();
    }

    #[test]
    fn a_run_is_found_by_name_id_and_path() {
        let run = Run::of_epochs(1);
        add(&run, "other", "fedcba9876543210");
        for text in ["exp", "0123456789abcdef", "012345", run.paths().root().to_str().unwrap()] {
            assert_eq!(&find_run(text, run.project()).unwrap(), run.paths(), "{text}");
        }
        assert_eq!(find_run("FEDCBA", run.project()).unwrap().name(), "other");
        let elsewhere = run.outside().join("nowhere");
        assert_eq!(&find_run(run.paths().root().to_str().unwrap(), &elsewhere).unwrap(), run.paths());
    }

    #[test]
    fn a_name_comes_before_an_id() {
        let run = Run::of_epochs(1);
        add(&run, "012345", "fedcba9876543210");
        assert_eq!(find_run("012345", run.project()).unwrap().name(), "012345");
    }

    #[test]
    fn an_id_of_two_runs_needs_more_digits() {
        let run = Run::of_epochs(1);
        add(&run, "copy", "0123456789ffffff");
        let error = find_run("0123456789", run.project()).unwrap_err();
        assert_eq!(error.to_string(), "the id `0123456789` may be that of copy or exp; give more of its digits");
        assert_eq!(find_run("0123456789f", run.project()).unwrap().name(), "copy");
        assert!(matches!(find_run("01234", run.project()), Err(FindError::NoSuchRun { .. })), "too few digits");
    }

    #[test]
    fn a_wrong_name_gets_the_nearest_one() {
        let run = Run::of_epochs(1);
        let error = find_run("exq", run.project()).unwrap_err();
        assert!(error.to_string().ends_with(", did you mean `exp`?"), "{error}");
        assert_eq!(error.reason(), Reason::PathMissing);
        let error = find_run("zzz", run.project()).unwrap_err();
        assert!(error.to_string().contains("`fermata runs` lists them"), "{error}");
        for text in ["", "..", ".", "../x"] {
            assert!(find_run(text, run.project()).is_err(), "`{text}`");
        }
    }

    #[test]
    fn a_folder_without_a_run_is_told_as_such_until_a_supervisor_holds_it() {
        let run = Run::of_epochs(1);
        let paths = run.beside("empty");
        fs::create_dir(paths.root()).unwrap();
        assert!(matches!(find_run("empty", run.project()), Err(FindError::NotARun { .. })));
        let _lock = FileLock::take(&paths.supervisor_lock()).unwrap();
        assert_eq!(find_run("empty", run.project()).unwrap(), paths);
    }
}
