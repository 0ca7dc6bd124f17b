//! Files through the mount: what was written is read again, also after the daemon was killed.

use crate::world::{Failure, World, same};
use need::pattern;
use std::io::Write;

/// Sizes around every edge, in many directories, equal after export and import.
pub fn round_trip(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank -O recordsize=16K tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?;
    let sizes = [0, 1, 511, 512, 513, 4096, 16383, 16384, 16385, 131_072, 1_000_003];
    for (index, size) in sizes.into_iter().enumerate() {
        let folder = world.path(&format!("mnt/tank/{index}/deep"));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("file"), pattern(size, index as u64 + 1))?;
    }
    std::os::unix::fs::symlink("0/deep/file", world.path("mnt/tank/link"))?;
    std::fs::hard_link(world.path("mnt/tank/3/deep/file"), world.path("mnt/tank/hard"))?;
    world.ok("zpool export tank")?;
    same("unmounted", world.path("mnt/tank/link").exists(), false)?;
    world.ok("zpool import -d {vdevs} tank")?;
    for (index, size) in sizes.into_iter().enumerate() {
        let read = std::fs::read(world.path(&format!("mnt/tank/{index}/deep/file")))?;
        if read != pattern(size, index as u64 + 1) {
            return Err(format!("      the file of {size} bytes reads differently").into());
        }
    }
    same("the link", std::fs::read_link(world.path("mnt/tank/link"))?, "0/deep/file".into())?;
    same("the hard link", std::fs::read(world.path("mnt/tank/hard"))?.len(), 512)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    Ok(())
}

/// A quota stops the writer, a deletion lets it go on.
pub fn quota(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank {vdevs}/a")?;
    world.ok("zfs create -o quota=8M tank/q")?;
    let full = std::fs::write(world.path("mnt/tank/q/big"), pattern(20 << 20, 7));
    same("a write beyond the quota", full.map_err(|error| error.raw_os_error()), Err(Some(122)))?;
    std::fs::remove_file(world.path("mnt/tank/q/big"))?;
    world.ok("zpool sync tank").or_else(|_| world.run("sync"))?;
    std::fs::write(world.path("mnt/tank/q/small"), pattern(1 << 20, 8))?;
    same("what fits", std::fs::read(world.path("mnt/tank/q/small"))?.len(), 1 << 20)
}

/// Nobody needs to be root: the pool, its daemon and its mounts belong to an ordinary user.
pub fn ordinary_user(world: &World) -> Result<(), Failure> {
    // As root this needs a way to become somebody else; without it the user who runs this is the ordinary one.
    let is_root = need::is_root();
    let user = if is_root { "setpriv --reuid=65534 --regid=65534 --clear-groups " } else { "" };
    if world.out_of_reach(world.run(&format!("{user}{} --help", world.program("zpool")))?, "files: an ordinary user's pool")? {
        return Ok(());
    }
    world.vdevs(&["a"])?;
    if is_root {
        world.ok("chown -R 65534:65534 {dir}")?;
    }
    let run = |line: &str| world.ok(&format!("{user}{line}"));
    run(&format!("{} create -m {{mnt}}/tank tank {{vdevs}}/a", world.program("zpool")))?;
    // The kernel lets users mount nothing inside of a mount of theirs: what would be a mere directory of the pool's is not made, or not mounted.
    let zfs = world.program("zfs");
    let refused = |line: &str, what: &str| -> Result<(), Failure> {
        let ran = world.refused(&format!("{user}{zfs} {line}"), 1, what)?;
        ran.says("lies in the mount of 'tank', where an ordinary user can mount nothing")?.says("mountpoint=/PATH tank/")?;
        Ok(())
    };
    // Root tells nothing to whoever listens in a place that root was led to, and believes nothing from there.
    if is_root {
        world.refused("zpool list", 1, "cannot talk to the daemon: user 65534 listens at ")?.says("nothing was sent")?;
        world.refused("zpool destroy tank", 1, "user 65534 listens at ")?;
        run(&format!("{zfs} list -H -o name"))?.prints("tank")?;
    }
    refused("create tank/inside", "cannot create 'tank/inside': mountpoint '")?;
    refused("create -o mountpoint={mnt}/tank/x/y tank/inside", "cannot create 'tank/inside': mountpoint '")?;
    refused("create -p tank/inside/deeper", "cannot create 'tank/inside': mountpoint '")?;
    run(&format!("{zfs} list -H -o name"))?.prints("tank")?;
    run(&format!("{zfs} create -u tank/inside"))?;
    refused("mount tank/inside", "cannot mount 'tank/inside': mountpoint '")?;
    refused("mount -a", "cannot mount 'tank/inside': mountpoint '")?;
    run(&format!("{} export tank", world.program("zpool")))?;
    let import = run(&format!("{} import -d {{vdevs}} tank", world.program("zpool")))?;
    import.says("cannot mount 'tank/inside': mountpoint '")?.shows("unable to mount some datasets")?;
    // Nor is a directory made for it, into which files would go.
    run("ls {mnt}/tank")?.prints("")?;
    run(&format!("{zfs} set mountpoint={{mnt}}/inside tank/inside"))?;
    run(&format!("{zfs} list -H -o mounted tank/inside"))?.prints("yes")?;
    run(&format!("{} create -o mountpoint={{mnt}}/fs tank/fs", world.program("zfs")))?;
    // Nor over one: the reason is that one, and no right that the user lacks.
    run(&format!("{zfs} create -u -o mountpoint={{mnt}}/fs tank/over"))?;
    world.refused(&format!("{user}{zfs} mount tank/over"), 1, "cannot mount 'tank/over': 'tank/fs' is mounted at '")?;
    run(&format!("{zfs} destroy tank/over"))?;
    run("cp /etc/passwd {mnt}/fs/copy")?;
    run("cmp /etc/passwd {mnt}/fs/copy")?;
    run("mkdir {mnt}/tank/made")?;
    run(&format!("{} export tank", world.program("zpool")))?;
    run(&format!("{} import -d {{vdevs}} tank", world.program("zpool")))?;
    run("cmp /etc/passwd {mnt}/fs/copy")?;
    // What zfs(8) shows works for whoever tries it; behind the one for the pool in zpool(8).
    for example in include_str!("../../../man/man8/zfs.8").lines().filter_map(|line| line.strip_prefix(".Dl $ zfs ")) {
        // By way of a shell, which has the streams in files.
        std::fs::write(world.path("example"), format!("{zfs} {}\n", example.replace("$HOME", &world.at("mnt"))))?;
        run("sh {dir}/example")?;
    }
    run(&format!("{} destroy tank", world.program("zpool")))?;
    Ok(())
}

