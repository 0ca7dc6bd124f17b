//! What the kernel keeps of attributes and names, and must not show any more once it changed without the kernel's doing: the blocks that a
//! sync gives a file, the time that an ioctl changes, a name that a property brings.

use crate::world::{Failure, World, same};
use rustix::fs::IFlags;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FILES: usize = 300;
const BYTES: usize = 64 << 10;

fn blocks(path: &Path) -> Result<u64, Failure> {
    // Twice: the second answer is the kernel's.
    path.symlink_metadata()?;
    Ok(path.symlink_metadata()?.blocks())
}

/// Looks, changes behind the kernel's back, and looks again.
pub fn kept(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O compression=off -m {mnt}/tank tank {vdevs}/a")?;
    let place = world.path("mnt/tank");
    let paths: Vec<_> = (0..FILES).map(|number| place.join(format!("f{number}"))).collect();
    let whole = (BYTES / 512) as u64;
    for path in &paths {
        File::create(path)?.write_all(&[b'x'; BYTES])?;
        same("blocks before a sync", blocks(path)? < whole, true)?;
    }
    world.ok("zpool sync tank")?;
    for path in &paths {
        same("all blocks after a sync", blocks(path)? >= whole, true)?;
    }
    let synced = place.join("synced");
    let mut file = File::create(&synced)?;
    file.write_all(&[b'y'; BYTES])?;
    same("blocks of an open file before a sync", blocks(&synced)? < whole, true)?;
    world.ok("zpool sync tank")?;
    same("all blocks of an open file after a sync", file.metadata()?.blocks() >= whole, true)?;
    let before = synced.metadata()?;
    rustix::fs::ioctl_setflags(&file, rustix::fs::ioctl_getflags(&file)? | IFlags::NODUMP)?;
    let after = synced.metadata()?;
    same("a flag changes ctime", (after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()), true)?;
    let missing = place.join("missing");
    same("no name", (missing.exists(), missing.exists()), (false, false))?;
    File::create(&missing)?;
    same("the name is there", missing.exists(), true)?;
    std::fs::rename(&missing, place.join("moved"))?;
    same("it is gone, and elsewhere", (missing.exists(), place.join("moved").exists()), (false, true))?;
    let control = place.join(".zfs");
    world.ok("zfs set snapdir=disabled tank")?;
    same("no .zfs", (control.exists(), control.exists()), (false, false))?;
    world.ok("zfs set snapdir=hidden tank")?;
    same(".zfs is back", control.exists(), true)?;
    drop(file);
    world.ok("zpool destroy tank").map(drop)
}
