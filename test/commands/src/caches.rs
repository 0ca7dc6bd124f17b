//! Cache devices, as users meet them: they come, serve, fail, go offline and leave, and no file is ever other than it was written.

use crate::world::{Failure, World, judge, mebibytes, same};
use std::io::Read;
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
    std::fs::rename(world.path("vdevs/c"), world.path("away"))?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("while it is away", state(world)?, "UNAVAIL".to_string())?;
    std::fs::rename(world.path("vdevs/d"), world.path("vdevs/c"))?;
    world.ok("zpool reopen tank")?;
    same("while another is there", state(world)?, "UNAVAIL".to_string())?;
    std::fs::rename(world.path("away"), world.path("vdevs/c"))?;
    world.ok("zpool reopen tank")?;
    same("once it is back", state(world)?, "ONLINE".to_string())?;
    same("the file", read(world)? == file, true)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("errors: No known data errors").map(drop)
}

/// Waits until a daemon has the pool open, and has statistics.
fn back(world: &World) -> Result<(), Failure> {
    let start = Instant::now();
    while world.run("zpool list tank")?.code != 0 || arcstat(world, "size").is_err() {
        if start.elapsed() > PATIENCE {
            return Err("      no daemon has the pool".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Number of log blocks that a `zdb` finds on a device.
fn log_blocks(world: &World, zdb: &str, device: &str) -> Result<u64, Failure> {
    world.ok(&format!("{zdb} -lllq {device}"))?;
    let told = world.ok(&format!("{zdb} -l {device}"))?;
    let line = told.out.lines().find(|line| line.starts_with("log_blk_count:"));
    let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    count.ok_or_else(|| told.fault("it tells no number of log blocks"))
}

/// A file that anybody may read on the devices, and one that is encrypted.
struct Files {
    plain: Vec<u8>,
    secret: Vec<u8>,
}

impl Files {
    /// Makes the pool with both files, and a cache device that is large enough to say itself what it holds.
    fn make(world: &World) -> Result<Files, Failure> {
        world.vdevs(&["a", "b"])?;
        std::fs::File::create(world.path("vdevs/c"))?.set_len(1100 << 20)?;
        std::fs::write(world.path("key"), [7u8; 32])?;
        world.ok("zpool create -m {mnt}/tank -O compression=off -O recordsize=16k tank mirror {vdevs}/a {vdevs}/b cache {vdevs}/c")?;
        world.ok("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://{dir}/key tank/e")?;
        let plain = mebibytes(8);
        let secret = plain.iter().map(|byte| !byte).collect();
        let files = Files { plain, secret };
        std::fs::write(world.path("mnt/tank/file"), &files.plain)?;
        std::fs::write(world.path("mnt/tank/e/file"), &files.secret)?;
        world.ok("zpool sync tank")?;
        Ok(files)
    }

    /// Reads both past what is in memory; the number of blocks that came from the cache device.
    fn read(&self, world: &World) -> Result<u64, Failure> {
        let before = arcstat(world, "l2_hits")?;
        world.ok("zfs unmount tank/e")?;
        world.ok("zfs unmount tank")?;
        world.ok("zinject -a")?;
        world.ok("zfs mount tank")?;
        world.ok("zfs mount tank/e")?;
        same("the file", std::fs::read(world.path("mnt/tank/file"))? == self.plain, true)?;
        same("the encrypted file", std::fs::read(world.path("mnt/tank/e/file"))? == self.secret, true)?;
        Ok(arcstat(world, "l2_hits")? - before)
    }

    /// Fails unless the cache device has text of the one, and none of the other.
    fn look(&self, world: &World) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        std::fs::File::open(world.path("vdevs/c"))?.take(64 << 20).read_to_end(&mut bytes)?;
        let has = |text: &[u8]| bytes.chunks_exact(512).any(|sector| sector.starts_with(&text[3 << 20..][..64]));
        same("plain text on the device: of the one file and of the other", (has(&self.plain), has(&self.secret)), (true, false))
    }
}

/// Loads the key of the encrypted file system, and mounts it.
fn unlock(world: &World) -> Result<(), Failure> {
    world.ok("zfs load-key tank/e")?;
    world.ok("zfs mount tank/e").map(drop)
}

/// If this fails, each export and each death of a daemon costs a warm cache device, what is encrypted gains nothing from one, or one that moved is lost.
pub fn persist(world: &World) -> Result<(), Failure> {
    let files = Files::make(world)?;
    files.read(world)?;
    until(world, "l2_asize", 15 << 20)?;
    world.ok("zpool export tank")?;
    same("counters after an export", arcstat(world, "l2_feeds")? > 0 && arcstat(world, "l2_asize")? == 0, true)?;
    files.look(world)?;
    let logs = log_blocks(world, "zdb", "{vdevs}/c")?;
    same("log blocks", logs > 10, true)?;
    same("log blocks that OpenZFS finds", log_blocks(world, &judge("cache devices: OpenZFS's judgement")?, "{vdevs}/c")?, logs)?;

    std::fs::rename(world.path("vdevs/c"), world.path("vdevs/moved"))?;
    let before = arcstat(world, "l2_rebuild_log_blks")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool status tank")?.shows("vdevs/moved")?.hides("UNAVAIL")?;
    until(world, "l2_rebuild_log_blks", before + logs)?;
    unlock(world)?;
    same("most blocks come from the device", files.read(world)? > 900, true)?;
    same("wrong bytes", (arcstat(world, "l2_cksum_bad")?, arcstat(world, "l2_rebuild_cksum_lb_errors")?), (0, 0))?;

    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    back(world)?;
    until(world, "l2_rebuild_log_blks", logs)?;
    unlock(world)?;
    same("most blocks come from the device", files.read(world)? > 900, true)?;
    world.ok("zpool offline tank {vdevs}/moved")?;
    same("what is known of a device that is offline", arcstat(world, "l2_size")? > 0, true)?;
    let before = arcstat(world, "l2_rebuild_log_blks")?;
    world.ok("zpool online tank {vdevs}/moved")?;
    until(world, "l2_rebuild_log_blks", before + logs)?;
    world.ok("zpool export tank")?;

    world.ok("zpool list")?;
    std::fs::write(world.path("state/sys/module/zfs/parameters/l2arc_rebuild_enabled"), "0")?;
    let before = arcstat(world, "l2_rebuild_log_blks")?;
    world.ok("zpool import -d {vdevs} tank")?;
    unlock(world)?;
    files.read(world)?;
    same("log blocks that nobody wants", arcstat(world, "l2_rebuild_log_blks")?, before)?;
    world.ok("zpool export tank").map(drop)
}
