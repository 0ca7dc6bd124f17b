//! Every way to a file's bytes at once, through a real mount: buffered, O_DIRECT, a descriptor that fcntl(2) makes direct, one that writes with
//! O_DSYNC, and shared mappings; truncated, appended to, overwritten after snapshots; by several threads on common files and blocks. What is
//! read is compared with a model of bytes after each step, and the whole after an export and import.
//!
//! The model's answer is defined because threads take turns in a region of a file, and regions are pages of their own: what
//! Linux leaves open is only what overlapping requests see of each other. Regions are no multiples of a record, so that
//! threads share blocks. Reading ahead is off, which would put neighbours' pages into the kernel's cache while they change.

use crate::mapped::{Mapped, PAGE};
use crate::world::{Failure, World, same};
use rustix::fs::{Advice, OFlags};
use std::fs::File;
use std::io::Write;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

const RECORDS: [(&str, usize); 4] = [("4K", 4 << 10), ("16K", 16 << 10), ("128K", 128 << 10), ("1M", 1 << 20)];
const THREADS: u64 = 4;
const REGIONS: usize = 4;
const SNAPSHOTS_KEPT: usize = 2;
/// Bytes that misaligned requests which ask for direct stay below: what the kernel sends in one piece.
const MISALIGNED_MAX: usize = 64 << 10;
/// Number of steps of each thread before and after the import, unless told otherwise.
const STEPS: u64 = 1000;
const EINVAL: i32 = 22;

type Told = Result<(), String>;

fn told(what: impl std::fmt::Display, error: impl std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
    /// Part of `whole` whose ends are multiples of `unit`; None when there is none.
    fn part(&mut self, whole: &Range<usize>, unit: usize) -> Option<Range<usize>> {
        let (first, last) = (whole.start.div_ceil(unit), whole.end / unit);
        let units = last.checked_sub(first).filter(|units| *units > 0)?;
        let start = self.below(units);
        // Mostly short, now and then up to the end.
        let most = if self.below(4) == 0 { units - start } else { (units - start).min(1 + 30_000 / unit) };
        let end = start + 1 + self.below(most);
        Some((first + start) * unit..(first + end) * unit)
    }
}

