//! `zbench matrix`: every layer × number of devices × request size × pattern × mode × streams, on the same devices in one run.
//!
//! Within a group of cells the layers take turns, so that a machine that slows down slows all of them; a row is the median of the
//! turns with its spread. The raw devices under fio, in the same turn, are what percentages refer to. A figure that a layer does not
//! give is "-".

pub mod cell;
mod library;
mod mount;
pub mod raw;

pub use library::{Library, percentiles};
pub use mount::Mount;

use crate::devices::{self, DeviceKind, DeviceSet};
use crate::files::DATA_START;
use crate::fio;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::measure::{PEER_CPU_FACTOR, text};
use crate::peer::{self, PeerJob, PeerRow};
use crate::report::{self, Contents};
use cell::{Collected, Group, Layer, Measured, Mode, Pattern, Row, Task, name_of, size_name};
use clap::Args as ClapArgs;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Budget of every cache, as a part of the data and in bytes at least.
const ARC_PART: u64 = 8;
const ARC_MIN: u64 = 64 << 20;
/// Bytes of the files when nothing caps the devices.
const UNCAPPED_BYTES: u64 = 384 << 20;
/// Bytes that a fresh pool is warmed up with, at most: more than all buffers that stay in use together.
const WARM_UP_BYTES: u64 = 1 << 30;
/// Seconds of a run in the estimate that are its fixed cost: making pools, importing, fio's start.
const OVERHEAD_SECONDS: f64 = 0.7;

/// What to measure.
#[derive(ClapArgs, Clone, Debug)]
pub struct Args {
    /// Layers
    #[arg(long, value_enum, value_delimiter = ',', default_value = "raw,library,fuse,peer")]
    layers: Vec<Layer>,
    /// What the devices are; the peer runs on files only
    #[arg(long, value_enum, default_value_t = DeviceKind::Files)]
    devices_are: DeviceKind,
    /// Numbers of devices
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,12,24")]
    devices: Vec<usize>,
    /// How the pool combines them: stripe, mirror, raidz1, raidz2, raidz3
    #[arg(long, default_value = "stripe")]
    layout: String,
    /// Sizes of requests and records, in KiB
    #[arg(long, value_delimiter = ',', default_value = "32,128,1024")]
    size_kib: Vec<u64>,
    /// Patterns
    #[arg(long, value_enum, value_delimiter = ',', default_value = "write,read,random")]
    patterns: Vec<Pattern>,
    /// Modes
    #[arg(long, value_enum, value_delimiter = ',', default_value = "buffered,direct")]
    modes: Vec<Mode>,
    /// Streams, each on its own file
    #[arg(long, value_delimiter = ',', default_value = "4")]
    jobs: Vec<usize>,
    /// Requests in flight together in direct mode
    #[arg(long, default_value_t = 16)]
    in_flight: usize,
    /// Cap of each loop device, 10⁶ bytes per second
    #[arg(long, default_value_t = 50)]
    cap_mb: u64,
    /// Seconds of each run at the devices' cap
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Turns; medians count
    #[arg(long, default_value_t = 2)]
    reps: usize,
    /// Worker threads of the library
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Directory below which the files lie; use tmpfs
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Minutes that the whole may take: later groups get a single turn when it would take longer
    #[arg(long)]
    minutes: Option<f64>,
    /// A small matrix of about two minutes
    #[arg(long)]
    quick: bool,
    /// List what would be measured, and stop
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Append rows as JSON lines to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a report with plots to this file
    #[arg(long)]
    html: Option<PathBuf>,
    /// The zpbench program
    #[arg(long)]
    peer: Option<PathBuf>,
}

/// Budget of the caches in bytes: a part of the data, so that buffered reads are mostly of the devices.
fn arc_bytes(group: &Group) -> u64 {
    (group.bytes / ARC_PART).max(ARC_MIN)
}

/// Write that a pool of the group begins its life with. What happens once in the life of a process, such as faulting its memory in,
/// happens there and is not measured.
fn warm_up(group: &Group) -> (Group, Task) {
    (Group { bytes: group.bytes.min(WARM_UP_BYTES), ..*group }, Task { pattern: Pattern::Write, mode: Mode::Buffered })
}

impl Args {
    fn apply_quick(&mut self) {
        if self.quick {
            self.devices = vec![1, 4];
            self.size_kib = vec![128, 1024];
            self.seconds = 0.4;
            self.reps = 1;
        }
    }

    fn cap(&self) -> Option<u64> {
        (self.devices_are == DeviceKind::Loops).then_some(self.cap_mb * 1_000_000)
    }

    fn groups(&self) -> Result<Vec<Group>, String> {
        let mut groups = Vec::new();
        for &devices in &self.devices {
            let layout: Layout = format!("{}:{devices}", self.layout).parse()?;
            for &kib in &self.size_kib {
                for &jobs in &self.jobs {
                    let (size, jobs) = (kib << 10, jobs.max(1));
                    let capped = self.cap().map(|cap| (cap as f64 * devices as f64 * self.seconds) as u64);
                    let step = size * jobs as u64;
                    let bytes = capped.unwrap_or(UNCAPPED_BYTES).next_multiple_of(step);
                    groups.push(Group { layout, size, jobs, bytes, in_flight: self.in_flight, seconds: self.seconds });
                }
            }
        }
        Ok(groups)
    }

