//! The graphics adapters that wgpu shows. Loads graphics drivers: call it in a process that may die.

use burn_wgpu::graphics::AutoGraphicsApi;
use burn_wgpu::wgpu;

use super::{Backend, DeviceChoice, DeviceInfo, DeviceKind, DeviceSurvey, ObstacleCode};

/// What one adapter says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Adapter {
    name: String,
    interface: String,
    /// `None` for a driver that does not say what it runs on (OpenGL), which burn cannot address.
    kind: Option<DeviceKind>,
}

/// The adapters that burn's wgpu devices can reach on this machine, best first.
pub fn survey() -> DeviceSurvey {
    survey_of(reachable_adapters())
}

/// The adapters of the first graphics interface that has a GPU, or else of the first that has any: the same rule by
/// which cubecl-wgpu settles on an interface, so that numbers mean the same there and here.
fn reachable_adapters() -> Vec<Adapter> {
    let mut software_only = Vec::new();
    for interface in AutoGraphicsApi::chain() {
        let adapters = adapters_of(interface);
        if adapters.iter().any(|adapter| adapter.kind != Some(DeviceKind::Software)) {
            return adapters;
        }
        if software_only.is_empty() {
            software_only = adapters;
        }
    }
    software_only
}

fn adapters_of(interface: wgpu::Backend) -> Vec<Adapter> {
    let descriptor = wgpu::InstanceDescriptor {
        backends: interface.into(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    };
    let instance = wgpu::Instance::new(descriptor);
    let found = burn::cubecl::future::block_on(instance.enumerate_adapters(interface.into()));
    found.iter().map(|adapter| adapter_from(adapter.get_info())).collect()
}

fn adapter_from(info: wgpu::AdapterInfo) -> Adapter {
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => Some(DeviceKind::Discrete),
        wgpu::DeviceType::IntegratedGpu => Some(DeviceKind::Integrated),
        wgpu::DeviceType::VirtualGpu => Some(DeviceKind::Virtual),
        wgpu::DeviceType::Cpu => Some(DeviceKind::Software),
        wgpu::DeviceType::Other => None,
    };
    let driver =
        if info.driver_info.is_empty() { info.driver } else { format!("{} {}", info.driver, info.driver_info) };
    Adapter { name: info.name, interface: format!("{} {driver}", info.backend).trim_end().to_owned(), kind }
}

/// Orders the adapters and gives each the number under which `device=` finds it.
fn survey_of(adapters: Vec<Adapter>) -> DeviceSurvey {
    if adapters.is_empty() {
        let message = "no graphics adapter was found; install the GPU's Vulkan driver";
        return DeviceSurvey::blocked(Backend::Wgpu, ObstacleCode::NoDevice, message);
    }
    let of_kind = |kind: DeviceKind| adapters.iter().filter(move |adapter| adapter.kind == Some(kind));
    let gpus = [DeviceKind::Discrete, DeviceKind::Integrated, DeviceKind::Virtual].into_iter().flat_map(of_kind);
    let numbered = gpus.enumerate().map(|(index, adapter)| info_of(adapter, DeviceChoice::Wgpu { index }));
    // burn can address one software adapter only, the first.
    let software = of_kind(DeviceKind::Software).take(1).map(|adapter| info_of(adapter, DeviceChoice::WgpuSoftware));
    let devices: Vec<DeviceInfo> = numbered.chain(software).flatten().collect();

    if devices.is_empty() {
        let message = "the graphics adapters are seen through OpenGL only; install the GPU's Vulkan driver";
        return DeviceSurvey::blocked(Backend::Wgpu, ObstacleCode::NoDevice, message);
    }
    DeviceSurvey { devices, obstacles: Vec::new() }
}

fn info_of(adapter: &Adapter, id: DeviceChoice) -> Option<DeviceInfo> {
    let (name, interface) = (adapter.name.clone(), adapter.interface.clone());
    Some(DeviceInfo { id, kind: adapter.kind?, name, interface, memory_bytes: None, n_cores: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(name: &str, kind: Option<DeviceKind>) -> Adapter {
        Adapter { name: name.to_owned(), interface: "Vulkan".to_owned(), kind }
    }

    fn ids_and_names(survey: &DeviceSurvey) -> Vec<(String, String)> {
        survey.devices.iter().map(|device| (device.id.to_string(), device.name.clone())).collect()
    }

    #[test]
    fn discrete_adapters_come_first_and_software_has_no_number() {
        let survey = survey_of(vec![
            adapter("llvmpipe", Some(DeviceKind::Software)),
            adapter("small", Some(DeviceKind::Integrated)),
            adapter("big", Some(DeviceKind::Discrete)),
        ]);
        let expected = [("wgpu:0", "big"), ("wgpu:1", "small"), ("wgpu:cpu", "llvmpipe")];
        assert_eq!(ids_and_names(&survey), expected.map(|(id, name)| (id.to_owned(), name.to_owned())));
    }

    #[test]
    fn adapters_seen_through_opengl_only_are_an_obstacle() {
        let survey = survey_of(vec![adapter("unknown", None)]);
        assert_eq!(survey.devices, []);
        assert!(survey.obstacles[0].message.contains("OpenGL"));
    }

    #[test]
    fn no_adapter_is_an_obstacle() {
        assert_eq!(survey_of(Vec::new()).obstacles[0].code, ObstacleCode::NoDevice);
    }
}
