//! Errors of the crate: what failed, in terms that the layer above can act on; no strings.

use ondisk::{Bookmark, DnodeError, ObjectId, ObjsetError};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Reason why a block could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockError {
    /// The devices failed.
    Io,
    /// No copy of the block matched its checksum (OpenZFS: `ECKSUM`).
    Checksum,
    /// The payload could not be decompressed or decoded.
    Corrupt,
    /// The block needs a feature, key or algorithm that is not there.
    Unsupported,
    /// The pool has no room for the block.
    NoSpace,
    /// The pool does not do I/O now.
    Suspended,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlockError::Io => "the devices failed",
            BlockError::Checksum => "checksum mismatch in every copy of a block",
            BlockError::Corrupt => "a block's payload is malformed",
            BlockError::Unsupported => "a block needs something that this build or pool does not support",
            BlockError::NoSpace => "no space for a block",
            BlockError::Suspended => "pool I/O is suspended",
        })
    }
}
impl Error for BlockError {}

/// Block that could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBlock(pub Bookmark);

impl fmt::Display for LostBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bookmark { objset, object, level, block } = self.0;
        write!(f, "objset {objset} object {object} level {level} block {block}")
    }
}

impl Error for LostBlock {}

/// Block that an error is about, as far as it is known. Errors are equal when the same went wrong, whichever block it was.
#[derive(Clone, Copy, Debug)]
pub struct Which(Option<LostBlock>);

impl Which {
    /// Block that nobody knows, or none in particular: there is no room for one.
    pub const UNKNOWN: Which = Which(None);

    /// Place of the block, where it is known.
    pub fn bookmark(self) -> Option<Bookmark> {
        self.0.map(|block| block.0)
    }
}

impl PartialEq for Which {
    fn eq(&self, _: &Which) -> bool {
        true
    }
}
impl Eq for Which {}

/// Part of an object set that is not as the format wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The record of a dnode.
    Dnode(DnodeError),
    /// The objset block.
    Objset(ObjsetError),
    /// The contents of an object that holds a name table.
    Table {
        /// The object.
        object: ObjectId,
        /// Description of the damage.
        what: &'static str,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Dnode(error) => fmt::Display::fmt(error, f),
            RecordError::Objset(error) => fmt::Display::fmt(error, f),
            RecordError::Table { object, what } => write!(f, "the name table in object {object} is damaged: {what}"),
        }
    }
}

impl Error for RecordError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RecordError::Dnode(error) => error.source(),
            RecordError::Objset(error) => error.source(),
            RecordError::Table { .. } => None,
        }
    }
}

/// Reason why an operation on an object set or object failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmuError {
    /// There is no such object (OpenZFS: `ENOENT`).
    NoSuchObject,
    /// The object number is in use (OpenZFS: `EEXIST`).
    ObjectExists,
    /// An argument is outside what the format can represent (OpenZFS: `EINVAL`).
    Invalid,
    /// The object is not in a state that allows it, e.g. a new block size for many blocks (OpenZFS: `ENOTSUP`).
    NotSupported,
    /// The bytes that were read do not decode.
    Corrupt,
    /// The record of an object, or the objset block, does not decode.
    Record(RecordError),
    /// A block failed; its place is the error's cause.
    Block(BlockError, Which),
    /// The object set can't be modified (a snapshot).
    ReadOnly,
    /// A modification came with a txg older than one that already modified the object.
    TxgOrder,
    /// Txgs no longer sync: the pool failed or is being closed.
    Stopped,
}

impl DmuError {
    /// Makes the error of the block at a place.
    pub fn of_block(error: BlockError, at: Bookmark) -> DmuError {
        DmuError::Block(error, Which(Some(LostBlock(at))))
    }
}

impl fmt::Display for DmuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DmuError::NoSuchObject => "no such object",
            DmuError::ObjectExists => "the object number is in use",
            DmuError::Invalid => "argument out of range",
            DmuError::NotSupported => "not possible in the object's present state",
            DmuError::Corrupt | DmuError::Record(_) => "an object's metadata is malformed",
            DmuError::Block(error, _) => return fmt::Display::fmt(error, f),
            DmuError::ReadOnly => "the object set is read-only",
            DmuError::TxgOrder => "modification with an older transaction group",
            DmuError::Stopped => "transaction groups no longer sync",
        })
    }
}

impl Error for DmuError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            DmuError::Record(error) => Some(error),
            // The other's words are this error's own.
            DmuError::Block(_, Which(block)) => block.as_ref().map(|block| block as &(dyn Error + 'static)),
            _ => None,
        }
    }
}

impl From<DnodeError> for DmuError {
    fn from(error: DnodeError) -> Self {
        DmuError::Record(RecordError::Dnode(error))
    }
}

impl From<ObjsetError> for DmuError {
    fn from(error: ObjsetError) -> Self {
        DmuError::Record(RecordError::Objset(error))
    }
}

