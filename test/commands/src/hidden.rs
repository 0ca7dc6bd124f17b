//! Mounts that come and go at once, lie over each other, or were unmounted before a crash: what users lose is a file system that is mounted and
//! that no path leads to, or a directory of theirs that is covered though they uncovered it.

use crate::waiting::until;
use crate::world::{Failure, World, same, supervisor};
use std::fs::File;

/// Waits until a new daemon has mounted a file system again.
pub fn comes_back(world: &World, name: &str) -> Result<(), Failure> {
    until(&format!("{name} is mounted again"), || Ok(world.ok(&format!("zfs list -H -o mounted {name}"))?.out.trim() == "yes"))
}

/// Rows of the system's table of mounts below a folder.
fn mounted_at(world: &World, folder: &str) -> Result<usize, Failure> {
    let (table, place) = (std::fs::read_to_string("/proc/self/mounts")?, world.at(folder));
    Ok(table.lines().filter(|line| line.split(' ').nth(1).is_some_and(|at| at.starts_with(&place))).count())
}

/// One shell makes file systems, another one unmounts and mounts, renames and moves what they are in: each is where its path leads.
pub fn at_once(world: &World) -> Result<(), Failure> {
    const COUNT: usize = 12;
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/rr")?;
    for others in [["zfs unmount tank/rr", "zfs mount -a"], ["zfs set mountpoint={mnt}/other tank/rr", "zfs inherit mountpoint tank/rr"]] {
        std::thread::scope(|scope| {
            let makes = scope.spawn(|| (0..COUNT).for_each(|index| drop(world.run(&format!("zfs create tank/rr/a{index}")))));
            while !makes.is_finished() {
                others.iter().for_each(|line| drop(world.run(line)));
            }
        });
        world.ok("zfs mount -a")?;
        let yes = vec!["yes"; COUNT + 1].join("\n");
        world.ok("zfs list -r -H -o mounted tank/rr")?.prints(&yes)?;
        let lost = (0..COUNT).filter(|index| !world.path(&format!("mnt/tank/rr/a{index}")).is_dir()).count();
        same("file systems that no path leads to", lost, 0)?;
        world.ok("zfs unmount tank/rr")?;
        world.ok("zfs mount -a")?;
        world.ok("zfs destroy -r tank/rr")?;
        world.ok("zfs create tank/rr")?;
    }
    world.ok("zpool export tank")?;
    same("mounts that are left", mounted_at(world, "mnt")?, 0)
}

/// Process in a mount namespace of its own, in which everything stays mounted; ended when dropped.
struct Apart(std::process::Child);

