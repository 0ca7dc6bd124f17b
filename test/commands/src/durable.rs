//! What is on disk when nobody called fsync(2): after syncfs(2), after umount(8), after a while.

use crate::waiting::until;
use crate::world::{Failure, World, same};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// Seconds that are longer than any wait of these scenarios.
const NEVER: &str = "3600";

fn set(world: &World, parameter: &str, value: &str) -> Result<(), Failure> {
    Ok(std::fs::write(world.path(&format!("state/sys/module/zfs/parameters/{parameter}")), value)?)
}

fn write(world: &World, name: &str) -> Result<(), Failure> {
    Ok(File::create(world.path(&format!("mnt/tank/{name}")))?.write_all(name.repeat(10_000).as_bytes())?)
}

fn holds(world: &World, name: &str) -> Result<(), Failure> {
    let read = std::fs::read(world.path(&format!("mnt/tank/{name}")))?;
    same(&format!("the file '{name}'"), read == name.repeat(10_000).as_bytes(), true)
}

/// Kills the daemon; the next one opens the pool again.
fn kill(world: &World) -> Result<(), Failure> {
    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?;
    Ok(())
}

/// If this fails, whoever asks for datasets right after the daemon died, while the next one replays logs, takes them for destroyed.
pub fn asked_at_once(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let names: Vec<String> = (0..24).map(|number| format!("tank/x{number:02}")).collect();
    for name in &names {
        world.ok(&format!("zfs create {name}"))?;
    }
    world.ok("zfs snapshot tank/x07@s")?;
    let every = std::iter::once("tank").chain(names.iter().map(String::as_str)).collect::<Vec<_>>().join("\n");
    let lines = [
        ("zfs list -H -o name", every.as_str()),
        ("zfs list -H -o name tank/x07", "tank/x07"),
        ("zfs get -H -o value type tank/x07@s", "snapshot"),
    ];
    for (line, expected) in lines {
        set(world, "zfs_txg_timeout", NEVER)?;
        for name in &names {
            for number in 0..24 {
                let mut file = File::create(world.path(&format!("mnt/{name}/{number}")))?;
                file.write_all(&[7; 16 << 10])?;
                file.sync_all()?;
            }
        }
        world.ok(&format!("kill -9 {}", world.daemon()?))?;
        world.ok(line)?.prints(expected)?;
        // The mounts come a moment later.
        let is_there = |name: &String| std::fs::metadata(world.path(&format!("mnt/{name}/23"))).is_ok_and(|found| found.len() == 16 << 10);
        until("what was written is back", || Ok(names.iter().all(is_there)))?;
    }
    world.ok("zpool export tank").map(drop)
}

/// Source and type of what is mounted at a place.
fn mounted(place: &Path) -> Result<Option<(String, String)>, Failure> {
    let table = std::fs::read_to_string("/proc/self/mounts")?;
    let mut rows = table.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = rows.find(|row| row.get(1).is_some_and(|at| Path::new(at) == place));
    Ok(found.map(|row| (row[0].to_string(), row[2].to_string())))
}

/// Mounts that forward syncs: the name stays the dataset's, syncfs(2) and umount(8) mean the disk, a suspended pool says so.
pub fn forwarded(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok_with(("ZIRCONIA_MOUNT_SYNCFS", Path::new("1")), "zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/child")?;
    let (source, kind) = mounted(&world.path("mnt/tank/child"))?.ok_or("      tank/child is not mounted")?;
    same("the source", source.as_str(), "tank/child")?;
    same("a mount on a block device", kind.starts_with("fuseblk."), true)?;
    world.ok("df {mnt}/tank/child")?.shows("tank/child")?;
    set(world, "zfs_txg_timeout", NEVER)?;
    // syncfs(2).
    write(world, "synced")?;
    rustix::fs::syncfs(File::open(world.path("mnt/tank"))?)?;
    kill(world)?;
    holds(world, "synced")?;
    // umount(8), of a mount that asked for it by an option.
    world.ok("zfs unmount tank/child")?;
    world.ok("zfs unmount tank")?;
    world.ok("zfs mount -o syncfs tank")?;
    set(world, "zfs_txg_timeout", NEVER)?;
    write(world, "unmounted")?;
    world.ok("umount {mnt}/tank")?;
    kill(world)?;
    world.ok("zfs mount -a")?;
    holds(world, "unmounted")?;
    // A pool that cannot write says so, and holds up nobody's sync.
    world.ok("zpool create -m {mnt}/one one {vdevs}/b")?;
    world.ok("zfs unmount one")?;
    world.ok("zfs mount -o syncfs one")?;
    world.ok("zinject -d {vdevs}/b -e io -T write one")?;
    std::fs::write(world.path("mnt/one/lost"), b"lost")?;
    until("the pool is suspended", || Ok(world.ok("zpool status one")?.out.contains("state: SUSPENDED")))?;
    let folder = File::open(world.path("mnt/one"))?;
    same("syncfs of a suspended pool", rustix::fs::syncfs(&folder), Err(rustix::io::Errno::IO))?;
    drop(folder);
    world.ok("zpool export -f one")?;
    world.ok("zpool export tank")?;
    Ok(())
}

