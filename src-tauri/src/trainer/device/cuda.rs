//! Whether CUDA can be used: the three parts it needs at run time, each looked for by itself.
//!
//! The program is built without CUDA's libraries and opens them when they are wanted. cubecl-cuda panics when one is
//! missing, so all three are looked for first: the driver, the run-time compiler NVRTC, and the toolkit's headers, which
//! each kernel includes. Loading a broken driver may crash the process: only the probe's child calls [`survey`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::cuda_driver::{self, CudaGpu};
use super::{Backend, DeviceChoice, DeviceInfo, DeviceKind, DeviceSurvey, Obstacle, ObstacleCode};

/// Headers that kernels include; a toolkit folder without one of them is of no use.
const HEADERS: [&str; 2] = ["cuda_runtime.h", "cuda_fp16.h"];

/// Where the parts of CUDA are looked for.
pub struct CudaSearch<'a> {
    /// Opens a shared library by name (found by the system's loader) or by path.
    pub load: &'a dyn Fn(&OsStr) -> Result<(), String>,
    /// Folders in which a library the loader did not find may lie; they only serve the explanation.
    pub library_dirs: Vec<PathBuf>,
    /// Folders of the toolkit, best first; the first that exists is the one that cubecl-cuda uses.
    pub toolkit_dirs: Vec<PathBuf>,
}

impl CudaSearch<'_> {
    /// What is missing of the driver, NVRTC and the headers, in this order; empty when all are there.
    pub fn obstacles(&self) -> Vec<Obstacle> {
        [self.driver_obstacle(), self.nvrtc_obstacle(), self.headers_obstacle()].into_iter().flatten().collect()
    }

    fn driver_obstacle(&self) -> Option<Obstacle> {
        let way_out = "install the NVIDIA driver";
        match self.find(&driver_names()) {
            Library::Loads => None,
            Library::Missing => Some((
                ObstacleCode::DriverMissing,
                format!("the NVIDIA driver's library {} was not found; {way_out}", driver_names()[0]),
            )),
            Library::Unreached(path) => Some((ObstacleCode::DriverBroken, unreached("the NVIDIA driver", &path))),
            Library::Broken(path, reason) => Some((
                ObstacleCode::DriverBroken,
                format!("`{}` cannot be loaded ({reason}); {way_out} again", path.display()),
            )),
        }
        .map(obstacle)
    }

    fn nvrtc_obstacle(&self) -> Option<Obstacle> {
        let way_out = "install NVRTC of the CUDA toolkit (package cuda-nvrtc)";
        match self.find(&nvrtc_names()) {
            Library::Loads => None,
            Library::Missing => Some((
                ObstacleCode::NvrtcMissing,
                format!("CUDA's run-time compiler {} was not found; {way_out}", nvrtc_names()[0]),
            )),
            Library::Unreached(path) => Some((ObstacleCode::NvrtcBroken, unreached("CUDA's run-time compiler", &path))),
            Library::Broken(path, reason) => Some((
                ObstacleCode::NvrtcBroken,
                format!("`{}` cannot be loaded ({reason}); {way_out} again", path.display()),
            )),
        }
        .map(obstacle)
    }

    fn headers_obstacle(&self) -> Option<Obstacle> {
        let way_out = "install the CUDA toolkit (package cuda-cudart-dev) or set CUDA_PATH to its folder";
        let Some(toolkit) = self.toolkit_dirs.iter().find(|dir| dir.is_dir()) else {
            return Some(obstacle((
                ObstacleCode::HeadersMissing,
                format!("no folder of the CUDA toolkit was found; {way_out}"),
            )));
        };
        let include = toolkit.join("include");
        let missing = HEADERS.iter().find(|header| !include.join(header).is_file())?;
        let message = format!("`{}` does not hold the header {missing}; {way_out}", include.display());
        Some(obstacle((ObstacleCode::HeadersMissing, message)))
    }

    /// Tries the names at the loader, then looks where the file is if none loads.
    fn find(&self, names: &[String]) -> Library {
        if names.iter().any(|name| (self.load)(OsStr::new(name)).is_ok()) {
            return Library::Loads;
        }
        let paths = self.library_dirs.iter().flat_map(|dir| names.iter().map(move |name| dir.join(name)));
        match paths.into_iter().find(|path| path.exists()) {
            None => Library::Missing,
            Some(path) => match (self.load)(path.as_os_str()) {
                Ok(()) => Library::Unreached(path),
                Err(reason) => Library::Broken(path, reason),
            },
        }
    }
}

