//! The exchange with the real OpenZFS: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    interop::run()
}
