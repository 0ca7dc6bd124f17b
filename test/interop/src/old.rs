//! Pools of versions before feature flags that OpenZFS's own test suite has images of: each is opened read-only, its space is counted, and every
//! byte of every file is read.

use crate::report::Table;
use crate::{Failure, driver, manifest};
use exec::Exec;
use need::Need;
use pool::PoolError;
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
    match driver::import(exec, folder, &name, false) {
        Err(driver::ImportError::Pool(PoolError::OldVersion(found))) if found == u64::from(version) => {}
        Err(error) => return Err(format!("for writing: {error:?}").into()),
        Ok(_) => return Err("it was opened for writing".into()),
    }
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
    if files == 0 && VERSIONS_WITH_FILES.contains(&version) { Err("it has no files".into()) } else { Ok(()) }
}
