//! The door that is iSCSI: our daemon, and tgt beside it in turns, through one initiator.
//!
//! The peer's disk is a file of a file system of ours in the same pool, as who has no volumes over iSCSI would do it; a second one lies in the memory
//! that the pool's devices lie in, with no file system of ours below. Of the first the process below it is part of the cost.

use super::args::Args;
use super::initiator::{self, Initiator, Place, Request};
use super::load::{Figures, LARGE, Load, Outcome, SMALL, beside_each_other};
use super::tgt::{self, Tgt};
use crate::files::{Scratch, VdevFiles, pattern};
use crate::measure::{Verdicts, measure, text};
use crate::mounted::{Mounted, Server};
use crate::pipeline::Direction;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

/// Kind of disks: bytes of a volume's blocks and of a file's records as properties say them, and the least multiple of the peer's rate.
struct Kind {
    block: &'static str,
    loads: [Load; 2],
    rate_min: f64,
    /// Most of the peer's CPU per byte, where that is judged.
    cpu_max: Option<f64>,
    /// Bytes copied per byte at most, where that is judged: writes of parts of blocks have to be joined with the rest.
    copies_max: Option<f64>,
}

const KINDS: [Kind; 2] = [
    Kind { block: "64K", loads: LARGE, rate_min: 1.2, cpu_max: Some(0.5), copies_max: Some(1.0) },
    Kind { block: "16K", loads: SMALL, rate_min: 1.5, cpu_max: None, copies_max: None },
];
/// Time for a target to be there.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that are read back and compared before anything is measured.
const COMPARED_BYTES: u64 = 4 << 20;
const FILL: Load = Load { title: "fill", direction: Direction::Write, is_random: false, bytes: 256 << 10, depth: 8, streams: 1 };

/// Disk in the network, and the processes that serve it.
struct Disk<'a> {
    title: &'static str,
    place: Place,
    server: &'a Server,
    /// Process that serves the file below the target's.
    below: Option<&'a Server>,
    /// Daemon whose copies count.
    counts: Option<&'a Mounted>,
}

/// Address that nobody listens at now.
fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(text)
}

fn requests(load: Load, bytes: u64, stream: usize, deadline: Instant) -> impl Iterator<Item = Request> {
    let is_write = load.direction == Direction::Write;
    load.offsets(bytes, stream, deadline).map(move |offset| Request { is_write, offset, bytes: load.bytes as u32 })
}

impl Disk<'_> {
    /// Logs in, as soon as the target is there.
    fn log_in(&self) -> Result<Initiator, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Initiator::log_in(&self.place) {
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
                result => return result.map_err(|error| format!("{}: {error}", self.title)),
            }
        }
    }

    /// Writes all of the disk, and checks that the beginning can be read.
    fn fill(&self, bytes: u64, data: &[u8]) -> Result<(), String> {
        let mut initiator = self.log_in()?;
        let all = |load: Load, bytes: u64| requests(load, bytes, 0, Load::deadline(3600.0)).take((bytes / load.bytes) as usize);
        initiator.run(FILL.depth, data, all(FILL, bytes), |_, _, _| ())?;
        let mut is_same = true;
        let compare = |request: &Request, at: u64, bytes: &[u8]| {
            is_same &= request.content(data)[at as usize..].starts_with(bytes);
        };
        let read = Load { direction: Direction::Read, ..FILL };
        initiator.run(FILL.depth, data, all(read, bytes.min(COMPARED_BYTES)), compare)?;
        if is_same { Ok(()) } else { Err(format!("{}: what is read is not what was written", self.title)) }
    }

    /// Runs a load. The processes' CPU counts until what was written is on the devices.
    fn run(&self, load: Load, daemon: &Mounted, args: &Args, data: &[u8]) -> Result<Outcome, String> {
        let sessions = (0..load.streams).map(|_| self.log_in()).collect::<Result<Vec<_>, _>>()?;
        let copied = || self.counts.and_then(Mounted::copied_bytes);
        let cpu = || (self.server.cpu_seconds(), self.below.map(Server::cpu_seconds));
        let (before, copied_before) = (cpu(), copied());
        let deadline = Load::deadline(args.seconds);
        let stream = |index: usize, mut session: Initiator| {
            session.run(load.depth, data, requests(load, args.disk_bytes(), index, deadline), |_, _, _| ())
        };
        let (streams, cost) = measure(|| beside_each_other(sessions, stream))?;
        if load.direction == Direction::Write {
            daemon.command("zpool", &["sync", "zbench"])?;
        }
        let after = cpu();
        Ok(Outcome {
            server_cpu: Some(after.0 - before.0),
            below_cpu: after.1.zip(before.1).map(|(after, before)| after - before),
            copied: copied().zip(copied_before).map(|(after, before)| after - before),
            ..Outcome::of(streams, cost)
        })
    }
}

