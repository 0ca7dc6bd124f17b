//! Random lives of pools: devices fail, lie, are wiped, taken out, brought back, attached, replaced and detached, between writes,
//! scrubs, resilvers, crashes and imports.
//!
//! The model knows which devices hold everything that they should. It lets only those things happen after which every block can
//! still be had from them; so whatever was promised must be there, at any time. After each *healing* (faults end, devices come
//! back, dead ones are replaced, resilver and scrub run to their ends) every device counts as whole again: any that the layout can
//! do without are left out, and everything must be read.

use crate::machine::{DEVICE_BYTES, host, make};
use device::{BlockDevice, DeviceError};
use dmu::NewObject;
use dsl::{CreateDataset, TxSpace};
use exec::{Exec, Inline, SplitMix};
use ondisk::{Guid, ObjectId, ObjectType, ObjsetType};
use pool::{ImportOptions, LeafSpec, Pool, PoolError, Runtime, ScanError, TopSpec};
use sim::{Fault, FaultKind, Image, OpKind, Sim, SimDevice};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use vdev::{DraidConfig, LeafKind, LeafState, Node, NodeKind, Pairing, TopKind};

const BLOCK_BYTES: usize = 16 << 10;
const BLOCKS: u64 = 20;
/// Devices beyond those that the pool is made of.
const SPARES: usize = 3;
/// Members of a mirror at most.
const MIRROR_MAX: usize = 4;
/// Labels and boot block at the start, labels at the end: what is damaged is data.
const DATA: std::ops::Range<usize> = 4 << 20..DEVICE_BYTES - (1 << 20);
/// Damaged pages in one corruption.
const PAGES_MAX: u64 = 12;
/// Resilvers that may follow each other until nothing is missing.
const ROUNDS_MAX: usize = 6;
const DATASET: &str = "tank/lives";

/// What a pool is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Of the only top-level vdev.
    pub kind: TopKind,
    /// Devices at first.
    pub count: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TopKind::Mirror => write!(f, "mirror:{}", self.count),
            TopKind::Raidz(parity) => write!(f, "raidz{parity}:{}", self.count),
            TopKind::Draid(config) => write!(f, "draid{}:{}d:{}c:{}s", config.parity(), config.data(), self.count, config.spares()),
            _ => write!(f, "disk:{}", self.count),
        }
    }
}

/// The shapes that lives begin with.
pub fn shapes() -> Vec<Shape> {
    let mut shapes = vec![
        Shape { kind: TopKind::Leaf, count: 1 },
        Shape { kind: TopKind::Mirror, count: 2 },
        Shape { kind: TopKind::Mirror, count: 3 },
        Shape { kind: TopKind::Raidz(1), count: 3 },
        Shape { kind: TopKind::Raidz(2), count: 5 },
        Shape { kind: TopKind::Raidz(3), count: 6 },
    ];
    for (parity, data, spares, count) in [(1, 2, 1, 5), (2, 2, 1, 6), (3, 1, 0, 5)] {
        if let Ok(config) = DraidConfig::new(parity, data, spares, count) {
            shapes.push(Shape { kind: TopKind::Draid(config), count });
        }
    }
    shapes
}

/// How often what happened.
#[derive(Clone, Debug, Default)]
pub struct Report(BTreeMap<&'static str, u64>);

impl Report {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Adds what other lives did.
    pub fn add(&mut self, other: &Report) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// How often this happened.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&list.join(", "))
    }
}

struct Life {
    random: SplitMix,
    exec: Exec,
    inline: Arc<Inline>,
    sim: Sim,
    devices: Vec<Arc<SimDevice>>,
    pool: Option<Pool>,
    object: ObjectId,
    /// What each block was written with last; 0 is never.
    ages: Vec<u64>,
    age: u64,
    /// Devices on which something may be wrong or missing.
    hurt: BTreeSet<usize>,
    /// Those of them that hold something else than the engine believes.
    tainted: BTreeSet<usize>,
    /// Devices whose labels are gone.
    dead: BTreeSet<usize>,
    report: Report,
}

