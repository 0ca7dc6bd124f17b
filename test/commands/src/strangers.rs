//! What people found who used it without knowing how it is made: paths, names and copies of any kind, and what the answers say.

use crate::world::{Failure, World, same};
use std::fs::{File, create_dir_all, metadata, read_to_string, write};
use std::os::unix::fs::FileTypeExt;

/// Whatever path a command is given: it is answered, the daemon goes on, and what lies there is not replaced. Otherwise a typing error takes the
/// memory of the machine, or a thread of the daemon for ever.
pub fn endless(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    let fifo = world.at("fifo");
    world.ok(&format!("mkfifo {fifo}"))?;
    for wrong in ["/dev/zero", &fifo] {
        world.refused(&format!("zpool import -c {wrong} tank"), 1, &format!("failed to open cache file '{wrong}': not a regular file"))?;
        let create = format!("zpool create -O canmount=off -o compatibility={wrong} tank {{vdevs}}/a");
        world.refused(&create, 1, &format!("error reading compatibility file '{wrong}'"))?;
        let create = format!("zpool create -O canmount=off -o cachefile={wrong} tank {{vdevs}}/a");
        world.refused(&create, 1, &format!("'{wrong}' is not a valid file"))?;
        world.refused(&format!("zpool create -O canmount=off tank mirror {{vdevs}}/a {wrong}"), 1, "")?;
        world.run(&format!("zdb -l {wrong}"))?.shows("not a block device or regular file")?;
        world.run(&format!("zdb -U {wrong} -C"))?.shows("not a regular file")?;
    }
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.refused(&format!("zpool set cachefile={fifo} tank"), 1, "is not a valid file")?;
    world.refused(&format!("zpool set cachefile={} tank", world.at("vdevs")), 1, "is not a valid file")?;
    same("a FIFO still", metadata(&fifo)?.file_type().is_fifo(), true)?;
    // What is too large is not read either.
    world.refused("zpool import -c {vdevs}/b tank", 1, "larger than 67108864 bytes")?;
    Ok(())
}

/// A copy of a device beside it, for a backup, is never taken in its place: its owner would write to the backup, and with an old one go back in time.
pub fn copies(world: &World) -> Result<(), Failure> {
    world.vdevs(&["x"])?;
    let copy = |to: &str| world.ok(&format!("cp --sparse=always {{vdevs}}/x {{vdevs}}/{to}")).map(drop);
    let is_own = || world.ok("zpool status -P tank")?.shows("/x ").and_then(|ran| ran.hides("copy")).map(drop);
    world.ok("zpool create -O canmount=off tank {vdevs}/x")?;
    world.ok("zpool export tank")?;
    copy("a.copy")?;
    copy("z.copy")?;
    world.ok("zpool import -d {vdevs} tank")?;
    is_own()?;
    world.ok("zfs create -o canmount=off tank/later")?;
    world.ok("zpool export tank")?;
    // Now they are old.
    world.ok("zpool import -d {vdevs} tank")?;
    is_own()?;
    world.ok("zfs list -H -o name tank/later")?.prints("tank/later")?;
    world.ok("zpool export tank")?;
    // A folder that was moved as a whole: the names are what is left.
    copy("a.copy")?;
    std::fs::rename(world.path("vdevs"), world.path("moved"))?;
    world.ok("zpool import -d {dir}/moved tank")?;
    is_own()
}

/// Lists of pools that cannot be read are kept, each of them: the first may be the one that somebody can still mend.
pub fn damaged_lists(world: &World) -> Result<(), Failure> {
    for text in ["{ one", "{ two", "{ three"] {
        world.ok("zpool list")?;
        world.ok("zirconia stop")?;
        write(world.path("state/pools.json"), text)?;
    }
    world.ok("zpool list")?;
    for (kept, text) in [("", "{ one"), (".1", "{ two"), (".2", "{ three")] {
        same(kept, read_to_string(world.path(&format!("state/pools.json.damaged{kept}")))?, text.to_string())?;
    }
    Ok(())
}

