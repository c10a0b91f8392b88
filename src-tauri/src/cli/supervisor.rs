//! Talking to the supervisor of a run, for the commands that need one.

use super::ending::{Ending, Refusal};
use super::status::state_words;
use crate::exit::Reason;
use crate::run::client::{Client, ClientError};
use crate::run::find::{RunState, state_of};
use crate::trainer::run_folder::RunPaths;

/// The supervisor of a run.
///
/// # Errors
/// When nobody is there: the refusal names the state that the run was left in.
pub fn connect(paths: &RunPaths) -> Result<Client, Refusal> {
    match Client::connect(paths) {
        Ok(client) => Ok(client),
        Err(ClientError::NobodyThere) => Err(not_running(paths)?),
        Err(error) => Err(error.into()),
    }
}

/// The run is in another state than was asked for: it has ended, or somebody else wants otherwise.
pub fn not_reached(state: &RunState, wanted: &str) -> Refusal {
    let message = state.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
    let reason = state.reason.as_deref().and_then(Reason::from_word).unwrap_or(Reason::Contradiction);
    let message = format!("run `{}` is {}, not {wanted}{message}", state.name, state_words(state));
    Refusal { ending: Ending { reason, checkpoint: state.checkpoint.clone() }, message }
}

fn not_running(paths: &RunPaths) -> Result<Refusal, Refusal> {
    let state = state_of(paths)?;
    let message = format!("run `{}` is not running ({})", state.name, state_words(&state));
    let mut refusal = Refusal::new(Reason::Contradiction, message);
    refusal.ending.checkpoint = state.checkpoint;
    Ok(refusal)
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Self {
        let reason = if let ClientError::Refused { .. } = error { Reason::Contradiction } else { Reason::Io };
        Self::new(reason, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timeline::fixture::Run;

    #[test]
    fn a_run_without_supervisor_is_refused_with_its_state() {
        let run = Run::of_epochs(1);
        run.set_record(|record| record.reason = Some("terminated".to_owned()));
        let refusal = connect(run.paths()).err().unwrap();
        assert_eq!(refusal.message, "run `exp` is not running (stopped (terminated))");
        assert_eq!(refusal.ending.reason, Reason::Contradiction);
        assert_eq!(refusal.ending.checkpoint, Some(run.checkpoint(1).path));
    }
}