    fn tasks(&self) -> Vec<Task> {
        // Files must exist before they are read, so writes come first.
        let (mut patterns, mut modes) = (self.patterns.clone(), self.modes.clone());
        patterns.sort_unstable();
        modes.sort_unstable();
        patterns.iter().flat_map(|&pattern| modes.iter().map(move |&mode| Task { pattern, mode })).collect()
    }

    /// Bytes of each device: room for the largest group's data, old files that still wait to be freed, and labels.
    fn device_bytes(&self, groups: &[Group]) -> u64 {
        let data = groups.iter().map(|group| group.bytes.div_ceil(group.layout.data_devices() as u64)).max().unwrap_or(0);
        (data * 9 / 4 + 2 * DATA_START + (48 << 20)).next_multiple_of(1 << 20)
    }
}

/// Matrix as it is worked off.
struct Work<'a> {
    args: &'a Args,
    devices: &'a DeviceSet,
    peer: Option<PathBuf>,
    tasks: Vec<Task>,
    collected: BTreeMap<(Layer, Task), Collected>,
    done: usize,
    total: usize,
    began: Instant,
}

impl Work<'_> {
    /// True when the whole would take longer than it may, at the pace so far.
    fn is_late(&self) -> bool {
        let projected = self.began.elapsed().as_secs_f64() / self.done.max(1) as f64 * self.total as f64;
        self.args.minutes.is_some_and(|minutes| projected > minutes * 60.0)
    }

    fn progress(&mut self, group: &Group, layer: Layer, task: Task, rate: Option<f64>) {
        self.done += 1;
        let elapsed = self.began.elapsed().as_secs_f64();
        let left = elapsed / self.done as f64 * (self.total - self.done.min(self.total)) as f64;
        let rate = rate.map_or_else(|| "not measured".to_string(), |rate| format!("{rate:.0} MB/s"));
        eprintln!(
            "[{}/{}, {:.0}:{:02.0} left] {} {} {} {} {} x{}: {rate}",
            self.done,
            self.total,
            (left / 60.0).floor(),
            left % 60.0,
            name_of(layer),
            group.layout,
            size_name(group.size),
            name_of(task.pattern),
            name_of(task.mode),
            group.jobs
        );
    }

    /// Runs one turn of one layer: every task, in order.
    fn turn(&mut self, group: &Group, layer: Layer) -> Result<Vec<(Task, Measured)>, String> {
        let mut figures = Vec::new();
        let tasks = self.tasks.clone();
        let mut library =
            (layer == Layer::Library).then(|| library::Library::create(self.devices, group, self.args.threads)).transpose()?;
        let mut mount = (layer == Layer::Fuse).then(|| mount::Mount::create(self.devices, group)).transpose()?;
        let peers = if layer == Layer::Peer { self.peer_rows(group)? } else { BTreeMap::new() };
        for task in tasks {
            let measured = match (&mut library, &mut mount) {
                (Some(library), _) => Some(library.run(group, task)?),
                (_, Some(mount)) => Some(mount.run(group, task)?),
                _ if layer == Layer::Peer => peers.get(&task).copied(),
                _ => Some(raw::run(self.devices, group, task)?),
            };
            self.progress(group, layer, task, measured.map(|measured| measured.bytes as f64 / 1e6 / measured.seconds));
            figures.extend(measured.map(|measured| (task, measured)));
        }
        library.map_or(Ok(()), library::Library::end)?;
        mount.map_or(Ok(()), mount::Mount::end)?;
        Ok(figures)
    }

    fn peer_rows(&self, group: &Group) -> Result<BTreeMap<Task, Measured>, String> {
        let Some(program) = self.peer.as_ref() else { return Ok(BTreeMap::new()) };
        let mut all = BTreeMap::new();
        for mode in self.args.modes.iter().copied() {
            // The peer's calls wait: as many threads as requests are to be in flight.
            let jobs = if mode == Mode::Direct { group.in_flight.max(group.jobs) } else { group.jobs };
            let [write, read, random] = if mode == Mode::Direct { ["dwrite", "dread", "rrd"] } else { ["swrite", "scold", "rr"] };
            let random = format!("{random}:{}:{jobs}", group.size);
            let phases = format!("{write},{read},cold,{random}");
            let job = PeerJob {
                layout: group.layout,
                folder: &self.devices.folder,
                vdev_bytes: self.devices.bytes,
                bytes: group.bytes,
                record: group.size as usize,
                io: group.size as usize,
                checksum: "fletcher4",
                compression: "off",
                jobs,
                seconds: 1,
                arc_bytes: arc_bytes(group),
                phases: &phases,
            };
            let rows = peer::run(program, &job)?;
            for (pattern, name) in [(Pattern::Write, write), (Pattern::Read, read), (Pattern::Random, random.as_str())] {
                if let Some(row) = rows.iter().find(|row| row.phase == name) {
                    all.insert(Task { pattern, mode }, peer_figures(row));
                }
            }
        }
        Ok(all)
    }

    fn group(&mut self, group: &Group) -> Result<Vec<Row>, String> {
        self.collected.clear();
        let mut layers = self.args.layers.clone();
        layers.sort_unstable();
        for turn in 0..self.args.reps.max(1) {
            if turn > 0 && self.is_late() {
                self.done += self.tasks.len() * layers.len();
                continue;
            }
            let mut raw_rates = BTreeMap::new();
            for &layer in &layers {
                let figures = self.turn(group, layer)?;
                if layer == Layer::Raw {
                    // The devices' own aggregate is what they do with O_DIRECT and deep queues; modes are sorted, so that comes last.
                    let rate = |measured: &Measured| measured.bytes as f64 / 1e6 / measured.seconds.max(1e-9);
                    raw_rates.extend(figures.iter().map(|(task, measured)| (task.pattern, rate(measured))));
                }
                for (task, measured) in figures {
                    let share = if layer == Layer::Raw { 1.0 } else { group.layout.efficiency() };
                    let raw = raw_rates.get(&task.pattern).map(|rate| rate * share);
                    self.collected.entry((layer, task)).or_default().add(&measured, raw);
                }
            }
        }
        let kind = name_of(self.args.devices_are);
        Ok(self.collected.iter().map(|((layer, task), all)| all.row(group, *layer, *task, &kind, self.devices.cap)).collect())
    }
}

