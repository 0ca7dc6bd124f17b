//! The engine as a library: pools from the files of a folder, file systems opened without a daemon and without a mount.

use crate::Failure;
use device::{BlockDevice, OpenOptions};
use dsl::{CreateDataset, DslError, ReplayFiles};
use exec::Exec;
use ondisk::ObjsetType;
use pool::{ClassSpec, Host, ImportOptions, LeafSpec, Pool, PoolError, PoolSpec, Rewind, Runtime, TopSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vdev::{LeafKind, TopKind};
use zpl::{Settings, Zfs};

/// Bytes of the smallest file that can be a vdev.
const VDEV_BYTES_MIN: u64 = 64 << 20;
const THREADS: usize = 3;
const SMALL_CACHE_BYTES: u64 = 4 << 20;
const SMALL_DIRTY_BYTES: u64 = 16 << 20;

/// Executor with threads for the engine.
pub fn executor() -> Exec {
    Arc::new(exec::Pool::new(THREADS))
}

fn host() -> Host {
    Host { id: 0, name: "interop".to_string() }
}

/// Layout: top-level vdevs of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name, as the table shows it.
    pub name: &'static str,
    /// Kind of every top-level vdev.
    pub kind: TopKind,
    /// Number of top-level vdevs.
    pub tops: usize,
    /// Number of devices of each.
    pub width: usize,
}

/// Pool to make.
#[derive(Clone, Copy, Debug)]
pub struct NewPool<'a> {
    /// Name of the pool.
    pub name: &'a str,
    /// Layout of its devices.
    pub layout: Layout,
    /// log2 of its sectors in bytes.
    pub ashift: u32,
    /// Bytes of a device.
    pub device_bytes: u64,
    /// True for one without feature flags, as `zpool create -d`.
    pub no_features: bool,
    /// True for so small a cache and so little dirty data that everything goes to the devices and back.
    pub small_memory: bool,
}

impl NewPool<'_> {
    /// Settings with which it is made.
    pub fn runtime(&self) -> Runtime {
        let mut runtime = Runtime::new();
        if self.small_memory {
            runtime.arc_max = SMALL_CACHE_BYTES;
            runtime.txg.dirty_data_max = SMALL_DIRTY_BYTES;
        }
        runtime
    }
}

