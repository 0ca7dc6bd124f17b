//! What the crate consumes, as traits: blocks below, accounting of blocks above, and the pool's sync.
//!
//! Their implementations live in higher crates; nothing here names one.

use crate::{BlockError, IoTotals, SyncError};
use abd::{Abd, AbdPart};
use crypt::{Iv, Salt, Seal};
use exec::{Exec, completion};
use kstat::IoStats;
use ondisk::{BlockPtr, Bookmark, Checksum, Compression, Dva, ObjectType, ObjsetId, Txg};
use std::sync::Arc;

/// The callback of [`BlockIo::write`]: the new pointer, or why there is none. Runs exactly once and never waits.
pub type WriteDone = Box<dyn FnOnce(Result<BlockPtr, BlockError>) + Send>;

/// Place where the bytes of [`BlockIo::read_direct`] ended up.
#[derive(Clone, Debug)]
pub enum Landed {
    /// In the caller's memory, as a buffer over it.
    InPlace(Abd),
    /// In a buffer of their own; the caller's memory holds anything.
    Elsewhere(Abd),
}

impl Landed {
    /// The block's bytes.
    pub fn abd(&self) -> &Abd {
        match self {
            Landed::InPlace(data) | Landed::Elsewhere(data) => data,
        }
    }
}

/// The callback of [`BlockIo::read_direct`]. Runs exactly once and never waits.
pub type LandedDone = Box<dyn FnOnce(Result<Landed, BlockError>) + Send>;

/// The callback of [`BlockIo::read_stored`]. Runs exactly once and never waits.
pub type StoredDone = Box<dyn FnOnce(Result<Abd, BlockError>) + Send>;

/// Time for which the store may hold a block's bytes in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// No longer than it takes to hand the bytes out; bytes read ahead stay until they are used.
    Once,
    /// A moment, for who takes the block in parts and then calls [`BlockIo::forget`].
    Lingers,
    /// As their use deserves.
    #[default]
    Kept,
}

/// Extent to which an equal block that is stored may take the place of one that is written: the property `dedup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dedup {
    /// Not at all.
    #[default]
    Off,
    /// A block with the same checksum, sizes and compression is the same.
    On,
    /// Likewise, once the bytes were compared.
    Verify,
}

/// One block to write.
#[derive(Clone, Debug)]
pub struct BlockWrite {
    /// The txg being synced: the birth of the block.
    pub txg: Txg,
    /// Address of the block: object set, object, level, block.
    pub bookmark: Bookmark,
    /// Logical bytes, little-endian.
    pub data: Abd,
    /// Type of the object (of the bonus for a spill block).
    pub object_type: ObjectType,
    /// Level in the object's tree: 0 is data.
    pub level: u8,
    /// Blocks (or dnodes) below; goes into the pointer.
    pub fill: u64,
    /// Checksum algorithm, already resolved.
    pub checksum: Checksum,
    /// Compression algorithm, already resolved.
    pub compression: Compression,
    /// Level of zstd as on disk (OpenZFS: `enum zio_zstd_levels`); 0 takes the default.
    pub zstd_level: u8,
    /// Copies (DVAs) wanted: 1–3.
    pub copies: u8,
    /// Stored bytes up to which a block of a file lies where metadata does, 0 for none.
    pub small_bytes: usize,
    /// Extent to which an equal block may take its place; the store then returns that one's address and physical birth. Such a write ends once
    /// [`LookupIo::answer`] was called, by whoever syncs the txg.
    pub dedup: Dedup,
    /// The pointer that the new one replaces (may be a hole). When it was born in this very txg the store may rewrite
    /// the block in place and return a pointer with the same first DVA; of a block that is the same as before it may return this pointer: the caller
    /// then frees and accounts nothing.
    /// In every other case the caller frees it.
    pub previous: BlockPtr,
    /// Time for which the bytes stay in memory afterwards.
    pub keep: Keep,
    /// Protection of a block of an encrypted dataset. Whoever knows the dataset's key sets it; with [`Seal::Stored`] `data` is what is stored already,
    /// compressed with `compression`.
    pub seal: Option<Seal>,
}