fn peer_figures(row: &PeerRow) -> Measured {
    Measured { bytes: row.bytes, seconds: row.cost.seconds, iops: row.iops, cpu: row.cost.cpu * PEER_CPU_FACTOR, ..Measured::default() }
}

fn measure_all(args: &Args) -> Result<(), String> {
    let (groups, tasks) = (args.groups()?, args.tasks());
    let mut layers = args.layers.clone();
    if args.devices_are == DeviceKind::Loops && layers.contains(&Layer::Peer) {
        eprintln!("the peer runs on files only: it is left out");
        layers.retain(|layer| *layer != Layer::Peer);
    }
    let total = groups.len() * tasks.len() * layers.len() * args.reps.max(1);
    let estimate = total as f64 * (args.seconds * 1.1 + OVERHEAD_SECONDS);
    eprintln!(
        "{} groups × {} tasks × {} layers × {} turns = {total} runs, about {:.0} minutes; {} devices of {} MiB",
        groups.len(),
        tasks.len(),
        layers.len(),
        args.reps,
        (estimate / 60.0).ceil(),
        args.devices.iter().max().unwrap_or(&0),
        args.device_bytes(&groups) >> 20
    );
    if args.dry_run {
        for group in &groups {
            for task in &tasks {
                let size = size_name(group.size);
                let layers: Vec<String> = layers.iter().copied().map(name_of).collect();
                println!("{} {size} {} {} x{}: {}", group.layout, name_of(task.pattern), name_of(task.mode), group.jobs, layers.join(" "));
            }
        }
        return Ok(());
    }
    fio::require()?;
    devices::remove_stale(&args.dir);
    let machine = Machine::describe();
    let peer = if layers.contains(&Layer::Peer) { peer::find_or_say(args.peer.as_deref()) } else { None };
    if peer.is_none() {
        layers.retain(|layer| *layer != Layer::Peer);
    }
    let count = args.devices.iter().copied().max().unwrap_or(1);
    let devices = DeviceSet::create(args.devices_are, &args.dir, count, args.device_bytes(&groups), args.cap())?;
    let total = groups.len() * tasks.len() * layers.len() * args.reps.max(1);
    let shown = Args { layers, ..args.clone() };
    let mut work = Work { args: &shown, devices: &devices, peer, tasks, collected: BTreeMap::new(), done: 0, total, began: Instant::now() };
    println!("{}\n{}", machine.header(), cell::heading());
    let mut rows = Vec::new();
    for group in &groups {
        for row in work.group(group)? {
            println!("{}", row.line());
            rows.push(row);
        }
    }
    save(args, &machine, &rows)
}

fn save(args: &Args, machine: &Machine, rows: &[Row]) -> Result<(), String> {
    if let Some(path) = &args.json {
        let mut file = std::fs::File::options().create(true).append(true).open(path).map_err(text)?;
        writeln!(file, "{}", serde_json::json!({ "machine": machine, "command": report::command_line() })).map_err(text)?;
        for row in rows {
            writeln!(file, "{}", serde_json::to_string(row).map_err(text)?).map_err(text)?;
        }
    }
    match &args.html {
        Some(path) => report::write(path, machine, &report::command_line(), &Contents { rows, ..Contents::default() }),
        None => Ok(()),
    }
}

/// Runs the measurement and prints a table.
pub fn run(args: &Args) -> ExitCode {
    let mut args = args.clone();
    args.apply_quick();
    match measure_all(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zbench matrix: {error}");
            ExitCode::FAILURE
        }
    }
}
