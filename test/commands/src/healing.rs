//! `zfs receive -c`: a damaged block of the only disk comes back from a stream that has it.

use crate::receives::{full, received, refused};
use crate::world::{Failure, World};
use std::os::unix::fs::FileExt;

/// Bytes of a block of the volumes.
const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;
/// Byte that the block is filled with.
const FILL: u8 = 0x6B;

/// Changes a byte in each sector of the block on a disk.
fn damage(disk: &str) -> Result<(), Failure> {
    let bytes = std::fs::read(disk)?;
    let file = std::fs::OpenOptions::new().write(true).open(disk)?;
    let mut damaged = 0;
    for (sector, _) in bytes.chunks_exact(SECTOR_BYTES).enumerate().filter(|(_, sector)| sector.iter().all(|byte| *byte == FILL)) {
        file.write_all_at(&[0], (sector * SECTOR_BYTES + 9) as u64)?;
        damaged += 1;
    }
    if damaged < BLOCK_BYTES / SECTOR_BYTES {
        return Err(format!("{damaged} sectors of the block were found on the disk").into());
    }
    Ok(())
}

/// What was damaged is healed by the stream of its snapshot, and by no other; a scrub finds nothing then.
pub fn healing(world: &World) -> Result<(), Failure> {
    let disk = world.vdevs(&["a"])?.remove(0);
    world.ok("zpool create -O mountpoint=none -O compression=off tank {vdevs}/a")?;
    let stream = full("far/v@one", 0x1111, FILL);
    received(world, "receive tank/v", &stream)?;
    world.ok("zpool export tank")?;
    damage(&disk)?;
    world.ok("zpool import -d {vdevs} tank")?;
    refused(world, "receive -c tank/v", &full("far/v@one", 0x2222, FILL), "cannot receive corrective stream: invalid backup stream")?;
    let why = "cannot receive corrective stream: corrective receive was not able to reconstruct the data needed for healing.";
    refused(world, "receive -c tank/v", &full("far/v@one", 0x1111, FILL + 1), why)?;
    received(world, "receive -nvc tank/v@one", &stream)?.shows("would receive corrective stream of far/v@one into tank/v@one")?;
    received(world, "receive -vc tank/v@one", &stream)?.shows("healed 1 blocks, 4096 bytes")?;
    received(world, "receive -vc tank/v", &stream)?.shows("healed 0 blocks")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("repaired 0B")?.shows("with 0 errors")?;
    let told = world.run("zfs receive -c -s tank/v")?;
    told.says("-c").map(drop)
}