/// A cache file in a folder that is not there is refused; one whose folder goes away later is told of, and costs no pool. If this fails, the pool is not
/// open after a restart, or nobody hears that it is in no cache file.
pub fn lost_cache_files(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    let folder = world.path("caches");
    create_dir_all(&folder)?;
    let (cache, nowhere) = (world.at("caches/x"), world.at("nowhere"));
    let why = format!("'{nowhere}' is not a valid directory");
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.refused(&format!("zpool set cachefile={nowhere}/x tank"), 1, &why)?;
    world.ok("zpool get -H -o value cachefile tank")?.prints("-")?;
    world.ok("zpool export tank")?;
    world.refused(&format!("zpool import -d {{vdevs}} -o cachefile={nowhere}/x tank"), 1, &why)?;
    world.ok(&format!("zpool import -d {{vdevs}} -o cachefile={cache} tank"))?;
    std::fs::remove_dir_all(&folder)?;
    let warning = format!("warning: the cache file '{cache}' cannot be written: No such file or directory");
    world.ok("zpool create -O canmount=off -o cachefile=none other {vdevs}/b")?.says(&warning)?;
    world.ok("zpool events")?.shows("ereport.fs.zfs.config_cache_write")?;
    world.logged(&[&format!("cannot write {cache}: No such file or directory")])?;
    world.ok("zirconia stop")?;
    // Datasets are waited for.
    world.ok("zfs list -H -o name")?.prints("other\ntank")?;
    world.ok("zpool list -H -o name,health")?.prints("other\tONLINE\ntank\tONLINE")?;
    world.ok("zpool get -H -o value cachefile tank")?.prints(&cache)?;
    // With room again it is there: at once where something changes, and else by itself.
    create_dir_all(&folder)?;
    world.ok("zpool destroy other")?.prints("")?;
    same("the cache file", metadata(&cache)?.is_file(), true)
}

/// A log device that was away while it was removed is none of the pool's any more, also where another device is away and the pool's own configuration
/// cannot be read. If this fails, somebody looks after a device, or waits for one, that the pool does not have.
pub fn removed_logs(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "log", "special"])?;
    let move_to = |from: &str, to: &str| std::fs::rename(world.path(from), world.path(to));
    create_dir_all(world.path("away"))?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a log {vdevs}/log")?;
    world.ok("zpool add -f tank special {vdevs}/special")?;
    world.ok("zpool export tank")?;
    move_to("vdevs/log", "away/log")?;
    world.ok("zpool import -d {vdevs} -m tank")?;
    world.ok("zpool remove tank {vdevs}/log")?;
    world.ok("zpool export tank")?;
    move_to("away/log", "vdevs/log")?;
    world.ok("zpool import -d {vdevs}")?.shows("vdevs/special  ONLINE")?.hides("vdevs/log")?;
    move_to("vdevs/special", "away/special")?;
    let without = world.ok("zpool import -d {vdevs}")?;
    without.shows("vdevs/a  ONLINE")?.shows("Additional devices are known to be part of this pool")?.hides("vdevs/log")?.hides("logs")?;
    move_to("away/special", "vdevs/special")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?.hides("vdevs/log").map(drop)
}

/// `import -a` that leaves a pool out says so by its exit code too: a script would go on without the data.
pub fn all_but_one(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    for vdev in ["a", "b"] {
        world.ok(&format!("zpool create -O canmount=off twin {{vdevs}}/{vdev}"))?;
        world.ok("zpool export twin")?;
    }
    world.refused("zpool import -d {vdevs} -a", 1, "cannot import 'twin': a pool named 'twin' is already imported")?;
    world.ok("zpool list -H -o name")?.prints("twin")?;
    world.ok("zpool export twin")?;
    std::fs::remove_file(world.path("vdevs/b"))?;
    world.ok("zpool import -d {vdevs} -a")?;
    Ok(())
}

/// Of several snapshots the message names the one that cannot be taken: whoever reads it looks there.
pub fn which_snapshot(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.ok("zfs create -o canmount=off tank/x")?;
    let several = "zfs snapshot tank@a tank/x@b tank/nope@c";
    world.refused(several, 1, "cannot create snapshot 'tank/nope@c': dataset does not exist")?;
    world.ok("zfs snapshot tank/x@b")?;
    world.refused("zfs snapshot tank@a tank/x@b", 1, "cannot create snapshot 'tank/x@b': dataset already exists")?;
    world.ok("zfs list -H -o name -t snapshot")?.prints("tank/x@b")?;
    Ok(())
}

/// Properties of what is in use: the advice is a command that there is.
pub fn advice(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create -o mountpoint={mnt}/own tank/x")?;
    create_dir_all(world.path("mnt/own/folder"))?;
    let held = File::create(world.path("mnt/own/folder/file"))?;
    for change in ["set mountpoint={mnt}/elsewhere", "set canmount=off", "inherit mountpoint"] {
        let refused = world.refused(&format!("zfs {change} tank/x"), 1, "or use 'zfs unmount -f' first")?;
        same("an option that it lacks", refused.err.contains("use '-f'"), false)?;
    }
    world.ok("zfs unmount -f tank/x")?;
    world.ok("zfs set mountpoint={mnt}/elsewhere tank/x")?;
    drop(held);
    Ok(())
}

