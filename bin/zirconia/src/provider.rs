//! `zirconia provider`: which accelerators there are, what they can do, whether they do it right, and how fast.
//!
//! `test` and `bench` run in this process, on a provider of their own: a library can be tried before the daemon has it.

use abd::{Abd, AbdPart};
use clap::Subcommand;
use cli::Client;
use control_api::{DisabledCapability, ErrorKind, Failure, ProviderLoad, ProviderReport, ProviderUnload, Request, Response};
use dpusm::{Compress, Device, Feature, Graph, OpError, Provider, RaidContext, RegisterOptions, Registry, Report, ReportFn, Shapes, View};
use exec::Exec;
use ondisk::Compression;
use provider_cuda::{Cuda, CudaOptions};
use provider_process::{Hosted, HostedOptions};
use provider_software::{Software, SoftwareOptions};
use provider_target::{Address, Location, TargetProvider};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which one operation is measured.
const BENCH_TIME: Duration = Duration::from_millis(200);
/// Nanoseconds that one graph may take.
const DEADLINE_NS: u64 = 60_000_000_000;
/// Time that a library may take to be loaded, and for each answer.
const LIBRARY_DEADLINE: Duration = Duration::from_secs(10);
/// Providers that are no files.
const BUILT_IN: [&str; 4] = [SOFTWARE, provider_cuda::NAME, "sim", "faulty"];
/// Provider that is always there, and loaded only to be trusted again.
const SOFTWARE: &str = "software";
/// Number of data columns of the row that is measured.
const DATA_COLUMNS: usize = 8;

/// What can be done with providers.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The registered providers: state, pools that use them, what they can do.
    List {
        /// Names and states only, separated by tabs, for scripts.
        #[arg(short = 'H')]
        scripted: bool,
    },
    /// Everything about one: capabilities, those that were switched off and why, counters.
    Info {
        /// Its name.
        name: String,
    },
    /// Load a provider: a shared object (include/zirconia/provider.h), a target (zirconia-target(8)), cuda, or one to rehearse with (sim, faulty); it is
    /// loaded again after restarts.
    Load {
        /// Put it in the place of the provider of the same name, also while pools use it.
        #[arg(short = 'r')]
        replace: bool,
        /// What a target is to be called; the default is target.
        #[arg(short = 'n', value_name = "name")]
        name: Option<String>,
        /// The shared object; tcp:HOST:PORT?secret-file=FILE or unix:PATH?secret-file=FILE for a target, the latter with
        /// &shared-memory=off behind it to have all data go through the socket; cuda for the first GPU of NVIDIA; sim for a model of an accelerator;
        /// faulty?OPERATION=MANNER&after=NUMBER for one that fails.
        path: String,
    },
    /// Let a provider go, and forget where it came from.
    Unload {
        /// Also while pools use it: they go on in software.
        #[arg(short = 'f')]
        force: bool,
        /// Its name.
        name: String,
    },
    /// Compare every capability of a provider with software, apart from the daemon.
    Test {
        /// Compare that many operations of random sizes, places, contents and rows too.
        #[arg(long, value_name = "number", default_value_t = 0)]
        shapes: u64,
        /// Where the random shapes begin.
        #[arg(long, value_name = "number", default_value_t = 1)]
        seed: u64,
        /// Largest operand of the random shapes, in KiB.
        #[arg(long, value_name = "number", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16384))]
        kib: u32,
        /// Random shapes that are in flight at a time.
        #[arg(long, value_name = "number", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
        at_once: u32,
        /// A shared object, a target or cuda as for load, or the name of a registered provider.
        provider: String,
    },
    /// Measure every capability of a provider on data in its memory: one block of 1 MiB at a time, or as many at once as is said.
    Bench {
        /// Bytes of a block, in KiB.
        #[arg(long, value_name = "number", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(8..=16384))]
        kib: u32,
        /// Blocks that are in flight at a time.
        #[arg(long, value_name = "number", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
        at_once: u32,
        /// Only the capabilities whose name has this in it.
        #[arg(long, value_name = "text")]
        only: Option<String>,
        /// A shared object, a target or cuda as for load, or the name of a registered provider.
        provider: String,
    },
}

