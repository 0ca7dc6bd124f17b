//! Pools of versions before feature flags that OpenZFS's own test suite has images of: each is opened read-only, its space is counted, and every
//! byte of every file is read. Then it is opened for writing, gets snapshots before and after an upgrade, and loses them.

use crate::manifest::Lines;
use crate::oracle::Oracle;
use crate::report::{Job, Table};
use crate::touch::{new_file, write as write_file};
use crate::{Failure, Wanted, driver, manifest, shadow};
use dsl::{CreateDataset, DslError};
use exec::Exec;
use need::Need;
use ondisk::ObjsetType;
use ondisk::names::spa_version;
use pool::{Pool, PoolSpec, Runtime, TopSpec};
use std::path::Path;
use std::process::Command;
use vdev::TopKind;

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

/// Pools that are made in an old version, and the versions that they get on their way.
const WRITTEN: [(&str, &[u64], bool); 14] = [
    ("old-v1", &[1], true),
    ("old-v2", &[2], false),
    ("old-v3", &[3], false),
    ("old-v4", &[4], false),
    ("old-v10", &[10], false),
    ("old-v14", &[14], false),
    ("old-v15", &[15], true),
    ("old-v22", &[22], false),
    ("old-v25", &[25], true),
    ("old-v28", &[28], false),
    ("old-v1-to-11", &[1, 11], false),
    ("old-v8-to-26", &[8, 26], false),
    ("old-v1-to-newest", &[1, 5000], true),
    ("old-v14-by-steps", &[14, 25, 26, 5000], false),
];
/// Bytes of the device.
const DEVICE_BYTES: u64 = 512 << 20;

/// Jobs that make these pools, as far as they are wanted.
pub fn jobs<'a>(oracle: &'a Oracle, wanted: &Wanted, exec: &Exec) -> Vec<Job<'a>> {
    let mut jobs: Vec<Job<'a>> = Vec::new();
    for (name, versions, _) in WRITTEN.into_iter().filter(|(name, _, quick)| wanted.includes(name, *quick)) {
        let exec = exec.clone();
        jobs.push(Box::new(move |table| written(&exec, oracle, (name, versions), table)));
    }
    jobs
}

/// Makes a pool of an old version and has the real engine judge it.
fn written(exec: &Exec, oracle: &Oracle, (name, versions): (&str, &[u64]), table: &Table) {
    let Some(folder) = table.check(&format!("write {name}: a folder to work in"), || Ok(crate::scratch()?.join(name))) else { return };
    let pool = format!("ours_{name}");
    let judged = || {
        let lines = table.check(&format!("write {name}: made, exported, read back"), || make(exec, &folder, (&pool, versions)))?;
        table.check(&format!("write {name}: zdb finds no error, no leak"), || match versions.last() {
            Some(last) if *last < spa_version::ZPOOL_HISTORY => oracle.zdb_clean_before_history(&folder, &pool),
            _ => oracle.zdb_clean(&folder, &pool),
        })?;
        table.check(&format!("write {name}: real engine scrubs, lists"), || same_there(oracle, &folder, (&pool, versions), &lines))
    };
    if judged().is_some() {
        let _ = std::fs::remove_dir_all(&folder);
    }
}

/// Compares with what the real engine finds. File systems before version 5 are not in its manifest: `zdb` copies each of their files.
fn same_there(oracle: &Oracle, folder: &Path, (pool, versions): (&str, &[u64]), lines: &Lines) -> Result<(), Failure> {
    if versions.first().is_some_and(|first| *first >= spa_version::SA) {
        let theirs = oracle.check(folder, pool)?;
        return theirs.map_or(Ok(()), |theirs| manifest::compare("the real engine's", lines, &theirs));
    }
    let theirs = oracle.check_but_old(folder, pool)?.unwrap_or_default();
    if let Some(other) = theirs.difference(lines).next() {
        return Err(format!("the real engine has {other}, and we have not").into());
    }
    for file in lines.difference(&theirs).filter_map(|line| manifest::file_line(line)) {
        let (dataset, name) = file.path.rsplit_once('/').ok_or("a file without a dataset")?;
        let Some(copy) = oracle.zdb_file(folder, dataset, name)? else { continue };
        if (copy.len() as u64, manifest::digest(&copy)) != (file.size, file.sha.to_string()) {
            return Err(format!("zdb copies other bytes of {} out", file.path).into());
        }
    }
    Ok(())
}