/// The daemon dies; what fsync acknowledged is there when the next command started another.
pub fn kill(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank mirror {vdevs}/a {vdevs}/b")?;
    for round in 0..3_u64 {
        let mut file = std::fs::File::create(world.path(&format!("mnt/tank/kept{round}")))?;
        file.write_all(&pattern(300_000, round + 1))?;
        file.sync_all()?;
        std::fs::File::open(world.path("mnt/tank"))?.sync_all()?;
        // Not synced: may be lost, may not.
        std::fs::write(world.path(&format!("mnt/tank/loose{round}")), pattern(100_000, round + 50))?;
        drop(file);
        let daemon = world.daemon()?;
        world.ok(&format!("kill -9 {daemon}"))?;
        world.ok("zpool status tank")?.shows("state: ONLINE")?;
        for earlier in 0..=round {
            let read = std::fs::read(world.path(&format!("mnt/tank/kept{earlier}")))?;
            same("bytes that fsync acknowledged", read == pattern(300_000, earlier + 1), true)?;
        }
    }
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    Ok(())
}

/// Equal blocks are stored once, and each file keeps its own when another changes or goes.
pub fn stored_once(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank -O dedup=on -O compression=off -O recordsize=16K tank {vdevs}/a")?;
    world.ok("zpool status -D tank")?.shows(" dedup: no DDT entries")?;
    let (bytes, other) = (pattern(4 << 20, 5), pattern(2 << 20, 6));
    let path = |name: &str| world.path(&format!("mnt/tank/{name}"));
    for name in ["one", "two", "three"] {
        std::fs::write(path(name), &bytes)?;
    }
    world.ok("zpool sync tank")?;
    world.ok("zpool get -H -o value dedupratio tank")?.prints("3.00x")?;
    let status = world.ok("zpool status -D tank")?;
    status.shows(" dedup: DDT entries 256, size ")?;
    status.shows("refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE")?;
    world.ok("zfs set dedup=sha512,verify tank")?;
    std::fs::write(path("two"), &other)?;
    std::fs::remove_file(path("three"))?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool sync tank")?;
    same("the file that nobody touched", std::fs::read(path("one"))? == bytes, true)?;
    same("the file that was written over", std::fs::read(path("two"))? == other, true)?;
    world.ok("zpool get -H -o value dedupratio tank")?.prints("1.00x")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    for name in ["one", "two"] {
        std::fs::remove_file(path(name))?;
    }
    world.ok("zpool sync tank")?;
    world.ok("zpool sync tank")?;
    world.ok("zpool status -D tank")?.shows(" dedup: no DDT entries").map(drop)
}
