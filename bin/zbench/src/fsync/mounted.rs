//! Small durable writes through our mount, and on ext4 beside it in turns: both on a disk of the same kind in one directory.

use super::postgres::{self, Postgres};
use super::{Args, FILE_BYTES, IO_BYTES};
use crate::cleanup::Guard;
use crate::devices::{DeviceKind, DeviceSet, remove_stale};
use crate::files::{AlignedBuffer, Scratch};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::matrix::percentiles;
use crate::measure::{Samples, Verdicts, measure, text};
use crate::mounted::Mounted;
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Least part of ext4's rate, for our own writers and for databases.
const SHARE_MIN: f64 = 0.8;
const DATABASE_MIN: f64 = 0.7;
const ARC_BYTES: u64 = 256 << 20;
const PAUSE: Duration = Duration::from_millis(300);

/// One kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Append(usize),
    Overwrite,
    Sqlite(&'static str),
    /// PostgreSQL with four clients, in a file system of ours with records of so many KiB.
    Postgres(u32),
}

const JOBS: [Job; 8] = [
    Job::Append(1),
    Job::Append(4),
    Job::Append(16),
    Job::Overwrite,
    Job::Sqlite("wal"),
    Job::Sqlite("delete"),
    Job::Postgres(8),
    Job::Postgres(16),
];

impl Job {
    fn title(self) -> String {
        match self {
            Job::Append(threads) => format!("append 4K + fsync, {threads} thread{}", if threads == 1 { "" } else { "s" }),
            Job::Overwrite => "overwrite 4K O_DSYNC, 1 thread".to_string(),
            Job::Sqlite(mode) => format!("SQLite inserts, journal {mode}"),
            Job::Postgres(kib) => format!("pgbench -c4, recordsize {kib}K"),
        }
    }

    fn least(self) -> f64 {
        if let Job::Sqlite(_) | Job::Postgres(_) = self { DATABASE_MIN } else { SHARE_MIN }
    }

    /// Program that it needs and this machine lacks.
    fn lacks(self) -> Option<&'static str> {
        match self {
            Job::Sqlite(_) => {
                let found = Command::new("sqlite3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
                found.is_err().then_some("no program sqlite3")
            }
            Job::Postgres(_) => postgres::find().is_none().then_some("no PostgreSQL"),
            Job::Append(_) | Job::Overwrite => None,
        }
    }
}

/// Figures of one job on one side.
#[derive(Default)]
struct Figures {
    rate: Samples,
    p50_us: Samples,
    p99_us: Samples,
    client_us: Samples,
    server_us: Samples,
}

/// Place where the work is done, and whose CPU serves it.
struct Side<'a> {
    folder: PathBuf,
    server: Option<&'a Mounted>,
}

impl Side<'_> {
    /// Folder for the data of a job.
    fn folder_for(&self, job: Job) -> Result<PathBuf, String> {
        let (Job::Postgres(kib), Some(mounted)) = (job, self.server) else { return Ok(self.folder.clone()) };
        let place = mounted.mountpoint.join(format!("pg{kib}"));
        if !place.exists() {
            let (size, name) = (format!("recordsize={kib}K"), format!("zbench/pg{kib}"));
            mounted.command("zfs", &["create", "-o", "atime=off", "-o", &size, &name])?;
        }
        Ok(place)
    }
}

fn open(path: &Path, flags: i32) -> Result<File, String> {
    OpenOptions::new().create(true).truncate(false).write(true).custom_flags(flags).open(path).map_err(text)
}

/// Writes as long as there is time; gives the time of each operation in ns.
fn write_until(path: &Path, job: Job, until: Instant) -> Result<Vec<u32>, String> {
    let buffer = AlignedBuffer::new(IO_BYTES as usize);
    let is_append = job != Job::Overwrite;
    let mut file = open(path, if is_append { libc::O_APPEND } else { libc::O_DSYNC })?;
    if !is_append {
        file.write_all_at(&vec![1; FILE_BYTES as usize], 0).map_err(text)?;
        file.sync_all().map_err(text)?;
    }
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        if is_append {
            file.write_all(&buffer).map_err(text)?;
            file.sync_all().map_err(text)?;
        } else {
            let place = latencies.len() as u64 * 7 % (FILE_BYTES / IO_BYTES);
            file.write_all_at(&buffer, place * IO_BYTES).map_err(text)?;
        }
        latencies.push(begun.elapsed().as_nanos() as u32);
    }
    drop(file);
    std::fs::remove_file(path).map_err(text)?;
    Ok(latencies)
}

