//! Whole pools on a provider that goes bad after it was registered, with the properties as they are by default: it lies (at once, later, now and
//! then), gives less, crashes, sleeps or is late, at every operation. Whatever it does, a system that has no such provider finds every block that was
//! written, metadata included, with any two devices gone, and a scrub nothing to repair.
//!
//! Every file is new or overwritten in each transaction group, so that dnodes, indirect blocks and the MOS are written all the time; the pool runs on
//! one thread with a virtual clock, so that a trial can be repeated.

use crate::common::text;
use crate::outcome::Verdict;
use crate::scene;
use device::{BlockDevice, MemDevice};
use dmu::NewObject;
use dpusm::{OpKind, Registry, Tally};
use dsl::{CreateDataset, TxSpace};
use exec::{Exec, Inline};
use ondisk::{ObjectId, ObjectType, ObjsetType};
use pool::{Host, ImportOptions, LeafSpec, Pool, PoolSpec, Providers, Runtime, TopSpec};
use provider_faulty::{Fault, Faulty, Harm, When};
use std::fmt;
use std::sync::Arc;
use vdev::{LeafKind, TopKind};

const DEVICES: usize = 5;
const DEVICE_BYTES: usize = 72 << 20;
const BLOCK_BYTES: usize = 16 << 10;
/// Number of blocks of one file, which one transaction group writes.
const FILE_BLOCKS: u64 = 32;
/// Number of files, overwritten in turn.
const FILES: u64 = 12;
/// Nanoseconds by which an answer is late: longer than a graph may take.
const LATE_NS: u64 = 8_000_000_000;

/// Manner in which the provider goes bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Lies from the first block on.
    Liar,
    /// Lies from the middle on.
    LateLiar,
    /// Lies at each fiftieth result.
    NowAndThen,
    /// Gives less than it should.
    Miser,
    /// Dies in the middle.
    Crasher,
    /// Does not answer from the middle on.
    Sleeper,
    /// Answers too late each fiftieth time.
    Late,
}

/// Case of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Operation where the provider goes wrong.
    pub kind: OpKind,
    /// Manner in which it does.
    pub manner: Manner,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.manner, self.kind.name())
    }
}

/// Cases of every manner at every operation that pools use.
pub fn cases() -> Vec<Case> {
    let kinds = [
        OpKind::Alloc,
        OpKind::CopyIn,
        OpKind::CopyOut,
        OpKind::ZeroFill,
        OpKind::Compress,
        OpKind::Decompress,
        OpKind::Checksum,
        OpKind::RaidGenerate,
        OpKind::RaidReconstruct,
        OpKind::Store,
    ];
    let manners = [Manner::Liar, Manner::LateLiar, Manner::NowAndThen, Manner::Miser, Manner::Crasher, Manner::Sleeper, Manner::Late];
    kinds.iter().flat_map(|kind| manners.map(|manner| Case { kind: *kind, manner })).collect()
}

impl Case {
    /// Fault for the provider, when `half` operations of the kind are half of the trial.
    fn fault(&self, half: u64) -> Fault {
        let kind = self.kind;
        let (harm, when) = match self.manner {
            Manner::Liar => (Harm::Lie, When::Kind { kind, skip: 0 }),
            Manner::LateLiar => (Harm::Lie, When::Kind { kind, skip: half }),
            Manner::NowAndThen => (Harm::Lie, When::Every { kind, period: 50 }),
            Manner::Miser => (Harm::Short, When::Kind { kind, skip: 3 }),
            Manner::Crasher => (Harm::Die, When::KindAt { kind, skip: half }),
            Manner::Sleeper => (Harm::Stall, When::Kind { kind, skip: half }),
            Manner::Late => (Harm::Slow(LATE_NS), When::Every { kind, period: 50 }),
        };
        Fault { harm, when }
    }

    /// True when the provider must have been caught, if it did any harm at all: allocations have no answer to be wrong, and what lies behind the
    /// compressed bytes of a block is nobody's data.
    fn is_found(&self) -> bool {
        let lies = matches!(self.manner, Manner::Liar | Manner::LateLiar | Manner::NowAndThen);
        lies && !matches!(self.kind, OpKind::Alloc | OpKind::ZeroFill)
    }
}

/// Devices, with what is on them, and the provider.
struct World {
    exec: Exec,
    registry: Registry,
    faulty: Arc<Faulty>,
    devices: Vec<Arc<MemDevice>>,
    /// Objects of the files, and the age that each was written with last.
    files: Vec<(ObjectId, u64)>,
}

fn host() -> Host {
    Host { id: 1, name: "torture".to_string() }
}

fn bytes_of(age: u64, block: u64) -> Vec<u8> {
    text(age * FILE_BLOCKS + block, BLOCK_BYTES).to_vec()
}

impl World {
    fn new() -> World {
        let exec: Exec = Arc::new(Inline::new(7));
        let (registry, faulty) = (Registry::new(&exec), scene::faulty(&exec));
        registry.register(faulty.clone(), &scene::options(5)).expect("it behaves so far");
        faulty.inject(None);
        let device = |index| Arc::new(MemDevice::new(&format!("d{index}"), DEVICE_BYTES));
        World { exec, registry, faulty, devices: (0..DEVICES).map(device).collect(), files: Vec::new() }
    }

    fn runtime(&self) -> Runtime {
        let registry = self.registry.clone();
        Runtime { providers: Some(Providers::new(move |name| registry.get(name))), ..Runtime::new() }
    }

