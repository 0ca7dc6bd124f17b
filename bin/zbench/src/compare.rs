//! Our engine beside OpenZFS's own engine, without mounts, on the same files in one run: what `engine` and `direct` share.
//!
//! *Overhead* is what an engine's CPU costs above the floor: fio's psync moving the same physical bytes (parity included where the
//! phase moves it) on the same files in the I/O size that the layout gives the devices (at most 256 KiB). Ours, peer, ours again and floor take turns; every
//! figure is the median of the turns, after one turn of ours that does not count (the peer warms up by itself). The peer's library has
//! assertions on, so its CPU counts 0.9 ×. Direct phases are measured on files in huge pages: what the kernel pays for finding 4 KiB
//! pages is a property of tmpfs that no device has, and it would hide what the paths above cost.

use crate::files::{AlignedBuffer, DATA_START, Pages, VdevFiles, pattern};
use crate::fio;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::measure::{Cost, GIB, PEER_CPU_FACTOR, Samples, Verdicts, measure, text};
use crate::peer::{self, PeerJob};
use crate::subject::{Config, Subject};
use clap::{Args as ClapArgs, ValueEnum};
use dmu::Dnode;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Percent of the data bytes of the devices that the object fills at most.
const FILL_PERCENT_MAX: u64 = 60;
/// Bytes of each call, but for buffered writes.
const CALL_BYTES: usize = 1 << 20;
/// Bytes of the floor's I/Os at most: a copy that the processor's caches do not hold costs more than the same bytes in pieces.
const FLOOR_IO_MAX: u64 = 256 << 10;
/// Bytes of the least budget that the peer's cache takes.
const PEER_CACHE_MIN: u64 = 1 << 30;
/// Bytes of the direct transfer whose copies are counted: too few to make a txg sync, which copies metadata.
const PROBE_BYTES: u64 = 16 << 20;

/// Phase, named as the peer names it.
#[derive(Clone, Copy, Debug)]
pub struct PhaseSpec {
    /// Name of the phase: `swrite`, `swarm`, `scold`, `scrub`, `resilver`, `dwrite`, `dread`.
    pub name: &'static str,
    /// Title of the phase, for people.
    pub title: &'static str,
    /// Part of the peer's overhead that ours may cost at most.
    pub bound: f64,
}

impl PhaseSpec {
    /// True when the layout admits it: without redundancy no device can be replaced by an empty one.
    fn fits(self, layout: Layout) -> bool {
        layout.tolerance() > 0 || self.name != "resilver"
    }

    /// Directions whose device bytes the phase cannot do without: reading, writing.
    fn moves(self) -> [bool; 2] {
        match self.name {
            "resilver" => [true, true],
            name => [!name.ends_with("write"), name.ends_with("write")],
        }
    }
}

/// Mover of the floor's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FloorKind {
    /// fio's psync engine
    Fio,
    /// a loop of pwrite and pread in this program, in pieces of 1 MiB
    Builtin,
}

/// How to measure.
#[derive(ClapArgs, Debug)]
pub struct Options {
    /// Layouts: stripe:N, mirror:N, raidz1:N, raidz2:N, raidz3:N or draid2:4d:11c:2s
    #[arg(long, value_delimiter = ',', default_value = "stripe:4,raidz2:6")]
    pub layout: Vec<Layout>,
    /// Directory for the vdev files; use tmpfs
    #[arg(long, default_value = "/dev/shm/zbench")]
    dir: PathBuf,
    /// Bytes of the object, in MiB (default: 512, and with direct phases 2048: more than the cache and the dirty limit hold)
    #[arg(long)]
    size_mib: Option<u64>,
    /// Bytes of each vdev file, in MiB (default: enough for the phases)
    #[arg(long)]
    vdev_mib: Option<u64>,
    /// Checksum
    #[arg(long, default_value = "fletcher4")]
    checksum: String,
    /// Compression
    #[arg(long, default_value = "off")]
    compression: String,
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Threads that read and write, each its part of the data (default: 1, and with direct phases as many as workers)
    #[arg(long)]
    streams: Option<usize>,
    /// Turns of ours (twice each), floor and peer; medians count
    #[arg(long, default_value_t = 3)]
    reps: usize,
    /// Pages of the memory that the files lie in (default: small, and with direct phases huge where that is possible)
    #[arg(long, value_enum)]
    pages: Option<Pages>,
    /// What moves the floor's bytes
    #[arg(long, value_enum, default_value_t = FloorKind::Fio)]
    floor: FloorKind,
    /// The zpbench program (default: $ZPBENCH, or built from $ZIRCONIA_PEER or ../shared/peer)
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Do not run the peer
    #[arg(long)]
    alone: bool,
}

