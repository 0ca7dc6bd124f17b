//! Holes of files that somebody has mapped: what was stored through the mapping is in the kernel's pages only, and a copy that
//! asks for data (`cp --sparse`, `tar -S`) must not take it for a hole.

use crate::mapped::{Mapped, PAGE};
use crate::world::{Failure, World, same};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const RECORD: usize = 128 << 10;
const BYTES: usize = 16 * RECORD;
const SECOND: usize = 5 * RECORD + 3 * PAGE;
const LATE: usize = 11 * RECORD;

/// Start of the next data or hole; None when there is none.
fn next(file: &File, from: SeekFrom) -> Result<Option<u64>, Failure> {
    match rustix::fs::seek(file, from) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Extents of data, every one, as a copying program finds them.
fn extents(file: &File) -> Result<Vec<(u64, u64)>, Failure> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = next(file, SeekFrom::Data(at))? {
        at = next(file, SeekFrom::Hole(start))?.ok_or("data without an end")?;
        found.push((start, at));
    }
    Ok(found)
}

fn open(path: &Path) -> Result<File, Failure> {
    Ok(File::options().read(true).write(true).create(true).truncate(false).open(path)?)
}

/// Copies by cp(1) and tar(1) while the mapping is there and nothing was flushed.
pub fn copies(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let file = open(&world.path("mnt/tank/m"))?;
    file.set_len(BYTES as u64)?;
    let mut model = vec![0; BYTES];
    let mapped = Mapped::new(&file, BYTES)?;
    let mut store = |at: usize, byte: u8| {
        mapped.write(at, &[byte; PAGE]);
        model[at..at + PAGE].fill(byte);
    };
    store(0, b'x');
    store(SECOND, b'y');
    let block = |number: usize| ((number * RECORD) as u64, ((number + 1) * RECORD) as u64);
    same("extents of what was stored", extents(&file)?, vec![block(0), block(5)])?;
    // Into a hole that was looked at already.
    store(LATE, b'z');
    world.ok("mkdir {dir}/out")?;
    world.ok("cp --sparse=auto {mnt}/tank/m {dir}/out/cp")?;
    world.ok("cp --sparse=auto {mnt}/tank/m {mnt}/tank/inside")?;
    world.ok("tar -C {mnt}/tank -S -c -f {dir}/out/tar m")?;
    world.ok("tar -C {dir}/out -x -f {dir}/out/tar")?;
    for copy in ["out/cp", "out/m", "mnt/tank/inside"] {
        same(copy, std::fs::read(world.path(copy))? == model, true)?;
    }
    same("all extents", extents(&file)?, vec![block(0), block(5), block(11)])?;
    // A descriptor that cannot write sees the same, and so it is after the mapping went.
    same("another descriptor", extents(&File::open(world.path("mnt/tank/m"))?)?, vec![block(0), block(5), block(11)])?;
    drop(mapped);
    drop(file);
    same("after the mapping", extents(&File::open(world.path("mnt/tank/m"))?)?, vec![block(0), block(5), block(11)])?;
    several(world)?;
    taken_out(world)
}

/// What `zdb -r` takes out of a pool that nobody has open: a terabyte of hole is no terabyte of zeros.
fn taken_out(world: &World) -> Result<(), Failure> {
    const BEHIND: u64 = 1 << 40;
    let file = open(&world.path("mnt/tank/wide"))?;
    file.write_all_at(&[7; PAGE], BEHIND)?;
    file.set_len(BEHIND + (1 << 30))?;
    drop(file);
    world.ok("zpool export tank")?;
    for name in ["m", "wide"] {
        world.ok(&format!("zdb -e -p {{vdevs}} -r tank {name} {{dir}}/out/{name}"))?;
    }
    same("the bytes of m", std::fs::read(world.path("out/m"))?.len(), BYTES)?;
    let out = open(&world.path("out/wide"))?;
    same("length", out.metadata()?.len(), BEHIND + (1 << 30))?;
    same("blocks of 512 bytes below a megabyte", out.metadata()?.blocks() < 2048, true)?;
    let mut page = [0; PAGE];
    out.read_exact_at(&mut page, BEHIND)?;
    same("the page behind the hole", page, [7; PAGE])?;
    world.ok("zpool import -d {vdevs} tank").map(drop)
}

/// Programs that store and look at the same time wait for each other, but not forever, and see what they stored.
fn several(world: &World) -> Result<(), Failure> {
    let path = world.path("mnt/tank/several");
    open(&path)?.set_len(BYTES as u64)?;
    let lane = &|lane: usize| -> Result<(), Failure> {
        let file = open(&path)?;
        let mapped = Mapped::new(&file, BYTES)?;
        for step in 0..4 {
            let at = (4 * lane + step) * RECORD;
            mapped.write(at, &[1; PAGE]);
            same("what was just stored", next(&file, SeekFrom::Data(at as u64))?, Some(at as u64))?;
        }
        Ok(())
    };
    let ended: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..4).map(|number| scope.spawn(move || lane(number).map_err(|error| error.to_string()))).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| Err("a lane failed".into()))).collect()
    });
    ended.into_iter().collect::<Result<(), String>>()?;
    same("in the end", extents(&open(&path)?)?, vec![(0, BYTES as u64)])
}
