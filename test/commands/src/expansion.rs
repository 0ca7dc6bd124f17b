//! RAID-Z vdevs that get devices, as users meet them: their files stay, there is more room, and what may not be is said.

use crate::world::{Failure, World, mebibytes, same};

/// Sets a parameter of the daemon.
fn set(world: &World, name: &str, value: &str) -> Result<(), Failure> {
    Ok(std::fs::write(world.path(&format!("state/sys/module/zfs/parameters/{name}")), value)?)
}

/// If this fails, who adds a disk to a RAID-Z vdev loses what was on it, is not told how far it is, or gets no more room.
pub fn life(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "e", "f", "g"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?;
    world.ok("zpool get -H -o value feature@raidz_expansion tank")?.prints("enabled")?;
    let file = mebibytes(40);
    std::fs::write(world.path("mnt/tank/file"), &file)?;
    world.ok("zpool sync tank")?;
    let size = || -> Result<u64, Failure> { Ok(world.ok("zpool list -Hp -o size tank")?.out.trim().parse()?) };
    let before = size()?;
    world.refused("zpool attach -s tank raidz1-0 {vdevs}/d", 1, "sequential reconstruction")?;
    world.ok("zpool checkpoint tank")?;
    world.refused("zpool attach tank raidz1-0 {vdevs}/d", 1, "checkpoint exists")?;
    world.ok("zpool checkpoint -d -w tank")?;
    // It stands still, and goes on after an import.
    set(world, "raidz_expand_max_reflow_bytes", "8388608")?;
    world.ok("zpool attach tank raidz1-0 {vdevs}/d")?.prints("")?;
    world.refused("zpool attach tank raidz1-0 {vdevs}/e", 1, "raidz expansion in progress")?;
    world.refused("zpool checkpoint tank", 1, "raidz expansion in progress")?;
    world.ok("zpool status tank")?.shows("expand: expansion of raidz1-0 in progress since ")?.shows(" copied at ")?.shows("vdevs/d ")?;
    world.ok("zpool get -H -o value feature@raidz_expansion tank")?.prints("active")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == file, true)?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("the file after an import", std::fs::read(world.path("mnt/tank/file"))? == file, true)?;
    set(world, "raidz_expand_max_reflow_bytes", "0")?;
    world.ok("zpool wait -t raidz_expand tank")?;
    world.ok("zpool status tank")?.shows("expand: expanded raidz1-0 copied ")?;
    world.ok("zpool status -j tank")?.shows("\"raidz_expand_stats\"")?.shows("\"FINISHED\"")?;
    same("more room", size()? > before, true)?;
    world.ok("zpool history -i tank")?.shows("raidz vdev expansion started")?.shows("raidz vdev expansion completed")?;
    // Another device, waited for; the scrub that follows finds nothing.
    world.ok("zpool attach -w tank raidz1-0 {vdevs}/e")?.prints("")?;
    world.ok("zpool wait -t scrub tank")?;
    world.ok("zpool status tank")?.shows("errors: No known data errors")?;
    same("the file at the end", std::fs::read(world.path("mnt/tank/file"))? == file, true)?;
    world.ok("zpool offline tank {vdevs}/a")?;
    world.refused("zpool attach tank raidz1-0 {vdevs}/f", 1, "offline or being replaced")?;
    world.ok("zpool destroy tank")?;
    world.ok("zpool create -f -d tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?;
    world.refused(
        "zpool attach -f tank raidz1-0 {vdevs}/g",
        1,
        "raidz_expansion feature must be enabled in order to attach a device to raidz",
    )?;
    world.ok("zpool destroy tank")?;
    Ok(())
}