/// Mistyped properties of pools are told as what they are, before anything is made or imported: whoever reads that this version lacks something
/// looks for another way, and a comment that OpenZFS cannot take is never set again.
pub fn properties(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    let long = "x".repeat(33);
    let slips = [
        ("failmode=bogus", "'failmode' must be one of 'wait | continue | panic'"),
        ("autotrim=maybe", "'autotrim' must be one of 'on | off'"),
        ("multihost=maybe", "'multihost' must be one of 'on | off'"),
        ("size=5", "'size' is readonly"),
        ("ashift=8", "property 'ashift' number 8 is invalid, only values between 9 and 16 are allowed."),
        ("feature@nothing=disabled", "invalid feature 'nothing'"),
        (&format!("comment={long}"), "comment must not exceed 32 characters"),
        ("compatibility=nothing", "error reading compatibility file 'nothing'"),
    ];
    let unknown =
        [("foo=1", "property 'foo' is not a valid pool or vdev property"), ("org.example:x=1", "'org.example:x' is not a valid pool")];
    for (word, why) in slips.iter().chain(&unknown) {
        world.refused(&format!("zpool create -O canmount=off -o {word} tank {{vdevs}}/a"), 1, why)?;
    }
    world.refused("zpool create -O canmount=off -o version=old tank {vdevs}/a", 1, "bad numeric value 'old'")?;
    world.refused("zpool create -O atime=maybe tank {vdevs}/a", 1, "'atime' must be one of 'on | off'")?;
    world.refused("zpool create -O canmount=off -o readonly=on tank {vdevs}/a", 1, "property 'readonly' can only be set at import time")?;
    world.refused("zpool create -O nothing=1 tank {vdevs}/a", 1, "property 'nothing' is not a valid filesystem property")?;
    let set = "-o comment=ours -o autotrim=on -o background_latency_target=p99=5ms";
    world.ok(&format!("zpool create -O canmount=off {set} tank mirror {{vdevs}}/a {{vdevs}}/b"))?;
    world.ok("zpool get -H -o value comment,autotrim,background_latency_target tank")?.prints("ours\non\np99=5ms")?;
    for (word, why) in &slips {
        world.refused(&format!("zpool set {word} tank"), 1, why)?;
    }
    let (name, value) = (format!("org.example:{}", "x".repeat(244)), "y".repeat(8192));
    for (line, why) in [
        (format!("zfs snapshot -o {name}=1 tank@a"), "' is too long: 255 bytes at most"),
        (format!("zfs snapshot -o org.example:x={value} tank@a"), "property value too long: 'org.example:x' takes 8191 bytes at most"),
        (format!("zpool set {name}=1 tank {{vdevs}}/a"), "' is too long: 255 bytes at most"),
        (format!("zpool set org.example:x={value} tank {{vdevs}}/a"), "' is too long: 8191 bytes at most"),
    ] {
        world.refused(&line, 1, why)?;
    }
    world.refused("zpool set foo=1 tank", 1, "cannot set property for 'tank': invalid property 'foo'")?;
    world.refused("zpool set altroot=/mnt tank", 1, "property 'altroot' can only be set during pool creation or import")?;
    world.refused("zpool set feature@lz4_compress=disabled tank", 1, "can only be set to 'disabled' at creation time")?;
    world.ok("zpool export tank")?;
    for (word, why) in slips.iter().chain(&unknown) {
        world.refused(&format!("zpool import -d {{vdevs}} -o {word} tank"), 1, why)?;
    }
    world.refused("zpool import -d {vdevs} -o bootfs=tank tank", 1, "property 'bootfs' cannot be set at creation or import time")?;
    let read_only = world.ok("zpool import -d {vdevs} -o readonly=on -o comment=new tank")?;
    read_only.says("property 'comment' was not set: 'tank' is read-only")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} -o comment=new -o failmode=continue tank")?;
    world.ok("zpool get -H -o value comment,failmode tank")?.prints("new\ncontinue")?;
    // Devices have a size also where they are parts of a vdev.
    let rows = world.ok("zpool list -Hvp tank")?;
    let sizes: Vec<&str> = rows.out.lines().filter_map(|line| line.split_once("/vdevs/")?.1.split('\t').nth(1)).collect();
    let bytes = metadata(world.path("vdevs/a"))?.len().to_string();
    same("sizes of the devices of a mirror", sizes, vec![bytes.as_str(); 2])
}

