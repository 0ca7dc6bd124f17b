//! `zbench engine`: the engine without mounts beside OpenZFS's own engine, on the same files in one run.
//!
//! *Overhead* is what an engine's CPU costs above the floor: fio's psync moving the same physical bytes (parity included where the
//! phase moves it) on the same files in the I/O size that the layout gives the devices. Ours, floor and peer take turns; every figure
//! is the median of the turns, after one turn of ours that does not count (the peer warms up by itself). The peer's library has
//! assertions on, so its CPU counts 0.9 ×.

use crate::files::{DATA_START, VdevFiles, pattern};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::measure::{Cost, GIB, PEER_CPU_FACTOR, Samples, Verdicts, measure, text};
use crate::peer::{self, PeerJob};
use crate::subject::{Config, Subject};
use crate::{fio, machine};
use clap::{Args as ClapArgs, ValueEnum};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Work of one phase is repeated until the object has this share of the device bytes at most.
const FILL_PERCENT_MAX: u64 = 60;
/// Records below this size have the stricter bound.
const SMALL_RECORD: usize = 64 << 10;
const PHASES: [(&str, &str); 4] = [("swrite", "buffered write"), ("swarm", "warm read"), ("scold", "cold read"), ("scrub", "scrub")];

/// What moves the floor's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FloorKind {
    /// fio's psync engine
    Fio,
    /// a loop of pwrite and pread in this program, in pieces of 1 MiB
    Builtin,
}

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Layouts: stripe:N, mirror:N, raidz1:N, raidz2:N or raidz3:N
    #[arg(long, value_delimiter = ',', default_value = "stripe:4,raidz2:6")]
    layout: Vec<Layout>,
    /// Directory for the vdev files; use tmpfs
    #[arg(long, default_value = "/dev/shm/zbench")]
    dir: PathBuf,
    /// Bytes of the object, in MiB
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Bytes of each vdev file, in MiB
    #[arg(long, default_value_t = 256)]
    vdev_mib: u64,
    /// Record sizes in KiB
    #[arg(long, value_delimiter = ',', default_value = "1024,16")]
    record_kib: Vec<usize>,
    /// Checksum
    #[arg(long, default_value = "fletcher4")]
    checksum: String,
    /// Compression
    #[arg(long, default_value = "off")]
    compression: String,
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Turns of ours, floor and peer; medians count
    #[arg(long, default_value_t = 3)]
    reps: usize,
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
struct Phase {
    ours: Samples,
    floor: Samples,
    peer: Samples,
    rate: Samples,
    overhead: Samples,
    peer_overhead: Samples,
}

/// One layout and record size.
struct Setup<'a> {
    args: &'a Args,
    layout: Layout,
    record: usize,
    files: &'a VdevFiles,
    data: &'a [u8],
}

/// Device bytes that a phase of ours moved, and its cost.
#[derive(Clone, Copy)]
struct Turn {
    cost: Cost,
    moved: u64,
}

