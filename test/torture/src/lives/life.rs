//! The pool of a life, and what was written to it: one object whose blocks tell their age.

use super::survival::{Health, number, number_of, suffices};
use super::{DEVICE_BYTES, Report, Shape};
use crate::machine::{host, make};
use device::BlockDevice;
use dmu::NewObject;
use dsl::{CreateDataset, TxSpace};
use exec::{Exec, Inline, SplitMix};
use ondisk::{Guid, ObjectId, ObjectType, ObjsetType};
use pool::{ImportOptions, LeafSpec, Pool, PoolError, Runtime, TopSpec};
use sim::{Sim, SimDevice};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::LeafKind;

const BLOCK_BYTES: usize = 16 << 10;
const BLOCKS: u64 = 20;
/// Devices beyond those that the pool is made of.
const DEVICES_MORE: usize = 3;
const DATASET: &str = "tank/lives";

pub struct Life {
    pub random: SplitMix,
    pub exec: Exec,
    pub inline: Arc<Inline>,
    pub sim: Sim,
    pub devices: Vec<Arc<SimDevice>>,
    pub pool: Option<Pool>,
    pub object: ObjectId,
    /// What each block was written with last; 0 is never.
    pub ages: Vec<u64>,
    pub age: u64,
    /// Devices, and distributed spares, on which something may be wrong or missing.
    pub hurt: BTreeSet<usize>,
    /// Those of them that hold something else than the engine believes.
    pub tainted: BTreeSet<usize>,
    /// Devices whose labels are gone.
    pub dead: BTreeSet<usize>,
    /// Dead devices that healing left to their spares.
    pub left: BTreeSet<usize>,
    /// Faults may be armed.
    pub is_faulty: bool,
    pub report: Report,
}

/// Bytes that tell block and age.
fn pattern(age: u64, block: u64) -> Vec<u8> {
    let mut random = SplitMix::new(age << 16 | block);
    let mut bytes = vec![0; BLOCK_BYTES];
    bytes.as_chunks_mut().0.iter_mut().for_each(|word| *word = random.next_u64().to_le_bytes());
    bytes
}

/// A pool of which small parts are trimmed, and rebuilt in small parts.
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

pub fn said<T, E: fmt::Display>(what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

impl Drop for Life {
    /// What a pool that is gone had begun comes back to it; else both would keep each other alive.
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
        let object = {
            let handle = said("hold", pool.dsl().hold(DATASET))?;
            let tx = said("assign", handle.assign(TxSpace::Writes(1 << 20)))?;
            let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::UINT64_OTHER) };
            said("allocate", said("objset", handle.objset())?.allocate_object(new, &tx))?.object()
        };
        said("sync", pool.sync())?;
        let (ages, report) = (vec![0; BLOCKS as usize], Report::default());
        let random = SplitMix::new(seed ^ 0x11FE);
        Ok(Life {
            random,
            exec,
            inline,
            sim,
            devices,
            pool: Some(tuned(pool)),
            object,
            ages,
            age: 0,
            hurt: BTreeSet::new(),
            tainted: BTreeSet::new(),
            dead: BTreeSet::new(),
            left: BTreeSet::new(),
            is_faulty: false,
            report,
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
        let tree = self.pool()?.tree();
        let health = |id| match number_of(tree.leaf(id)) {
            this if self.tainted.contains(&this) => Health::Tainted,
            this if this == device => so,
            this if self.hurt.contains(&this) => Health::Lacking,
            _ => Health::Whole,
        };
        Ok(tree.tops.iter().all(|top| top.node.as_ref().is_some_and(|node| suffices(node, &health))))
    }

    /// A member that the pool bears to be hurt, if the one that was chosen is one; it counts as hurt from now on.
    pub fn hit(&mut self, so: Health) -> Result<Option<(usize, Guid)>, String> {
        let members = self.members()?;
        let member = members[self.below(members.len() as u64) as usize];
        if !self.bears(member.0, so)? {
            return Ok(None);
        }
        self.hurt.insert(member.0);
        if so == Health::Tainted {
            self.tainted.insert(member.0);
        }
        Ok(Some(member))
    }

    /// A device that is neither a member nor a spare.
    pub fn unused(&self) -> Result<Option<usize>, String> {
        let members = self.members()?;
        let spares: Vec<usize> = self.pool()?.spares().iter().map(|spare| number(&spare.path)).collect();
        let is_free = |index: &usize| members.iter().all(|(member, _)| member != index) && !spares.contains(index);
        Ok((0..self.devices.len()).find(is_free))
    }

    pub fn write(&mut self) -> Result<(), String> {
        let (first, length) = (self.below(BLOCKS), 1 + self.below(5));
        let blocks = first..(first + length).min(BLOCKS);
        self.age += 1;
        self.report.count("writes");
        let handle = said("hold", self.pool()?.dsl().hold(DATASET))?;
        let tx = said("assign", handle.assign(TxSpace::Writes(1 << 20)))?;
        let dnode = said("objset", handle.objset())?.hold(self.object);
        let dnode = said("hold an object", dnode)?;
        for block in blocks {
            said("write", dnode.write(block * BLOCK_BYTES as u64, &pattern(self.age, block), &tx))?;
            self.ages[block as usize] = self.age;
        }
        Ok(())
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
        pool.cache().clear();
        let objset = said("objset", said("hold", pool.dsl().hold(DATASET))?.objset())?;
        let dnode = said(when, objset.hold(self.object))?;
        let mut block = vec![0; BLOCK_BYTES];
        for (index, age) in self.ages.iter().enumerate().filter(|(_, age)| **age != 0) {
            if let Err(error) = dnode.read(index as u64 * BLOCK_BYTES as u64, &mut block) {
                return Err(format!("{when}: block {index}: {error}; hurt {:?}", self.hurt));
            }
            if block != pattern(*age, index as u64) {
                return Err(format!("{when}: block {index} is not what was written; hurt {:?}", self.hurt));
            }
        }
        Ok(())
    }
}
