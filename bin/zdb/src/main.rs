//! The `zdb` program: shows what lies on the devices of a pool, in the shape of OpenZFS's `zdb`. It reads devices, never a running pool.
//!
//! `-l` works on a device alone, with no pool, and so on damaged ones too.
#![forbid(unsafe_code)]

mod date;
mod label;
mod stats;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// Shows what lies on the devices of a pool.
#[derive(Parser)]
#[command(name = "zdb", disable_version_flag = true)]
struct Arguments {
    /// Labels of DEVICE; twice: with the space their configs take; three times: each label, not only those that differ
    #[arg(short = 'l', action = clap::ArgAction::Count)]
    labels: u8,
    /// With -l: uberblocks; twice: also slots without one; three times: of each label; four times: all that is in them
    #[arg(short = 'u', action = clap::ArgAction::Count)]
    uberblocks: u8,
    /// Only the exit status: 0 all labels are good, 1 some are damaged, 2 none has a config
    #[arg(short = 'q')]
    quiet: bool,
    /// A block device or a file
    device: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.labels == 0 {
        eprintln!("zdb: only -l (labels of a device) is available");
        return ExitCode::from(2);
    }
    let device = match label::open(&arguments.device) {
        Ok(device) => device,
        Err(error) => {
            println!("cannot open '{}': {error}", arguments.device);
            return ExitCode::from(1);
        }
    };
    let options = label::Options { labels: arguments.labels, uberblocks: arguments.uberblocks, quiet: arguments.quiet };
    let (text, status) = label::dump(&device, options);
    // A reader that went away (a pipe into head) is no error of ours.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::from(status)
}
