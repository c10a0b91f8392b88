//! A check made of stages: each is one command, timed, and the first that fails ends the check.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

/// One command of a check.
pub struct Stage {
    pub name: &'static str,
    pub command: Command,
}

/// Why a command of this program did not end well.
#[derive(Debug)]
pub enum StageError {
    /// The command of a stage ended with a fault, which it has printed itself.
    Failed { stage: &'static str, command: String },
    /// A program could not be started.
    NotStarted { command: String, reason: std::io::Error },
    /// Something that the machine lacks, with the way out.
    Missing(String),
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { stage, command } => write!(f, "stage `{stage}` failed; run it alone with: {command}"),
            Self::NotStarted { command, reason } => write!(f, "`{command}` could not be started: {reason}"),
            Self::Missing(what) => f.write_str(what),
        }
    }
}

/// How a stage ended and how long it took.
struct Entry {
    name: &'static str,
    result: StageResult,
}

enum StageResult {
    Passed(Duration),
    Failed(Duration),
    NotRun,
}

/// Runs the stages in order, stops after the first failure, and prints a table of their times in any case.
///
/// # Errors
///
/// The first stage that failed or could not be started.
pub fn run(stages: Vec<Stage>) -> Result<(), StageError> {
    let begin = Instant::now();
    let mut entries = Vec::new();
    let mut failure = None;
    for stage in stages {
        let name = stage.name;
        if failure.is_some() {
            entries.push(Entry { name, result: StageResult::NotRun });
            continue;
        }
        let (outcome, duration) = run_timed(stage);
        let result = if outcome.is_ok() { StageResult::Passed(duration) } else { StageResult::Failed(duration) };
        entries.push(Entry { name, result });
        failure = outcome.err();
    }
    println!("\n{}", table(&entries, begin.elapsed()));
    failure.map_or(Ok(()), Err)
}

fn run_timed(mut stage: Stage) -> (Result<(), StageError>, Duration) {
    let text = shown(&stage.command);
    println!("\n== {}: {text}", stage.name);
    let begin = Instant::now();
    let outcome = match stage.command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(StageError::Failed { stage: stage.name, command: text }),
        Err(reason) => Err(StageError::NotStarted { command: text, reason }),
    };
    let duration = begin.elapsed();
    println!("== {}: {}", stage.name, seconds(duration));
    (outcome, duration)
}

/// The command as one would type it, with the variables that were set for it.
pub fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}={:?}", name.to_string_lossy(), value.to_string_lossy()))
    });
    let program = std::path::Path::new(command.get_program()).file_stem().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy().into_owned());
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

fn table(entries: &[Entry], total: Duration) -> String {
    let name_width = entries.iter().map(|entry| entry.name.len()).chain(["total".len()]).max().unwrap_or(0);
    let mut lines: Vec<String> = entries
        .iter()
        .map(|entry| match entry.result {
            StageResult::Passed(time) => format!("{:name_width$}  {:>9}  passed", entry.name, seconds(time)),
            StageResult::Failed(time) => format!("{:name_width$}  {:>9}  FAILED", entry.name, seconds(time)),
            StageResult::NotRun => format!("{:name_width$}  {:>9}  not run", entry.name, "-"),
        })
        .collect();
    lines.push(format!("{:name_width$}  {:>9}", "total", seconds(total)));
    lines.join("\n")
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_a_stage_a_line_and_the_total() {
        let entries = [
            Entry { name: "format", result: StageResult::Passed(Duration::from_millis(1500)) },
            Entry { name: "clippy", result: StageResult::Failed(Duration::from_secs(100)) },
            Entry { name: "test", result: StageResult::NotRun },
        ];
        let text = table(&entries, Duration::from_millis(101_500));
        let expected = "\
format      1.5 s  passed
clippy    100.0 s  FAILED
test            -  not run
total     101.5 s";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_command_is_shown_with_its_variables_and_without_folders() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--quiet"]).env("CI", "true");
        assert_eq!(shown(&command), "CI=\"true\" cargo test --quiet");
    }
}
