//! Damage: devices full of noise, missing devices, devices that are something else.

use crate::world::{Failure, VDEV_BYTES, World, mebibytes, same};
use std::os::unix::fs::FileExt;

fn noise(world: &World, vdev: &str, from: u64, bytes: u64) -> Result<(), Failure> {
    let file = std::fs::OpenOptions::new().write(true).open(world.path(&format!("vdevs/{vdev}")))?;
    let chunk = vec![0xa5_u8; 1 << 20];
    for at in (from..from + bytes).step_by(chunk.len()) {
        file.write_all_at(&chunk, at)?;
    }
    Ok(())
}

/// A device loses its data below the pool: files read, a scrub repairs, `clear` forgets.
pub fn scrub(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?;
    let data = mebibytes(40);
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.ok("zpool export tank")?;
    noise(world, "b", 8 << 20, VDEV_BYTES - (16 << 20))?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("the file with one device full of noise", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    world.ok("zpool scrub -w tank")?;
    let status = world.ok("zpool status tank")?;
    status.shows("scrub repaired")?.shows("errors: No known data errors")?;
    same("counted on the device", status.out.lines().any(|line| line.contains("vdevs/b") && !line.trim_end().ends_with(" 0")), true)?;
    world.ok("zpool clear tank")?;
    let status = world.ok("zpool status tank")?;
    same("forgotten", status.out.lines().any(|line| line.contains("vdevs/b") && line.trim_end().ends_with(" 0")), true)?;
    // Now another device: what was repaired must be whole.
    world.ok("zpool export tank")?;
    noise(world, "c", 8 << 20, VDEV_BYTES - (16 << 20))?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("the file with another device full of noise", std::fs::read(world.path("mnt/tank/file"))? == data, true)
}

/// One device of a mirror away: degraded. A whole stripe device away: refused, by name.
pub fn missing(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d"])?;
    world.ok("zpool create -m {mnt}/tank tank mirror {vdevs}/a {vdevs}/b")?;
    std::fs::write(world.path("mnt/tank/file"), b"kept")?;
    world.ok("zpool export tank")?;
    std::fs::rename(world.path("vdevs/b"), world.path("away"))?;
    world.ok("zpool import -d {vdevs}")?.shows("DEGRADED")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool status tank")?.shows("state: DEGRADED")?.shows("status: One or more devices")?.shows("action:")?;
    same("exit status of -x", world.ok("zpool status -x")?.out.contains("DEGRADED"), true)?;
    same("degraded", std::fs::read(world.path("mnt/tank/file"))?, b"kept".to_vec())?;
    world.ok("zpool destroy tank")?;
    world.ok("zpool create -f -m {mnt}/two two {vdevs}/c {vdevs}/d")?;
    world.ok("zpool export two")?;
    std::fs::rename(world.path("vdevs/d"), world.path("gone"))?;
    world.ok("zpool import -d {vdevs}")?.shows("UNAVAIL")?;
    world.refused("zpool import -d {vdevs} two", 1, "cannot import 'two'")?;
    std::fs::rename(world.path("gone"), world.path("vdevs/d"))?;
    world.ok("zpool import -d {vdevs} two")?;
    Ok(())
}

/// Devices go away and come back while the pool is in use; what they missed is brought to them without being asked for.
pub fn offline(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?;
    let data = mebibytes(20);
    std::fs::write(world.path("mnt/tank/before"), &data)?;
    world.ok("zpool offline tank {vdevs}/b")?.prints("")?;
    world.refused("zpool offline tank {vdevs}/a", 1, "no valid replicas")?;
    world.refused("zpool offline tank nothing", 1, "cannot offline nothing: no such device in pool")?;
    world.refused("zpool online tank nothing", 1, "couldn't find device \"nothing\" in pool \"tank\"")?;
    world.refused("zpool offline nothing {vdevs}/a", 1, "cannot open 'nothing': no such pool")?;
    world.refused("zpool offline tank", 2, "device")?;
    world.ok("zpool status tank")?.shows("state: DEGRADED")?.shows("OFFLINE")?.shows("taken offline by the administrator")?;
    std::fs::write(world.path("mnt/tank/meanwhile"), &data)?;
    // Also through an export: offline is kept, temporary is not.
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool status tank")?.shows("OFFLINE")?;
    world.ok("zpool online tank b")?.prints("")?;
    world.ok("zpool wait -t resilver tank")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?.shows("scan: resilvered ")?.shows(" with 0 errors on ")?;
    // Now another device is not needed.
    world.ok("zpool offline -t tank a")?;
    same("read without another device", std::fs::read(world.path("mnt/tank/meanwhile"))? == data, true)?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool wait tank")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?.hides("OFFLINE")?;
    // A device that is gone stays gone until it is there again.
    world.ok("zpool offline tank c")?;
    std::fs::rename(world.path("vdevs/c"), world.path("away"))?;
    world.ok("zpool online tank c")?.shows("onlined, but remains in faulted state")?.shows("zpool replace")?;
    world.ok("zpool status tank")?.shows("vdevs/c  UNAVAIL")?.shows("cannot open")?.hides("was /")?;
    std::fs::rename(world.path("away"), world.path("vdevs/c"))?;
    world.ok("zpool offline -f tank c")?;
    world.ok("zpool status tank")?.shows("FAULTED")?;
    world.ok("zpool clear tank c")?;
    world.ok("zpool wait tank")?;
    world.ok("zpool status -x")?.prints("all pools are healthy")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("scrub repaired 0B")?.shows("errors: No known data errors")?;
    Ok(())
}

/// A disk becomes a mirror, is replaced, and goes; a broken one is replaced at its place. Nothing is lost on the way.
pub fn replace(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "x", "y", "z"])?;
    std::fs::File::create(world.path("vdevs/small"))?.set_len(65 << 20)?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank {vdevs}/a")?;
    let data = mebibytes(10);
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.refused("zpool attach tank {vdevs}/a {vdevs}/small", 1, "device is too small")?;
    world.refused("zpool attach tank {vdevs}/a {vdevs}/a", 1, "is busy")?;
    world.refused("zpool attach tank nothing {vdevs}/b", 1, "no such device in pool")?;
    world.refused("zpool attach tank {vdevs}/a", 2, "new_device")?;
    world.refused("zpool detach tank {vdevs}/a", 1, "only applicable to mirror and replacing vdevs")?;
    world.ok("zpool attach -w tank {vdevs}/a {vdevs}/b")?.prints("")?;
    world.ok("zpool status tank")?.shows("mirror-0")?.shows("scan: resilvered ")?.shows("state: ONLINE")?;
    world.ok("zpool replace -w tank {vdevs}/a {vdevs}/c")?.prints("")?;
    world.ok("zpool status tank")?.hides("vdevs/a ")?.hides("replacing")?.shows("vdevs/c ")?;
    world.ok("zpool detach tank b")?;
    world.ok("zpool status tank")?.hides("mirror-0")?;
    world.refused("zpool detach tank c", 1, "only applicable to mirror and replacing vdevs")?;
    world.ok("zpool export tank")?;
    noise(world, "a", 0, VDEV_BYTES)?;
    noise(world, "b", 0, VDEV_BYTES)?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("on the third disk", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    // A broken device of a raidz, replaced at its place; another pool's devices are not taken.
    world.ok("zpool create -m {mnt}/z z raidz {vdevs}/x {vdevs}/y {vdevs}/z")?;
    std::fs::write(world.path("mnt/z/file"), &data)?;
    world.refused("zpool attach z {vdevs}/x {vdevs}/d", 1, "can only attach to mirrors and top-level disks")?;
    world.refused("zpool offline z raidz1-0", 1, "name one of its devices")?;
    world.refused("zpool replace z {vdevs}/x {vdevs}/c", 1, "is part of active pool 'tank'")?;
    world.ok("zpool offline z {vdevs}/y")?;
    std::fs::write(world.path("mnt/z/more"), &data)?;
    noise(world, "y", 0, VDEV_BYTES)?;
    world.ok("zpool replace -w z {vdevs}/y")?;
    world.ok("zpool status z")?.shows("state: ONLINE")?.hides("/old")?.shows("with 0 errors")?;
    world.ok("zpool offline z {vdevs}/x")?;
    same("without another one", std::fs::read(world.path("mnt/z/more"))? == data, true)?;
    world.ok("zpool replace z {vdevs}/x {vdevs}/d")?;
    world.ok("zpool wait z")?;
    world.ok("zpool scrub -w z")?;
    world.ok("zpool status z")?.shows("scrub repaired 0B")?.shows("state: ONLINE")?.hides("vdevs/x ")?;
    Ok(())
}