pub(crate) fn run(verb: &Verb) -> Result<u8, Failure> {
    match verb {
        Verb::List { scripted } => list(*scripted),
        Verb::Info { name } => {
            info(&registered(name)?);
            Ok(0)
        }
        Verb::Load { replace, name, path } => load(path, name.as_deref(), *replace),
        Verb::Unload { force, name } => {
            let request = Request::ProviderUnload(ProviderUnload { name: name.clone(), force: *force });
            Client::from_environment()?.call(&request).map(|_| 0)
        }
        Verb::Test { shapes, seed, kib, at_once, provider } => {
            let (bytes_max, batch) = ((*kib as usize) << 10, *at_once as usize);
            test(provider, &Shapes { seed: *seed, count: *shapes, bytes_max, batch, ..Shapes::default() })
        }
        Verb::Bench { kib, at_once, only, provider } => {
            bench(provider, only.as_deref().unwrap_or_default(), (*kib as usize) << 10, *at_once as usize)
        }
    }
}

fn reports() -> Result<Vec<ProviderReport>, Failure> {
    match Client::from_environment()?.call(&Request::ProviderList)? {
        Response::Providers(reports) => Ok(reports),
        other => Err(cli::unexpected("cannot ask for providers", other)),
    }
}

fn registered(name: &str) -> Result<ProviderReport, Failure> {
    let unknown = || Failure::new(ErrorKind::NotFound, format!("no provider is called '{name}'"), "it is not registered");
    let advice = "'zirconia provider list' shows those that are; 'zirconia provider load PATH' (or cuda) adds one";
    reports()?.into_iter().find(|report| report.name == name).ok_or_else(|| unknown().advise(advice))
}

fn list(scripted: bool) -> Result<u8, Failure> {
    let reports = reports()?;
    if scripted {
        for report in &reports {
            cli::outln!("{}\t{}\t{}\t{}", report.name, report.state, report.sessions, report.capabilities.len());
        }
        return Ok(0);
    }
    cli::outln!("{:<20} {:<10} {:>5} {:>12} {:>8}  FROM", "NAME", "STATE", "POOLS", "CAPABILITIES", "DISABLED");
    for report in &reports {
        let (name, path) = (&report.name, report.path.as_deref().unwrap_or("(built in)"));
        let (state, sessions) = (&report.state, report.sessions);
        cli::outln!("{name:<20} {state:<10} {sessions:>5} {:>12} {:>8}  {path}", report.capabilities.len(), report.disabled.len());
    }
    Ok(0)
}

fn info(report: &ProviderReport) {
    cli::outln!("name:         {}", report.name);
    cli::outln!("version:      {}", report.version);
    cli::outln!("from:         {}", report.path.as_deref().unwrap_or("(built in)"));
    cli::outln!("state:        {} (generation {})", report.state, report.generation);
    report.problem.iter().for_each(|problem| cli::outln!("problem:      {problem}"));
    cli::outln!("used by:      {} pools, {} handles", report.sessions, report.live_handles);
    cli::outln!("capabilities: {}", report.capabilities.join(", "));
    for disabled in &report.disabled {
        cli::outln!("disabled:     {}: {}", disabled.capability, disabled.reason);
    }
    for (capability, speeds) in &report.measured {
        cli::outln!("measured:     {capability}: {speeds}");
    }
    for (name, count) in &report.counters {
        cli::outln!("counter:      {name} {count}");
    }
}

/// Path or location that the daemon, in a folder of its own, is to open: paths as they are from everywhere.
fn absolute(path: &str) -> Result<String, Failure> {
    let what = || format!("cannot load a provider from '{path}'");
    let failed = |error: &dyn std::fmt::Display| Failure::new(ErrorKind::Invalid, what(), error.to_string());
    let missing = |error: &dyn std::fmt::Display| Failure::new(ErrorKind::NotFound, what(), error.to_string());
    if BUILT_IN.contains(&path.split('?').next().unwrap_or(path)) {
        return Ok(path.to_string());
    }
    if !Location::is_meant(path) {
        let path = std::fs::canonicalize(path).map_err(|error| missing(&error))?;
        return Ok(path.to_string_lossy().into_owned());
    }
    let mut location: Location = path.parse().map_err(|error| failed(&error))?;
    let secret = &location.secret_file;
    location.secret_file = std::fs::canonicalize(secret).map_err(|error| missing(&format!("{}: {error}", secret.display())))?;
    if let Address::Unix(socket) = &mut location.address {
        *socket = std::path::absolute(&*socket).map_err(|error| missing(&error))?;
    }
    Ok(location.to_string())
}

