//! What was made durable by the intent log: after a kill, on a log device too, and as OpenZFS sees what the kill left.

use crate::waiting::until;
use crate::world::{Failure, World, judge, same, supervisor};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Number of files that are made durable one by one.
const FILES: usize = 40;

/// Names and bytes of the files of a folder.
fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let bytes = if entry.file_type()?.is_file() { std::fs::read(entry.path())? } else { Vec::new() };
        found.insert(entry.file_name().to_string_lossy().into_owned(), bytes);
    }
    Ok(found)
}

fn written(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    Ok(file.sync_all()?)
}

/// A counter of the log.
fn counted(world: &World, name: &str) -> Result<u64, Failure> {
    let table = std::fs::read_to_string(world.path("state/proc/spl/kstat/zfs/zil"))?;
    let row = table.lines().find(|line| line.split(' ').next() == Some(name)).ok_or_else(|| format!("no counter {name}"))?;
    Ok(row.split_whitespace().last().unwrap_or_default().parse()?)
}

/// Ends the daemon, and who would start it again: nothing may touch the devices until they are copied.
pub fn kill(world: &World) -> Result<(), Failure> {
    let daemon = world.daemon()?;
    let watcher = supervisor(&daemon).unwrap_or_default();
    world.ok(&format!("kill -9 {watcher} {daemon}"))?;
    Ok(())
}

/// Names change, files are written and made durable; then everything dies. `zdb` finds the pool whole, with the writes in its log, and the next daemon
/// has every byte.
pub fn survives(world: &World) -> Result<(), Failure> {
    let zdb = judge("the intent log: OpenZFS's judgement")?;
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a log {vdevs}/b")?;
    let folder = world.path("mnt/tank");
    // The first ones wait for txgs: a log's beginning has to be on disk.
    for number in 0..3 {
        written(&folder.join(format!("first{number}")), b"first")?;
    }
    let txgs = std::fs::read_to_string(world.path("state/proc/spl/kstat/zfs/tank/txgs"))?.lines().count();
    for number in 0..FILES {
        written(&folder.join(format!("file{number}")), format!("number {number} ").repeat(number * 300).as_bytes())?;
    }
    let syncs = std::fs::read_to_string(world.path("state/proc/spl/kstat/zfs/tank/txgs"))?.lines().count() - txgs;
    same(&format!("{FILES} files with a sync of the pool for each ({syncs} syncs)"), syncs > FILES / 2, false)?;
    std::fs::rename(folder.join("file3"), folder.join("renamed"))?;
    std::fs::remove_file(folder.join("file4"))?;
    std::fs::create_dir(folder.join("folder"))?;
    std::os::unix::fs::symlink("file5", folder.join("link"))?;
    std::fs::hard_link(folder.join("file6"), folder.join("hard"))?;
    written(&folder.join("last"), &[7; 300_000])?;
    for counter in ["zil_commit_count", "zil_itx_metaslab_slog_count", "zil_itx_needcopy_bytes"] {
        same(&format!("{counter} is counted"), counted(world, counter)? > 0, true)?;
    }
    let before = contents(&folder)?;
    kill(world)?;
    std::fs::create_dir(world.path("left"))?;
    for device in ["a", "b"] {
        std::fs::copy(world.path(&format!("vdevs/{device}")), world.path(&format!("left/{device}")))?;
    }
    let left = world.at("left");
    world.clean(&zdb, &format!("-e -p {left} -bcch tank"))?;
    world.ok(&format!("{zdb} -e -p {left} -ivvv tank"))?.shows("TX_WRITE")?.shows("TX_RENAME")?;
    until("the pool is open again", || Ok(world.ok("zpool status tank")?.out.contains("state: ONLINE")))?;
    same("what was made durable", contents(&folder)? == before, true)?;
    // As with fsync after each write, without one.
    world.ok("zfs set sync=always tank")?;
    for number in 0..5 {
        File::options().create(true).append(true).open(folder.join("always"))?.write_all(format!("line {number}\n").as_bytes())?;
    }
    kill(world)?;
    until("the pool is open again", || Ok(world.ok("zpool status tank")?.out.contains("state: ONLINE")))?;
    same("lines that sync=always wrote", std::fs::read_to_string(folder.join("always"))?.lines().count(), 5)?;
    world.ok("zpool export tank")?;
    world.clean(&zdb, "-e -p {vdevs} -bcch tank")?;
    Ok(())
}