impl Setup<'_> {
    fn bytes(&self) -> u64 {
        self.args.size_mib << 20
    }

    /// Every phase of ours once, each with the device bytes it moved.
    fn ours(&self) -> Result<BTreeMap<&'static str, Turn>, String> {
        let config = Config {
            layout: self.layout,
            devices: self.files.paths.clone(),
            record: self.record,
            checksum: self.args.checksum.clone(),
            compression: self.args.compression.clone(),
            threads: self.args.threads,
            arc_max: self.bytes() * 2,
        };
        let mut turns = BTreeMap::new();
        let mut buffer = vec![0; 1 << 20];
        let mut subject = Subject::create(&config)?;
        let number = subject.make_object()?;
        subject.sync()?;
        for (phase, _) in PHASES {
            if phase == "scold" {
                subject = subject.reimport()?;
            }
            let object = subject.object(number)?;
            let before = subject.device_totals();
            let ((), cost) = measure(|| match phase {
                "swrite" => {
                    subject.write(&object, self.bytes(), self.record.max(128 << 10), self.data)?;
                    subject.sync()
                }
                "scrub" => subject.scrub(),
                _ => subject.read(&object, self.bytes(), &mut buffer),
            })?;
            let direction = usize::from(phase == "swrite");
            turns.insert(phase, Turn { cost, moved: subject.device_totals().bytes[direction] - before.bytes[direction] });
        }
        subject.export()?;
        Ok(turns)
    }

    /// CPU seconds for moving `bytes` in the devices' I/O size.
    fn floor(&self, phase: &str, bytes: u64) -> Result<f64, String> {
        if bytes < 1 << 20 {
            return Ok(0.0);
        }
        let is_write = phase == "swrite";
        if self.args.floor == FloorKind::Builtin {
            return builtin_floor(self.files, is_write, bytes, self.data);
        }
        let block = self.layout.device_io_bytes(self.record as u64);
        let rw = if is_write { "write" } else { "read" };
        Ok(fio::floor(&self.files.paths, rw, block, bytes, DATA_START, self.files.room())?.cpu)
    }

    fn measure(&self, program: Option<&PathBuf>) -> Result<BTreeMap<&'static str, Phase>, String> {
        let mut phases: BTreeMap<&'static str, Phase> = BTreeMap::new();
        let gib = self.bytes() as f64 / GIB;
        self.ours()?;
        for _ in 0..self.args.reps.max(1) {
            let ours = self.ours()?;
            let peers = match program {
                Some(program) => peer::run(program, &self.peer_job())?,
                None => Vec::new(),
            };
            for (name, turn) in ours {
                let floor = self.floor(name, turn.moved)? / gib;
                let phase = phases.entry(name).or_default();
                phase.ours.push(turn.cost.cpu / gib);
                phase.rate.push(self.bytes() as f64 / 1e6 / turn.cost.seconds);
                phase.floor.push(floor);
                phase.overhead.push(turn.cost.cpu / gib - floor);
                if let Some(row) = peers.iter().find(|row| row.phase == name) {
                    let cpu = row.cost.cpu * PEER_CPU_FACTOR / gib;
                    phase.peer.push(cpu);
                    phase.peer_overhead.push(cpu - floor);
                }
            }
        }
        Ok(phases)
    }

    fn peer_job(&self) -> PeerJob<'_> {
        PeerJob {
            layout: self.layout,
            folder: &self.args.dir,
            vdev_bytes: self.files.bytes,
            bytes: self.bytes(),
            record: self.record,
            io: 1 << 20,
            checksum: &self.args.checksum,
            compression: &self.args.compression,
            jobs: 1,
            seconds: 1,
            phases: "swrite,swarm,scold,scrub",
        }
    }

    fn report(&self, phases: &BTreeMap<&'static str, Phase>, verdicts: &mut Verdicts) {
        let bound = if self.record < SMALL_RECORD { 0.7 } else { 0.9 };
        let block = self.layout.device_io_bytes(self.record as u64) >> 10;
        println!(
            "\n{}, {} KiB records, {} MiB; floor in I/Os of {block} KiB; bound {bound}",
            self.layout,
            self.record >> 10,
            self.args.size_mib
        );
        println!(
            "{:<15} {:>7} {:>17} {:>8} {:>15} | {:>9} {:>9} {:>6}",
            "phase", "MB/s", "cpu s/GiB ±%", "floor", "peer×0.9 ±%", "overhead", "peer's", "ratio"
        );
        for (key, title) in PHASES {
            let Some(phase) = phases.get(key) else { continue };
            let (ours, floor) = (&phase.ours, &phase.floor);
            print!(
                "{title:<15} {:>7.0} {:>11.3} {:>4.0}% {:>8.3}",
                phase.rate.median(),
                ours.median(),
                ours.spread_percent(),
                floor.median()
            );
            let overhead = phase.overhead.median();
            if phase.peer.count() == 0 {
                println!(" {:>15} | {overhead:>9.3} {:>9} {:>6}", "-", "-", "-");
                continue;
            }
            let (peer, theirs) = (&phase.peer, phase.peer_overhead.median());
            let verdict = verdicts.judge(overhead <= bound * theirs);
            println!(
                " {:>9.3} {:>4.0}% | {overhead:>9.3} {theirs:>9.3} {:>6.2} {verdict}",
                peer.median(),
                peer.spread_percent(),
                overhead / theirs
            );
        }
    }
}

/// One thread that writes or reads `bytes` in pieces of 1 MiB over the files.
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

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    if args.floor == FloorKind::Fio {
        fio::require()?;
    }
    let program = if args.alone { None } else { peer::find_or_say(args.peer.as_deref()) };
    println!("{}", Machine::describe().header());
    println!(
        "{}, compression {}; medians of {} interleaved turns; ±% is the spread (largest − smallest)",
        args.checksum, args.compression, args.reps
    );
    let data = pattern(64 << 20);
    for &layout in &args.layout {
        if args.size_mib * 100 > args.vdev_mib * layout.devices as u64 * FILL_PERCENT_MAX {
            return Err("the object does not fit: make the vdevs larger (--vdev-mib)".to_string());
        }
        let files = VdevFiles::create(&args.dir, layout.devices, args.vdev_mib << 20)?;
        if !fio::is_tmpfs(&args.dir) {
            eprintln!("{} is not on tmpfs: the figures are about the file system below", args.dir.display());
        }
        for &record in &args.record_kib {
            let setup = Setup { args, layout, record: record << 10, files: &files, data: &data };
            let phases = setup.measure(program.as_ref())?;
            setup.report(&phases, verdicts);
        }
    }
    if machine::load() > 1.5 * args.threads.max(1) as f64 {
        println!("\nload is {:.1}: others used the processors during the run", machine::load());
    }
    Ok(())
}

/// Runs the measurement and prints tables; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    let mut verdicts = Verdicts::default();
    match measure_all(args, &mut verdicts) {
        Ok(()) => verdicts.exit_code(),
        Err(error) => {
            eprintln!("zbench engine: {error}");
            ExitCode::FAILURE
        }
    }
}
