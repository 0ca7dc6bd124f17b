//! The door that is a file: a volume in the daemon's state directory, read and written by many threads, with O_DIRECT and without.

use super::args::Args;
use super::load::{Figures, LARGE, Load, Offsets, Outcome, SMALL, beside_each_other};
use crate::files::{AlignedBuffer, VdevFiles, pattern};
use crate::measure::{measure, text};
use crate::mounted::Mounted;
use crate::pipeline::{Direction, Stream};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

const LOADS: [Load; 4] = [LARGE[0], LARGE[1], SMALL[0], SMALL[1]];
/// Blocks of the volumes that the loads use, as properties say them: large ones for large requests, those of volumes that are made without saying.
const BLOCKS: [&str; 2] = ["64K", "16K"];

fn open(path: &Path, is_direct: bool) -> Result<File, String> {
    let flags = if is_direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs a load: a request of the file waits, so there are as many threads as requests in flight, those of a stream at its next places.
fn run(file: &File, load: Load, bytes: u64, data: &[u8], deadline: Instant) -> Result<Outcome, String> {
    let offsets: Vec<_> = (0..load.streams).map(|stream| Mutex::new(load.offsets(bytes, stream, deadline))).collect();
    let lanes: Vec<_> = offsets.iter().flat_map(|offsets| std::iter::repeat_n(offsets, load.depth)).collect();
    let lane = |_: usize, offsets: &Mutex<Offsets>| -> Result<Stream, String> {
        let mut buffer = AlignedBuffer::new(load.bytes as usize);
        buffer.copy_from_slice(&data[..load.bytes as usize]);
        let mut stream = Stream::default();
        loop {
            let next = offsets.lock().map_err(text)?.next();
            let Some(offset) = next else { return Ok(stream) };
            let begun = Instant::now();
            match load.direction {
                Direction::Read => file.read_exact_at(&mut buffer, offset).map_err(text)?,
                Direction::Write => file.write_all_at(&buffer, offset).map_err(text)?,
            }
            stream.note(load.bytes, begun);
        }
    };
    let (streams, cost) = measure(|| beside_each_other(lanes, lane))?;
    Ok(Outcome::of(streams, cost))
}

/// Runs a load through the daemon, and counts what that cost it.
fn through(mounted: &Mounted, load: Load, is_direct: bool, args: &Args, data: &[u8]) -> Result<Outcome, String> {
    let volume = BLOCKS[usize::from(load.is_random)];
    let file = open(&mounted.volume(&format!("v{volume}")), is_direct)?;
    let (cpu, copied) = (mounted.server.cpu_seconds(), mounted.copied_bytes());
    let outcome = run(&file, load, args.disk_bytes(), data, Load::deadline(args.seconds))?;
    mounted.command("zpool", &["sync", "zbench"])?;
    let server_cpu = Some(mounted.server.cpu_seconds() - cpu);
    let copied = mounted.copied_bytes().zip(copied).map(|(after, before)| after - before);
    Ok(Outcome { server_cpu, copied, ..outcome })
}

/// Measures all of the part.
pub fn measure_all(args: &Args, files: &VdevFiles) -> Result<(), String> {
    let data = pattern(1 << 20);
    let mounted = Mounted::start(args.arc_mib << 20)?;
    mounted.create(args.layout, &files.paths, &[])?;
    for block in BLOCKS {
        let size = format!("{}M", args.disk_mib);
        let (name, block_size) = (format!("zbench/v{block}"), format!("volblocksize={block}"));
        mounted.command("zfs", &["create", "-s", "-o", "compression=off", "-o", &block_size, "-V", &size, &name])?;
        let file = open(&mounted.volume(&format!("v{block}")), false)?;
        for offset in (0..args.disk_bytes()).step_by(data.len()) {
            file.write_all_at(&data, offset).map_err(text)?;
        }
    }
    mounted.command("zpool", &["sync", "zbench"])?;
    let subjects = [("file, O_DIRECT", true), ("file, buffered", false)];
    let mut table: [[Figures; 2]; LOADS.len()] = Default::default();
    for _ in 0..args.reps.max(1) {
        for (figures, load) in table.iter_mut().zip(LOADS) {
            for (figures, (_, is_direct)) in figures.iter_mut().zip(subjects) {
                figures.add(load, through(&mounted, load, is_direct, args, &data)?);
            }
        }
    }
    println!(
        "\nFiles of volumes of {} MiB, blocks of 64K for large requests and 16K for small ones; a thread for each request",
        args.disk_mib
    );
    println!("{}", Figures::heading());
    for (figures, load) in table.iter().zip(LOADS) {
        for (figures, (subject, _)) in figures.iter().zip(subjects) {
            println!("{}", figures.line(load, subject));
        }
    }
    mounted.command("zpool", &["export", "-f", "zbench"]).map(drop)
}