/// Starts the daemon with a volume of each kind that the initiator may use.
fn start(args: &Args, files: &VdevFiles, portal: SocketAddr) -> Result<Mounted, String> {
    let address = portal.to_string();
    let mounted = Mounted::start_with(args.arc_mib << 20, &[("ZIRCONIA_ISCSI", address.as_str())])?;
    mounted.create(args.layout, &files.paths, &[])?;
    let size = format!("{}M", args.disk_mib);
    for Kind { block, .. } in KINDS {
        let (volume, volume_block) = (format!("zbench/v{block}"), format!("volblocksize={block}"));
        mounted.command("zfs", &["create", "-s", "-o", "compression=off", "-o", &volume_block, "-V", &size, &volume])?;
        mounted.command("zirconia", &["target", "allow", &volume, initiator::NAME])?;
        mounted.command("zfs", &["set", "zirconia:share.iscsi=on", &volume])?;
        let (record, place) = (format!("recordsize={block}"), format!("zbench/f{block}"));
        mounted.command("zfs", &["create", "-o", "compression=off", "-o", "atime=off", "-o", &record, &place])?;
    }
    Ok(mounted)
}

/// Name of the target of a volume of our daemon, as docs/adr/0020 has it: capital letters are escaped.
fn target_of(block: &str) -> String {
    format!("iqn.2026-01.zirconia:zbench:v{}", block.replace('K', "-4b"))
}

/// Disk of tgt behind a target of this name.
fn of_tgt<'a>(tgt: &'a Tgt, target: String, title: &'static str, below: Option<&'a Server>) -> Disk<'a> {
    let place = Place { portal: tgt.portal, target, lun: tgt::LUN };
    Disk { title, place, server: &tgt.server, below, counts: None }
}

/// Makes a file of `bytes` for a disk of tgt; gives the name of the target.
fn add(tgt: &mut Tgt, path: &Path, bytes: u64) -> Result<String, String> {
    std::fs::File::create(path).and_then(|file| file.set_len(bytes)).map_err(|error| format!("{}: {error}", path.display()))?;
    tgt.add(path)
}

/// Starts tgt with two disks of each kind: in a file system of the pool, and in memory. None where it is not installed.
fn start_peer(args: &Args, mounted: &Mounted, memory: &Path) -> Result<Option<(Tgt, Vec<[String; 2]>)>, String> {
    if let Some(name) = tgt::lacks() {
        args.leave_out(
            "tgt beside our iSCSI, and the bounds that compare with it",
            &format!("{name} is not installed: ZIRCONIA_TGT=1 tools/deps.sh"),
        )?;
        return Ok(None);
    }
    let mut tgt = Tgt::start(memory, free_address()?, 2 * KINDS.len() as u32)?;
    let mut targets = Vec::new();
    for Kind { block, .. } in KINDS {
        let places = [mounted.mountpoint.join(format!("f{block}/disk")), memory.join(format!("disk{block}"))];
        let [pool, apart] = places.map(|path| add(&mut tgt, &path, args.disk_bytes()));
        targets.push([pool?, apart?]);
    }
    Ok(Some((tgt, targets)))
}

