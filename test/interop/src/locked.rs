//! Encrypted datasets. Without their keys they are listed, scrubbed, snapshotted, renamed and destroyed, and the real engine, which has the keys, finds
//! what is left as it was. With their keys everything in them is read as it was written.

use crate::damage::copy_pool;
use crate::driver::{self, Layout, NewPool};
use crate::manifest::{self, Lines};
use crate::oracle::Oracle;
use crate::{Failure, received, shadow, streams, taken, touch};
use abd::Abd;
use dsl::{DslError, PropValue};
use exec::Exec;
use ondisk::ObjsetType;
use pool::Pool;
use send::SendOptions;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use vdev::TopKind;
use zpl::Zfs;
use zpl::direct::Direct;
use zvol::{Access, Volume};

const POOL: &str = "fx_encrypt";
/// File system that is destroyed, with its snapshot.
const DOOMED: &str = "fx_encrypt/enc-aes-128-ccm";
/// Child that is renamed below its encryption root and back.
const CHILD: [&str; 2] = ["fx_encrypt/enc-aes-256-gcm/child", "fx_encrypt/enc-aes-256-gcm/moved"];

/// Pool that is made here, with a dataset of each suite.
const OURS: &str = "ours";
/// Pool that the real engine receives into.
const COPY: &str = "copy";
const LAYOUT: Layout = Layout { name: "mirror", kind: TopKind::Mirror, tops: 1, width: 2 };
const SUITES: [&str; 6] = ["aes-128-ccm", "aes-192-ccm", "aes-256-ccm", "aes-128-gcm", "aes-192-gcm", "aes-256-gcm"];

const PASSPHRASE: &[u8] = b"correct horse";

fn raw_key() -> Vec<u8> {
    (0x40..0x60).collect()
}

/// Reads all that the pool in `folder` has, with its keys, whether it is opened to be written or not.
pub fn read(exec: &Exec, folder: &Path, expected: &Lines) -> Result<(), Failure> {
    for read_only in [true, false] {
        let pool = driver::import(exec, folder, POOL, read_only)?;
        let dsl = pool.dsl();
        let is_encrypted = |name: &String| name.contains("/enc-") && !name.contains('@') && *name != CHILD[0];
        let roots: Vec<String> = driver::datasets(&pool)?.into_iter().filter(is_encrypted).collect();
        for root in &roots {
            let (right, wrong) =
                if root.ends_with("-pass") { (PASSPHRASE.to_vec(), b"battery staple".to_vec()) } else { (raw_key(), vec![7; 32]) };
            if dsl.load_key(root, &wrong, false) != Err(DslError::WrongKey) {
                return Err(format!("{root}: a wrong key is not refused").into());
            }
            dsl.load_key(root, &right, true)?;
            is_locked(&pool, root)?;
            dsl.load_key(root, &right, false)?;
        }
        let found = manifest::of_pool(&pool)?;
        manifest::compare("ours", expected, &found)?;
        for root in &roots {
            dsl.unload_key(root)?;
            is_locked(&pool, root)?;
        }
        pool.export()?;
    }
    Ok(())
}

/// Loads the keys of these encryption roots.
fn load(pool: &Pool, roots: &[String]) -> Result<(), Failure> {
    for root in roots {
        let key = if root.ends_with("-pass") { PASSPHRASE.to_vec() } else { raw_key() };
        pool.dsl().load_key(root, &key, false)?;
    }
    Ok(())
}

/// Changes everything that is encrypted in the pool in `folder`, with its keys: the real engine finds what we find, and nothing else.
pub fn write(exec: &Exec, oracle: &Oracle, folder: &Path) -> Result<(), Failure> {
    let pool = driver::import(exec, folder, POOL, false)?;
    let heads: Vec<String> = driver::datasets(&pool)?.into_iter().filter(|name| name.contains("/enc-") && !name.contains('@')).collect();
    let roots: Vec<String> = heads.iter().filter(|name| **name != CHILD[0]).cloned().collect();
    load(&pool, &roots)?;
    change_all(&pool, &heads)?;
    pool.export()?;
    judge(exec, oracle, folder, (POOL, &roots))
}

