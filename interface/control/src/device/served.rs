//! Files of file systems that this daemon serves itself, as devices of its pools.
//!
//! Through the kernel such a device would wait for the daemon's own answers, and a daemon that is killed would wait for itself, where not
//! even SIGKILL reaches. So the file system is asked without the kernel, in threads that belong to the pool in which the file lies and
//! do nothing else: they wait for that pool only, which never waits for one that rests on it, as circles are refused.
//!
//! Invariants: the kernel is never asked for a byte of such a file, and forgets what it has of bytes that were changed before the change is answered
//! (whoever copies the file through the mount copies what is in it); the file stays mounted and in being for as long as it is a device
//! (a descriptor that only names it sees to that); a file system that is cut off answers with an error from then on.

use crate::device::beneath::own_dataset_under;
use crate::device::workers::Workers;
use crate::failure::because;
use crate::mount::mounts::Mounted;
use crate::pool::{OpenPool, Pools};
use control_api::{ErrorKind, Failure};
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, DeviceReply, DeviceThen, OpenOptions};
use exec::{Exec, Mutex};
use fuse::Errno;
use ondisk::ObjectId;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, makedev};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use zpl::{Allocate, Node, WriteData, Zfs, ZplError};

/// File of a mounted file system as a device.
#[derive(Debug)]
struct ServedFile {
    file: Arc<File>,
    workers: Arc<Workers>,
    /// Name of the pool that the file lies in.
    below: String,
    is_exclusive: bool,
    /// Descriptor that names the file and does nothing else: it keeps the file system mounted and the file from being freed.
    _pin: OwnedFd,
}

#[derive(Debug)]
struct File {
    facts: DeviceFacts,
    mounted: Weak<Mounted>,
    object: ObjectId,
    size_bytes: AtomicU64,
}

impl File {
    fn node(&self) -> Result<(Arc<Mounted>, Node), DeviceError> {
        let mounted = self.mounted.upgrade().filter(|mounted| !mounted.session.has_ended()).ok_or(DeviceError::Gone)?;
        let node = mounted.zfs().node(self.object).map_err(device_error)?;
        Ok((mounted, node))
    }

    fn run(&self, op: DeviceOp, offset: u64, then: DeviceThen) {
        let (mounted, node) = match self.node() {
            Ok(found) => found,
            Err(error) => {
                let parts = if let DeviceOp::Read(parts) = op { parts } else { Vec::new() };
                return then(DeviceReply { outcome: Err(error), parts });
            }
        };
        let changed = match &op {
            DeviceOp::Write(data) => offset..offset.saturating_add(data.len() as u64),
            DeviceOp::Trim { length_bytes } => offset..offset.saturating_add(*length_bytes),
            DeviceOp::Read(_) | DeviceOp::Flush => 0..0,
        };
        let reply = perform(mounted.zfs(), &node, op, offset);
        if changed.is_empty() { then(reply) } else { mounted.changed_beneath(&node, changed, move || then(reply)) }
    }
}

/// Does the operation without the kernel.
fn perform(zfs: &Zfs, node: &Node, op: DeviceOp, offset: u64) -> DeviceReply {
    match op {
        DeviceOp::Read(mut parts) => {
            let mut at = offset;
            let outcome = parts.iter_mut().try_for_each(|part| {
                let data = zfs.read(node, at, part.len() as u64).map_err(device_error)?;
                if data.len() != part.len() {
                    return Err(DeviceError::Short);
                }
                data.copy_to(0, part);
                at += data.len() as u64;
                Ok(())
            });
            DeviceReply { outcome, parts }
        }
        DeviceOp::Write(data) => {
            let length = data.len() as u64;
            let write = WriteData { offset, data, may_keep: false, kill_suid: false, synchronous: false };
            DeviceReply::of(match zfs.write(node, write) {
                Ok(written) if written == length => Ok(()),
                Ok(_) => Err(DeviceError::Short),
                Err(error) => Err(device_error(error)),
            })
        }
        DeviceOp::Flush => DeviceReply::of(zfs.fsync(node).map_err(device_error)),
        DeviceOp::Trim { length_bytes } => DeviceReply::of(zfs.allocate(node, offset, length_bytes, Allocate::Punch).map_err(device_error)),
    }
}