/// The callback of [`LogIo`]: done, or why not. Runs exactly once and never waits.
pub type LogDone = Box<dyn FnOnce(Result<(), BlockError>) + Send>;

/// Log that a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOwner {
    /// Object set whose log it is.
    pub objset: ObjsetId,
    /// True when it is to lie where data does.
    pub spares_log_devices: bool,
}

/// Room for a block of an intent log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRoom {
    /// Address of the block.
    pub dva: Dva,
    /// True on a device that is for logs alone.
    pub is_separate: bool,
    /// Marks that the pointer of an encrypted dataset's block has from the beginning.
    pub salt_and_iv: Option<(Salt, Iv)>,
}

/// The store of blocks of intent logs. They are never gangs, and nobody is charged for them; they are given up by [`BlockIo::free`].
pub trait LogIo: Send + Sync {
    /// Room for a block of so many bytes of the log of an object set; the caller holds `txg`.
    fn allocate(&self, txg: Txg, bytes: usize, log: LogOwner) -> Result<LogRoom, BlockError>;
    /// True when blocks of logs begin with the link to the next one, of which only what counts is written; in pools from before version 23 they end with
    /// it.
    fn is_slim(&self) -> bool {
        true
    }
    /// Makes of a block what the devices get, but for its checksum, where it is: encrypts it where its pointer has the marks for that. Once for each
    /// block, before it is written. Unless implemented, it stays as it is.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] for what is no log block.
    fn seal(&self, bp: &BlockPtr, block: &mut [u8]) -> Result<(), BlockError> {
        let _ = (bp, block);
        Ok(())
    }
    /// Writes a block, of which `used` bytes count, with its checksum put in; returns at once, with the number of bytes that the devices get.
    fn write(&self, bp: &BlockPtr, block: Vec<u8>, used: usize, done: LogDone) -> usize;
    /// Does [`LogIo::write`] and makes the block durable, on this thread, which waits for the device: the number of bytes that it gets, and the outcome.
    /// None where that cannot be had in one step; `block` then has nothing that matters put into it.
    fn write_durably(&self, bp: &BlockPtr, block: &mut [u8], used: usize) -> Option<(usize, Result<(), BlockError>)> {
        let _ = (bp, block, used);
        None
    }
    /// Makes durable what was written where these blocks lie.
    fn flush(&self, blocks: &[BlockPtr], done: LogDone);
}

/// References of blocks of data that several pointers share (OpenZFS: `brt.c`). A block is given up by [`BlockIo::free`] as often as it is
/// referenced, and its space by the last time.
pub trait CloneIo: Send + Sync {
    /// True when pointers may share blocks.
    fn is_enabled(&self) -> bool;
    /// One more pointer refers to a block from `txg` on, which the caller holds. Nothing that comes before that txg gives the block up.
    fn add(&self, txg: Txg, bp: &BlockPtr);
    /// Takes one [`CloneIo::add`] of the same txg back, which the caller holds still.
    fn take_back(&self, txg: Txg, bp: &BlockPtr);
}

/// Told that a question came.
pub type Poke = Arc<dyn Fn() + Send + Sync>;

/// Questions of writes that take a look at tables, for which somebody may have to wait: whoever waits for the writes of a sync answers them.
pub trait LookupIo: Send + Sync {
    /// Calls `poke` with every question from now on, on any thread; with None nobody is told.
    fn attend(&self, poke: Option<Poke>);
    /// True when a question waits.
    fn is_asked(&self) -> bool;
    /// Answers the questions that came. Waits; what cannot be read is answered, too.
    fn answer(&self);
}

