//! `zbench zia`: the write pipeline on accelerators: software beside providers, with data that stays on the device and without.
//!
//! The demonstration of the Z.I.A. talk: raidz2 of twelve, records of 1 MiB, gzip, Fletcher-4, sixteen files that compress by a quarter, written
//! at the same time and directly, so that the cache is no part of it. The modelled accelerator ([`provider_sim`]) has to compute what a device would
//! compute; it says how much CPU that was, and what it remembers of earlier rounds it need not compute again. That CPU is taken off the host's and
//! shown beside it; throughput stays a lower bound, because it occupies the same cores. How much of the time the busiest part of the cards was in
//! use says what a row is bound by: near 100 % the cards, else the host. docs/bench/zia.md has figures.

use crate::files::{Pages, VdevFiles};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::measure::{GIB, Samples, Verdicts, measure, text};
use crate::pipeline::{self, Direction};
use crate::report::{self, Contents};
use crate::subject::{Config, Subject};
use abd::{Abd, AbdPart};
use clap::Args as ClapArgs;
use dpusm::{Compress, Graph, OpError, OpKind, RegisterOptions, Registry, Report, ReportFn, Tally};
use offload::{Accelerator, ZiaMode, ZiaPolicy};
use ondisk::ObjectId;
use provider_cuda::{Cuda, CudaOptions};
use provider_sim::{Rates, Sim, SimOptions};
use provider_software::{Software, SoftwareOptions};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Number of distinct records.
const RECORDS: usize = 64;
/// Ratio of the accelerator's throughput to software's, at least.
const FASTER: f64 = 8.0;
/// Ratio of host CPU per byte with the accelerator to software's, at most.
const CPU_SHARE: f64 = 0.15;
/// Ratio of throughput with data that stays to that of data copied at each stage, at least.
const STAYING: f64 = 2.0;

/// Time in which a GPU has to compress as many records as are in flight, in nanoseconds: it is not given any where it needs longer, since the measurement
/// would not end.
const GPU_LIMIT_NS: u64 = 1_000_000_000;

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Layout
    #[arg(long, default_value = "raidz2:12")]
    layout: Layout,
    /// Compression
    #[arg(long, default_value = "gzip")]
    compression: String,
    /// Checksum
    #[arg(long, default_value = "fletcher4")]
    checksum: String,
    /// Bytes of a record, in KiB
    #[arg(long, default_value_t = 1024)]
    record_kib: usize,
    /// Files
    #[arg(long, default_value_t = 16)]
    files: u64,
    /// Bytes of each file, in MiB; software alone and a GPU write a quarter of it
    #[arg(long, default_value_t = 64)]
    file_mib: u64,
    /// Modelled cards (U.2, PCIe Gen3 x4, 3 GB/s of compression each)
    #[arg(long, default_value_t = 1)]
    cards: usize,
    /// Percent of the blocks whose results are computed again by the host, as the pool property `zia_verify`
    #[arg(long, default_value_t = 1.0)]
    verify: f64,
    /// The first GPU of NVIDIA too; what it has no compression for, or a slow one, the host compresses
    #[arg(long)]
    cuda: bool,
    /// Requests in flight
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Turns; medians count
    #[arg(long, default_value_t = 3)]
    reps: usize,
    /// Directory for the vdev files; use tmpfs
    #[arg(long, default_value = "/dev/shm/zbench")]
    dir: PathBuf,
    /// Pages of the memory that the files lie in (default: huge where that is possible)
    #[arg(long, value_enum)]
    pages: Option<Pages>,
    /// Append the rows as JSON lines to this file, for `zbench report`
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a report with plots to this file
    #[arg(long)]
    html: Option<PathBuf>,
}

/// Figures of one way to do the work; medians over the turns.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Row {
    /// Setup: what was written, by layout, files, algorithms, cards.
    pub setup: String,
    /// Name of who did the work, and how.
    pub name: String,
    /// Rate in 10⁶ bytes of files per second.
    pub mb_per_second: f64,
    /// Spread of the rate in percent.
    pub spread_percent: f64,
    /// CPU seconds of the host per GiB, without the model's computing.
    pub host_cpu: f64,
    /// CPU seconds per GiB of computing what a device would have computed.
    pub model_cpu: f64,
    /// Ratio of bytes copied between buffers to bytes written.
    pub copies: f64,
    /// Ratio of bytes that crossed the link to bytes written.
    pub link: f64,
    /// Percent of the time that the busiest part of the modelled cards was in use.
    pub busy_percent: Option<f64>,
}

/// Doer of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Host,
    Provider(&'static str, ZiaMode),
}

