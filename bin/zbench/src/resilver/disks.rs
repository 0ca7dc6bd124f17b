//! The devices that a recovery runs on: capped loop devices, or simulated NVMe devices.

use super::args::{Args, DisksAre};
use super::sample::{self, Disk};
use crate::devices::{DeviceKind, DeviceSet};
use crate::files::DATA_START;
use crate::fio::Job;
use crate::measure::text;
use crate::simulated::Simulated;
use crate::subject::Opener;
use abd::Abd;
use device::{BlockDevice, DeviceError, DeviceIo, DeviceOp, DeviceReply};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// Bytes of the blocks that the bare device is written with.
const RAW_BLOCK: u64 = 1 << 20;
const RAW_IN_FLIGHT: usize = 16;

#[derive(Debug)]
enum Kind {
    Loops(DeviceSet),
    Simulated(Arc<Simulated>),
}

/// Devices of one run, all alike.
#[derive(Debug)]
pub struct Disks {
    kind: Kind,
    /// Paths of the devices, or what they are called.
    pub paths: Vec<PathBuf>,
    /// Bytes of each device.
    pub bytes: u64,
    /// Bytes per second that each reads and writes while it takes its time.
    pub bandwidth: [u64; 2],
}

impl Disks {
    /// Makes `count` devices of `bytes` each, `slower` × as slow as the arguments say.
    pub fn create(args: &Args, count: usize, bytes: u64, slower: u64) -> Result<Disks, String> {
        if args.devices_are == DisksAre::Simulated {
            let set = Arc::new(Simulated::create(count, bytes, args.slower * slower));
            return Ok(Disks { bandwidth: set.bandwidth(), paths: set.paths(), kind: Kind::Simulated(set), bytes });
        }
        let set = DeviceSet::create(DeviceKind::Loops, &args.backing, count, bytes, None)?;
        let bandwidth = [args.read_cap_mb, args.write_cap_mb].map(|cap| (cap * 1_000_000 / slower).max(1_000_000));
        Ok(Disks { paths: set.paths.clone(), kind: Kind::Loops(set), bytes, bandwidth })
    }

    /// Description of the devices, for people.
    pub fn describe(&self) -> String {
        let [read, write] = self.bandwidth.map(|bandwidth| bandwidth as f64 / 1e6);
        let what = match &self.kind {
            Kind::Loops(_) => "loop devices",
            Kind::Simulated(_) => "simulated NVMe devices",
        };
        format!("{what} of {read:.0} MB/s read, {write:.0} MB/s write, {} MiB", self.bytes >> 20)
    }

    /// Opener of the devices by their paths.
    pub fn opener(&self) -> Opener {
        match &self.kind {
            Kind::Loops(_) => Opener::default(),
            Kind::Simulated(set) => set.opener(),
        }
    }

    /// Makes the devices as slow as they are to be, or as fast as the machine.
    pub fn take_time(&self, timed: bool) -> Result<(), String> {
        match &self.kind {
            Kind::Loops(set) => {
                let [read, write] = if timed { self.bandwidth } else { [0; 2] };
                set.limit(read, write)
            }
            Kind::Simulated(set) => {
                set.take_time(timed);
                Ok(())
            }
        }
    }

    /// Overwrites all of a device at once.
    pub fn wipe(&self, index: usize) -> Result<(), String> {
        match &self.kind {
            Kind::Loops(set) => set.wipe(index),
            Kind::Simulated(set) => {
                set.wipe(index);
                Ok(())
            }
        }
    }

    /// Paths of the first `count` devices.
    pub fn first(&self, count: usize) -> &[PathBuf] {
        &self.paths[..count.min(self.paths.len())]
    }

    /// Totals of one device.
    pub fn disk(&self, index: usize) -> Disk {
        match &self.kind {
            Kind::Loops(set) => sample::disk(&set.paths[index]),
            Kind::Simulated(set) => {
                let [read, written, in_flight] = set.totals(index);
                Disk { read, written, in_flight }
            }
        }
    }

    /// Rate in 10⁶ bytes per second that the bare first device reaches when it is written with `bytes`, whatever is on it.
    pub fn bare_write_rate(&self, bytes: u64) -> Result<f64, String> {
        let bytes = (bytes / RAW_BLOCK).max(1) * RAW_BLOCK;
        match &self.kind {
            Kind::Loops(set) => {
                let job = Job::new(&set.paths[..1], "write", RAW_BLOCK).with("offset", DATA_START).with("size", bytes);
                let job = job.with("overwrite", 1).with("ioengine", "libaio").with("direct", 1).with("iodepth", RAW_IN_FLIGHT as u64);
                Ok(job.run()?.mb_per_second())
            }
            Kind::Simulated(set) => write_all(&*set.device(0), bytes),
        }
    }
}

fn write_all(device: &dyn BlockDevice, bytes: u64) -> Result<f64, String> {
    let (data, begun) = (Abd::from_slice(&vec![0xA5; RAW_BLOCK as usize]), Instant::now());
    let (told, replies) = mpsc::channel();
    let mut in_flight = 0;
    let answered = |replies: &mpsc::Receiver<Result<(), DeviceError>>| replies.recv().map_err(text)?.map_err(text);
    for offset in (0..bytes).step_by(RAW_BLOCK as usize) {
        if in_flight == RAW_IN_FLIGHT {
            answered(&replies)?;
            in_flight -= 1;
        }
        let told = told.clone();
        let then = move |reply: DeviceReply| {
            let _ = told.send(reply.outcome);
        };
        device.submit(DeviceIo::new(DeviceOp::Write(data.clone()), DATA_START + offset, then));
        in_flight += 1;
    }
    (0..in_flight).try_for_each(|_| answered(&replies))?;
    Ok(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
}
