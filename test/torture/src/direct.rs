//! Direct I/O against a model of bytes: random mixes of buffered, direct and misaligned requests, appends, truncations, holes,
//! snapshots, bursts of requests under way at once, buffers that are changed meanwhile, and reimports, on devices that fail now
//! and then.
//!
//! [`torture`] runs under `Inline`: every request is compared with the model at once. Redundant pools must not notice the
//! faults. [`race`] lets real threads work on neighbouring bytes of one file, each with a model of its own bytes; under
//! `Lockstep` the seed decides who runs.

mod mutated;

use crate::cuts::check_space;
use crate::machine::{DEVICE_BYTES, FILE_SYSTEM, Layout, Machine, Trouble, create_on, mount};
use abd::Abd;
use device::{DeviceError, MemDevice};
use exec::{Exec, Mutex, SplitMix};
use pool::Pool;
use sim::{Fault, FaultKind, Latency};
use std::ops::Range;
use std::sync::Arc;
use zpl::direct::{Access, Direct, Property};
use zpl::{Allocate, NewNode, Node, Settings, WriteData, Zfs, ZplError};

const PAGE: u64 = 4096;
/// Bytes of a block of the file system's files.
const BLOCK: u64 = 8192;
const FILES: usize = 4;
/// Bytes that files stay below.
const SIZE_MAX: u64 = 320 << 10;
const SNAPSHOTS_MAX: usize = 3;

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Number of operations.
    pub operations: u64,
    /// Number of blocks written directly.
    pub direct_writes: u64,
    /// Number of blocks read directly.
    pub direct_reads: u64,
    /// Number of blocks written through the cache.
    pub buffered_writes: u64,
    /// Number of requests refused for their alignment.
    pub refused: u64,
    /// Number of exports followed by imports.
    pub reimports: u64,
    /// Number of device operations that failed or lied.
    pub faults: u64,
    /// Number of blocks written or read once more because the buffer was changed meanwhile.
    pub changed: u64,
}

/// Numbers from a seed.
struct Dice(SplitMix);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }
    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let fill = self.0.next_u64();
        // Some blocks compress, some are zeros, most are noise.
        match fill % 5 {
            0 => vec![fill as u8; length as usize],
            1 => vec![0; length as usize],
            _ => {
                let mut words = SplitMix::new(fill);
                let mut bytes = Vec::with_capacity(length as usize + 8);
                while bytes.len() < length as usize {
                    bytes.extend_from_slice(&words.next_u64().to_le_bytes());
                }
                bytes.truncate(length as usize);
                bytes
            }
        }
    }
    /// Range of bytes, of pages or of blocks.
    fn range(&mut self, unit: u64) -> Range<u64> {
        let length = (1 + self.below(if unit == 1 { 40_000 } else { 12 * BLOCK / unit })) * unit;
        let start = self.below((SIZE_MAX - length) / unit + 1) * unit;
        start..start + length
    }
}

/// Failure as a line that names the operation.
type Failure = String;

fn overlay(model: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[at as usize..end].copy_from_slice(bytes);
}

fn expected(model: &[u8], range: &Range<u64>) -> Vec<u8> {
    let end = (range.end as usize).min(model.len());
    model.get(range.start as usize..end).unwrap_or_default().to_vec()
}

/// Properties that a program's seed decides for the whole of it.
#[derive(Clone, Copy, Debug)]
struct Mode {
    /// Parameter `zfs_dio_strict`.
    strict: bool,
    /// Property `direct` is `always`.
    always: bool,
    /// Property `compression` is `off`: only then is written from where the user may change it.
    plain: bool,
}

impl Mode {
    fn of(seed: u64) -> Mode {
        Mode { strict: seed & 2 == 0, always: seed & 12 == 12, plain: seed & 1 == 1 }
    }
    /// True when misaligned requests that ask for direct are refused.
    fn refuses(self) -> bool {
        self.strict && !self.always
    }
}