/// Makes a pool with encrypted datasets of every suite in `folder`: with its keys the real engine finds what we find.
pub fn make(exec: &Exec, oracle: &Oracle, folder: &Path) -> Result<(), Failure> {
    let new = NewPool { name: OURS, layout: LAYOUT, ashift: 12, device_bytes: 256 << 20, no_features: false, small_memory: false };
    let pool = driver::create(exec, folder, new)?;
    let (mut roots, mut heads) = (Vec::new(), Vec::new());
    for suite in SUITES {
        let name = format!("{OURS}/enc-{suite}");
        let compression = if suite.starts_with("aes-192") { "off" } else { "lz4" };
        let options = driver::filesystem(&[("encryption", suite), ("keyformat", "raw"), ("compression", compression)]);
        pool.dsl().create_dataset_with(&name, options, Some(&raw_key()))?;
        roots.push(name);
    }
    let (child, volume) = (format!("{}/child", roots[roots.len() - 1]), format!("{OURS}/enc-zvol"));
    pool.dsl().create_dataset(&child, driver::filesystem(&[("copies", "2")]))?;
    let mut options = driver::volume(4 << 20, 16384);
    options.properties.extend([("encryption", "on"), ("keyformat", "raw")].map(|(name, value)| (name.to_string(), value.to_string())));
    pool.dsl().create_dataset_with(&volume, options, Some(&raw_key()))?;
    roots.push(volume);
    heads.extend(roots.iter().cloned().chain([child]));
    change_all(&pool, &heads)?;
    pool.export()?;
    judge(exec, oracle, folder, (OURS, &roots))
}

/// Makes files durable through the logs of encrypted file systems, and stops: the real engine claims what the logs have, without a key, and finds the pool
/// clean. Of what it claimed, and of what nobody did, as many records are replayed here as it lists, once the keys are there, and both give the same.
pub fn logged(exec: &Exec, oracle: &Oracle, (folder, work): (&Path, &Path)) -> Result<(), Failure> {
    let new = NewPool { name: OURS, layout: LAYOUT, ashift: 12, device_bytes: 256 << 20, no_features: false, small_memory: false };
    let pool = driver::create(exec, folder, new)?;
    let roots: Vec<String> = [SUITES[2], SUITES[5]].map(|suite| format!("{OURS}/enc-{suite}")).into();
    let mut open = Vec::new();
    for (root, suite) in roots.iter().zip([SUITES[2], SUITES[5]]) {
        let options = driver::filesystem(&[("encryption", suite), ("keyformat", "raw")]);
        pool.dsl().create_dataset_with(root, options, Some(&raw_key()))?;
        open.push(with_log(&pool, root)?);
    }
    // The first commits wait for txgs: with these the logs on disk begin.
    for zfs in &open {
        make_durable(zfs, "early", [10, 10, 10])?;
    }
    for zfs in &open {
        make_durable(zfs, "late", [3000, 40_000, 300_000])?;
    }
    drop(open);
    drop(pool);
    let logs = oracle.logs(folder, OURS)?.ok_or("zdb is missing")?;
    let pool = driver::import(exec, folder, OURS, true)?;
    let waits = taken::waiting(&logs, pool.txg().0);
    pool.export()?;
    if waits.is_empty() {
        return Err("zdb lists no record that waits".into());
    }
    copy_pool(folder, work)?;
    oracle.resilver(work, OURS)?;
    oracle.zdb_clean(work, OURS)?;
    let claimed = unlocked(exec, oracle, work, (&roots, &waits)).map_err(|error| format!("what the real engine claimed: {error}"))?;
    let own = unlocked(exec, oracle, folder, (&roots, &waits))?;
    manifest::compare("ours, of what the real engine claimed", &taken::timeless(&own), &taken::timeless(&claimed))?;
    judge(exec, oracle, folder, (OURS, &roots))
}

