//! Damaged files that several snapshots and clones share, as `zpool status -v` names them.

use crate::waiting::until;
use crate::world::{Failure, World, judge, mebibytes, same};

/// If this fails, `zpool status -v` keeps quiet about damaged files of snapshots and clones, or forgets them with the file system in which they
/// were found; or OpenZFS cannot read the log.
pub fn shared(world: &World) -> Result<(), Failure> {
    let zdb = judge("error logs: OpenZFS's judgement")?;
    world.vdevs(&["a"])?;
    let file = |place: &str| world.at(&format!("mnt/tank/{place}/file"));
    world.ok("zpool create -o feature@head_errlog=disabled -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/fs")?;
    std::fs::write(file("fs"), mebibytes(1))?;
    world.ok("zpool sync tank")?;
    world.ok("zinject -t data -e checksum -f 100 -am {mnt}/tank/fs/file")?;
    same("a read of the file", std::fs::read(file("fs")).is_err(), true)?;
    world.ok("zinject -c all")?;
    world.ok("zfs snapshot tank/fs@one")?;
    world.ok("zfs clone tank/fs@one tank/a")?;
    let told = world.ok("zpool status -v tank")?;
    told.shows(&file("fs"))?.hides("tank/fs@one:/file")?.hides(&file("a"))?;
    world.ok("zpool set feature@head_errlog=enabled tank")?;
    let told = world.ok("zpool status -v tank")?;
    told.shows(&file("fs"))?.shows("tank/fs@one:/file")?.shows(&file("a"))?;
    // A clone of the clone has it, too, and the file system goes in which it was found.
    world.ok("zfs snapshot tank/a@two")?;
    world.ok("zfs clone tank/a@two tank/b")?;
    world.ok("zfs promote tank/a")?;
    world.ok("zfs destroy tank/fs")?;
    for _ in 0..2 {
        let told = world.ok("zpool status -v tank")?;
        told.shows("tank/a@one:/file")?.shows(&file("a"))?.shows("tank/a@two:/file")?.shows(&file("b"))?.hides(&file("fs"))?;
        world.ok("zpool export tank")?;
        world.clean(&zdb, "-e -p {vdevs} -bccdh tank")?;
        world.ok("zpool import -d {vdevs} tank")?;
    }
    // The last who have it are rid of it.
    std::fs::remove_file(file("a"))?;
    world.ok("zfs destroy -R tank/a@two")?;
    world.ok("zfs destroy tank/a@one")?;
    until("no known error", || Ok(world.ok("zpool status -v tank")?.out.contains("No known data errors")))
}
