//! Clones, promoted ones, and going back to a snapshot, as users see them; pools are judged by OpenZFS's `zdb`.

use crate::waiting::until;
use crate::world::{Failure, World, judge, same};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

fn value(world: &World, property: &str, name: &str) -> Result<String, Failure> {
    Ok(world.ok(&format!("zfs get -H -o value {property} {name}"))?.out.trim().to_string())
}

fn text(world: &World, path: &str) -> Result<String, Failure> {
    Ok(std::fs::read_to_string(world.path(path))?)
}

/// Nothing leaks, and nothing is freed that somebody has.
fn judged(world: &World, zdb: &str) -> Result<(), Failure> {
    world.ok("zpool export tank")?;
    world.clean(zdb, "-e -p {vdevs} -bcch tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    Ok(())
}

/// Clones are made, refused, and named where something cannot go because of them.
pub fn clones(world: &World) -> Result<(), Failure> {
    let zdb = judge("clones: OpenZFS's judgement")?;
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zpool create -O mountpoint=none other {vdevs}/b")?;
    world.ok("zfs create tank/a")?;
    std::fs::write(world.path("mnt/tank/a/file"), "first")?;
    world.ok("zfs snapshot tank/a@one")?;
    std::fs::write(world.path("mnt/tank/a/file"), "second")?;
    world.ok("zfs snapshot tank/a@two")?;
    world.refused("zfs clone tank/a@no tank/b", 1, "cannot open 'tank/a@no': dataset does not exist")?;
    world.refused("zfs clone tank/a tank/b", 1, "cannot open 'tank/a': missing '@' delimiter in snapshot name")?;
    world.refused("zfs clone tank/a@one", 2, "missing target dataset argument")?;
    world.refused("zfs clone tank/a@one tank/no/b", 1, "cannot create 'tank/no/b': parent does not exist")?;
    world.refused("zfs clone tank/a@one tank/a", 1, "cannot create 'tank/a': dataset already exists")?;
    world.refused("zfs clone tank/a@one other/b", 1, "cannot create 'other/b': source and target pools differ")?;
    world.refused("zfs clone -o nonsense=1 tank/a@one tank/b", 1, "invalid property 'nonsense'")?;
    world.refused("zfs clone -o casesensitivity=mixed tank/a@one tank/b", 1, "cannot create 'tank/b'")?;
    for _ in 0..2 {
        world.ok("zfs clone -p -o mountpoint={mnt}/elsewhere -o compression=zstd tank/a@one tank/deep/er/b")?;
    }
    too_deep(world)?;
    same("the clone", text(world, "mnt/elsewhere/file")?, "first".to_string())?;
    same("its origin", value(world, "origin", "tank/deep/er/b")?, "tank/a@one".to_string())?;
    same("the snapshot's clones", value(world, "clones", "tank/a@one")?, "tank/deep/er/b".to_string())?;
    same("its property", value(world, "compression", "tank/deep/er/b")?, "zstd".to_string())?;
    let clones = "use '-R' to destroy the following datasets:\ntank/deep/er/b\n";
    world.refused("zfs destroy tank/a@one", 1, "cannot destroy 'tank/a@one': snapshot has dependent clones")?.says(clones)?;
    world.refused("zfs destroy -r tank/a", 1, "cannot destroy 'tank/a': filesystem has dependent clones")?.says(clones)?;
    std::fs::write(world.path("mnt/elsewhere/own"), vec![7; 300_000])?;
    promoted(world)?;
    judged(world, &zdb)?;
    gone(world)?;
    volumes(world)?;
    judged(world, &zdb)
}

/// What cannot be made leaves no parents behind that were made for it.
fn too_deep(world: &World) -> Result<(), Failure> {
    let deep = format!("tank/deep{}", "/a".repeat(60));
    for verb in ["clone -p tank/a@one", "create -p", "rename -p tank/deep/er"] {
        world.refused(&format!("zfs {verb} {deep}"), 1, "name is too long")?;
    }
    // The name itself is not too deep, what is below it would be.
    world.refused(&format!("zfs rename -p tank/deep/er tank/deep{}", "/a".repeat(48)), 1, "name is too long")?;
    world.refused("zfs clone -p tank/a@one other/no/b", 1, "source and target pools differ")?;
    world.ok("zfs list -H -o name -r tank/deep other")?.prints("other\ntank/deep\ntank/deep/er\ntank/deep/er/b").map(drop)
}

/// A clone takes the place of what it was made from.
fn promoted(world: &World) -> Result<(), Failure> {
    world.refused("zfs promote tank/a", 1, "cannot promote 'tank/a': not a cloned filesystem")?;
    world.refused("zfs promote tank/a@one", 1, "cannot open 'tank/a@one': snapshot delimiter '@' is not expected here")?;
    world.refused("zfs promote", 2, "missing clone filesystem argument")?;
    world.ok("zfs snapshot tank/deep/er/b@one")?;
    let conflict = "cannot promote 'tank/deep/er/b': conflicting snapshot 'one' from parent 'tank/a@one'";
    world.refused("zfs promote tank/deep/er/b", 1, conflict)?;
    world.ok("zfs destroy tank/deep/er/b@one")?;
    world.ok("zfs promote tank/deep/er/b")?;
    same("the other way round", value(world, "origin", "tank/a")?, "tank/deep/er/b@one".to_string())?;
    same("no clone any more", value(world, "origin", "tank/deep/er/b")?, "-".to_string())?;
    world.ok("zfs list -H -t snapshot -o name -r tank")?.prints("tank/a@two\ntank/deep/er/b@one")?;
    same("the snapshot", text(world, "mnt/elsewhere/.zfs/snapshot/one/file")?, "first".to_string())?;
    same("the file", text(world, "mnt/tank/a/file")?, "second".to_string())?;
    std::fs::write(world.path("mnt/tank/a/file"), "third")?;
    std::fs::write(world.path("mnt/elsewhere/file"), "other")?;
    world.ok("zpool history -i tank")?.shows("promote")?.shows("clone").map(drop)
}

/// Snapshots go with their last clone, and clones with their snapshot.
fn gone(world: &World) -> Result<(), Failure> {
    world.ok("zfs destroy -Rnv tank/deep/er/b@one")?.shows("would destroy tank/a\n")?.shows("would destroy tank/a@two\n")?;
    world.refused("zfs destroy -d tank/a", 1, "cannot open 'tank/a': missing '@' delimiter in snapshot name")?;
    world.ok("zfs destroy -d tank/deep/er/b@one")?;
    same("it waits", value(world, "defer_destroy", "tank/deep/er/b@one")?, "on".to_string())?;
    world.ok("zfs destroy -r tank/a")?;
    world.refused("zfs list tank/deep/er/b@one", 1, "dataset does not exist")?;
    same("what was its snapshot", text(world, "mnt/elsewhere/file")?, "other".to_string())?;
    world.ok("zfs snapshot tank/deep/er/b@x")?;
    world.ok("zfs clone tank/deep/er/b@x tank/c")?;
    world.ok("zfs create tank/c/child")?;
    let open = File::open(world.path("mnt/tank/c/file"))?;
    world.refused("zfs destroy -R tank/deep/er/b@x", 1, "busy")?;
    same("what was unmounted is back", world.path("mnt/tank/c/child").is_dir(), true)?;
    drop(open);
    world.ok("zfs destroy -Rv tank/deep/er/b@x")?.shows("will destroy tank/c/child\nwill destroy tank/c\n")?;
    world.ok("zfs list -H -o name -r -t filesystem,snapshot tank")?.prints("tank\ntank/deep\ntank/deep/er\ntank/deep/er/b")?;
    same("the directory of the clone", world.path("mnt/tank/c").exists(), false)
}

/// Clones of volumes.
fn volumes(world: &World) -> Result<(), Failure> {
    let place = |name: &str| world.path("state/dev/zvol/tank").join(name);
    let first = |name: &str| -> Result<u8, Failure> {
        let mut byte = [0];
        File::open(place(name))?.read_exact_at(&mut byte, 4096)?;
        Ok(byte[0])
    };
    let write =
        |name: &str, byte: u8| OpenOptions::new().write(true).open(place(name)).and_then(|file| file.write_all_at(&[byte; 9000], 0));
    world.ok("zfs create -s -V 4m tank/vol")?;
    write("vol", 1)?;
    world.ok("zfs snapshot tank/vol@s")?;
    write("vol", 2)?;
    world.ok("zfs clone -o refreservation=auto tank/vol@s tank/copy")?.says("is the file dev/zvol/tank/copy")?;
    same("what is kept for it", value(world, "refreservation", "tank/copy")? == "none", false)?;
    same("both", (first("vol")?, first("copy")?), (2, 1))?;
    world.refused("zfs clone -o volsize=5000 tank/vol@s tank/larger", 1, "'volsize' must be a multiple of volume block size")?;
    world.ok("zfs clone -o volsize=8m tank/vol@s tank/larger")?;
    same("its size", (value(world, "volsize", "tank/larger")?, first("larger")?), ("8M".to_string(), 1))?;
    world.ok("zfs destroy tank/larger")?;
    world.ok("zfs promote tank/copy")?;
    write("copy", 3)?;
    same("both, promoted", (first("vol")?, first("copy")?), (2, 3))?;
    world.ok("zfs destroy tank/vol")?;
    // Who uses it is cut off only where that is asked for; a file that was closed counts as open for a moment.
    let open = OpenOptions::new().read(true).write(true).open(place("copy"))?;
    world.refused("zfs rollback tank/copy@s", 1, "cannot rollback 'tank/copy': dataset is busy")?;
    same("nothing changed", first("copy")?, 3)?;
    drop(open);
    world.ok("zfs rollback tank/copy@s")?;
    same("as it was", first("copy")?, 1)?;
    let open = OpenOptions::new().read(true).write(true).open(place("copy"))?;
    open.write_all_at(&[4; 9000], 0)?;
    world.ok("zfs rollback -f tank/copy@s")?;
    same("who had it open", open.write_at(&[5; 512], 0).is_err(), true)?;
    drop(open);
    same("as it was again", first("copy")?, 1)?;
    world.ok("zfs destroy -r tank/copy").map(drop)
}

/// Nothing leaks, the livelists have what their clones have, and each is counted: OpenZFS looks while the pool is exported.
fn counted(world: &World, zdb: &str) -> Result<(), Failure> {
    world.ok("zpool export tank")?;
    world.clean(zdb, "-e -p {vdevs} -bccdh tank")?.hides("Discrepancy")?;
    world.ok("zpool import -d {vdevs} tank")?;
    Ok(())
}

fn livelist_is(world: &World, state: &str) -> Result<(), Failure> {
    world.ok("zpool get -H -o value feature@livelist tank")?.prints(state).map(drop)
}

/// A clone that shares most of its blocks goes by its livelist, one that was promoted does not.
pub fn livelists(world: &World) -> Result<(), Failure> {
    let zdb = judge("livelists: OpenZFS's judgement")?;
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create -o compression=off tank/a")?;
    std::fs::write(world.path("mnt/tank/a/file"), vec![7; 8 << 20])?;
    world.ok("zfs snapshot tank/a@one")?;
    world.ok("zfs clone tank/a@one tank/c")?;
    livelist_is(world, "active")?;
    let overwrite = |name: &str, round: u64| -> Result<(), Failure> {
        let file = OpenOptions::new().write(true).open(world.path(&format!("mnt/tank/{name}/file")))?;
        file.write_all_at(&vec![round as u8; 200_000], round << 19)?;
        file.sync_all()?;
        world.ok("zpool sync tank").map(drop)
    };
    for round in 0..3 {
        overwrite("c", round)?;
        overwrite("c", round)?;
        counted(world, &zdb)?;
    }
    world.ok("zfs snapshot tank/c@own")?;
    overwrite("c", 2)?;
    counted(world, &zdb)?;
    livelist_is(world, "active")?;
    world.ok("zfs destroy tank/c@own")?;
    world.ok("zfs destroy tank/c")?;
    world.ok("zpool history -i tank")?.shows("(livelist, mintxg=")?;
    until("all is free", || Ok(world.ok("zpool get -Hp -o value freeing tank")?.out.trim() == "0"))?;
    counted(world, &zdb)?;
    livelist_is(world, "enabled")?;
    world.ok("zfs clone tank/a@one tank/d")?;
    overwrite("d", 1)?;
    world.ok("zfs promote tank/d")?;
    livelist_is(world, "enabled")?;
    overwrite("a", 3)?;
    counted(world, &zdb)?;
    world.ok("zfs destroy tank/a")?;
    counted(world, &zdb)
}

/// File systems go back to snapshots, with what the kernel keeps of them, and stay so.
pub fn rollbacks(world: &World) -> Result<(), Failure> {
    let zdb = judge("rollbacks: OpenZFS's judgement")?;
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create -p tank/a/child")?;
    let file = world.path("mnt/tank/a/file");
    std::fs::write(world.path("mnt/tank/a/child/file"), "child")?;
    std::fs::write(&file, "first")?;
    world.ok("zfs snapshot tank/a@one")?;
    std::fs::write(&file, "second")?;
    world.ok("zfs snapshot tank/a@two")?;
    let newer = "use '-r' to force deletion of the following snapshots and bookmarks:\ntank/a@two\n";
    world
        .refused("zfs rollback tank/a@one", 1, "cannot rollback to 'tank/a@one': more recent snapshots or bookmarks exist")?
        .says(newer)?;
    world.refused("zfs rollback tank/a", 1, "cannot open 'tank/a': missing '@' delimiter in snapshot name")?;
    world.refused("zfs rollback tank/a@no", 1, "cannot open 'tank/a@no': dataset does not exist")?;
    // Some of it is durable, some on disk, some only in memory.
    File::create(world.path("mnt/tank/a/new"))?.write_all(&[7; 200_000])?;
    world.ok("zpool sync tank")?;
    File::create(&file).and_then(|mut file| file.write_all(b"third").and_then(|()| file.sync_all()))?;
    std::fs::write(world.path("mnt/tank/a/newer"), "x")?;
    world.ok("zfs rollback tank/a@two")?;
    let names = || -> Result<Vec<String>, Failure> {
        let names = std::fs::read_dir(world.path("mnt/tank/a"))?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<Result<Vec<String>, std::io::Error>>()?;
        names.sort();
        Ok(names)
    };
    same("the file", std::fs::read_to_string(&file)?, "second".to_string())?;
    same("what there is", names()?, vec!["child".to_string(), "file".to_string()])?;
    same("what lies in it", text(world, "mnt/tank/a/child/file")?, "child".to_string())?;
    in_use(world, &zdb)?;
    File::create(&file).and_then(|mut file| file.write_all(b"fourth").and_then(|()| file.sync_all()))?;
    world.ok("zfs rollback tank/a@two")?;
    // Its intent log went with what it told of.
    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    until("the pool is open again", || Ok(world.ok("zpool status tank")?.out.contains("state: ONLINE")))?;
    until("the file system is mounted again", || Ok(std::fs::read_to_string(&file).is_ok()))?;
    same("the file after a kill", std::fs::read_to_string(&file)?, "second".to_string())?;
    over_clones(world)?;
    same("the file as it was first", std::fs::read_to_string(&file)?, "first".to_string())?;
    judged(world, &zdb)
}

/// Files that somebody has open change under them only where that is asked for.
fn in_use(world: &World, zdb: &str) -> Result<(), Failure> {
    let file = world.path("mnt/tank/a/file");
    std::fs::write(&file, "in use")?;
    let open = File::open(&file)?;
    world.refused("zfs rollback tank/a@two", 1, "busy")?.says("'-f'")?;
    same("nothing changed", std::fs::read_to_string(&file)?, "in use".to_string())?;
    world.refused("zfs rollback -r tank/a@one", 1, "busy")?;
    world.ok("zfs list tank/a@two")?;
    world.ok("zfs rollback -f tank/a@two")?;
    drop(open);
    same("the file", std::fs::read_to_string(&file)?, "second".to_string())?;
    same("what lies in it", text(world, "mnt/tank/a/child/file")?, "child".to_string())?;
    judged(world, zdb)
}

/// Newer snapshots have clones, which are named, and go with `-R`.
fn over_clones(world: &World) -> Result<(), Failure> {
    world.ok("zfs clone tank/a@two tank/c")?;
    world.ok("zfs snapshot tank/c@own")?;
    let next = "use '-R' to force deletion of the following clones and dependents:\ntank/c@own\ntank/c\n";
    world.refused("zfs rollback -r tank/a@one", 1, "cannot rollback to 'tank/a@one': clones of previous snapshots exist")?.says(next)?;
    world.ok("zfs rollback -R tank/a@one")?;
    world.ok("zfs list -H -o name -r -t filesystem,snapshot tank")?.prints("tank\ntank/a\ntank/a@one\ntank/a/child").map(drop)
}
