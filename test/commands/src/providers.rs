//! Accelerators as users see them: `zirconia provider`, the pool properties `zia_*`.

use crate::world::{Failure, World, same};

/// Listed, chosen for a pool, used, let go.
pub fn life(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=gzip tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    world.ok("zpool get -H -o value,source zia_available,zia_provider,zia_compress tank")?.prints("yes\t-\n-\tdefault\noff\tdefault")?;
    world.ok("zirconia provider list -H")?.shows("software\tactive\t0\t")?;
    world.refused("zpool set zia_provider=nobody tank", 1, "given provider does not exist")?;
    world.refused("zpool set zia_verify=200 tank", 1, "'200' is no value for 'zia_verify'")?;
    for property in [
        "zia_provider=software",
        "zia_compress=on",
        "zia_checksum=on",
        "zia_raidz1_gen=on",
        "zia_raidz1_rec=on",
        "zia_file_write=on",
        "zia_verify=10",
    ] {
        world.ok(&format!("zpool set {property} tank"))?;
    }
    let data: Vec<u8> = (0..1_u32 << 19).flat_map(|word| (word / 9).to_le_bytes()).collect();
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.ok("zpool sync tank")?;
    let info = world.ok("zirconia provider info software")?;
    info.shows("used by:      1 pools")?
        .shows("compress gzip-6")?
        .shows("counter:      compress_blocks ")?
        .shows("counter:      raidz_gen_blocks ")?
        .shows("counter:      store_blocks ")?;
    world.refused("zirconia provider info nobody", 1, "no provider is called 'nobody'")?;
    world.refused("zirconia provider unload software", 1, "it is built in")?;
    world.refused("zirconia provider load {vdevs}/a", 1, "the library cannot be loaded")?;
    // Without the provider's help it reads the same.
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool get -H -o value zia_provider tank")?.prints("software")?;
    world.ok("zpool set zia_provider=off tank")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    world.ok("zirconia provider list -H")?.shows("software\tactive\t0\t")?;
    Ok(())
}
