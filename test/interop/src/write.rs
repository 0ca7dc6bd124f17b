//! `write`: pools that we make and change, checked by the real engine, changed by it, and read by us again.

use crate::driver::{self, Layout, NewPool};
use crate::manifest::{self, Lines};
use crate::oracle::Oracle;
use crate::program::{Program, Size};
use crate::report::{Job, Table};
use crate::{Failure, Wanted, accelerated, direct, life, matrix, objects, old, storm};
use exec::Exec;
use offload::ZiaMode;
use pool::{AddSpec, ClassSpec, RebuildState, RebuildStatus, Rewind, Runtime, SpaceLogTunables, SweepAction, SweepKind, SweepState};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use vdev::{Bias, DraidConfig, Pairing, TopKind};

const fn layout(name: &'static str, kind: TopKind, tops: usize, width: usize) -> Layout {
    Layout { name, kind, tops, width }
}

const LAYOUTS: [Layout; 8] = [
    layout("stripe1", TopKind::Leaf, 1, 1),
    layout("stripe3", TopKind::Leaf, 3, 1),
    layout("mirror2", TopKind::Mirror, 1, 2),
    layout("mirror3", TopKind::Mirror, 1, 3),
    layout("raidz1x3", TopKind::Raidz(1), 1, 3),
    layout("raidz1x4", TopKind::Raidz(1), 1, 4),
    layout("raidz2x6", TopKind::Raidz(2), 1, 6),
    layout("raidz3x8", TopKind::Raidz(3), 1, 8),
];
/// Name of the layout that only direct I/O writes, to save time: it is like the mirror of two.
const DIRECT_ONLY: &str = "mirror3";
/// dRAID pools: parity, data columns, distributed spares, children, log2 of the sectors; widths 4 to 24, no to two spares.
const DRAIDS: [(&str, [usize; 4], u32); 9] = [
    ("draid1x4", [1, 3, 0, 4], 12),
    ("draid1x5s1", [1, 2, 1, 5], 12),
    ("draid1x6s1", [1, 4, 1, 6], 9),
    ("draid2x7", [2, 3, 0, 7], 12),
    ("draid2x8s2", [2, 4, 2, 8], 9),
    ("draid2x11s2", [2, 4, 2, 11], 12),
    ("draid3x14s2", [3, 5, 2, 14], 12),
    ("draid1x17s1", [1, 8, 1, 17], 9),
    ("draid2x24s2", [2, 8, 2, 24], 12),
];
/// Name of the dRAID of the quick subset, and of the one written by direct I/O.
const DRAID_QUICK: &str = "draid1x5s1";
const DRAID_DIRECT: &str = "draid2x11s2";
/// Pools of the quick subset.
const QUICK: [(&str, u32); 4] = [("stripe1", 12), ("mirror2", 9), ("raidz1x3", 12), ("raidz2x6", 12)];
/// Pools written by direct I/O that are part of the quick subset.
const DIRECT_QUICK: [(&str, u32); 2] = [("stripe3", 9), ("raidz2x6", 12)];
/// Pool that gets the file of 1 GiB.
const HUGE: (&str, u32) = ("raidz2x6", 12);

