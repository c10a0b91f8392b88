//! From a choice to a burn device that has computed something.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use burn::tensor::Device;

use super::probe::{ProbeCommand, processor_only};
use super::select::{backend_of, candidates};
use super::{Backend, DeviceChoice, DeviceError, DeviceInfo, DeviceSurvey, Obstacle, ObstacleCode};

/// A device that is ready to compute, without autodiff.
#[derive(Debug)]
pub struct OpenDevice {
    pub device: Device,
    pub info: DeviceInfo,
    /// For `auto`: why better devices were passed over. Empty for a named device.
    pub fallbacks: Vec<Obstacle>,
}

/// Opens the device that `choice` means. A GPU has run one small kernel when this returns.
///
/// The drivers are asked in processes that `probe` starts; `cpu` asks none. `cache_dir` is this program's folder in the
/// user's cache, where what the GPU runtime learns is kept. The first GPU that a process opens settles the runtime's
/// settings for good, so a process should open one device.
///
/// # Errors
///
/// When the named device is not compiled in, not there, or fails at its first computation. `auto` never fails.
pub fn open(choice: DeviceChoice, probe: &ProbeCommand, cache_dir: &Path) -> Result<OpenDevice, DeviceError> {
    let survey = if choice == DeviceChoice::Cpu { processor_only() } else { probe.survey() };
    open_from(choice, &survey, cache_dir)
}

/// Like [`open`], with a survey that was made before.
///
/// # Errors
///
/// Those of [`open`].
pub fn open_from(choice: DeviceChoice, survey: &DeviceSurvey, cache_dir: &Path) -> Result<OpenDevice, DeviceError> {
    let mut fallbacks = if choice == DeviceChoice::Auto { survey.obstacles.clone() } else { Vec::new() };
    let mut refusal = None;
    for info in candidates(choice, survey)? {
        match ready_device(&info, survey, cache_dir) {
            Ok(device) => return Ok(OpenDevice { device, info, fallbacks }),
            Err(reason) => {
                let message = format!("{} ({}) failed at its first computation: {reason}", info.id, info.name);
                fallbacks.extend(backend_of(info.id).map(|backend| Obstacle {
                    backend,
                    code: ObstacleCode::OpenFailed,
                    message,
                }));
                refusal = Some(DeviceError::Open { choice: info.id, name: info.name, reason });
            }
        }
    }
    let none = || DeviceError::Absent { choice, reasons: "no device was found".to_owned() };
    Err(refusal.unwrap_or_else(none))
}

/// The burn device of `info`, after a first computation if it is a GPU.
fn ready_device(info: &DeviceInfo, survey: &DeviceSurvey, cache_dir: &Path) -> Result<Device, String> {
    let Some(backend) = backend_of(info.id) else { return Ok(Device::flex()) };
    match backend {
        Backend::Cuda => ready_cuda(info, cache_dir),
        Backend::Wgpu => ready_wgpu(info, survey, cache_dir),
    }
}

#[cfg(feature = "cuda")]
fn ready_cuda(info: &DeviceInfo, cache_dir: &Path) -> Result<Device, String> {
    let DeviceChoice::Cuda { index } = info.id else { return Err("no CUDA device".to_owned()) };
    super::runtime::configure(info.kind, cache_dir);
    checked(|| Device::cuda(index))
}

#[cfg(not(feature = "cuda"))]
fn ready_cuda(_info: &DeviceInfo, _cache_dir: &Path) -> Result<Device, String> {
    Err("this build has no cuda".to_owned())
}

#[cfg(feature = "wgpu")]
fn ready_wgpu(info: &DeviceInfo, survey: &DeviceSurvey, cache_dir: &Path) -> Result<Device, String> {
    use super::DeviceKind;
    use burn::tensor::DeviceKind as BurnKind;

    // burn counts the adapters of each kind by themselves.
    let same_kind =
        survey.devices.iter().filter(|other| backend_of(other.id) == Some(Backend::Wgpu) && other.kind == info.kind);
    let index = same_kind.take_while(|other| other.id != info.id).count();
    let kind = match info.kind {
        DeviceKind::Discrete => BurnKind::DiscreteGpu(index),
        DeviceKind::Integrated => BurnKind::IntegratedGpu(index),
        DeviceKind::Virtual => BurnKind::VirtualGpu(index),
        DeviceKind::Software | DeviceKind::Cpu => BurnKind::Cpu,
    };
    super::runtime::configure(info.kind, cache_dir);
    checked(|| Device::wgpu(kind))
}

#[cfg(not(feature = "wgpu"))]
fn ready_wgpu(_info: &DeviceInfo, _survey: &DeviceSurvey, _cache_dir: &Path) -> Result<Device, String> {
    Err("this build has no wgpu".to_owned())
}

/// Runs one kernel on the device and reads its result back, since burn opens a device at its first use and panics there.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn checked(device: impl FnOnce() -> Device) -> Result<Device, String> {
    use burn::tensor::Tensor;

    let first_use = || {
        let device = device();
        // Waits for the device: that is the point.
        let sum = Tensor::<1>::from_floats([1.0, 2.0], &device).mul_scalar(2.0).into_data();
        (device, sum)
    };
    let (device, doubled) = catch_unwind(AssertUnwindSafe(first_use)).map_err(|panic| text_of(panic.as_ref()))?;
    match doubled.as_slice::<f32>() {
        Ok([2.0, 4.0]) => Ok(device),
        other => Err(format!("2 x [1, 2] gave {other:?}")),
    }
}

/// The message that a panic was raised with.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::device::survey::tests::bare_machine;

    #[test]
    fn the_processor_opens_without_asking_any_driver() {
        let no_program =
            ProbeCommand { program: "/no/such/program".into(), args: Vec::new(), limit: std::time::Duration::ZERO };
        let opened = open(DeviceChoice::Cpu, &no_program, Path::new("unused")).unwrap();
        assert_eq!(opened.info.id, DeviceChoice::Cpu);
        assert_eq!(opened.fallbacks, []);
        assert_eq!(opened.device, Device::flex());
    }

    #[test]
    fn auto_on_a_bare_machine_is_the_processor_with_a_reason_for_each_back_end() {
        let opened = open_from(DeviceChoice::Auto, &bare_machine(), Path::new("unused")).unwrap();
        assert_eq!(opened.info.id, DeviceChoice::Cpu);
        let backends: Vec<Backend> = opened.fallbacks.iter().map(|obstacle| obstacle.backend).collect();
        assert!(backends.contains(&Backend::Cuda) && backends.contains(&Backend::Wgpu), "{backends:?}");
    }

    #[test]
    fn a_named_device_that_is_absent_is_refused() {
        let error = open_from(DeviceChoice::Cuda { index: 0 }, &bare_machine(), Path::new("unused")).unwrap_err();
        let compiled = cfg!(feature = "cuda");
        assert_eq!(matches!(error, DeviceError::Absent { .. }), compiled);
        assert_eq!(matches!(error, DeviceError::NotCompiled { .. }), !compiled);
    }
}