/// CPU s/GiB of data and MB/s of one phase, over the turns.
#[derive(Default)]
pub struct Phase {
    ours: Samples,
    floor: Samples,
    peer: Samples,
    /// Rate of ours, in 10⁶ bytes per second.
    pub rate: Samples,
    overhead: Samples,
    peer_overhead: Samples,
    /// Bytes copied between buffers ÷ bytes of data.
    pub copies: Samples,
    /// Bytes that the pool counts as direct ÷ bytes of data.
    pub direct: Samples,
}

impl Options {
    /// Bytes of the object, in MiB.
    fn size_mib(&self, specs: &[PhaseSpec]) -> u64 {
        self.size_mib.unwrap_or(if is_direct(specs) { 2048 } else { 512 })
    }
}

fn is_direct(specs: &[PhaseSpec]) -> bool {
    specs.iter().any(|spec| spec.name.starts_with('d'))
}

/// Phases of one layout and record size, by their names.
pub type Phases = BTreeMap<&'static str, Phase>;

/// Setup of one layout and record size.
struct Setup<'a> {
    args: &'a Options,
    specs: &'a [PhaseSpec],
    layout: Layout,
    record: usize,
    files: &'a VdevFiles,
    data: &'a [u8],
}

/// Device bytes that a phase of ours moved, and its cost.
#[derive(Clone, Copy)]
struct Turn {
    cost: Cost,
    /// Bytes that the devices read and wrote.
    moved: [u64; 2],
    /// Bytes copied per byte of data.
    copied: f64,
    direct: u64,
}

