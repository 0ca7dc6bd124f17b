//! What the pipeline knows about its pool: an immutable snapshot, replaced as a whole when the configuration changes.

use crate::ErrorKind;
use crate::sum::salted_sum_of;
use abd::Abd;
use device::BlockDevice;
use exec::RwLock;
use kernels::checksum::{Salt, is_supported, needs_salt};
use metaslab::Allocator;
use ondisk::{Checksum, Guid};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vdev::{LeafId, VdevTree};

/// Treatment of I/Os that the pool cannot complete (OpenZFS: the `failmode` property).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailMode {
    /// Hold the I/O until [`crate::Zio::resume`].
    #[default]
    Wait,
    /// Return the error of a read; hold writes, of which nothing may be lost, and let the owner of the pool refuse new ones.
    Continue,
    /// As [`FailMode::Continue`]; the owner of the pool gives it up on the event.
    Panic,
    /// Hold nothing: nobody could resume it, as while a pool is being opened.
    Never,
}

/// Facts about the pool that decide how blocks are written (the pipeline has no back pointer to the pool).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The pool's guid, for events.
    pub guid: Guid,
    /// The pool's name, for events.
    pub name: String,
    /// True when writes, frees and repairs are allowed.
    pub writeable: bool,
    /// True when feature `embedded_data` is enabled.
    pub embedded_data: bool,
    /// True when feature `hole_birth` is active.
    pub hole_birth: bool,
    /// Treatment of device failures that cannot be survived.
    pub fail_mode: FailMode,
    /// Salt of the pool's keyed checksums, once it is known.
    pub salt: Option<Arc<Salt>>,
    /// The pool's version on disk; 0 where nobody said: the newest.
    pub version: u64,
}

impl Facts {
    /// True for a pool of a version before this one (see `ondisk::names::spa_version`).
    pub fn is_before(&self, version: u64) -> bool {
        self.version != 0 && self.version < version
    }

    /// True when blocks with this checksum can be written and verified.
    pub(crate) fn computes(&self, kind: Checksum) -> bool {
        if needs_salt(kind) { self.salt.is_some() } else { is_supported(kind) }
    }

    /// The checksum of `data`, as little-endian blocks of this pool have it.
    ///
    /// Errors: `Unsupported` for an algorithm that this build lacks, or that needs a salt that is not known.
    pub(crate) fn sum_of(&self, kind: Checksum, data: &Abd) -> Result<[u64; 4], ErrorKind> {
        salted_sum_of(self.salt.as_deref(), kind, data)
    }
}

/// A consistent picture of the pool's devices.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Vdevs of the pool.
    pub tree: Arc<VdevTree>,
    /// Open devices by leaf number; None for a leaf that could not be opened.
    pub devices: Vec<Option<Arc<dyn BlockDevice>>>,
    /// The allocator of the normal class.
    pub allocator: Arc<Allocator>,
    /// Facts about the pool.
    pub facts: Facts,
}

impl PoolView {
    /// The device behind a leaf.
    pub fn device(&self, leaf: LeafId) -> Option<&Arc<dyn BlockDevice>> {
        self.devices.get(leaf.0 as usize)?.as_ref()
    }
}

const SHARDS: usize = 16;

/// The current view, in copies per thread group so that taking it shares no cache line between threads.
#[derive(Debug)]
pub(crate) struct ViewCell<T>(Box<[Slot<T>]>);

#[derive(Debug)]
#[repr(align(128))]
struct Slot<T>(RwLock<Arc<T>>);

impl<T: Clone> ViewCell<T> {
    pub(crate) fn new(value: &T) -> ViewCell<T> {
        ViewCell((0..SHARDS).map(|_| Slot(RwLock::new(Arc::new(value.clone())))).collect())
    }
    /// Value as it is now.
    pub(crate) fn get(&self) -> Arc<T> {
        self.0[thread_shard()].0.read().clone()
    }
    /// Replaces the value for everybody who asks from now on; those before it, for who wants to know when nobody uses them any more.
    pub(crate) fn set(&self, value: &T) -> Vec<Weak<T>> {
        let replace = |slot: &Slot<T>| Arc::downgrade(&std::mem::replace(&mut *slot.0.write(), Arc::new(value.clone())));
        self.0.iter().map(replace).collect()
    }
}

/// The shard of this thread: threads take turns.
fn thread_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    MINE.with(|mine| *mine)
}