/// Buffer that begins on a page, as programs that use O_DIRECT have them.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    fn new(bytes: usize) -> Buffer {
        let memory = vec![0; bytes + PAGE];
        let start = memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr();
        Buffer { memory, start, bytes }
    }
    /// Makes a buffer of noise, letters or zeros.
    fn filled(bytes: usize, dice: &mut Dice) -> Buffer {
        let mut buffer = Buffer::new(bytes);
        let fill = dice.next();
        let mut noise = Dice(fill);
        for chunk in buffer.get_mut().chunks_mut(8) {
            let word = match fill % 6 {
                0 => 0,
                1 => 0x6161_6161_6161_6161,
                _ => noise.next(),
            };
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        buffer
    }
    fn get(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// Numbers of times that each thing happened.
#[derive(Debug, Default)]
struct Counts {
    buffered: AtomicU64,
    direct: AtomicU64,
    switched: AtomicU64,
    mapped: AtomicU64,
    durable: AtomicU64,
    refused: AtomicU64,
    truncated: AtomicU64,
    appended: AtomicU64,
    snapshots: AtomicU64,
    looked_back: AtomicU64,
    compared: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// File that all threads work on.
struct Target {
    dataset: String,
    folder: PathBuf,
    always: bool,
    record: usize,
    /// Size of the file in bytes: shared by who reads and writes in a region, exclusive for who changes it or compares the whole.
    size: RwLock<usize>,
    /// Contents of the file by region; zeros behind its end.
    regions: Vec<Mutex<Vec<u8>>>,
    /// Names of snapshots and what the file held then.
    snapshots: Mutex<Vec<(String, Vec<u8>)>>,
}

/// Way to a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Buffered,
    Direct,
    Switched,
    Mapped,
    /// Written with O_DSYNC by a descriptor that cannot read; read as any other.
    Durable,
}

const WAYS: [Way; 5] = [Way::Buffered, Way::Direct, Way::Switched, Way::Mapped, Way::Durable];

/// Descriptors and mapping of a file that one thread has.
struct Handles {
    buffered: File,
    direct: File,
    switched: File,
    append: File,
    append_direct: File,
    durable: File,
    mapped: Mapped,
}

fn open(path: &Path, flags: OFlags) -> std::io::Result<File> {
    let file = File::options().read(true).write(true).custom_flags(flags.bits() as i32).open(path)?;
    rustix::fs::fadvise(&file, 0, None::<NonZeroU64>, Advice::Random)?;
    Ok(file)
}

impl Target {
    fn region_bytes(&self) -> usize {
        2 * self.record + 3 * PAGE
    }

    fn bytes_max(&self) -> usize {
        REGIONS * self.region_bytes()
    }

    fn path(&self) -> PathBuf {
        self.folder.join("file")
    }

    fn handles(&self, through_direct: bool) -> std::io::Result<Handles> {
        let path = self.path();
        let (buffered, direct) = (open(&path, OFlags::empty())?, open(&path, OFlags::DIRECT)?);
        let mapped = Mapped::new(if through_direct { &direct } else { &buffered }, self.bytes_max())?;
        let append = |flags: OFlags| File::options().append(true).custom_flags(flags.bits() as i32).open(&path);
        let (append, append_direct) = (append(OFlags::empty())?, append(OFlags::DIRECT)?);
        let durable = File::options().write(true).custom_flags(OFlags::DSYNC.bits() as i32).open(&path)?;
        Ok(Handles { buffered, direct, switched: open(&path, OFlags::empty())?, append, append_direct, durable, mapped })
    }

    /// True when a misaligned request that asks for direct is refused.
    fn refuses(&self, strict: bool) -> bool {
        strict && !self.always
    }

    /// Bytes that the file must hold; the caller has `size` to itself.
    fn model(&self, size: usize) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.bytes_max());
        for region in &self.regions {
            whole.extend_from_slice(&region.lock().unwrap_or_else(PoisonError::into_inner));
        }
        whole.truncate(size);
        whole
    }

    /// Changes what the file must hold; the caller has `size` to itself.
    fn set(&self, at: usize, bytes: &[u8]) {
        let width = self.region_bytes();
        for (index, region) in self.regions.iter().enumerate() {
            let (start, end) = ((index * width).max(at), ((index + 1) * width).min(at + bytes.len()));
            if start < end {
                let mut region = region.lock().unwrap_or_else(PoisonError::into_inner);
                region[start - index * width..end - index * width].copy_from_slice(&bytes[start - at..end - at]);
            }
        }
    }

    /// Compares the whole file by every way.
    fn compare(&self, handles: &Handles, size: usize) -> Told {
        let wanted = self.model(size);
        let length = handles.buffered.metadata().map_err(|error| told("stat", error))?.len();
        if length != size as u64 {
            return Err(format!("{length} bytes instead of {size}"));
        }
        for way in WAYS {
            let found = handles.read(way, 0..size).map_err(|error| told(format!("{way:?} read of everything"), error))?;
            differs(&found, &wanted).map_or(Ok(()), |at| Err(format!("{way:?} read of everything: other bytes from {at} on")))?;
        }
        Ok(())
    }
}

fn differs(found: &[u8], wanted: &[u8]) -> Option<usize> {
    if found == wanted {
        return None;
    }
    let first = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    first.or_else(|| (found.len() != wanted.len()).then_some(found.len().min(wanted.len())))
}

impl Handles {
    fn file(&self, way: Way) -> &File {
        match way {
            Way::Direct => &self.direct,
            Way::Switched => &self.switched,
            Way::Buffered | Way::Mapped | Way::Durable => &self.buffered,
        }
    }

    /// Makes the descriptor that changes its mind direct, or buffered.
    fn switch(&self, direct: bool) -> std::io::Result<()> {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        Ok(rustix::fs::fcntl_setfl(&self.switched, flags)?)
    }

