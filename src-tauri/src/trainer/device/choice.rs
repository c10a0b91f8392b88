//! The value of `device=`, as text and as a type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The device a run is told to use; spelt `auto`, `cpu`, `cuda`, `cuda:1`, `wgpu`, `wgpu:1` or `wgpu:cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceChoice {
    /// The best there is: CUDA, then a discrete GPU through wgpu, then an integrated one, then the CPU.
    #[default]
    Auto,
    /// The processor, through burn's flex.
    Cpu,
    /// An NVIDIA GPU by its number at the driver; `cuda` is `cuda:0`. A bare `0` is accepted too, as Ultralytics spells it.
    Cuda { index: usize },
    /// A GPU through Vulkan, Metal or Direct3D 12, counted from the best one; `wgpu` is `wgpu:0`.
    Wgpu { index: usize },
    /// A graphics driver that computes on the processor (llvmpipe, WARP). Slow; never chosen unless named.
    WgpuSoftware,
}

/// A `device=` value that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device `{value}` is not one of auto, cpu, cuda, cuda:N, wgpu, wgpu:N, wgpu:cpu (N counts from 0)")]
pub struct DeviceChoiceError {
    pub value: String,
}

impl FromStr for DeviceChoice {
    type Err = DeviceChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || DeviceChoiceError { value: text.to_owned() };
        let lower = text.trim().to_ascii_lowercase();
        let (backend, index) = match lower.split_once(':') {
            Some((backend, index)) => (backend, Some(index)),
            None => (lower.as_str(), None),
        };
        match (backend, index) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("cuda", index) => index_from(index.unwrap_or("0")).map(|index| Self::Cuda { index }).ok_or_else(unknown),
            ("wgpu", Some("cpu")) => Ok(Self::WgpuSoftware),
            ("wgpu", index) => index_from(index.unwrap_or("0")).map(|index| Self::Wgpu { index }).ok_or_else(unknown),
            (number, None) => index_from(number).map(|index| Self::Cuda { index }).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }
}

/// A plain decimal number of a device; `u16` is what burn can address.
fn index_from(text: &str) -> Option<usize> {
    let only_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if only_digits { text.parse::<u16>().ok().map(usize::from) } else { None }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda { index } => write!(f, "cuda:{index}"),
            Self::Wgpu { index } => write!(f, "wgpu:{index}"),
            Self::WgpuSoftware => f.write_str("wgpu:cpu"),
        }
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = DeviceChoiceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> Self {
        choice.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_names_one_device() {
        let cases = [
            ("auto", DeviceChoice::Auto),
            ("cpu", DeviceChoice::Cpu),
            ("cuda", DeviceChoice::Cuda { index: 0 }),
            ("cuda:3", DeviceChoice::Cuda { index: 3 }),
            ("0", DeviceChoice::Cuda { index: 0 }),
            ("wgpu", DeviceChoice::Wgpu { index: 0 }),
            ("wgpu:12", DeviceChoice::Wgpu { index: 12 }),
            ("WGPU:CPU", DeviceChoice::WgpuSoftware),
        ];
        for (text, choice) in cases {
            assert_eq!(text.parse(), Ok(choice), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let wrong =
            ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "cuda:70000", "cpu:0", "auto:1", "0,1", "wgpu:cpu:0"];
        for text in wrong {
            assert!(text.parse::<DeviceChoice>().is_err(), "`{text}` names no device");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        let all = ["auto", "cpu", "cuda:1", "wgpu:0", "wgpu:cpu"];
        for text in all {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn json_holds_the_same_words() {
        let json = serde_json::to_string(&DeviceChoice::Cuda { index: 2 }).unwrap();
        assert_eq!(json, "\"cuda:2\"");
        assert_eq!(serde_json::from_str::<DeviceChoice>(&json).unwrap(), DeviceChoice::Cuda { index: 2 });
    }
}
