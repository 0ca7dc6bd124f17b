//! The words of command lines: other names of properties, what is worked out only when asked for, paths for datasets, what is lacking.

use crate::world::{Failure, World, same};

/// Every way that OpenZFS has to name a property or a dataset means the same here.
pub fn properties(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O compress=off -O mountpoint={mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create -o compress=lz4 -o recsize=8K tank/fs")?;
    world.ok("zfs get -H -o value compression,recordsize tank/fs")?.prints("lz4\n8K")?;
    world.refused("zfs create -o compress=on -o compression=off tank/no", 1, "property 'compression' specified multiple times")?;
    world.refused("zfs create -o quota=0 tank/no", 1, "use 'none' to disable quota")?;
    refused(world)?;
    world.refused("zfs create -o keyformat=passphrase tank/no", 1, "Encryption must be turned on to set encryption properties.")?;
    world.refused("zfs load-key tank", 1, "Key load error: 'tank' is not encrypted.")?;
    world.refused("zfs unload-key tank", 1, "Key unload error: 'tank' is not encrypted.")?;
    world.refused("zfs load-key", 2, "missing dataset argument(s)")?;
    world.refused("zfs load-key -r -L file:///key tank", 2, "alternate keylocation may only be 'prompt' with -r or -a")?;
    world.ok("zfs load-key -a")?;
    world.ok("zfs get -H -o value quota,refquota,reservation tank/fs")?.prints("none\nnone\nnone")?;
    world.ok("zfs get -Hp -o value quota,refquota,reservation tank/fs")?.prints("0\n0\n0")?;
    // What is worked out only when it is named.
    world.ok("zfs snapshot tank/fs@a")?;
    std::fs::write(world.path("mnt/tank/fs/file"), vec![7_u8; 1 << 20])?;
    world.ok("zfs snapshot tank/fs@b")?;
    world.ok("zfs snapshot tank/fs@c")?;
    let written = |what: &str, of: &str| -> Result<u64, Failure> {
        let ran = world.ok(&format!("zfs get -Hp -o value {what} {of}"))?;
        ran.out.trim().parse().map_err(|_| ran.fault("not a number"))
    };
    same("written since before the file", (written("written@a", "tank/fs")?) >= 1 << 12, true)?;
    same("written since after it", written("written@c", "tank/fs")?, 0)?;
    same("by its full name", written("written@tank/fs@a", "tank/fs@b")?, written("written@a", "tank/fs")?)?;
    world.ok("zfs get -H -o value written@nothing tank/fs")?.prints("-")?;
    if world.ok("id -u")?.out.trim() == "0" {
        same("what root uses", written("userused@root", "tank/fs")? > 0, true)?;
        same("by number", written("userused@0", "tank/fs")?, written("userused@root", "tank/fs")?)?;
        world
            .ok("zfs get -H -o property,value userquota@root,userobjquota@4711 tank/fs")?
            .prints("userquota@root\tnone\nuserobjquota@4711\tnone")?;
    }
    world.refused("zfs get nothing@a tank/fs", 2, "invalid property 'nothing@a'")?;
    // A path means the file system that it is in.
    world.ok("zfs list -H -o name {mnt}/tank/fs/file")?.prints("tank/fs")?;
    world.ok("zfs get -H -o name,value type {mnt}/tank")?.prints("tank\tfilesystem")?;
    world.refused("zfs list /proc", 1, "'/proc' is not on a mounted ZFS filesystem")?;
    // What create says, and to whom.
    world.ok("zfs create -n tank/dry")?.prints("")?;
    world
        .ok("zfs create -nvp -o atime=off tank/dry/a")?
        .prints("would create ancestors of tank/dry/a\nwould create tank/dry/a\n\tatime=off")?;
    world.ok("zfs create -P tank/dry")?.prints("create\ttank/dry")?;
    world.refused("zfs create -n -o atime=maybe tank/x", 1, "cannot verify 'tank/x'")?;
    // A property that nobody set, one that was taken back, and what changes with each opening.
    world.ok("zpool set com.example:x=1 tank")?;
    world.ok("zpool set com.example:x= tank")?;
    world.ok("zpool get -H -o value,source com.example:x tank")?.prints("-\tdefault")?;
    world.ok("zpool get -H -o value load_guid tank").and_then(|ran| same("load_guid", ran.out.trim().parse::<u64>().is_ok(), true))?;
    world.ok("zpool sync -f tank")?;
    lacking(world)?;
    // All that is in a pool goes; the pool and its own file system stay.
    world.refused("zfs destroy tank", 1, "use 'zfs destroy -r tank' to destroy all datasets in the pool")?;
    world.ok("zfs snapshot tank@own")?;
    world.ok("zfs destroy -r tank")?;
    world.ok("zfs list -H -r -t all -o name")?.prints("tank").map(drop)
}

/// What is lacking is said by name.
fn lacking(world: &World) -> Result<(), Failure> {
    world.ok("zfs allow tank/fs")?.prints("")?;
    world.refused("zfs allow tank/no", 1, "cannot open 'tank/no': dataset does not exist")?;
    world.refused("zfs program tank/fs x", 1, "'zfs program' is not available in this version")?;
    world.refused("zfs rewrite {mnt}/tank/fs/file", 1, "'zfs rewrite' is not available in this version")?;
    world.refused("zpool import -E tank", 1, "option '-E' of 'zpool import' is not available in this version")?;
    world.refused("zpool import -l -N tank", 2, "-l is incompatible with -N")?;
    world.refused("zpool import -l", 2, "-l is only meaningful during an import")?;
    world.refused("zfs frobnicate", 2, "unrecognized command 'frobnicate'").map(drop)
}

/// Scripts that look after deduplication find what there is of it, and go on.
fn deduplication(world: &World) -> Result<(), Failure> {
    world.refused("zfs set dedup=edonr tank", 1, "dedup")?;
    world.refused("zfs set dedup=fletcher4 tank", 1, "dedup")?;
    world.ok("zpool prefetch -t ddt tank")?.prints("")?;
    world.refused("zpool prefetch -t brt tank", 2, "unsupported prefetch type")?;
    world.refused("zpool prefetch -t ddt none", 1, "no such pool")?;
    world.ok("zpool status -D tank")?.shows(" dedup: no DDT entries")?;
    world.refused("zpool set dedupcached=1 tank", 1, "readonly")?;
    for (value, shown) in [("1G", "1G"), ("none", "none"), ("auto", "auto")] {
        world.ok(&format!("zpool set dedup_table_quota={value} tank"))?;
        world.ok("zpool get -H -o value dedup_table_quota tank")?.prints(shown)?;
    }
    world.refused("zpool set dedup_table_quota=0 tank", 1, "use 'none' to disable ddt table quota")?;
    world.ok("zpool get -H -o value dedupcached tank")?.prints("-").map(drop)
}

/// What a slip of the hand must not do.
fn refused(world: &World) -> Result<(), Failure> {
    deduplication(world)?;
    for pair in ["-o quota=50M -o reservation=60M", "-o refquota=50M -o refreservation=60M"] {
        world.refused(&format!("zfs create {pair} tank/no"), 1, "cannot create 'tank/no'")?;
    }
    // Bytes that are no text end no command with a panic, and are not told as something else.
    for (program, verb) in [("zfs", "list"), ("zpool", "status"), ("zpool", "create"), ("zinject", "-d")] {
        let word: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"p\xff");
        let ran = std::process::Command::new(world.program(program)).args([std::ffi::OsStr::new(verb), word]).output()?;
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        let why = "argument \"p\\xFF\" is not UTF-8: such names are not supported\n".to_string();
        same("no text", (ran.status.code(), said), (Some(2), why))?;
    }
    Ok(())
}