fn judge(kind: &Kind, figures: &[Figures], verdicts: &mut Verdicts) {
    let ours = &figures[0];
    let mut words = Vec::new();
    if let Some(peer) = figures.get(1) {
        let (ratio, cpu) = (ours.rate.median() / peer.rate.median(), ours.serving() / peer.serving());
        words.push(format!("{ratio:.2} × tgt over a file in the pool (≥ {}) {}", kind.rate_min, verdicts.judge(ratio >= kind.rate_min)));
        let bound = kind.cpu_max.map_or_else(String::new, |most| format!(" (≤ {most}) {}", verdicts.judge(cpu <= most)));
        let alone = ours.serving() / peer.server.median();
        words.push(format!("CPU per byte {cpu:.2} × that of tgtd and what serves its file{bound}, {alone:.2} × tgtd's alone"));
    }
    if let Some(peer) = figures.get(2) {
        let (ratio, cpu) = (ours.rate.median() / peer.rate.median(), ours.serving() / peer.serving());
        words.push(format!("{ratio:.2} × tgt over a file in memory, at {cpu:.2} × its CPU per byte"));
    }
    if let Some(most) = kind.copies_max {
        let copies = ours.copies.median();
        words.push(format!("{copies:.2} copies per byte (≤ {most}) {}", verdicts.judge(copies <= most)));
    }
    words.iter().for_each(|line| println!("  {line}"));
}

/// Measures the loads of one kind of disks.
fn measure_kind(kind: &Kind, disks: &[Disk<'_>], mounted: &Mounted, args: &Args, verdicts: &mut Verdicts) -> Result<(), String> {
    let data = pattern(8 << 20);
    for disk in disks {
        disk.fill(args.disk_bytes(), &data)?;
    }
    mounted.command("zpool", &["sync", "zbench"])?;
    let mut table: [Vec<Figures>; 2] = std::array::from_fn(|_| disks.iter().map(|_| Figures::default()).collect());
    for _ in 0..args.reps.max(1) {
        for (figures, load) in table.iter_mut().zip(kind.loads) {
            for (figures, disk) in figures.iter_mut().zip(disks) {
                figures.add(load, disk.run(load, mounted, args, &data)?);
            }
        }
    }
    println!("\nDisks of {} MiB in blocks (and files in records) of {}, in turns", args.disk_mib, kind.block);
    println!("{}", Figures::heading());
    for (figures, load) in table.iter().zip(kind.loads) {
        for (figures, disk) in figures.iter().zip(disks) {
            println!("{}", figures.line(load, disk.title));
        }
        judge(kind, figures, verdicts);
    }
    Ok(())
}

/// Measures all of the part.
pub fn measure_all(args: &Args, files: &VdevFiles, verdicts: &mut Verdicts) -> Result<(), String> {
    let portal = free_address()?;
    let mounted = start(args, files, portal)?;
    // Beside the pool's devices: as fast as they are.
    let memory = Scratch::new(&args.dir)?;
    let peer = start_peer(args, &mounted, &memory.path)?;
    for (index, kind) in KINDS.iter().enumerate() {
        let place = Place { portal, target: target_of(kind.block), lun: 0 };
        let mut disks = vec![Disk { title: "our iSCSI", place, server: &mounted.server, below: None, counts: Some(&mounted) }];
        if let Some((tgt, targets)) = &peer {
            let [pool, apart] = targets[index].clone();
            disks.push(of_tgt(tgt, pool, "tgt, file in the pool", Some(&mounted.server)));
            disks.push(of_tgt(tgt, apart, "tgt, file in memory", None));
        }
        measure_kind(kind, &disks, &mounted, args, verdicts)?;
    }
    // It has files of the pool open.
    drop(peer);
    mounted.command("zpool", &["export", "-f", "zbench"]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that the daemon gives to another volume would have the initiator wait for a target that never comes.
    #[test]
    fn targets_have_the_names_that_the_daemon_gives_them() {
        assert_eq!(target_of("64K"), "iqn.2026-01.zirconia:zbench:v64-4b");
    }
}