struct Run {
    mode: Mode,
    machine: Machine,
    pool: Option<Pool>,
    zfs: Option<Arc<Zfs>>,
    dice: Dice,
    models: Vec<Vec<u8>>,
    snapshots: Vec<(String, Vec<Vec<u8>>)>,
    last_snapshot: u64,
    faults: bool,
    report: Report,
}

fn name(file: usize) -> Vec<u8> {
    format!("f{file}").into_bytes()
}

fn write_data(offset: u64, bytes: &[u8]) -> WriteData {
    WriteData { offset, data: Abd::from_slice(bytes), may_keep: true, kill_suid: false, synchronous: false }
}

/// Runs `operations` of the program of this seed; the failure names the operation after which something was wrong.
pub fn torture(layout: Layout, seed: u64, operations: u64, faults: bool) -> Result<Report, Failure> {
    let mut run = Run::start(layout, seed, faults && layout.is_redundant()).map_err(|trouble| format!("not made: {trouble}"))?;
    for number in 0..operations {
        run.step().map_err(|failure| format!("{layout} seed {seed}, operation {number}: {failure}"))?;
        run.report.operations += 1;
    }
    run.reimport().map_err(|failure| format!("{layout} seed {seed}, at the end: {failure}"))?;
    Ok(run.report)
}

impl Report {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Report) {
        self.operations += other.operations;
        self.direct_writes += other.direct_writes;
        self.direct_reads += other.direct_reads;
        self.buffered_writes += other.buffered_writes;
        self.refused += other.refused;
        self.reimports += other.reimports;
        self.faults += other.faults;
        self.changed += other.changed;
    }
}

impl Run {
    fn start(layout: Layout, seed: u64, faults: bool) -> Result<Run, Trouble> {
        let machine = Machine::new(layout, seed);
        let pool = machine.create(layout)?;
        let mut run = Run {
            mode: Mode::of(seed),
            machine,
            pool: Some(pool),
            zfs: None,
            dice: Dice(SplitMix::new(seed)),
            models: vec![Vec::new(); FILES],
            snapshots: Vec::new(),
            last_snapshot: 0,
            faults,
            report: Report::default(),
        };
        if run.mode.plain {
            run.pool()?.dsl().hold(FILE_SYSTEM)?.set_props(&[("compression".to_string(), "off".to_string())])?;
        }
        let zfs = run.mounted()?;
        let root = zfs.node(zfs.root())?;
        for file in 0..FILES {
            zfs.create_node(&root, &name(file), &NewNode { mode: 0o100_644, ..NewNode::default() })?;
        }
        Ok(run)
    }

    fn pool(&self) -> Result<&Pool, Trouble> {
        self.pool.as_ref().ok_or(Trouble::Zpl(ZplError::STOPPED))
    }

    fn mounted(&mut self) -> Result<Arc<Zfs>, Trouble> {
        if let Some(zfs) = &self.zfs {
            return Ok(zfs.clone());
        }
        let zfs = mount(self.pool()?)?;
        let Mode { strict, always, .. } = self.mode;
        zfs.set_direct(Direct::default());
        zfs.direct().tunables.set_strict(strict);
        let direct = if always { Property::Always } else { Property::Standard };
        zfs.set_settings(Settings { atime: false, direct, ..Settings::default() });
        self.zfs = Some(zfs.clone());
        Ok(zfs)
    }

    fn file(&mut self, file: usize) -> Result<(Arc<Zfs>, Node), Trouble> {
        let zfs = self.mounted()?;
        let root = zfs.node(zfs.root())?;
        let node = zfs.lookup(&root, &name(file))?;
        Ok((zfs, node))
    }

    fn step(&mut self) -> Result<(), Failure> {
        if self.faults && self.dice.below(20) == 0 {
            self.arm();
        }
        let file = self.dice.below(FILES as u64) as usize;
        let done = match self.dice.below(100) {
            0..=11 => self.write(file, 1, false),
            12..=33 => self.write(file, PAGE, true),
            34..=49 => self.write(file, BLOCK, true),
            50..=53 => self.write(file, 1, true),
            54..=63 => self.read(file, 1, false),
            64..=79 => self.read(file, PAGE, true),
            80..=83 => self.append(file),
            84..=86 => self.truncate(file),
            87..=89 => self.punch(file),
            90..=93 => self.burst(),
            94..=95 => self.write_mutated(file),
            96 => self.read_mutated(file),
            97 => self.snapshot(),
            98 => self.look_back(),
            _ if self.dice.below(8) == 0 => return self.reimport(),
            _ => self.forget(),
        };
        done.map_err(|failure| format!("file {file}: {failure}"))
    }