/// What became of one library.
enum Library {
    Loads,
    Missing,
    /// The file is good, but the loader does not look in its folder.
    Unreached(PathBuf),
    Broken(PathBuf, String),
}

fn obstacle((code, message): (ObstacleCode, String)) -> Obstacle {
    Obstacle { backend: Backend::Cuda, code, message }
}

fn unreached(what: &str, path: &Path) -> String {
    let folder = path.parent().unwrap_or(path);
    let variable = if cfg!(windows) { "PATH" } else { "LD_LIBRARY_PATH" };
    format!(
        "{what} lies at `{}`, where the loader does not look; add `{}` to {variable}",
        path.display(),
        folder.display()
    )
}

/// The names under which cubecl-cuda looks for a library, the usual one first.
fn library_names(stem: &str, windows_stem: &str) -> Vec<String> {
    if cfg!(windows) {
        ["", "64_130_0", "64_120_0", "64_112_0", "64_12", "64_11"]
            .iter()
            .map(|end| format!("{windows_stem}{end}.dll"))
            .collect()
    } else {
        ["", ".1", ".13", ".12", ".11", ".10"].iter().map(|end| format!("lib{stem}.so{end}")).collect()
    }
}

fn driver_names() -> Vec<String> {
    library_names("cuda", "nvcuda")
}

fn nvrtc_names() -> Vec<String> {
    library_names("nvrtc", "nvrtc")
}

/// Asks this machine for its CUDA devices. Loads the driver: call it in a process that may die.
///
/// `cuda_path` is the value of `CUDA_PATH`.
pub fn survey(cuda_path: Option<PathBuf>) -> DeviceSurvey {
    let search = system_search(cuda_path);
    let obstacles = search.obstacles();
    if !obstacles.is_empty() {
        return DeviceSurvey { devices: Vec::new(), obstacles };
    }
    match cuda_driver::list_gpus(&driver_names()) {
        Ok(gpus) if gpus.is_empty() => {
            DeviceSurvey::blocked(Backend::Cuda, ObstacleCode::NoDevice, "the NVIDIA driver shows no GPU")
        }
        Ok(gpus) => DeviceSurvey { devices: gpus.into_iter().map(info_of).collect(), obstacles: Vec::new() },
        Err(fault) => {
            DeviceSurvey { devices: Vec::new(), obstacles: vec![obstacle((fault.code(), fault.to_string()))] }
        }
    }
}

/// The search that cubecl-cuda itself does, with the usual folders of distributions for the explanations.
fn system_search(cuda_path: Option<PathBuf>) -> CudaSearch<'static> {
    let toolkit_dirs = match cuda_path {
        Some(path) => vec![path],
        None if cfg!(windows) => vec![PathBuf::from("C:/Program Files/NVIDIA GPU Computing Toolkit/CUDA")],
        None => {
            let distribution = Path::new("/usr/bin/nvcc").exists().then(|| PathBuf::from("/usr"));
            [PathBuf::from("/usr/local/cuda"), PathBuf::from("/opt/cuda")].into_iter().chain(distribution).collect()
        }
    };
    let fixed = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib/wsl/lib",
        "/usr/local/nvidia/lib64",
    ];
    let in_toolkit = toolkit_dirs.iter().flat_map(|dir| [dir.join("lib64"), dir.join("bin")]);
    let library_dirs = in_toolkit.chain(fixed.map(PathBuf::from)).collect();
    CudaSearch { load: &load_library, library_dirs, toolkit_dirs }
}

