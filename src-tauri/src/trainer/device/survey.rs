//! What was found on this machine: devices, and what keeps other ones from being used. Plain data, no burn.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::DeviceChoice;

/// One device that a run can compute on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// What `device=` takes to name it.
    pub id: DeviceChoice,
    pub kind: DeviceKind,
    /// The maker's name for it.
    pub name: String,
    /// The way to it: driver, interface and architecture, or the instruction set of a processor.
    pub interface: String,
    /// Memory of the device in bytes; `None` where the driver does not tell, and for a processor.
    pub memory_bytes: Option<u64>,
    /// Threads that run at once on a processor; `None` for a GPU.
    pub n_cores: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A GPU on a card of its own.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// A GPU lent to a virtual machine.
    Virtual,
    /// A graphics driver that computes on the processor.
    Software,
    Cpu,
}

/// A family of devices that is reached through one library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    Cuda,
    Wgpu,
}

impl Backend {
    /// The word that `device=` and the features of the build use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
        }
    }
}

/// Something that keeps a back-end from being used here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    pub backend: Backend,
    pub code: ObstacleCode,
    /// What is wrong and the way out, one sentence.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObstacleCode {
    /// This build of the program was made without the back-end.
    NotCompiled,
    DriverMissing,
    /// The driver's library is there but cannot be loaded or used.
    DriverBroken,
    /// NVIDIA's run-time compiler of kernels is missing.
    NvrtcMissing,
    NvrtcBroken,
    /// The headers that kernels include are missing.
    HeadersMissing,
    /// All is in place, but there is no such device.
    NoDevice,
    /// The process that asked the drivers crashed or did not answer.
    ProbeFailed,
    /// The first computation on the device failed.
    OpenFailed,
}

/// The devices that were found, and what kept others from being usable; `fermata devices --json` prints one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceSurvey {
    /// Usable devices, best first: CUDA, then wgpu (software last), then the processor.
    pub devices: Vec<DeviceInfo>,
    pub obstacles: Vec<Obstacle>,
}

impl DeviceSurvey {
    /// No device of a back-end, for one reason.
    pub fn blocked(backend: Backend, code: ObstacleCode, message: impl Into<String>) -> Self {
        Self { devices: Vec::new(), obstacles: vec![Obstacle { backend, code, message: message.into() }] }
    }

    /// Both surveys in one, the devices of `later` after those of this one.
    pub fn followed_by(mut self, later: Self) -> Self {
        self.devices.extend(later.devices);
        self.obstacles.extend(later.obstacles);
        self
    }

    /// The table that `fermata devices` prints: a line for each device, then the obstacles.
    pub fn table(&self) -> String {
        let header = ["device", "kind", "memory", "name", "interface"].map(str::to_owned);
        let rows: Vec<[String; 5]> = std::iter::once(header).chain(self.devices.iter().map(row_of)).collect();
        let widths: [usize; 4] =
            std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
        let mut text = String::new();
        for row in &rows {
            let [device, kind, memory, name, interface] = row;
            let [wide_device, wide_kind, wide_memory, wide_name] = widths;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{device:wide_device$}  {kind:wide_kind$}  {memory:>wide_memory$}  {name:wide_name$}  {interface}"
            );
        }
        for obstacle in &self.obstacles {
            let _ = writeln!(text, "{}: {}", obstacle.backend.word(), obstacle.message);
        }
        text
    }
}

fn row_of(device: &DeviceInfo) -> [String; 5] {
    let kind = match device.kind {
        DeviceKind::Discrete => "discrete",
        DeviceKind::Integrated => "integrated",
        DeviceKind::Virtual => "virtual",
        DeviceKind::Software => "software, only when named",
        DeviceKind::Cpu => "processor",
    };
    let gib_from_bytes = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let memory = device.memory_bytes.map_or("-".to_owned(), |bytes| format!("{:.1} GiB", gib_from_bytes(bytes)));
    [device.id.to_string(), kind.to_owned(), memory, device.name.clone(), device.interface.clone()]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A made-up device of `kind` for tests of the choice.
    pub fn device(id: DeviceChoice, kind: DeviceKind) -> DeviceInfo {
        let name = format!("made-up {id}");
        DeviceInfo { id, kind, name, interface: "test".to_owned(), memory_bytes: None, n_cores: None }
    }

    /// A machine with a processor and nothing else.
    pub fn bare_machine() -> DeviceSurvey {
        DeviceSurvey::blocked(Backend::Cuda, ObstacleCode::DriverMissing, "no NVIDIA driver")
            .followed_by(DeviceSurvey::blocked(Backend::Wgpu, ObstacleCode::NoDevice, "no adapter"))
            .followed_by(DeviceSurvey {
                devices: vec![device(DeviceChoice::Cpu, DeviceKind::Cpu)],
                obstacles: Vec::new(),
            })
    }

    #[test]
    fn the_table_has_a_line_for_each_device_and_obstacle() {
        let gpu = DeviceInfo {
            memory_bytes: Some(3 << 29),
            ..device(DeviceChoice::Wgpu { index: 0 }, DeviceKind::Integrated)
        };
        let survey = DeviceSurvey { devices: vec![gpu], obstacles: Vec::new() }.followed_by(bare_machine());
        let table = survey.table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 5, "header, two devices, two obstacles");
        assert!(lines[1].starts_with("wgpu:0  integrated  1.5 GiB  made-up wgpu:0"), "{}", lines[1]);
        assert!(lines[2].starts_with("cpu     processor"), "{}", lines[2]);
        assert_eq!(lines[3], "cuda: no NVIDIA driver");
    }

    #[test]
    fn a_survey_survives_json() {
        let survey = bare_machine();
        let json = serde_json::to_string(&survey).unwrap();
        assert_eq!(serde_json::from_str::<DeviceSurvey>(&json).unwrap(), survey);
    }
}