    /// Syncs and empties the cache: what is read next comes from the devices.
    fn forget(&mut self) -> Result<(), Failure> {
        let pool = self.pool().map_err(|trouble| trouble.to_string())?;
        pool.sync().map_err(|error| format!("sync: {error}"))?;
        pool.cache().clear();
        Ok(())
    }

    /// Makes one of the next operations of one device fail, lie or give wrong bytes. One at a time: the pool is redundant.
    fn arm(&mut self) {
        self.machine.sim.disarm();
        let kind = if self.dice.below(2) == 0 { FaultKind::Error(DeviceError::Io) } else { FaultKind::CorruptRead };
        self.machine.sim.arm(Fault::at(self.dice.below(30), kind).on(self.machine.devices[0].index()));
        self.report.faults += 1;
    }

    fn write(&mut self, file: usize, unit: u64, flagged: bool) -> Result<(), Failure> {
        let range = self.dice.range(unit);
        let bytes = self.dice.bytes(range.end - range.start);
        let (zfs, node) = self.file(file).map_err(|trouble| trouble.to_string())?;
        let access = Access { flagged, ..Access::default() };
        let result = zfs.write_with(&node, write_data(range.start, &bytes), access);
        let aligned = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
        match result {
            Ok(length) if length == bytes.len() as u64 && (aligned || !flagged || !self.mode.refuses()) => {
                overlay(&mut self.models[file], range.start, &bytes)
            }
            Err(ZplError::Invalid) if flagged && !aligned && self.mode.refuses() => self.report.refused += 1,
            other => return Err(format!("write of {range:?}, direct {flagged}: {other:?}")),
        }
        let around = range.start.saturating_sub(BLOCK)..range.end + BLOCK;
        self.compare(file, &around, false)
    }

    fn read(&mut self, file: usize, unit: u64, flagged: bool) -> Result<(), Failure> {
        let range = self.dice.range(unit);
        self.compare(file, &range, flagged)
    }

    fn compare(&mut self, file: usize, range: &Range<u64>, flagged: bool) -> Result<(), Failure> {
        let (zfs, node) = self.file(file).map_err(|trouble| trouble.to_string())?;
        let wanted = expected(&self.models[file], range);
        let access = Access { flagged, ..Access::default() };
        let found =
            zfs.read_with(&node, range.start, range.end - range.start, access).map_err(|error| format!("read of {range:?}: {error}"))?;
        if node.fields().size != self.models[file].len() as u64 {
            return Err(format!("{} bytes instead of {}", node.fields().size, self.models[file].len()));
        }
        same(&found.to_vec(), &wanted).map_err(|at| format!("read of {range:?}, direct {flagged}: other bytes from {at} on"))
    }

    fn append(&mut self, file: usize) -> Result<(), Failure> {
        let size = self.models[file].len() as u64;
        let length = (1 + self.dice.below(8)) * PAGE;
        if size + length > SIZE_MAX {
            return self.truncate(file);
        }
        let bytes = self.dice.bytes(length);
        let (zfs, node) = self.file(file).map_err(|trouble| trouble.to_string())?;
        match zfs.write_with(&node, write_data(0, &bytes), Access { append: true, ..Access::DIRECT }) {
            Ok(_) if size.is_multiple_of(PAGE) || !self.mode.refuses() => overlay(&mut self.models[file], size, &bytes),
            Err(ZplError::Invalid) if !size.is_multiple_of(PAGE) && self.mode.refuses() => self.report.refused += 1,
            other => return Err(format!("append of {length} at {size}: {other:?}")),
        }
        self.compare(file, &(size.saturating_sub(BLOCK)..size + length + 1), false)
    }

