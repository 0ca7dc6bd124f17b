//! Sweeps over the devices of a pool in use: sequential rebuild.

use crate::world::{Failure, World, same};

/// Devices are filled by sequential rebuild, a scrub follows, and every command says so.
pub fn rebuild(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "e", "f", "g", "h"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank {vdevs}/a")?;
    let data: Vec<u8> = (0..10_u32 << 18).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.ok("zpool attach -s -w tank {vdevs}/a {vdevs}/b")?.prints("")?;
    world.ok("zpool wait -t scrub tank")?;
    world.ok("zpool status tank")?.shows("scan: resilvered (mirror-0) ")?.shows("scan: scrub repaired 0B")?.shows("state: ONLINE")?;
    world.ok("zpool replace -s -w tank {vdevs}/a {vdevs}/c")?.prints("")?;
    world.ok("zpool wait tank")?;
    let status = world.ok("zpool status tank")?;
    status.hides("vdevs/a ")?.hides("replacing")?.shows("scan: resilvered (mirror-0) ")?.shows(" with 0 errors on ")?;
    world.ok("zpool status -j tank")?.shows("\"rebuild_stats\"")?.shows("\"state\":\"COMPLETE\"")?;
    world.ok("zpool history -i tank")?.shows("rebuild vdev_id=0")?;
    // Only the new ones are left.
    world.ok("zpool offline tank b")?;
    same("read from the rebuilt device", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    world.ok("zpool destroy tank")?;

    world.ok("zpool create -f -m {mnt}/d -O compression=off d draid1:2d:4c {vdevs}/a {vdevs}/b {vdevs}/c {vdevs}/d")?;
    std::fs::write(world.path("mnt/d/file"), &data)?;
    world.ok("zpool offline -f d a")?;
    world.ok("zpool replace -s -w d a {vdevs}/e")?;
    world.ok("zpool wait d")?;
    let status = world.ok("zpool status d")?;
    status.shows("state: ONLINE")?.shows("scan: resilvered (draid1:2d:4c:0s-0) ")?.shows("scrub repaired 0B")?;
    world.ok("zpool offline d b")?;
    same("with another device away", std::fs::read(world.path("mnt/d/file"))? == data, true)?;
    world.ok("zpool destroy d")?;

    // A raidz knows where its blocks are only by their pointers.
    world.ok("zpool create -f z raidz {vdevs}/f {vdevs}/g {vdevs}/h")?;
    let why = "only mirror and dRAID vdevs support sequential reconstruction";
    world.refused("zpool replace -s z {vdevs}/f {vdevs}/a", 1, why)?;
    world.ok("zpool destroy z")?;
    world.ok("zpool create -f -o feature@device_rebuild=disabled m {vdevs}/f")?;
    let why = "device_rebuild feature must be enabled in order to use sequential reconstruction";
    world.refused("zpool attach -s m {vdevs}/f {vdevs}/g", 1, why)?;
    world.ok("zpool set feature@device_rebuild=enabled m")?;
    world.ok("zpool attach -s -w m {vdevs}/f {vdevs}/g")?;
    Ok(())
}