/// A file system with its log, as mounts have it.
fn with_log(pool: &Pool, name: &str) -> Result<Arc<Zfs>, Failure> {
    let (zfs, handle) = (driver::open(pool, name)?, pool.dsl().hold(name)?);
    let (source, tells_xattrs): (Weak<Zfs>, bool) = (Arc::downgrade(&zfs), handle.logs_xattrs());
    zfs.set_log(handle.intent_log(source)?, tells_xattrs);
    Ok(zfs)
}

/// Makes files of so many bytes durable, one after the other.
fn make_durable(zfs: &Arc<Zfs>, name: &str, lengths: [usize; 3]) -> Result<(), Failure> {
    let root = zfs.node(zfs.root())?;
    for (index, length) in lengths.into_iter().enumerate() {
        let contents = shadow::content(length, index as u64, shadow::Kind::Random);
        drop(touch::new_file(zfs, &root, format!("{name} {index}").as_bytes(), &contents)?);
        zfs.sync()?;
    }
    Ok(())
}

/// Imports the pool in a folder and loads its keys, with which so many records are replayed; gives what is there then.
fn unlocked(exec: &Exec, oracle: &Oracle, folder: &Path, (roots, waits): (&[String], &BTreeMap<String, u64>)) -> Result<Lines, Failure> {
    let pool = driver::import(exec, folder, OURS, false)?;
    let mut replayed = Vec::new();
    for root in roots {
        replayed.extend(pool.load_key(root, &raw_key(), false)?);
    }
    taken::same_records(waits, &replayed)?;
    pool.export()?;
    let pool = driver::import(exec, folder, OURS, true)?;
    load(&pool, roots)?;
    let lines = manifest::of_pool(&pool)?;
    roots.iter().try_for_each(|root| pool.dsl().unload_key(root))?;
    pool.export()?;
    oracle.zdb_clean(folder, OURS)?;
    Ok(lines)
}

/// Sends a file system of the pool that [`make`] left in a folder raw, without its key, whole and what came later, and has the real engine receive both
/// into a new pool in the other folder: with the key it finds what was sent.
pub fn send_raw(exec: &Exec, oracle: &Oracle, (from, to): (&Path, &Path)) -> Result<(), Failure> {
    let name = format!("{OURS}/enc-aes-256-gcm");
    let pool = driver::import(exec, from, OURS, false)?;
    load(&pool, std::slice::from_ref(&name))?;
    {
        let zfs = driver::open(&pool, &name)?;
        let root = zfs.node(zfs.root())?;
        drop(touch::new_file(&zfs, &root, b"later", &shadow::content(200_000, 9, shadow::Kind::Random))?);
        zfs.sync()?;
    }
    pool.dsl().snapshot(&[format!("{name}@later")], Vec::new())?;
    let mut expected = Lines::new();
    for snapshot in ["ours", "later"] {
        manifest::of_dataset(&pool, &format!("{name}@{snapshot}"), &mut expected)?;
    }
    pool.dsl().unload_key(&name)?;
    let new = NewPool { name: COPY, layout: LAYOUT, ashift: 12, device_bytes: 256 << 20, no_features: false, small_memory: false };
    std::fs::create_dir_all(to)?;
    driver::create(exec, to, new)?.export()?;
    for (index, (base, snapshot)) in [(None, "ours"), (Some("ours"), "later")].into_iter().enumerate() {
        let (file, full) = (to.with_extension(format!("{index}.zfs")), format!("{name}@{snapshot}"));
        let base = base.map(|base: &str| format!("{name}@{base}"));
        streams::write(&pool, &full, base.as_deref(), &SendOptions { raw: true, ..SendOptions::default() }, &file)?;
        oracle.dump(&file)?;
        oracle.receive(to, COPY, (&format!("{COPY}/recv"), snapshot), &file)?;
    }
    pool.export()?;
    oracle.zdb_clean(to, COPY)?;
    let Some(theirs) = oracle.check(to, COPY)? else { return Ok(()) };
    let renamed = |lines: &Lines, name: &str| {
        lines.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix('@').map(str::to_string)).collect()
    };
    let (expected, found): (Lines, Lines) = (renamed(&expected, &name), renamed(&theirs, &format!("{COPY}/recv")));
    manifest::compare("the real engine's", &expected, &found)
}

