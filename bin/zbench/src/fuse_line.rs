//! `zbench fuse`: what a mount costs. CPU of server and client together for fio's sequential I/O through our mount, beside a trivial
//! in-memory file system behind the same FUSE server plus our engine alone doing the same work as a library.
//!
//! Ours, in-memory and engine take turns; medians count. The client's CPU is fio's own job, the server's is the process's CPU clock.
//!
//! The daemon's own counter says how many bytes it copied between buffers per byte moved: at most one where I/O is direct. The
//! kernel's copy between its requests and the server's memory is the mount's, and not in it.

use crate::files::{Scratch, VdevFiles, pattern};
use crate::fio::{self, Job};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::measure::{Samples, Verdicts, measure, text};
use crate::mounted::{Mounted, Server, wait_mounted};
use crate::subject::{Config, Subject};
use clap::Args as ClapArgs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

const IO_BYTES: u64 = 1 << 20;
const BOUND: f64 = 1.15;
/// Number of bytes copied in the daemon per byte of direct I/O, at most.
const COPIES_MAX: f64 = 1.0;

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Layout of our pool
    #[arg(long, default_value = "stripe:4")]
    layout: Layout,
    /// Directory for the vdev files; use tmpfs
    #[arg(long, default_value = "/dev/shm/zbench")]
    dir: PathBuf,
    /// Bytes of the file, in MiB
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Turns; medians count
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Only direct (1) or only buffered (0) I/O of the client; both without it
    #[arg(long)]
    direct: Option<u8>,
    /// Worker threads of the engine when it runs alone
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Where the in-memory file system goes.
#[derive(ClapArgs, Debug)]
pub struct MemfsArgs {
    mountpoint: PathBuf,
    /// Whether requests come through io_uring: off, auto or on
    #[arg(long, default_value = "off")]
    uring: String,
}

/// Serves the in-memory file system until it is unmounted or told to end.
pub fn serve_memfs(args: &MemfsArgs) -> ExitCode {
    let uring = match args.uring.as_str() {
        "auto" => fuse::Uring::Auto,
        "on" => fuse::Uring::On,
        _ => fuse::Uring::Off,
    };
    let options = fuse::MountOptions { source: "memfs".into(), uring, ..Default::default() };
    let exec: exec::Exec = Arc::new(exec::Pool::new(1));
    match fuse::Session::mount(&exec, Arc::new(crate::memfs::MemFs::new()), &args.mountpoint, &options) {
        Ok(session) => {
            let mountpoint = args.mountpoint.clone();
            let _unmount = crate::cleanup::Guard::new(move || {
                let _ = Command::new("umount").arg("-l").arg(&mountpoint).status();
            });
            session.join();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("zbench memfs: {error}");
            ExitCode::FAILURE
        }
    }
}

/// CPU time in µs per MiB: of the write, of the read.
type Pair = [f64; 2];

fn job(file: &Path, rw: &str, args: &Args, is_direct: bool) -> Job {
    let job = Job::new(&[file.to_path_buf()], rw, IO_BYTES).with("ioengine", "psync").with("direct", u8::from(is_direct));
    let job = job.with("size", args.size_mib << 20);
    if rw == "write" { job.with("end_fsync", 1) } else { job }
}

/// CPU time in µs per MiB of one fio job, with what `server` used meanwhile.
fn through(server: &Server, job: &Job, args: &Args) -> Result<f64, String> {
    let before = server.cpu_seconds();
    let outcome = job.run()?;
    if outcome.bytes != args.size_mib << 20 {
        return Err(format!("fio moved {} bytes: {}", outcome.bytes, job.command()));
    }
    Ok((outcome.cpu + server.cpu_seconds() - before) * 1e6 / args.size_mib as f64)
}

/// CPU time as by [`through`] for our daemon, and the bytes that it copied per byte.
fn counted(mounted: &Mounted, job: &Job, args: &Args) -> Result<(f64, f64), String> {
    let copied = || mounted.copied_bytes().ok_or("the daemon shows no statistics (is ZIRCONIA_KSTAT off?)");
    let before = copied()?;
    let cost = through(&mounted.server, job, args)?;
    Ok((cost, (copied()? - before) as f64 / (args.size_mib << 20) as f64))
}

/// CPU times of write and read, and their copies per byte.
fn ours(args: &Args, files: &VdevFiles, is_direct: bool) -> Result<(Pair, Pair), String> {
    let mounted = Mounted::start(args.size_mib << 21)?;
    mounted.create(args.layout, &files.paths, &["recordsize=1M".to_string(), "compression=off".to_string()])?;
    let file = mounted.file("data");
    // The first writes of a daemon fault its memory in; that happens once in its life.
    job(&mounted.file("warm"), "write", args, is_direct).run()?;
    std::fs::remove_file(mounted.file("warm")).map_err(text)?;
    mounted.command("zpool", &["sync", "zbench"])?;
    let write = counted(&mounted, &job(&file, "write", args, is_direct), args)?;
    mounted.reimport(&files.paths)?;
    let read = counted(&mounted, &job(&file, "read", args, is_direct), args)?;
    mounted.command("zpool", &["export", "zbench"])?;
    Ok(([write.0, read.0], [write.1, read.1]))
}

