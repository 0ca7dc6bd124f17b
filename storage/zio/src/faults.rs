//! Simulated faults of blocks, where they are verified (OpenZFS: `zio_inject.c`, the program `zinject`); those of devices are the leaf's. As in
//! OpenZFS, faults of blocks are faults of reads. Without handlers all of it costs one relaxed load.

use exec::{Exec, RwLock};
use leaf::{FaultError, LeafFault};
use ondisk::{Bookmark, ObjectId, ObjectType, ObjsetId};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

/// I/Os or reads that go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// I/Os of devices.
    Leaf(LeafFault),
    /// Reads of blocks of one object.
    Blocks {
        /// Number of the object set.
        objset: ObjsetId,
        /// Number of the object.
        object: ObjectId,
        /// Level of the blocks.
        level: i64,
        /// Numbers of the blocks.
        blocks: RangeInclusive<u64>,
        /// Copies that are meant, as bits; all if 0.
        copies: u32,
        /// Error that they suffer.
        error: FaultError,
    },
    /// Reads of the meta object set: of objects of one type, or all.
    Meta {
        /// Type of the objects; all if None.
        object_type: Option<ObjectType>,
        /// Error that they suffer.
        error: FaultError,
    },
}

#[derive(Debug)]
struct Handler {
    id: u64,
    fault: Fault,
    /// Chance that it strikes, of 2^32; 0 is always.
    frequency: u32,
}

impl Handler {
    fn strikes(&self, exec: &Exec) -> bool {
        self.frequency == 0 || (exec.random_u64() >> 32) < u64::from(self.frequency)
    }
}

/// The handlers of a pool's blocks.
#[derive(Default)]
pub(crate) struct BlockFaults {
    count: AtomicUsize,
    handlers: RwLock<Vec<Handler>>,
}

impl BlockFaults {
    /// True when there is any handler.
    pub(crate) fn is_set(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Adds a handler under a number of the caller's; `frequency` is how often it strikes, of 2^32, and 0 always.
    pub(crate) fn add(&self, id: u64, fault: Fault, frequency: u32) {
        let mut handlers = self.handlers.write();
        handlers.push(Handler { id, fault, frequency });
        self.count.store(handlers.len(), Ordering::Relaxed);
    }

    /// Removes a handler; false when there is none of that number.
    pub(crate) fn remove(&self, id: u64) -> bool {
        let mut handlers = self.handlers.write();
        let before = handlers.len();
        handlers.retain(|handler| handler.id != id);
        self.count.store(handlers.len(), Ordering::Relaxed);
        handlers.len() != before
    }

    /// Error that a fault of blocks gives the reading of a copy (None: of a block, whichever copy it came from).
    pub(crate) fn strike(&self, exec: &Exec, bookmark: &Bookmark, kind: ObjectType, copy: Option<usize>) -> Option<FaultError> {
        self.find(exec, (bookmark, kind), copy, |error| match error {
            FaultError::Decrypt => false,
            FaultError::Decompress => copy.is_none(),
            _ => copy.is_some(),
        })
    }

    /// True when a fault of blocks makes the decryption of one fail.
    pub(crate) fn strikes_decryption(&self, exec: &Exec, bookmark: &Bookmark, kind: ObjectType) -> bool {
        self.find(exec, (bookmark, kind), None, |error| error == FaultError::Decrypt).is_some()
    }

    fn find(
        &self,
        exec: &Exec,
        (bookmark, kind): (&Bookmark, ObjectType),
        copy: Option<usize>,
        is_meant: impl Fn(FaultError) -> bool,
    ) -> Option<FaultError> {
        if !self.is_set() {
            return None;
        }
        self.handlers.read().iter().find_map(|handler| {
            let error = match &handler.fault {
                Fault::Blocks { objset, object, level, blocks, copies, error } => {
                    let same = *objset == bookmark.objset && *object == bookmark.object && *level == i64::from(bookmark.level.0);
                    let of_copy = *copies == 0 || copy.is_some_and(|copy| copies & (1 << copy) != 0);
                    (same && of_copy && blocks.contains(&bookmark.block.0)).then_some(*error)
                }
                Fault::Meta { object_type, error } => {
                    (bookmark.objset == ObjsetId(0) && object_type.is_none_or(|wanted| wanted == kind)).then_some(*error)
                }
                _ => None,
            }?;
            (is_meant(error) && handler.strikes(exec)).then_some(error)
        })
    }
}
