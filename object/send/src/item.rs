//! Finds of a walk over an object set, in order of object and offset, and who takes them.

use crate::SendError;
use ondisk::{BlockPtr, Bookmark, DnodePhys, ObjectType};

/// A level-0 block, or a spill block.
pub(crate) struct Block {
    pub(crate) bp: BlockPtr,
    pub(crate) at: Bookmark,
    /// Type of the object.
    pub(crate) kind: ObjectType,
    /// Place in the object, in bytes.
    pub(crate) offset: u64,
    pub(crate) is_spill: bool,
}

/// A find of the walk.
pub(crate) enum Item {
    /// A block of dnodes: a raw stream has its marks before them.
    Dnodes {
        bp: Box<BlockPtr>,
        first: u64,
        count: u64,
    },
    /// An object; of a raw stream also its bonus as it is stored.
    Object {
        object: u64,
        dnode: Box<DnodePhys>,
        stored: Vec<u8>,
    },
    FreeObjects {
        first: u64,
        count: u64,
    },
    Free {
        object: u64,
        offset: u64,
        length: u64,
    },
    /// Bytes that are not for who gets the stream.
    Redact {
        object: u64,
        offset: u64,
        length: u64,
    },
    Block(Box<Block>),
}

/// Taker of what a walk finds.
pub(crate) trait Finds {
    /// Product of all that was found.
    type Made;

    /// Takes what comes next.
    fn push(&mut self, item: Item) -> Result<(), SendError>;

    /// True where bonuses are wanted as they are stored.
    fn is_raw(&self) -> bool {
        false
    }

    /// Tells of a number that no object reaches, before anything is found.
    fn set_objects_max(&mut self, objects: u64) {
        let _ = objects;
    }

    /// Ends it.
    fn finish(self) -> Result<Self::Made, SendError>;
}
