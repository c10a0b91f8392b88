//! The command line: words to settings, settings to calls, outcomes to an exit code with a last line on stderr.
//!
//! Each command is a thin file: it reads its settings, has them checked in the order of the exit codes, calls what does
//! the work, and prints. Results go to stdout; progress, warnings, the one sentence of a refusal and the exit line to
//! stderr.

mod attach;
mod checkpoints;
mod dataset;
mod demo;
mod devices;
mod ending;
mod figures;
mod pause;
mod predict;
mod print;
mod progress;
mod resume;
mod run_words;
mod runs;
mod screen;
mod settings;
mod status;
mod stop;
mod supervisor;
mod train;
mod val;
mod worker;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::exit::{ExitCode, Reason, exit_line};
use crate::trainer::config::{PredictConfig, TrainConfig, ValConfig};
use ending::{Ending, Refusal};
use settings::{SettingArgs, settings_help};

/// Train YOLO detectors that can be paused, resumed, rewound and branched without losing a step.
#[derive(Parser)]
#[command(name = "fermata", version, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    OfUser(UserCommand),
    /// Train for the supervisor that started this process.
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

#[derive(Subcommand)]
enum UserCommand {
    /// Train a detector. With --detach it goes on in the background, and this returns once it is running.
    #[command(after_help = settings_help::<TrainConfig>(&TrainConfig::default()))]
    Train(SettingArgs),
    /// List the runs of a project.
    Runs(runs::RunsArgs),
    /// Say how a run stands.
    Status(status::StatusArgs),
    /// Pause a run that trains, and give its device back.
    Pause(pause::PauseArgs),
    /// Go on with a run, from its newest checkpoint or an earlier one.
    #[command(after_help = resume::RESUME_HELP)]
    Resume(resume::ResumeArgs),
    /// Save a run and end it; it can be resumed later, and elsewhere.
    Stop(stop::StopArgs),
    /// Follow a run from another terminal.
    Attach(attach::AttachArgs),
    /// Look after the checkpoints of a run.
    #[command(subcommand)]
    Checkpoints(checkpoints::CheckpointsCommand),
    /// Measure a model on a labelled dataset.
    #[command(after_help = settings_help::<ValConfig>(&ValConfig::default()))]
    Val(SettingArgs),
    /// Find objects in images.
    #[command(after_help = settings_help::<PredictConfig>(&PredictConfig::default()))]
    Predict(SettingArgs),
    /// Draw the built-in demo dataset and train on it. Takes the keys of `train`.
    #[command(after_help = settings_help::<TrainConfig>(&demo::defaults()))]
    Demo(SettingArgs),
    /// List the devices that a model can be trained on.
    Devices(devices::DevicesArgs),
    /// Look after datasets.
    #[command(subcommand)]
    Dataset(DatasetCommand),
}

#[derive(Subcommand)]
enum DatasetCommand {
    /// Read a dataset and report what is wrong with it. Exit code 0: it can be trained on; 65: it cannot.
    Check(dataset::CheckArgs),
}

/// Runs the program on its arguments, the program's name first, and gives the code to end with. Has printed the exit
/// line.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = match CommandLine::try_parse_from(args) {
        Ok(line) => line.command,
        Err(error) => return refuse_or_help(&error),
    };
    match command {
        Command::OfUser(command) => match command.asked_for_help() {
            Some(name) => print_help(name),
            None => end(run_or_internal(command)),
        },
        // Its last word is a report to its supervisor, not an exit line.
        Command::Worker(args) => worker::run(&args),
    }
}

/// Runs the command; a panic in it, whose place the panic hook has printed, becomes an internal fault, so that the exit
/// line comes in every case.
fn run_or_internal(command: UserCommand) -> Result<Ending, Refusal> {
    // Nothing of the command is used after a panic but its exit code.
    catch_unwind(AssertUnwindSafe(|| command.run())).unwrap_or_else(|_| {
        Err(Refusal::new(Reason::Internal, "a fault of the program, shown above; what was saved before it is good"))
    })
}

impl UserCommand {
    /// The command's name, if `--help` stands behind its first setting, where clap takes it for one more setting.
    fn asked_for_help(&self) -> Option<&'static str> {
        let (name, args) = match self {
            Self::Train(args) => ("train", args),
            Self::Val(args) => ("val", args),
            Self::Predict(args) => ("predict", args),
            Self::Demo(args) => ("demo", args),
            Self::Resume(args) => return args.has_help().then_some("resume"),
            Self::Runs(_) | Self::Status(_) | Self::Pause(_) | Self::Stop(_) | Self::Attach(_) => return None,
            Self::Checkpoints(_) | Self::Devices(_) | Self::Dataset(_) => return None,
        };
        if args.has_help() { Some(name) } else { None }
    }

    fn run(self) -> Result<Ending, Refusal> {
        match self {
            Self::Train(args) => train::run(&args),
            Self::Val(args) => val::run(&args),
            Self::Predict(args) => predict::run(&args),
            Self::Demo(args) => demo::run(&args),
            Self::Devices(args) => devices::run(&args),
            Self::Dataset(DatasetCommand::Check(args)) => dataset::check(&args),
            Self::Runs(args) => runs::run(&args),
            Self::Status(args) => status::run(&args),
            Self::Pause(args) => pause::run(&args),
            Self::Resume(args) => resume::run(&args),
            Self::Stop(args) => stop::run(&args),
            Self::Attach(args) => attach::run(&args),
            Self::Checkpoints(command) => checkpoints::run(&command),
        }
    }
}

fn print_help(command: &str) -> ExitCode {
    let mut program = CommandLine::command();
    // `build` gives the subcommands their full names in the usage line.
    program.build();
    if let Some(command) = program.find_subcommand_mut(command) {
        // Nothing is lost with a help text.
        let _ = print::out(&command.render_help().to_string());
    }
    ExitCode::Finished
}

/// Prints the sentence of a refusal, and the exit line in any case.
fn end(result: Result<Ending, Refusal>) -> ExitCode {
    let ending = result.unwrap_or_else(|refusal| {
        print::error(&refusal.message);
        refusal.ending
    });
    print::err(&exit_line(ending.reason, ending.checkpoint.as_deref()));
    ending.reason.code()
}

/// What to do when clap has no command for us: help and version are answers, the rest are refusals in one sentence.
fn refuse_or_help(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = print::out(&error.to_string());
            ExitCode::Finished
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            print::err(error.to_string().trim_end());
            end(Ok(Ending::of(Reason::Usage)))
        }
        _ => end(Err(Refusal::new(Reason::Usage, sentence_of(error)))),
    }
}

/// One sentence out of clap's several paragraphs.
fn sentence_of(error: &clap::Error) -> String {
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) {
        let hint = match error.get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(known)) if !known.is_empty() => format!(", did you mean `{}`?", known[0]),
            _ => "; --help lists the commands".to_owned(),
        };
        return format!("unknown command `{name}`{hint}");
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<_> = first.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_of_the_commands_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn an_unknown_command_gets_the_nearest_known_one() {
        let error = CommandLine::try_parse_from(["fermata", "trian"]).err().unwrap();
        assert_eq!(sentence_of(&error), "unknown command `trian`, did you mean `train`?");
    }

    #[test]
    fn a_missing_argument_is_one_sentence() {
        let error = CommandLine::try_parse_from(["fermata", "dataset", "check"]).err().unwrap();
        assert_eq!(sentence_of(&error), "the following required arguments were not provided: <DATA>");
    }
}
