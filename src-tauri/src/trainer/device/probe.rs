//! Asks the drivers of this machine in a process of their own, one for each back-end.
//!
//! Loading a driver runs foreign code that can crash or hang, so a child does it under a time limit and prints what it
//! found as one marked line of JSON. A child that dies or stays silent is an obstacle like any other.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::{Backend, DeviceSurvey, ObstacleCode, cpu, cuda};

/// The hidden option of `fermata devices` that makes it such a child; its value is the back-end to ask.
pub const CHILD_OPTION: &str = "--probe-child";
/// How long a driver may take to answer. A card that was asleep needs some seconds.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// What the line with the answer begins with, since drivers print lines of their own.
const ANSWER_MARK: &str = "fermata-devices ";

/// How to start the process that asks one back-end's driver.
#[derive(Debug, Clone)]
pub struct ProbeCommand {
    pub program: PathBuf,
    /// Arguments before the back-end's word.
    pub args: Vec<OsString>,
    /// After this time the child is ended and counted as silent.
    pub limit: Duration,
}

impl ProbeCommand {
    /// This program itself, as `fermata devices --probe-child BACKEND`.
    ///
    /// # Errors
    ///
    /// When the system does not tell where the program lies.
    pub fn this_program() -> std::io::Result<Self> {
        let args = vec![OsString::from("devices"), OsString::from(CHILD_OPTION)];
        Ok(Self { program: std::env::current_exe()?, args, limit: ANSWER_LIMIT })
    }

    /// Asks every back-end of this build at once and adds the processor.
    pub fn survey(&self) -> DeviceSurvey {
        // Both are started before the first answer is waited for.
        let cuda = self.start(Backend::Cuda);
        let wgpu = self.start(Backend::Wgpu);
        let gpus = self.answer(Backend::Cuda, cuda).followed_by(self.answer(Backend::Wgpu, wgpu));
        gpus.followed_by(processor_only())
    }

    fn start(&self, backend: Backend) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).arg(backend.word());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    }

    fn answer(&self, backend: Backend, child: std::io::Result<Child>) -> DeviceSurvey {
        child
            .map_err(|error| format!("the process that asks the driver did not start ({error})"))
            .and_then(|child| wait_for_answer(child, self.limit))
            .unwrap_or_else(|reason| DeviceSurvey::blocked(backend, ObstacleCode::ProbeFailed, reason))
    }
}

/// The survey of a machine of whose GPUs nothing is asked.
pub fn processor_only() -> DeviceSurvey {
    DeviceSurvey { devices: vec![cpu::processor()], obstacles: Vec::new() }
}

/// What the child does: asks one back-end and prints the answer on stdout. The drivers' crash is this process's crash.
pub fn answer_as_child(backend: Backend) {
    let survey = match backend {
        Backend::Cuda => usable_by_build(cuda::survey(std::env::var_os("CUDA_PATH").map(PathBuf::from))),
        Backend::Wgpu => wgpu_survey(),
    };
    match serde_json::to_string(&survey) {
        Ok(json) => println!("{ANSWER_MARK}{json}"),
        Err(error) => eprintln!("cannot write the answer: {error}"),
    }
}

/// The survey as it is, or an obstacle in place of the devices if this build cannot use CUDA.
fn usable_by_build(survey: DeviceSurvey) -> DeviceSurvey {
    if cfg!(feature = "cuda") {
        return survey;
    }
    let names: Vec<&str> = survey.devices.iter().map(|device| device.name.as_str()).collect();
    let seen = if names.is_empty() { String::new() } else { format!(" for {}", names.join(", ")) };
    let message = format!("this build has no CUDA{seen}; use one with the feature `cuda`");
    DeviceSurvey::blocked(Backend::Cuda, ObstacleCode::NotCompiled, message)
}

#[cfg(feature = "wgpu")]
fn wgpu_survey() -> DeviceSurvey {
    super::adapters::survey()
}