/// Rows that [`Args::cuda`] adds.
const GPU_ROWS: [(&str, Who); 2] =
    [("GPU, per operation", Who::Provider("cuda", ZiaMode::PerOp)), ("GPU, Z.I.A.", Who::Provider("cuda", ZiaMode::Offload))];

const ROWS: [(&str, Who); 4] = [
    ("software, no provider", Who::Host),
    ("provider 'software', Z.I.A.", Who::Provider("software", ZiaMode::Offload)),
    ("modelled cards, per operation", Who::Provider("sim", ZiaMode::PerOp)),
    ("modelled cards, Z.I.A.", Who::Provider("sim", ZiaMode::Offload)),
];

#[derive(Default)]
struct Figures {
    mb_per_second: Samples,
    host_cpu: Samples,
    emulation_cpu: Samples,
    copies: Samples,
    link: Samples,
    busy: Samples,
}

impl Figures {
    fn row(&self, setup: &str, name: &str) -> Row {
        Row {
            setup: setup.to_string(),
            name: name.to_string(),
            mb_per_second: self.mb_per_second.median(),
            spread_percent: self.mb_per_second.spread_percent(),
            host_cpu: self.host_cpu.median(),
            model_cpu: self.emulation_cpu.median(),
            copies: self.copies.median(),
            link: self.link.median(),
            busy_percent: (self.busy.count() > 0).then(|| self.busy.median()),
        }
    }
}

struct Bench<'a> {
    args: &'a Args,
    subject: Subject,
    registry: Registry,
    sim: Arc<Sim>,
    objects: Vec<ObjectId>,
    data: Abd,
    /// True when the GPU compresses.
    gpu_compresses: bool,
}

/// Runs the measurement and prints the table; 2 when a bound was missed.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("zia", |verdicts| measure_all(args, verdicts))
}

/// Records of noise with a quarter of it replaced by runs.
fn data(record: usize) -> Abd {
    let mut random = exec::SplitMix::new(25);
    let bytes: Vec<u8> = (0..RECORDS * record).map(|at| if at % 256 < 192 { random.next_u64() as u8 } else { 0 }).collect();
    Abd::from_slice(&bytes)
}

fn prepare<'a>(args: &'a Args, files: &VdevFiles) -> Result<Bench<'a>, String> {
    let config = Config {
        layout: args.layout,
        devices: files.paths.clone(),
        record: args.record_kib << 10,
        checksum: args.checksum.clone(),
        compression: args.compression.clone(),
        threads: args.threads,
        arc_max: 64 << 20,
    };
    let subject = Subject::create(&config)?;
    let registry = Registry::new(subject.exec());
    // What is verified is the share that was asked for, from the first block on.
    let options = RegisterOptions { test_bytes_max: 16 << 10, proofs: 0, ..RegisterOptions::default() };
    let memo_bytes_max = (3 * RECORDS * config.record) as u64;
    let sim = Sim::new(subject.exec(), SimOptions { rates: Rates::noload_u2(args.cards), memo_bytes_max, ..SimOptions::new("sim") });
    registry.register(Software::new(subject.exec(), SoftwareOptions::default()), &options).map_err(text)?;
    registry.register(sim.clone(), &options).map_err(text)?;
    if args.cuda {
        let cuda = Cuda::open(subject.exec(), &CudaOptions::from_environment());
        let cuda = cuda.map_err(|error| format!("provider 'cuda': {error}; {}", error.advice()))?;
        println!("{}", dpusm::Provider::version(&*cuda));
        registry.register(cuda, &options).map_err(text)?;
    }
    let objects = (0..args.files).map(|_| subject.make_object()).collect::<Result<_, _>>()?;
    let mut bench = Bench { args, subject, registry, sim, objects, data: data(config.record), gpu_compresses: false };
    if args.cuda {
        bench.gpu_compresses = bench.can_gpu_compress()?;
    }
    Ok(bench)
}

