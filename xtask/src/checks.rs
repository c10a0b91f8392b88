//! What `test` and `run` do, command by command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::stage::{self, Stage, StageError};
use crate::tool::cargo;

/// The one feature set that is built, linked and tested. Another set would compile nearly all of burn a second time.
const TESTED: [&str; 3] = ["--no-default-features", "--features", "wgpu"];
/// What is compiled without being built: every GPU back-end.
const CHECKED: [&str; 3] = ["--no-default-features", "--features", "cuda,wgpu"];
/// Folders in which Vulkan drivers are registered.
const VULKAN_DRIVER_DIRS: [&str; 3] = ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

/// All checks, the cheap ones first.
pub fn run_all(root: &Path) -> Outcome {
    let mut docs = cargo_with(root, &["doc", "--workspace", "--no-deps"], &CHECKED, &[]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    let mut tests = cargo_with(root, &["test", "--workspace"], &TESTED, &[]);
    // The GPU tests run on a driver that computes on the processor, also where there is a real GPU: same results for all.
    if let Some(driver) = software_vulkan_driver() {
        tests.env("VK_ICD_FILENAMES", &driver).env("VK_DRIVER_FILES", &driver);
    }
    stage::run(vec![
        Stage { name: "format", command: cargo(&["fmt", "--all", "--check"], root) },
        Stage { name: "clippy", command: clippy(root, &CHECKED) },
        Stage { name: "doc", command: docs },
        Stage { name: "test", command: tests },
    ])
}

/// The checks that need neither a GPU back-end nor a set-up.
pub fn run_quick(root: &Path) -> Outcome {
    let no_gpu = ["--no-default-features"];
    stage::run(vec![
        Stage { name: "format", command: cargo(&["fmt", "--all", "--check"], root) },
        Stage { name: "clippy", command: clippy(root, &no_gpu) },
        Stage { name: "test", command: cargo_with(root, &["test", "--workspace"], &no_gpu, &[]) },
    ])
}

/// Builds Fermata and starts its demo.
pub fn run_demo(root: &Path) -> Outcome {
    let mut demo = cargo_with(root, &["run"], &TESTED, &["--", "demo"]);
    let text = stage::shown(&demo);
    println!("== {text}");
    match demo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(StageError::Failed { stage: "run", command: text }),
        Err(reason) => Err(StageError::NotStarted { command: text, reason }),
    }
}

fn clippy(root: &Path, features: &[&str]) -> Command {
    cargo_with(root, &["clippy", "--workspace", "--all-targets"], features, &["--", "-D", "warnings"])
}

fn cargo_with(root: &Path, action: &[&str], features: &[&str], rest: &[&str]) -> Command {
    cargo(&[action, features, rest].concat(), root)
}

/// The registration file of Mesa's lavapipe, a Vulkan driver that needs no GPU.
fn software_vulkan_driver() -> Option<PathBuf> {
    VULKAN_DRIVER_DIRS.iter().find_map(|dir| lavapipe_in(Path::new(dir)))
}

fn lavapipe_in(dir: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let mut lavapipe: Vec<PathBuf> = files.filter(|path| is_lavapipe(path)).collect();
    lavapipe.sort();
    lavapipe.into_iter().next()
}

fn is_lavapipe(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A machine may also hold the driver for another architecture, as `lvp_icd.i686.json`.
    let others = ["i686", "i386", "aarch64", "x86_64"].into_iter().filter(|arch| *arch != std::env::consts::ARCH);
    name.starts_with("lvp_icd") && name.ends_with(".json") && !others.into_iter().any(|arch| name.contains(arch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lavapipe_is_known_by_name_and_architecture() {
        let arch = std::env::consts::ARCH;
        assert!(is_lavapipe(Path::new(&format!("/drivers/lvp_icd.{arch}.json"))));
        assert!(is_lavapipe(Path::new("/drivers/lvp_icd.json")));
        assert!(!is_lavapipe(Path::new("/drivers/lvp_icd.i686.json")));
        assert!(!is_lavapipe(Path::new(&format!("/drivers/radeon_icd.{arch}.json"))));
    }

    #[test]
    fn a_folder_that_is_not_there_holds_no_driver() {
        assert_eq!(lavapipe_in(Path::new("/no/such/folder")), None);
    }
}