/// A file system of the newest version that a pool has.
fn filesystem(pool: u64) -> CreateDataset {
    let options = zpl::CreateOptions { version: Some(zpl::version::newest_in(pool)), ..zpl::CreateOptions::default() };
    CreateDataset {
        kind: ObjsetType::ZFS,
        properties: Vec::new(),
        init: Box::new(move |objset, tx| zpl::Zfs::create(objset, &options, tx).map_err(|_| DslError::Unsupported)),
    }
}

/// Makes a pool, fills it in each of its versions, and lists what is in it.
fn make(exec: &Exec, folder: &Path, (name, versions): (&str, &[u64])) -> Result<Lines, Failure> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder)?;
    let (first, later) = versions.split_first().ok_or("no version")?;
    let leaf = driver::new_leaf(&folder.join("d00"), DEVICE_BYTES)?;
    let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
    let spec = PoolSpec { ashift: Some(12), force: true, version: *first, ..PoolSpec::new(name, tops, filesystem(*first)) };
    let pool = Pool::create(exec, spec, &Runtime::new())?;
    live(&pool, (name, "first"))?;
    for version in later {
        pool.set_prop("version", &version.to_string())?;
        live(&pool, (name, &format!("v{version}")))?;
    }
    // What was snapshotted in the first version goes in the last one.
    pool.dsl().destroy_snapshots(&[format!("{name}/first@a"), format!("{name}/first@c")], false)?;
    let before = manifest::of_pool(&pool)?;
    pool.export()?;
    let pool = driver::import(exec, folder, name, true)?;
    let lines = manifest::of_pool(&pool)?;
    pool.export()?;
    manifest::compare("after the export, ours", &before, &lines)?;
    Ok(lines)
}

/// Files, snapshots, clones, and the end of some of them, in a new file system of the pool.
fn live(pool: &Pool, (name, below): (&str, &str)) -> Result<(), Failure> {
    let (dsl, fs) = (pool.dsl(), format!("{name}/{below}"));
    dsl.create_dataset(&fs, filesystem(dsl.version()))?;
    for (round, snapshot) in (1..).zip(["a", "b", "c", "d"]) {
        change(pool, &fs, round)?;
        dsl.snapshot(&[format!("{fs}@{snapshot}")], Vec::new())?;
    }
    let (promoted, lost) = (format!("{name}/{below}-promoted"), format!("{name}/{below}-lost"));
    dsl.clone_snapshot(&lost, &format!("{fs}@d"), Vec::new())?;
    dsl.clone_snapshot(&promoted, &format!("{fs}@b"), Vec::new())?;
    change(pool, &lost, 5)?;
    change(pool, &promoted, 3)?;
    dsl.promote(&promoted)?;
    dsl.destroy_dataset(&lost)?;
    change(pool, &fs, 6)?;
    dsl.rollback(&format!("{fs}@d"))?;
    // The first version's snapshots stay where they are looked for at the end.
    dsl.promote(&fs)?;
    Ok(pool.sync()?)
}

/// Makes a file, writes into the one of the round before, and removes the one before that.
fn change(pool: &Pool, name: &str, round: u64) -> Result<(), Failure> {
    let zfs = driver::open(pool, name)?;
    let root = zfs.node(zfs.root())?;
    let content = shadow::content(400_000, round, shadow::Kind::Random);
    drop(new_file(&zfs, &root, format!("file-{round}").as_bytes(), &content)?);
    if let Ok(before) = zfs.lookup(&root, format!("file-{}", round - 1).as_bytes()) {
        write_file(&zfs, &before, 100_000, &content[..100_000])?;
    }
    let old = format!("file-{}", round.saturating_sub(2));
    if zfs.lookup(&root, old.as_bytes()).is_ok() {
        zfs.unlink(&root, old.as_bytes())?;
    }
    drop(root);
    zfs.sync()?;
    drop(zfs);
    Ok(pool.sync()?)
}
