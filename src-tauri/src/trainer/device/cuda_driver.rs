//! The few questions put to NVIDIA's driver, through its own C interface.
//!
//! They need neither burn nor the toolkit, so a machine whose driver alone is in order is told what it has.

use std::ffi::{CStr, c_char, c_int, c_uint};

use libloading::{Library, Symbol};

use super::ObstacleCode;

/// A GPU as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaGpu {
    pub index: usize,
    pub name: String,
    pub memory_bytes: u64,
    /// Major and minor number, as in `sm_90`.
    pub compute_capability: (i32, i32),
    /// The newest CUDA version this driver runs.
    pub driver_version: (i32, i32),
    /// Whether it shares the processor's memory.
    pub integrated: bool,
}

/// Why the driver gave no list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CudaDriverError {
    #[error("the NVIDIA driver cannot be loaded ({reason}); install it again")]
    Load { reason: String },
    #[error("the NVIDIA driver lacks the function {name}; install a newer one")]
    Symbol { name: &'static str },
    #[error(
        "the NVIDIA driver shows no GPU; check that the card is seen by `nvidia-smi` and lent to this user or container"
    )]
    NoDevice,
    #[error("the NVIDIA driver answered {question} with error {status}; run `nvidia-smi` to see what it reports")]
    Refused { question: &'static str, status: i32 },
}

impl CudaDriverError {
    /// The word for it in a survey.
    pub fn code(&self) -> ObstacleCode {
        match self {
            Self::Load { .. } | Self::Symbol { .. } | Self::Refused { .. } => ObstacleCode::DriverBroken,
            Self::NoDevice => ObstacleCode::NoDevice,
        }
    }
}

type Init = unsafe extern "system" fn(c_uint) -> c_int;
type ReadInt = unsafe extern "system" fn(*mut c_int) -> c_int;
type DeviceGet = unsafe extern "system" fn(*mut c_int, c_int) -> c_int;
type DeviceName = unsafe extern "system" fn(*mut c_char, c_int, c_int) -> c_int;
type DeviceMemory = unsafe extern "system" fn(*mut usize, c_int) -> c_int;
type DeviceAttribute = unsafe extern "system" fn(*mut c_int, c_int, c_int) -> c_int;

/// `CUDA_ERROR_NO_DEVICE` of the driver's interface.
const NO_DEVICE: c_int = 100;
/// `CU_DEVICE_ATTRIBUTE_INTEGRATED`, `.._COMPUTE_CAPABILITY_MAJOR` and `.._MINOR`.
const INTEGRATED: c_int = 18;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

/// The GPUs that the driver shows, in its order.
///
/// `library_names` are tried in turn. Creates no context and takes no GPU memory.
///
/// # Errors
///
/// When no name loads, a function is missing or the driver refuses a question.
pub fn list_gpus(library_names: &[String]) -> Result<Vec<CudaGpu>, CudaDriverError> {
    let library = open(library_names)?;
    let init: Symbol<Init> = symbol(library, "cuInit")?;
    let driver_version: Symbol<ReadInt> = symbol(library, "cuDriverGetVersion")?;
    let count: Symbol<ReadInt> = symbol(library, "cuDeviceGetCount")?;

    // SAFETY: the types above are those of the driver's published interface.
    check("cuInit", unsafe { init(0) })?;
    let mut version = 0;
    // SAFETY: as above; the pointer is to a live integer.
    check("cuDriverGetVersion", unsafe { driver_version(&mut version) })?;
    let mut n_gpus = 0;
    // SAFETY: as above.
    check("cuDeviceGetCount", unsafe { count(&mut n_gpus) })?;
    let driver_version = (version / 1000, version % 1000 / 10);
    (0..n_gpus).map(|ordinal| describe(library, ordinal, driver_version)).collect()
}

fn describe(library: &Library, ordinal: c_int, driver_version: (i32, i32)) -> Result<CudaGpu, CudaDriverError> {
    let get: Symbol<DeviceGet> = symbol(library, "cuDeviceGet")?;
    let read_name: Symbol<DeviceName> = symbol(library, "cuDeviceGetName")?;
    let read_memory: Symbol<DeviceMemory> = symbol(library, "cuDeviceTotalMem_v2")?;
    let read_attribute: Symbol<DeviceAttribute> = symbol(library, "cuDeviceGetAttribute")?;

    let mut handle = 0;
    // SAFETY: the pointer is to a live integer, the ordinal below the count that the driver gave.
    check("cuDeviceGet", unsafe { get(&mut handle, ordinal) })?;
    let mut name = [0u8; 256];
    // SAFETY: the driver writes at most the length it is told, with a closing zero.
    check("cuDeviceGetName", unsafe { read_name(name.as_mut_ptr().cast(), name.len() as c_int, handle) })?;
    let mut memory_bytes = 0usize;
    // SAFETY: the pointer is to a live size.
    check("cuDeviceTotalMem", unsafe { read_memory(&mut memory_bytes, handle) })?;
    let attribute = |key: c_int| {
        let mut value = 0;
        // SAFETY: the pointer is to a live integer.
        check("cuDeviceGetAttribute", unsafe { read_attribute(&mut value, key, handle) }).map(|()| value)
    };
    Ok(CudaGpu {
        index: ordinal as usize,
        name: CStr::from_bytes_until_nul(&name)
            .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned()),
        memory_bytes: memory_bytes as u64,
        compute_capability: (attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?),
        driver_version,
        integrated: attribute(INTEGRATED)? != 0,
    })
}

/// Loads the driver for the rest of the process: unloading it would run more of its code than keeping it.
fn open(names: &[String]) -> Result<&'static Library, CudaDriverError> {
    let mut reason = String::new();
    for name in names {
        // SAFETY: loading runs the driver's initialisers; the caller is a process made to be lost.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(CudaDriverError::Load { reason })
}

fn symbol<'a, T>(library: &'a Library, name: &'static str) -> Result<Symbol<'a, T>, CudaDriverError> {
    // SAFETY: each caller names the type that the driver's interface publishes for this function.
    unsafe { library.get(name.as_bytes()) }.map_err(|_| CudaDriverError::Symbol { name })
}

fn check(question: &'static str, status: c_int) -> Result<(), CudaDriverError> {
    match status {
        0 => Ok(()),
        NO_DEVICE => Err(CudaDriverError::NoDevice),
        status => Err(CudaDriverError::Refused { question, status }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_an_error_and_no_panic() {
        let error = list_gpus(&["libno-such-driver.so".to_owned()]).unwrap_err();
        assert!(matches!(error, CudaDriverError::Load { .. }));
        assert_eq!(error.code(), ObstacleCode::DriverBroken);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_that_is_no_driver_is_told_apart_by_its_missing_function() {
        let error = list_gpus(&["libc.so.6".to_owned()]).unwrap_err();
        assert_eq!(error, CudaDriverError::Symbol { name: "cuInit" });
    }

    #[test]
    fn no_device_is_told_apart_from_a_refusal() {
        assert_eq!(check("cuInit", 100), Err(CudaDriverError::NoDevice));
        assert_eq!(check("cuInit", 803), Err(CudaDriverError::Refused { question: "cuInit", status: 803 }));
    }
}