impl Bench<'_> {
    /// Tries the compression on the GPU, with one record and then with as many as are in flight; false when there is none, or that takes too long.
    fn can_gpu_compress(&self) -> Result<bool, String> {
        let Some((kind, level)) = kernels::compress::from_property(&self.args.compression) else { return Ok(false) };
        let session = self.registry.get(provider_cuda::NAME).map_err(text)?;
        let device = session.device().map_err(text)?;
        if !device.capabilities().compresses(kind, level) {
            println!("the GPU has no {}: the host compresses", self.args.compression);
            return Ok(false);
        }
        for count in [1, self.args.depth.max(1)] {
            let begun = std::time::Instant::now();
            let tried = compress_records(&device, self.subject.exec(), &self.data, self.args.record_kib << 10, (kind, level), count);
            let took = begun.elapsed().as_secs_f64();
            if let Err(error) = tried {
                println!("{count} records of {}: {error} ({took:.1} s): the host compresses", self.args.compression);
                return Ok(false);
            }
            println!("the GPU compresses {count} records by {} in {took:.3} s", self.args.compression);
        }
        Ok(true)
    }

    /// Gives the work of the pool's stages to `who` from now on.
    fn choose(&self, who: Who) -> Result<(), String> {
        let Who::Provider(name, mode) = who else {
            self.subject.set_accelerator(None);
            return Ok(());
        };
        let policy = ZiaPolicy {
            compress: name != provider_cuda::NAME || self.gpu_compresses,
            checksum: true,
            raidz_gen: [true; 3],
            mode,
            verify_percent: self.args.verify,
            deadline_ns: 60_000_000_000,
            ..ZiaPolicy::default()
        };
        let session = self.registry.get(name).map_err(text)?;
        self.subject.set_accelerator(Some(Accelerator::new(session, policy)));
        Ok(())
    }

    /// Writes `bytes` of every file, all at the same time as the talk's writers do, and waits until it is on the devices.
    fn write(&self, bytes: u64) -> Result<u64, String> {
        let size = (self.args.record_kib << 10) as u64;
        let objects = self.objects.iter().map(|object| self.subject.object(*object)).collect::<Result<Vec<_>, _>>()?;
        let places = (0..bytes).step_by(size as usize).flat_map(|offset| objects.iter().map(move |object| (&**object, offset)));
        pipeline::run_over(&self.subject, Direction::Write, self.args.depth, size, &self.data, places)?;
        self.subject.sync()?;
        Ok(bytes * self.objects.len() as u64)
    }

    /// Bytes that crossed the link so far.
    fn link_bytes(&self, who: Who) -> u64 {
        let Who::Provider(name, _) = who else { return 0 };
        let moved = |kind| self.registry.get(name).map_or(0, |session| session.stats().get(kind, Tally::BytesIn));
        moved(OpKind::CopyIn) + moved(OpKind::CopyOut)
    }

    /// Nanoseconds that the cards worked so far, by operation.
    fn device_ns(&self, who: Who) -> Option<Vec<u64>> {
        let Who::Provider("sim", _) = who else { return None };
        let session = self.registry.get("sim").ok()?;
        Some(OpKind::ALL.iter().map(|kind| session.stats().get(*kind, Tally::DeviceNs)).collect())
    }

    fn turn(&self, who: Who, figures: &mut Figures) -> Result<(), String> {
        self.choose(who)?;
        let share = if matches!(who, Who::Provider("sim", _)) { 1 } else { 4 };
        let bytes = (self.args.file_mib << 20) / share;
        let (emulated, copied, link) = (self.sim.emulation_cpu_ns(), abd::memory_stats(), self.link_bytes(who));
        let device = self.device_ns(who);
        let (written, cost) = measure(|| self.write(bytes))?;
        let (written, copied) = (written as f64, abd::memory_stats().copied_bytes - copied.copied_bytes);
        let emulation = (self.sim.emulation_cpu_ns() - emulated) as f64 / 1e9;
        figures.mb_per_second.push(written / 1e6 / cost.seconds);
        figures.host_cpu.push((cost.cpu - emulation).max(0.0) * GIB / written);
        figures.emulation_cpu.push(emulation * GIB / written);
        figures.copies.push(copied as f64 / written);
        figures.link.push((self.link_bytes(who) - link) as f64 / written);
        if let (Some(before), Some(after)) = (device, self.device_ns(who)) {
            let most = before.iter().zip(after).map(|(before, after)| after - before).max().unwrap_or(0);
            figures.busy.push(most as f64 / 1e7 / cost.seconds / self.args.cards.max(1) as f64);
        }
        self.subject.settle()
    }
}

