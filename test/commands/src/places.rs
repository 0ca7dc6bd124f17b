//! Places of file systems that a daemon which died had mounted, and the next one cannot mount: what users lose is what they write there with
//! success, in the clear, into the file system around, where the next mount hides it.

use crate::hidden::comes_back;
use crate::mounts::kill_both;
use crate::waiting::until;
use crate::world::{Failure, World, same};

/// Error of paths into a mount without a server.
const ENOTCONN: i32 = 107;
/// Place of the encrypted file system.
const LOCKED: &str = "mnt/tank/p/c";
/// Contents of each file.
const CONTENTS: &[u8] = b"theirs";
/// Places of what lies in the encrypted file system, and of itself.
const PLACES: [&str; 3] = [LOCKED, "mnt/tank/p/c/d", "mnt/tank/p/c/o"];

/// Kills the daemon, and waits until what is around the locked one answers again.
fn dies(world: &World) -> Result<(), Failure> {
    kill_both(world)?;
    world.ok("zpool list -H -o name")?;
    comes_back(world, "tank/p")?;
    until("the file system around answers", || Ok(std::fs::metadata(world.path("mnt/tank/p")).is_ok()))
}

fn is_dead(world: &World) -> Result<(), Failure> {
    are_dead(world, &PLACES)
}

fn are_dead(world: &World, places: &[&str]) -> Result<(), Failure> {
    for place in places {
        let new = world.path(place).join("new");
        let outcomes = [std::fs::write(&new, b"lost"), std::fs::create_dir(&new), std::fs::read_dir(world.path(place)).map(drop)];
        let errors = outcomes.map(|outcome| outcome.err().and_then(|error| error.raw_os_error()));
        same(place, errors, [Some(ENOTCONN); 3])?;
    }
    Ok(())
}

/// Mounts the encrypted one and what is in it, and looks for its files.
fn opens(world: &World, how: &str) -> Result<(), Failure> {
    world.ok("zfs load-key tank/p/c")?;
    world.ok(how)?;
    for place in PLACES {
        same(place, std::fs::read(world.path(place).join("file"))?, CONTENTS.to_vec())?;
    }
    Ok(())
}

fn is_empty(world: &World) -> Result<(), Failure> {
    same("files beneath", std::fs::read_dir(world.path(LOCKED))?.count(), 0)
}

/// Nothing lands in the file system around one that is locked since the daemon died, however often it dies; it comes back with all that is in it,
/// and what is unmounted instead leaves no dead mount.
pub fn locked(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    std::fs::write(world.path("key"), [7u8; 32])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/p")?;
    world.ok("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://{dir}/key tank/p/c")?;
    world.ok("zfs create tank/p/c/d")?;
    world.ok("zfs create -o encryption=off tank/p/c/o")?;
    for place in PLACES {
        std::fs::write(world.path(place).join("file"), CONTENTS)?;
    }
    world.ok("zpool sync tank")?;
    for _ in 0..2 {
        dies(world)?;
        is_dead(world)?;
    }
    world.refused("zfs mount tank/p/c", 1, "encryption key not loaded")?;
    world.ok("zfs mount -a")?;
    is_dead(world)?;
    opens(world, "zfs mount tank/p/c")?;
    world.ok("zfs unmount tank/p/c")?;
    is_empty(world)?;
    world.ok("zfs mount -a")?;
    dies(world)?;
    is_dead(world)?;
    opens(world, "zfs mount -a")?;
    // Unmounted while it is dead, it stays so.
    for unmount in ["zfs unmount tank/p/c", "umount -l {mnt}/tank/p/c"] {
        dies(world)?;
        is_dead(world)?;
        world.ok(unmount)?;
        is_empty_and_opens(world)?;
    }
    dies(world)?;
    is_dead(world)?;
    world.ok("zpool export tank")?;
    let (table, place) = (std::fs::read_to_string("/proc/self/mounts")?, world.at("mnt"));
    same("mounts that are left", table.lines().filter(|line| line.contains(&place)).count(), 0)
}