impl Apart {
    fn new() -> Result<Apart, Failure> {
        let child = std::process::Command::new("unshare").args(["-m", "--propagation", "private", "sleep", "600"]).spawn()?;
        let apart = Apart(child);
        let own = std::fs::read_link("/proc/self/ns/mnt")?;
        // Until it is there: it keeps its number when it becomes sleep(1).
        while !std::fs::read_to_string(format!("/proc/{}/comm", apart.0.id()))?.starts_with("sleep")
            || std::fs::read_link(format!("/proc/{}/ns/mnt", apart.0.id()))? == own
        {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(apart)
    }

    /// Words of messages for who has the mounts.
    fn holder(&self) -> String {
        format!("process {} (sleep)", self.0.id())
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// If this fails, an unmount is refused and done all the same, so that programs go on in the directory beneath.
pub fn elsewhere(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/fs")?;
    std::fs::write(world.path("mnt/tank/fs/file"), b"x")?;
    let apart = Apart::new()?;
    let holder = apart.holder();
    world.ok("zfs unmount tank/fs")?.says("'tank/fs' is unmounted here")?.says(&holder)?;
    world.ok("zfs list -H -o mounted tank/fs")?.prints("no")?;
    world.refused("zfs destroy tank/fs", 1, "busy")?.says(&holder)?.says("use '-f'")?;
    world.ok("zfs mount tank/fs")?;
    same("the same file system", std::fs::read(world.path("mnt/tank/fs/file"))?, b"x".to_vec())?;
    // What needs its end is refused, and leaves it where it was.
    world.refused("zfs destroy tank/fs", 1, "busy")?.says(&holder)?.says("use '-f'")?;
    world.ok("zfs list -H -o mounted tank/fs")?.prints("yes")?;
    std::fs::write(world.path("mnt/tank/fs/file"), b"still here")?;
    world.refused("zpool export tank", 1, "busy")?;
    world.ok("zfs list -H -o mounted tank/fs")?.prints("yes")?;
    drop(apart);
    same("nothing beneath", std::fs::read(world.path("mnt/tank/fs/file"))?, b"still here".to_vec())?;
    world.ok("zfs destroy tank/fs")?;
    world.ok("zpool export tank").map(drop)
}

/// If this fails, what a container has cannot be taken away by force, or who tries it without is not told who has it.
pub fn elsewhere_by_force(world: &World) -> Result<(), Failure> {
    const COUNT: usize = 12;
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/many")?;
    for index in 0..COUNT {
        world.ok(&format!("zfs create tank/many/f{index}"))?;
    }
    let apart = Apart::new()?;
    world.ok("zfs unmount -a")?.says(&format!("and {} others are unmounted here", COUNT + 1))?.says(&apart.holder())?;
    same("mounts that are left", mounted_at(world, "mnt")?, 0)?;
    world.ok("zfs mount -a")?;
    world.refused("zfs destroy -r tank/many", 1, "busy")?.says(&apart.holder())?;
    same("mounts that came back", mounted_at(world, "mnt")?, COUNT + 2)?;
    world.ok("zfs destroy -rf tank/many")?;
    world.ok("zfs list -H -o name")?.prints("tank")?;
    world.refused("zpool export tank", 1, "busy")?.says(&apart.holder())?;
    world.ok("zpool export -f tank")?;
    same("mounts that are left", mounted_at(world, "mnt")?, 0)?;
    drop(apart);
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool export tank").map(drop)
}

/// If this fails, an export that is refused leaves places unmounted, and what is written there next goes beneath the file system.
pub fn several_places(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/fs")?;
    world.ok("zfs create -o mountpoint=legacy tank/old")?;
    let places = ["mnt/tank", "mnt/tank/fs", "more", "old", "older"];
    std::os::unix::fs::symlink(world.program("zfs"), world.path("mount.zfs"))?;
    for (name, place) in [("tank/fs", "more"), ("tank/old", "old"), ("tank/old", "older")] {
        std::fs::create_dir_all(world.path(place))?;
        let options = if name == "tank/fs" { "-o zfsutil" } else { "" };
        world.ok(&format!("{{dir}}/mount.zfs {name} {} {options}", world.at(place)))?;
    }
    let rows = || -> Result<Vec<String>, Failure> {
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        let at = |place: &&&str| table.lines().any(|line| line.split(' ').nth(4) == Some(world.at(place).as_str()));
        Ok(places.iter().filter(at).map(|place| (*place).to_string()).collect())
    };
    same("all places", rows()?, places.map(String::from).to_vec())?;
    for busy in ["more", "mnt/tank/fs", "old", "older"] {
        let held = File::open(world.path(busy))?;
        let refused = world.refused("zpool export tank", 1, "pool or dataset is busy")?;
        same(&format!("all places, with {busy} in use"), rows()?, places.map(String::from).to_vec())?;
        refused.says(&format!("'{}'", world.at(busy)))?.says("close the files")?;
        drop(held);
    }
    world.ok("zpool export tank")?;
    same("no place", rows()?, Vec::new())
}

/// What lies over a file system does not keep it from being unmounted, and the last one that came is the first to go.
pub fn stacked(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/rr")?;
    for name in ["in", "out"] {
        world.ok(&format!("zfs create tank/rr/{name}"))?;
    }
    // A mount around others takes them along; those in use it hides, as in OpenZFS.
    world.ok("zfs unmount tank/rr")?;
    world.ok("zfs mount tank/rr/out")?;
    world.ok("zfs mount tank/rr/in")?;
    std::fs::write(world.path("mnt/tank/rr/out/file"), b"x")?;
    let held = File::open(world.path("mnt/tank/rr/in"))?;
    world.ok("zfs mount tank/rr")?;
    same("a file of one that was there before", std::fs::read(world.path("mnt/tank/rr/out/file"))?, b"x".to_vec())?;
    world.refused("zfs unmount tank/rr/in", 1, "pool or dataset is busy")?;
    world.ok("zfs list -r -H -o mounted tank/rr")?.prints("yes\nyes\nyes")?;
    drop(held);
    world.ok("zfs unmount tank/rr/in")?;
    world.ok("zfs list -r -H -o mounted tank/rr")?.prints("yes\nno\nyes")?;
    same("what lay over it", std::fs::read(world.path("mnt/tank/rr/out/file"))?, b"x".to_vec())?;
    // By force nothing is left of what was hidden.
    world.ok("zfs unmount tank/rr")?;
    world.ok("zfs mount tank/rr/in")?;
    let held = File::open(world.path("mnt/tank/rr/in"))?;
    world.ok("zfs mount tank/rr")?;
    world.ok("zfs destroy -rf tank/rr")?;
    drop(held);
    // Several at one place.
    for name in ["s2", "s1", "s3"] {
        world.ok(&format!("zfs create -o mountpoint={{mnt}}/same tank/{name}"))?;
    }
    world.refused("zfs set readonly=on tank/s1", 1, "something else is mounted over it")?;
    std::fs::write(world.path("mnt/same/file"), b"in the one on top, which is not read-only")?;
    world.ok("zfs unmount {mnt}/same")?;
    world.ok("zfs list -H -o mounted tank/s1 tank/s2 tank/s3")?.prints("yes\nyes\nno")?;
    same(
        "a write to one that became read-only",
        std::fs::write(world.path("mnt/same/file"), b"x").map_err(|error| error.raw_os_error()),
        Err(Some(30)),
    )?;
    world.ok("zfs unmount {mnt}/same")?;
    world.ok("zfs list -H -o mounted tank/s1 tank/s2 tank/s3")?.prints("no\nyes\nno")?;
    world.ok("zfs mount tank/s1")?;
    world.ok("zfs unmount -a")?;
    same("mounts that are left", mounted_at(world, "mnt")?, 0)?;
    world.ok("zfs mount -a")?;
    world.ok("zpool export tank")?;
    same("mounts that are left", mounted_at(world, "mnt")?, 0)
}

/// What the administrator unmounted stays so when the daemon dies: something else may be at its place.
pub fn stays_unmounted(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    for name in ["ov", "zz"] {
        world.ok(&format!("zfs create tank/{name}"))?;
    }
    world.ok("zfs unmount tank/ov")?;
    world.ok("mount -t tmpfs t {mnt}/tank/ov")?;
    let daemon = world.daemon()?;
    if let Some(supervisor) = supervisor(&daemon) {
        world.ok(&format!("kill -9 {supervisor}"))?;
    }
    world.ok(&format!("kill -9 {daemon}"))?;
    world.ok("zpool list -H -o name")?;
    comes_back(world, "tank/zz")?;
    world.ok("zfs list -H -o name,mounted")?.prints("tank\tyes\ntank/ov\tno\ntank/zz\tyes")?;
    world.ok("zirconia stop")?;
    // After an end in order everything comes that should.
    world.ok("zpool list -H -o name")?;
    world.ok("zfs mount -a")?;
    world.ok("zfs list -H -o name,mounted")?.prints("tank\tyes\ntank/ov\tyes\ntank/zz\tyes")?;
    world.ok("zpool export tank")?;
    Ok(())
}
