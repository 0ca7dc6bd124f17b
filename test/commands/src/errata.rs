//! Pools with encrypted datasets from before OpenZFS 0.8 (errata 3 and 4): what is told of them, what they still do, and how they are mended. The pools
//! are those of OpenZFS's own tests.

use crate::receives::piped;
use crate::world::{Failure, World, same};
use need::Need;
use std::path::Path;
use std::process::Command;

/// Folder of the images in Debian's package `zfs-test`.
const IMAGES: &str = "/usr/share/zfs/zfs-tests/tests/functional/cli_root/zpool_import/blockfiles";
/// Parameter by which raw streams of snapshots without a set of IVs are received.
const CHECK: &str = "state/sys/module/zfs/parameters/zfs_disable_ivset_guid_check";

/// Imports the pool of this name from its image; false where there is none, and may be none.
fn imported(world: &World, pool: &str) -> Result<bool, Failure> {
    let image = Path::new(IMAGES).join(format!("{pool}.dat.bz2"));
    if !image.is_file() {
        need::missing(Need::Images, &format!("errata of the pool {pool}"), format!("there is no {}", image.display()))?;
        return Ok(false);
    }
    let unpacked = Command::new("bzcat").arg(&image).output()?;
    if !unpacked.status.success() {
        return Err("the image could not be unpacked".into());
    }
    std::fs::create_dir_all(world.path("vdevs"))?;
    std::fs::write(world.path(&format!("vdevs/{pool}.dat")), unpacked.stdout)?;
    std::fs::write(world.path("words"), "password\n")?;
    world.ok(&format!("zpool import -R {{mnt}} -d {{vdevs}} {pool}"))?;
    Ok(true)
}

/// The pool after it was imported anew has neither erratum.
fn is_mended(world: &World, pool: &str) -> Result<(), Failure> {
    world.ok(&format!("zpool export {pool}"))?;
    world.ok(&format!("zpool import -R {{mnt}} -d {{vdevs}} {pool}"))?;
    world.ok("zfs list -t all")?;
    world.ok(&format!("zpool status {pool}"))?.hides("Errata")?.hides("ZFS-8000-ER")?;
    world.ok(&format!("zpool destroy {pool}"))?;
    Ok(())
}

/// If this fails, files of such datasets are lost with them, or others are made like them.
pub fn old_keys(world: &World) -> Result<(), Failure> {
    if !imported(world, "cryptv0")? {
        return Ok(());
    }
    world.ok("zpool status cryptv0")?.shows("Errata #3 detected.")?.shows("/msg/ZFS-8000-ER")?.shows("zfs mount -o ro")?;
    world.ok("zpool status -x")?.shows("Errata #3")?;
    world.ok("zfs load-key -L file://{dir}/words cryptv0/testfs")?;
    world.refused("zfs mount cryptv0/testfs", 1, "cannot mount 'cryptv0/testfs'")?;
    world.ok("zfs mount -o ro cryptv0/testfs")?;
    let contents = std::fs::read(world.path("mnt/cryptv0/testfs/testfile"))?;
    same("what is mounted is only read", std::fs::write(world.path("mnt/cryptv0/testfs/new"), "new").is_err(), true)?;
    let new = "zfs create -o encryption=on -o keyformat=passphrase -o keylocation=file://{dir}/words cryptv0/new";
    world.refused(new, 1, "cryptv0/new")?;
    world.ok("zpool set feature@bookmark_v2=enabled cryptv0")?;
    world.ok(new)?;
    world.refused("zfs send -w cryptv0/testfs@snap1", 1, "its keys are of the first version")?;
    piped(world, "zfs send cryptv0/testfs@snap1 | zfs receive cryptv0/new/testfs")?;
    same("the copy", std::fs::read(world.path("mnt/cryptv0/new/testfs/testfile"))? == contents, true)?;
    std::fs::write(world.path("mnt/cryptv0/new/testfs/more"), "more")?;
    world.ok("zfs destroy -r cryptv0/testfs")?;
    world.ok("zfs destroy -r cryptv0/testvol")?;
    is_mended(world, "cryptv0")
}

/// If this fails, snapshots of such pools cannot be brought elsewhere as they are.
pub fn nameless_sets(world: &World) -> Result<(), Failure> {
    if !imported(world, "missing_ivset")? {
        return Ok(());
    }
    let named = |snapshot: &str| -> Result<bool, Failure> {
        Ok(world.ok(&format!("zfs get -H -o value ivsetguid missing_ivset/{snapshot}"))?.out.trim() != "-")
    };
    world.ok("zpool status missing_ivset")?.shows("Errata #4 detected.")?.shows("/msg/ZFS-8000-ER")?;
    world.ok("zpool get -H -o value feature@bookmark_v2 missing_ivset")?.prints("disabled")?;
    same("sets of IVs", (named("testfs@snap1")?, named("testvol@snap3")?), (false, false))?;
    world.ok("zpool set feature@bookmark_v2=enabled missing_ivset")?;
    world.ok("zfs create missing_ivset/fixed")?;
    let bring = |dataset: &str| -> Result<(), Failure> {
        let (from, to) = (format!("missing_ivset/{dataset}"), format!("missing_ivset/fixed/{dataset}"));
        piped(world, &format!("zfs send -w {from}@snap1 | zfs receive {to}"))?;
        piped(world, &format!("zfs send -w -i @snap1 {from}@snap2 | zfs receive {to}"))?;
        piped(world, &format!("zfs send -w -i {from}#snap2 {from}@snap3 | zfs receive {to}"))?;
        Ok(())
    };
    same("without the parameter", bring("testfs").is_err(), true)?;
    world.ok("zfs destroy -r missing_ivset/fixed/testfs")?;
    std::fs::write(world.path(CHECK), "1")?;
    bring("testfs")?;
    bring("testvol")?;
    std::fs::write(world.path(CHECK), "0")?;
    same("sets of IVs of copies", (named("fixed/testfs@snap1")?, named("fixed/testvol@snap3")?), (true, true))?;
    for dataset in ["testfs", "testvol", "fixed/testfs", "fixed/testvol"] {
        world.ok(&format!("zfs load-key -L file://{{dir}}/words missing_ivset/{dataset}"))?;
    }
    world.ok("zfs mount missing_ivset/testfs")?;
    world.ok("zfs mount missing_ivset/fixed/testfs")?;
    let differ = |left: &str, right: &str| Command::new("diff").arg("-r").arg(world.path(left)).arg(world.path(right)).output();
    let found = differ("mnt/missing_ivset/testfs", "mnt/missing_ivset/fixed/testfs")?;
    same("the copies", (found.status.success(), String::from_utf8_lossy(&found.stdout).into_owned()), (true, String::new()))?;
    world.ok("zfs destroy -r missing_ivset/testfs")?;
    world.ok("zfs destroy -r missing_ivset/testvol")?;
    is_mended(world, "missing_ivset")
}
