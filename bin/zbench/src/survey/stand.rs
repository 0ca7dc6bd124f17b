//! The devices of one run, and the executor that drives them: modelled ones in virtual time, or files.

use super::args::Args;
use super::modelled::Machine;
use super::rates::Direction;
use super::watched::Watched;
use crate::devices::{DeviceKind, DeviceSet};
use crate::measure::text;
use device::{BlockDevice, OpenOptions};
use exec::{Exec, Inline, Lockstep};
use leaf::{Defect, Sample, qualify};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SEED: u64 = 1;

/// User of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Nobody but the survey; what is written to modelled ones is not kept, and those that are to fail do.
    Alone,
    /// Nobody but the survey, as [`User::Alone`], but none fails.
    Stripe,
    /// A pool, whose threads wait.
    Pool,
    /// A pool of another process: the devices are not opened here, and are files.
    Daemon,
}

/// Devices of one run.
pub struct Stand {
    exec: Exec,
    devices: Vec<Arc<Watched>>,
    /// Paths of those that are files.
    paths: Vec<PathBuf>,
    /// Bytes that modelled devices copied.
    copied: Option<Arc<AtomicU64>>,
}

/// Does `work` with the devices of these numbers, of `bytes` each.
pub fn with<T>(
    args: &Args,
    numbers: &[usize],
    bytes: u64,
    user: User,
    work: impl FnOnce(&Stand) -> Result<T, String>,
) -> Result<T, String> {
    match (&args.on, user) {
        (Some(folder), _) => {
            let kind = if args.cap_mb.is_some() { DeviceKind::Loops } else { DeviceKind::Files };
            let set = DeviceSet::create(kind, folder, numbers.len(), bytes, args.cap_mb.map(|cap| cap * 1_000_000))?;
            let exec: Exec = Arc::new(exec::Pool::new(args.workers.max(1)));
            let open = |path: &PathBuf| device::open(path, &OpenOptions::default()).map_err(text);
            let opened: &[PathBuf] = if user == User::Daemon { &[] } else { &set.paths[..] };
            let devices = opened.iter().map(open).collect::<Result<Vec<_>, _>>()?;
            work(&Stand { paths: set.paths.clone(), ..Stand::new(&exec, devices, None) })
        }
        (None, User::Daemon) => Err("devices of another process are files".to_string()),
        (None, User::Pool) => Lockstep::run_calmly(SEED, |exec| work(&Stand::modelled(exec, args, numbers, bytes, user))),
        (None, User::Alone | User::Stripe) => {
            let exec: Exec = Arc::new(Inline::new(SEED));
            work(&Stand::modelled(&exec, args, numbers, bytes, user))
        }
    }
}

impl Stand {
    fn new(exec: &Exec, devices: Vec<Arc<dyn BlockDevice>>, copied: Option<Arc<AtomicU64>>) -> Stand {
        let devices = devices.into_iter().map(|device| Arc::new(Watched::new(exec, device))).collect();
        Stand { exec: exec.clone(), devices, paths: Vec::new(), copied }
    }

    fn modelled(exec: &Exec, args: &Args, numbers: &[usize], bytes: u64, user: User) -> Stand {
        let machine = Machine::new(exec, args.rates());
        let drive = |number: &usize| {
            let flaw = args.flaw(*number, user == User::Alone);
            Arc::new(machine.drive(*number, bytes, user == User::Pool, flaw)) as Arc<dyn BlockDevice>
        };
        Stand::new(exec, numbers.iter().map(drive).collect(), Some(machine.copied()))
    }

    /// Executor of the devices.
    pub fn exec(&self) -> &Exec {
        &self.exec
    }

    /// True when time is virtual.
    pub fn is_virtual(&self) -> bool {
        self.copied.is_some()
    }

    /// Devices, in order.
    pub fn devices(&self) -> Vec<Arc<dyn BlockDevice>> {
        self.devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect()
    }

    /// Paths of devices that are files, in order.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Bytes that all devices read and wrote so far.
    pub fn bytes(&self) -> u64 {
        self.devices.iter().map(|device| device.seen().bytes()).sum()
    }

    /// Bytes that this process copied so far, but for those that are in the place of a device's own work.
    pub fn copied(&self) -> u64 {
        abd::copied() - self.copied.as_ref().map_or(0, |copied| copied.load(Ordering::Relaxed))
    }

    /// Devices that are slow or err among their siblings, by all that they did so far.
    pub fn defects(&self) -> Vec<(String, Direction, Defect)> {
        let mut defects = Vec::new();
        for direction in [Direction::Read, Direction::Write] {
            let samples: Vec<Sample> = self.devices.iter().map(|device| device.seen().sample(direction)).collect();
            for (device, defect) in self.devices.iter().zip(qualify(&samples)) {
                defects.extend(defect.map(|defect| (device.path().display().to_string(), direction, defect)));
            }
        }
        defects
    }
}