/// Receives raw what the real engine sends raw of two pools, of its own ([`read`]) and of ours as [`send_raw`] leaves it, snapshot after snapshot, without
/// a key: with the keys we find what was sent, and so does the real engine.
pub fn receive_raw(exec: &Exec, oracle: &Oracle, pools: [&Path; 2], to: &Path) -> Result<(), Failure> {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to)?;
    let new = NewPool { name: COPY, layout: LAYOUT, ashift: 12, device_bytes: 512 << 20, no_features: false, small_memory: false };
    let copy = driver::create(exec, to, new)?;
    let (mut expected, mut roots) = (Lines::new(), Vec::new());
    for (folder, name) in pools.into_iter().zip([POOL, OURS]) {
        for (dataset, snapshots) in snapshots_of(exec, folder, name)? {
            let Some(target) = copy_of(&dataset) else { continue };
            let mut before: Option<String> = None;
            for (snapshot, lines) in snapshots {
                let (file, full) = (to.with_extension("raw"), format!("{dataset}@{snapshot}"));
                oracle.send(folder, name, (before.as_deref(), &full), (&file, "w"))?;
                received::receive(&copy, &file, &target, &snapshot).map_err(|error| format!("{full}: {error}"))?;
                is_locked(&copy, &target)?;
                expected.extend(lines.iter().map(|line| line.replacen(&dataset, &target, 1)));
                before = Some(full);
            }
            roots.push(target);
        }
    }
    load(&copy, &roots)?;
    let mut ours = Lines::new();
    for root in &roots {
        for snapshot in copy.dsl().snapshots(root)? {
            manifest::of_dataset(&copy, &format!("{root}@{}", snapshot.name), &mut ours)?;
        }
    }
    manifest::compare("ours", &expected, &ours)?;
    copy.export()?;
    judge(exec, oracle, to, (COPY, &roots))
}

/// Name that a dataset is received at, where it is: the real engine knows the keys of these names.
fn copy_of(dataset: &str) -> Option<String> {
    let (pool, name) = dataset.split_once('/')?;
    match (pool, name) {
        (POOL, "enc-aes-256-gcm/child") => Some(format!("{COPY}/encroot")),
        (POOL, name) => Some(format!("{COPY}/{name}")),
        (_, "enc-aes-256-gcm") => Some(format!("{COPY}/recv")),
        (_, "enc-zvol") => Some(format!("{COPY}/recv/enc")),
        _ => None,
    }
}

/// Name of a dataset, and of its snapshots, the oldest first, with what is in each.
type Snapshots = (String, Vec<(String, Lines)>);

/// Encrypted datasets of a pool with their snapshots.
fn snapshots_of(exec: &Exec, folder: &Path, name: &str) -> Result<Vec<Snapshots>, Failure> {
    let pool = driver::import(exec, folder, name, true)?;
    let heads: Vec<String> = driver::datasets(&pool)?.into_iter().filter(|name| name.contains("/enc-") && !name.contains('@')).collect();
    let is_root = |name: &&String| name.split('/').count() == 2;
    load(&pool, &heads.iter().filter(is_root).cloned().collect::<Vec<_>>())?;
    let mut found = Vec::new();
    for head in heads {
        let mut snapshots = Vec::new();
        for snapshot in pool.dsl().snapshots(&head)? {
            let mut lines = Lines::new();
            manifest::of_dataset(&pool, &format!("{head}@{}", snapshot.name), &mut lines)?;
            snapshots.push((snapshot.name, lines));
        }
        if !snapshots.is_empty() {
            found.push((head, snapshots));
        }
    }
    pool.export()?;
    Ok(found)
}

