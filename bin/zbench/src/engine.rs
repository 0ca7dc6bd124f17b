//! `zbench engine`: the engine without mounts beside OpenZFS's own engine, on the same files in one run.
//!
//! *Overhead* is what an engine's CPU costs above the floor: one thread that moves the same physical bytes with plain system
//! calls on the same files. The peer is the `zpbench` program; its library has assertions on, so its CPU counts 0.9 ×.

use clap::Args as ClapArgs;
use device::BlockDevice;
use dmu::{Dnode, NewObject};
use dsl::{CreateDataset, DatasetHandle, TxSpace};
use exec::Exec;
use ondisk::{ObjectId, ObjectType, ObjsetType};
use pool::{Host, ImportOptions, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use vdev::{LeafKind, TopKind};

/// Work of one phase is repeated until the object has this share of the device bytes at most.
const FILL_PERCENT_MAX: u64 = 60;
const GIB: f64 = (1u64 << 30) as f64;
/// The peer's library has assertions on (measured in its README).
const PEER_CPU_FACTOR: f64 = 0.9;

/// What to measure.
#[derive(ClapArgs, Debug)]
pub struct Args {
    /// Layout: stripe:N, mirror:N, raidz1:N, raidz2:N or raidz3:N
    #[arg(long, default_value = "raidz2:6")]
    layout: String,
    /// Directory for the vdev files; use tmpfs
    #[arg(long, default_value = "/dev/shm/zbench")]
    dir: PathBuf,
    /// Bytes of the object, in MiB
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Bytes of each vdev file, in MiB
    #[arg(long, default_value_t = 256)]
    vdev_mib: u64,
    /// Record size in KiB
    #[arg(long, default_value_t = 1024)]
    record_kib: usize,
    /// Checksum
    #[arg(long, default_value = "fletcher4")]
    checksum: String,
    /// Compression
    #[arg(long, default_value = "off")]
    compression: String,
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Repetitions; the best of each phase counts
    #[arg(long, default_value_t = 1)]
    reps: usize,
    /// The zpbench program, to run the peer too
    #[arg(long)]
    peer: Option<PathBuf>,
}

/// One measured phase.
#[derive(Clone, Debug)]
struct Row {
    phase: &'static str,
    seconds: f64,
    cpu: f64,
}

fn cpu_seconds() -> f64 {
    let usage = |time: rustix::time::Timespec| time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    usage(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime))
}

fn measure<T>(phase: &'static str, rows: &mut Vec<Row>, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let (clock, cpu) = (Instant::now(), cpu_seconds());
    let result = work()?;
    let row = Row { phase, seconds: clock.elapsed().as_secs_f64(), cpu: cpu_seconds() - cpu };
    match rows.iter_mut().find(|known| known.phase == phase) {
        Some(known) if known.cpu <= row.cpu => {}
        Some(known) => *known = row,
        None => rows.push(row),
    }
    Ok(result)
}

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

fn layout(spec: &str) -> Result<Vec<(TopKind, usize)>, String> {
    let (kind, count) = spec.split_once(':').ok_or("a layout looks like raidz2:6")?;
    let count: usize = count.parse().map_err(text)?;
    Ok(match kind {
        "stripe" => vec![(TopKind::Leaf, 1); count],
        "mirror" => vec![(TopKind::Mirror, count)],
        "raidz1" => vec![(TopKind::Raidz(1), count)],
        "raidz2" => vec![(TopKind::Raidz(2), count)],
        "raidz3" => vec![(TopKind::Raidz(3), count)],
        _ => return Err(format!("unknown layout '{kind}'")),
    })
}

/// Makes the files and touches every page, so that no phase pays for fresh memory.
fn files(args: &Args, count: usize) -> Result<Vec<PathBuf>, String> {
    std::fs::create_dir_all(&args.dir).map_err(text)?;
    let block = vec![1u8; 1 << 20];
    let mut paths = Vec::new();
    for index in 0..count {
        let path = args.dir.join(format!("d{index:02}"));
        let file = std::fs::File::create(&path).map_err(text)?;
        for mib in 0..args.vdev_mib {
            file.write_all_at(&block, mib << 20).map_err(text)?;
        }
        paths.push(path);
    }
    Ok(paths)
}

fn open(paths: &[PathBuf]) -> Result<Vec<Arc<dyn BlockDevice>>, String> {
    paths.iter().map(|path| device::open(path, &device::OpenOptions::default()).map_err(text)).collect()
}

fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes / 8).flat_map(|_| next()).collect()
}