/// Bytes that tell block and age.
fn pattern(age: u64, block: u64) -> Vec<u8> {
    let mut random = SplitMix::new(age << 16 | block);
    (0..BLOCK_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

fn dataset(kind: ObjsetType) -> CreateDataset {
    let properties = vec![("compression".to_string(), "off".to_string())];
    CreateDataset { kind, properties, init: Box::new(|_, _| Ok(())) }
}

fn leaf(device: &Arc<SimDevice>) -> LeafSpec {
    LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() }
}

/// The number of the device with this path.
fn number(path: &str) -> usize {
    path.trim_end_matches("/old").trim_start_matches('d').parse().unwrap_or(usize::MAX)
}

/// What the model knows of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Whole,
    /// Something may be missing, and the engine knows what.
    Lacking,
    /// Something may be wrong without anybody's knowledge.
    Tainted,
}

/// True when everything below the node can be had from its leaves, now and when a replaced one has left by itself: then what
/// nobody knows of the other one counts.
fn suffices(node: &Node, health: &dyn Fn(vdev::LeafId) -> Health) -> bool {
    let lacking = || node.children.iter().filter(|child| !suffices(child, health)).count();
    let is_tainted = |child: &Node| matches!(child.kind, NodeKind::Leaf(leaf) if health(leaf) == Health::Tainted);
    match node.kind {
        NodeKind::Leaf(leaf) => health(leaf) == Health::Whole,
        NodeKind::Replacing | NodeKind::Spare => lacking() < node.children.len() && !node.children.iter().any(is_tainted),
        NodeKind::Mirror => lacking() < node.children.len(),
        NodeKind::Raidz(parity) => lacking() <= usize::from(parity),
        NodeKind::Draid(config) => lacking() <= config.parity(),
    }
}

