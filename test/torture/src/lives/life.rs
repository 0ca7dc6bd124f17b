//! The pool of a life, its devices, and who knows what must survive.

use super::survival::{Harm, Health, number, number_of};
use super::written::{BLOCKS, DATASET, Written, said};
use super::{DEVICE_BYTES, Report, Shape};
use crate::machine::{host, make};
use device::BlockDevice;
use dsl::CreateDataset;
use exec::{Exec, Inline, SplitMix};
use ondisk::{Guid, ObjsetType};
use pool::{ImportOptions, LeafSpec, Pool, PoolError, Runtime, TopSpec};
use sim::{Sim, SimDevice};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::LeafKind;

/// Number of devices beyond those that the pool is made of.
const DEVICES_MORE: usize = 3;

pub struct Life {
    pub random: SplitMix,
    pub exec: Exec,
    pub inline: Arc<Inline>,
    pub sim: Sim,
    pub devices: Vec<Arc<SimDevice>>,
    pub pool: Option<Pool>,
    pub written: Written,
    pub harm: Harm,
    /// True when faults may be armed.
    pub is_faulty: bool,
    pub report: Report,
}

/// Sets a pool to trim in small parts, and rebuild in small parts.
fn tuned(pool: Pool) -> Pool {
    pool.sweep_parameters().trim_min.store(0, Ordering::Relaxed);
    pool.rebuild_parameters().max_segment.store(64 << 10, Ordering::Relaxed);
    pool
}

fn dataset(kind: ObjsetType) -> CreateDataset {
    let properties = vec![("compression".to_string(), "off".to_string())];
    CreateDataset { kind, properties, init: Box::new(|_, _| Ok(())) }
}

pub fn leaf(device: &Arc<SimDevice>) -> LeafSpec {
    LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() }
}

impl Drop for Life {
    /// Lets what a pool that is gone had begun come back to it; else both would keep each other alive.
    fn drop(&mut self) {
        self.pool = None;
        self.inline.run_ready();
    }
}

impl Life {
    pub fn begin(shape: Shape, seed: u64) -> Result<Life, String> {
        let inline = Arc::new(Inline::new(seed));
        let exec: Exec = inline.clone();
        let sim = Sim::new(&exec, seed);
        sim.stop_tracing();
        let devices: Vec<_> = (0..shape.count + DEVICES_MORE).map(|index| sim.device(&format!("d{index}"), DEVICE_BYTES)).collect();
        let tops = vec![TopSpec { kind: shape.kind, leaves: devices[..shape.count].iter().map(leaf).collect() }];
        let pool = said("create", make(&exec, tops, dataset(ObjsetType::ZFS)))?;
        said("create a dataset", pool.dsl().create_dataset(DATASET, dataset(ObjsetType::OTHER)))?;
        let written = Written::begin(&pool)?;
        said("sync", pool.sync())?;
        let random = SplitMix::new(seed ^ 0x11FE);
        Ok(Life {
            random,
            exec,
            inline,
            sim,
            devices,
            pool: Some(tuned(pool)),
            written,
            harm: Harm::default(),
            is_faulty: false,
            report: Report::default(),
        })
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    pub fn pool(&self) -> Result<&Pool, String> {
        self.pool.as_ref().ok_or_else(|| "the pool is closed".to_string())
    }

    /// Device and guid of every leaf that has a device of its own.
    pub fn members(&self) -> Result<Vec<(usize, Guid)>, String> {
        Ok(self.pool()?.tree().leaves.iter().filter(|leaf| leaf.draid_spare.is_none()).map(|leaf| (number_of(leaf), leaf.guid)).collect())
    }

    /// True when every block can be had although `device` is `so`, besides what is hurt.
    pub fn bears(&self, device: usize, so: Health) -> Result<bool, String> {
        Ok(self.harm.leaves_enough(&self.pool()?.tree(), device, so))
    }

    /// Chooses a member to be hurt, if the pool bears that; it counts as hurt from now on.
    pub fn hit(&mut self, so: Health) -> Result<Option<(usize, Guid)>, String> {
        let members = self.members()?;
        let member = members[self.below(members.len() as u64) as usize];
        if !self.bears(member.0, so)? {
            return Ok(None);
        }
        self.harm.hurt.insert(member.0);
        if so == Health::Tainted {
            self.harm.tainted.insert(member.0);
        }
        Ok(Some(member))
    }

    /// Number of a device that is neither a member nor a spare.
    pub fn unused(&self) -> Result<Option<usize>, String> {
        let members = self.members()?;
        let spares: Vec<usize> = self.pool()?.spares().iter().map(|spare| number(&spare.path)).collect();
        let is_free = |index: &usize| members.iter().all(|(member, _)| member != index) && !spares.contains(index);
        Ok((0..self.devices.len()).find(is_free))
    }

    pub fn write(&mut self) -> Result<(), String> {
        let (first, length) = (self.below(BLOCKS), 1 + self.below(5));
        self.report.count("writes");
        let pool = self.pool.as_ref().ok_or("the pool is closed")?;
        self.written.write(pool, first..(first + length).min(BLOCKS))
    }

    pub fn import(&self, devices: &[usize], read_only: bool) -> Result<Pool, PoolError> {
        let devices = devices.iter().map(|index| &self.devices[*index]).filter(|device| !device.is_blank());
        let opened = devices.map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let options = ImportOptions { host: host(), read_only, ..ImportOptions::default() };
        Pool::import(&self.exec, opened, &options, &Runtime::new()).map(tuned)
    }

    pub fn check(&self, when: &str) -> Result<(), String> {
        self.check_pool(self.pool()?, when)
    }

    pub fn check_pool(&self, pool: &Pool, when: &str) -> Result<(), String> {
        self.written.check(pool).map_err(|error| format!("{when}: {error}; hurt {:?}", self.harm.hurt))
    }
}
