//! What `zbench block` is asked for on its command line. It knows nothing of how any of it is measured.

use crate::layout::Layout;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

/// Environment variable by which tests and checks leave nothing out.
const STRICT: &str = "ZIRCONIA_STRICT";

/// Part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Twelve volumes at once, and deep queues, over the library
    Library,
    /// Random reads beside a scrub and beside a restore, over the library
    Latency,
    /// The file of a volume in the daemon's state directory
    File,
    /// iSCSI of the daemon beside tgt
    Iscsi,
}

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Parts
    #[arg(long, value_enum, value_delimiter = ',', default_value = "library,latency,file,iscsi")]
    pub parts: Vec<Part>,
    /// Leave nothing out: what a peer or a tool is missing for is a failure, as with ZIRCONIA_STRICT=1
    #[arg(long)]
    pub check: bool,
    /// Layout of the pools
    #[arg(long, default_value = "stripe:4")]
    pub layout: Layout,
    /// Directory for the vdev files; use tmpfs
    #[arg(long, default_value = "/dev/shm/zbench")]
    pub dir: PathBuf,
    /// Bytes of each disk behind a door, in MiB
    #[arg(long, default_value_t = 256)]
    pub disk_mib: u64,
    /// Bytes of each of the twelve volumes, in MiB
    #[arg(long, default_value_t = 32)]
    pub volume_mib: u64,
    /// Budget of the daemon's cache, in MiB
    #[arg(long, default_value_t = 1024)]
    pub arc_mib: u64,
    /// Turns; medians count
    #[arg(long, default_value_t = 3)]
    pub reps: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Worker threads of the engine as a library
    #[arg(long, default_value_t = 4)]
    pub threads: usize,
    /// Simulated devices take so many times as long for everything as the model's (3414 MiB/s read, 1800 MiB/s write)
    #[arg(long, default_value_t = 18)]
    pub slower: u64,
    /// Reads in a second whose latencies count, beside a scrub and a restore
    #[arg(long, default_value_t = 500.0)]
    pub reads_per_second: f64,
    /// Latency target of the pool, as the property background_latency_target takes it
    #[arg(long, default_value = "auto")]
    pub target: String,
}

impl Args {
    /// True when a part is asked for.
    pub fn wants(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Bytes of a disk behind a door.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_mib << 20
    }

    /// Bytes of each of the twelve volumes.
    pub fn volume_bytes(&self) -> u64 {
        self.volume_mib << 20
    }

    /// Says that `what` is not measured and why, or fails where nothing may be left out.
    pub fn leave_out(&self, what: &str, why: &str) -> Result<(), String> {
        let line = format!("not measured: {what} ({why})");
        if self.check || std::env::var(STRICT).is_ok_and(|value| value.trim() == "1") {
            return Err(format!("{line}: nothing may be left out (--check, {STRICT}=1)"));
        }
        println!("{line}");
        Ok(())
    }
}