    fn truncate(&mut self, file: usize) -> Result<(), Failure> {
        let unit = [1, PAGE, BLOCK][self.dice.below(3) as usize];
        let size = self.dice.below(SIZE_MAX / unit) * unit;
        let (zfs, node) = self.file(file).map_err(|trouble| trouble.to_string())?;
        zfs.truncate(&node, size).map_err(|error| format!("truncation to {size}: {error}"))?;
        self.models[file].resize(size as usize, 0);
        self.compare(file, &(size.saturating_sub(2 * BLOCK)..size + BLOCK), false)
    }

    fn punch(&mut self, file: usize) -> Result<(), Failure> {
        let range = self.dice.range(512);
        let (zfs, node) = self.file(file).map_err(|trouble| trouble.to_string())?;
        zfs.allocate(&node, range.start, range.end - range.start, Allocate::Punch).map_err(|error| format!("hole {range:?}: {error}"))?;
        let model = &mut self.models[file];
        let end = (range.end as usize).min(model.len());
        if let Some(hole) = model.get_mut(range.start as usize..end) {
            hole.fill(0);
        }
        let flagged = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
        self.compare(file, &range, flagged)
    }

    /// Does several requests of one thread at once, in places of their own.
    fn burst(&mut self) -> Result<(), Failure> {
        let width = 4 * BLOCK;
        let under_way = Arc::new(Mutex::new(Vec::new()));
        let (mut count, mut changes) = (0, Vec::new());
        for place in 0..SIZE_MAX / width {
            if count == 8 || self.dice.below(2) == 0 {
                continue;
            }
            let file = self.dice.below(FILES as u64) as usize;
            let start = place * width + self.dice.below(2) * PAGE;
            let range = start..start + (1 + self.dice.below(width / PAGE - 1)) * PAGE;
            let (zfs, node) = self.file(file).map_err(|trouble| trouble.to_string())?;
            let (own, length) = (under_way.clone(), range.end - start);
            // What another request of the burst makes longer is no read's business: those stay inside the file.
            if self.dice.below(3) == 0 && range.end <= self.models[file].len() as u64 {
                let wanted = expected(&self.models[file], &range);
                let then = move |result: Result<Abd, ZplError>| {
                    let compared = result.map(|data| same(&data.to_vec(), &wanted));
                    own.lock().push((range, compared));
                };
                zfs.read_then(&node, start, length, Access::DIRECT, Box::new(then));
            } else {
                let bytes = self.dice.bytes(length);
                let write = write_data(start, &bytes);
                changes.push((file, start, bytes));
                zfs.write_then(&node, write, Access::DIRECT, Box::new(move |result| own.lock().push((range, result.map(|_| Ok(()))))));
            }
            count += 1;
        }
        let exec = self.machine.exec.clone();
        exec.wait(&|| under_way.lock().len() == count, &|| ());
        for (range, result) in std::mem::take(&mut *under_way.lock()) {
            let compared = result.map_err(|error| format!("burst, {range:?}: {error}"))?;
            compared.map_err(|at| format!("burst, read of {range:?}: other bytes from {at} on"))?;
        }
        for (file, at, bytes) in changes {
            overlay(&mut self.models[file], at, &bytes);
        }
        (0..FILES).try_for_each(|file| self.compare(file, &(0..SIZE_MAX), false))
    }

    fn snapshot(&mut self) -> Result<(), Failure> {
        let failed = |trouble: Trouble| format!("snapshot: {trouble}");
        self.last_snapshot += 1;
        let name = format!("s{}", self.last_snapshot);
        let full = |name: &str| format!("{FILE_SYSTEM}@{name}");
        self.pool().and_then(|pool| Ok(pool.dsl().snapshot(&[full(&name)], Vec::new())?)).map_err(failed)?;
        self.snapshots.push((name, self.models.clone()));
        if self.snapshots.len() > SNAPSHOTS_MAX {
            let (oldest, _) = self.snapshots.remove(0);
            self.pool().and_then(|pool| Ok(pool.dsl().destroy_snapshots(&[full(&oldest)], false)?)).map_err(failed)?;
        }
        Ok(())
    }