fn in_memory(args: &Args, is_direct: bool) -> Result<Pair, String> {
    let scratch = Scratch::new(&std::env::temp_dir())?;
    let mountpoint = scratch.path.join("memfs");
    std::fs::create_dir_all(&mountpoint).map_err(text)?;
    let program = std::env::current_exe().map_err(text)?;
    let server = Server::spawn(Command::new(program).arg("memfs").arg(&mountpoint), &mountpoint)?;
    wait_mounted(&server, &mountpoint)?;
    let file = mountpoint.join("data");
    job(&file, "write", args, is_direct).run()?;
    let write = through(&server, &job(&file, "write", args, is_direct).with("overwrite", 1), args)?;
    let read = through(&server, &job(&file, "read", args, is_direct), args)?;
    Ok([write, read])
}

fn engine_alone(args: &Args, files: &VdevFiles, data: &[u8]) -> Result<Pair, String> {
    let bytes = args.size_mib << 20;
    let config = Config {
        layout: args.layout,
        devices: files.paths.clone(),
        record: 1 << 20,
        checksum: "fletcher4".to_string(),
        compression: "off".to_string(),
        threads: args.threads,
        arc_max: bytes * 2,
    };
    let per_mib = |cpu: f64| cpu * 1e6 / args.size_mib as f64;
    let subject = Subject::create(&config)?;
    let number = subject.make_object()?;
    subject.sync()?;
    let object = subject.object(number)?;
    let ((), write) = measure(|| {
        for offset in (0..bytes).step_by(IO_BYTES as usize) {
            let start = offset as usize % (data.len() - IO_BYTES as usize + 1) / 4096 * 4096;
            subject.write_at(&object, offset, &data[start..start + IO_BYTES as usize])?;
        }
        subject.sync()
    })?;
    drop(object);
    let subject = subject.reimport()?;
    let object = subject.object(number)?;
    let mut buffer = vec![0; IO_BYTES as usize];
    let ((), read) = measure(|| (0..bytes).step_by(buffer.len()).try_for_each(|offset| subject.read_at(&object, offset, &mut buffer)))?;
    drop(object);
    subject.export()?;
    Ok([per_mib(write.cpu), per_mib(read.cpu)])
}

/// Samples of the turns: of the write, of the read.
#[derive(Default)]
struct Turns {
    /// CPU times: ours, in-memory, engine.
    cpu: [[Samples; 3]; 2],
    copies: [Samples; 2],
}

impl Turns {
    fn add(&mut self, turn: [Pair; 3], copies: Pair) {
        for phase in 0..2 {
            (0..3).for_each(|who| self.cpu[phase][who].push(turn[who][phase]));
            self.copies[phase].push(copies[phase]);
        }
    }

    fn print(&self, is_direct: bool, verdicts: &mut Verdicts) {
        for (phase, what) in ["write", "cold read"].iter().enumerate() {
            let [ours, memory, engine] = &self.cpu[phase];
            let ratio = ours.median() / (memory.median() + engine.median());
            print!("{:<20}", format!("{} {what}", if is_direct { "direct" } else { "buffered" }));
            for sample in [ours, memory, engine] {
                print!(" {:>7.0} {:>3.0}%", sample.median(), sample.spread_percent());
            }
            print!(" {ratio:>8.2} {BOUND:>8.2} {}", verdicts.judge(ratio <= BOUND));
            let copies = self.copies[phase].median();
            match is_direct {
                true => println!(" {copies:>11.3} {COPIES_MAX:>6.2} {}", verdicts.judge(copies <= COPIES_MAX)),
                false => println!(" {copies:>11.3} {:>6}", "-"),
            }
        }
    }
}

fn measure_all(args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    fio::require()?;
    println!("{}", Machine::describe().header());
    println!(
        "{}, 1 MiB records, fio psync 1 MiB sequential, {} MiB; CPU µs per MiB, medians of {} turns",
        args.layout, args.size_mib, args.reps
    );
    let vdev_bytes = (args.size_mib << 20) * 5 / 2 / args.layout.data_devices() as u64 + (64 << 20);
    let files = VdevFiles::create(&args.dir, args.layout.devices, vdev_bytes.next_multiple_of(1 << 20))?;
    let data = pattern(64 << 20);
    engine_alone(args, &files, &data)?;
    println!(
        "\n{:<20} {:>12} {:>12} {:>12} {:>8} {:>8}    {:>11} {:>6}",
        "client", "ours ±%", "in-memory ±%", "engine ±%", "ratio", "bound", "copies/byte", "bound"
    );
    for is_direct in [false, true] {
        if args.direct.is_some_and(|only| (only != 0) != is_direct) {
            continue;
        }
        let mut turns = Turns::default();
        for _ in 0..args.reps.max(1) {
            let (ours, copies) = ours(args, &files, is_direct)?;
            turns.add([ours, in_memory(args, is_direct)?, engine_alone(args, &files, &data)?], copies);
        }
        turns.print(is_direct, verdicts);
    }
    Ok(())
}

/// Runs the measurement and prints a table; 2 when the bound was missed.
pub fn run(args: &Args) -> ExitCode {
    Verdicts::conclude("fuse", |verdicts| measure_all(args, verdicts))
}
