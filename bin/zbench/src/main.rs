//! The `zbench` program: measurements of Zirconia beside OpenZFS's own tools, each in one run on one machine.

mod engine;
mod kernels;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "zbench", version, about = "Measures Zirconia beside OpenZFS")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Checksums and RAID-Z parity, beside `raidz_test -B`
    Kernels(kernels::Args),
    /// The engine without mounts, beside `zpbench`
    Engine(engine::Args),
}

fn main() -> std::process::ExitCode {
    match Cli::parse().command {
        Command::Kernels(args) => kernels::run(&args),
        Command::Engine(args) => engine::run(&args),
    }
}
