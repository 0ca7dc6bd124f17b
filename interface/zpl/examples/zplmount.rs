//! Imports a pool from the files of a folder and mounts one dataset: `zplmount FOLDER POOL DATASET MOUNTPOINT [rw | new RECORDSIZE]`.
//!
//! DATASET may name a snapshot. Ends when it is unmounted; with `rw` the pool is exported then; with `new` it is made first,
//! striped over the files. For comparing what OpenZFS wrote with what we read, and for measuring, without the daemon.

use exec::Exec;
use std::path::Path;
use std::sync::Arc;

type Failure = Box<dyn std::error::Error>;

struct Snapshots(dsl::DatasetHandle);

impl zpl::SnapshotSource for Snapshots {
    fn list(&self) -> Result<Vec<String>, zpl::ZplError> {
        Ok(self.0.snapshots().map_err(|_| zpl::ZplError::Io)?.into_iter().map(|snapshot| snapshot.name).collect())
    }
    fn open(&self, name: &str) -> Result<Arc<dmu::Objset>, zpl::ZplError> {
        self.0.hold_snapshot(name).and_then(|snapshot| snapshot.objset()).map_err(|_| zpl::ZplError::NotFound)
    }
}

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
    let spec = pool::PoolSpec {
        name: name.to_string(),
        tops: devices(folder, true)?.into_iter().map(leaf).collect(),
        ashift: None,
        features: None,
        comment: None,
        host: pool::Host::default(),
        force: true,
        root,
    };
    Ok(pool::Pool::create(exec, spec, &pool::Runtime::new())?)
}

fn import(exec: &Exec, folder: &Path, name: &str, writable: bool) -> Result<pool::Pool, Failure> {
    let devices = devices(folder, writable)?;
    let options = pool::ImportOptions { name: Some(name.into()), read_only: !writable, force: true, ..Default::default() };
    Ok(pool::Pool::import(exec, devices, &options, &pool::Runtime::new())?)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, pool_name, dataset, mountpoint, rest @ ..] = &arguments[..] else {
        return Err("usage: zplmount FOLDER POOL DATASET MOUNTPOINT [rw]".into());
    };
    let writable = !rest.is_empty();
    abd::set_cache_bytes_max(256 << 20);
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let pool = match rest {
        [word, record_size] if word == "new" => create(&exec, Path::new(folder), pool_name, record_size)?,
        _ => import(&exec, Path::new(folder), pool_name, writable)?,
    };
    {
        let handle = pool.dsl().hold(dataset)?;
        let txgs = (writable && !handle.is_snapshot()).then(|| pool.txgs().clone());
        let zfs = zpl::Zfs::open(&handle.objset()?, txgs, zpl::Settings::default())?;
        zfs.drain_unlinked()?;
        let snapshots: Option<Arc<dyn zpl::SnapshotSource>> = Some(Arc::new(Snapshots(handle)));
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
