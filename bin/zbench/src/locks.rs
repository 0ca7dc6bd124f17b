//! `zbench locks`: what part of the samples of a profile lies in locks, with several threads submitting direct I/O.
//!
//! `perf record` samples this process by CPU clock while threads read and write. Every symbol that takes a lock the slow way — the
//! engine's locks when they are contended, futexes, the kernel's own spinning — is listed with its share. The bound holds for each of
//! the engine's and for the kernel's; the sum over all engine locks is printed too, which bounds any single one from above.

use crate::files::{Scratch, VdevFiles, pattern};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::measure::{Verdicts, measure, text};
use crate::pipeline::{self, Direction};
use crate::subject::{Config, Subject};
use abd::Abd;
use clap::Args as ClapArgs;
use dmu::Dnode;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SHARE_MAX: f64 = 3.0;
/// Parts of the names of symbols that wait for or hand over locks: ours, then the kernel's.
const ENGINE: [&str; 4] = ["lock_slow", "lock_shared_slow", "lock_exclusive_slow", "lock_upgradable_slow"];
const KERNEL: [&str; 5] = ["queued_spin_lock_slowpath", "osq_lock", "rwsem_down", "mutex_spin", "mutex_lock_slowpath"];

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Layout
    #[arg(long, default_value = "raidz2:6")]
    layout: Layout,
    /// Directory for the vdev files; use tmpfs
    #[arg(long, default_value = "/dev/shm/zbench")]
    dir: PathBuf,
    /// Threads that submit
    #[arg(long, default_value_t = 4)]
    submitters: usize,
    /// Requests in flight of each
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Bytes of a request and of a record, in KiB
    #[arg(long, value_delimiter = ',', default_value = "128,16")]
    size_kib: Vec<u64>,
    /// Bytes of each object, in MiB
    #[arg(long, default_value_t = 64)]
    object_mib: u64,
    /// Seconds of each profile
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Worker threads
    #[arg(long, default_value_t = 4)]
    threads: usize,
}

struct Load<'a> {
    args: &'a Args,
    subject: &'a Subject,
    objects: Vec<Arc<Dnode>>,
    size: u64,
    data: &'a Abd,
}

impl Load<'_> {
    /// Runs all submitters at once until the deadline; returns the bytes moved.
    fn run(&self, direction: Direction) -> Result<u64, String> {
        let deadline = Instant::now() + Duration::from_secs_f64(self.args.seconds);
        let one = |index: usize, object: &Dnode| {
            let offsets = pipeline::random_offsets(self.size, self.args.object_mib << 20, index as u64 + 1, deadline);
            pipeline::run(self.subject, object, direction, self.args.depth, self.size, self.data, offsets).map(|stream| stream.bytes)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = self.objects.iter().enumerate().map(|(index, object)| scope.spawn(move || one(index, object))).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a submitter panicked".to_string())?).sum()
        })
    }
}

/// Runs `work`, which gives the bytes that it moved, under the profiler.
pub fn profile(scratch: &Scratch, work: impl FnOnce() -> Result<u64, String>) -> Result<Profile, String> {
    let data = scratch.path.join("perf.data");
    let mut perf = Command::new("perf")
        .args(["record", "--quiet", "--event=cpu-clock", "--freq=1997", "--pid", &std::process::id().to_string(), "--output"])
        .arg(&data)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("perf cannot be started ({error}): apt-get install linux-perf"))?;
    wait_attached(perf.id());
    let result = measure(work);
    crate::sys::interrupt(perf.id());
    let _ = perf.wait();
    let (bytes, cost) = result?;
    let report = Command::new("perf")
        .args(["report", "--stdio", "--no-children", "--sort=symbol", "--percent-limit=0.01", "--show-nr-samples", "--no-inline", "-i"])
        .arg(&data)
        .stdin(Stdio::null())
        .output()
        .map_err(text)?;
    let mut profile = parse(&String::from_utf8_lossy(&report.stdout));
    profile.rate = bytes as f64 / 1e6 / cost.seconds;
    if profile.samples == 0 { Err("perf recorded nothing".to_string()) } else { Ok(profile) }
}

/// True when the profiler is installed.
pub fn has_profiler() -> bool {
    Command::new("perf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Waits until the profiler has its events open, ten seconds at most.
fn wait_attached(perf: u32) {
    let events = || {
        let entries = std::fs::read_dir(format!("/proc/{perf}/fd")).into_iter().flatten().flatten();
        let is_event = |path: PathBuf| std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("perf_event"));
        entries.filter(|entry| is_event(entry.path())).count()
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut last = 0;
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(200));
        let now = events();
        if now > 0 && now == last {
            return;
        }
        last = now;
    }
}