fn create(args: &Args, exec: &Exec, paths: &[PathBuf]) -> Result<Pool, String> {
    let devices = open(paths)?;
    let mut leaves = paths.iter().zip(devices);
    let mut leaf = || {
        let (path, device) = leaves.next().expect("as many files as the layout has");
        LeafSpec { path: path.display().to_string(), kind: LeafKind::File, device }
    };
    let tops = layout(&args.layout)?;
    let tops = tops.into_iter().map(|(kind, count)| TopSpec { kind, leaves: (0..count).map(|_| leaf()).collect() }).collect();
    let spec = PoolSpec {
        name: "zbench".to_string(),
        tops,
        ashift: None,
        features: None,
        comment: None,
        host: Host::default(),
        force: true,
        root: CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) },
    };
    let pool = Pool::create(exec, spec, &runtime(args)).map_err(text)?;
    let properties = [
        ("recordsize", (args.record_kib << 10).to_string()),
        ("checksum", args.checksum.clone()),
        ("compression", args.compression.clone()),
    ];
    let properties = properties.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    let dataset = CreateDataset { kind: ObjsetType::ZFS, properties, init: Box::new(|_, _| Ok(())) };
    pool.dsl().create_dataset("zbench/fs", dataset).map_err(text)?;
    Ok(pool)
}

fn runtime(args: &Args) -> Runtime {
    // As the daemon does: buffers of dirty data are kept for the next burst.
    abd::set_cache_bytes_max(Runtime::new().txg.dirty_data_max as usize);
    Runtime { arc_max: (args.size_mib << 20) * 2, ..Runtime::new() }
}