fn said<T, E: fmt::Display>(what: &str, result: Result<T, E>) -> Result<T, String> {
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
    fn begin(shape: Shape, seed: u64) -> Result<Life, String> {
        let inline = Arc::new(Inline::new(seed));
        let exec: Exec = inline.clone();
        let sim = Sim::new(&exec, seed);
        let devices: Vec<_> = (0..shape.count + SPARES).map(|index| sim.device(&format!("d{index}"), DEVICE_BYTES)).collect();
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
        let (hurt, tainted, dead) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Ok(Life { random, exec, inline, sim, devices, pool: Some(pool), object, ages, age: 0, hurt, tainted, dead, report })
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    fn pool(&self) -> Result<&Pool, String> {
        self.pool.as_ref().ok_or_else(|| "the pool is closed".to_string())
    }

    /// Device and guid of every leaf.
    fn members(&self) -> Result<Vec<(usize, Guid)>, String> {
        Ok(self
            .pool()?
            .tree()
            .leaves
            .iter()
            .filter(|leaf| leaf.draid_spare.is_none())
            .map(|leaf| (number(&leaf.path), leaf.guid))
            .collect())
    }

    /// True when every block can be had although `device` is `so`, besides what is hurt.
    fn bears(&self, device: usize, so: Health) -> Result<bool, String> {
        let tree = self.pool()?.tree();
        let health = |id| match number(&tree.leaf(id).path) {
            this if self.tainted.contains(&this) => Health::Tainted,
            this if this == device => so,
            this if self.hurt.contains(&this) => Health::Lacking,
            _ => Health::Whole,
        };
        Ok(tree.tops.iter().all(|top| top.node.as_ref().is_some_and(|node| suffices(node, &health))))
    }

    /// A member that the pool bears to be hurt, if the one that was chosen is one; it counts as hurt from now on.
    fn hit(&mut self, so: Health) -> Result<Option<(usize, Guid)>, String> {
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

    fn unused(&self) -> Result<Option<usize>, String> {
        let members = self.members()?;
        Ok((0..self.devices.len()).find(|index| members.iter().all(|(member, _)| member != index)))
    }

    fn step(&mut self) -> Result<(), String> {
        self.report.count("steps");
        match self.below(24) {
            0..=4 => self.write(),
            5 => said("sync", self.pool()?.sync()),
            6 => self.fail(),
            7 | 8 => self.corrupt(),
            9 => self.wipe(),
            10 | 11 => self.take_out(),
            12 | 13 => self.bring_back(),
            14 | 15 => self.attach(),
            16 => self.detach(),
            17 | 18 => self.scan(),
            19 => {
                self.report.count("clears");
                said("clear", self.pool()?.clear(None))
            }
            20 | 21 => self.reopen(),
            22 => self.heal(),
            _ => self.check("a look"),
        }
    }

    fn write(&mut self) -> Result<(), String> {
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

    /// Reads, writes or both fail on a device, some of them or all from now on.
    fn fail(&mut self) -> Result<(), String> {
        let Some((device, _)) = self.hit(Health::Lacking)? else { return Ok(()) };
        self.report.count("failures");
        let mut fault = Fault::always(FaultKind::Error(DeviceError::Io)).on(self.devices[device].index());
        match self.below(4) {
            0 => fault = fault.only(OpKind::Read),
            1 => fault = fault.only(OpKind::Write),
            _ => {}
        }
        if self.below(2) == 0 {
            (fault.skip, fault.count) = (self.below(60), 1 + self.below(20));
        }
        self.sim.arm(fault);
        Ok(())
    }

    /// Pages that were written hold something else.
    fn corrupt(&mut self) -> Result<(), String> {
        if self.pool()?.is_rebuilding() {
            return Ok(());
        }
        let Some((device, _)) = self.hit(Health::Tainted)? else { return Ok(()) };
        self.report.count("corruptions");
        let written: Vec<usize> = self.devices[device].image().written().map(|(at, _)| at).filter(|at| DATA.contains(at)).collect();
        for _ in 0..1 + self.below(PAGES_MAX) {
            let at = written.get(self.below(written.len() as u64) as usize).copied().unwrap_or(DATA.start);
            let junk: Vec<u8> = (0..512 + self.below(8000) as usize).map(|index| (index * 7) as u8 ^ 0x5A).collect();
            self.devices[device].tamper(|image: &mut Image| image.write(at, &junk));
        }
        Ok(())
    }

    /// A device forgets everything; only a replacement helps.
    fn wipe(&mut self) -> Result<(), String> {
        if self.unused()?.is_none() || !self.dead.is_empty() || self.pool()?.is_rebuilding() {
            return Ok(());
        }
        let Some((device, _)) = self.hit(Health::Tainted)? else { return Ok(()) };
        self.report.count("wipes");
        self.dead.insert(device);
        self.devices[device].tamper(|image| *image = Image::new(DEVICE_BYTES));
        Ok(())
    }

    fn take_out(&mut self) -> Result<(), String> {
        let Some((_, guid)) = self.hit(Health::Lacking)? else { return Ok(()) };
        let temporary = self.below(3) == 0;
        match self.pool()?.offline(guid, temporary) {
            Ok(()) => self.report.count("offline"),
            // The device that it depends on is hurt without the engine's knowledge, or one of two that hold the same.
            Err(PoolError::NoReplicas) => {}
            Err(error) => return Err(format!("offline: {error}")),
        }
        self.check("after offline")
    }

    fn bring_back(&mut self) -> Result<(), String> {
        let members = self.members()?;
        let (device, guid) = members[self.below(members.len() as u64) as usize];
        self.report.count("online");
        self.online(device, guid)
    }

    fn online(&self, device: usize, guid: Guid) -> Result<(), String> {
        let state = said("online", self.pool()?.online(guid, Some(self.devices[device].clone())))?;
        // Faults can hide a label, and a wiped device has none.
        let may_be_missing = self.dead.contains(&device) || self.hurt.contains(&device);
        if state == LeafState::Online || may_be_missing { Ok(()) } else { Err(format!("d{device} is {state:?} after online")) }
    }

    fn attach(&mut self) -> Result<(), String> {
        let Some(new) = self.unused()? else { return Ok(()) };
        let members = self.members()?;
        let (_, guid) = members[self.below(members.len() as u64) as usize];
        let pairing = if self.below(3) == 0 && members.len() < MIRROR_MAX { Pairing::Mirror } else { Pairing::Replacing };
        // A rebuild looks at no checksum: what nobody knows of a device would be copied.
        let sequential = self.tainted.is_empty() && self.below(3) == 0;
        let (pool, spec) = (self.pool()?, leaf(&self.devices[new]));
        let attached = match sequential {
            true => pool.attach_sequential(guid, &spec, pairing, true),
            false => pool.attach(guid, &spec, pairing, true),
        };
        match attached {
            Ok(()) if sequential => {
                self.hurt.insert(new);
                self.report.count("rebuilds");
                Ok(())
            }
            Ok(()) => {
                self.hurt.insert(new);
                self.tainted.remove(&new);
                self.dead.remove(&new);
                self.report.count(if pairing == Pairing::Mirror { "attaches" } else { "replacements" });
                Ok(())
            }
            Err(PoolError::Target(_) | PoolError::Rebuilding | PoolError::Scan(_)) => Ok(()),
            // A label cannot be written to a device that fails.
            Err(_) if self.hurt.contains(&new) => Ok(()),
            Err(error) => Err(format!("attach d{new}: {error}")),
        }
    }

    fn detach(&mut self) -> Result<(), String> {
        let members = self.members()?;
        let (device, guid) = members[self.below(members.len() as u64) as usize];
        if !self.bears(device, Health::Lacking)? {
            return Ok(());
        }
        match self.pool()?.detach(guid) {
            Ok(()) => {
                self.report.count("detaches");
                self.check("after detach")
            }
            Err(PoolError::NoReplicas | PoolError::Target(_)) => Ok(()),
            Err(error) => Err(format!("detach d{device}: {error}")),
        }
    }

    /// A scrub begins, or what runs goes on for a while.
    fn scan(&mut self) -> Result<(), String> {
        let blocks = 1 + self.below(12) as usize;
        if self.below(3) == 0 {
            self.start_scrub()?;
        }
        said("rebuild", self.pool()?.rebuild_drive_part(blocks))?;
        said("scan", self.pool()?.scrub_drive_part(blocks))
    }

    fn start_scrub(&mut self) -> Result<(), String> {
        match self.pool()?.scrub_start() {
            Ok(()) => self.report.count("scrubs"),
            Err(PoolError::Scan(ScanError::Running | ScanError::Resilvering)) => {}
            Err(error) => return Err(format!("scrub: {error}")),
        }
        Ok(())
    }

    /// Export or crash, then import, with or without a device.
    fn reopen(&mut self) -> Result<(), String> {
        let crashes = self.below(2) == 0;
        let mut promised = None;
        if crashes {
            said("sync", self.pool()?.sync())?;
            promised = Some(self.ages.clone());
            self.write()?;
        }
        let absent = if self.below(3) == 0 { self.hit(Health::Lacking)?.map(|(device, _)| device) } else { None };
        let pool = self.pool.take().ok_or("the pool is closed")?;
        if crashes {
            self.report.count("crashes");
            drop(pool);
            self.inline.run_ready();
        } else {
            self.report.count("exports");
            said("export", pool.export())?;
        }
        let there: Vec<usize> = (0..self.devices.len()).filter(|index| Some(*index) != absent).collect();
        self.pool = Some(said("import", self.import(&there, false))?);
        if let Some(promised) = promised {
            // What was written after the promise is there as a whole, or not at all.
            if self.check("the last write").is_err() {
                self.ages = promised;
            }
        }
        self.check("after import")
    }

    fn import(&self, devices: &[usize], read_only: bool) -> Result<Pool, PoolError> {
        let opened = devices.iter().map(|index| self.devices[*index].clone() as Arc<dyn BlockDevice>).collect();
        let options = ImportOptions { host: host(), read_only, ..ImportOptions::default() };
        Pool::import(&self.exec, opened, &options, &Runtime::new())
    }

    fn check(&self, when: &str) -> Result<(), String> {
        self.check_pool(self.pool()?, when)
    }

    fn check_pool(&self, pool: &Pool, when: &str) -> Result<(), String> {
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

    /// Faults end, everybody comes back, what is dead is replaced; resilver and scrub to their ends. Then nothing is hurt.
    fn heal(&mut self) -> Result<(), String> {
        self.report.count("healings");
        self.sim.disarm();
        said("rebuild", self.pool()?.rebuild_wait())?;
        for (device, guid) in self.members()? {
            if self.dead.contains(&device) {
                self.bury(device, guid)?;
            }
        }
        for _ in 0..ROUNDS_MAX {
            for (device, guid) in self.members()? {
                let tree = self.pool()?.tree();
                let is_usable = tree.leaf_by_guid(guid).is_some_and(|id| tree.leaf(id).state.is_usable());
                if !is_usable && !self.dead.contains(&device) {
                    self.online(device, guid)?;
                }
            }
            said("clear", self.pool()?.clear(None))?;
            said("rebuild", self.pool()?.rebuild_wait())?;
            said("resilver", self.pool()?.scrub_wait())?;
            said("sync", self.pool()?.sync())?;
            if self.lacking()?.is_empty() && !self.pool()?.tree().is_replacing() {
                break;
            }
        }
        if !self.lacking()?.is_empty() || self.pool()?.tree().is_replacing() {
            let tree = self.pool()?.tree();
            let of = |leaf: &vdev::Leaf| format!("{} {:?} lacks {:?} ({:?})", leaf.path, leaf.state, leaf.missing_txgs, leaf.resilver_txg);
            let leaves: Vec<_> = tree.leaves.iter().map(of).collect();
            return Err(format!("after {ROUNDS_MAX} resilvers: {leaves:?}, {:?}", self.pool()?.scan_status()));
        }
        self.start_scrub()?;
        said("scrub", self.pool()?.scrub_wait())?;
        if let Some(status) = self.pool()?.scan_status().filter(|status| status.errors != 0) {
            return Err(format!("the scrub could not repair everything: {status:?}"));
        }
        self.hurt.clear();
        self.tainted.clear();
        self.dead.clear();
        self.check("after healing")?;
        self.lose()
    }

    /// A dead device gets a successor, unless it has one.
    fn bury(&mut self, device: usize, guid: Guid) -> Result<(), String> {
        let tree = self.pool()?.tree();
        let Some(id) = tree.leaf_by_guid(guid) else { return Ok(()) };
        if tree.parent_kind(id) == Some(NodeKind::Replacing) {
            // A replacement that died goes; a device that died beside its replacement goes when that has everything.
            return match self.pool()?.detach(guid) {
                Ok(()) | Err(PoolError::NoReplicas) => Ok(()),
                Err(error) => Err(format!("detach dead d{device}: {error}")),
            };
        }
        let Some(new) = self.unused()? else {
            // Another member that is being replaced keeps the last free device until its resilver ends.
            said("rebuild", self.pool()?.rebuild_wait())?;
            said("resilver", self.pool()?.scrub_wait())?;
            said("sync", self.pool()?.sync())?;
            let Some(new) = self.unused()? else { return Err(format!("no device is free to replace d{device}")) };
            return said("replace", self.pool()?.attach(guid, &leaf(&self.devices[new]), Pairing::Replacing, true));
        };
        said("replace", self.pool()?.attach(guid, &leaf(&self.devices[new]), Pairing::Replacing, true))
    }

    /// Members that are out of use or lack something.
    fn lacking(&self) -> Result<Vec<usize>, String> {
        let tree = self.pool()?.tree();
        let lacks = |leaf: &&vdev::Leaf| !leaf.state.is_usable() || !leaf.missing_txgs.is_empty();
        Ok(tree.leaves.iter().filter(|leaf| leaf.draid_spare.is_none()).filter(lacks).map(|leaf| number(&leaf.path)).collect())
    }

    /// As many devices as the pool bears are away, others each time: everything is read, and nothing has to be repaired.
    fn lose(&mut self) -> Result<(), String> {
        let members: Vec<usize> = self.members()?.into_iter().map(|(device, _)| device).collect();
        let mut away = BTreeSet::new();
        for _ in 0..members.len() {
            let device = members[self.below(members.len() as u64) as usize];
            if !away.contains(&device) && self.bears(device, Health::Lacking)? {
                away.insert(device);
                self.hurt.insert(device);
            }
        }
        self.hurt.clear();
        let pool = self.pool.take().ok_or("the pool is closed")?;
        said("export", pool.export())?;
        let there: Vec<usize> = members.iter().copied().filter(|device| !away.contains(device)).collect();
        {
            let pool = said("import without some", self.import(&there, true))?;
            self.check_pool(&pool, &format!("without {away:?}"))?;
            let report = said("space", pool.verify_space())?;
            let errors: u64 = pool.status().leaves.iter().map(|leaf| leaf.counts.checksum_errors).sum();
            if !report.is_clean() || errors != 0 {
                return Err(format!("without {away:?}: {errors} checksum errors, space {report:?}"));
            }
        }
        self.report.count("losses");
        let all: Vec<usize> = (0..self.devices.len()).collect();
        self.pool = Some(said("import", self.import(&all, false))?);
        self.check("after the losses")
    }
}

/// What a life ended with.
#[derive(Debug)]
pub struct Ended {
    /// What happened in it.
    pub report: Report,
    /// The devices of the exported pool `tank`, with their names.
    pub images: Vec<(String, Image)>,
}

impl Ended {
    /// Writes the devices into sparse files in `folder`.
    pub fn write_to(&self, folder: &Path) -> std::io::Result<()> {
        for (name, image) in &self.images {
            let file = std::fs::File::create(folder.join(name))?;
            file.set_len(image.size_bytes() as u64)?;
            for (offset, bytes) in image.written() {
                file.write_all_at(bytes, offset as u64)?;
            }
        }
        Ok(())
    }
}

/// One life of `steps` steps, healed in the end.
pub fn live(shape: Shape, seed: u64, steps: u64) -> Result<Ended, String> {
    let mut life = Life::begin(shape, seed)?;
    for step in 0..steps {
        life.step().map_err(|error| format!("step {step}: {error}"))?;
    }
    life.heal().map_err(|error| format!("the end: {error}"))?;
    let members = life.members()?;
    if let Some(pool) = life.pool.take() {
        said("export", pool.export())?;
    }
    let image = |(device, _): &(usize, Guid)| (format!("d{device}"), life.devices[*device].image());
    Ok(Ended { images: members.iter().map(image).collect(), report: std::mem::take(&mut life.report) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What keeps itself alive fills the memory of whoever opens and closes pools.
    #[test]
    fn nothing_of_a_pool_outlives_it() {
        for shape in shapes() {
            for seed in 0..6 {
                let mut life = Life::begin(shape, seed).expect("begun");
                let mut what = Vec::new();
                for _ in 0..16 {
                    life.step().expect("stepped");
                    what.push(life.report.to_string());
                }
                let executor = Arc::downgrade(&life.inline);
                drop(life);
                assert_eq!(executor.strong_count(), 0, "{shape} seed {seed}: {:?}", what.last());
            }
        }
    }
}
