//! Quotas of single users and groups, and who uses how much: `userquota@USER`, `zfs userspace` and their kind.

use crate::waiting::until;
use crate::world::{Failure, World, same};
use std::io::{ErrorKind, Write};

/// An administrator's limit for one user holds, in this file system only, and everybody's use is told.
pub fn quotas(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O compression=off -O mountpoint={mnt}/tank -O groupquota@4711=64M tank {vdevs}/a")?;
    let uid = world.ok("id -u")?.out.trim().to_string();
    world.ok(&format!("zfs create -o userquota@{uid}=1M tank/fs"))?;
    world.ok("zfs create tank/other")?;
    world.ok("zfs get -Hp -o value groupquota@4711 tank")?.prints("67108864")?;
    world.ok(&format!("zfs get -H -o value,source userquota@{uid} tank/fs"))?.prints("1M\tlocal")?;
    world.ok(&format!("zfs get -H -o value userquota@{uid} tank/other"))?.prints("none")?;
    std::fs::write(world.path("mnt/tank/fs/file"), vec![7_u8; 1 << 20])?;
    world.ok("zpool sync tank")?;
    let full = |result: std::io::Result<()>| result.err().map(|error| error.kind()) == Some(ErrorKind::QuotaExceeded);
    same("another file", full(std::fs::write(world.path("mnt/tank/fs/more"), "x")), true)?;
    let append = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().append(true).open(world.path("mnt/tank/fs/file"))?;
        file.write_all(b"x")?;
        file.sync_all()
    };
    same("more in the file", full(append()), true)?;
    std::fs::write(world.path("mnt/tank/other/file"), "x")?;
    let used = world.ok("zfs userspace -Hpn -o type,name,used,quota tank/fs")?;
    let fields: Vec<Vec<&str>> = used.out.lines().map(|line| line.split('\t').collect()).collect();
    let [line] = fields.as_slice() else { return Err(used.fault("one user has files here")) };
    same("who", (line[0], line[1], line[3]), ("POSIX User", uid.as_str(), "1048576"))?;
    same("how much", line[2].parse::<u64>().is_ok_and(|bytes| bytes >= 1 << 20), true)?;
    world.ok("zfs userspace tank/fs")?.shows("TYPE").and_then(|ran| ran.shows("QUOTA"))?;
    world.ok("zfs groupspace -Hp -o name,quota -S quota tank")?.shows("4711\t67108864")?;
    // A snapshot keeps what was so; a larger limit counts at once.
    world.ok("zfs snapshot tank/fs@then")?;
    world.ok(&format!("zfs set userquota@{uid}=8M tank/fs"))?;
    append()?;
    world.ok(&format!("zfs get -Hp -o value userquota@{uid} tank/fs@then"))?.prints("1048576")?;
    world.ok("zfs userspace -Hp -o quota {mnt}/tank/fs")?.prints("8388608")?;
    world.ok(&format!("zfs set userquota@{uid}=none tank/fs"))?;
    world.ok(&format!("zfs get -H -o value userquota@{uid} tank/fs"))?.prints("none")?;
    // Files and directories: two are there, the root and the file.
    world.ok(&format!("zfs get -Hp -o value userobjused@{uid} tank/fs"))?.prints("2")?;
    world.ok(&format!("zfs set userobjquota@{uid}=2 tank/fs"))?;
    same("a third object", full(std::fs::create_dir(world.path("mnt/tank/fs/folder"))), true)?;
    append()?;
    world.ok("zfs userspace -Hp -o objused,objquota tank/fs")?.prints("2\t2")?;
    world.ok("zfs projectspace -Hp -o type,name,objused tank/fs")?.prints("Project\t0\t2")?;
    refusals(world)?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zfs get -Hp -o value groupquota@4711 tank")?.prints("67108864")?;
    world.ok("zpool destroy tank").map(|_| ())
}

