//! The `zbench` program: measurements of Zirconia beside OpenZFS's own tools, each in one run on one machine.

mod cleanup;
mod engine;
mod files;
mod fio;
mod fuse_line;
mod kernels;
mod layout;
mod machine;
mod measure;
#[path = "../../../interface/fuse/examples/memfs/fs.rs"]
mod memfs;
mod memory;
mod mounted;
mod peer;
mod subject;
mod sys;

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
    /// What the mount adds to the engine, beside an in-memory file system behind the same FUSE server
    Fuse(fuse_line::Args),
    /// The daemon's peak memory while 10 GiB go through a small cache
    Memory(memory::Args),
    /// Mounts the in-memory file system that `fuse` compares with
    #[command(hide = true)]
    Memfs(fuse_line::MemfsArgs),
}

fn main() -> std::process::ExitCode {
    cleanup::listen();
    match Cli::parse().command {
        Command::Kernels(args) => kernels::run(&args),
        Command::Engine(args) => engine::run(&args),
        Command::Fuse(args) => fuse_line::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Memfs(args) => fuse_line::serve_memfs(&args),
    }
}