/// The store of blocks: cache, pipeline and allocator behind one door.
pub trait BlockIo: Send + Sync {
    /// The executor that runs everything.
    fn exec(&self) -> &Exec;
    /// Reads a block's logical bytes in native byte order; waits.
    fn read(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError>;
    /// Reads a block of an intent log as it was written, in its writer's byte order. It may well not verify: a log's last block was
    /// never written, which is nobody's error. Unless implemented, it is read as any other.
    fn read_log(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
        self.read(bp, bookmark)
    }
    /// As [`BlockIo::read`], but the bytes stay in memory only as long as `keep` says.
    fn read_kept(&self, bp: &BlockPtr, bookmark: &Bookmark, keep: Keep) -> Result<Abd, BlockError> {
        let _ = keep;
        self.read(bp, bookmark)
    }
    /// Reads a block as it is stored, after its checksum was verified: still compressed, still encrypted. Never waits. Unless implemented, there is no
    /// such thing.
    fn read_stored(&self, bp: &BlockPtr, bookmark: &Bookmark, done: StoredDone) {
        let _ = (bp, bookmark);
        done(Err(BlockError::Unsupported));
    }
    /// As [`BlockIo::read_stored`]; waits, in a sync as patiently as other reads do.
    fn read_stored_now(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
        let (done, wait) = completion();
        self.read_stored(bp, bookmark, Box::new(move |result| done.complete(result)));
        wait.wait(self.exec())
    }
    /// Writes the stored bytes of a damaged block, which came from elsewhere, where it lies. Waits. Unless implemented, that cannot be done.
    ///
    /// # Errors
    /// [`BlockError::Checksum`] for bytes that are not the block's: nothing is written then.
    fn heal(&self, _bp: &BlockPtr, _bookmark: &Bookmark, _stored: &Abd) -> Result<(), BlockError> {
        Err(BlockError::Unsupported)
    }
    /// The block's logical bytes when they are in memory.
    fn cached(&self, _bp: &BlockPtr) -> Option<Abd> {
        None
    }
    /// As [`BlockIo::cached`], when the bytes are in memory as they are: nothing is computed for them.
    fn at_hand(&self, bp: &BlockPtr) -> Option<Abd> {
        self.cached(bp)
    }
    /// A read of a block that is still referenced failed: its contents are lost to whoever asked (OpenZFS: `spa_log_error`).
    fn lost(&self, _bp: &BlockPtr, _bookmark: &Bookmark, _error: BlockError) {}
    /// The dataset's key does not authenticate the bytes of a block, whose checksum is right.
    fn not_authentic(&self, _bookmark: &Bookmark) {}
    /// True when the decryption of a block is to fail, to see what becomes of it.
    fn fails_to_decrypt(&self, _bp: &BlockPtr, _bookmark: &Bookmark) -> bool {
        false
    }
    /// Lets go of a block's bytes in memory: nobody is expected to want them again.
    fn forget(&self, _bp: &BlockPtr) {}
    /// Starts to read a block that will be wanted soon.
    fn prefetch(&self, bp: &BlockPtr, bookmark: &Bookmark);
    /// As [`BlockIo::prefetch`], but the bytes stay in memory only as long as `keep` says.
    fn prefetch_kept(&self, bp: &BlockPtr, bookmark: &Bookmark, keep: Keep) {
        let _ = keep;
        self.prefetch(bp, bookmark);
    }
    /// As [`BlockIo::prefetch`], for a walk over what was destroyed: nobody waits for it but the freeing of space.
    fn prefetch_destroyed(&self, bp: &BlockPtr, bookmark: &Bookmark) {
        self.prefetch(bp, bookmark);
    }
    /// Writes a block to a new place (or in place, see [`BlockWrite::previous`]); returns at once.
    /// All-zero data with compression on gives [`BlockPtr::HOLE`].
    fn write(&self, write: BlockWrite, done: WriteDone);
    /// Writes blocks as [`BlockIo::write`] does, small ones for which a job each would be much; returns at once. Unless implemented, one after the other.
    fn write_together(&self, writes: Vec<(BlockWrite, WriteDone)>) {
        writes.into_iter().for_each(|(write, done)| self.write(write, done));
    }
    /// As [`BlockIo::write`], in open context and past the cache: somebody waits, and gets the error when the pool cannot
    /// take the block. The first steps happen on this thread. The bytes are the caller's own: nothing of them may be kept
    /// once `done` was called.
    /// Unless implemented, a copy is written.
    fn write_direct(&self, write: BlockWrite, done: WriteDone) {
        let mut copy = AbdPart::scratch(write.data.len());
        copy.copy_from_abd(&write.data);
        self.write(BlockWrite { data: copy.freeze(), ..write }, done);
    }
    /// Reads a block past the cache, into `target` (consecutive parts as long as the block in sum; may be none) where that is
    /// possible. Starts on this thread. Unless implemented, it waits.
    fn read_direct(&self, bp: &BlockPtr, bookmark: &Bookmark, target: Vec<AbdPart>, done: LandedDone) {
        drop(target);
        done(self.read(bp, bookmark).map(Landed::Elsewhere));
    }
    /// Runs `work`, which must not wait: the I/Os that it starts on this thread may be held back until it is done, so that
    /// neighbours on a device go as one.
    fn plugged(&self, work: &mut dyn FnMut()) {
        work();
    }
    /// Counters of the pool's reads and writes by way of access; `None` when nobody counts.
    fn iostats(&self) -> Option<&IoStats> {
        None
    }
    /// Gives up a block that no tree references any more: of a failed sync, or of a direct write that was overwritten,
    /// freed or failed before its txg was synced. Everything else goes through [`BlockLedger::kill`]. A reader that found the
    /// pointer before may still read it: the space must not be used again before two more txgs are on disk.
    fn free(&self, txg: Txg, bp: &BlockPtr);
    /// Store for the blocks of intent logs; None where no logs are written.
    fn log(&self) -> Option<&dyn LogIo> {
        None
    }
    /// References of shared blocks; None where each block has one pointer.
    fn clones(&self) -> Option<&dyn CloneIo> {
        None
    }
    /// Questions of writes with [`BlockWrite::dedup`]; None where nobody asks any.
    fn lookups(&self) -> Option<&dyn LookupIo> {
        None
    }
    /// Takes the space of a block in `txg` that was written before a crash and that no space map knows. Waits. Whoever has no space maps
    /// has nothing to claim in.
    fn claim(&self, _txg: Txg, _bp: &BlockPtr) -> Result<(), BlockError> {
        Err(BlockError::Unsupported)
    }
    /// Deflated allocated bytes (OpenZFS: `bp_get_dsize`); 0 for holes and embedded pointers.
    fn dsize(&self, bp: &BlockPtr) -> u64;
}

/// The owner of an object set's blocks: accounts births and deaths, and frees now or remembers for a snapshot.
/// Called in syncing context only, from any thread of the sync.
pub trait BlockLedger: Send + Sync {
    /// A block (never a hole) was written and is referenced now (OpenZFS: `dsl_dataset_block_born`).
    fn born(&self, txg: Txg, bp: &BlockPtr);
    /// A block (never a hole) is no longer referenced by the live object set (OpenZFS: `dsl_dataset_block_kill`).
    fn kill(&self, txg: Txg, bp: &BlockPtr);
    /// The object set was modified in `txg` for the first time: it wants to be synced.
    fn dirtied(&self, _txg: Txg) {}
}

/// The pool's side of a txg: writes everything dirty and moves the uberblock.
pub trait TxgSync: Send + Sync {
    /// Syncs `txg`; called by one thread at a time, in txg order.
    fn sync_txg(&self, txg: Txg) -> Result<(), SyncError>;

    /// Totals of the pool's device I/O until now, for the history of txgs.
    fn io_totals(&self) -> IoTotals {
        IoTotals::default()
    }
}
