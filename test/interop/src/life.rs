//! Everything that happens to the vdevs of a pool in its life: vdevs, logs, spares and caches join and leave, a spare stands in for a device
//! and takes its place, devices are replaced and grow.

use crate::{Failure, driver};
use pool::{AddSpec, ClassSpec, LeafSpec, Pool, PoolError, RemovalState, TopSpec};
use std::path::Path;
use std::sync::atomic::Ordering;
use vdev::{LeafKind, Pairing, TopKind};

/// Vdevs for some blocks only on new files of the folder, whose names begin with `name`: a mirror for metadata, and a device for tables of deduplication.
pub fn classes(folder: &Path, name: &str, bytes: u64) -> Result<ClassSpec, Failure> {
    let leaf = |part: &str| driver::new_leaf(&folder.join(format!("{name}-{part}")), bytes);
    let special = TopSpec { kind: TopKind::Mirror, leaves: vec![leaf("special0")?, leaf("special1")?] };
    let dedup = TopSpec { kind: TopKind::Leaf, leaves: vec![leaf("dedup")?] };
    Ok(ClassSpec { special: vec![special], dedup: vec![dedup] })
}

/// Leads the pool through its life; `work` changes files between the steps. Devices are files of the folder.
pub fn lead(
    pool: &Pool,
    folder: &Path,
    (kind, width, bytes): (TopKind, usize, u64),
    mut work: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let device = |name: &str| -> Result<LeafSpec, Failure> {
        let path = folder.join(name);
        std::fs::File::create(&path)?.set_len(bytes)?;
        Ok(LeafSpec { path: path.to_string_lossy().into_owned(), kind: LeafKind::File, device: driver::open_device(&path, false)? })
    };
    let leaf = |index: usize| pool.tree().leaves[index].guid;
    let done = || -> Result<(), Failure> {
        pool.scrub_wait()?;
        Ok(pool.sync()?)
    };
    let leaves = (0..width).map(|index| device(&format!("e{index:02}"))).collect::<Result<_, _>>()?;
    let log = TopSpec { kind: TopKind::Leaf, leaves: vec![device("log")?] };
    pool.add(AddSpec { logs: vec![log], ..AddSpec::default() })?;
    pool.add(AddSpec { tops: vec![TopSpec { kind, leaves }], ..AddSpec::default() })?;
    pool.add(AddSpec { caches: vec![device("cache0")?, device("cache1")?], ..AddSpec::default() })?;
    work()?;
    // A spare stands in, is let go, stands in again and stays.
    let (spare, next) = (device("spare0")?, device("spare1")?);
    pool.add(AddSpec { spares: vec![spare.clone(), next], ..AddSpec::default() })?;
    pool.attach(leaf(0), &spare, Pairing::Replacing, false)?;
    work()?;
    done()?;
    pool.detach(leaf(1))?;
    work()?;
    pool.fault(leaf(0), false)?;
    work()?;
    pool.attach(leaf(0), &spare, Pairing::Replacing, false)?;
    done()?;
    pool.detach(leaf(0))?;
    work()?;
    // A device of the vdev that was added is replaced, the log goes, and everything grows.
    let first = pool.tree().tops[2].leaves().next().ok_or("a vdev without leaves")?;
    pool.attach(leaf(first.0 as usize), &device("f00")?, Pairing::Replacing, false)?;
    work()?;
    done()?;
    pool.remove_top(pool.tree().tops[1].guid)?;
    // One cache device stays, with blocks on it: whoever imports the pool next has to find nothing wrong there.
    pool.remove_aux(pool.caches().first().ok_or("no cache devices")?.guid, None)?;
    for file in driver::vdev_files(folder)? {
        std::fs::OpenOptions::new().write(true).open(file)?.set_len(bytes * 3 / 2)?;
    }
    if !pool.expand(None)? {
        return Err("the vdevs did not grow with their devices".into());
    }
    work()
}

/// Number of vdevs that join a pool from which others are removed.
const JOINING: usize = 3;

/// Has vdevs join the pool, and removes the first one, then one of those that its contents went to; a third one stays after all. `work` changes files
/// meanwhile. Devices are files of the folder.
pub fn shrink(
    pool: &Pool,
    folder: &Path,
    (kind, width, bytes): (TopKind, usize, u64),
    mut work: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let first = pool.tree().tops.len();
    for top in 0..JOINING {
        let leaves = (0..width).map(|leaf| driver::new_leaf(&folder.join(format!("g{top}{leaf:02}")), bytes)).collect::<Result<_, _>>()?;
        pool.add(AddSpec { tops: vec![TopSpec { kind, leaves }], ..AddSpec::default() })?;
    }
    work()?;
    // Small pieces: blocks are divided, and mappings worth condensing.
    pool.removal_parameters().segment_max.store(64 << 10, Ordering::Relaxed);
    pool.removal_parameters().condense_bytes_min.store(0, Ordering::Relaxed);
    let guid = |top: usize| pool.tree().tops[top].guid;
    for top in [0, first] {
        pool.remove_top(guid(top))?;
        work()?;
        pool.removal_wait()?;
        work()?;
        let status = pool.removal_status().ok_or("no removal")?;
        if status.state != RemovalState::Finished || pool.tree().tops[top].kind != TopKind::Indirect {
            return Err(format!("the removal ended as {status:?}").into());
        }
    }
    pool.remove_top(guid(first + 1))?;
    match pool.remove_cancel() {
        // It was quicker than we.
        Ok(()) | Err(PoolError::NotRemoving) => {}
        Err(error) => return Err(error.into()),
    }
    work()?;
    Ok(pool.sync()?)
}

/// Moved bytes after which an expansion is left half-way: more than goes by way of the boot area.
const HALFWAY_BYTES: u64 = 8 << 20;
/// Looks at an expansion, and nanoseconds between them: the time that it may take.
const LOOKS: usize = 60_000;
const LOOK_NS: u64 = 10_000_000;

/// Expands the RAID-Z vdev of the pool by two devices; if it `stays` half-way, by one, and not to the end. `work` changes files meanwhile. Devices are files
/// of the folder.
pub fn widen(
    pool: &Pool,
    folder: &Path,
    (bytes, stays): (u64, bool),
    mut work: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let parameters = pool.expand_parameters();
    parameters.reflow_bytes_max.store(if stays { HALFWAY_BYTES } else { 0 }, Ordering::Relaxed);
    let moved = || pool.expand_status().map_or(0, |status| status.reflowed);
    for number in 0..if stays { 1 } else { 2 } {
        let new = driver::new_leaf(&folder.join(format!("x{number:02}")), bytes)?;
        pool.attach_raidz(pool.tree().tops[0].guid, &new, false)?;
        work()?;
        let is_there = || if stays { moved() >= HALFWAY_BYTES } else { !pool.is_expanding() };
        let mut looks = 0;
        while !is_there() {
            looks += 1;
            if looks > LOOKS {
                return Err(format!("the expansion does not get on: {:?}", pool.expand_status()).into());
            }
            pool.exec().sleep_ns(LOOK_NS);
        }
        work()?;
    }
    if stays != pool.is_expanding() {
        return Err("the expansion did not stay half-way".into());
    }
    Ok(pool.sync()?)
}
