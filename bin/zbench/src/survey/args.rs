//! What is surveyed: `obdfilter-survey`'s parameters, and those of the ladder.

use super::modelled::Flaw;
use super::rates::{DRIVES_MAX, Rates};
use crate::layout::Layout;
use crate::matrix::cell::Mode;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;
use vdev::TopKind;

/// Number of threads, at most.
const THREADS_MAX: usize = 2048;

/// Rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// Each device alone, and which of them is slow or errs
    One,
    /// Bare devices striped, in the order in which they are counted
    Naive,
    /// Bare devices striped, from both PCIe controllers in turn (modelled devices only)
    Aware,
    /// A pool through the library
    Library,
    /// A pool through the object storage device
    Osd,
    /// A pool through its mount, by a daemon of its own (files as devices only)
    Mount,
}

/// Case of the original that is surveyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Storage of this machine; the original's other cases measure a network
    Disk,
}

/// Number of a modelled device, and a figure of it, as `NUMBER:FIGURE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfDevice {
    /// Number of the device.
    pub number: usize,
    /// Figure of it.
    pub figure: u64,
}

impl FromStr for OfDevice {
    type Err = String;
    fn from_str(spec: &str) -> Result<OfDevice, String> {
        let fields = spec.split_once(':').and_then(|(number, figure)| Some((number.parse().ok()?, figure.parse().ok()?)));
        let (number, figure) = fields.ok_or("a device and its figure look like 3:5")?;
        Ok(OfDevice { number, figure })
    }
}

/// What to measure.
#[derive(ClapArgs, Clone, Debug)]
pub struct Args {
    /// Case of the original
    #[arg(long, value_enum, default_value_t = Case::Disk)]
    pub case: Case,
    /// MiB that each test moves
    #[arg(long, default_value_t = 256)]
    pub size: u64,
    /// Number of objects, at least; it doubles
    #[arg(long, default_value_t = 16)]
    pub nobjlo: usize,
    /// Number of objects, at most
    #[arg(long, default_value_t = 16)]
    pub nobjhi: usize,
    /// Number of threads (of jobs on bare devices), at least; it doubles, and those that the objects do not divide are left out
    #[arg(long, default_value_t = 64)]
    pub thrlo: usize,
    /// Number of threads, at most: up to 2048
    #[arg(long, default_value_t = 64)]
    pub thrhi: usize,
    /// KiB of a request, at least
    #[arg(long, default_value_t = 1024)]
    pub rszlo: u64,
    /// KiB of a request, at most
    #[arg(long, default_value_t = 1024)]
    pub rszhi: u64,
    /// Factor from one size of requests to the next
    #[arg(long, default_value_t = 2)]
    pub rszstep: u64,
    /// Rungs of the ladder
    #[arg(long, value_enum, value_delimiter = ',', default_value = "one,naive,aware,library,osd,mount")]
    pub layers: Vec<Layer>,
    /// Numbers of devices
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,12,16,20,24")]
    pub devices: Vec<usize>,
    /// Layout of pools, with its number of devices: raidz2:12; without it they are stripes over the numbers of devices
    #[arg(long)]
    pub layout: Option<Layout>,
    /// Sizes of records, in KiB
    #[arg(long, value_delimiter = ',', default_value = "1024")]
    pub record_kib: Vec<u64>,
    /// Modes of requests to pools
    #[arg(long, value_enum, value_delimiter = ',', default_value = "direct")]
    pub modes: Vec<Mode>,
    /// Values of the property checksum
    #[arg(long, value_delimiter = ',', default_value = "off")]
    pub checksum: Vec<String>,
    /// Values of the property compression
    #[arg(long, value_delimiter = ',', default_value = "off")]
    pub compression: Vec<String>,
    /// MiB of the cache of a pool
    #[arg(long, default_value_t = 256)]
    pub arc_mib: u64,
    /// Directory in which files are the devices; without it, devices are modelled in virtual time
    #[arg(long)]
    pub on: Option<PathBuf>,
    /// Loop devices over the files, each under a cap of so many 10⁶ bytes per second (needs root)
    #[arg(long, requires = "on")]
    pub cap_mb: Option<u64>,
    /// Worker threads of a pool on files
    #[arg(long, default_value_t = 2)]
    pub workers: usize,
    /// Milliseconds of each run of bare devices; the first third of it does not count
    #[arg(long, default_value_t = 600)]
    pub raw_ms: u64,
    /// Milliseconds of the intervals whose lowest and highest rate are shown
    #[arg(long, default_value_t = 1000)]
    pub interval_ms: u64,
    /// I/Os by which each device is judged, in each direction
    #[arg(long, default_value_t = 4096)]
    pub qualify_ios: u64,
    /// Rate at which a modelled device reads, 10⁶ bytes per second
    #[arg(long, default_value_t = 3500)]
    pub read_mb: u64,
    /// Rate at which a modelled device writes
    #[arg(long, default_value_t = 2000)]
    pub write_mb: u64,
    /// Rate of a modelled device's link
    #[arg(long, default_value_t = 3940)]
    pub link_mb: u64,
    /// Rate of each of the two modelled PCIe controllers, with twelve devices each
    #[arg(long, default_value_t = 15_750)]
    pub host_mb: u64,
    /// Modelled devices that take so many times as long: NUMBER:TIMES
    #[arg(long, value_delimiter = ',')]
    pub slow: Vec<OfDevice>,
    /// Modelled devices that fail so many I/Os of a million while they are alone: NUMBER:MILLIONTHS
    #[arg(long, value_delimiter = ',')]
    pub failing: Vec<OfDevice>,
}

