//! What `zbench resilver` is asked for on its command line: devices, layouts, loads, caps. It knows nothing of how any of it is measured.

use super::load::Load;
use super::tune::Sweep;
use crate::compare::Options;
use crate::layout::Layout;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

/// Kind of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DisksAre {
    /// Loop devices with a bandwidth cap each (needs root)
    Loops,
    /// NVMe devices in memory that take as long as the model of one, times --slower
    Simulated,
}

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// What the devices are
    #[arg(long, value_enum, default_value_t = DisksAre::Loops)]
    pub devices_are: DisksAre,
    /// Simulated devices take so many times as long for everything as the model's (3414 MiB/s read, 1800 MiB/s write)
    #[arg(long, default_value_t = 18)]
    pub slower: u64,
    /// Layouts
    #[arg(long = "resilver-layout", value_delimiter = ',', default_value = "raidz1:12,raidz2:12")]
    pub layouts: Vec<Layout>,
    /// Loads beside the resilver
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,read,random-read,write,random,mix")]
    pub load: Vec<Load>,
    /// Rate of the load, in percent of what the devices can read (or write, for loads that only write)
    #[arg(long, default_value_t = 10)]
    pub load_percent: u64,
    /// Read bandwidth of each device, 10⁶ bytes per second: 1.85 × the write bandwidth, as NVMe drives of the study
    #[arg(long, default_value_t = 185)]
    pub read_cap_mb: u64,
    /// Write bandwidth of each device, 10⁶ bytes per second
    #[arg(long, default_value_t = 100)]
    pub write_cap_mb: u64,
    /// Bytes of each device, in MiB
    #[arg(long, default_value_t = 800)]
    pub device_mib: u64,
    /// How full the pool is before the device is lost
    #[arg(long, default_value_t = 60)]
    pub fill_percent: u64,
    /// Bytes of a record, in KiB
    #[arg(long, default_value_t = 1024)]
    pub record_kib: u64,
    /// Turns, each with a new pool: what a host did to one of them is not what a user has. Medians count
    #[arg(long, default_value_t = 3)]
    pub turns: usize,
    /// Latency target of the pool, as the property background_latency_target takes it
    #[arg(long)]
    pub target: Option<String>,
    /// Parameters of the I/O scheduler with the values to try, each alone after a run with none of them changed: NAME=VALUE:VALUE…
    #[arg(long, value_delimiter = ',')]
    pub tune: Vec<Sweep>,
    /// Seconds of each of five patterns by which each drive is measured first; 0 leaves that table out
    #[arg(long, default_value_t = 0.0)]
    pub drive_seconds: f64,
    /// Also as JSON lines: a row for each run, with its samples
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Directory below which the backing files lie; use tmpfs
    #[arg(long, default_value = "/dev/shm")]
    pub backing: PathBuf,
    /// dRAID layouts with a distributed spare, whose rebuilds are compared
    #[arg(long, value_delimiter = ',', default_value = "draid2:9d:12c:1s,draid2:9d:24c:2s")]
    pub rebuild_layout: Vec<Layout>,
    /// Bytes of each device that is rebuilt, in MiB: on smaller ones chance decides which children have more to do than others
    #[arg(long, default_value_t = 800)]
    pub rebuild_device_mib: u64,
    /// Leave the comparison of CPU with the peer out
    #[arg(long)]
    pub no_cpu: bool,
    #[command(flatten)]
    pub options: Options,
}

impl Args {
    /// Bytes of a record.
    pub fn record(&self) -> u64 {
        self.record_kib << 10
    }
}