/// Waits until the daemon knows that the encrypted one was unmounted, looks at the directory beneath, and mounts it.
fn is_empty_and_opens(world: &World) -> Result<(), Failure> {
    let noted = || std::fs::read_to_string(world.path("state/mounts.json")).is_ok_and(|text| text.contains("tank/p/c"));
    until("it is known to be unmounted", || Ok(!noted()))?;
    is_empty(world)?;
    opens(world, "zfs mount -a")
}

/// File system in which places lie that are not those of its children.
const AROUND: &str = "mnt/tank/p";

/// Makes what is locked after a death: a child, one with a place of its own, and one with a parent that is mounted nowhere, all inside of `tank/p`; has
/// the daemon die.
fn locks_inside(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    std::fs::write(world.path("key"), [7u8; 32])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/p")?;
    world.ok("zfs create -o mountpoint=none tank/grp")?;
    let key = "-o encryption=on -o keyformat=raw -o keylocation=file://{dir}/key";
    world.ok(&format!("zfs create {key} tank/p/c"))?;
    world.ok(&format!("zfs create {key} -o mountpoint={{mnt}}/tank/p/own tank/own"))?;
    world.ok(&format!("zfs create {key} -o mountpoint={{mnt}}/tank/p/deep tank/grp/deep"))?;
    world.ok("zpool sync tank")?;
    dies(world)
}

/// Nothing lands in the file system around a locked one because something has another name or place: its place stays dead, or the new one is.
pub fn locked_and_renamed(world: &World) -> Result<(), Failure> {
    const ALL: [&str; 3] = ["mnt/tank/p/c", "mnt/tank/p/own", "mnt/tank/p/deep"];
    locks_inside(world)?;
    are_dead(world, &ALL)?;
    for rename in ["-u tank/p tank/q", "-u tank/q/c tank/q/d", "tank/own tank/own2", "tank/grp tank/grp2", "-f tank/grp2 tank/grp"] {
        world.ok(&format!("zfs rename {rename}"))?;
        are_dead(world, &ALL)?;
    }
    world.ok("zfs rename -u tank/q tank/p")?;
    world.ok("zfs rename -u tank/p/d tank/p/c")?;
    // A new place is dead, and the directory of the old one goes.
    world.ok("zfs rename tank/p/c tank/p/e")?;
    are_dead(world, &["mnt/tank/p/e", "mnt/tank/p/own", "mnt/tank/p/deep"])?;
    same("the directory that it left", world.path(LOCKED).exists(), false)?;
    world.ok("zfs set mountpoint={mnt}/tank/p/set tank/own2")?;
    are_dead(world, &["mnt/tank/p/e", "mnt/tank/p/set", "mnt/tank/p/deep"])?;
    world.ok("zfs inherit mountpoint tank/own2")?;
    are_dead(world, &["mnt/tank/own2"])?;
    dies(world)?;
    are_dead(world, &["mnt/tank/p/e", "mnt/tank/own2", "mnt/tank/p/deep"])?;
    world.ok("zfs destroy tank/own2")?;
    same("the directory of what was destroyed", world.path("mnt/tank/own2").exists(), false)?;
    world.ok("zfs load-key -a")?;
    world.ok("zfs mount -a")?;
    world.ok("zfs list -H -o name,mounted -r tank")?.prints("tank\tyes\ntank/grp\tno\ntank/grp/deep\tyes\ntank/p\tyes\ntank/p/e\tyes")?;
    same("files beneath", std::fs::read_dir(world.path("mnt/tank/p/e"))?.count(), 0)?;
    world.ok("zpool export tank").map(drop)
}