    /// Reads a range that lies in the file; direct reads ask for whole pages.
    fn read(&self, way: Way, range: Range<usize>) -> std::io::Result<Vec<u8>> {
        if way == Way::Mapped {
            return Ok(self.mapped.read(range));
        }
        let wide = if matches!(way, Way::Buffered | Way::Durable) {
            range.clone()
        } else {
            range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE)
        };
        let mut buffer = Buffer::new(wide.len());
        let mut done = 0;
        while done < range.end - wide.start {
            match self.file(way).read_at(&mut buffer.get_mut()[done..], (wide.start + done) as u64)? {
                0 => break,
                more => done += more,
            }
        }
        let found = range.start - wide.start..done.min(range.end - wide.start);
        Ok(buffer.get().get(found).unwrap_or_default().to_vec())
    }

    fn write(&self, way: Way, at: usize, bytes: &[u8]) -> std::io::Result<()> {
        if way == Way::Mapped {
            self.mapped.write(at, bytes);
            return Ok(());
        }
        let file = if way == Way::Durable { &self.durable } else { self.file(way) };
        match file.write_at(bytes, at as u64)? {
            written if written == bytes.len() => Ok(()),
            written => Err(std::io::Error::other(format!("{written} of {} bytes written", bytes.len()))),
        }
    }
}

/// State that the threads share.
struct Run<'a> {
    world: &'a World,
    targets: Vec<Target>,
    strict: AtomicBool,
    counts: Counts,
    last_snapshot: AtomicU64,
    failed: AtomicBool,
}

/// Worker of one thread.
struct Worker<'a> {
    run: &'a Run<'a>,
    handles: Vec<Handles>,
    dice: Dice,
}

