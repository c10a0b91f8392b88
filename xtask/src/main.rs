//! The project's own commands: `cargo xtask setup | run | test`.
//!
//! Depends on nothing but the standard library, so that it is built in seconds on a fresh machine.

mod checks;
mod setup;
mod stage;
mod tool;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use stage::StageError;

const USAGE: &str = "\
cargo xtask setup            look for the tools, install what is missing
cargo xtask run              set up, build and start Fermata's demo
cargo xtask test             set up, then all checks
cargo xtask test --quick     format, clippy and the tests that need no GPU driver";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = repository_root();
    let outcome = match words.as_slice() {
        ["setup"] => setup::set_up(&root),
        ["run"] => setup::set_up(&root).and_then(|()| checks::run_demo(&root)),
        ["test"] => setup::set_up(&root).and_then(|()| checks::run_all(&root)),
        ["test", "--quick"] => checks::run_quick(&root),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder above this package; cargo tells it to what it runs, and each alias is called from inside the repository.
fn repository_root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.and_then(|dir| dir.parent().map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("."))
}

/// What every command of this program ends with.
type Outcome = Result<(), StageError>;
