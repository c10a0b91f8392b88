//! `fermata worker`: the process that owns the device. Supervisors start it; it is not for people.

use clap::Args;

use super::print;
use crate::exit::ExitCode;
use crate::run::signals::Signals;
use crate::worker::serve::serve;

#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// Where the supervisor listens.
    #[arg(long)]
    connect: String,
    /// By which the supervisor knows its worker.
    #[arg(long)]
    token: String,
}

/// Trains as the supervisor wants. Signals are for the supervisor: a scheduler that sends them to every process of a job must not end the
/// worker before it has saved.
pub fn run(args: &WorkerArgs) -> ExitCode {
    match Signals::install() {
        Ok(_caught) => serve(&args.connect, &args.token),
        Err(error) => {
            print::error(&format!("signals cannot be caught: {error}"));
            ExitCode::Internal
        }
    }
}
