//! Mounted file systems: which dataset is where, and everything that keeps it there.

use crate::failure::{self, because};
use control_api::{ErrorKind, Failure};
use dmu::TxgManager;
use dsl::{DatasetHandle, PropSource};
use exec::{Exec, Mutex};
use fuse::{MountOptions, Readers, Session};
use ondisk::{ObjectId, ObjsetId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use zpl::direct::{Direct, DirectSnapshot, DirectStats, Tunables};
use zpl::{Settings, SnapshotSource, Zfs, ZplFuse};

/// One mount; dropping it unmounts.
struct Mounted {
    session: Session,
    zfs: Arc<Zfs>,
    handler: Arc<ZplFuse>,
    mountpoint: String,
    made_for_it: bool,
}

/// What becomes of the directory that a file system was mounted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// It stays.
    Keep,
    /// It goes when it is empty and its place follows from the dataset's name (OpenZFS: `remove_mountpoint`).
    Remove,
}

/// The mounts of one pool.
pub struct Mounts {
    by_name: Mutex<BTreeMap<String, Mounted>>,
    /// The threads that serve them: the pool's own, so that none waits for another pool.
    readers: Mutex<Option<Readers>>,
    /// Counts of direct I/O: of the pool, and of each dataset since the pool was opened, mounted or not.
    pool_direct: Arc<DirectStats>,
    direct: Mutex<BTreeMap<String, Arc<DirectStats>>>,
}

impl Default for Mounts {
    fn default() -> Self {
        Mounts { by_name: Mutex::default(), readers: Mutex::default(), pool_direct: DirectStats::new(None), direct: Mutex::default() }
    }
}