const QUICK_SIZE: Size = Size { rounds: 20, entries: 3000, every_property: false, huge: false };
const FULL_SIZE: Size = Size { rounds: 110, entries: 100_000, every_property: true, huge: false };
const DEVICE_BYTES: u64 = 1 << 30;
/// Bytes of the sparse files that take a file system for each record size.
const DIRECT_DEVICE_BYTES: u64 = 2 << 30;
/// Pools under stress, with their layout.
const STRESS: [(&str, Kind, (&str, u32), bool); 9] = [
    ("plain", Kind::Plain, ("mirror2", 12), true),
    ("plain-raidz", Kind::Plain, ("raidz1x4", 9), false),
    ("storm", Kind::Storm, ("raidz1x3", 12), true),
    ("storm-mirror", Kind::Storm, ("mirror2", 9), false),
    ("full", Kind::Full, ("stripe1", 12), true),
    ("full-raidz", Kind::Full, ("raidz2x6", 9), false),
    ("full-stripes", Kind::Full, ("stripe3", 9), false),
    ("objects", Kind::Objects, ("raidz1x3", 12), true),
    ("objects-mirror", Kind::Objects, ("mirror2", 9), false),
];
/// Pools with a rebuilt device, with their layout.
const REBUILT: [(&str, (&str, u32), bool); 4] = [
    ("rebuilt-mirror2", ("mirror2", 12), true),
    ("rebuilt-draid1x5s1", ("draid1x5s1", 12), true),
    ("rebuilt-draid2x8s2", ("draid2x8s2", 9), false),
    ("rebuilt-draid3x14s2", ("draid3x14s2", 12), false),
];
/// Pools whose distributed spare stands in for a device that is gone, with their layout.
const SPARED: [(&str, (&str, u32), bool); 3] = [
    ("spared-draid1x5s1", ("draid1x5s1", 12), true),
    ("spared-draid2x8s2", ("draid2x8s2", 9), false),
    ("spared-draid3x14s2", ("draid3x14s2", 12), false),
];
/// Pools whose vdevs change, with the layout that they begin with.
const LIVES: [(&str, (&str, u32), bool); 3] =
    [("life-mirror", ("mirror2", 12), true), ("life-raidz", ("raidz1x3", 9), false), ("life-raidz2", ("raidz2x6", 12), false)];
/// Pools with vdevs for metadata and small blocks, and for tables of deduplication, with the layout of the others.
const CLASSES: [(&str, (&str, u32), bool); 3] = [
    ("classes-mirror2", ("mirror2", 12), true),
    ("classes-raidz1x3", ("raidz1x3", 9), false),
    ("classes-draid2x8s2", ("draid2x8s2", 9), false),
];
/// Pools whose equal blocks are stored once: what the property `dedup` says, and the layout.
const DEDUP: [(&str, &str, (&str, u32), bool); 4] = [
    ("dedup-mirror2", "on", ("mirror2", 12), true),
    ("dedup-verify-raidz1x3", "skein,verify", ("raidz1x3", 12), false),
    ("dedup-weak-stripe3", "edonr,verify", ("stripe3", 9), false),
    ("dedup-blake3-draid1x5s1", "blake3", ("draid1x5s1", 12), false),
];
/// Pools from which vdevs are removed, with the layout that they begin with.
const REMOVED: [(&str, (&str, u32), bool); 2] = [("removed-mirror2", ("mirror2", 12), true), ("removed-stripe3", ("stripe3", 9), false)];
/// Pools whose RAID-Z vdev gets devices, with the layout that they begin with; true for one that is left half-way.
const EXPANDED: [(&str, (&str, u32), bool, bool); 4] = [
    ("expanded-raidz1x3", ("raidz1x3", 12), false, true),
    ("expanded-raidz2x6", ("raidz2x6", 9), false, false),
    ("halfway-raidz1x3", ("raidz1x3", 9), true, true),
    ("halfway-raidz3x8", ("raidz3x8", 12), true, false),
];
/// Stored bytes up to which blocks of files are small there.
const SMALL_BLOCK_BYTES: u64 = 16 << 10;
/// Pools whose free space was swept, with their layout.
const SWEPT: [(&str, (&str, u32), bool); 4] = [
    ("swept-stripe3", ("stripe3", 9), false),
    ("swept-raidz1x3", ("raidz1x3", 12), true),
    ("swept-raidz2x6", ("raidz2x6", 9), false),
    ("swept-draid1x5s1", ("draid1x5s1", 12), true),
];
/// Pools with log space maps, which an export leaves, with their layout.
const LOGGED: [(&str, (&str, u32), bool); 3] = [
    ("logged-stripe3", ("stripe3", 9), false),
    ("logged-raidz1x3", ("raidz1x3", 12), true),
    ("logged-draid1x5s1", ("draid1x5s1", 12), false),
];
/// Pools with a checkpoint, and much that came after it, with their layout.
const KEPT: [(&str, (&str, u32), bool); 4] = [
    ("kept-stripe3", ("stripe3", 9), false),
    ("kept-raidz1x3", ("raidz1x3", 12), true),
    ("kept-draid1x5s1", ("draid1x5s1", 12), false),
    (KEPT_LOGGED, ("mirror2", 12), false),
];
/// Name of the one that writes log space maps, too.
const KEPT_LOGGED: &str = "kept-logged-mirror2";
/// Pools whose blocks are made by a provider, with their layout; the last one copies each block in and out at every stage.
const OFFLOADED: [(&str, (&str, u32), bool); 7] = [
    ("zia-stripe3", ("stripe3", 12), false),
    ("zia-mirror2", ("mirror2", 9), false),
    ("zia-raidz1x4", ("raidz1x4", 9), false),
    ("zia-raidz2x6", ("raidz2x6", 12), true),
    ("zia-raidz3x8", ("raidz3x8", 9), false),
    ("zia-draid2x11s2", ("draid2x11s2", 12), false),
    (PER_OP, ("raidz2x6", 9), false),
];
const PER_OP: &str = "zia-per-op-raidz2x6";
/// Bytes of devices whose free space is written, all of it.
const SWEPT_DEVICE_BYTES: u64 = 512 << 20;
/// Bytes of the devices that are filled up.
const FULL_DEVICE_BYTES: u64 = 96 << 20;
/// Number of files that zdb copies out, per pool.
const SAMPLES: usize = 3;

