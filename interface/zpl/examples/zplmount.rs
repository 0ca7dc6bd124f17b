//! Imports a pool from the files of a folder and mounts one dataset: `zplmount FOLDER POOL DATASET MOUNTPOINT [rw]`.
//!
//! DATASET may name a snapshot. Ends when it is unmounted; with `rw` the pool is exported then. For comparing what OpenZFS wrote
//! with what we read, without the daemon.

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

fn import(exec: &Exec, folder: &Path, name: &str, writable: bool) -> Result<pool::Pool, Failure> {
    let mut devices: Vec<Arc<dyn device::BlockDevice>> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.metadata()?.len() >= 64 << 20 {
            devices.push(Arc::new(device::FileDevice::open(&path, !writable)?));
        }
    }
    let options = pool::ImportOptions { name: Some(name.into()), read_only: !writable, force: true, ..Default::default() };
    Ok(pool::Pool::import(exec, devices, &options, &pool::Runtime::new())?)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, pool_name, dataset, mountpoint, rest @ ..] = &arguments[..] else {
        return Err("usage: zplmount FOLDER POOL DATASET MOUNTPOINT [rw]".into());
    };
    let writable = rest.first().is_some_and(|word| word == "rw");
    let exec: Exec = Arc::new(exec::Pool::new(2));
    let pool = import(&exec, Path::new(folder), pool_name, writable)?;
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