    /// Checks that snapshots still hold what the files held, read directly (which is through the cache for them).
    fn look_back(&mut self) -> Result<(), Failure> {
        for (name, models) in &self.snapshots {
            let read = || -> Result<Vec<Vec<u8>>, Trouble> {
                let handle = self.pool()?.dsl().hold(&format!("{FILE_SYSTEM}@{name}"))?;
                let zfs = Zfs::open(&handle.objset()?, None, Settings { atime: false, snapshot: true, ..Settings::default() })?;
                let root = zfs.node(zfs.root())?;
                let file = |file| Ok(zfs.read_with(&zfs.lookup(&root, &self::name(file))?, 0, SIZE_MAX, Access::DIRECT)?.to_vec());
                (0..FILES).map(file).collect()
            };
            let found = read().map_err(|trouble| format!("snapshot {name}: {trouble}"))?;
            for (file, (found, wanted)) in found.iter().zip(models).enumerate() {
                same(found, wanted).map_err(|at| format!("snapshot {name}, file {file}: other bytes from {at} on"))?;
            }
        }
        Ok(())
    }

    /// Exports, imports, and compares everything.
    fn reimport(&mut self) -> Result<(), Failure> {
        self.machine.sim.disarm();
        self.zfs = None;
        if let Some(pool) = self.pool.take() {
            let stats = pool.iostats();
            self.report.direct_writes += stats.direct_write.get().0;
            self.report.direct_reads += stats.direct_read.get().0;
            self.report.buffered_writes += stats.arc_write.get().0;
            let changed = pool.zio().changed_buffers(None, None);
            self.report.changed += changed.writes.0 + changed.reads.0;
            if !self.faults && pool.status().leaves.iter().any(|leaf| leaf.counts.checksum_errors > 0) {
                return Err("a device that did nothing wrong has checksum errors".into());
            }
            pool.export().map_err(|error| format!("export: {error}"))?;
        }
        self.pool = Some(self.machine.import(false).map_err(|trouble| format!("import: {trouble}"))?);
        self.report.reimports += 1;
        (0..FILES).try_for_each(|file| self.compare(file, &(0..SIZE_MAX), true))?;
        self.look_back()?;
        check_space(self.pool().map_err(|trouble| trouble.to_string())?)
    }
}

/// Compares; fails with the offset of the first difference in bytes.
fn same(found: &[u8], wanted: &[u8]) -> Result<(), usize> {
    if found == wanted {
        return Ok(());
    }
    Err(found.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(found.len().min(wanted.len())))
}

/// Bytes of one racer's place in the common file: no multiple of a block, so that neighbours share blocks.
const PLACE: u64 = 5 * PAGE;

/// Runs `racers` threads, `steps` requests each, in places of one file that share blocks; each place is compared with its own model
/// after every step, and all of them at the end.
pub fn race(exec: &Exec, seed: u64, racers: u64, steps: u64) -> Result<(), Failure> {
    let device: Arc<MemDevice> = Arc::new(MemDevice::new("d0", DEVICE_BYTES));
    let pool = create_on(exec, device).map_err(|trouble| trouble.to_string())?;
    let zfs = mount(&pool).map_err(|trouble| trouble.to_string())?;
    let root = zfs.node(zfs.root()).map_err(|error| error.to_string())?;
    let new = NewNode { mode: 0o100_644, ..NewNode::default() };
    let node = zfs.create_node(&root, b"race", &new).map_err(|error| error.to_string())?;
    // More than one block from the start: its size is settled.
    zfs.write(&node, write_data(0, &vec![0; (racers * PLACE) as usize])).map_err(|error| error.to_string())?;
    let failures: Arc<Mutex<Vec<Failure>>> = Arc::default();
    let threads: Vec<exec::OperationHandle> = (0..racers)
        .map(|racer| {
            let (zfs, node, failures) = (zfs.clone(), node.clone(), failures.clone());
            let work = move || {
                if let Err(failure) = run_racer(&zfs, &node, SplitMix::new(seed * 100 + racer), racer * PLACE, steps) {
                    failures.lock().push(format!("seed {seed}, racer {racer}: {failure}"));
                }
            };
            exec.spawn_operation(&format!("racer-{racer}"), Box::new(work))
        })
        .collect();
    for _ in 0..3 {
        pool.sync().map_err(|error| format!("sync: {error}"))?;
    }
    threads.into_iter().for_each(exec::OperationHandle::join);
    drop((node, root, zfs));
    if let Some(failure) = failures.lock().first() {
        return Err(failure.clone());
    }
    check_space(&pool)?;
    pool.export().map_err(|error| format!("export: {error}"))
}