fn draid((name, [parity, data, spares, children], _): (&'static str, [usize; 4], u32)) -> Option<Layout> {
    Some(layout(name, TopKind::Draid(DraidConfig::new(parity, data, spares, children).ok()?), 1, children))
}

/// Kind of what happens to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Program: one of everything, then changes over many txgs.
    Program,
    /// Program on a pool without feature flags.
    Plain,
    /// Changes by several threads.
    Storm,
    /// No space left, again and again.
    Full,
    /// Direct I/O in every record size.
    Direct,
    /// Objects of a storage device.
    Objects,
    /// Program, with a device replaced by sequential rebuild.
    Rebuilt,
    /// Program, with a distributed spare in the place of a device.
    Spared,
    /// Vdevs, logs, spares and caches join and leave meanwhile.
    Life,
    /// Vdevs join and are removed meanwhile, one after the other.
    Removed,
    /// A RAID-Z vdev gets devices meanwhile; true when the last expansion is left half-way.
    Expanded(bool),
    /// Program, with metadata and small blocks on vdevs of their own; one more comes meanwhile.
    Classes,
    /// Program, twice over, with the property `dedup` as this says, also with several copies.
    Dedup(&'static str),
    /// Program, with all free space initialized, then trimmed; one trim is left suspended.
    Swept,
    /// Program, on a pool that writes log space maps.
    Logged,
    /// Program, with a checkpoint in the middle; true with log space maps.
    Kept(bool),
    /// Program, with every stage on a provider, and every tenth result verified.
    Offloaded(ZiaMode),
}

struct Case<'a> {
    kind: Kind,
    exec: Exec,
    oracle: &'a Oracle,
    folder: PathBuf,
    pool: String,
    layout: Layout,
    ashift: u32,
    size: Size,
    /// True when zdb is waited for: its exit code counts.
    to_its_end: bool,
    /// Listing of the state that a checkpoint keeps.
    kept: OnceLock<Lines>,
}

