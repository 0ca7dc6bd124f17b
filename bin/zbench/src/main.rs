//! The `zbench` program: measurements of Zirconia beside OpenZFS's own tools, each in one run on one machine.

mod bandwidth;
mod block;
mod cleanup;
mod compare;
mod depth;
mod devices;
mod direct;
mod engine;
mod files;
mod fio;
mod fsync;
mod fuse_line;
mod kernels;
mod latency;
mod layout;
mod locks;
mod machine;
mod matrix;
mod measure;
#[path = "../../../interface/fuse/examples/memfs/fs.rs"]
mod memfs;
mod memory;
mod mount;
mod mounted;
mod peer;
mod pipeline;
mod report;
mod resilver;
mod simulated;
mod subject;
mod survey;
mod sys;
mod talks;
#[path = "../../../storage/vdev-queue/tests/it/world/mod.rs"]
mod world;
mod zia;

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
    /// Small writes made durable: on devices in virtual time, or through the mount beside ext4
    Fsync(fsync::Args),
    /// Many small files through the mount: untar, find, stat, grep, git status, rm, small writes; beside ext4 and an in-memory file system behind the same FUSE server
    Mount(mount::Args),
    /// The daemon's peak memory while 10 GiB go through a small cache
    Memory(memory::Args),
    /// Every layer, number of devices, request size, pattern and mode, with latencies, CPU and the share of the raw devices
    Matrix(matrix::Args),
    /// Direct I/O beside the peer's and our own buffered path: CPU, throughput, copies
    Direct(direct::Args),
    /// The share of twelve capped devices' bandwidth that direct I/O reaches
    Bandwidth(bandwidth::Args),
    /// One thread with more and more direct requests in flight
    Depth(depth::Args),
    /// The share of a profile's samples that lies in locks
    Locks(locks::Args),
    /// Volumes as disks: over the library, as files, and over iSCSI beside tgt, with CPU, copies, locks and latencies
    Block(block::Args),
    /// A device is lost and replaced: the share of its write bandwidth that the resilver reaches, with and without load; CPU beside the peer's
    Resilver(resilver::Args),
    /// Storage below Lustre's object storage targets, from bare devices to pools, as `obdfilter-survey` has it; which device is slow or errs
    Survey(survey::Args),
    /// The write pipeline on accelerators: software beside providers, with data that stays on the device and without
    Zia(zia::Args),
    /// Every number of five talks about OpenZFS beside ours, as one HTML page: measured, modelled in virtual time, or not possible here and why
    Talks(talks::Args),
    /// One HTML page from the results of other commands
    Report(report::Args),
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
        Command::Fsync(args) => fsync::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Matrix(args) => matrix::run(&args),
        Command::Direct(args) => direct::run(&args),
        Command::Bandwidth(args) => bandwidth::run(&args),
        Command::Depth(args) => depth::run(&args),
        Command::Locks(args) => locks::run(&args),
        Command::Block(args) => block::run(&args),
        Command::Resilver(args) => resilver::run(&args),
        Command::Survey(args) => survey::run(&args),
        Command::Zia(args) => zia::run(&args),
        Command::Talks(args) => talks::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Memfs(args) => fuse_line::serve_memfs(&args),
    }
}