/// Nothing lands in the file system around a locked one because that one was unmounted meanwhile: the places in it are dead again with it.
pub fn locked_and_unmounted_around(world: &World) -> Result<(), Failure> {
    const ALL: [&str; 3] = ["mnt/tank/p/c", "mnt/tank/p/own", "mnt/tank/p/deep"];
    locks_inside(world)?;
    let inner = world.at("mnt/tank/p");
    for refused in ["zfs unmount tank/p", "zfs rename tank/p tank/q", "zfs set mountpoint={mnt}/else tank/p", "zfs destroy -r tank/p"] {
        let ran = world.refused(refused, 1, "which could not be mounted again, is dead inside it, at")?;
        same("whether files are blamed", ran.err.contains("close the files"), false)?;
        same("whether the place is named", ran.err.contains(&format!("cannot unmount '{inner}'")), true)?;
        are_dead(world, &ALL)?;
    }
    for unmount in ["zfs unmount -f tank/p", "umount -l {mnt}/tank/p"] {
        world.ok(unmount)?;
        same("what is around", std::fs::read_dir(world.path(AROUND))?.count(), 0)?;
        // Another command puts nothing there.
        world.ok("zfs set atime=off tank")?;
        same("what is around", std::fs::read_dir(world.path(AROUND))?.count(), 0)?;
        world.ok("zfs mount tank/p")?;
        are_dead(world, &ALL)?;
    }
    // What is around is mounted with another daemon only.
    world.ok("zfs unmount -f tank/p")?;
    kill_both(world)?;
    world.ok("zpool list -H -o name")?;
    comes_back(world, "tank")?;
    world.ok("zfs mount tank/p")?;
    are_dead(world, &ALL)?;
    // Each of them leads to what is around once it is unmounted itself.
    world.ok("zfs unmount tank/own")?;
    are_dead(world, &["mnt/tank/p/c", "mnt/tank/p/deep"])?;
    same("what was unmounted", std::fs::read_dir(world.path("mnt/tank/p/own"))?.count(), 0)?;
    world.ok("zfs unmount -a")?.says("'tank/p/c' could not be mounted again")?.says("'tank/grp/deep'")?;
    world.ok("zfs mount -a")?;
    is_empty(world)?;
    world.ok("zpool export tank").map(drop)
}

/// File systems of others inside of one that is unmounted, exported or moved: it is refused and they are named, and none goes silently, by force neither.
pub fn others_inside(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/out out {vdevs}/a")?;
    world.ok("zfs create out/sub")?;
    world.ok("zpool create -m {mnt}/out/sub/in in {vdevs}/b")?;
    world.ok("zfs create in/c")?;
    std::fs::write(world.path("mnt/out/sub/in/c/file"), CONTENTS)?;
    let at = world.at("mnt/out/sub/in");
    let words = format!("'in' is mounted inside it, at {at}: unmount it first");
    for refused in [
        "zpool export out",
        "zpool export -f out",
        "zpool destroy out",
        "zpool destroy -f out",
        "zfs unmount out",
        "zfs unmount -f out/sub",
        "zfs destroy -rf out/sub",
        "zfs rename out/sub out/new",
        "zfs rename -f out/sub out/new",
        "zfs set mountpoint={mnt}/else out/sub",
    ] {
        let ran = world.refused(refused, 1, &words)?;
        same("whether files are blamed", ran.err.contains("close the files"), false)?;
        for pool in ["out", "in"] {
            world.ok(&format!("zfs list -H -o mounted -r {pool}"))?.prints("yes\nyes")?;
        }
        same("the file inside", std::fs::read(world.path("mnt/out/sub/in/c/file"))?, CONTENTS.to_vec())?;
    }
    // What is mounted by hand stays, and so does what that lies in.
    world.ok("zfs set canmount=noauto in/c")?;
    for unmount in ["zfs unmount -a", "zfs unmount -a -f"] {
        world.refused(unmount, 1, &format!("'in/c' is mounted inside it, at {at}/c"))?;
    }
    same("the file inside", std::fs::read(world.path("mnt/out/sub/in/c/file"))?, CONTENTS.to_vec())?;
    world.ok("zpool export in")?;
    // What was at its place before something hid that is there again afterwards.
    world.ok("zfs create -o mountpoint={mnt}/deep/a/b out/deep")?;
    std::fs::write(world.path("mnt/deep/a/b/file"), CONTENTS)?;
    world.ok("zfs create -o mountpoint={mnt}/deep out/around")?;
    for unmount in ["zfs unmount -f out/around", "zfs unmount out/around"] {
        world.ok(unmount)?;
        same("the file that was hidden", std::fs::read(world.path("mnt/deep/a/b/file"))?, CONTENTS.to_vec())?;
        world.ok("zfs mount out/around")?;
    }
    world.ok("zpool export -f out").map(drop)
}