fn write_all(side: &Side<'_>, job: Job, args: &Args) -> Result<Vec<u32>, String> {
    let threads = if let Job::Append(threads) = job { threads } else { 1 };
    let until = Instant::now() + Duration::from_secs_f64(args.seconds);
    let streams = std::thread::scope(|scope| {
        let paths = (0..threads).map(|thread| side.folder.join(format!("f{thread}")));
        let started: Vec<_> = paths.map(|path| scope.spawn(move || write_until(&path, job, until))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().map_err(|_| "a writer panicked".to_string())?;
        started.into_iter().map(join).collect::<Result<Vec<_>, String>>()
    })?;
    Ok(streams.concat())
}

/// Has SQLite insert rows, each in a transaction of its own; gives the seconds that it took.
fn insert(folder: &Path, mode: &str, rows: usize) -> Result<f64, String> {
    let path = folder.join("s.db");
    for end in ["", "-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(folder.join(format!("s.db{end}")));
    }
    let mut sqlite = Command::new("sqlite3");
    let mut child = sqlite.arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(text)?;
    let mut lines = format!("pragma journal_mode={mode};\npragma synchronous=full;\ncreate table t(a integer primary key, b text);\n");
    (0..rows).for_each(|row| lines.push_str(&format!("insert into t(b) values('{}');\n", format!("row {row}").repeat(10))));
    let begun = Instant::now();
    child.stdin.take().ok_or("no input of sqlite3")?.write_all(lines.as_bytes()).map_err(text)?;
    if !child.wait().map_err(text)?.success() {
        return Err("sqlite3 failed".to_string());
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn turn(side: &Side<'_>, job: Job, args: &Args, figures: &mut Figures) -> Result<(), String> {
    let server = || side.server.map_or(0.0, |mounted| mounted.server.cpu_seconds());
    let folder = side.folder_for(job)?;
    // It runs while nobody else is measured.
    let database = match (job, postgres::find()) {
        (Job::Postgres(_), Some(programs)) => Some(Postgres::start(&programs, &folder, args.scale)?),
        _ => None,
    };
    let before = server();
    let count = match (job, &database) {
        (Job::Sqlite(mode), _) => {
            figures.rate.push(args.rows as f64 / insert(&folder, mode, args.rows)?);
            args.rows as f64
        }
        (_, Some(database)) => {
            let begun = Instant::now();
            let rate = database.run(args.seconds)?;
            figures.rate.push(rate);
            rate * begun.elapsed().as_secs_f64()
        }
        _ => {
            let (latencies, cost) = measure(|| write_all(side, job, args))?;
            let count = latencies.len() as f64;
            figures.rate.push(count / cost.seconds);
            figures.client_us.push(cost.cpu * 1e6 / count);
            let [p50, p99, _] = percentiles(latencies).ok_or("nothing was written")?;
            figures.p50_us.push(p50);
            figures.p99_us.push(p99);
            count
        }
    };
    figures.server_us.push((server() - before) * 1e6 / count);
    drop(database);
    std::thread::sleep(PAUSE);
    Ok(())
}

/// Makes ext4 on a device and mounts it.
fn mount_ext4(device: &Path, place: &Path) -> Result<Guard, String> {
    let made =
        Command::new("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(device).status().map_err(text)?;
    if !made.success() {
        return Err(format!("mkfs.ext4 failed on {}", device.display()));
    }
    std::fs::create_dir_all(place).map_err(text)?;
    rustix::mount::mount(device, place, "ext4", MountFlags::empty(), None).map_err(text)?;
    let undo = place.to_path_buf();
    Ok(Guard::new(move || {
        let _ = rustix::mount::unmount(&undo, UnmountFlags::DETACH);
    }))
}

/// Measures both sides in turns, and prints a table.
pub fn measure_all(args: &Args, folder: &Path, verdicts: &mut Verdicts) -> Result<(), String> {
    println!("{}", Machine::describe().header());
    remove_stale(folder);
    let bytes = args.device_mib << 20;
    let scratch = Scratch::new(folder)?;
    let devices = DeviceSet::create(args.devices_are, folder, 2, bytes, None)?;
    let place = scratch.path.join("ext4");
    let beside = match args.devices_are {
        DeviceKind::Loops => Some(mount_ext4(&devices.paths[0], &place)?),
        DeviceKind::Files => None,
    };
    std::fs::create_dir_all(&place).map_err(text)?;
    let mounted = Mounted::start(ARC_BYTES)?;
    let layout: Layout = "stripe:1".parse()?;
    mounted.create(layout, &devices.paths[1..], &["atime=off".to_string()])?;
    let sides = [Side { folder: place, server: None }, Side { folder: mounted.file(""), server: Some(&mounted) }];
    println!("on {} ({:?}), ext4 and ours in turns; medians of {}, spread in %", folder.display(), args.devices_are, args.reps);
    println!(
        "\n{:<32} {:>13} {:>13} {:>7} | {:>8} {:>8} {:>8} {:>8} | {:>9} {:>9} {:>9}",
        "", "ext4 op/s ±%", "ours op/s ±%", "ratio", "ext4 p50", "p99 µs", "ours p50", "p99 µs", "CPU ext4", "CPU ours", "server µs"
    );
    for job in JOBS.into_iter().filter(|job| args.only.as_ref().is_none_or(|only| job.title().contains(only.as_str()))) {
        if let Some(lack) = job.lacks() {
            println!("{:<32} - ({lack})", job.title());
            continue;
        }
        let mut figures = [Figures::default(), Figures::default()];
        for _ in 0..args.reps.max(1) {
            for (side, figures) in sides.iter().zip(&mut figures) {
                turn(side, job, args, figures)?;
            }
        }
        print(job, &figures, verdicts);
    }
    mounted.command("zpool", &["export", "zbench"])?;
    drop(beside);
    Ok(())
}

fn print(job: Job, [theirs, ours]: &[Figures; 2], verdicts: &mut Verdicts) {
    let shown = |samples: &Samples| if samples.count() == 0 { "-".to_string() } else { format!("{:.0}", samples.median()) };
    let rate = |figures: &Figures| format!("{:.0} {:>3.0}%", figures.rate.median(), figures.rate.spread_percent());
    let ratio = ours.rate.median() / theirs.rate.median();
    println!(
        "{:<32} {:>13} {:>13} {ratio:>7.2} | {:>8} {:>8} {:>8} {:>8} | {:>9} {:>9} {:>9}  ≥ {} {}",
        job.title(),
        rate(theirs),
        rate(ours),
        shown(&theirs.p50_us),
        shown(&theirs.p99_us),
        shown(&ours.p50_us),
        shown(&ours.p99_us),
        shown(&theirs.client_us),
        shown(&ours.client_us),
        shown(&ours.server_us),
        job.least(),
        verdicts.judge(ratio >= job.least())
    );
}