impl Worker<'_> {
    fn run(&mut self, thread: usize, steps: u64) -> Told {
        self.work(steps).map_err(|failure| {
            self.run.failed.store(true, Ordering::Relaxed);
            format!("thread {thread}, {failure}")
        })
    }

    fn work(&mut self, steps: u64) -> Told {
        for step in 0..steps {
            if self.run.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let number = self.dice.below(self.run.targets.len());
            let target = &self.run.targets[number];
            let what = self.dice.below(100);
            self.step(number, what).map_err(|failure| format!("step {step} ({what}) of {}: {failure}", target.dataset))?;
        }
        Ok(())
    }

    fn step(&mut self, number: usize, what: usize) -> Told {
        let run = self.run;
        let target = &run.targets[number];
        match what {
            0..=79 => self.in_region(number),
            80..=84 => self.truncate(number),
            85..=91 => self.append(number),
            92..=93 => {
                let size = target.size.write().unwrap_or_else(PoisonError::into_inner);
                count(&run.counts.compared);
                target.compare(&self.handles[number], *size)
            }
            94..=95 => self.snapshot(number),
            96..=97 => self.look_back(target),
            _ => {
                let _size = target.size.read().unwrap_or_else(PoisonError::into_inner);
                self.handles[number].direct.sync_all().map_err(|error| told("fsync", error))
            }
        }
    }

    /// Writes or reads inside one region, then reads it again.
    fn in_region(&mut self, number: usize) -> Told {
        let (run, handles, dice) = (self.run, &self.handles[number], &mut self.dice);
        let target = &run.targets[number];
        let size = target.size.read().unwrap_or_else(PoisonError::into_inner);
        let (index, width) = (dice.below(REGIONS), target.region_bytes());
        let region = index * width..((index + 1) * width).min(*size);
        let way = WAYS[dice.below(WAYS.len())];
        let switch = way == Way::Switched || dice.below(8) == 0;
        handles.switch(switch).map_err(|error| told("fcntl", error))?;
        // A descriptor that fcntl made buffered is one more way to write buffered.
        let asks = matches!(way, Way::Direct | Way::Switched);
        let unit = match (asks, dice.below(8)) {
            (true, 0) => 512,
            (true, 1..=4) => target.record,
            (true, _) => PAGE,
            (false, 0..=1) => PAGE,
            (false, _) => 1,
        };
        let Some(mut range) = dice.part(&region, unit) else { return Ok(()) };
        if unit == 512 {
            range.end = range.end.min(range.start + MISALIGNED_MAX);
        }
        let mut model = target.regions[index].lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = Buffer::filled(range.len(), dice);
        if dice.below(3) > 0 {
            let misaligned = asks && !(range.start.is_multiple_of(PAGE) && range.len().is_multiple_of(PAGE));
            let wrote = handles.write(way, range.start, bytes.get());
            match wrote {
                Ok(()) if !(misaligned && target.refuses(run.strict.load(Ordering::Relaxed))) => {
                    model[range.start - index * width..range.end - index * width].copy_from_slice(bytes.get());
                }
                Err(error) if misaligned && target.refuses(run.strict.load(Ordering::Relaxed)) && error.raw_os_error() == Some(EINVAL) => {
                    count(&run.counts.refused);
                }
                other => return Err(format!("{way:?} write of {range:?}: {other:?}")),
            }
            if way == Way::Mapped && dice.below(3) == 0 {
                handles.mapped.sync(range.clone()).map_err(|error| told("msync", error))?;
            }
            count(match way {
                Way::Buffered => &run.counts.buffered,
                Way::Direct => &run.counts.direct,
                Way::Switched => &run.counts.switched,
                Way::Mapped => &run.counts.mapped,
                Way::Durable => &run.counts.durable,
            });
        }
        let again = WAYS[dice.below(WAYS.len())];
        let wide = region.start.max(range.start.saturating_sub(PAGE))..region.end.min(range.end + PAGE);
        handles.switch(again == Way::Switched).map_err(|error| told("fcntl", error))?;
        let found = handles.read(again, wide.clone()).map_err(|error| told(format!("{again:?} read of {wide:?}"), error))?;
        let wanted = &model[wide.start - index * width..wide.end - index * width];
        match differs(&found, wanted) {
            None => Ok(()),
            Some(at) => Err(format!("{way:?} {range:?}, {again:?} read of {wide:?} in {size} bytes: other bytes from {at} on")),
        }
    }

    fn truncate(&mut self, number: usize) -> Told {
        let target = &self.run.targets[number];
        let mut size = target.size.write().unwrap_or_else(PoisonError::into_inner);
        let unit = [1, PAGE, target.record][self.dice.below(3)];
        let wanted = self.dice.below(target.bytes_max() / unit + 1) * unit;
        self.handles[number].buffered.set_len(wanted as u64).map_err(|error| told(format!("truncation to {wanted}"), error))?;
        if wanted < *size {
            target.set(wanted, &vec![0; *size - wanted]);
        }
        *size = wanted;
        count(&self.run.counts.truncated);
        self.near_end(target, number, *size, "truncation")
    }

    /// Works on the last bytes of the file by some way; the caller has `size` to itself.
    fn near_end(&mut self, target: &Target, number: usize, size: usize, after: &str) -> Told {
        let (range, way) = (size.saturating_sub(3 * PAGE)..size, WAYS[self.dice.below(WAYS.len())]);
        let handles = &self.handles[number];
        handles.switch(way == Way::Switched).map_err(|error| told("fcntl", error))?;
        let found = handles.read(way, range.clone()).map_err(|error| told(format!("{way:?} read of {range:?}"), error))?;
        match differs(&found, &target.model(size)[range.clone()]) {
            None => Ok(()),
            Some(at) => Err(format!("{way:?} read of {range:?} after {after}: other bytes from {at} on")),
        }
    }

    fn append(&mut self, number: usize) -> Told {
        let run = self.run;
        let target = &run.targets[number];
        let mut size = target.size.write().unwrap_or_else(PoisonError::into_inner);
        let direct = self.dice.below(2) == 0;
        let unit = if direct { [PAGE, target.record][self.dice.below(2)] } else { 1 };
        let length = unit * (1 + self.dice.below(if unit == 1 { 30_000 } else { 3 }));
        if *size + length > target.bytes_max() {
            return Ok(());
        }
        let bytes = Buffer::filled(length, &mut self.dice);
        let handles = &self.handles[number];
        let wrote = (if direct { &handles.append_direct } else { &handles.append }).write(bytes.get());
        let refused = direct && !size.is_multiple_of(PAGE) && target.refuses(run.strict.load(Ordering::Relaxed));
        match wrote {
            Ok(written) if written == length && !refused => target.set(*size, bytes.get()),
            Err(error) if refused && error.raw_os_error() == Some(EINVAL) => {
                count(&run.counts.refused);
                return Ok(());
            }
            other => return Err(format!("append of {length} at {size}, direct {direct}: {other:?}")),
        }
        *size += length;
        count(&run.counts.appended);
        self.near_end(target, number, *size, "append")
    }

    /// Takes a snapshot; what is only in mapped pages is no snapshot's: fsync first.
    fn snapshot(&self, number: usize) -> Told {
        let target = &self.run.targets[number];
        let size = target.size.write().unwrap_or_else(PoisonError::into_inner);
        self.handles[number].buffered.sync_all().map_err(|error| told("fsync", error))?;
        let name = format!("s{}", self.run.last_snapshot.fetch_add(1, Ordering::Relaxed));
        let run = |line: String| self.run.world.ok(&line).map_err(|failure| failure.to_string());
        run(format!("zfs snapshot {}@{name}", target.dataset))?;
        let mut snapshots = target.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        snapshots.push((name, target.model(*size)));
        drop(size);
        if snapshots.len() > SNAPSHOTS_KEPT {
            let (oldest, _) = snapshots.remove(0);
            run(format!("zfs destroy {}@{oldest}", target.dataset))?;
        }
        count(&self.run.counts.snapshots);
        Ok(())
    }

    /// Checks that snapshots hold what the file held.
    fn look_back(&mut self, target: &Target) -> Told {
        let snapshots = target.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        let direct = self.dice.below(2) == 0;
        for (name, wanted) in snapshots.iter() {
            let path = target.folder.join(".zfs/snapshot").join(name).join("file");
            let read = || {
                let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
                let file = File::options().read(true).custom_flags(flags.bits() as i32).open(&path)?;
                let mut buffer = Buffer::new(wanted.len().next_multiple_of(PAGE));
                let mut done = 0;
                while done < wanted.len() {
                    match file.read_at(&mut buffer.get_mut()[done..], done as u64)? {
                        0 => break,
                        more => done += more,
                    }
                }
                Ok::<_, std::io::Error>(buffer.get()[..done].to_vec())
            };
            let found = read().map_err(|error| told(path.display(), error))?;
            if let Some(at) = differs(&found, wanted) {
                return Err(format!("snapshot {name}, direct {direct}: other bytes from {at} on"));
            }
            count(&self.run.counts.looked_back);
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Runs all threads, `steps` each, then compares everything.
    fn phase(&self, seed: u64, steps: u64) -> Told {
        let mut workers = Vec::new();
        for thread in 0..THREADS {
            let handles = self.targets.iter().map(|target| target.handles(thread % 2 == 0)).collect::<std::io::Result<_>>();
            let handles = handles.map_err(|error| told("open", error))?;
            workers.push(Worker { run: self, handles, dice: Dice(seed.wrapping_mul(1000).wrapping_add(thread)) });
        }
        // Everybody's descriptors stay open until all are done.
        let results: Vec<Told> = std::thread::scope(|scope| {
            let start = |(thread, worker)| scope.spawn(move || Worker::run(worker, thread, steps));
            let threads: Vec<_> = workers.iter_mut().enumerate().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_string()))).collect()
        });
        results.into_iter().collect::<Told>().map_err(|failure| format!("seed {seed}, {failure}"))?;
        self.compare_all(seed, "at the end")
    }

    fn compare_all(&self, seed: u64, when: &str) -> Told {
        for target in &self.targets {
            let size = target.size.write().unwrap_or_else(PoisonError::into_inner);
            let handles = target.handles(false).map_err(|error| told("open", error))?;
            handles.switch(true).map_err(|error| told("fcntl", error))?;
            target.compare(&handles, *size).map_err(|failure| format!("seed {seed}, {} {when}: {failure}", target.dataset))?;
        }
        Ok(())
    }

    fn look_back_all(&self) -> Told {
        self.targets.iter().try_for_each(|target| {
            let mut worker = Worker { run: self, handles: Vec::new(), dice: Dice(0) };
            worker.look_back(target).and_then(|()| worker.look_back(target))
        })
    }
}