/// A frozen pool is exported as a crash would leave it, and what was done since comes back from the log, whether or not anybody made it durable; also in
/// a file system of which nothing ever was.
pub fn replayed_after_freeze(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a log {vdevs}/b")?;
    world.refused("zpool freeze nothing", 1, "no such pool")?;
    let folder = world.path("mnt/tank");
    // A log's beginning has to be on disk before.
    written(&folder.join("first"), b"first")?;
    written(&folder.join("second"), b"second")?;
    // The other log begins with the freeze.
    world.ok("zfs create -o mountpoint={mnt}/fresh tank/fresh")?;
    let fresh = world.path("mnt/fresh");
    world.ok("zpool freeze tank")?.prints("")?;
    written(&fresh.join("durable"), &[9; 50_000])?;
    std::fs::write(fresh.join("last"), b"last")?;
    for number in 0..FILES {
        std::fs::write(folder.join(format!("file{number}")), format!("number {number} ").repeat(number))?;
    }
    written(&folder.join("durable"), &[7; 300_000])?;
    std::fs::rename(folder.join("file3"), folder.join("renamed"))?;
    std::fs::remove_file(folder.join("first"))?;
    // One attribute in the system attributes goes into the log, the other one may not.
    let parameter = |value: &str| std::fs::write(world.path("state/sys/module/zfs/parameters/zfs_zil_saxattr"), value);
    let set = |name: &str| setxattr(folder.join("second"), name, b"value", XattrFlags::empty());
    set("user.logged")?;
    parameter("0")?;
    set("user.left_out")?;
    parameter("1")?;
    let before = (contents(&folder)?, contents(&fresh)?);
    world.ok("zpool sync tank")?.says("warning: 'tank' is frozen: nothing was written")?;
    world.ok("zpool status tank")?.shows("The pool is frozen")?.shows("acknowledged, and not durable")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} -o readonly=on tank")?;
    same(
        "what is there without the log",
        contents(&folder)?.into_keys().collect::<Vec<_>>(),
        vec!["first".to_string(), "second".to_string()],
    )?;
    same("and in the other file system", contents(&fresh)?.len(), 0)?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("what comes back from the logs", (contents(&folder)? == before.0, contents(&fresh)? == before.1), (true, true))?;
    let has = |name: &str| {
        let mut room = [0_u8; 16];
        getxattr(folder.join("second"), name, &mut room)
    };
    same("the attributes", (has("user.logged"), has("user.left_out")), (Ok(5), Err(Errno::NODATA)))?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status -x")?.prints("all pools are healthy")?;
    world.ok("zpool sync tank")?;
    world.ok("zpool export tank")?;
    Ok(())
}

/// A log device on which the log of a locked file system lies stays until its key is there: who is told of replicas alone looks for a device that failed.
pub fn leaves_with_its_key(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    std::fs::write(world.path("key"), [7u8; 32])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a log {vdevs}/b")?;
    world.ok("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://{dir}/key tank/e")?;
    let folder = world.path("mnt/tank/e");
    // A log's beginning has to be on disk before.
    written(&folder.join("first"), b"first")?;
    written(&folder.join("second"), b"second")?;
    world.ok("zpool freeze tank")?;
    written(&folder.join("durable"), &[7; 300_000])?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    let refused = world.refused("zpool remove tank {vdevs}/b", 1, "the intent log of 'tank/e' lies there and waits for its key")?;
    refused.says("zfs load-key")?;
    world.ok("zfs load-key tank/e")?;
    world.ok("zpool remove tank {vdevs}/b")?;
    world.ok("zfs mount tank/e")?;
    same("what was made durable", std::fs::read(folder.join("durable"))? == vec![7; 300_000], true)?;
    world.ok("zpool export tank").map(drop)
}

/// The daemon dies, and comes back without the log device that what was made durable last is on: the pool waits for it, says so, and has every byte
/// when the device is back. It never goes on without.
pub fn waits_for_its_device(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a log {vdevs}/b")?;
    let folder = world.path("mnt/tank");
    for number in 0..6 {
        written(&folder.join("file"), format!("state {number}").as_bytes())?;
    }
    kill(world)?;
    let (there, away) = (world.path("vdevs/b"), world.path("away"));
    std::fs::rename(&there, &away)?;
    world.ok("zpool list -H -o health tank")?.shows("UNAVAIL")?;
    until("the pool says what it waits for", || Ok(world.ok("zpool status tank")?.out.contains("log device is missing")))?;
    let (status, advice) = (world.ok("zpool status tank")?, "'zpool clear tank' opens it without what is on them only");
    status.shows(advice)?.hides("missing-")?;
    let (_, logs) = status.out.split_once("\n\tlogs").ok_or_else(|| status.fault("it should show the log device as one".to_string()))?;
    if !logs.contains(&world.at("vdevs/b")) || !logs.contains("UNAVAIL") {
        return Err(status.fault("it should show the path of the log device".to_string()));
    }
    world.refused("zpool scrub tank", 1, advice)?;
    std::fs::rename(&away, &there)?;
    until("the pool is open again", || Ok(world.ok("zpool list -H -o health tank")?.out.contains("ONLINE")))?;
    // Its mounts come after it.
    until("the file system is mounted again", || Ok(std::fs::read_to_string(folder.join("file")).is_ok()))?;
    same("the file", std::fs::read_to_string(folder.join("file"))?, "state 5".to_string())?;
    // What nobody logged to is not missed.
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zirconia stop")?;
    std::fs::rename(&there, &away)?;
    until("the pool is open without an idle log", || Ok(world.ok("zpool list -H -o health tank")?.out.contains("DEGRADED")))?;
    Ok(())
}

/// The same, and the device is lost: `zpool clear` opens the pool without what was on it only, as OpenZFS's does. Whoever has no other device would
/// have to export and import the pool.
pub fn goes_on_without_its_device(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a log {vdevs}/b")?;
    let folder = world.path("mnt/tank");
    written(&folder.join("old"), b"old")?;
    world.ok("zpool sync tank")?;
    for number in 0..6 {
        written(&folder.join("file"), format!("state {number}").as_bytes())?;
    }
    kill(world)?;
    std::fs::remove_file(world.path("vdevs/b"))?;
    until("the pool says what it waits for", || Ok(world.ok("zpool status tank")?.out.contains("log device is missing")))?;
    world.ok("zpool clear tank")?;
    world.ok("zpool list -H -o health tank")?.shows("DEGRADED")?;
    world.logged(&["'tank' is opened without its log devices"])?;
    until("the file system is mounted again", || Ok(folder.join("old").exists()))?;
    same("what was synced", std::fs::read_to_string(folder.join("old"))?, "old".to_string())?;
    written(&folder.join("new"), b"new")?;
    world.ok("zpool export tank")?;
    Ok(())
}
