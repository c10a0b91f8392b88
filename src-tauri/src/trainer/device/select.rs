//! Which of the devices that were found a choice means. Pure: it opens nothing.

use super::{Backend, DeviceChoice, DeviceInfo, DeviceKind, DeviceSurvey};

/// A device that was asked for and cannot be had; the program ends with exit code 69.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// This build was made without the back-end.
    #[error("device {choice} needs a build with the feature `{feature}`; use one that has it, or device=cpu")]
    NotCompiled { choice: DeviceChoice, feature: &'static str },
    /// The machine has no such device, or something it needs is missing.
    #[error("device {choice} is not there: {reasons}; use device=auto or one that `fermata devices` lists")]
    Absent { choice: DeviceChoice, reasons: String },
    /// The device was found, but the first computation on it failed.
    #[error("device {choice} ({name}) failed at its first computation: {reason}; use device=auto or device=cpu")]
    Open { choice: DeviceChoice, name: String, reason: String },
}

/// Whether this build can compute through a back-end; the CPU is always in.
pub fn is_compiled(backend: Backend) -> bool {
    match backend {
        Backend::Cuda => cfg!(feature = "cuda"),
        Backend::Wgpu => cfg!(feature = "wgpu"),
    }
}

/// The devices to try for `choice`, best first. A named device is the only one; for `auto` there is always the CPU at the end.
///
/// # Errors
///
/// When the named device is not in the survey, or this build cannot use it.
pub fn candidates(choice: DeviceChoice, survey: &DeviceSurvey) -> Result<Vec<DeviceInfo>, DeviceError> {
    if choice == DeviceChoice::Auto {
        // Software adapters are slower than the CPU back-end: they must be named.
        return Ok(survey.devices.iter().filter(|device| device.kind != DeviceKind::Software).cloned().collect());
    }
    if let Some(device) = survey.devices.iter().find(|device| device.id == choice) {
        return Ok(vec![device.clone()]);
    }
    let Some(backend) = backend_of(choice) else {
        return Err(DeviceError::Absent { choice, reasons: "the survey does not list it".to_owned() });
    };
    Err(if is_compiled(backend) {
        DeviceError::Absent { choice, reasons: reasons_of_absence(backend, survey) }
    } else {
        DeviceError::NotCompiled { choice, feature: backend.word() }
    })
}

/// The back-end a device is reached through; `None` for `auto` and the CPU.
pub fn backend_of(choice: DeviceChoice) -> Option<Backend> {
    match choice {
        DeviceChoice::Auto | DeviceChoice::Cpu => None,
        DeviceChoice::Cuda { .. } => Some(Backend::Cuda),
        DeviceChoice::Wgpu { .. } | DeviceChoice::WgpuSoftware => Some(Backend::Wgpu),
    }
}

fn reasons_of_absence(backend: Backend, survey: &DeviceSurvey) -> String {
    let obstacles: Vec<&str> = survey
        .obstacles
        .iter()
        .filter(|obstacle| obstacle.backend == backend)
        .map(|obstacle| obstacle.message.as_str())
        .collect();
    if !obstacles.is_empty() {
        return obstacles.join("; ");
    }
    let ids: Vec<String> = survey
        .devices
        .iter()
        .filter(|device| backend_of(device.id) == Some(backend))
        .map(|device| device.id.to_string())
        .collect();
    match ids.is_empty() {
        true => format!("{} shows no device", backend.word()),
        false => format!("{} shows only {}", backend.word(), ids.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::survey::tests::{bare_machine, device};
    use super::*;

    const CUDA: DeviceChoice = DeviceChoice::Cuda { index: 0 };
    const WGPU: DeviceChoice = DeviceChoice::Wgpu { index: 0 };

    /// A machine with an NVIDIA GPU that both back-ends reach, an integrated one and a software adapter.
    fn rich_machine() -> DeviceSurvey {
        let devices = vec![
            device(CUDA, DeviceKind::Discrete),
            device(WGPU, DeviceKind::Discrete),
            device(DeviceChoice::Wgpu { index: 1 }, DeviceKind::Integrated),
            device(DeviceChoice::WgpuSoftware, DeviceKind::Software),
            device(DeviceChoice::Cpu, DeviceKind::Cpu),
        ];
        DeviceSurvey { devices, obstacles: Vec::new() }
    }

    fn ids(devices: Vec<DeviceInfo>) -> Vec<String> {
        devices.into_iter().map(|device| device.id.to_string()).collect()
    }

    #[test]
    fn auto_goes_from_cuda_over_wgpu_to_the_processor_and_never_to_software() {
        let order = candidates(DeviceChoice::Auto, &rich_machine()).unwrap();
        assert_eq!(ids(order), ["cuda:0", "wgpu:0", "wgpu:1", "cpu"]);
    }

    #[test]
    fn a_named_device_is_the_only_candidate() {
        for choice in [CUDA, DeviceChoice::Wgpu { index: 1 }, DeviceChoice::WgpuSoftware, DeviceChoice::Cpu] {
            let order = candidates(choice, &rich_machine()).unwrap();
            assert_eq!(ids(order), [choice.to_string()]);
        }
    }

    #[test]
    fn an_absent_device_is_refused_with_the_reason_and_a_way_out() {
        let error = candidates(CUDA, &bare_machine()).unwrap_err();
        let text = error.to_string();
        let reason = if is_compiled(Backend::Cuda) { "no NVIDIA driver" } else { "feature `cuda`" };
        assert!(text.contains(reason) && text.contains("; use "), "{text}");
    }

    #[test]
    fn the_reason_of_absence_is_the_obstacle_or_else_the_devices_there_are() {
        assert_eq!(reasons_of_absence(Backend::Cuda, &bare_machine()), "no NVIDIA driver");
        assert_eq!(reasons_of_absence(Backend::Cuda, &rich_machine()), "cuda shows only cuda:0");
        assert_eq!(reasons_of_absence(Backend::Wgpu, &DeviceSurvey::default()), "wgpu shows no device");
    }
}