/// Runs the direction.
pub fn run(oracle: &Oracle, wanted: &Wanted, table: &Table) {
    let exec = driver::executor();
    let mut cases = Vec::new();
    for layout in LAYOUTS.iter().filter(|layout| layout.name != DIRECT_ONLY) {
        for ashift in [9, 12] {
            let name = format!("{}a{ashift}", layout.name);
            cases.push((name, Kind::Program, (layout.name, ashift), QUICK.contains(&(layout.name, ashift))));
        }
    }
    for layout in LAYOUTS {
        for ashift in [9, 12] {
            let name = format!("direct-{}a{ashift}", layout.name);
            cases.push((name, Kind::Direct, (layout.name, ashift), DIRECT_QUICK.contains(&(layout.name, ashift))));
        }
    }
    for (name, _, ashift) in DRAIDS {
        cases.push((name.to_string(), Kind::Program, (name, ashift), name == DRAID_QUICK));
    }
    cases.push((format!("direct-{DRAID_DIRECT}a12"), Kind::Direct, (DRAID_DIRECT, 12), false));
    cases.extend(REBUILT.map(|(name, place, quick)| (name.to_string(), Kind::Rebuilt, place, quick)));
    cases.extend(SPARED.map(|(name, place, quick)| (name.to_string(), Kind::Spared, place, quick)));
    cases.extend(LIVES.map(|(name, place, quick)| (name.to_string(), Kind::Life, place, quick)));
    cases.extend(REMOVED.map(|(name, place, quick)| (name.to_string(), Kind::Removed, place, quick)));
    cases.extend(EXPANDED.map(|(name, place, stays, quick)| (name.to_string(), Kind::Expanded(stays), place, quick)));
    cases.extend(CLASSES.map(|(name, place, quick)| (name.to_string(), Kind::Classes, place, quick)));
    cases.extend(DEDUP.map(|(name, value, place, quick)| (name.to_string(), Kind::Dedup(value), place, quick)));
    cases.extend(SWEPT.map(|(name, place, quick)| (name.to_string(), Kind::Swept, place, quick)));
    cases.extend(LOGGED.map(|(name, place, quick)| (name.to_string(), Kind::Logged, place, quick)));
    cases.extend(KEPT.map(|(name, place, quick)| (name.to_string(), Kind::Kept(name == KEPT_LOGGED), place, quick)));
    cases.extend(OFFLOADED.map(|(name, place, quick)| {
        let mode = if name == PER_OP { ZiaMode::PerOp } else { ZiaMode::Offload };
        (name.to_string(), Kind::Offloaded(mode), place, quick)
    }));
    cases.extend(STRESS.map(|(name, kind, place, quick)| (name.to_string(), kind, place, quick)));
    let shared = matrix::Shared::new(&exec);
    let mut jobs: Vec<Job> = Vec::new();
    let mut judged = BTreeSet::new();
    for (name, kind, (layout, ashift), quick) in cases {
        if !wanted.includes(&name, quick) {
            continue;
        }
        let mut size = if wanted.all { FULL_SIZE } else { QUICK_SIZE };
        size.huge = wanted.all && HUGE == (layout, ashift);
        let to_its_end = wanted.all && judged.insert(layout);
        let folder = crate::scratch().map(|base| base.join(&name));
        let layout = layout_called(layout);
        let (exec, pool) = (exec.clone(), format!("ours_{name}"));
        jobs.push(Box::new(move |table| match (folder, layout) {
            (Ok(folder), Some(layout)) => {
                let kept = OnceLock::new();
                Case { kind, exec, oracle, folder, pool, layout, ashift, size, to_its_end, kept }.run(&name, table);
            }
            _ => drop(table.check::<()>(&name, || Err("no folder to work in".into()))),
        }));
    }
    jobs.extend(old::jobs(oracle, wanted, &exec));
    for (cell, quick) in matrix::cells() {
        let name = cell.name();
        if !wanted.includes(&name, quick) {
            continue;
        }
        let folder = crate::scratch().map(|base| base.join(&name));
        let (shared, layout) = (&shared, layout_called(cell.layout()));
        jobs.push(Box::new(move |table| match (folder, layout) {
            (Ok(folder), Some(layout)) => matrix::Work { cell, shared, oracle, folder, layout }.run(table),
            _ => drop(table.check::<()>(&name, || Err("no folder to work in".into()))),
        }));
    }
    table.run(jobs);
}

