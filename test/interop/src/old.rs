//! Pools of versions before feature flags that OpenZFS's own test suite has images of: each is opened read-only, its space is counted, and every
//! byte of every file is read. Then it is opened for writing, gets snapshots before and after an upgrade, and loses them.

use crate::report::Table;
use crate::{Failure, driver, manifest};
use exec::Exec;
use need::Need;
use std::path::Path;
use std::process::Command;

/// Folder of the images in Debian's package `zfs-test`.
const IMAGES: &str = "/usr/share/zfs/zfs-tests/tests/functional/cli_root/zpool_upgrade/blockfiles";
/// Versions with an image of one device.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=15;

/// Versions among those whose images have files.
const VERSIONS_WITH_FILES: std::ops::RangeInclusive<u32> = 1..=8;
/// Version from which on users' space is counted (OpenZFS: `SPA_VERSION_USERSPACE`).
const VERSION_USERSPACE: u32 = 15;

/// Reads all images, where they are installed.
pub fn run(base: &Path, exec: &Exec, table: &Table) {
    if !Path::new(IMAGES).is_dir() {
        table.left_out(Need::Images, "read versions 1 to 15", &format!("there is no {IMAGES}"));
        return;
    }
    for version in VERSIONS {
        let folder = base.join(format!("v{version}"));
        table.check(&format!("read version {version}"), || read(&folder, exec, version));
        let _ = std::fs::remove_dir_all(&folder);
    }
}

fn read(folder: &Path, exec: &Exec, version: u32) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    let unpacked = Command::new("bzcat").arg(format!("{IMAGES}/zfs-pool-v{version}.dat.bz2")).output()?;
    if !unpacked.status.success() {
        return Err("the image could not be unpacked".into());
    }
    std::fs::write(folder.join("d0.img"), unpacked.stdout)?;
    let name = format!("v{version}-pool");
    let pool = driver::import(exec, folder, &name, true)?;
    let report = pool.verify_space()?;
    if !report.is_clean() || report.blocks == 0 {
        return Err(format!("space: {report:?}").into());
    }
    if pool.status().damaged_uberblocks != 0 {
        return Err("slots that were never written count as damaged".into());
    }
    // Several of the images have no files. The manifest's count of what users own knows nodes of today's form only.
    let files = if version < VERSION_USERSPACE { manifest::of_pool(&pool)?.len() } else { 0 };
    pool.export()?;
    write(folder, exec, (&name, version))?;
    if files == 0 && VERSIONS_WITH_FILES.contains(&version) { Err("it has no files".into()) } else { Ok(()) }
}

/// Opens an image for writing, has it go to the newest version, and destroys snapshots of the time before.
fn write(folder: &Path, exec: &Exec, (name, version): (&str, u32)) -> Result<(), Failure> {
    let pool = driver::import(exec, folder, name, false)?;
    let before = [format!("{name}@a"), format!("{name}@b")];
    for snapshot in &before {
        pool.dsl().snapshot(std::slice::from_ref(snapshot), Vec::new())?;
    }
    pool.set_prop("version", "5000")?;
    pool.dsl().snapshot(&[format!("{name}@c")], Vec::new())?;
    pool.dsl().destroy_snapshots(&before, false)?;
    if pool.status().version != 5000 {
        return Err(format!("version {version} is not left").into());
    }
    let report = pool.verify_space()?;
    if !report.is_clean() {
        return Err(format!("space after the upgrade: {report:?}").into());
    }
    pool.export()?;
    let zdb = Command::new("zdb").args(["-e", "-p"]).arg(folder).args(["-bcc", name]).output()?;
    if zdb.status.success() { Ok(()) } else { Err(format!("zdb: {}", String::from_utf8_lossy(&zdb.stderr)).into()) }
}