fn device_error(error: ZplError) -> DeviceError {
    DeviceError::from_errno(Errno::from(error).0)
}

impl BlockDevice for ServedFile {
    fn submit(&self, io: DeviceIo) {
        if let Err(error) = io.check(&self.file.facts, self.size_bytes()) {
            return io.fail(error);
        }
        let DeviceIo { op, offset, then, .. } = io;
        let file = self.file.clone();
        self.workers.push(Box::new(move || file.run(op, offset, then)));
    }

    fn facts(&self) -> &DeviceFacts {
        &self.file.facts
    }

    fn size_bytes(&self) -> u64 {
        self.file.size_bytes.load(Ordering::Relaxed)
    }

    fn refresh_size(&self) -> u64 {
        // What is in memory of a file is looked at without waiting for anybody.
        if let Ok((_, node)) = self.file.node() {
            self.file.size_bytes.store(node.fields().size, Ordering::Relaxed);
        }
        self.size_bytes()
    }
}

/// Files of own file systems that are devices now.
pub(crate) struct Served {
    exec: Exec,
    pools: Arc<Pools>,
    files: Mutex<Vec<Weak<ServedFile>>>,
}

impl Served {
    /// Makes the list, with no file in it yet.
    pub(crate) fn new(exec: &Exec, pools: &Arc<Pools>) -> Served {
        Served { exec: exec.clone(), pools: pools.clone(), files: Mutex::default() }
    }

    fn all(&self) -> Vec<Arc<ServedFile>> {
        let mut files = self.files.lock();
        files.retain(|file| file.strong_count() > 0);
        files.iter().filter_map(Weak::upgrade).collect()
    }

    /// Names of the pools in which devices at these paths lie.
    fn below(&self, paths: &[String]) -> BTreeSet<String> {
        let is_one = |file: &Arc<ServedFile>| paths.iter().any(|path| Path::new(path) == file.path());
        self.all().into_iter().filter(is_one).map(|file| file.below.clone()).collect()
    }