/// Writes to file systems and volumes whose keys are loaded, takes a snapshot of each, and scrubs the pool.
fn change_all(pool: &Pool, heads: &[String]) -> Result<(), Failure> {
    for name in heads {
        if pool.dsl().hold(name)?.kind()? == ObjsetType::ZFS {
            touch::touch_in(pool, name)?;
            continue;
        }
        let volume = Volume::open(pool.dsl().hold(name)?, zvol::Settings::default(), Direct::default())?;
        volume.write(5000, Abd::from_slice(&shadow::content(300_000, 5, shadow::Kind::Random)), Access::default(), true)?;
    }
    pool.dsl().snapshot(&heads.iter().map(|name| format!("{name}@ours")).collect::<Vec<_>>(), Vec::new())?;
    pool.scrub_start()?;
    pool.scrub_wait()?;
    let status = pool.scan_status().ok_or("no scrub")?;
    match (status.errors, status.repaired) {
        (0, 0) => Ok(()),
        (errors, repaired) => Err(format!("our scrub: {errors} errors, {repaired} bytes repaired").into()),
    }
}

/// Has the real engine look at an exported pool, and compares what it finds, with the keys, with what we find.
fn judge(exec: &Exec, oracle: &Oracle, folder: &Path, (name, roots): (&str, &[String])) -> Result<(), Failure> {
    let pool = driver::import(exec, folder, name, true)?;
    load(&pool, roots)?;
    let ours = manifest::of_pool(&pool)?;
    roots.iter().try_for_each(|root| pool.dsl().unload_key(root))?;
    pool.export()?;
    oracle.zdb_clean(folder, name)?;
    match oracle.check(folder, name)? {
        Some(theirs) => manifest::compare("the real engine's", &ours, &theirs),
        None => Ok(()),
    }
}

/// Changes the pool in `folder` without a key of it.
pub fn change(exec: &Exec, oracle: &Oracle, folder: &Path, expected: &Lines) -> Result<(), Failure> {
    let pool = driver::import(exec, folder, POOL, false)?;
    let encrypted: Vec<String> = driver::datasets(&pool)?.into_iter().filter(|name| name.contains("/enc-")).collect();
    encrypted.iter().try_for_each(|name| is_locked(&pool, name))?;
    if encrypted.len() < 9 {
        return Err(format!("encrypted are only {encrypted:?}").into());
    }
    let heads = encrypted.iter().filter(|name| !name.contains('@'));
    pool.dsl().snapshot(&heads.map(|name| format!("{name}@ours")).collect::<Vec<_>>(), Vec::new())?;
    pool.dsl().create_dataset(&format!("{POOL}/ours"), driver::filesystem(&[]))?;
    pool.dsl().destroy_snapshots(&[format!("{DOOMED}@s"), format!("{DOOMED}@ours")], false)?;
    pool.dsl().destroy_dataset(DOOMED)?;
    pool.dsl().rename(CHILD[0], CHILD[1])?;
    pool.dsl().rename(CHILD[1], CHILD[0])?;
    pool.scrub_start()?;
    pool.scrub_wait()?;
    let status = pool.scan_status().ok_or("no scrub")?;
    pool.export()?;
    if status.errors != 0 || status.repaired != 0 {
        return Err(format!("our scrub: {} errors, {} bytes repaired", status.errors, status.repaired).into());
    }
    oracle.zdb_clean(folder, POOL)?;
    let of_heads = |lines: &Lines| lines.iter().filter(|line| !line.contains('@') && !line.starts_with(DOOMED)).cloned().collect::<Lines>();
    match oracle.check(folder, POOL)? {
        Some(theirs) => manifest::compare("the real engine's", &of_heads(expected), &of_heads(&theirs)),
        None => Ok(()),
    }
}

fn is_locked(pool: &Pool, name: &str) -> Result<(), Failure> {
    let handle = pool.dsl().hold(name)?;
    let status = handle.prop("keystatus")?.value;
    if status != PropValue::Text("unavailable".to_string()) {
        return Err(format!("{name} has the keystatus {status:?}").into());
    }
    match handle.objset() {
        Err(DslError::NoKey) => Ok(()),
        Err(error) => Err(format!("{name}: {error}").into()),
        Ok(_) => Err(format!("{name} was opened without its key").into()),
    }
}