/// Compresses so many records on a device at once: an error when one fails, or all of it takes longer than [`GPU_LIMIT_NS`].
fn compress_records(
    device: &dpusm::Device,
    exec: &exec::Exec,
    data: &Abd,
    record: usize,
    (kind, level): (ondisk::Compression, u8),
    count: usize,
) -> Result<(), OpError> {
    let how = Compress { kind, level, limit_bytes: record - record / 8, round_to_bytes: 4096 };
    let (mut graphs, mut waiting) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for number in 0..count {
        let (source, target) = (device.alloc(record)?.whole(), device.alloc(record)?.whole());
        let mut graph = Graph::new();
        let at = number % RECORDS * record;
        graph.copy_in(&data.slice(at..at + record), &source);
        let packed = graph.compress(&source, &target, how);
        graph.copy_out(packed.result(), vec![AbdPart::scratch(record)]);
        let (completer, completion) = exec::completion::<Report>();
        let done: ReportFn = Box::new(move |report| completer.complete(report));
        graphs.push((graph, done));
        waiting.push(completion);
    }
    // All that were taken are waited for, whatever became of the others.
    let mut ended = Ok(());
    for (outcome, completion) in device.submit_all(graphs, GPU_LIMIT_NS).into_iter().zip(waiting) {
        let one = outcome.map_err(|refused| refused.error).and_then(|_| completion.wait(exec).all());
        ended = ended.and(one);
    }
    ended
}

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    let machine = Machine::describe();
    println!("{}", machine.header());
    let bytes = args.files * (args.file_mib << 20);
    let per_device = 3 * bytes / args.layout.data_devices().max(1) as u64 + (192 << 20);
    let _pages = Pages::provide(args.pages, true, &args.dir)?;
    let files = VdevFiles::create(&args.dir, args.layout.full_devices().max(args.layout.data_devices()), per_device)?;
    let bench = prepare(args, &files)?;
    let rows: Vec<(&str, Who)> = ROWS.iter().chain(GPU_ROWS.iter().filter(|_| args.cuda)).copied().collect();
    let mut figures: Vec<Figures> = rows.iter().map(|_| Figures::default()).collect();
    // What the model has to compute once, and the files' first blocks.
    bench.choose(ROWS[3].1)?;
    bench.write((RECORDS * (args.record_kib << 10)) as u64)?;
    for _ in 0..args.reps {
        for (row, figures) in rows.iter().zip(&mut figures) {
            bench.turn(row.1, figures)?;
        }
    }
    let setup = format!(
        "{}, {} files of {} MiB, records of {} KiB, {}, {}; {} modelled cards, {} % verified; medians of {} turns",
        args.layout, args.files, args.file_mib, args.record_kib, args.compression, args.checksum, args.cards, args.verify, args.reps
    );
    let rows: Vec<Row> = rows.iter().zip(&figures).map(|((name, _), figures)| figures.row(&setup, name)).collect();
    print(&rows, verdicts);
    save(args, &machine, &rows)?;
    bench.subject.export()
}

fn save(args: &Args, machine: &Machine, rows: &[Row]) -> Result<(), String> {
    if let Some(path) = &args.json {
        let mut file = std::fs::File::options().create(true).append(true).open(path).map_err(text)?;
        writeln!(file, "{}", serde_json::json!({ "machine": machine, "command": report::command_line() })).map_err(text)?;
        for row in rows {
            writeln!(file, "{}", serde_json::json!({ "zia": row })).map_err(text)?;
        }
    }
    match &args.html {
        Some(path) => report::write(path, machine, &report::command_line(), &Contents { zia: rows, ..Contents::default() }),
        None => Ok(()),
    }
}

fn print(rows: &[Row], verdicts: &mut Verdicts) {
    println!("{}\n", rows.first().map_or("", |row| &row.setup));
    println!(
        "{:<30} {:>8} {:>5} {:>12} {:>11} {:>12} {:>10} {:>12}",
        "", "MB/s", "±%", "host s/GiB", "model s/GiB", "copied/byte", "link/byte", "cards busy %"
    );
    for row in rows {
        let busy = row.busy_percent.map_or_else(|| "-".to_string(), |busy| format!("{busy:.0}"));
        println!(
            "{:<30} {:>8.0} {:>4.0}% {:>12.3} {:>11.3} {:>12.2} {:>10.2} {:>12}",
            row.name, row.mb_per_second, row.spread_percent, row.host_cpu, row.model_cpu, row.copies, row.link, busy
        );
    }
    let [host, _, per_op, zia, gpu @ ..] = rows else { return };
    let faster = zia.mb_per_second / host.mb_per_second;
    let share = zia.host_cpu / host.host_cpu;
    let staying = zia.mb_per_second / per_op.mb_per_second;
    if let [gpu_per_op, gpu_zia] = gpu {
        let (host, per_op, zia) = (host.mb_per_second, gpu_per_op.mb_per_second, gpu_zia.mb_per_second);
        println!("\nGPU: {:.1} × software's throughput, {:.2} × per operation", zia / host, zia / per_op);
    }
    println!("\nZ.I.A. ÷ software: {faster:.1} × the throughput (bound {FASTER}) {}", verdicts.judge(faster >= FASTER));
    println!("Z.I.A. ÷ software: {share:.3} × the host's CPU (bound {CPU_SHARE}) {}", verdicts.judge(share <= CPU_SHARE));
    println!("Z.I.A. ÷ per operation: {staying:.2} × the throughput (bound {STAYING}) {}", verdicts.judge(staying >= STAYING));
}