impl From<BlockError> for DmuError {
    fn from(error: BlockError) -> Self {
        DmuError::Block(error, Which::UNKNOWN)
    }
}

/// A record of the pool that contradicts itself or the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRecord {
    /// The object that holds it.
    pub object: ObjectId,
    /// Description of what is wrong with it.
    pub what: &'static str,
}

impl fmt::Display for DamagedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MOS object {} is damaged: {}", self.object, self.what)
    }
}

impl Error for DamagedRecord {}

/// Error of another crate that is the cause of one of this crate. Two are equal when they say the same.
#[derive(Clone, Debug)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// Makes the cause that `error` is.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Cause {
        Cause(Arc::new(error))
    }

    /// Error itself.
    pub fn error(&self) -> &(dyn Error + 'static) {
        &*self.0
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Cause) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}
impl Eq for Cause {}

/// Returns the error and its causes, each in its own words, the outermost first.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Reason why a txg could not be synced; nothing of it is referenced from the pool's uberblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncError {
    /// An object set could not be written.
    Dmu(DmuError),
    /// A block could not be read or written; the cause says which.
    Block(BlockError, Cause),
    /// The pool's own records could not be written.
    Pool(Cause),
    /// One of the pool's own records is damaged.
    Damaged(DamagedRecord),
    /// The sync was given up because the pool is being closed.
    Stopped,
    /// The system starts no thread for it.
    NoThread,
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncError::Dmu(error) => write!(f, "sync failed: {error}"),
            SyncError::Block(error, _) => write!(f, "sync failed: {error}"),
            SyncError::Pool(_) | SyncError::Damaged(_) => f.write_str("sync failed: the pool's records could not be written"),
            SyncError::Stopped => f.write_str("sync was stopped"),
            SyncError::NoThread => fmt::Display::fmt(&exec::NoThread, f),
        }
    }
}

impl Error for SyncError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Its words are part of this error's.
            SyncError::Dmu(error) => error.source(),
            SyncError::Damaged(record) => Some(record),
            SyncError::Block(_, cause) | SyncError::Pool(cause) => Some(cause.error()),
            SyncError::Stopped | SyncError::NoThread => None,
        }
    }
}

impl From<DmuError> for SyncError {
    fn from(error: DmuError) -> Self {
        SyncError::Dmu(error)
    }
}

impl From<BlockError> for SyncError {
    fn from(error: BlockError) -> Self {
        SyncError::Dmu(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, who looks for the cause of damage finds the same words twice, or none.
    #[test]
    fn causes_are_kept_and_said_once() {
        let decode = DmuError::from(ObjsetError::NoMetaDnode);
        assert_eq!(decode.to_string(), DmuError::Corrupt.to_string(), "users read what they always read");
        let record = DamagedRecord { object: ObjectId(7), what: "its bonus is short" };
        let pool = SyncError::Pool(Cause::new(record));
        assert_eq!(SyncError::Damaged(record).to_string(), pool.to_string());
        let block = SyncError::Block(BlockError::Checksum, Cause::new(record));
        assert_eq!(block.to_string(), SyncError::from(BlockError::Checksum).to_string());
        let table = DmuError::Record(RecordError::Table { object: ObjectId(9), what: "no header" });
        let at = Bookmark { object: ObjectId(9), ..Bookmark::default() };
        let lost = DmuError::of_block(BlockError::Checksum, at);
        assert_eq!(
            (lost.to_string(), lost),
            (BlockError::Checksum.to_string(), DmuError::from(BlockError::Checksum)),
            "the same, wherever it is"
        );
        let errors: [(&dyn Error, Option<&str>); 10] = [
            (&pool, Some("MOS object 7 is damaged: its bonus is short")),
            (&block, Some("MOS object 7 is damaged: its bonus is short")),
            (&table, Some("the name table in object 9 is damaged: no header")),
            (&decode, Some("an object set without a meta dnode")),
            (&DmuError::from(DnodeError::Levels(13)), Some("a dnode of 13 levels")),
            (&SyncError::Dmu(decode), Some("an object set without a meta dnode")),
            (&SyncError::Damaged(record), Some("MOS object 7 is damaged: its bonus is short")),
            (&SyncError::from(BlockError::Checksum), None),
            (&lost, Some("objset 0 object 9 level 0 block 0")),
            (&SyncError::Dmu(lost), Some("objset 0 object 9 level 0 block 0")),
        ];
        for (error, cause) in errors {
            let source = error.source().map(ToString::to_string);
            assert_eq!(source.as_deref(), cause, "{error}");
            assert!(source.is_none_or(|source| !error.to_string().contains(&source)), "{error}");
        }
        assert!(
            with_causes(&pool).ends_with("could not be written: MOS object 7 is damaged: its bonus is short"),
            "{}",
            with_causes(&pool)
        );
    }
}