/// Where nothing is written there is nothing to sync: read-only file systems are mounted all the same, and come back.
pub fn read_only(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok_with(("ZIRCONIA_MOUNT_SYNCFS", Path::new("1")), "zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create -o readonly=on tank/ro")?;
    world.ok("zfs create tank/child")?;
    std::fs::write(world.path("mnt/tank/child/file"), b"kept")?;
    world.ok("zfs unmount tank/child")?;
    world.ok("zfs mount -o ro,syncfs tank/child")?;
    world.ok("zfs list -H -o mounted tank/child tank/ro")?.prints("yes\nyes")?;
    world.ok("zfs unmount tank/child")?;
    world.ok("zfs mount tank/child")?;
    world.ok("zfs set readonly=on tank/child")?;
    kill(world)?;
    crate::hidden::comes_back(world, "tank/child")?;
    crate::hidden::comes_back(world, "tank/ro")?;
    same("a file of one that became read-only", std::fs::read(world.path("mnt/tank/child/file"))?, b"kept".to_vec())?;
    world.ok("zpool export tank")?;
    Ok(())
}

/// The default mount: what is written is on disk without anybody asking once `zfs_txg_timeout` has passed, also while nothing else
/// happens.
pub fn by_itself(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let (source, kind) = mounted(&world.path("mnt/tank"))?.ok_or("      tank is not mounted")?;
    same("the source", source.as_str(), "tank")?;
    same("a plain mount", kind.starts_with("fuse."), true)?;
    set(world, "zfs_txg_timeout", "1")?;
    write(world, "left")?;
    let dirty = || -> Result<bool, Failure> {
        let table = std::fs::read_to_string(world.path("state/proc/spl/kstat/zfs/memory"))?;
        let row = table.lines().find(|line| line.starts_with("dirty_data ")).ok_or("      no dirty_data")?;
        Ok(row.split_whitespace().last() != Some("0"))
    };
    until("everything is written", || Ok(!dirty()?))?;
    kill(world)?;
    holds(world, "left")
}

/// A mount on which the kernel keeps what is written: snapshots have it, seeks see it, fsync(2) makes it durable, and it comes back so.
pub fn kept_back(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs unmount tank")?;
    world.ok("zfs mount -o writeback tank")?;
    let place = world.path("mnt/tank");
    let is_forwarding = || Ok::<_, Failure>(mounted(&place)?.is_some_and(|(_, kind)| kind.starts_with("fuseblk.")));
    same("it forwards syncs", is_forwarding()?, true)?;
    let mut file = File::create(place.join("small"))?;
    for _ in 0..1000 {
        file.write_all(&[b's'; 100])?;
    }
    world.ok("zfs snapshot tank@taken")?;
    let taken = std::fs::read(place.join(".zfs/snapshot/taken/small"))?;
    same("bytes in the snapshot", taken == [b's'; 100_000], true)?;
    let mut sparse = File::create(place.join("sparse"))?;
    sparse.set_len(1 << 20)?;
    sparse.seek(SeekFrom::Start(512 << 10))?;
    sparse.write_all(&[b'd'; 4096])?;
    same("data that the kernel keeps", rustix::fs::seek(&sparse, rustix::fs::SeekFrom::Data(0))? <= 512 << 10, true)?;
    let mut grown = File::create(place.join("grown"))?;
    grown.write_all(&[b'g'; 4096])?;
    same("the end of a file that the kernel keeps", rustix::fs::seek(&grown, rustix::fs::SeekFrom::Hole(0))?, 4096)?;
    write(world, "durable")?;
    File::open(place.join("durable"))?.sync_all()?;
    drop((file, sparse, grown));
    kill(world)?;
    holds(world, "durable")?;
    same("it forwards syncs again", is_forwarding()?, true)?;
    world.ok("zpool destroy tank").map(drop)
}