/// Names that nothing can have: the message says what is wrong with the name, not that a pool is missing that nobody meant.
pub fn names(world: &World) -> Result<(), Failure> {
    let empty = "empty component or misplaced '@' or '#' delimiter in name";
    world.vdevs(&["a"])?;
    world
        .refused("zpool create tank/x {vdevs}/a", 1, "invalid character '/' in pool name")?
        .says("use 'zfs create' to create a dataset")?;
    world.refused("zpool create tank*x {vdevs}/a", 1, "invalid character '*' in pool name")?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    for verb in ["status", "iostat", "scrub", "export"] {
        world.refused(&format!("zpool {verb} tank/x"), 1, "cannot open 'tank/x': invalid character '/' in pool name")?;
    }
    let wrong = [
        ("/tank/x", "leading slash in name"),
        ("tank/", "trailing slash in name"),
        ("tank//x", empty),
        ("tank/x*y", "invalid character '*' in name"),
        ("tank/./x", "self reference, '.' is found in name"),
        ("tank/..", "parent reference, '..' is found in name"),
        ("tank/x#y", "bookmark delimiter '#' is not expected here"),
    ];
    for (name, why) in wrong {
        world.refused(&format!("zfs create {name}"), 1, &format!("cannot create '{name}': {why}"))?;
        world.refused(&format!("zfs create -p {name}"), 1, &format!("cannot create '{name}': {why}"))?;
        world.refused(&format!("zfs rename tank {name}"), 1, &format!("cannot rename to '{name}': {why}"))?;
        // Bookmarks can be destroyed, and have properties that can be looked at.
        let is_bookmark = |verb: &&str| name.contains('#') && matches!(*verb, "destroy" | "get all");
        for verb in ["destroy", "set compression=off", "inherit compression", "rename -f"].into_iter().filter(|verb| !is_bookmark(verb)) {
            let more = if verb.starts_with("rename") { " tank/y" } else { "" };
            world.refused(&format!("zfs {verb} {name}{more}"), 1, &format!("cannot open '{name}': {why}"))?;
        }
        // Paths mean something there.
        let verbs = ["list", "get all", "userspace", "mount"].into_iter().filter(|verb| !name.starts_with('/') && !is_bookmark(verb));
        for verb in verbs {
            world.refused(&format!("zfs {verb} {name}"), 1, &format!("cannot open '{name}': {why}"))?;
        }
    }
    world.refused("zfs destroy tank/x#y", 1, "bookmark 'tank/x#y' does not exist")?;
    world.refused("zfs get all tank/x#y", 1, "cannot open 'tank/x#y': dataset does not exist")?;
    world.refused("zfs create tank/x@y", 1, "cannot create 'tank/x@y': snapshot delimiter '@' is not expected here")?;
    world.refused("zfs create tank/x%y", 1, "cannot create 'tank/x%y': invalid character % in name")?;
    world.refused("zfs create other", 1, "cannot create 'other': missing dataset name")?;
    world.refused("zfs rename tank other", 1, "cannot create 'other': missing dataset name")?;
    world.refused("zfs snapshot tank", 1, "missing '@' delimiter in snapshot name")?;
    world.refused("zfs snapshot tank@a tank@b@c", 1, "multiple '@' and/or '#' delimiters in name")?;
    world.ok("zfs create -o canmount=off tank/x")?;
    world.refused("zfs rename tank/x tank/no/x", 1, "cannot create 'tank/no/x': parent does not exist")?;
    world.refused("zfs rename tank/x other/x", 1, "cannot create 'other/x': no such pool 'other'")?;
    world.ok("zfs snapshot tank/x@a")?;
    world.refused("zfs rename tank/x@a @b*", 1, "invalid character '*' in name")?;
    world.ok("zfs rename tank/x@a @b")?;
    world.ok("zfs list -H -o name -t snapshot")?.prints("tank/x@b")?;
    // If this fails, the terminal of whoever reads the messages, be it in a file of them, obeys whoever chose a name.
    let is_order = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    for verb in ["zfs create tank/", "zfs list tank/", "zpool status tank", "zpool sta", "zfs get all", "arcstat --"] {
        let ran = world.run(&format!("{verb}a\u{1b}[31mb\u{9b}c"))?;
        same(&format!("an order to a terminal in what {verb} says"), (ran.code == 0, ran.err.contains(is_order)), (false, false))?;
        // The library that reads its words leaves orders out.
        if verb != "arcstat --" {
            ran.says("a\\033[31mb\\302\\233c")?;
        }
    }
    Ok(())
}