fn make(world: &World) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::new();
    for (word, always) in [("standard", false), ("always", true)] {
        for (number, (size, record)) in RECORDS.into_iter().enumerate() {
            let dataset = format!("tank/{word}-{size}");
            let compression = if number % 2 == 0 { "off" } else { "lz4" };
            world.ok(&format!("zfs create -o direct={word} -o recordsize={size} -o compression={compression} {dataset}"))?;
            let folder = world.path(&format!("mnt/{dataset}"));
            File::create(folder.join("file"))?;
            let mut target =
                Target { dataset, folder, always, record, size: RwLock::new(0), regions: Vec::new(), snapshots: Mutex::default() };
            target.regions = (0..REGIONS).map(|_| Mutex::new(vec![0; target.region_bytes()])).collect();
            targets.push(target);
        }
    }
    Ok(targets)
}

/// Number of requests in a row of `zfs direct-stats -H -p`.
fn requests(table: &str, part: &str) -> u64 {
    let rows = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(|row| row.get(1) == Some(&part)).filter_map(|row| row.get(2)?.parse::<u64>().ok()).sum()
}

/// Runs the scenario. Long runs: `--steps` (of each thread, before and after the import) and `--seed`.
pub fn coherency(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?;
    let (seed, steps) = (world.options().seed.unwrap_or(1), world.options().steps.unwrap_or(STEPS));
    let mut run = Run {
        world,
        targets: make(world)?,
        strict: AtomicBool::new(true),
        counts: Counts::default(),
        last_snapshot: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    for strict in [true, false] {
        std::fs::write(world.path("state/sys/module/zfs/parameters/zfs_dio_strict"), if strict { "1" } else { "0" })?;
        *run.strict.get_mut() = strict;
        run.phase(seed * 2 + u64::from(strict), steps)?;
        for (word, always) in [("standard", false), ("always", true)] {
            for target in run.targets.iter().filter(|target| target.always == always) {
                let table = world.ok(&format!("zfs direct-stats -H -p {}", target.dataset))?.out;
                same(&format!("{word} {strict}: direct I/O"), requests(&table, "direct_write") > 0, true)?;
                same(
                    &format!("{word} {strict}: requests refused"),
                    requests(&table, "refused") > 0 && target.refuses(strict),
                    target.refuses(strict),
                )?;
            }
        }
        // The same counts as a statistic of the pool.
        let statistic = std::fs::read_to_string(world.path("state/proc/spl/kstat/zfs/tank/direct"))?;
        let table = world.ok("zpool iostat --direct -H -p tank")?.out;
        let shown = statistic.lines().find_map(|line| line.strip_prefix("direct_write_requests")?.split_whitespace().last()?.parse().ok());
        same("direct writes by statistic and by command", shown, Some(requests(&table, "direct_write")))?;
        world.ok("zpool export tank")?;
        world.ok("zpool import -d {vdevs} tank")?;
        run.compare_all(seed, "after the import")?;
        run.look_back_all()?;
    }
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?.shows("errors: No known data errors")?;
    let devices = world.ok("zpool status -p tank")?;
    for row in devices.out.lines().filter(|line| line.contains("ONLINE") && line.split_whitespace().count() >= 5) {
        let errors: Vec<&str> = row.split_whitespace().skip(2).take(3).collect();
        same("errors of a device", errors, vec!["0"; 3])?;
    }
    println!("      {:?}", run.counts);
    Ok(())
}