fn make_object(args: &Args, fs: &DatasetHandle) -> Result<Arc<Dnode>, String> {
    let objset = fs.objset().map_err(text)?;
    let tx = fs.assign(TxSpace::Writes(1 << 20)).map_err(text)?;
    let new = NewObject { block_size: args.record_kib << 10, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    objset.allocate_object(new, &tx).map_err(text)
}

fn write(args: &Args, pool: &Pool, fs: &DatasetHandle, object: &Dnode, data: &[u8]) -> Result<(), String> {
    let record = args.record_kib << 10;
    let step = record.max(128 << 10);
    for offset in (0..args.size_mib << 20).step_by(step) {
        let start = offset as usize % (data.len() - step + 1) / 4096 * 4096;
        let tx = fs.assign(TxSpace::Writes(step as u64)).map_err(text)?;
        object.write(offset, &data[start..start + step], &tx).map_err(text)?;
    }
    pool.sync().map_err(text)
}

fn read(args: &Args, object: &Dnode) -> Result<(), String> {
    let mut buffer = vec![0; 1 << 20];
    for offset in (0..args.size_mib << 20).step_by(buffer.len()) {
        object.read(offset, &mut buffer).map_err(text)?;
    }
    Ok(())
}

fn ours(args: &Args, paths: &[PathBuf], data: &[u8], rows: &mut Vec<Row>) -> Result<u64, String> {
    let exec: Exec = Arc::new(exec::Pool::new(args.threads));
    let pool = create(args, &exec, paths)?;
    let fs = pool.dsl().hold("zbench/fs").map_err(text)?;
    let object = make_object(args, &fs)?;
    pool.sync().map_err(text)?;
    let number: ObjectId = object.object();
    let before = pool.status().space.allocated;
    measure("swrite", rows, || write(args, &pool, &fs, &object, data))?;
    let physical = pool.status().space.allocated - before;
    measure("swarm", rows, || read(args, &object))?;
    drop((object, fs));
    pool.export().map_err(text)?;
    let pool = Pool::import(&exec, open(paths)?, &ImportOptions::default(), &runtime(args)).map_err(text)?;
    let fs = pool.dsl().hold("zbench/fs").map_err(text)?;
    let object = fs.objset().map_err(text)?.hold(number).map_err(text)?;
    measure("scold", rows, || read(args, &object))?;
    measure("scrub", rows, || {
        pool.scrub_start().map_err(text)?;
        pool.scrub_wait().map_err(text)
    })
    .or_else(|error| {
        eprintln!("scrub: {error}");
        Ok::<(), String>(())
    })?;
    drop((object, fs));
    pool.export().map_err(text)?;
    Ok(physical)
}

/// One thread that writes or reads `bytes` in pieces of 1 MiB over the files.
fn floor(paths: &[PathBuf], bytes: u64, data: &[u8], rows: &mut Vec<Row>) -> Result<(), String> {
    let open = |path: &PathBuf| std::fs::OpenOptions::new().read(true).write(true).open(path).map_err(text);
    let files = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let pieces = (bytes >> 20).max(1);
    let place = |piece: u64| (&files[piece as usize % files.len()], (8 + piece / files.len() as u64) << 20);
    measure("floor write", rows, || {
        for piece in 0..pieces {
            let (file, offset) = place(piece);
            let start = (piece as usize * 4096) % (data.len() - (1 << 20));
            file.write_all_at(&data[start..start + (1 << 20)], offset).map_err(text)?;
        }
        Ok(())
    })?;
    let mut buffer = vec![0; 1 << 20];
    measure("floor read", rows, || {
        for piece in 0..pieces {
            let (file, offset) = place(piece);
            file.read_exact_at(&mut buffer, offset).map_err(text)?;
        }
        Ok(())
    })
}

/// The peer's CPU s/GiB by phase.
fn peer(args: &Args, program: &Path) -> Result<Vec<(String, f64)>, String> {
    let json = args.dir.join("peer.jsonl");
    let record = if args.record_kib >= 1024 { format!("{}M", args.record_kib >> 10) } else { format!("{}K", args.record_kib) };
    let status = std::process::Command::new(program)
        .args(["--layout", &args.layout, "--cksum", &args.checksum, "--comp", &args.compression, "--rs", &record])
        .args(["--size", &format!("{}M", args.size_mib), "--vsize", &format!("{}M", args.vdev_mib)])
        .args(["--phases", "swrite,swarm,scold,scrub", "--reps", &args.reps.to_string()])
        .arg("--dir")
        .arg(&args.dir)
        .arg("--json")
        .arg(&json)
        .stdout(std::process::Stdio::null())
        .status()
        .map_err(text)?;
    if !status.success() {
        return Err(format!("the peer failed: {status}"));
    }
    let mut best: Vec<(String, f64)> = Vec::new();
    for line in BufReader::new(std::fs::File::open(&json).map_err(text)?).lines() {
        let line: serde_json::Value = serde_json::from_str(&line.map_err(text)?).map_err(text)?;
        let (Some(phase), Some(cpu)) = (line["phase"].as_str(), line["cpu_s_per_GiB"].as_f64()) else { continue };
        match best.iter_mut().find(|(known, _)| known == phase) {
            Some((_, known)) => *known = known.min(cpu),
            None => best.push((phase.to_string(), cpu)),
        }
    }
    let _ = std::fs::remove_file(&json);
    Ok(best)
}

fn report(args: &Args, rows: &[Row], physical: u64, peers: &[(String, f64)]) {
    let logical = args.size_mib as f64 * (1 << 20) as f64;
    let per_gib = |row: &Row| row.cpu / (logical / GIB);
    let floor = |name| rows.iter().find(|row| row.phase == name).map_or(0.0, per_gib);
    println!("{} {} KiB records, {} MiB, {} MiB physical", args.layout, args.record_kib, args.size_mib, physical >> 20);
    println!("{:<12} {:>9} {:>10} {:>10} {:>10} {:>10} {:>7}", "phase", "MB/s", "cpu s/GiB", "overhead", "peer", "peer-ovh", "ratio");
    for row in rows {
        let cpu = per_gib(row);
        let base = match row.phase {
            "swrite" => floor("floor write"),
            "scold" | "scrub" => floor("floor read"),
            _ => 0.0,
        };
        let peer = peers.iter().find(|(phase, _)| phase == row.phase).map(|(_, cpu)| cpu * PEER_CPU_FACTOR);
        print!("{:<12} {:>9.0} {cpu:>10.3} {:>10.3}", row.phase, logical / 1e6 / row.seconds, cpu - base);
        match peer {
            Some(peer) => println!(" {peer:>10.3} {:>10.3} {:>7.2}", peer - base, (cpu - base) / (peer - base)),
            None => println!(),
        }
    }
}

fn measure_all(args: &Args) -> Result<(), String> {
    let count = layout(&args.layout)?.iter().map(|(_, count)| count).sum();
    if args.size_mib * 100 > args.vdev_mib * count as u64 * FILL_PERCENT_MAX {
        return Err("the object does not fit: make the vdevs larger".to_string());
    }
    let paths = files(args, count)?;
    let data = pattern(64 << 20);
    let mut rows = Vec::new();
    let mut physical = 0;
    for _ in 0..args.reps.max(1) {
        physical = ours(args, &paths, &data, &mut rows)?;
        floor(&paths, physical, &data, &mut rows)?;
    }
    let peers = match &args.peer {
        Some(program) => peer(args, program)?,
        None => Vec::new(),
    };
    report(args, &rows, physical, &peers);
    for path in paths {
        let _ = std::fs::remove_file(path);
    }
    let _ = std::fs::remove_dir(&args.dir);
    Ok(())
}

/// Runs the measurement and prints a table.
pub fn run(args: &Args) -> ExitCode {
    match measure_all(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zbench engine: {error}");
            ExitCode::FAILURE
        }
    }
}