    /// Opens a file of a dataset that this daemon has mounted.
    pub(crate) fn open(&self, path: &str, dataset: &str, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        let pool = dataset.split('/').next().unwrap_or(dataset);
        let open = self.pools.open_pool(pool).map_err(|_| DeviceError::Gone)?;
        let mounted = open.mounts.mounted(dataset).ok_or(DeviceError::Gone)?;
        // The descriptor first: what it names stays what it is.
        let pin = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| errno_of(errno.raw_os_error()))?;
        let metadata = std::fs::metadata(path)?;
        // Snapshots under .zfs have objects of the same numbers.
        let is_in_a_snapshot = std::fs::canonicalize(path)?.components().any(|part| part.as_os_str() == ".zfs");
        if !metadata.is_file() || is_in_a_snapshot || metadata.dev() != makedev(mounted.session.number().0, mounted.session.number().1) {
            return Err(DeviceError::NotADevice);
        }
        let object = ObjectId(metadata.ino());
        let same = |file: &Arc<ServedFile>| file.file.object == object && std::ptr::eq(file.file.mounted.as_ptr(), Arc::as_ptr(&mounted));
        if options.exclusive && self.all().iter().any(|file| file.is_exclusive && same(file)) {
            return Err(DeviceError::Busy);
        }
        let read_only = options.read_only || mounted.zfs().is_read_only();
        let facts = DeviceFacts { read_only, ..DeviceFacts::solid(path, "served") };
        let file = Arc::new(File { facts, mounted: Arc::downgrade(&mounted), object, size_bytes: AtomicU64::new(metadata.len()) });
        let (_, node) = file.node()?;
        if !node.fields().is_regular() || node.fields().size != metadata.len() {
            return Err(DeviceError::NotADevice);
        }
        let workers = open.workers(|| Workers::start(&self.exec));
        let is_exclusive = options.exclusive && !options.read_only;
        let served = Arc::new(ServedFile { file, workers, below: pool.to_string(), is_exclusive, _pin: pin });
        self.files.lock().push(Arc::downgrade(&served));
        Ok(served)
    }

    /// Names of all pools that a pool needs open.
    fn rests_on(&self, name: &str) -> BTreeSet<String> {
        let (mut found, mut rest) = (BTreeSet::new(), vec![name.to_string()]);
        while let Some(next) = rest.pop() {
            let Some(open) = self.pools.get(&next) else { continue };
            let new = self.below(&paths_of(&open));
            rest.extend(new.into_iter().filter(|pool| found.insert(pool.clone())));
        }
        found
    }

    /// Refuses a device for a pool that would then wait for itself.
    pub(crate) fn check_circle(&self, open: &OpenPool, path: &str, what: &str) -> Result<(), Failure> {
        let Some(dataset) = own_dataset_under(&self.pools, path) else { return Ok(()) };
        let below = dataset.split('/').next().unwrap_or(&dataset).to_string();
        if below != open.name() && !self.rests_on(&below).contains(&open.name()) {
            return Ok(());
        }
        let why = format!("{path} lies in the file system '{dataset}', which rests on '{}': the pool would wait for itself", open.name());
        Err(because(ErrorKind::Invalid, what, why).advise("use a file or device that does not need this pool"))
    }

    /// Refuses to let go of a pool that others rest on.
    pub(crate) fn check_nothing_rests_on(&self, name: &str, what: &str) -> Result<(), Failure> {
        let names = self.pools.names();
        match names.iter().find(|other| *other != name && self.rests_on(other).contains(name)) {
            None => Ok(()),
            Some(other) => Err(because(ErrorKind::Busy, what, "pool is busy")
                .advise(format!("devices of pool '{other}' are files in it: export that one first"))),
        }
    }

    /// Refuses to cut off file systems of which files are devices of pools.
    pub(crate) fn check_unserved(&self, mounts: &[Arc<Mounted>]) -> Result<(), Failure> {
        let lies_in = |file: &Arc<ServedFile>| mounts.iter().find(|mounted| std::ptr::eq(file.file.mounted.as_ptr(), Arc::as_ptr(mounted)));
        for file in self.all() {
            let Some(mounted) = lies_in(&file) else { continue };
            let user = self.pools.find(|open| open.pool().tree().leaves.iter().any(|leaf| Path::new(&leaf.path) == file.path()));
            let what = format!("cannot unmount '{}'", mounted.session.mountpoint().display());
            let user = user.map_or_else(|| "another pool".to_string(), |open| format!("pool '{}'", open.name()));
            return Err(because(ErrorKind::Busy, what, "pool or dataset is busy")
                .advise(format!("{} is a device of {user}: export that one first", file.path().display())));
        }
        Ok(())
    }

    /// Pools in groups: each rests on pools of later ones only.
    pub(crate) fn in_layers(&self, mut pools: Vec<Arc<OpenPool>>) -> Vec<Vec<Arc<OpenPool>>> {
        let below = |open: &Arc<OpenPool>| self.below(&paths_of(open));
        let mut layers = Vec::new();
        while !pools.is_empty() {
            let needed: BTreeSet<String> = pools.iter().flat_map(below).collect();
            let (later, now): (Vec<_>, Vec<_>) = pools.iter().cloned().partition(|open| needed.contains(&open.name()));
            // There are no circles; whoever made one all the same is not waited for.
            layers.push(if now.is_empty() { std::mem::take(&mut pools) } else { now });
            pools.retain(|open| later.iter().any(|one| Arc::ptr_eq(one, open)));
        }
        layers
    }
}

fn paths_of(open: &OpenPool) -> Vec<String> {
    open.pool().tree().leaves.iter().map(|leaf| leaf.path.clone()).collect()
}

fn errno_of(errno: i32) -> DeviceError {
    DeviceError::from_errno(errno)
}
