//! Top-level vdevs that are removed, as users meet them: their files stay, whatever happens on the way.

use crate::world::{Failure, World, mebibytes, same};

/// Sets a parameter of the daemon.
fn set(world: &World, name: &str, value: &str) -> Result<(), Failure> {
    Ok(std::fs::write(world.path(&format!("state/sys/module/zfs/parameters/{name}")), value)?)
}

/// If this fails, who removes a device loses what was on it, is not told how far it is, cannot think better of it, or is told that it cannot be.
pub fn life(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "e", "r1", "r2", "r3"])?;
    world.ok("zpool create -f -m {mnt}/tank -O compression=off tank {vdevs}/a {vdevs}/b {vdevs}/c mirror {vdevs}/d {vdevs}/e")?;
    world.ok("zpool get -H -o value feature@device_removal tank")?.prints("enabled")?;
    let file = mebibytes(40);
    std::fs::write(world.path("mnt/tank/file"), &file)?;
    world.ok("zpool sync tank")?;
    let estimate = world.ok("zpool remove -np tank {vdevs}/b")?;
    let bytes = estimate.out.split_whitespace().last().and_then(|word| word.parse::<u64>().ok());
    same("an estimate", bytes.is_some_and(|bytes| bytes < 1 << 20), true)?;
    world.ok("zpool remove -n tank mirror-3")?.shows("Memory that will be used after removing mirror-3: ")?;
    world.refused("zpool remove -s tank", 1, "cannot cancel removal: operation is not in progress")?;
    // Somebody thinks better of it.
    set(world, "zfs_removal_suspend_progress", "1")?;
    world.ok("zpool remove tank {vdevs}/b")?.prints("")?;
    world.ok("zpool status tank")?.shows("remove: Evacuation of ")?.shows(" copied out of ")?;
    world.refused("zpool remove tank {vdevs}/b", 1, "removal for this vdev is already in progress.")?;
    world.refused("zpool remove tank {vdevs}/c", 1, "Pool busy; removal may already be in progress")?;
    world.refused("zpool add -f tank raidz {vdevs}/r1 {vdevs}/r2 {vdevs}/r3", 1, "does not support adding raidz or dRAID vdevs")?;
    world.refused("zpool attach tank {vdevs}/a {vdevs}/r1", 1, "is busy, or device removal is in progress")?;
    world.refused("zpool checkpoint tank", 1, "cannot checkpoint 'tank': device removal in progress")?;
    world.ok("zpool remove -s tank")?.prints("")?;
    world.ok("zpool status tank")?.shows("remove: Removal of ")?.shows(" canceled on ")?.shows("vdevs/b ")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == file, true)?;
    // It goes on after an import.
    world.ok("zpool remove tank {vdevs}/b")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool status tank")?.shows("remove: Evacuation of ")?;
    set(world, "zfs_removal_suspend_progress", "0")?;
    world.ok("zpool wait -t remove tank")?;
    world
        .ok("zpool status tank")?
        .shows("remove: Removal of vdev 1 copied ")?
        .shows("memory used for removed device mappings")?
        .hides("vdevs/b ")?;
    world.ok("zpool status -j tank")?.shows("\"removal_stats\"")?.shows("\"FINISHED\"")?;
    world.ok("zpool status tank")?.hides("indirect-1 ")?;
    world.ok("zpool list -v tank")?.hides("vdevs/b ")?.shows("indirect-1 ")?;
    // Nothing is there that could be removed.
    let rows = world.ok("zpool list -Hvg tank")?;
    let mut rows = rows.out.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1) == Some(&"-")).ok_or("no row of the vdev that was removed")?;
    let guid = row.first().copied().unwrap_or_default();
    world.refused(&format!("zpool remove tank {guid}"), 1, "no such device in pool")?;
    world.refused("zpool remove tank indirect-1", 1, "no such device in pool")?;
    // A mirror too, and its devices are anybody's then.
    world.ok("zpool remove -w tank mirror-3")?.prints("")?;
    std::fs::remove_file(world.path("vdevs/b"))?;
    world.ok("zpool create two {vdevs}/d {vdevs}/e")?;
    world.ok("zpool destroy two")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == file, true)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status -x tank")?.shows("is healthy")?;
    std::fs::remove_file(world.path("mnt/tank/file"))?;
    world.ok("zpool sync tank")?;
    world.ok("zpool history -i tank")?.shows("vdev remove started")?.shows("vdev remove canceled")?.shows("vdev remove completed")?;
    world.ok("zpool export tank").map(drop)
}