#[cfg(not(feature = "wgpu"))]
fn wgpu_survey() -> DeviceSurvey {
    let message = "this build has no wgpu; use one with the feature `wgpu`";
    DeviceSurvey::blocked(Backend::Wgpu, ObstacleCode::NotCompiled, message)
}

/// Waits for the marked line, the end of the output or the limit, whichever comes first, and ends the child.
///
/// An answer counts even if the driver crashes or hangs afterwards, while it is unloaded.
fn wait_for_answer(mut child: Child, limit: Duration) -> Result<DeviceSurvey, String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        // The thread ends with the child's output, at the latest when the child is ended below.
        std::thread::spawn(move || sender.send(first_answer(stdout)));
    }
    let answer = receiver.recv_timeout(limit);
    // A child that is gone already is no error here.
    let _ = child.kill();
    let status = child.wait();
    match (answer, status) {
        (Ok(Some(survey)), _) => Ok(survey),
        (Err(mpsc::RecvTimeoutError::Timeout), _) => {
            Err(format!("the driver did not answer within {} s; update or remove it", limit.as_secs_f64()))
        }
        (_, Ok(status)) => {
            Err(format!("loading the driver ended the process that tried it ({status}); update or remove the driver"))
        }
        (_, Err(error)) => Err(format!("the process that asks the driver was lost ({error})")),
    }
}

fn first_answer(output: impl Read) -> Option<DeviceSurvey> {
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|n_bytes| n_bytes > 0) {
        if let Some(json) = line.strip_prefix(ANSWER_MARK.as_bytes()) {
            return serde_json::from_slice(json).ok();
        }
        line.clear();
    }
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A stand-in for the program: a shell line that gets the back-end's word as `$0`.
    fn shell(line: &str, limit: Duration) -> ProbeCommand {
        let args = vec![OsString::from("-c"), OsString::from(line)];
        ProbeCommand { program: PathBuf::from("/bin/sh"), args, limit }
    }

    fn messages(survey: &DeviceSurvey) -> Vec<&str> {
        survey.obstacles.iter().map(|obstacle| obstacle.message.as_str()).collect()
    }

    #[test]
    fn the_marked_line_is_the_answer_whatever_else_a_driver_prints() {
        let gpu = super::super::survey::tests::device(
            super::super::DeviceChoice::Cuda { index: 0 },
            super::super::DeviceKind::Discrete,
        );
        let found = DeviceSurvey { devices: vec![gpu.clone()], obstacles: Vec::new() };
        let json = serde_json::to_string(&found).unwrap();
        let line = format!("echo noise; [ $0 = cuda ] && echo '{ANSWER_MARK}{json}'; echo more");
        let survey = shell(&line, ANSWER_LIMIT).survey();
        assert_eq!(survey.devices.first(), Some(&gpu));
        assert_eq!(survey.devices.last().map(|device| device.id), Some(super::super::DeviceChoice::Cpu));
        assert_eq!(survey.obstacles.len(), 1, "wgpu's child gave no answer");
    }

    #[test]
    fn a_crash_is_an_obstacle() {
        let survey = shell("kill -SEGV $$", ANSWER_LIMIT).survey();
        assert_eq!(survey.devices.len(), 1, "the processor is always there");
        assert!(messages(&survey)[0].contains("ended the process"), "{:?}", messages(&survey));
        assert!(survey.obstacles.iter().all(|obstacle| obstacle.code == ObstacleCode::ProbeFailed));
    }

    #[test]
    fn silence_ends_at_the_limit() {
        let survey = shell("exec sleep 600", Duration::from_millis(50)).survey();
        assert_eq!(messages(&survey), ["the driver did not answer within 0.05 s; update or remove it"; 2]);
    }

    #[test]
    fn a_program_that_does_not_start_is_an_obstacle() {
        let command = ProbeCommand { program: "/no/such/program".into(), args: Vec::new(), limit: ANSWER_LIMIT };
        assert!(messages(&command.survey())[0].contains("did not start"));
    }
}