fn load(path: &str, name: Option<&str>, replace: bool) -> Result<u8, Failure> {
    let request = Request::ProviderLoad(ProviderLoad { path: absolute(path)?, name: name.map(str::to_string), replace });
    let client = Client::from_environment()?;
    let what = format!("'{path}' is opened, and each of its operations tested and timed; see {}", client.state().log().display());
    match cli::patiently(&what, || client.call(&request))? {
        Response::Providers(reports) => reports.iter().for_each(|report| {
            info(report);
            let off = |one: &DisabledCapability| cli::errln!("provider '{}' does not do {}: {}", report.name, one.capability, one.reason);
            report.disabled.iter().for_each(off);
        }),
        other => return Err(cli::unexpected("cannot load a provider", other)),
    }
    Ok(0)
}

/// Provider, and its process if it has one.
type Own = (Arc<dyn Provider>, Option<Arc<Hosted>>);

/// Makes a provider for this process alone; libraries run in one of their own.
fn own(exec: &Exec, name: &str) -> Result<Own, Failure> {
    if name == SOFTWARE {
        return Ok((Software::new(exec, SoftwareOptions::default()), None));
    }
    if name == provider_cuda::NAME {
        let failed = |error: provider_cuda::Unavailable| {
            Failure::new(ErrorKind::Invalid, "cannot use provider 'cuda'", error.to_string()).advise(error.advice())
        };
        return Ok((Cuda::open(exec, &CudaOptions::from_environment()).map_err(failed)?, None));
    }
    let path =
        if Location::is_meant(name) || Path::new(name).exists() { name.to_string() } else { registered(name)?.path.unwrap_or_default() };
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(ErrorKind::Invalid, format!("cannot load a provider from '{path}'"), error.to_string())
    };
    if !Location::is_meant(&path) {
        // Its process stands elsewhere.
        let library = std::path::absolute(&path).map_err(|error| failed(&error))?;
        let say = |line: &str| cli::errln!("{line}");
        let options = HostedOptions { program: provider_process::program(), library, deadline: LIBRARY_DEADLINE, say };
        let provider = Hosted::start(exec, &options).map_err(|error| failed(&error))?;
        return Ok((provider.clone(), Some(provider)));
    }
    let location: Location = path.parse().map_err(|error| failed(&error))?;
    let name = if Location::is_meant(name) { "target" } else { name };
    let options = location.options(name).map_err(|error| failed(&format!("{}: {error}", location.secret_file.display())))?;
    let provider = TargetProvider::connect(exec, &options).map_err(|error| failed(&error))?;
    Ok((provider, None))
}

/// Registers a provider of this process, which tests it; returns it with why its process has ended, if it has.
fn tested(name: &str) -> Result<(Exec, Device, Option<String>), Failure> {
    let threads = exec::Pool::start(std::thread::available_parallelism().map_or(2, usize::from), 0);
    let threads = threads.map_err(|error| Failure::new(ErrorKind::Io, format!("provider '{name}' cannot be tested"), error.to_string()))?;
    let exec: Exec = Arc::new(threads);
    let (provider, hosted) = cli::patiently(&format!("'{name}' is opened"), || own(&exec, name))?;
    let test_deadline_ns = LIBRARY_DEADLINE.as_nanos() as u64;
    let options = RegisterOptions { scratch: Some(std::env::temp_dir()), test_deadline_ns, ..RegisterOptions::default() };
    let registry = Registry::new(&exec);
    let outcome = cli::patiently(&format!("the operations of '{name}' are tested"), || registry.register(provider, &options));
    let problem = hosted.and_then(|hosted| hosted.why_ended());
    let failed = |error: dpusm::RegistryError| {
        let why = problem.clone().map_or_else(|| error.to_string(), |problem| format!("{problem} ({error})"));
        Failure::new(ErrorKind::Invalid, format!("provider '{name}' fails"), why)
    };
    let device = outcome.map_err(failed)?;
    Ok((exec, device, problem))
}