/// Files and directories are charged to projects, hand these on, and are told from others; what chattr(1) of OpenZFS's suite does, too.
pub fn projects(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let path = |name: &str| world.path("mnt/tank").join(name);
    std::fs::create_dir_all(path("d/e"))?;
    for name in ["d/file", "d/e/deep", "other"] {
        std::fs::write(path(name), name)?;
    }
    let place = world.at("mnt/tank");
    world.ok("zfs project -d {mnt}/tank/d")?.prints(&format!("    0 - {place}/d"))?;
    world.ok("zfs project -p 7 {mnt}/tank/other")?.prints("")?;
    world.ok("zfs project {mnt}/tank/other")?.prints(&format!("    7 - {place}/other"))?;
    world.ok("zfs project -s -r -p 77 {mnt}/tank/d")?.prints("")?;
    world.ok("zfs project -c -r {mnt}/tank/d")?.hides("project ID")?.hides("/d/e -")?;
    std::fs::write(path("d/e/new"), "new")?;
    world.ok("zfs project {mnt}/tank/d/e/new")?.shows("   77 ")?.shows("/d/e/new")?;
    same("a link from another project", std::fs::hard_link(path("other"), path("d/link")).is_err(), true)?;
    world.ok("zfs project -p 5 {mnt}/tank/d/file")?;
    world.ok("zfs project -c {mnt}/tank/d")?.shows(&format!("{place}/d/file - project ID is not set properly (5/77)\n"))?;
    world.ok("zfs project -c -0 -p 77 {mnt}/tank/d/file")?.prints(&format!("{place}/d/file\0"))?;
    world.ok("zfs project -C -r -k {mnt}/tank/d/e")?;
    world.ok("zfs project -d {mnt}/tank/d/e")?.prints(&format!("   77 - {place}/d/e"))?;
    world.ok("zfs project -C -r {mnt}/tank/d")?;
    world.ok("zfs project {mnt}/tank/d/e/deep")?.prints(&format!("    0 - {place}/d/e/deep"))?;
    world.ok("zpool sync")?;
    world.ok("zfs projectspace -Hp -o name,objused tank")?.shows("7\t1")?;
    world.refused("zfs project -r {mnt}/tank/other", 255, "'-r' option on non-dir target")?;
    world.refused("zfs project {mnt}/tank/no", 255, "failed to stat")?;
    world.refused("zfs project -p -1 {mnt}/tank/other", 2, "invalid project ID")?;
    world.refused("zfs project -c -s {mnt}/tank/d", 2, "cannot specify '-C' '-c' '-s' together")?;
    world.refused("zfs project -p 1", 2, "missing file or directory target(s)").map(|_| ())
}

/// If this fails, a tree with another file system, a FIFO, a link out of it, or anything that cannot be looked at is charged to its project in part, and
/// the rest of it fills the pool beside the quota.
pub fn mixed_projects(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O snapdir=visible -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/child")?;
    let path = |name: &str| world.path("mnt/tank").join(name);
    for folder in ["d", "child/in"] {
        std::fs::create_dir_all(path(folder))?;
    }
    let files = ["a", "z", "d/file", "child/in/file"];
    for name in files {
        std::fs::write(path(name), name)?;
    }
    world.ok("mkfifo {mnt}/tank/fifo {mnt}/tank/d/fifo")?;
    for (to, name) in [("/proc", "out"), ("nowhere", "dangling")] {
        std::os::unix::fs::symlink(to, path(name))?;
    }
    let place = world.at("mnt/tank");
    let have = |line: &str| -> Result<(), Failure> {
        for name in files {
            world.ok(&format!("zfs project {{mnt}}/tank/{name}"))?.prints(&format!("{line} {place}/{name}"))?;
        }
        Ok(())
    };
    let set = world.ok("zfs project -s -r -p 7 {mnt}/tank")?;
    set.prints("")?.says(&format!("skipped {place}/fifo: "))?.says(&format!("skipped {place}/d/fifo: "))?;
    set.says(&format!("skipped {place}/out: not on a mounted ZFS filesystem"))?;
    have("    7 P")?;
    world.ok("zfs project {mnt}/tank")?.shows(&format!("    7 P {place}/child\n"))?.shows("/z\n")?.hides("fifo")?.hides(".zfs")?;
    world.ok("zfs project -c -r {mnt}/tank")?.prints("")?;
    // What fails is said, and the rest is done.
    std::os::unix::fs::symlink("turns", path("turns"))?;
    let failed = format!("failed to open {place}/turns: Too many levels of symbolic links");
    world.refused("zfs project -r -p 8 {mnt}/tank", 255, &failed)?;
    have("    8 P")?;
    world.refused("zfs project -C -r {mnt}/tank", 255, &failed)?;
    have("    0 -")
}