fn load_library(name: &OsStr) -> Result<(), String> {
    // SAFETY: loading runs the library's initialisers. They are NVIDIA's own, and this is a process made to be lost.
    match unsafe { libloading::Library::new(name) } {
        Ok(library) => {
            // Unloading a driver runs more of its code than keeping it until the process ends.
            std::mem::forget(library);
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn info_of(gpu: CudaGpu) -> DeviceInfo {
    let (driver_major, driver_minor) = gpu.driver_version;
    let (major, minor) = gpu.compute_capability;
    DeviceInfo {
        id: DeviceChoice::Cuda { index: gpu.index },
        kind: if gpu.integrated { DeviceKind::Integrated } else { DeviceKind::Discrete },
        name: gpu.name,
        interface: format!("CUDA {driver_major}.{driver_minor} sm_{major}{minor}"),
        memory_bytes: Some(gpu.memory_bytes),
        n_cores: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pretended machine: files under one folder, of which those in `loader/` are seen by the loader.
    struct Machine {
        root: tempfile::TempDir,
    }

    impl Machine {
        fn with(files: &[&str]) -> Self {
            let root = tempfile::tempdir().unwrap();
            for file in files {
                let path = root.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, if file.contains("broken") { "broken" } else { "good" }).unwrap();
            }
            Self { root }
        }

        fn codes(&self) -> Vec<ObstacleCode> {
            self.obstacles().into_iter().map(|obstacle| obstacle.code).collect()
        }

        fn obstacles(&self) -> Vec<Obstacle> {
            let root = self.root.path();
            let load = |name: &OsStr| match std::fs::read_to_string(root.join("loader").join(name)) {
                Ok(content) if content == "good" => Ok(()),
                Ok(_) => Err("file too short".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            let library_dirs = vec![root.join("elsewhere"), root.join("broken")];
            let toolkit_dirs = vec![root.join("toolkit")];
            CudaSearch { load: &load, library_dirs, toolkit_dirs }.obstacles()
        }
    }

    fn driver() -> String {
        format!("loader/{}", driver_names()[1])
    }

    fn nvrtc() -> String {
        format!("loader/{}", nvrtc_names()[2])
    }

    #[test]
    fn an_empty_machine_lacks_all_three_parts() {
        use ObstacleCode::{DriverMissing, HeadersMissing, NvrtcMissing};
        assert_eq!(Machine::with(&[]).codes(), [DriverMissing, NvrtcMissing, HeadersMissing]);
    }

    #[test]
    fn a_driver_alone_lacks_compiler_and_headers() {
        use ObstacleCode::{HeadersMissing, NvrtcMissing};
        assert_eq!(Machine::with(&[&driver()]).codes(), [NvrtcMissing, HeadersMissing]);
    }

    #[test]
    fn driver_and_compiler_still_lack_the_headers() {
        assert_eq!(Machine::with(&[&driver(), &nvrtc()]).codes(), [ObstacleCode::HeadersMissing]);
    }

    #[test]
    fn a_toolkit_without_one_header_is_named_with_that_header() {
        let machine = Machine::with(&[&driver(), &nvrtc(), "toolkit/include/cuda_runtime.h"]);
        let obstacles = machine.obstacles();
        assert_eq!(obstacles.len(), 1);
        assert!(obstacles[0].message.contains("cuda_fp16.h"), "{}", obstacles[0].message);
    }

    #[test]
    fn all_parts_leave_no_obstacle() {
        let headers = ["toolkit/include/cuda_runtime.h", "toolkit/include/cuda_fp16.h"];
        assert_eq!(Machine::with(&[&driver(), &nvrtc(), headers[0], headers[1]]).codes(), []);
    }

    #[test]
    fn a_library_outside_the_loaders_folders_is_named_with_its_folder() {
        let file = format!("elsewhere/{}", nvrtc_names()[0]);
        let obstacles = Machine::with(&[&driver(), &file]).obstacles();
        assert_eq!(obstacles[0].code, ObstacleCode::NvrtcBroken);
        assert!(obstacles[0].message.contains("elsewhere"), "{}", obstacles[0].message);
    }

    #[test]
    fn a_library_that_cannot_be_loaded_is_broken_and_not_missing() {
        let file = format!("broken/{}", driver_names()[0]);
        let obstacles = Machine::with(&[&file]).obstacles();
        assert_eq!(obstacles[0].code, ObstacleCode::DriverBroken);
        assert!(obstacles[0].message.contains("file too short"), "{}", obstacles[0].message);
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_by_the_real_loader() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(&driver_names()[0]);
        std::fs::write(&path, "not a library").unwrap();
        assert!(load_library(path.as_os_str()).is_err());
    }
}