/// Values from `low` to `high`, each `step` times the one before.
fn ladder(low: u64, high: u64, step: u64) -> Vec<u64> {
    let next = |value: &u64| value.checked_mul(step.max(2)).filter(|next| *next <= high);
    std::iter::successors(Some(low.max(1)).filter(|low| *low <= high), next).collect()
}

impl Args {
    /// Checks what no type says.
    pub fn check(&self) -> Result<(), String> {
        let Case::Disk = self.case;
        if self.thrhi > THREADS_MAX {
            return Err(format!("there are {THREADS_MAX} threads at most"));
        }
        let layout = self.layout.map(|layout| layout.devices);
        if self.devices.iter().chain(&layout).any(|count| *count == 0 || *count > DRIVES_MAX) {
            return Err(format!("there are 1 to {DRIVES_MAX} devices"));
        }
        if !self.rszlo.is_multiple_of(4) {
            return Err("requests are whole pages of 4 KiB".to_string());
        }
        Ok(())
    }

    /// Layouts of pools.
    pub fn layouts(&self) -> Vec<Layout> {
        match self.layout {
            Some(layout) => vec![layout],
            None => self.devices.iter().map(|devices| Layout { kind: TopKind::Leaf, devices: *devices }).collect(),
        }
    }

    /// Bytes of requests.
    pub fn requests(&self) -> Vec<u64> {
        ladder(self.rszlo, self.rszhi, self.rszstep).into_iter().map(|kib| kib << 10).collect()
    }

    /// Numbers of threads.
    pub fn threads(&self) -> Vec<usize> {
        ladder(self.thrlo as u64, self.thrhi as u64, 2).into_iter().map(|count| count as usize).collect()
    }

    /// Numbers of objects and of threads of the same run: threads are shared out evenly.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        let objects = ladder(self.nobjlo as u64, self.nobjhi as u64, 2);
        let pairs = objects.into_iter().flat_map(|count| self.threads().into_iter().map(move |threads| (count as usize, threads)));
        pairs.filter(|(count, threads)| threads.is_multiple_of(*count)).collect()
    }

    /// Rates of the modelled devices.
    pub fn rates(&self) -> Rates {
        let mb = |rate: u64| rate.max(1) * 1_000_000;
        Rates { drive: [mb(self.read_mb), mb(self.write_mb)], link: mb(self.link_mb), host: mb(self.host_mb) }
    }

    /// Defects of a modelled device; only one that is alone fails.
    pub fn flaw(&self, number: usize, is_alone: bool) -> Flaw {
        let figure = |all: &[OfDevice]| all.iter().find(|device| device.number == number).map(|device| device.figure);
        let failing = figure(&self.failing).filter(|_| is_alone).unwrap_or(0);
        Flaw { slower: figure(&self.slow).unwrap_or(1), failing }
    }
}

#[cfg(test)]
mod tests {
    use super::ladder;

    /// If this fails, a survey leaves out the largest of what it was asked for, or never ends.
    #[test]
    fn sizes_double_up_to_the_largest() {
        assert_eq!(ladder(1, 16, 2), [1, 2, 4, 8, 16]);
        assert_eq!(ladder(32, 1024, 32), [32, 1024]);
        assert_eq!(ladder(3, 10, 2), [3, 6]);
        assert_eq!(ladder(64, 64, 0), [64]);
        assert!(ladder(8, 4, 2).is_empty());
    }
}