impl Setup<'_> {
    fn bytes(&self) -> u64 {
        self.args.size_mib(self.specs) << 20
    }

    fn streams(&self) -> usize {
        self.args.streams.unwrap_or(if is_direct(self.specs) { self.args.threads } else { 1 }).max(1)
    }

    /// Budget of both caches, bytes. Beside direct phases it is too small for the object, as caches are for what direct I/O is used
    /// for: the buffered path runs in its steady state and not into empty memory.
    fn cache_bytes(&self) -> u64 {
        if is_direct(self.specs) { self.bytes() / 2 } else { self.bytes() * 2 }
    }

    /// Runs every phase of ours once; returns each with the device bytes it moved.
    fn ours(&self) -> Result<BTreeMap<&'static str, Turn>, String> {
        let config = Config {
            layout: self.layout,
            devices: self.files.paths.clone(),
            record: self.record,
            checksum: self.args.checksum.clone(),
            compression: self.args.compression.clone(),
            threads: self.args.threads,
            arc_max: self.cache_bytes(),
        };
        let mut turns = BTreeMap::new();
        let mut subject = Subject::create(&config)?;
        let mut number = subject.make_object()?;
        subject.sync()?;
        for spec in self.specs {
            if ["scold", "dread"].contains(&spec.name) {
                subject = subject.reimport()?;
            }
            if spec.name == "dwrite" {
                subject.free_object(number)?;
                number = subject.make_object()?;
                subject.settle()?;
            }
            let object = subject.object(number)?;
            let copied = self.copies(&subject, &object, *spec)?;
            let replaced = (spec.name == "resilver").then_some(0);
            if let Some(leaf) = replaced {
                subject.fault(leaf)?;
                self.files.wipe(leaf)?;
            }
            let (before, direct) = (subject.device_totals_without(replaced), subject.direct_bytes());
            let ((), cost) = measure(|| self.phase(&subject, &object, *spec))?;
            let after = subject.device_totals();
            let turn = Turn {
                cost,
                moved: [0, 1].map(|kind| after.bytes[kind].saturating_sub(before.bytes[kind])),
                copied,
                direct: subject.direct_bytes() - direct,
            };
            turns.insert(spec.name, turn);
        }
        subject.export()?;
        Ok(turns)
    }

    /// Bytes that a short direct transfer copies between buffers, per byte.
    fn copies(&self, subject: &Subject, object: &Arc<Dnode>, spec: PhaseSpec) -> Result<f64, String> {
        if !is_direct(&[spec]) {
            return Ok(f64::NAN);
        }
        let length = self.bytes().min(PROBE_BYTES.next_multiple_of(self.record as u64));
        let before = abd::copied();
        self.stream(subject, object, spec.name, 0..length)?;
        let copied = abd::copied() - before;
        subject.sync()?;
        Ok(copied as f64 / length as f64)
    }

    /// Runs one phase.
    fn phase(&self, subject: &Subject, object: &Arc<Dnode>, spec: PhaseSpec) -> Result<(), String> {
        if spec.name == "scrub" {
            return subject.scrub();
        }
        if spec.name == "resilver" {
            subject.replace(0)?;
            return subject.wait_for_scan();
        }
        let streams = self.streams() as u64;
        // Streams meet at record boundaries.
        let part = (self.bytes() / streams).next_multiple_of(CALL_BYTES.max(self.record) as u64);
        std::thread::scope(|scope| {
            let start = |index: u64| {
                let range = index * part..((index + 1) * part).min(self.bytes());
                scope.spawn(move || self.stream(subject, object, spec.name, range))
            };
            let threads: Vec<_> = (0..streams).map(start).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a stream panicked".to_string())?)
        })?;
        if spec.moves() == [false, true] { subject.sync() } else { Ok(()) }
    }

    /// Runs one thread's part of a phase.
    fn stream(&self, subject: &Subject, object: &Dnode, name: &str, range: Range<u64>) -> Result<(), String> {
        let step = if name == "swrite" { self.record.max(128 << 10) } else { CALL_BYTES.max(self.record) };
        let mut buffer = AlignedBuffer::new(if name.ends_with("write") { 0 } else { step });
        for offset in range.step_by(step) {
            let start = offset as usize % (self.data.len() - step + 1) / 4096 * 4096;
            match name {
                "swrite" => subject.write_at(object, offset, &self.data[start..start + step])?,
                "dwrite" => subject.write_direct_at(object, offset, &self.data[start..start + step])?,
                "dread" => subject.read_direct_at(object, offset, &mut buffer)?,
                _ => subject.read_at(object, offset, &mut buffer)?,
            }
        }
        Ok(())
    }

    fn floor_io_bytes(&self) -> u64 {
        self.layout.device_io_bytes(self.record as u64).min(FLOOR_IO_MAX)
    }

    /// CPU seconds for moving `bytes` in the devices' I/O size.
    fn floor(&self, is_write: bool, bytes: u64) -> Result<f64, String> {
        if bytes < 1 << 20 {
            return Ok(0.0);
        }
        if self.args.floor == FloorKind::Builtin {
            return builtin_floor(self.files, is_write, bytes, self.data);
        }
        let block = self.floor_io_bytes();
        let rw = if is_write { "write" } else { "read" };
        Ok(fio::floor(&self.files.paths, rw, block, bytes, DATA_START, self.files.room())?.cpu)
    }

    fn measure(&self, program: Option<&PathBuf>) -> Result<Phases, String> {
        let mut phases = Phases::new();
        let names: Vec<&str> = self.specs.iter().map(|spec| spec.name).collect();
        let names = names.join(",");
        let gib = self.bytes() as f64 / GIB;
        self.ours()?;
        for _ in 0..self.args.reps.max(1) {
            let mut first = self.ours()?;
            let peers = match program {
                Some(program) => peer::run(program, &self.peer_job(&names))?,
                None => Vec::new(),
            };
            let mut second = self.ours()?;
            for spec in self.specs {
                let (name, Some(turn)) = (spec.name, first.remove(spec.name)) else { continue };
                let mut floor = 0.0;
                for (is_write, _) in [false, true].into_iter().zip(spec.moves()).filter(|(_, moves)| *moves) {
                    floor += self.floor(is_write, turn.moved[usize::from(is_write)])? / gib;
                }
                let phase = phases.entry(name).or_default();
                phase.floor.push(floor);
                for turn in [Some(turn), second.remove(name)].into_iter().flatten() {
                    phase.ours.push(turn.cost.cpu / gib);
                    phase.rate.push(self.bytes() as f64 / 1e6 / turn.cost.seconds);
                    phase.copies.push(turn.copied);
                    phase.direct.push(turn.direct as f64 / self.bytes() as f64);
                    phase.overhead.push(turn.cost.cpu / gib - floor);
                }
                if let Some(row) = peers.iter().find(|row| row.phase == name) {
                    let cpu = row.cost.cpu * PEER_CPU_FACTOR / gib;
                    phase.peer.push(cpu);
                    phase.peer_overhead.push(cpu - floor);
                }
            }
        }
        Ok(phases)
    }

    fn peer_job<'b>(&'b self, phases: &'b str) -> PeerJob<'b> {
        PeerJob {
            layout: self.layout,
            folder: &self.args.dir,
            vdev_bytes: self.files.bytes,
            bytes: self.bytes(),
            record: self.record,
            io: 1 << 20,
            checksum: &self.args.checksum,
            compression: &self.args.compression,
            jobs: self.streams(),
            seconds: 1,
            arc_bytes: self.cache_bytes().max(PEER_CACHE_MIN),
            phases,
        }
    }

    fn report(&self, phases: &Phases, verdicts: &mut Verdicts) {
        let block = self.floor_io_bytes() >> 10;
        println!("\n{}, {} KiB records, {} MiB; floor in I/Os of {block} KiB", self.layout, self.record >> 10, self.bytes() >> 20);
        println!(
            "{:<15} {:>7} {:>17} {:>8} {:>15} | {:>9} {:>9} {:>6} {:>6}",
            "phase", "MB/s", "cpu s/GiB ±%", "floor", "peer×0.9 ±%", "overhead", "peer's", "ratio", "bound"
        );
        for spec in self.specs {
            let Some(phase) = phases.get(spec.name) else { continue };
            let (ours, floor, overhead) = (&phase.ours, phase.floor.median(), phase.overhead.median());
            let (rate, title) = (phase.rate.median(), spec.title);
            print!("{title:<15} {rate:>7.0} {:>11.3} {:>4.0}% {floor:>8.3}", ours.median(), ours.spread_percent());
            if phase.peer.count() == 0 {
                println!(" {:>15} | {overhead:>9.3} {:>9} {:>6}", "-", "-", "-");
                continue;
            }
            let (peer, theirs, bound) = (&phase.peer, phase.peer_overhead.median(), spec.bound);
            // A floor far above the whole cost, or above the peer's, was disturbed: nothing can be concluded from it.
            let disturbed = theirs <= 0.0 || overhead < -DISTURBED * floor;
            let kept = verdicts.judge(!disturbed && overhead <= bound * theirs);
            let verdict = if disturbed { "MISSED (the floor was disturbed: measure again)" } else { kept };
            let (ratio, peer, spread) = (overhead / theirs, peer.median(), peer.spread_percent());
            println!(" {peer:>9.3} {spread:>4.0}% | {overhead:>9.3} {theirs:>9.3} {ratio:>6.2} {bound:>6.2} {verdict}");
        }
    }
}

