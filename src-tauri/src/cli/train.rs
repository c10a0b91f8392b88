//! `fermata train`: this process becomes the supervisor of a new run. Also how every other command becomes one.

use std::ffi::OsString;
use std::path::PathBuf;

use super::ending::{Ending, Refusal};
use super::print;
use super::screen::Screen;
use super::settings::SettingArgs;
use crate::exit::Reason;
use crate::run::detach::{Away, DETACHED_CHILD, DetachError, Detached, let_go, reopen_log, start_detached};
use crate::run::machine::StateWord;
use crate::run::signals::Signals;
use crate::run::supervise::{Outcome, Shown, Sitting, supervise};
use crate::trainer::config::{ImgszRounded, TrainConfig};
use crate::trainer::run_folder::{RunFolder, RunPaths, RunRecord};
use crate::trainer::{TrainError, check_beginning};
use crate::worker::process::OwnProgram;

/// By which a command goes on in the background.
pub const DETACH: &str = "--detach";

/// Where a supervisor prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// It is this command's.
    Kept,
    /// It is let go of once the run trains.
    LetGo,
}

pub fn run(args: &SettingArgs) -> Result<Ending, Refusal> {
    begin("train", args, |args| args.apply(TrainConfig::default()).map_err(Refusal::from))
}

/// Begins a run with the settings that `configure` makes of the words, here or in the background.
pub fn begin(
    command: &str,
    args: &SettingArgs,
    configure: impl FnOnce(&SettingArgs) -> Result<TrainConfig, Refusal>,
) -> Result<Ending, Refusal> {
    if let Some(rest) = args.without(DETACH) {
        let words = std::iter::once(command).chain(rest.words());
        return run_detached(words.map(OsString::from).collect());
    }
    // The first thing, so that no signal from now on is lost.
    let signals = catch_signals()?;
    let (args, terminal) = match args.without(DETACHED_CHILD) {
        Some(rest) => (rest, Terminal::LetGo),
        None => (args.clone(), Terminal::Kept),
    };
    let mut config = configure(&args)?;
    warn_if_rounded(config.check()?);
    // So that the run can be resumed from anywhere.
    config.data = std::path::absolute(&config.data).unwrap_or(config.data);
    let folder = RunFolder::create(&config).map_err(|error| earlier_fault(&config).unwrap_or_else(|| error.into()))?;
    let record = RunRecord::of_a_beginning(folder.paths().root(), config.seed);
    run_sitting(Sitting { folder, record, config, from: None, is_beginning: true }, signals, terminal)
}

/// A run without a folder does not begin, but of several faults the first in the order of the exit codes is told.
fn earlier_fault(config: &TrainConfig) -> Option<Refusal> {
    check_beginning(config).err().map(Refusal::from)
}

/// From now on signals are the supervisor's.
pub fn catch_signals() -> Result<Signals, Refusal> {
    Signals::install().map_err(|error| Refusal::new(Reason::Internal, format!("signals cannot be caught: {error}")))
}

/// Becomes the supervisor of a run, showing its progress, until it ends.
pub fn run_sitting(sitting: Sitting, signals: Signals, terminal: Terminal) -> Result<Ending, Refusal> {
    let mut program = OwnProgram::find()
        .map_err(|error| Refusal::new(Reason::Internal, format!("cannot find this program's own file: {error}")))?;
    let paths = sitting.folder.paths().clone();
    let screen = Screen::new();
    let mut is_held = terminal == Terminal::LetGo;
    let outcome = supervise(sitting, signals, &mut program, &mut |shown| match shown {
        Shown::Event(event) => screen.show(event),
        Shown::State(report) => {
            // A pause that was asked for during the start is reached without training before.
            if is_held && matches!(report.state, StateWord::Running | StateWord::Paused) {
                is_held = false;
                told(let_go(&log(&paths), &Away { run: paths.root().to_owned(), state: report.state }));
            }
        }
        Shown::LogsMoved => {
            if terminal == Terminal::LetGo && !is_held {
                told(reopen_log(&log(&paths)));
            }
        }
    });
    screen.end();
    ended(outcome, &paths)
}

/// Starts this program again with these words, in the background, and returns once it trains or has ended.
pub fn run_detached(words: Vec<OsString>) -> Result<Ending, Refusal> {
    match start_detached(&words)? {
        Detached::Away(Away { run, .. }) => {
            print::out(&format!("training in the background, into {}", run.display()))?;
            Ok(Ending::of(Reason::Finished))
        }
        // It has said why, with an exit line of its own.
        Detached::Ended { code: Some(code) } => std::process::exit(code),
        Detached::Ended { code: None } => {
            Err(Refusal::new(Reason::Internal, "the process in the background was ended by a signal"))
        }
    }
}

/// What a supervisor without a terminal prints.
fn log(paths: &RunPaths) -> PathBuf {
    paths.logs().join("supervisor.log")
}

fn told(result: Result<(), DetachError>) {
    if let Err(error) = result {
        print::warning(&error.to_string());
    }
}

fn ended(outcome: Outcome, paths: &RunPaths) -> Result<Ending, Refusal> {
    let Outcome { reason, message, checkpoint } = outcome;
    let ending = Ending { reason, checkpoint };
    match (reason, message) {
        (Reason::Finished | Reason::Patience, _) => {
            // The run has finished, whether or not somebody still reads.
            let _ = print::out(&format!("results are in {}", paths.root().display()));
            Ok(ending)
        }
        (Reason::Stopped | Reason::Terminated, message) => {
            if let Some(message) = message {
                print::warning(&message);
            }
            if paths.run_json().exists() {
                print::err(&format!("`fermata resume {}` goes on", paths.root().display()));
            }
            Ok(ending)
        }
        (_, message) => Err(Refusal { ending, message: message.unwrap_or_else(|| "the run has failed".to_owned()) }),
    }
}

/// Says that the size is not the one that was asked for.
pub fn warn_if_rounded(rounded: Option<ImgszRounded>) {
    if let Some(rounded) = rounded {
        print::warning(&rounded.to_string());
    }
}

impl From<TrainError> for Refusal {
    fn from(error: TrainError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

impl From<DetachError> for Refusal {
    fn from(error: DetachError) -> Self {
        Self::new(Reason::Internal, error.to_string())
    }
}
