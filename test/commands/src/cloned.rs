//! Copies that share blocks with what they were copied from, as programs make them and users see them.

use crate::world::{Failure, World, judge, same};
use std::fs::File;
use std::os::unix::fs::FileExt;

const RECORD: usize = 128 << 10;
const BYTES: usize = 20 * RECORD + 77;

/// Copies a file as programs do that know copy_file_range(2).
fn copy(world: &World, from: &str, to: &str) -> Result<(), Failure> {
    let source = File::open(world.path(from))?;
    let target = File::options().write(true).create(true).truncate(true).open(world.path(to))?;
    while rustix::fs::copy_file_range(&source, None, &target, None, 1 << 40)? > 0 {}
    Ok(())
}

/// Bytes of a property of the pool.
fn bytes(world: &World, property: &str) -> Result<u64, Failure> {
    Ok(world.ok(&format!("zpool get -Hp -o value {property} tank"))?.out.trim().parse()?)
}

/// If this fails, a copy is no copy, takes the space of one where it need not, or is lost with what it was copied from.
pub fn copies(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O compression=off -m {mnt}/tank tank {vdevs}/a")?;
    let contents: Vec<u8> = (0..BYTES).map(|at| (at / RECORD + at % 251) as u8).collect();
    std::fs::write(world.path("mnt/tank/from"), &contents)?;
    world.ok("zpool sync tank")?;
    copy(world, "mnt/tank/from", "mnt/tank/copy")?;
    world.ok("zpool sync tank")?;
    let blocks = (BYTES.div_ceil(RECORD) * RECORD) as u64;
    same("space that is shared, and saved", (bytes(world, "bcloneused")?, bytes(world, "bclonesaved")?), (blocks, blocks))?;
    world.ok("zpool get -H -o value bcloneratio tank")?.prints("2.00x")?;
    let is = |file: &str, wanted: &[u8]| Ok::<bool, Failure>(std::fs::read(world.path(file))? == wanted);
    same("the copy", is("mnt/tank/copy", &contents)?, true)?;
    // A part of a block of the copy is its own from now on.
    let mut changed = contents.clone();
    changed[3 * RECORD + 5..][..100].fill(b'x');
    File::options().write(true).open(world.path("mnt/tank/copy"))?.write_all_at(&[b'x'; 100], 3 * RECORD as u64 + 5)?;
    same("what was copied from", (is("mnt/tank/from", &contents)?, is("mnt/tank/copy", &changed)?), (true, true))?;
    world.ok("zfs snapshot tank@before")?;
    std::fs::remove_file(world.path("mnt/tank/from"))?;
    world.ok("zpool export tank")?;
    let zdb = judge("shared blocks: OpenZFS's judgement")?;
    world.clean(&zdb, "-e -p {vdevs} -bcch tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("the copy without its source", is("mnt/tank/copy", &changed)?, true)?;
    world.ok("zfs destroy tank@before")?;
    world.ok("zpool sync tank")?;
    same("shared by one", bytes(world, "bclonesaved")?, 0)?;
    world.ok("zpool get -H -o value feature@block_cloning tank")?.prints("enabled")?;
    same("the copy alone", is("mnt/tank/copy", &changed)?, true)?;
    // What is not on disk yet is copied.
    std::fs::write(world.path("mnt/tank/fresh"), &changed)?;
    copy(world, "mnt/tank/fresh", "mnt/tank/early")?;
    same("the copy of what was just written", is("mnt/tank/early", &changed)?, true)
}
