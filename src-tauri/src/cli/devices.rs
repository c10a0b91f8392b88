//! `fermata devices`.

use clap::{Args, ValueEnum};

use super::ending::{Ending, Refusal};
use super::print;
use crate::exit::Reason;
use crate::trainer::device::{Backend, ProbeCommand, answer_as_child};

#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Print one JSON object: {"devices":[..],"obstacles":[..]}.
    #[arg(long)]
    json: bool,
    /// Ask one driver and print the answer, in a process that may crash: the program calls itself so.
    #[arg(long, hide = true, value_name = "BACKEND")]
    probe_child: Option<BackendWord>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BackendWord {
    Cuda,
    Wgpu,
}

pub fn run(args: &DevicesArgs) -> Result<Ending, Refusal> {
    match args.probe_child {
        Some(BackendWord::Cuda) => answer_as_child(Backend::Cuda),
        Some(BackendWord::Wgpu) => answer_as_child(Backend::Wgpu),
        None => list_devices(args.json)?,
    }
    Ok(Ending::of(Reason::Finished))
}

fn list_devices(is_json: bool) -> Result<(), Refusal> {
    let probe = ProbeCommand::this_program()
        .map_err(|error| Refusal::new(Reason::Internal, format!("cannot find this program's own file: {error}")))?;
    let survey = probe.survey();
    if is_json {
        return print::json(&survey);
    }
    print::out(&survey.table())?;
    Ok(())
}