fn test(name: &str, shapes: &Shapes) -> Result<u8, Failure> {
    let (_exec, device, problem) = tested(name)?;
    for capability in &device.capabilities().list {
        cli::outln!("ok      {}", capability.feature);
    }
    for disabled in device.disabled() {
        cli::outln!("FAILED  {}: {}", disabled.capability.feature, disabled.fault);
    }
    problem.iter().for_each(|problem| cli::outln!("FAILED  {problem}"));
    let (right, wrong) = (device.capabilities().list.len(), device.disabled().len());
    cli::outln!("{} {}: {right} capabilities agree with software, {wrong} do not", device.name(), device.version());
    let agree = shapes.count == 0 || test_shapes(&device, shapes);
    Ok(u8::from(wrong > 0 || problem.is_some() || !agree))
}

/// Tries random shapes; true when all agree with software.
fn test_shapes(device: &Device, shapes: &Shapes) -> bool {
    let begun = Instant::now();
    match dpusm::random_shapes(device, shapes) {
        Ok(tried) => {
            tried.iter().for_each(|(feature, count)| cli::outln!("ok      {feature}: {count} random shapes"));
            cli::outln!("{} random shapes agree with software ({:.1} s)", shapes.count, begun.elapsed().as_secs_f64());
            true
        }
        Err(fault) => {
            cli::outln!("FAILED  {fault} (seed {})", shapes.seed);
            false
        }
    }
}

fn bench(name: &str, only: &str, bytes: usize, at_once: usize) -> Result<u8, Failure> {
    let (exec, device, _) = tested(name)?;
    let heading = format!("OPERATION ({at_once} x {} KiB)", bytes >> 10);
    cli::outln!("{heading:<40} {:>10} {:>12}", "MB/S", "µS EACH");
    let data = sample(bytes);
    let wanted = |feature: &&Feature| feature.to_string().contains(only);
    for feature in device.capabilities().list.iter().map(|capability| &capability.feature).filter(wanted) {
        match measure(&exec, &device, feature, &data, at_once) {
            Ok(None) => {}
            Ok(Some(each)) => {
                let seconds = each.as_secs_f64();
                cli::outln!("{:<40} {:>10.0} {:>12.1}", feature.to_string(), bytes as f64 / 1e6 / seconds, seconds * 1e6);
            }
            Err(error) => cli::outln!("{:<40} {error}", feature.to_string()),
        }
    }
    Ok(0)
}

/// Block that compresses to about a third.
fn sample(bytes: usize) -> Abd {
    let mut random = exec::SplitMix::new(1);
    let byte = |at: usize, noise: u8| if at % 8 < 2 { noise } else { b'a' + (at % 8) as u8 };
    Abd::from_slice(&(0..bytes).map(|at| byte(at, random.next_u64() as u8)).collect::<Vec<u8>>())
}

/// One of the blocks in flight, in the provider's memory, with what its operation needs besides.
struct Block {
    source: View,
    target: View,
    row: Option<RaidContext>,
    packed: Option<View>,
}

impl Block {
    fn new(device: &Device, feature: &Feature, data: &Abd) -> Result<Block, OpError> {
        let (source, target) = (device.alloc(data.len())?.whole(), device.alloc(data.len())?.whole());
        let mut fill = Graph::new();
        fill.copy_in(data, &source);
        run_graph(device, fill)?;
        let row = match feature {
            Feature::RaidGenerate { parity, .. } | Feature::RaidReconstruct { parity, .. } => {
                Some(row(device, &source, usize::from(*parity))?)
            }
            _ => None,
        };
        let packed = match feature {
            Feature::Decompress { kind } => packed(device, *kind, data)?,
            _ => None,
        };
        Ok(Block { source, target, row, packed })
    }
}