    fn create(&self, case: Case) -> Result<Pool, String> {
        let leaf =
            |device: &Arc<MemDevice>| LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device: device.clone() };
        let tops = vec![TopSpec { kind: TopKind::Raidz(2), leaves: self.devices.iter().map(leaf).collect() }];
        let properties = vec![("compression".to_string(), "lz4".to_string())];
        let dataset = CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) };
        let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops, dataset) };
        let pool = Pool::create(&self.exec, spec, &self.runtime()).map_err(text_of)?;
        let mut properties = vec!["zia_compress", "zia_decompress", "zia_checksum", "zia_raidz2_gen", "zia_raidz2_rec"];
        properties.extend((case.kind == OpKind::Store).then_some("zia_file_write"));
        for name in properties {
            pool.set_prop(name, "on").map_err(text_of)?;
        }
        pool.set_prop("zia_provider", "faulty").map_err(text_of)?;
        Ok(pool)
    }

    fn import(&self, exec: &Exec, gone: usize, runtime: &Runtime) -> Result<Pool, String> {
        let opened = self.devices[gone..].iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let options = ImportOptions { host: host(), read_only: gone > 0, ..ImportOptions::default() };
        Pool::import(exec, opened, &options, runtime).map_err(text_of)
    }

    /// Writes in one transaction group: a file, new or again.
    fn write(&mut self, pool: &Pool, age: u64) -> Result<(), String> {
        let handle = pool.dsl().hold("tank").map_err(text_of)?;
        let objset = handle.objset().map_err(text_of)?;
        let tx = handle.assign(TxSpace::Writes(4 << 20)).map_err(text_of)?;
        let number = (age % FILES) as usize;
        if number == self.files.len() {
            let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::UINT64_OTHER) };
            self.files.push((objset.allocate_object(new, &tx).map_err(text_of)?.object(), age));
        }
        let file = &mut self.files[number];
        file.1 = age;
        let dnode = objset.hold(file.0).map_err(text_of)?;
        for block in 0..FILE_BLOCKS {
            dnode.write(block * BLOCK_BYTES as u64, &bytes_of(age, block), &tx).map_err(text_of)?;
        }
        drop(tx);
        pool.sync().map_err(text_of)
    }

    fn check(&self, pool: &Pool, what: &str) -> Result<(), String> {
        pool.cache().clear();
        let handle = pool.dsl().hold("tank").map_err(text_of)?;
        let objset = handle.objset().map_err(text_of)?;
        let mut found = vec![0; BLOCK_BYTES];
        for (object, age) in &self.files {
            let dnode = objset.hold(*object).map_err(|error| format!("{what}: the dnode of {object:?}: {error}"))?;
            for block in 0..FILE_BLOCKS {
                let place = || format!("{what}: block {block} of age {age}");
                dnode.read(block * BLOCK_BYTES as u64, &mut found).map_err(|error| format!("{}: {error}", place()))?;
                if found != bytes_of(*age, block) {
                    return Err(format!("{} reads as something else", place()));
                }
            }
        }
        Ok(())
    }
}

fn text_of(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Writes about `blocks` blocks to a pool on such a provider, and judges what is left.
pub fn torture(case: Case, blocks: u64) -> Result<(), String> {
    let mut world = World::new();
    let groups = blocks.div_ceil(FILE_BLOCKS);
    let pool = world.create(case)?;
    // How many operations of the kind there are in a group is known when one was written.
    let count = |world: &World| world.registry.get("faulty").map_or(0, |own| own.stats().get(case.kind, Tally::Blocks));
    let is_read = matches!(case.kind, OpKind::Decompress | OpKind::RaidReconstruct);
    world.write(&pool, 0)?;
    if is_read {
        world.check(&pool, "before")?;
    }
    let half = count(&world).max(FILE_BLOCKS) * groups / 2;
    // What is only read needs no more than a few rounds.
    world.faulty.inject(Some(case.fault(if is_read { FILE_BLOCKS } else { half.max(1) })));
    for age in 1..groups {
        world.write(&pool, age)?;
        if age % 8 == 0 {
            world.check(&pool, "while it is written")?;
        }
    }
    world.check(&pool, "written")?;
    pool.export().map_err(text_of)?;
    if case.kind == OpKind::RaidReconstruct {
        let pool = world.import(&world.exec, 2, &world.runtime())?;
        world.check(&pool, "two devices gone")?;
        world.check(&pool, "two devices gone, again")?;
    }
    let struck = world.faulty.struck();
    if case.is_found() && struck > 0 && world.registry.lie("faulty").is_none() {
        return Err(format!("it lied {struck} times, and is used on"));
    }
    world.faulty.inject(None);
    world.faulty.release_stalled();
    by_others(&world)
}

/// Has a system without the provider look at the pool.
fn by_others(world: &World) -> Result<(), String> {
    let exec: Exec = Arc::new(Inline::new(8));
    let pool = world.import(&exec, 0, &Runtime::new())?;
    world.check(&pool, "without the provider")?;
    pool.scrub_start().map_err(text_of)?;
    pool.scrub_wait().map_err(text_of)?;
    let scan = pool.scan_status().ok_or("no scrub")?;
    if (scan.errors, scan.repaired) != (0, 0) {
        return Err(format!("a scrub found {} errors and repaired {} bytes", scan.errors, scan.repaired));
    }
    if !pool.verify_space().map_err(text_of)?.is_clean() {
        return Err("space is leaked or lost".into());
    }
    pool.export().map_err(text_of)?;
    let pool = world.import(&exec, 2, &Runtime::new())?;
    world.check(&pool, "without the provider and two devices")
}

/// Runs all trials of a share, each with so many blocks.
pub fn campaign(blocks: u64, every: usize, rest: usize) -> Verdict {
    let mut verdict = Verdict::default();
    for case in cases().into_iter().skip(rest).step_by(every.max(1)) {
        verdict.trial(&case.to_string(), || torture(case, blocks));
    }
    verdict
}