fn layout_called(name: &str) -> Option<Layout> {
    LAYOUTS.into_iter().chain(DRAIDS.into_iter().filter_map(draid)).find(|known| known.name == name)
}

impl Case<'_> {
    fn run(&self, name: &str, table: &Table) {
        if self.checks(name, table).is_some() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    /// Runs one check after another until one fails; the pool is then left as it is.
    fn checks(&self, name: &str, table: &Table) -> Option<()> {
        let (lines, expected) = table.check(&format!("write {name}: made, exported, read back"), || self.make())?;
        // It holds a checkpoint against the pool after everything else.
        let to_its_end = self.to_its_end || matches!(self.kind, Kind::Kept(_));
        table.check(&format!("write {name}: zdb finds no error, no leak"), || match to_its_end {
            true => self.oracle.zdb_clean_to_its_end(&self.folder, &self.pool),
            false => self.oracle.zdb_clean(&self.folder, &self.pool),
        })?;
        if matches!(self.kind, Kind::Kept(_)) {
            table.check(&format!("write {name}: zdb finds no error, no leak in the checkpoint"), || {
                self.oracle.zdb_clean_kept(&self.folder, &self.pool)
            })?;
        }
        table.check(&format!("write {name}: our zdb shows the same"), || self.oracle.zdb_same(&self.folder, &self.pool))?;
        if self.to_its_end {
            table
                .check(&format!("write {name}: our zdb reads the same blocks"), || self.oracle.zdb_blocks_same(&self.folder, &self.pool))?;
        }
        table.check(&format!("write {name}: zdb copies files out"), || self.samples(&lines))?;
        table.check(&format!("write {name}: real engine scrubs, lists"), || match self.oracle.check(&self.folder, &self.pool)? {
            Some(theirs) => manifest::compare("the real engine's", &lines, &theirs),
            None => Ok(()),
        })?;
        table.check(&format!("write {name}: read and written again"), || self.again(&lines, &expected))
    }

    fn list(&self) -> Result<Lines, Failure> {
        let pool = driver::import(&self.exec, &self.folder, &self.pool, true)?;
        let lines = manifest::of_pool(&pool)?;
        pool.export()?;
        Ok(lines)
    }

    fn make(&self) -> Result<(Lines, crate::shadow::Expected), Failure> {
        let _ = std::fs::remove_dir_all(&self.folder);
        std::fs::create_dir_all(&self.folder)?;
        let device_bytes = self.device_bytes();
        let new = NewPool {
            name: &self.pool,
            layout: self.layout,
            ashift: self.ashift,
            device_bytes,
            no_features: self.kind == Kind::Plain,
            small_memory: self.kind == Kind::Storm,
        };
        let classes = match self.kind {
            Kind::Classes => life::classes(&self.folder, "first", device_bytes)?,
            _ => ClassSpec::default(),
        };
        let runtime = Runtime { log_space_maps: self.is_logged(), ..new.runtime() };
        let pool = driver::create_as(&self.exec, &self.folder, new, classes, &runtime)?;
        let offloaded = match self.kind {
            Kind::Offloaded(mode) => Some(accelerated::begin(&self.exec, &pool, mode)?),
            _ => None,
        };
        let expected = match self.kind {
            Kind::Storm => storm::storm(&pool, if self.size.every_property { 2000 } else { 0 })?,
            Kind::Full => storm::full(&pool)?,
            Kind::Direct => direct::direct(&pool, self.size.every_property)?,
            Kind::Objects => objects::objects(&pool)?,
            Kind::Life | Kind::Removed | Kind::Expanded(_) => self.lead_a_life(&pool, device_bytes)?,
            Kind::Classes => self.fill_classes(&pool)?,
            Kind::Dedup(value) => self.fill_deduplicated(&pool, value)?,
            Kind::Kept(_) => self.fill_kept(&pool)?,
            Kind::Program | Kind::Plain | Kind::Rebuilt | Kind::Spared | Kind::Swept | Kind::Logged | Kind::Offloaded(_) => {
                let mut program = Program::new(&pool, self.size, u64::from(self.ashift));
                if new.no_features {
                    program.fill_plain()?
                } else {
                    program.fill()?
                }
                program.churn(self.size.rounds)?;
                if matches!(self.kind, Kind::Rebuilt | Kind::Spared) {
                    self.rebuild(&pool)?;
                }
                if self.kind == Kind::Swept {
                    sweep(&pool)?;
                }
                if self.kind == Kind::Logged {
                    keep_logs(&pool)?;
                }
                program.expected
            }
        };
        if let Some(registry) = offloaded {
            accelerated::check(&registry, matches!(self.layout.kind, TopKind::Raidz(_) | TopKind::Draid(_)))?;
        }
        let before = manifest::of_pool(&pool)?;
        pool.export()?;
        let lines = self.list()?;
        manifest::compare("after the export, ours", &before, &lines)?;
        expected.check(&lines)?;
        Ok((lines, expected))
    }

    /// Fills a pool whose vdevs change meanwhile.
    fn lead_a_life(&self, pool: &pool::Pool, device_bytes: u64) -> Result<crate::shadow::Expected, Failure> {
        let mut program = Program::new(pool, self.size, u64::from(self.ashift));
        program.fill()?;
        let shape = (self.layout.kind, self.layout.width, device_bytes);
        let work = || program.churn(self.size.rounds / 4 + 1);
        match self.kind {
            Kind::Life => life::lead(pool, &self.folder, shape, work)?,
            Kind::Expanded(stays) => life::widen(pool, &self.folder, (device_bytes, stays), work)?,
            _ => life::shrink(pool, &self.folder, shape, work)?,
        }
        Ok(program.expected)
    }

    /// Bytes of each device.
    fn device_bytes(&self) -> u64 {
        match self.kind {
            Kind::Full => FULL_DEVICE_BYTES,
            Kind::Direct => DIRECT_DEVICE_BYTES,
            Kind::Swept => SWEPT_DEVICE_BYTES,
            _ => DEVICE_BYTES,
        }
    }

    /// True when the pool writes log space maps.
    fn is_logged(&self) -> bool {
        matches!(self.kind, Kind::Logged | Kind::Kept(true))
    }

    /// Fills a pool, makes a checkpoint, and changes much after it.
    fn fill_kept(&self, pool: &pool::Pool) -> Result<crate::shadow::Expected, Failure> {
        let mut program = Program::new(pool, self.size, u64::from(self.ashift));
        program.fill()?;
        program.churn(self.size.rounds / 4 + 1)?;
        pool.sync()?;
        let _ = self.kept.set(manifest::of_pool(pool)?);
        pool.make_checkpoint()?;
        program.churn(self.size.rounds)?;
        match pool.checkpoint() {
            Some(known) if known.bytes() > 0 => Ok(program.expected),
            other => Err(format!("nothing was freed of the checkpoint: {other:?}").into()),
        }
    }

    /// Looks at the state that a checkpoint keeps, and goes back to it.
    fn go_back(&self, kept: &Lines) -> Result<(), Failure> {
        for read_only in [true, false] {
            let wanted = (self.pool.as_str(), read_only, Rewind::Checkpoint);
            let pool = driver::import_at(&self.exec, &self.folder, wanted, &self.runtime())?;
            let found = manifest::of_pool(&pool)?;
            pool.export()?;
            manifest::compare("the checkpoint, ours", kept, &found)?;
        }
        self.oracle.zdb_clean(&self.folder, &self.pool)?;
        match self.oracle.check(&self.folder, &self.pool)? {
            Some(theirs) => manifest::compare("the checkpoint, the real engine's", kept, &theirs),
            None => Ok(()),
        }
    }

    /// Fills a pool with vdevs for metadata, which gets one more meanwhile, and looks whether they are used.
    fn fill_classes(&self, pool: &pool::Pool) -> Result<crate::shadow::Expected, Failure> {
        pool.dsl().hold(&self.pool)?.set_props(&[("special_small_blocks".to_string(), SMALL_BLOCK_BYTES.to_string())])?;
        let mut program = Program::new(pool, self.size, u64::from(self.ashift));
        program.fill()?;
        pool.add(AddSpec { classes: life::classes(&self.folder, "more", DEVICE_BYTES)?, ..AddSpec::default() })?;
        program.churn(self.size.rounds)?;
        pool.sync()?;
        let status = pool.status();
        for (top, space) in status.tree.tops.iter().zip(&status.vdev_space) {
            if (top.bias == Bias::Dedup) != (space.allocated == 0) {
                return Err(format!("{} bytes on vdev {}, which is for {:?}", space.allocated, top.id, top.bias).into());
            }
        }
        Ok(program.expected)
    }

    /// Fills a pool whose equal blocks are stored once, and looks whether they are.
    fn fill_deduplicated(&self, pool: &pool::Pool, value: &str) -> Result<crate::shadow::Expected, Failure> {
        let set = |name: &str, value: &str| pool.dsl().hold(&self.pool)?.set_props(&[(name.to_string(), value.to_string())]);
        set("dedup", value)?;
        let mut program = Program::new(pool, self.size, u64::from(self.ashift));
        program.fill()?;
        pool.sync()?;
        let first = pool.dedup_space();
        set("copies", "2")?;
        program.churn(self.size.rounds)?;
        set("copies", "1")?;
        program.churn(self.size.rounds)?;
        pool.sync()?;
        let space = pool.dedup_space();
        if first.entries == 0 || space.entries == 0 || space.referenced_bytes < space.stored_bytes {
            return Err(format!("nothing was stored once: {first:?}, then {space:?}").into());
        }
        Ok(program.expected)
    }

    /// Replaces the first device by a new one or by a distributed spare, which gets its content by the space maps alone: no scrub
    /// looks at it here.
    fn rebuild(&self, pool: &pool::Pool) -> Result<(), Failure> {
        let (old, new) = (self.folder.join("d00"), self.folder.join("r00"));
        pool.rebuild_parameters().scrub_enabled.store(0, std::sync::atomic::Ordering::Relaxed);
        pool.sync()?;
        let first = pool.tree().leaves[0].guid;
        if self.kind == Kind::Spared {
            pool.fault(first, false)?;
            let spare = pool.spares().into_iter().find(pool::Spare::is_distributed).ok_or("no distributed spare")?;
            pool.spare_in(first, spare.guid, None, true)?;
        } else {
            pool.attach_sequential(first, &driver::new_leaf(&new, DEVICE_BYTES)?, Pairing::Replacing, true)?;
        }
        pool.rebuild_wait()?;
        pool.sync()?;
        let status = pool.rebuild_status();
        if !matches!(status[..], [RebuildStatus { state: RebuildState::Complete, errors: 0, .. }]) || pool.tree().is_replacing() {
            return Err(format!("the rebuild ended as {status:?}").into());
        }
        Ok(std::fs::remove_file(old)?)
    }

    /// Checks that zdb finds the bytes of some files of different sizes.
    fn samples(&self, lines: &Lines) -> Result<(), Failure> {
        let mut files: Vec<_> = lines.iter().filter_map(|line| manifest::file_line(line)).filter(|file| file.size > 0).collect();
        files.retain(|file| !file.path.contains(['@', '#']));
        files.sort_by_key(|file| (file.size, file.path));
        for index in 0..SAMPLES.min(files.len()) {
            let file = &files[(files.len() - 1) * (index + 1) / SAMPLES.min(files.len())];
            let (dataset, path) = split(&self.pool, file.path).ok_or("a path of the manifest")?;
            if let Some(bytes) = self.oracle.zdb_file(&self.folder, dataset, path)?
                && (bytes.len() as u64 != file.size || manifest::digest(&bytes) != file.sha)
            {
                return Err(format!("zdb -r finds other bytes in {}", file.path).into());
            }
        }
        Ok(())
    }

    /// Checks that we list the same after the real engine had the pool, writes more, and it is still clean.
    fn again(&self, lines: &Lines, expected: &crate::shadow::Expected) -> Result<(), Failure> {
        manifest::compare("after the real engine had it, ours", lines, &self.list()?)?;
        let pool = driver::import_as(&self.exec, &self.folder, (self.pool.as_str(), false), &self.runtime())?;
        crate::touch::touch(&pool)?;
        let ours = manifest::of_pool(&pool)?;
        pool.export()?;
        if expected.count() == 0 {
            return Err("nothing was expected".into());
        }
        self.oracle.zdb_clean(&self.folder, &self.pool)?;
        if let Some(theirs) = self.oracle.check(&self.folder, &self.pool)? {
            manifest::compare("the real engine's", &ours, &theirs)?;
        }
        if let Some(kept) = self.kept.get() {
            return self.go_back(kept);
        }
        if self.kind == Kind::Logged {
            // What the logs have goes back to the metaslabs' own maps.
            driver::import(&self.exec, &self.folder, &self.pool, false)?.export()?;
            self.oracle.zdb_clean(&self.folder, &self.pool)?;
        }
        Ok(())
    }

    /// Settings with which the pool is opened again.
    fn runtime(&self) -> Runtime {
        Runtime { replay: Some(Arc::new(zpl::FileReplay)), log_space_maps: self.is_logged(), ..Runtime::new() }
    }
}

