//! Imports a pool from the files of a folder and mounts one dataset: `mount FOLDER POOL DATASET MOUNTPOINT [rw | new RECORDSIZE]`.
//!
//! DATASET may name a snapshot. Ends when it is unmounted; with `rw` the pool is exported then; with `new` it is made first,
//! striped over the files; with a number of bytes behind that, a file of that size is written and read without FUSE, and the CPU
//! time is printed: what the engine alone takes. For comparing what OpenZFS wrote with what we read, and for measuring, without the daemon.

use exec::Exec;
use std::path::Path;
use std::sync::Arc;

type Failure = Box<dyn std::error::Error>;

fn devices(folder: &Path, writable: bool) -> Result<Vec<Arc<dyn device::BlockDevice>>, Failure> {
    let mut devices: Vec<Arc<dyn device::BlockDevice>> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.metadata()?.len() >= 64 << 20 {
            devices.push(Arc::new(device::FileDevice::open(&path, !writable)?));
        }
    }
    Ok(devices)
}

fn create(exec: &Exec, folder: &Path, name: &str, record_size: &str) -> Result<pool::Pool, Failure> {
    let leaf = |device: Arc<dyn device::BlockDevice>| {
        let path = device.path().display().to_string();
        pool::TopSpec { kind: vdev::TopKind::Leaf, leaves: vec![pool::LeafSpec { path, kind: vdev::LeafKind::File, device }] }
    };
    let properties = [("recordsize", record_size), ("compression", "off")].map(|(name, value)| (name.to_string(), value.to_string()));
    let root = dsl::CreateDataset {
        kind: ondisk::ObjsetType::ZFS,
        properties: properties.into(),
        init: Box::new(|objset, tx| zpl::Zfs::create(objset, &zpl::CreateOptions::default(), tx).map_err(|_| dsl::DslError::Unsupported)),
    };
    let spec = pool::PoolSpec { force: true, ..pool::PoolSpec::new(name, devices(folder, true)?.into_iter().map(leaf).collect(), root) };
    Ok(pool::Pool::create(exec, spec, &pool::Runtime::new())?)
}

fn import(exec: &Exec, folder: &Path, name: &str, writable: bool) -> Result<pool::Pool, Failure> {
    let devices = devices(folder, writable)?;
    let options =
        pool::ImportOptions { name: Some(name.into()), read_only: !writable, force: true, skip_activity: true, ..Default::default() };
    Ok(pool::Pool::import(exec, devices, &options, &pool::Runtime::new())?)
}

/// Writes and reads a file in requests of 1 MiB and prints the CPU time that each pass took.
fn engine_alone(zfs: &Arc<zpl::Zfs>, file_bytes: u64) -> Result<(), Failure> {
    const REQUEST: u64 = 1 << 20;
    let root = zfs.node(zfs.root())?;
    let new = zpl::NewNode { mode: 0o100_644, ..Default::default() };
    let node = zfs.create_node(&root, b"alone", &new)?;
    let ticks = || -> Result<u64, Failure> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
    };
    for pass in ["write", "write", "read", "read"] {
        let before = ticks()?;
        for offset in (0..file_bytes).step_by(REQUEST as usize) {
            if pass == "write" {
                let mut data = abd::Abd::scratch(REQUEST as usize);
                // As the FUSE server's receive would: one copy into a fresh buffer.
                data.make_mut()[..8].copy_from_slice(&offset.to_le_bytes());
                zfs.write(&node, zpl::WriteData { offset, data, may_keep: true, kill_suid: false, synchronous: false })?;
            } else if zfs.read(&node, offset, REQUEST)?.len() as u64 != REQUEST {
                return Err("a short read".into());
            }
        }
        if pass == "write" {
            zfs.fsync(&node)?;
        }
        println!("{pass}: {} us/MiB", (ticks()? - before) * 10_000 * REQUEST / file_bytes);
    }
    Ok(())
}

/// Mounts it and waits for its end.
pub fn run(arguments: &[String]) -> Result<(), Failure> {
    let [folder, pool_name, dataset, mountpoint, rest @ ..] = arguments else {
        return Err("usage: alone mount FOLDER POOL DATASET MOUNTPOINT [rw]".into());
    };
    let writable = !rest.is_empty();
    abd::set_cache_bytes_max(1 << 30);
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let pool = match rest {
        [word, record_size, ..] if word == "new" => create(&exec, Path::new(folder), pool_name, record_size)?,
        _ => import(&exec, Path::new(folder), pool_name, writable)?,
    };
    {
        let handle = pool.dsl().hold(dataset)?;
        let txgs = (writable && !handle.is_snapshot()).then(|| pool.txgs().clone());
        let zfs = zpl::Zfs::open(&handle.objset()?, txgs, zpl::Settings::default())?;
        zfs.drain_unlinked()?;
        if let Some(file_bytes) = rest.get(2) {
            return engine_alone(&zfs, file_bytes.parse()?);
        }
        let snapshots: Option<Arc<dyn zpl::SnapshotSource>> = Some(Arc::new(handle));
        let handler = Arc::new(zpl::ZplFuse::new(zfs, snapshots));
        let options = fuse::MountOptions { source: dataset.replace(',', "_"), ..Default::default() };
        let session = fuse::Session::mount(&exec, handler, mountpoint.as_ref(), &options)?;
        println!("mounted");
        session.join();
    }
    if writable {
        pool.export()?;
    }
    Ok(())
}