/// How a file system is mounted.
pub struct MountPlan {
    /// Absolute path, altroot included.
    pub mountpoint: String,
    /// Refuse writes.
    pub read_only: bool,
    /// Refuse to cover a directory that has entries.
    pub must_be_empty: bool,
    /// The place follows from the dataset's name (`mountpoint` is inherited or default), so the directory is ours to remove.
    pub made_for_it: bool,
    /// Behaviour that follows properties.
    pub settings: Settings,
    /// Parameters of direct I/O.
    pub direct: Arc<Tunables>,
    /// Flags of the mount.
    pub options: MountOptions,
    /// Says whether the pool is suspended.
    pub is_suspended: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Mounts {
    /// The mounted dataset that a path is in, and where it is mounted.
    pub fn dataset_at(&self, path: &str) -> Option<(String, String)> {
        let by_name = self.by_name.lock();
        let below = |place: &str| {
            let rest = path.strip_prefix(place.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let inside = by_name.iter().filter(|(_, mounted)| below(&mounted.mountpoint));
        let best = inside.max_by_key(|(_, mounted)| mounted.mountpoint.len())?;
        Some((best.1.mountpoint.clone(), best.0.clone()))
    }

    /// Where a dataset is mounted; a mount that somebody else removed is forgotten.
    pub fn mountpoint(&self, name: &str) -> Option<String> {
        let mut by_name = self.by_name.lock();
        if by_name.get(name)?.session.has_ended() {
            by_name.remove(name);
        }
        by_name.get(name).map(|mounted| mounted.mountpoint.clone())
    }

    /// The pool's counts of direct I/O.
    pub fn direct_of_pool(&self) -> &Arc<DirectStats> {
        &self.pool_direct
    }

    /// A dataset's counts of direct I/O.
    pub fn direct_of(&self, name: &str) -> Arc<DirectStats> {
        let mut direct = self.direct.lock();
        direct.entry(name.to_string()).or_insert_with(|| DirectStats::new(Some(self.pool_direct.clone()))).clone()
    }

    /// The object set of a mounted file system and a file's counts of direct I/O since it came into memory.
    pub fn direct_of_file(&self, name: &str, object: ObjectId) -> Option<(ObjsetId, DirectSnapshot)> {
        let zfs = self.by_name.lock().get(name).map(|mounted| mounted.zfs.clone())?;
        let counts = zfs.node(object).ok().and_then(|node| zfs.direct_counts(&node));
        Some((zfs.objset().id(), counts.unwrap_or_default()))
    }

    /// Name and place of every mount.
    pub fn list(&self) -> Vec<(String, String)> {
        let names: Vec<String> = self.by_name.lock().keys().cloned().collect();
        names.into_iter().filter_map(|name| self.mountpoint(&name).map(|place| (name, place))).collect()
    }

    /// What users did to each mounted file system.
    pub fn counts(&self, zio: &zio::Zio) -> Vec<metrics::DatasetView> {
        let by_name = self.by_name.lock();
        let view = |(name, mounted): (&String, &Mounted)| metrics::DatasetView {
            name: name.clone(),
            objset: mounted.zfs.objset().id().0,
            counts: mounted.zfs.counts(),
            direct: crate::direct::rows(&self.direct_of(name).snapshot(), zio.changed_buffers(Some(mounted.zfs.objset().id()), None)),
        };
        by_name.iter().map(view).collect()
    }

    /// The dataset mounted at this path.
    pub fn find(&self, mountpoint: &str) -> Option<String> {
        self.list().into_iter().find(|(_, place)| place == mountpoint).map(|(name, _)| name)
    }

    /// The threads that serve this pool's mounts.
    fn readers(&self, exec: &Exec) -> Result<Readers, fuse::Errno> {
        let mut readers = self.readers.lock();
        match &*readers {
            Some(readers) => Ok(readers.clone()),
            None => Ok(readers.insert(Readers::new(exec)?).clone()),
        }
    }

    /// Mounts a file system.
    pub fn mount(&self, exec: &Exec, handle: DatasetHandle, txgs: Option<Arc<TxgManager>>, plan: MountPlan) -> Result<(), Failure> {
        let name = handle.name();
        let what = format!("cannot mount '{name}'");
        if let Some(place) = self.mountpoint(&name) {
            return Err(because(ErrorKind::Busy, what, format!("filesystem already mounted at {place}")));
        }
        prepare_directory(&plan, &what)?;
        let objset = handle.objset().map_err(|error| failure::dataset("mount", &name, &error))?;
        let zfs = Zfs::open(&objset, txgs.filter(|_| !plan.read_only), plan.settings)
            .map_err(|error| because(ErrorKind::Damaged, &*what, error))?;
        let dataset = Arc::new(handle);
        zfs.set_space_source(dataset.clone());
        zfs.set_direct(Direct { tunables: plan.direct, stats: self.direct_of(&name) });
        if !zfs.is_read_only() {
            zfs.drain_unlinked().map_err(|error| because(ErrorKind::Io, &*what, error))?;
        }
        let snapshots: Option<Arc<dyn SnapshotSource>> = Some(dataset);
        let handler = Arc::new(ZplFuse::new(zfs.clone(), snapshots).with_health(plan.is_suspended));
        let readers = self.readers(exec).map_err(|error| because(ErrorKind::Io, &*what, error))?;
        let session = Session::mount_with(&readers, handler.clone(), Path::new(&plan.mountpoint), &plan.options).map_err(|error| {
            because(ErrorKind::Permission, &*what, error).advise("is /dev/fuse there, and may this user mount on that directory?")
        })?;
        let made_for_it = plan.made_for_it;
        self.by_name.lock().insert(name, Mounted { session, zfs, handler, mountpoint: plan.mountpoint, made_for_it });
        Ok(())
    }

    /// Unmounts; without `force` open files refuse it.
    pub fn unmount(&self, name: &str, force: bool, directory: Directory) -> Result<(), Failure> {
        let what = format!("cannot unmount '{name}'");
        let Some(mounted) = self.by_name.lock().remove(name) else {
            return Err(because(ErrorKind::Invalid, what, "not currently mounted"));
        };
        // What is mounted below would be lost from sight.
        if let Err(errno) = mounted.session.unmount(force) {
            let place = mounted.mountpoint.clone();
            self.by_name.lock().insert(name.to_string(), mounted);
            return Err(
                because(ErrorKind::Busy, what, format!("{place}: {errno}")).advise("close the files that are open there, or use '-f'")
            );
        }
        mounted.session.join();
        if directory == Directory::Remove && mounted.made_for_it {
            // Fails when something is in it: then it is not ours alone.
            let _ = std::fs::remove_dir(&mounted.mountpoint);
        }
        mounted.zfs.sync().map_err(|error| because(ErrorKind::Io, what, error))
    }

    /// Unmounts everything at or below this dataset, deepest first, up to the first that refuses; names what was unmounted.
    pub fn unmount_below(&self, name: &str, force: bool, directory: Directory) -> (Vec<String>, Result<(), Failure>) {
        let mut mounted = self.list();
        mounted.retain(|(other, _)| other == name || other.strip_prefix(name).is_some_and(|rest| rest.starts_with('/')));
        mounted.sort_by_key(|(_, place)| std::cmp::Reverse(place.len()));
        let mut done = Vec::new();
        for (other, _) in mounted {
            if let Err(failure) = self.unmount(&other, force, directory) {
                return (done, Err(failure));
            }
            done.push(other);
        }
        (done, Ok(()))
    }

    /// Closes snapshots that were browsed under `.zfs/snapshot` and are to be destroyed or renamed. Busy when a file of one is open.
    pub fn close_snapshots(&self, names: &[String], verb: &str) -> Result<(), Failure> {
        let by_name = self.by_name.lock();
        for name in names {
            let Some((filesystem, snapshot)) = name.split_once('@') else { continue };
            if by_name.get(filesystem).is_some_and(|mounted| !mounted.handler.close_snapshot(snapshot)) {
                let failure = because(ErrorKind::Busy, format!("cannot {verb} snapshot {name}"), "dataset is busy");
                return Err(failure.advise("close the files that are open under .zfs/snapshot"));
            }
        }
        Ok(())
    }

    /// Applies changed properties to a mounted file system.
    pub fn apply(&self, name: &str, settings: Settings) {
        if let Some(mounted) = self.by_name.lock().get(name) {
            mounted.zfs.set_settings(settings);
        }
    }
}

fn prepare_directory(plan: &MountPlan, what: &str) -> Result<(), Failure> {
    let path = Path::new(&plan.mountpoint);
    // What a killed daemon left behind.
    fuse::clear_dead_mount(path);
    std::fs::create_dir_all(path).map_err(|error| {
        because(ErrorKind::Permission, what, format!("{}: {error}", plan.mountpoint))
            .advise("choose a place that you may write: zfs set mountpoint=/path …, or import with -R")
    })?;
    if plan.must_be_empty && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(
            because(ErrorKind::Busy, what, format!("directory '{}' is not empty", plan.mountpoint)).advise("use '-O' to mount over it")
        );
    }
    Ok(())
}

/// The source of a property as the API words it.
pub fn source(source: PropSource) -> control_api::Source {
    match source {
        PropSource::None => control_api::Source::None,
        PropSource::Default => control_api::Source::Default,
        PropSource::Local => control_api::Source::Local,
        PropSource::Inherited(from) => control_api::Source::Inherited(from),
        PropSource::Received => control_api::Source::Received,
    }
}
