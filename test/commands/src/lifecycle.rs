//! Vdevs and spares that join and leave, devices that grow, fail and come back, as users meet them.

use crate::world::{Failure, VDEV_BYTES, World, mebibytes, same};
use std::io::Write;
use std::time::{Duration, Instant};

/// Time within which the daemon does what it does by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a command shows something.
fn until(world: &World, line: &str, text: &str) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let ran = world.ok(line)?;
        if ran.out.contains(text) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(ran.fault(format!("'{text}' does not come")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// If this fails, a script sees a pool that is on its way out, and fails when it then uses it.
pub fn departures(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zinject -P export -s 3 tank")?;
    let export = world.start("zpool export tank", PATIENCE)?;
    // Unmounted means: beyond the point at which it could still be refused.
    let is_mounted = || Ok::<_, Failure>(std::fs::read_to_string("/proc/self/mountinfo")?.contains(&world.at("mnt/tank ")));
    let start = Instant::now();
    while is_mounted()? && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    // All pools are listed at once, those that are named when they are gone.
    world.ok("zpool list")?.shows("tank")?;
    world.refused("zpool get name tank", 1, "no such pool")?;
    let (export, _) = export.finish()?;
    same("exit status of the export", export.code, 0)?;
    world.ok("zpool import -d {vdevs} tank")?;
    Ok(())
}

/// What was wrong is not said any more once the devices are back, also of an intent log that nobody has written since.
fn healthy_again(world: &World) -> Result<(), Failure> {
    world.vdevs(&["once"])?;
    world.ok("zpool create -m {mnt}/once once {vdevs}/once")?;
    let mut file = std::fs::File::create(world.path("mnt/once/file"))?;
    let mut write = move || file.write_all(b"durable").and_then(|()| file.sync_all());
    // The log begins with the first of them.
    for _ in 0..3 {
        write()?;
    }
    world.ok("zinject -d {vdevs}/once -e io -T write once")?;
    let writer = std::thread::spawn(write);
    until(world, "zpool status once", "state: SUSPENDED")?;
    world.ok("zinject -c all")?;
    world.ok("zpool clear once")?;
    same("whether fsync came to its end", writer.join().is_ok_and(|synced| synced.is_ok()), true)?;
    // Its device may be resilvered first, for a moment: what could not be written to it was missing.
    until(world, "zpool status -x once", "pool 'once' is healthy")?;
    world.ok("zpool destroy once").map(drop)
}

/// If this fails, a device that holds nothing takes its pool down, or keeps it closed for good.
pub fn logs(world: &World) -> Result<(), Failure> {
    healthy_again(world)?;
    world.vdevs(&["a", "l"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a log {vdevs}/l")?;
    world.ok("zinject -d {vdevs}/l -e io tank")?;
    std::fs::write(world.path("mnt/tank/file"), b"through its errors")?;
    world.ok("zpool sync tank")?;
    world.ok("zpool list -H -o health tank")?.hides("SUSPENDED")?.hides("UNAVAIL")?;
    world.ok("zinject -c all")?;
    world.ok("zpool clear tank")?;
    world.ok("zpool offline tank {vdevs}/l")?;
    for options in ["", "-o readonly=on", ""] {
        world.ok("zpool list -H -o health tank")?.prints("DEGRADED")?;
        world.ok("zpool export tank")?;
        world.ok(&format!("zpool import -d {{vdevs}} {options} tank"))?;
        same("the file", std::fs::read(world.path("mnt/tank/file"))?, b"through its errors".to_vec())?;
    }
    world.ok("zpool online tank {vdevs}/l")?;
    world.ok("zpool list -H -o health tank")?.prints("ONLINE").map(drop)
}

/// A pool gets vdevs, a log and spares; what does not fit is refused as OpenZFS refuses it, and what can go, goes.
pub fn add_and_remove(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "e", "s", "t", "log", "x"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank mirror {vdevs}/a {vdevs}/b")?;
    let file = mebibytes(10);
    std::fs::write(world.path("mnt/tank/file"), &file)?;
    world.refused("zpool add", 2, "missing pool name argument")?;
    world.refused("zpool add tank", 2, "missing vdev specification")?;
    world.refused("zpool add nothing {vdevs}/c", 1, "cannot open 'nothing': no such pool")?;
    let refused = world.refused("zpool add tank {vdevs}/c", 1, "use '-f' to override the following errors:")?;
    refused.says("mismatched replication level: pool uses mirror and new vdev is file")?;
    world.refused("zpool add tank raidz2 {vdevs}/c {vdevs}/d {vdevs}/e", 1, "raidz and mirror vdevs, 2 vs. 1 (2-way)")?;
    world.refused("zpool add -f --allow-in-use tank {vdevs}/c", 2, "'-f' option is not allowed with")?;
    world.refused("zpool add -f tank {vdevs}/b", 1, "is part of active pool 'tank'")?;
    world.refused("zpool add -o ashift=12 tank mirror {vdevs}/c {vdevs}/d", 1, "different physical sector sizes is not allowed")?;
    let dry = world.ok("zpool add -n tank mirror {vdevs}/c {vdevs}/d spare {vdevs}/s")?;
    dry.shows("would update 'tank' to the following configuration:")?
        .shows("\t  mirror-0\n")?
        .shows("\t  mirror\n")?
        .shows("\tspares\n")?;
    world.ok("zpool status tank")?.hides("mirror-1")?.hides("spares")?;
    world.ok("zpool add tank mirror {vdevs}/c {vdevs}/d log {vdevs}/log spare {vdevs}/s {vdevs}/t")?.prints("")?;
    let status = world.ok("zpool status tank")?;
    status.shows("mirror-1")?.shows("\tlogs\t\n")?.shows("\tspares\n")?.shows("AVAIL")?.shows("state: ONLINE")?;
    world.ok("zpool list -v tank")?.shows("mirror-1")?.shows("logs")?.shows("spare")?;
    world.ok("zpool status -j tank")?.shows("\"logs\"")?.shows("\"spares\"")?;
    std::fs::write(world.path("mnt/tank/more"), &file)?;
    world.ok("zpool sync tank")?;
    let used = world.ok("zpool list -vHp tank")?;
    let second = used.out.lines().find(|line| line.contains("mirror-1")).and_then(|line| line.split('\t').nth(3)).unwrap_or_default();
    same("blocks on the new mirror", second.parse::<u64>().unwrap_or(0) > 1 << 20, true)?;
    // Spares are spares.
    world.refused("zpool add -f tank {vdevs}/s", 1, "is reserved as a hot spare for pool tank")?;
    world.refused("zpool create -f two {vdevs}/s", 1, "is reserved as a hot spare for pool tank")?;
    world.refused("zpool offline tank {vdevs}/s", 1, "device is reserved as a hot spare")?;
    world.refused("zpool detach tank s", 1, "device is reserved as a hot spare")?;
    world.refused("zpool attach tank {vdevs}/a {vdevs}/s", 1, "is busy")?;
    world.refused("zpool labelclear -f {vdevs}/s", 1, "tank")?;
    // Through an import.
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool status tank")?.shows("mirror-1")?.shows("AVAIL")?;
    same("the file", std::fs::read(world.path("mnt/tank/more"))? == file, true)?;
    world.refused("zpool remove tank", 2, "missing device")?;
    world.refused("zpool remove tank nothing", 1, "cannot remove nothing: no such device in pool")?;
    world.ok("zpool remove -n tank mirror-1")?.shows("Memory that will be used after removing mirror-1: ")?;
    world.refused("zpool remove tank {vdevs}/a", 1, "operation not supported on this type of pool")?;
    world.refused("zpool remove -s tank", 1, "cannot cancel removal: operation is not in progress")?;
    world.ok("zpool remove -ns tank")?.says("stop request ignored")?;
    world.ok("zpool remove -n tank log")?.prints("Memory that will be used after removing log: 0")?;
    world.ok("zpool remove -np tank s")?.prints("s 0")?;
    world.ok("zpool remove -w tank {vdevs}/s log")?.prints("")?;
    world.ok("zpool status tank")?.hides("logs")?.hides("vdevs/s ")?.shows("vdevs/t ")?.shows("mirror-1")?;
    world.ok("zpool create two {vdevs}/s log {vdevs}/log spare {vdevs}/x")?;
    world.ok("zpool status two")?.shows("logs")?.shows("AVAIL")?;
    world.ok("zpool destroy two")?;
    world.ok("zpool history -i tank")?.shows("zpool add tank mirror")?.shows("vdev remove")?;
    world.ok("zpool events")?.shows("sysevent.fs.zfs.vdev_add")?.shows("sysevent.fs.zfs.vdev_remove_aux")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("scrub repaired 0B")?.shows("errors: No known data errors")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == file, true)
}

/// A device fails and a spare takes its place without being asked; then every way out of that.
pub fn spares(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "e", "s", "m", "n"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank raidz {vdevs}/a {vdevs}/b {vdevs}/c spare {vdevs}/s")?;
    let file = mebibytes(10);
    std::fs::write(world.path("mnt/tank/file"), &file)?;
    // Taken offline by hand: nobody replaces that.
    world.ok("zpool offline tank a")?;
    std::thread::sleep(Duration::from_secs(1));
    world.ok("zpool status tank")?.shows("AVAIL")?.hides("spare-")?;
    world.ok("zpool online tank a")?;
    world.ok("zpool wait -t resilver tank")?;
    // Failed: the spare stands in. Who says that it failed may have something else in mind first.
    let hold = world.path("state/sys/module/zfs/parameters/zirconia_spare_hold_ms");
    std::fs::write(&hold, "3600000")?;
    world.ok("zpool offline -f tank b")?;
    std::thread::sleep(Duration::from_secs(1));
    world.ok("zpool status tank")?.shows("AVAIL")?.hides("spare-")?;
    std::fs::write(&hold, "0")?;
    until(world, "zpool status tank", "INUSE")?;
    world.ok("zpool wait -t resilver tank")?;
    world.ok("zpool wait -t replace tank")?;
    let status = world.ok("zpool status tank")?;
    status.shows("spare-1")?.shows("currently in use")?.shows("FAULTED")?.shows("state: DEGRADED")?.shows("scan: resilvered")?;
    world.refused("zpool remove tank s", 1, "cannot remove s: Pool busy")?;
    world.ok("zpool offline tank a")?;
    same("without another one", std::fs::read(world.path("mnt/tank/file"))? == file, true)?;
    world.ok("zpool online tank a")?;
    // Another pool shares the spare and can't have it now.
    world.ok("zpool create two mirror {vdevs}/m {vdevs}/n")?;
    world.ok("zpool add two spare {vdevs}/s")?;
    world.ok("zpool status two")?.shows("in use by pool 'tank'")?;
    world.refused("zpool replace two {vdevs}/m {vdevs}/s", 1, "is busy")?;
    world.refused("zpool export tank", 1, "'tank' has an active shared spare which could be used by other pools")?;
    // Cleared: what was missed is brought, then the spare goes by itself.
    world.ok("zpool clear tank b")?;
    until(world, "zpool status tank", "AVAIL")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?.hides("spare-")?;
    world.ok("zpool status two")?.shows("AVAIL")?;
    world.ok("zpool replace -w two {vdevs}/m {vdevs}/s")?;
    world.ok("zpool status tank")?.shows("in use by pool 'two'")?;
    world.ok("zpool detach two s")?;
    world.ok("zpool destroy two")?;
    // Detached: the spare is a device for good.
    world.ok("zpool offline -f tank b")?;
    until(world, "zpool status tank", "INUSE")?;
    world.ok("zpool wait tank")?;
    world.ok("zpool detach tank b")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?.hides("spares")?.hides("vdevs/b ")?.shows("vdevs/s ")?;
    // Replaced: the spare is free.
    world.ok("zpool add tank spare {vdevs}/d")?;
    world.ok("zpool offline -f tank c")?;
    until(world, "zpool status tank", "INUSE")?;
    world.ok("zpool wait tank")?;
    // What is out of use can be made anew.
    world.refused("zpool labelclear {vdevs}/c", 1, "is a member of pool 'tank'")?;
    world.refused("zpool labelclear -f {vdevs}/a", 1, "is a member of pool 'tank'")?;
    world.ok("zpool labelclear -f {vdevs}/c")?;
    world.ok("zpool replace -w tank c {vdevs}/e")?;
    until(world, "zpool status tank", "AVAIL")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?.hides("vdevs/c ")?.shows("vdevs/e ")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == file, true)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("scrub repaired 0B")?;
    world.ok("zpool events")?.shows("resource.fs.zfs.statechange")?.shows("sysevent.fs.zfs.vdev_spare")?;
    spare_at_import(world)?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == file, true)
}

/// Missing at import: the spare stands in then.
fn spare_at_import(world: &World) -> Result<(), Failure> {
    world.ok("zpool export tank")?;
    std::fs::rename(world.path("vdevs/e"), world.path("away"))?;
    world.ok("zpool import -d {vdevs} tank")?;
    until(world, "zpool status tank", "INUSE")?;
    world.ok("zpool wait tank").map(drop)
}

/// Devices grow, and come back by themselves; a blank one at the place of one that is gone is taken when the pool says so.
pub fn grow(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank mirror {vdevs}/a {vdevs}/b")?;
    let file = mebibytes(10);
    std::fs::write(world.path("mnt/tank/file"), &file)?;
    let size = || -> Result<u64, Failure> { Ok(world.ok("zpool get -Hp -o value size tank")?.out.trim().parse()?) };
    let enlarge = |name: &str, bytes: u64| std::fs::OpenOptions::new().write(true).open(world.path(name))?.set_len(bytes);
    let before = size()?;
    enlarge("vdevs/a", 2 * VDEV_BYTES)?;
    world.ok("zpool online -e tank a")?.prints("")?;
    same("while one is as it was", size()?, before)?;
    enlarge("vdevs/b", 2 * VDEV_BYTES)?;
    world.ok("zpool online -e tank a b")?.prints("")?;
    let grown = size()?;
    same("both are larger", grown > before * 3 / 2, true)?;
    world.ok("zpool set autoexpand=on tank")?;
    enlarge("vdevs/a", 3 * VDEV_BYTES)?;
    enlarge("vdevs/b", 3 * VDEV_BYTES)?;
    world.ok("zpool reopen tank")?;
    same("by itself", size()? > grown, true)?;
    let fill = mebibytes(100);
    for name in ["one", "two", "three"] {
        std::fs::write(world.path(&format!("mnt/tank/{name}")), &fill)?;
    }
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("what lies in the new room", std::fs::read(world.path("mnt/tank/three"))? == fill, true)?;
    // Gone and back.
    world.ok("zpool export tank")?;
    std::fs::rename(world.path("vdevs/b"), world.path("away"))?;
    world.ok("zpool import -d {vdevs} tank")?;
    // It goes by its guid, beside where it was: something else may be there by now.
    let was = format!("was {}", world.at("vdevs/b"));
    world.ok("zpool status tank")?.shows("UNAVAIL")?.shows(&was)?.hides("vdevs/b  UNAVAIL")?;
    std::fs::write(world.path("mnt/tank/meanwhile"), &file)?;
    // A device that is back before anything was written without it lacks nothing.
    world.ok("zpool sync tank")?;
    std::fs::rename(world.path("away"), world.path("vdevs/b"))?;
    until(world, "zpool status tank", "state: ONLINE")?;
    world.ok("zpool wait tank")?;
    world.ok("zpool status tank")?.shows("scan: resilvered")?;
    // Gone, and a blank one at its place.
    world.ok("zpool export tank")?;
    std::fs::remove_file(world.path("vdevs/b"))?;
    world.ok("zpool import -d {vdevs} tank")?;
    std::fs::File::create(world.path("vdevs/b"))?.set_len(3 * VDEV_BYTES)?;
    std::thread::sleep(Duration::from_secs(5));
    world.ok("zpool status tank")?.shows("UNAVAIL")?.hides("replacing")?;
    world.ok("zpool set autoreplace=on tank")?;
    until(world, "zpool status tank", "state: ONLINE")?;
    world.ok("zpool wait tank")?;
    world.ok("zpool offline tank a")?;
    same("on the new one", std::fs::read(world.path("mnt/tank/meanwhile"))? == file, true)
}

/// A device that fails is taken out of use by itself; a pool that can't be written answers all the same, and can be given up.
pub fn failing(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "s", "y"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank mirror {vdevs}/a {vdevs}/b spare {vdevs}/s")?;
    let file = mebibytes(5);
    world.ok("zinject -d {vdevs}/b -e io -T write tank")?;
    std::fs::write(world.path("mnt/tank/file"), &file)?;
    world.ok("zpool sync tank")?;
    until(world, "zpool status tank", "INUSE")?;
    world.ok("zpool status tank")?.shows("FAULTED")?.shows("too many errors")?.shows("state: DEGRADED")?;
    world.ok("zpool wait tank")?;
    world.logged(&["WARN  pool 'tank': device ", " is now FAULTED", "WARN  pool 'tank': spare ", " stands in for "])?;
    world.ok("zinject -c all")?;
    world.ok("zpool clear tank b")?;
    until(world, "zpool status tank", "AVAIL")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?;
    world.ok("zpool offline tank a")?;
    same("on the repaired device", std::fs::read(world.path("mnt/tank/file"))? == file, true)?;
    // Nothing can be written any more.
    world.ok("zpool create -m {mnt}/one one {vdevs}/y")?;
    std::fs::write(world.path("mnt/one/kept"), &file)?;
    world.ok("zpool sync one")?;
    world.ok("zinject -d {vdevs}/y -e io -T write one")?;
    std::fs::write(world.path("mnt/one/lost"), b"lost")?;
    until(world, "zpool status one", "state: SUSPENDED")?;
    world.refused("zpool set comment=x one", 1, "pool I/O is currently suspended")?;
    world.refused("zfs create one/x", 1, "pool I/O is currently suspended")?;
    world.ok("zpool list one")?.shows("SUSPENDED")?;
    world.ok("zpool get all one")?;
    let start = Instant::now();
    world.ok("zpool export -f one")?;
    world.logged(&["ERROR pool 'one' is suspended: ", "ERROR pool 'one' is given up with "])?;
    same("it answers soon", start.elapsed() < PATIENCE, true)?;
    world.ok("zpool list")?.hides("one ")?.shows("tank")?;
    // The next daemon has what was synced.
    world.ok("zpool export tank")?;
    world.ok("zirconia stop")?;
    world.ok("zpool import -d {vdevs} one")?;
    same("what was synced", std::fs::read(world.path("mnt/one/kept"))? == file, true)?;
    // Who ends the daemon then is told what that costs.
    world.ok("zinject -d {vdevs}/y -e io -T write one")?;
    std::fs::write(world.path("mnt/one/lost"), b"lost")?;
    until(world, "zpool status one", "state: SUSPENDED")?;
    world.ok("zirconia stop")?.says("'one' is suspended: what it could not write is given up")?;
    Ok(())
}
