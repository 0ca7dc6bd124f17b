//! `zbench block`: volumes as disks — over the library, as files, and over iSCSI beside another target — with what they cost: CPU of the target apart
//! from the initiator's, copies per byte, locks, and what a scrub or a restore does to the latency of reads.

mod args;
mod file;
mod initiator;
mod latency;
mod library;
mod load;
mod network;
mod tgt;
mod volumes;

pub use args::Args;

use crate::files::VdevFiles;
use crate::fio;
use crate::machine::Machine;
use crate::measure::Verdicts;
use args::Part;
use std::process::ExitCode;

/// Multiple of a disk's bytes that the devices behind the doors have: two kinds, each as a volume and as a file, and what was overwritten and is not
/// free yet.
const DISKS: u64 = 10;
/// Bytes of each device beside those of data.
const SPARE_BYTES: u64 = 96 << 20;

/// Vdev files of the pools behind doors.
fn files(args: &Args) -> Result<VdevFiles, String> {
    let shares = args.layout.data_devices() as u64;
    let bytes = (args.disk_bytes() * DISKS / shares + SPARE_BYTES).next_multiple_of(1 << 20);
    VdevFiles::create(&args.dir, args.layout.devices, bytes)
}

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    println!("{}", Machine::describe().header());
    println!("{}, fletcher4, no compression; medians of {} turns; ±% is the spread (largest − smallest)", args.layout, args.reps.max(1));
    if !fio::is_tmpfs(args.dir.parent().unwrap_or(&args.dir)) {
        eprintln!("{} is not on tmpfs: the figures are about the file system below", args.dir.display());
    }
    if args.wants(Part::Library) {
        library::measure_all(args, verdicts)?;
    }
    if args.wants(Part::Latency) {
        latency::measure_all(args, verdicts)?;
    }
    if args.wants(Part::File) {
        file::measure_all(args, &files(args)?)?;
    }
    if args.wants(Part::Iscsi) {
        network::measure_all(args, &files(args)?, verdicts)?;
    }
    Ok(())
}

/// Runs the measurement and prints tables; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("block", |verdicts| measure_all(args, verdicts))
}