/// Has the export leave log space maps, and makes sure that there are any.
fn keep_logs(pool: &pool::Pool) -> Result<(), Failure> {
    pool.tune_space_log(SpaceLogTunables { keep_at_export: true, ..SpaceLogTunables::default() });
    match pool.features().into_iter().find(|(name, ..)| name == "log_spacemap") {
        Some((.., Some(1))) => Ok(()),
        other => Err(format!("no log space maps: {other:?}").into()),
    }
}

/// Writes to everything that is free, then trims it; what is not must still be there.
fn sweep(pool: &pool::Pool) -> Result<(), Failure> {
    pool.sync()?;
    let leaves: Vec<_> = pool.tree().leaves.iter().map(|leaf| leaf.guid).collect();
    let start = SweepAction::Start { rate: 0, secure: false };
    for kind in [SweepKind::Initialize, SweepKind::Trim] {
        pool.sweep(kind, &leaves, start)?.into_iter().collect::<Result<Vec<()>, _>>()?;
        pool.sweep_wait()?;
        let states: Vec<_> = pool.sweep_status().into_iter().filter(|status| status.kind == kind).collect();
        if states.len() != leaves.len() || states.iter().any(|status| status.state != SweepState::Complete || status.errors > 0) {
            return Err(format!("the sweeps ended as {states:?}").into());
        }
    }
    let slow = SweepAction::Start { rate: 1 << 20, secure: false };
    pool.sweep(SweepKind::Trim, &leaves[..1], slow)?;
    pool.sweep(SweepKind::Trim, &leaves[..1], SweepAction::Suspend)?;
    Ok(())
}

/// Dataset and path below it of a manifest's path; our datasets are one level deep.
fn split<'a>(pool: &str, path: &'a str) -> Option<(&'a str, &'a str)> {
    let start = pool.len() + 1;
    let end = start + path.get(start..)?.find('/')?;
    Some((&path[..end], Path::new(&path[end + 1..]).to_str()?))
}
