//! Cache devices, as users meet them: they come, serve, fail, go offline and leave, and no file is ever other than it was written.

use crate::world::{Failure, World, mebibytes, same};
use std::time::{Duration, Instant};

/// Time within which the daemon does what it does by itself.
const PATIENCE: Duration = Duration::from_secs(30);

fn arcstat(world: &World, name: &str) -> Result<u64, Failure> {
    let text = std::fs::read_to_string(world.path("state/proc/spl/kstat/zfs/arcstats"))?;
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    let value = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    Ok(value.ok_or_else(|| format!("arcstats have no '{name}'"))?)
}

/// Waits until a counter is large enough.
fn until(world: &World, name: &str, least: u64) -> Result<(), Failure> {
    let start = Instant::now();
    while arcstat(world, name)? < least {
        if start.elapsed() > PATIENCE {
            return Err(format!("{name} stays at {}, below {least}", arcstat(world, name)?).into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Reads the file past what the daemon, and the kernel, have in memory.
fn read(world: &World) -> Result<Vec<u8>, Failure> {
    world.ok("zfs unmount tank")?;
    world.ok("zinject -a")?;
    world.ok("zfs mount tank")?;
    Ok(std::fs::read(world.path("mnt/tank/file"))?)
}

/// State of the cache device, as a user reads it.
fn state(world: &World) -> Result<String, Failure> {
    let status = world.ok("zpool status tank")?;
    let line = status.shows(" state: ONLINE")?.out.lines().find(|line| line.contains("vdevs/c "));
    Ok(line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default().to_string())
}

/// A pool with a cache device that has the blocks of a file.
fn warm(world: &World) -> Result<Vec<u8>, Failure> {
    world.vdevs(&["a", "b", "c", "d"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank mirror {vdevs}/a {vdevs}/b cache {vdevs}/c")?;
    let file = mebibytes(8);
    std::fs::write(world.path("mnt/tank/file"), &file)?;
    world.ok("zpool sync tank")?;
    until(world, "l2_asize", 8 << 20)?;
    Ok(file)
}

/// If this fails, a cache device is there and serves nobody, or is not shown as OpenZFS shows it.
pub fn serve(world: &World) -> Result<(), Failure> {
    let file = warm(world)?;
    let hits = arcstat(world, "l2_hits")?;
    same("the file", read(world)? == file, true)?;
    same("reads from the cache device", arcstat(world, "l2_hits")? > hits, true)?;
    world.ok("zpool status tank")?.shows("\tcache\n")?;
    same("its state", state(world)?, "ONLINE".to_string())?;
    world.ok("zpool list -v tank")?.shows("cache")?.shows("vdevs/c")?;
    world.ok("zpool iostat -v tank")?.shows("\ncache ")?;
    world.ok("zpool status -j tank")?.shows("\"class\":\"l2cache\"")?;
    // Others cannot have it, and it is none of the pool's leaves.
    world.refused("zpool add -f tank cache {vdevs}/c", 1, "is part of active pool 'tank'")?;
    world.refused("zpool create -f two {vdevs}/c", 1, "is part of active pool 'tank'")?;
    world.refused("zpool attach tank {vdevs}/c {vdevs}/d", 1, "device is in use as a cache")?;
    world.refused("zpool replace tank {vdevs}/c {vdevs}/d", 1, "device is in use as a cache")?;
    world.refused("zpool detach tank {vdevs}/c", 1, "device is in use as a cache")?;
    world.refused("zpool labelclear -f {vdevs}/c", 1, "tank")?;
    world.refused("zpool add tank cache mirror {vdevs}/d {vdevs}/c", 1, "unsupported 'cache' device: mirror")?;
    world.ok("zfs set secondarycache=none tank")?.hides("without effect")?;
    world.ok("zpool remove tank {vdevs}/c")?;
    world.ok("zpool status tank")?.hides("\tcache\n")?;
    same("what it had", (arcstat(world, "l2_asize")?, arcstat(world, "l2_hdr_size")?), (0, 0))?;
    world.ok("zpool create two {vdevs}/c")?;
    world.ok("zpool destroy two")?;
    same("the file", read(world)? == file, true)
}

/// If this fails, a cache device that fails or is pulled out takes files with it, or the pool.
pub fn fail(world: &World) -> Result<(), Failure> {
    let file = warm(world)?;
    world.ok("zinject -d {vdevs}/c -e io -T read tank")?;
    same("the file", read(world)? == file, true)?;
    same("reads that failed", arcstat(world, "l2_io_error")? > 0, true)?;
    world.ok("zinject -c all")?;
    world.ok("zpool clear tank")?;
    world.ok("zpool status tank")?.shows("errors: No known data errors")?;
    same("after 'zpool clear'", state(world)?, "ONLINE".to_string())?;
    // Bytes that nobody wrote there.
    until(world, "l2_asize", 8 << 20)?;
    world.ok("zinject -d {vdevs}/c -e corrupt -T read -f 100 tank")?;
    same("the file", read(world)? == file, true)?;
    same("wrong bytes that were noticed", arcstat(world, "l2_cksum_bad")? > 0, true)?;
    world.ok("zinject -c all")?;
    world.ok("zpool offline tank {vdevs}/c")?;
    same("after 'zpool offline'", state(world)?, "OFFLINE".to_string())?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("through an import", state(world)?, "OFFLINE".to_string())?;
    world.ok("zpool online tank {vdevs}/c")?.prints("")?;
    same("after 'zpool online'", state(world)?, "ONLINE".to_string())?;
    // Away, and another one at its place.
    world.ok("zpool export tank")?;
    std::fs::rename(world.path("vdevs/c"), world.path("vdevs/away"))?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("while it is away", state(world)?, "UNAVAIL".to_string())?;
    std::fs::rename(world.path("vdevs/d"), world.path("vdevs/c"))?;
    world.ok("zpool reopen tank")?;
    same("while another is there", state(world)?, "UNAVAIL".to_string())?;
    std::fs::rename(world.path("vdevs/away"), world.path("vdevs/c"))?;
    world.ok("zpool reopen tank")?;
    same("once it is back", state(world)?, "ONLINE".to_string())?;
    same("the file", read(world)? == file, true)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("errors: No known data errors").map(drop)
}
