//! The program: everything happens in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    fermata::cli::run(std::env::args_os()).into()
}