/// Time of one operation when so many are in flight; None for those that are not about blocks in memory.
fn measure(exec: &Exec, device: &Device, feature: &Feature, data: &Abd, at_once: usize) -> Result<Option<Duration>, OpError> {
    let blocks = (0..at_once).map(|_| Block::new(device, feature, data)).collect::<Result<Vec<_>, _>>()?;
    let (begun, mut count) = (Instant::now(), 0u32);
    while begun.elapsed() < BENCH_TIME {
        let (mut graphs, mut waiting) = (Vec::with_capacity(at_once), Vec::with_capacity(at_once));
        for block in &blocks {
            let mut graph = Graph::new();
            if !add(&mut graph, feature, data, block) {
                return Ok(None);
            }
            let (completer, completion) = exec::completion::<Report>();
            let done: ReportFn = Box::new(move |report| completer.complete(report));
            graphs.push((graph, done));
            waiting.push(completion);
        }
        for (outcome, completion) in device.submit_all(graphs, DEADLINE_NS).into_iter().zip(waiting) {
            outcome.map_err(|refused| refused.error)?;
            completion.wait(exec).all()?;
            count += 1;
        }
    }
    Ok(Some(begun.elapsed() / count.max(1)))
}

fn run_graph(device: &Device, graph: Graph) -> Result<(), OpError> {
    device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?.all()
}

fn row(device: &Device, source: &View, parity: usize) -> Result<RaidContext, OpError> {
    let bytes = source.len() / DATA_COLUMNS;
    let data = (0..DATA_COLUMNS).map(|column| source.slice(column * bytes..(column + 1) * bytes)).collect::<Result<Vec<_>, _>>()?;
    let parity = (0..parity).map(|_| Ok(device.alloc(bytes)?.whole())).collect::<Result<Vec<_>, OpError>>()?;
    RaidContext::new(parity, data)
}

/// Compresses the block in the provider's memory.
fn packed(device: &Device, kind: Compression, data: &Abd) -> Result<Option<View>, OpError> {
    let data = data.to_contiguous();
    let mut out = AbdPart::scratch(data.len());
    let level = if kind == Compression::ZSTD { 3 } else { 0 };
    let Some(length) = data.as_contiguous().and_then(|bytes| kernels::compress(kind, level, bytes, &mut out)) else { return Ok(None) };
    let bytes = out.freeze().slice(0..length);
    let view = device.alloc(length)?.whole();
    let mut graph = Graph::new();
    graph.copy_in(&bytes, &view);
    run_graph(device, graph)?;
    Ok(Some(view))
}

/// Adds the operation of a feature; false when there is none to measure.
fn add(graph: &mut Graph, feature: &Feature, data: &Abd, block: &Block) -> bool {
    let Block { source, target, row, packed } = block;
    match feature {
        Feature::CopyIn { .. } => {
            graph.copy_in(data, target);
        }
        Feature::CopyOut { .. } => {
            graph.copy_out(source, vec![AbdPart::scratch(data.len())]);
        }
        Feature::ZeroFill => {
            graph.zero_fill(target);
        }
        Feature::ZeroTest => {
            graph.zero_test(source);
        }
        Feature::Compare => {
            graph.compare(source, target);
        }
        Feature::Compress { kind, level_min, .. } => {
            let limit_bytes = data.len() - data.len() / 8;
            graph.compress(source, target, Compress { kind: *kind, level: *level_min, limit_bytes, round_to_bytes: 512 });
        }
        Feature::Decompress { kind } => {
            let Some(packed) = packed else { return false };
            graph.decompress(packed, target, *kind);
        }
        Feature::Checksum { kind, order } => {
            graph.checksum(source, *kind, *order);
        }
        Feature::RaidGenerate { .. } => {
            let Some(row) = row else { return false };
            graph.raid_generate(row);
        }
        Feature::RaidReconstruct { parity, .. } => {
            let Some(row) = row else { return false };
            let parity = usize::from(*parity);
            graph.raid_reconstruct(row, &(parity..2 * parity).collect::<Vec<_>>());
        }
        Feature::Store { .. } | Feature::Load { .. } => return false,
    }
    true
}
