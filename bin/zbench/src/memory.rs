//! `zbench memory`: the daemon's peak resident size while much more data than its cache holds is written and read through a mount.
//!
//! The bound is the cache's budget + the limit of dirty data + 200 MiB for everything else.

use crate::cleanup::Guard;
use crate::fio::{self, Job};
use crate::machine::Machine;
use crate::measure::{Verdicts, text};
use crate::mounted::Mounted;
use clap::Args as ClapArgs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const OTHER_MIB: u64 = 200;
/// Percent of the data's bytes that must be free for the vdev files.
const ROOM_PERCENT: u64 = 125;

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Directory for the vdev files (default: /var/tmp, or /dev/shm when that has not enough room)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Data, in MiB
    #[arg(long, default_value_t = 10 << 10)]
    size_mib: u64,
    /// Budget of the cache (`zfs_arc_max`), in MiB
    #[arg(long, default_value_t = 256)]
    arc_mib: u64,
    /// Record size in KiB
    #[arg(long, default_value_t = 128)]
    record_kib: u64,
    /// Files written and read at once
    #[arg(long, default_value_t = 4)]
    jobs: u64,
}

fn free_mib(folder: &Path) -> u64 {
    let free = rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail * stat.f_frsize) >> 20;
    if !fio::is_tmpfs(folder) {
        return free;
    }
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or("0");
    let available = line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) >> 10;
    free.min(available.saturating_sub(4 << 10))
}

fn folder(args: &Args) -> Result<PathBuf, String> {
    let needed = args.size_mib * ROOM_PERCENT / 100;
    let parents = args.dir.clone().map_or_else(|| vec!["/var/tmp".into(), "/dev/shm".into()], |told| vec![told]);
    parents.iter().for_each(|parent| crate::devices::remove_stale(parent));
    let parent = parents.iter().find(|folder: &&PathBuf| free_mib(folder) >= needed);
    let parent =
        parent.ok_or_else(|| format!("{needed} MiB of free space are needed: name a directory with --dir, or use a smaller --size-mib"))?;
    Ok(parent.join(format!("zbench-memory-{}", std::process::id())))
}

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    fio::require()?;
    println!("{}", Machine::describe().header());
    let folder = folder(args)?;
    std::fs::create_dir_all(&folder).map_err(text)?;
    let undo = folder.clone();
    let _guard = Guard::new(move || {
        let _ = std::fs::remove_dir_all(&undo);
    });
    let mut vdevs = Vec::new();
    for index in 0..4 {
        let path = folder.join(format!("d{index}"));
        let file = std::fs::File::create(&path).map_err(text)?;
        file.set_len(((args.size_mib * ROOM_PERCENT / 100 / 4) + 64) << 20).map_err(text)?;
        vdevs.push(path);
    }
    let mounted = Mounted::start(args.arc_mib << 20)?;
    mounted.create("stripe:4".parse()?, &vdevs, &[format!("recordsize={}K", args.record_kib), "compression=off".to_string()])?;
    let idle = mounted.server.peak_resident_bytes() >> 20;
    println!(
        "{} MiB in {} files at {}; cache {} MiB; resident before: {idle} MiB",
        args.size_mib,
        args.jobs,
        folder.display(),
        args.arc_mib
    );
    let directory = mounted.file("");
    for rw in ["write", "read"] {
        let job = Job::new(&[], rw, 1 << 20)
            .with("directory", directory.display())
            .with("filename_format", "f.$jobnum")
            .with("ioengine", "psync")
            .with("numjobs", args.jobs)
            .with("size", (args.size_mib << 20) / args.jobs)
            .with("end_fsync", 1);
        let outcome = job.run()?;
        let peak = mounted.server.peak_resident_bytes() >> 20;
        println!("{rw:<6} {:>6} MiB at {:>5.0} MB/s; peak resident {peak} MiB", outcome.bytes >> 20, outcome.mb_per_second());
        if rw == "write" {
            mounted.reimport(&vdevs)?;
        }
    }
    let peak = mounted.server.peak_resident_bytes() >> 20;
    let dirty = pool::Runtime::new().txg.dirty_data_max >> 20;
    let bound = args.arc_mib + dirty + OTHER_MIB;
    let verdict = verdicts.judge(peak < bound);
    println!("peak resident {peak} MiB; bound {} + {dirty} (dirty limit) + {OTHER_MIB} = {bound} MiB: {verdict}", args.arc_mib);
    mounted.command("zpool", &["export", "zbench"]).map(drop)
}

/// Runs the measurement; 2 when the bound was missed.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("memory", |verdicts| measure_all(args, verdicts))
}
