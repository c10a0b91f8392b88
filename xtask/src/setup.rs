//! What a fresh machine needs: tools are looked for, packages installed.
//!
//! Each thing is looked for first, so a second set-up changes nothing and needs no network.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::stage::{StageError, shown};
use crate::tool::{command, output_of, succeeds};

/// Debian packages: a Vulkan loader and a driver without a GPU for the wgpu tests, what C libraries are found with, a font.
const DEBIAN_PACKAGES: [&str; 4] = ["libvulkan1", "mesa-vulkan-drivers", "pkg-config", "fonts-dejavu-core"];
/// The oldest Node.js that the page's build works with.
const NODE_MAJOR: u32 = 20;
const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// Looks for the tools and installs what is missing.
///
/// # Errors
///
/// Names every tool that is missing, or the installation that failed.
pub fn set_up(root: &Path) -> Outcome {
    let has_page = root.join("ui/package.json").is_file();
    let missing = missing_tools(root, has_page);
    if !missing.is_empty() {
        return Err(StageError::Missing(missing.join("\n")));
    }
    install_debian_packages(root)?;
    if root.join("ui/curves/Cargo.toml").is_file() {
        install_wasm_target(root)?;
    }
    if has_page {
        install_npm_packages(&root.join("ui"))?;
    }
    println!("== setup: complete");
    Ok(())
}

/// A sentence for each tool that is not there.
fn missing_tools(root: &Path, has_page: bool) -> Vec<String> {
    let mut missing = Vec::new();
    if !succeeds(command("git", &["--version"], root)) {
        missing.push("git is missing; install the package git".to_owned());
    }
    if !succeeds(command("cc", &["--version"], root)) && !cfg!(windows) {
        missing.push("a C compiler is missing; install build-essential (Debian) or the Xcode tools (macOS)".to_owned());
    }
    if !has_page {
        return missing;
    }
    let version = output_of(command("node", &["--version"], root));
    match version.as_deref().map(|text| (text, major_version(text))) {
        Some((_, Some(major))) if major >= NODE_MAJOR => {}
        Some((text, _)) => missing.push(format!("Node.js {text} is too old; install {NODE_MAJOR} or newer")),
        None => missing.push(format!("Node.js is missing; install {NODE_MAJOR} or newer")),
    }
    missing
}

/// The first number of `v20.11.1`.
fn major_version(text: &str) -> Option<u32> {
    text.trim_start_matches('v').split('.').next()?.parse().ok()
}

/// Installs those of the packages that are missing. Does nothing where there is no `apt-get`.
fn install_debian_packages(root: &Path) -> Outcome {
    if !succeeds(command("apt-get", &["--version"], root)) {
        return Ok(());
    }
    let missing: Vec<&str> = DEBIAN_PACKAGES.into_iter().filter(|package| !is_installed(package, root)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let Some(prefix) = root_prefix(root) else {
        let packages = missing.join(" ");
        return Err(StageError::Missing(format!("packages are missing; run: sudo apt-get install {packages}")));
    };
    let install = [&["install", "-y", "--no-install-recommends"], missing.as_slice()].concat();
    // The list of packages may be old or never fetched, so a failure is tried once more with a new one.
    if show(apt_get(prefix, &install, root)).is_err() {
        show(apt_get(prefix, &["update"], root))?;
        show(apt_get(prefix, &install, root))?;
    }
    Ok(())
}

fn is_installed(package: &str, root: &Path) -> bool {
    let query = command("dpkg-query", &["--show", "--showformat=${db:Status-Status}", package], root);
    output_of(query).as_deref() == Some("installed")
}

/// The words before `apt-get` that make it run as root; `None` when this user cannot become root without a password.
fn root_prefix(root: &Path) -> Option<&'static [&'static str]> {
    if output_of(command("id", &["-u"], root)).as_deref() == Some("0") {
        return Some(&[]);
    }
    succeeds(command("sudo", &["--non-interactive", "true"], root)).then_some(&["sudo", "--non-interactive"])
}

fn apt_get(prefix: &[&str], args: &[&str], root: &Path) -> Command {
    let environment = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"];
    let words = [prefix, &environment, args].concat();
    command(words[0], &words[1..], root)
}

fn install_wasm_target(root: &Path) -> Outcome {
    let installed = output_of(command("rustup", &["target", "list", "--installed"], root));
    if installed.is_some_and(|targets| targets.lines().any(|target| target == WASM_TARGET)) {
        return Ok(());
    }
    show(command("rustup", &["target", "add", WASM_TARGET], root))
}

/// `npm ci`, unless what lies in node_modules was installed from the same lock file.
fn install_npm_packages(ui: &Path) -> Outcome {
    let modified = |path: &str| std::fs::metadata(ui.join(path)).and_then(|file| file.modified()).ok();
    let installed = modified("node_modules/.package-lock.json");
    if installed.is_some() && installed >= modified("package-lock.json") {
        return Ok(());
    }
    show(command("npm", &["ci", "--no-audit", "--no-fund"], ui))
}

/// Runs a step of the set-up and shows what it prints.
fn show(mut step: Command) -> Outcome {
    let text = shown(&step);
    println!("== setup: {text}");
    match step.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(StageError::Failed { stage: "setup", command: text }),
        Err(reason) => Err(StageError::NotStarted { command: text, reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_first_number() {
        assert_eq!(major_version("v20.11.1"), Some(20));
        assert_eq!(major_version("18"), Some(18));
        assert_eq!(major_version("nonsense"), None);
    }
}