/// What a pool counts from an upgrade on is counted of file systems that were there before: once they change, are mounted, or get a version.
pub fn upgraded(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    let without = "-o feature@userobj_accounting=disabled -o feature@project_quota=disabled";
    world.ok(&format!("zpool create {without} -m {{mnt}}/tank tank {{vdevs}}/a"))?;
    let make = |name: &str, number: u32| std::fs::write(world.path(&format!("mnt/tank/{name}/f{number}")), "x");
    for name in ["changed", "mounted", "set", "left"] {
        world.ok(&format!("zfs create tank/{name}"))?;
        (0..5).try_for_each(|number| make(name, number))?;
    }
    world.ok("zfs unmount tank/mounted")?;
    world.ok("zpool sync tank")?;
    let counts = |name: &str, expected: &str| -> Result<bool, Failure> {
        let objects = world.ok(&format!("zfs userspace -Hp -o objused tank/{name}"))?.out;
        let projects = world.ok(&format!("zfs projectspace -Hp -o objused tank/{name}"))?.out;
        Ok(objects.trim() == expected && (projects.trim() == expected || expected == "-" && projects.is_empty()))
    };
    same("before", counts("changed", "-")?, true)?;
    world.refused("zfs set projectquota@7=1M tank/changed", 1, "must be upgraded")?;
    world.ok("zpool set feature@userobj_accounting=enabled tank")?;
    world.ok("zpool set feature@project_quota=enabled tank")?;
    same("just enabled", counts("changed", "-")?, true)?;
    make("changed", 5)?;
    until("a change", || counts("changed", "7"))?;
    world.ok("zfs mount tank/mounted")?;
    until("a mount", || counts("mounted", "6"))?;
    same("nothing was done", counts("left", "-")? && counts("set", "-")?, true)?;
    world.ok("zfs set version=current tank/set")?;
    same("a version", counts("set", "6")?, true)?;
    world.ok("zfs get -H -o value projectobjused@0 tank/set")?.prints("6")?;
    world.ok("zpool get -H -o value feature@userobj_accounting,feature@project_quota tank")?.prints("active\nactive")?;
    world.ok("zpool destroy tank").map(drop)
}

fn refusals(world: &World) -> Result<(), Failure> {
    world.refused("zfs set userquota@no-such-user=1M tank/fs", 1, "'userquota@no-such-user' has an invalid user/group name")?;
    world.refused("zfs set projectquota@-1=1M tank/fs", 1, "has an invalid user/group name")?;
    world.refused("zfs set userquota@7=1Mx tank/fs", 1, "invalid numeric suffix 'Mx'")?;
    world.refused("zfs set userused@7=1M tank/fs", 1, "'userused@7' is readonly")?;
    world.refused("zfs set userquota@7=1M tank/fs@then", 1, "this property can not be modified for snapshots")?;
    world.refused("zfs create -V 8M -o userquota@7=1M tank/vol", 1, "'userquota@7' does not apply to datasets of this type")?;
    world.refused("zfs userspace -o size tank/fs", 1, "invalid type 'size' for -o option")?;
    world.refused("zfs userspace -t everybody tank/fs", 1, "invalid type 'everybody' for -t option")?;
    world.refused("zfs userspace -s size tank/fs", 2, "invalid field 'size'")?;
    world.refused("zfs groupspace", 2, "missing dataset name").map(|_| ())
}