/// Part of the floor by which our whole cost may lie below it before the row counts as disturbed.
const DISTURBED: f64 = 0.25;

/// CPU seconds of one thread that writes or reads `bytes` in pieces of 1 MiB over the files.
fn builtin_floor(files: &VdevFiles, is_write: bool, bytes: u64, data: &[u8]) -> Result<f64, String> {
    let open = |path: &PathBuf| std::fs::OpenOptions::new().read(true).write(true).open(path).map_err(text);
    let handles = files.paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut buffer = vec![0; 1 << 20];
    let turns = (files.room() >> 20).max(1);
    let ((), cost) = measure(|| {
        for piece in 0..(bytes >> 20).max(1) {
            let file = &handles[piece as usize % handles.len()];
            let offset = DATA_START + ((piece / handles.len() as u64 % turns) << 20);
            if is_write {
                let start = (piece as usize * 4096) % (data.len() - (1 << 20));
                file.write_all_at(&data[start..start + (1 << 20)], offset).map_err(text)?;
            } else {
                file.read_exact_at(&mut buffer, offset).map_err(text)?;
            }
        }
        Ok(())
    })?;
    Ok(cost.cpu)
}

/// Measures the phases on every layout and record size (bytes, with the phases of each) and prints a table for each; `after` sees the
/// figures and may judge more.
pub fn run(
    args: &Options,
    records: &[(usize, Vec<PhaseSpec>)],
    verdicts: &mut Verdicts,
    after: impl Fn(&Phases, &mut Verdicts),
) -> Result<(), String> {
    if args.floor == FloorKind::Fio {
        fio::require()?;
    }
    let program = if args.alone { None } else { peer::find_or_say(args.peer.as_deref()) };
    println!("{}", Machine::describe().header());
    let specs: Vec<PhaseSpec> = records.iter().flat_map(|(_, specs)| specs).copied().collect();
    let huge = Pages::provide(args.pages, is_direct(&specs), &args.dir)?;
    println!(
        "{}, compression {}; files in {} pages; medians of {} interleaved turns; ±% is the spread (largest − smallest)",
        args.checksum,
        args.compression,
        if huge.is_some() { "huge" } else { "small" },
        args.reps
    );
    let data = pattern(64 << 20);
    for &layout in &args.layout {
        let size_mib = records.iter().map(|(_, specs)| args.size_mib(specs)).max().unwrap_or(0);
        let enough = (size_mib * 100 / FILL_PERCENT_MAX).div_ceil(layout.data_devices() as u64).max(64);
        let vdev_mib = args.vdev_mib.unwrap_or(enough + 16);
        if vdev_mib < enough {
            return Err("the object does not fit: make the vdevs larger (--vdev-mib)".to_string());
        }
        let files = VdevFiles::create(&args.dir, layout.devices, vdev_mib << 20)?;
        if !fio::is_tmpfs(&args.dir) {
            eprintln!("{} is not on tmpfs: the figures are about the file system below", args.dir.display());
        }
        for (record, specs) in records {
            let specs: Vec<PhaseSpec> = specs.iter().copied().filter(|spec| spec.fits(layout)).collect();
            let setup = Setup { args, specs: &specs, layout, record: *record, files: &files, data: &data };
            let phases = setup.measure(program.as_ref())?;
            setup.report(&phases, verdicts);
            after(&phases, verdicts);
        }
    }
    Ok(())
}