/// Paths of the vdev files of a folder, in order.
pub fn vdev_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.metadata()?.len() >= VDEV_BYTES_MIN {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Opens a file as a device.
pub fn open_device(path: &Path, read_only: bool) -> Result<Arc<dyn BlockDevice>, Failure> {
    Ok(device::open(path, &OpenOptions { read_only, ..OpenOptions::default() })?)
}

/// Options that fill a new file system.
pub fn filesystem(properties: &[(&str, &str)]) -> CreateDataset {
    let options = zpl::CreateOptions { project_quota: true, ..zpl::CreateOptions::default() };
    CreateDataset {
        kind: ObjsetType::ZFS,
        properties: properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        init: Box::new(move |objset, tx| Zfs::create(objset, &options, tx).map_err(|_| DslError::Unsupported)),
    }
}

/// Options that fill a new volume; both sizes in bytes.
pub fn volume(size: u64, block_size: u64) -> CreateDataset {
    let properties = [("volsize", size), ("volblocksize", block_size)];
    CreateDataset {
        kind: ObjsetType::ZVOL,
        properties: properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        init: Box::new(move |objset, tx| dsl::volume::create(objset, size, block_size, tx)),
    }
}

/// Makes a file that is to be a device.
pub fn new_leaf(path: &Path, device_bytes: u64) -> Result<LeafSpec, Failure> {
    std::fs::File::create(path)?.set_len(device_bytes)?;
    Ok(LeafSpec { path: path.to_string_lossy().into_owned(), kind: LeafKind::File, device: open_device(path, false)? })
}

/// Makes a pool on new files in `folder`.
pub fn create(exec: &Exec, folder: &Path, new: NewPool<'_>) -> Result<Pool, Failure> {
    create_as(exec, folder, new, ClassSpec::default(), &new.runtime())
}

/// Does [`create`], with vdevs that are for some blocks only, and with these settings.
pub fn create_as(exec: &Exec, folder: &Path, new: NewPool<'_>, classes: ClassSpec, runtime: &Runtime) -> Result<Pool, Failure> {
    let NewPool { name, layout, ashift, device_bytes, no_features, .. } = new;
    let mut tops = Vec::new();
    for top in 0..layout.tops {
        let mut leaves = Vec::new();
        for leaf in 0..layout.width {
            let path = folder.join(format!("d{:02}", top * layout.width + leaf));
            leaves.push(new_leaf(&path, device_bytes)?);
        }
        tops.push(TopSpec { kind: layout.kind, leaves });
    }
    let spec = PoolSpec {
        classes,
        ashift: Some(ashift),
        features: no_features.then(Vec::new),
        host: host(),
        force: true,
        ..PoolSpec::new(name, tops, filesystem(&[]))
    };
    Ok(Pool::create(exec, spec, runtime)?)
}

/// Imports a pool from the files of `folder`.
pub fn import(exec: &Exec, folder: &Path, name: &str, read_only: bool) -> Result<Pool, ImportError> {
    import_under(exec, folder, (name, read_only), Arc::new(zpl::FileReplay))
}

/// Does [`import`] with this replayer of logs.
pub fn import_under(
    exec: &Exec,
    folder: &Path,
    (name, read_only): (&str, bool),
    replay: Arc<dyn ReplayFiles>,
) -> Result<Pool, ImportError> {
    import_as(exec, folder, (name, read_only), &Runtime { replay: Some(replay), ..Runtime::new() })
}

/// Does [`import`] with these settings.
pub fn import_as(exec: &Exec, folder: &Path, (name, read_only): (&str, bool), runtime: &Runtime) -> Result<Pool, ImportError> {
    import_at(exec, folder, (name, read_only, Rewind::Never), runtime)
}

/// Does [`import_as`] in the state that may be gone back to.
pub fn import_at(
    exec: &Exec,
    folder: &Path,
    (name, read_only, rewind): (&str, bool, Rewind),
    runtime: &Runtime,
) -> Result<Pool, ImportError> {
    let other = ImportError::Other;
    let mut devices = Vec::new();
    for path in vdev_files(folder).map_err(other)? {
        devices.push(open_device(&path, read_only).map_err(other)?);
    }
    // Whoever wrote the pool is known to be over; `ztest` turns `multihost` on and off.
    let wanted = ImportOptions { name: Some(name.to_string()), read_only, rewind, force: true, ..ImportOptions::default() };
    let options = ImportOptions { skip_activity: true, host: host(), ..wanted };
    Pool::import(exec, devices, &options, runtime).map_err(ImportError::Pool)
}

/// Reason why an import failed.
#[derive(Debug)]
pub enum ImportError {
    /// Engine refused the pool.
    Pool(PoolError),
    /// Files could not be opened.
    Other(Failure),
}

impl std::fmt::Display for ImportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ImportError::Pool(error) => write!(f, "import: {error}"),
            ImportError::Other(error) => write!(f, "import: {error}"),
        }
    }
}
impl std::error::Error for ImportError {}

/// Opens a file system for writing; what a crash left in its unlinked set is deleted.
pub fn open(pool: &Pool, dataset: &str) -> Result<Arc<Zfs>, Failure> {
    let handle = pool.dsl().hold(dataset)?;
    let objset = handle.objset()?;
    let project_quota = pool.features().iter().any(|(name, _, references)| name == "project_quota" && references.is_some());
    let settings = Settings { project_quota, ..Settings::default() };
    let zfs = Zfs::open(&objset, Some(pool.txgs().clone()), settings)?;
    zfs.set_space_source(Arc::new(handle));
    zfs.drain_unlinked()?;
    Ok(zfs)
}

/// Names of all datasets and snapshots of a pool, in full, sorted.
pub fn datasets(pool: &Pool) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    let mut rest = vec![pool.name()];
    while let Some(name) = rest.pop() {
        rest.extend(pool.dsl().children(&name)?.into_iter().map(|child| format!("{name}/{child}")));
        names.extend(pool.dsl().snapshots(&name)?.into_iter().map(|snapshot| format!("{name}@{}", snapshot.name)));
        names.push(name);
    }
    names.retain(|name| !name.contains(['%', '$']));
    names.sort();
    Ok(names)
}
