//! Which device a run computes on: what this machine has, why something cannot be used, and opening one.
//!
//! [`ProbeCommand::survey`] lists the devices, [`open()`] gives a ready one. Knows nothing of models, runs or the command line,
//! but that `fermata devices --probe-child BACKEND` must call [`answer_as_child`].

#[cfg(feature = "wgpu")]
mod adapters;
mod choice;
mod cpu;
mod cuda;
mod cuda_driver;
mod open;
mod probe;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod runtime;
mod select;
mod survey;

pub use choice::{DeviceChoice, DeviceChoiceError};
pub use cpu::{instruction_set, n_cores};
pub use open::{OpenDevice, open, open_from};
pub use probe::{ANSWER_LIMIT, CHILD_OPTION, ProbeCommand, answer_as_child, processor_only};
pub use select::DeviceError;
pub use survey::{Backend, DeviceInfo, DeviceKind, DeviceSurvey, Obstacle, ObstacleCode};