/// Files that are no pools, or broken ones, among the candidates.
pub fn wrong_devices(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "zeros", "noise", "half"])?;
    noise(world, "noise", 0, VDEV_BYTES)?;
    std::fs::write(world.path("vdevs/text"), b"not a device")?;
    std::fs::write(world.path("vdevs/empty"), b"")?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.ok("zpool export tank")?;
    // Both front labels gone: the two at the end are enough.
    noise(world, "a", 0, 1 << 20)?;
    world.ok("zpool import -d {vdevs}")?.shows("pool: tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool export tank")?;
    // All labels gone: there is no pool, and it is said.
    noise(world, "a", 0, 4 << 20)?;
    noise(world, "a", VDEV_BYTES - (1 << 20), 1 << 20)?;
    world.refused("zpool import -d {vdevs} tank", 1, "cannot import 'tank': no such pool available")?;
    world.refused("zpool import -d {vdevs}/nowhere tank", 1, "no such pool available")?;
    Ok(())
}

/// What `zpool scrub` can do with a scan, and what it refuses; damage is named everywhere until it is gone.
pub fn scans(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank mirror {vdevs}/a {vdevs}/b")?;
    world.ok("zpool scrub -p tank")?.says("no active scrub to pause")?;
    world.refused("zpool scrub -s tank", 1, "cannot cancel scrubbing tank: there is no active scrub")?;
    world.refused("zpool scrub -s -p tank", 2, "-s and -p are mutually exclusive")?;
    world.refused("zpool scrub -e -C tank", 2, "-e and -C are mutually exclusive")?;
    world.refused("zpool scrub -w -s tank", 2, "-w cannot be used with -p or -s")?;
    world.ok("zpool scrub -e tank")?;
    world.ok("zpool resilver tank")?;
    let needle = b"a block that will be damaged ".repeat(4096 * 4);
    std::fs::write(world.path("mnt/tank/file"), &needle)?;
    world.ok("zfs snapshot tank@before")?;

    // Held, it can be looked at: it is refused twice, paused, and paused still after an import.
    let hold = world.path("state/sys/module/zfs/parameters/zfs_scan_suspend_progress");
    std::fs::write(&hold, "1")?;
    world.ok("zpool scrub tank")?;
    world.ok("zpool status tank")?.shows("scan: scrub in progress since")?.shows("0.00% done, no estimated completion time")?;
    world.refused("zpool scrub tank", 1, "currently scrubbing; use 'zpool scrub -s' to cancel scrub")?;
    world.ok("zpool scrub -p tank")?;
    world.refused("zpool scrub -p tank", 1, "scrub is paused; use 'zpool scrub' to resume scrub")?;
    world.refused("zpool scrub -e tank", 1, "use 'zpool scrub' to resume or 'zpool scrub -s' to cancel scrub")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool status tank")?.shows("scan: scrub paused since")?.shows("scrub started on")?;
    world.ok("zpool scrub -s tank")?;
    world.ok("zpool status tank")?.shows("scan: scrub canceled on")?;
    std::fs::write(&hold, "0")?;

    world.ok("zpool export tank")?;
    for vdev in ["a", "b"] {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(world.path(&format!("vdevs/{vdev}")))?;
        let mut bytes = vec![0; VDEV_BYTES as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let at = bytes.windows(64).step_by(512).position(|window| needle.starts_with(window)).ok_or("the file is on the device")?;
        file.write_all_at(&[0x5a; 64], at as u64 * 512)?;
    }
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool scrub -w tank")?;
    let status = world.ok("zpool status -v tank")?;
    status.shows("with 1 errors on")?.shows("Permanent errors have been detected")?.shows("tank@before:/file")?.shows("mnt/tank/file")?;
    world.ok("zpool scrub -e -w tank")?;
    world.ok("zpool status tank")?.shows(" scrub: scrubbed 1 error blocks in 0 days 00:00:0")?;
    world.ok("zpool status -j tank")?.shows("err_scrub_examined")?;
    std::fs::remove_file(world.path("mnt/tank/file"))?;
    world.ok("zpool sync tank")?;
    world.ok("zpool status -v tank")?.shows("tank@before:/file")?.hides("mnt/tank/file")?;
    world.ok("zfs destroy tank@before")?;
    world.ok("zpool sync tank")?;
    world.ok("zpool status tank")?.shows("errors: No known data errors")?;
    world.ok("zpool scrub -C -w tank")?;
    same(
        "a txg was noted",
        world.ok("zpool get -H -o value last_scrubbed_txg tank")?.out.trim().parse::<u64>().is_ok_and(|txg| txg > 0),
        true,
    )?;
    world.ok("zpool status tank")?.shows("scan: scrub repaired 0B").map(|_| ())
}

/// A device that is replaced while another is resilvered waits for the next resilver, through an import too, or for nobody.
pub fn deferred(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "x", "y", "z"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank raidz2 {vdevs}/a {vdevs}/b {vdevs}/c {vdevs}/d")?;
    let data = mebibytes(10);
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    let set = |name: &str, value: &str| std::fs::write(world.path(&format!("state/sys/module/zfs/parameters/{name}")), value);
    set("zfs_scan_suspend_progress", "1")?;
    set("zfs_resilver_defer_percent", "0")?;
    world.ok("zpool replace tank {vdevs}/a {vdevs}/x")?;
    world.ok("zpool status tank")?.shows("(resilvering)")?.hides("awaiting")?;
    world.ok("zpool replace tank {vdevs}/b {vdevs}/y")?;
    world.ok("zpool status tank")?.shows("(resilvering)")?.shows("  (awaiting resilver)\n")?;
    world.ok("zpool status -j tank")?.shows("\"resilver_deferred\":\"1\"")?;
    world.ok("zpool get -H -o value feature@resilver_defer tank")?.prints("active")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool status tank")?.shows("resilver in progress")?.shows("  (awaiting resilver)\n")?;
    set("zfs_scan_suspend_progress", "0")?;
    world.ok("zpool wait -t resilver tank")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?.hides("awaiting")?.hides("replacing")?.hides("vdevs/a ")?.hides("vdevs/b ")?;
    world.ok("zpool history -i tank")?.shows("starting deferred resilver")?;
    world.ok("zpool get -H -o value feature@resilver_defer tank")?.prints("enabled")?;
    // Told to, the one that runs begins again with all.
    set("zfs_scan_suspend_progress", "1")?;
    world.ok("zpool replace tank {vdevs}/c {vdevs}/z")?;
    world.ok("zpool offline tank x")?;
    std::fs::write(world.path("mnt/tank/more"), &data)?;
    world.ok("zpool online tank x")?;
    world.ok("zpool status tank")?.shows("  (awaiting resilver)\n")?;
    world.ok("zpool resilver tank")?;
    world.ok("zpool status tank")?.shows("(resilvering)")?.hides("awaiting")?;
    set("zfs_scan_suspend_progress", "0")?;
    world.ok("zpool wait tank")?;
    world.ok("zpool offline tank z")?;
    world.ok("zpool offline tank d")?;
    same("on those that waited", std::fs::read(world.path("mnt/tank/more"))? == data, true)
}