/// Samples of a profile, by symbols.
#[derive(Debug, Default)]
pub struct Profile {
    symbols: Vec<(f64, String)>,
    samples: u64,
    rate: f64,
}

/// Parses a report, whose lines look like `  12.34%     567  [k] symbol`.
fn parse(report: &str) -> Profile {
    let mut profile = Profile::default();
    for line in report.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let percent = words.next().and_then(|word| word.strip_suffix('%')).and_then(|word| word.parse::<f64>().ok());
        let samples = words.next().and_then(|word| word.parse::<u64>().ok());
        if let (Some(percent), Some(samples)) = (percent, samples) {
            profile.samples += samples;
            profile.symbols.push((percent, words.filter(|word| *word != "-").collect::<Vec<_>>().join(" ")));
        }
    }
    profile
}

fn is_one_of(symbol: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| symbol.contains(part))
}

/// Prints what part of a profile lies in locks, and judges it.
pub fn judge(title: &str, profile: &Profile, verdicts: &mut Verdicts) {
    println!("\n{title}: {:.0} MB/s, {} samples", profile.rate, profile.samples);
    let sum =
        |parts: &[&str]| profile.symbols.iter().filter(|(_, symbol)| is_one_of(symbol, parts)).fold(0.0, |sum, (percent, _)| sum + percent);
    let (engine, kernel, futex) = (sum(&ENGINE), sum(&KERNEL), sum(&["futex"]));
    println!("  engine locks, all together  {engine:>6.2} %  (bound {SHARE_MAX} % for any one) {}", verdicts.judge(engine <= SHARE_MAX));
    println!("  kernel locks, all together  {kernel:>6.2} %  {}", verdicts.judge(kernel <= SHARE_MAX));
    println!("  futex calls (idle workers that sleep and wake count here too) {futex:.2} %");
    for (percent, symbol) in profile.symbols.iter().filter(|(_, symbol)| is_one_of(symbol, &ENGINE) || is_one_of(symbol, &KERNEL)) {
        println!("    {percent:>6.2} %  {symbol}");
    }
    println!("  most samples:");
    for (percent, symbol) in profile.symbols.iter().take(8) {
        println!("    {percent:>6.2} %  {symbol}");
    }
}

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    println!("{}", Machine::describe().header());
    println!("{}, {} threads submit, {} requests in flight each, random direct I/O, library", args.layout, args.submitters, args.depth);
    let scratch = Scratch::new(&std::env::temp_dir())?;
    let data = Abd::from_slice(&pattern(16 << 20));
    let bytes = (args.object_mib << 20) * args.submitters as u64;
    let each = (bytes * 3 / args.layout.data_devices() as u64 + (96 << 20)).next_multiple_of(1 << 20);
    let files = VdevFiles::create(&args.dir, args.layout.devices, each)?;
    for &kib in &args.size_kib {
        let config = Config {
            layout: args.layout,
            devices: files.paths.clone(),
            record: (kib << 10) as usize,
            checksum: "fletcher4".to_string(),
            compression: "off".to_string(),
            threads: args.threads,
            arc_max: 64 << 20,
        };
        let subject = Subject::create(&config)?;
        let numbers = (0..args.submitters).map(|_| subject.make_object()).collect::<Result<Vec<_>, _>>()?;
        let objects = numbers.iter().map(|number| subject.object(*number)).collect::<Result<Vec<_>, _>>()?;
        for object in &objects {
            let all = (0..args.object_mib << 20).step_by(config.record);
            pipeline::run(&subject, object, Direction::Write, args.depth, kib << 10, &data, all)?;
        }
        subject.settle()?;
        let load = Load { args, subject: &subject, objects, size: kib << 10, data: &data };
        for (name, direction) in [("writes", Direction::Write), ("reads", Direction::Read)] {
            judge(&format!("{kib} KiB {name}"), &profile(&scratch, || load.run(direction))?, verdicts);
            subject.settle()?;
        }
        drop(load);
        subject.export()?;
    }
    Ok(())
}

/// Runs the measurement; 2 when the bound was missed.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("locks", |verdicts| measure_all(args, verdicts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A symbol that is not recognised would hide a contended lock.
    #[test]
    fn shares_of_locks_are_read_from_a_report() {
        let report = "# Samples: 1K\n#\n    40.00%          400  [.] copy\n     2.50%           25  [.] parking_lot::raw_mutex::RawMutex::lock_slow\n\
                      \n     1.00%           10  [k] native_queued_spin_lock_slowpath\n";
        let profile = parse(report);
        assert_eq!((profile.samples, profile.symbols.len()), (435, 3));
        assert!(is_one_of(&profile.symbols[1].1, &ENGINE));
        assert!(is_one_of(&profile.symbols[2].1, &KERNEL));
        assert!(!is_one_of(&profile.symbols[0].1, &ENGINE));
    }
}