fn run_racer(zfs: &Zfs, node: &Node, random: SplitMix, place: u64, steps: u64) -> Result<(), Failure> {
    let mut dice = Dice(random);
    let mut model = vec![0; PLACE as usize];
    for step in 0..steps {
        let unit = if dice.below(3) == 0 { 1 } else { PAGE };
        let (start, flagged) = (dice.below(PLACE / unit) * unit, unit == PAGE);
        let length = (1 + dice.below((PLACE - start) / unit)).min((PLACE - start) / unit) * unit;
        let access = Access { flagged, ..Access::default() };
        if dice.below(3) > 0 {
            let bytes = dice.bytes(length);
            zfs.write_with(node, write_data(place + start, &bytes), access).map_err(|error| format!("step {step}, write: {error}"))?;
            overlay(&mut model, start, &bytes);
        }
        let found = zfs.read_with(node, place, PLACE, Access { flagged: dice.below(2) == 0, ..Access::default() });
        let found = found.map_err(|error| format!("step {step}, read: {error}"))?;
        same(&found.to_vec(), &model).map_err(|at| format!("step {step}: other bytes from {at} of the place on"))?;
    }
    Ok(())
}

/// Number of reads per second of the virtual clock: random direct reads of 16 KiB by one thread from a device that takes 80 µs for each, `depth`
/// of them under way at a time.
pub fn reads_per_second(depth: usize, count: usize) -> Result<u64, Failure> {
    const BYTES: u64 = 16 << 10;
    let machine = Machine::new(Layout::Stripe1, 1);
    let failed = |trouble: Trouble| trouble.to_string();
    let pool = machine.create(Layout::Stripe1).map_err(failed)?;
    let zfs = mount(&pool).map_err(failed)?;
    let root = zfs.node(zfs.root()).map_err(|error| error.to_string())?;
    let node = zfs.create_node(&root, b"f", &NewNode { mode: 0o100_644, ..NewNode::default() }).map_err(|error| error.to_string())?;
    let mut dice = Dice(SplitMix::new(7));
    let blocks = 512;
    for block in 0..blocks {
        let mut bytes = vec![0; BYTES as usize];
        bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index as u64 * (block + 1) % 251) as u8);
        zfs.write(&node, write_data(block * BYTES, &bytes)).map_err(|error| error.to_string())?;
    }
    pool.sync().map_err(|error| error.to_string())?;
    pool.cache().clear();
    machine.sim.set_latency(Latency { least_ns: 80_000, most_ns: 80_000 });
    let started = machine.exec.now_ns();
    let done = Arc::new(Mutex::new((0, 0)));
    for issued in 0..count {
        let own = done.clone();
        let then = move |result: Result<Abd, ZplError>| {
            let mut done = own.lock();
            done.0 += 1;
            done.1 += usize::from(result.is_err());
        };
        zfs.read_then(&node, dice.below(blocks) * BYTES, BYTES, Access::DIRECT, Box::new(then));
        machine.exec.wait(&|| issued + 1 - done.lock().0 < depth, &|| ());
    }
    machine.exec.wait(&|| done.lock().0 == count, &|| ());
    let elapsed = machine.exec.now_ns() - started;
    match done.lock().1 {
        0 => Ok(count as u64 * 1_000_000_000 / elapsed.max(1)),
        errors => Err(format!("{errors} of {count} reads failed")),
    }
}
