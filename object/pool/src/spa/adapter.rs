//! [`PoolIo`]: the store of blocks that object sets see, over the cache and the pipeline.
//!
//! It holds the only state that a block write depends on besides its request: the sync pass.

use super::ahead::Ahead;
use super::brt::Brt;
use super::dedup::Dedup;
use abd::{Abd, AbdPart};
use arc::Cache;
use dmu::{
    BlockError, BlockIo, BlockWrite, CloneIo, Keep, Landed, LandedDone, LogDone, LogIo, LogOwner, LogRoom, LookupIo, Poke, StoredDone,
    WriteDone,
};
use dsl::DslPool;
use exec::{Exec, Mutex, RwLock};
use kstat::IoStats;
use ondisk::names::spa_version;
use ondisk::zil::{ZIL_ZC_OBJSET, ZIL_ZC_SEQ};
use ondisk::{BlockId, BlockPtr, Bookmark, Level, ObjsetId, Txg};
use scan::{FreeLog, LostBlocks};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vdev::VdevTree;
use zio::{ErrorKind, LogBlocks, PoolView, Priority, ReadFlags, ReadRequest, ReadThen, WriteRequest, WriteThen, ZioError};

thread_local! {
    /// Extent to which this thread waits when it cannot read a block.
    static WAITS_FOR: Cell<WaitsFor> = const { Cell::new(WaitsFor::Nothing) };
}

/// Behaviour of a reader when devices fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Reader gets the error.
    Nothing,
    /// Reader waits for devices that the pool cannot do without; of a damaged place of devices that work it gets the error.
    Devices,
    /// Reader waits for the block: without it the txg, and all that was accepted in it, would be lost (OpenZFS: reads without
    /// `ZIO_FLAG_CANFAIL`, `zio_done`).
    Block,
}

/// Guard: while it lives the thread syncs a txg: what it cannot read because devices fail, it waits for.
pub(crate) struct Patience(WaitsFor);

impl Patience {
    pub fn begin(waits_for: WaitsFor) -> Patience {
        Patience(WAITS_FOR.replace(waits_for))
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        WAITS_FOR.set(self.0);
    }
}

/// Blocks of one pool.
pub(crate) struct PoolIo {
    cache: Cache,
    pass: AtomicU32,
    tree: RwLock<Arc<VdevTree>>,
    frees: Arc<FreeLog>,
    /// Frees that wait for the sync of their txg.
    ahead: Ahead,
    lost: Arc<LostBlocks>,
    brt: Arc<Brt>,
    dedup: Arc<Dedup>,
    /// Failures of the sync that runs.
    failed: Arc<Mutex<Failed>>,
    /// Datasets, which know what room logs have to leave.
    dsl: OnceLock<Weak<DslPool>>,
}

/// Errors of blocks of a sync. Of writes the first, which ends the sync; of reads the last: the sync did without those before.
#[derive(Default)]
struct Failed {
    write: Option<ZioError>,
    read: Option<ZioError>,
}

impl PoolIo {
    pub fn new(cache: Cache) -> PoolIo {
        let tree = cache.zio().view().tree;
        PoolIo {
            cache,
            pass: AtomicU32::new(1),
            tree: RwLock::new(tree),
            frees: Arc::default(),
            ahead: Ahead::default(),
            lost: Arc::default(),
            brt: Arc::default(),
            dedup: Dedup::new(),
            failed: Arc::default(),
            dsl: OnceLock::new(),
        }
    }
    /// Has logs leave the room that datasets need.
    pub fn set_datasets(&self, dsl: &Arc<DslPool>) {
        // A pool that is looked at more than once while it is opened has the same datasets.
        let _ = self.dsl.set(Arc::downgrade(dsl));
    }
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
    /// Log of frees, for a scan that runs.
    pub fn frees(&self) -> &Arc<FreeLog> {
        &self.frees
    }
    /// Blocks that could not be read, on their way to the error log.
    pub fn lost_blocks(&self) -> &Arc<LostBlocks> {
        &self.lost
    }
    /// References of shared blocks.
    pub fn brt(&self) -> &Arc<Brt> {
        &self.brt
    }
    /// Blocks that tables of deduplication have.
    pub fn dedup(&self) -> &Arc<Dedup> {
        &self.dedup
    }
    /// Frees a block that nobody shares (any more).
    pub fn free_unshared(&self, txg: Txg, bp: &BlockPtr) {
        self.frees.freed(txg, bp);
        if !self.ahead.takes(txg, bp) {
            self.cache.free(txg, bp);
        }
    }
    /// Begins the sync of a txg: frees what was freed in it before it is known which blocks a checkpoint has.
    pub fn free_ahead(&self, txg: Txg) {
        self.ahead.begin(txg).iter().for_each(|bp| self.cache.free(txg, bp));
    }
    /// Error of the block that a sync failed on; forgets it.
    pub fn take_failed(&self) -> Option<ZioError> {
        let failed = std::mem::take(&mut *self.failed.lock());
        failed.write.or(failed.read)
    }
    /// Replaces what the pipeline knows about the vdevs.
    pub fn set_view(&self, view: PoolView) {
        *self.tree.write() = view.tree.clone();
        self.dedup.set_resilvering(is_resilvering(&view.tree));
        self.cache.zio().set_view(view);
    }
    /// The sync pass that writes from now on belong to (OpenZFS: `spa_sync_pass`).
    pub fn set_pass(&self, pass: u32) {
        self.pass.store(pass, Ordering::Relaxed);
    }
}

/// True while leaves are being resilvered.
fn is_resilvering(tree: &VdevTree) -> bool {
    tree.leaves.iter().any(|leaf| leaf.resilver_txg != Txg::ZERO)
}

/// The pipeline's error in the object layer's terms.
pub(crate) fn block_error(error: ZioError) -> BlockError {
    match error.kind {
        ErrorKind::Checksum => BlockError::Checksum,
        ErrorKind::Io | ErrorKind::NoDevice | ErrorKind::ReadOnly => BlockError::Io,
        ErrorKind::NoSpace => BlockError::NoSpace,
        ErrorKind::Corrupt => BlockError::Corrupt,
        ErrorKind::Unsupported => BlockError::Unsupported,
        ErrorKind::Suspended => BlockError::Suspended,
    }
}

/// The cache's word for how long.
fn kept(keep: Keep) -> arc::Keep {
    match keep {
        Keep::Once => arc::Keep::Once,
        Keep::Lingers => arc::Keep::Lingers,
        Keep::Kept => arc::Keep::Kept,
    }
}

impl BlockIo for PoolIo {
    fn exec(&self) -> &Exec {
        self.cache.exec()
    }
    fn read(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
        self.patiently(|| self.cache.read(bp, bookmark))
    }
    fn read_log(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
        let flags = ReadFlags { raw: true, speculative: true, ..ReadFlags::default() };
        self.cache.zio().read_wait(ReadRequest { flags, ..ReadRequest::new(*bp, *bookmark) }).map_err(block_error)
    }
    fn read_stored(&self, bp: &BlockPtr, bookmark: &Bookmark, done: StoredDone) {
        self.start_stored(bp, bookmark, Box::new(move |result| done(result.map_err(block_error))));
    }
    fn read_stored_now(&self, bp: &BlockPtr, bookmark: &Bookmark) -> Result<Abd, BlockError> {
        self.patiently(|| {
            let (done, wait) = exec::completion();
            self.start_stored(bp, bookmark, Box::new(move |result| done.complete(result)));
            wait.wait(self.exec())
        })
    }
    fn heal(&self, bp: &BlockPtr, bookmark: &Bookmark, stored: &Abd) -> Result<(), BlockError> {
        let (done, wait) = exec::completion();
        self.cache.zio().heal(bp, *bookmark, stored, Box::new(move |result| done.complete(result)));
        wait.wait(self.exec()).map_err(block_error)
    }
    fn lost(&self, bp: &BlockPtr, bookmark: &Bookmark, error: BlockError) {
        // Not a failure of the block: what is held back or not known here.
        if !matches!(error, BlockError::Suspended | BlockError::Unsupported | BlockError::NoSpace) {
            self.lost.note(bookmark, bp.birth());
        }
    }
    fn not_authentic(&self, bookmark: &Bookmark) {
        self.cache.zio().not_authentic(bookmark);
    }
    fn fails_to_decrypt(&self, bp: &BlockPtr, bookmark: &Bookmark) -> bool {
        self.cache.zio().fails_to_decrypt(bp, bookmark)
    }
    fn read_kept(&self, bp: &BlockPtr, bookmark: &Bookmark, keep: Keep) -> Result<Abd, BlockError> {
        self.patiently(|| self.cache.read_kept(bp, bookmark, kept(keep)))
    }
    fn cached(&self, bp: &BlockPtr) -> Option<Abd> {
        self.cache.cached(bp)
    }
    fn at_hand(&self, bp: &BlockPtr) -> Option<Abd> {
        self.cache.at_hand(bp)
    }
    fn forget(&self, bp: &BlockPtr) {
        self.cache.forget(bp);
    }
    fn prefetch(&self, bp: &BlockPtr, bookmark: &Bookmark) {
        self.cache.prefetch(bp, bookmark, arc::Keep::Kept);
    }
    fn prefetch_kept(&self, bp: &BlockPtr, bookmark: &Bookmark, keep: Keep) {
        self.cache.prefetch(bp, bookmark, kept(keep));
    }
    fn prefetch_destroyed(&self, bp: &BlockPtr, bookmark: &Bookmark) {
        self.cache.prefetch_as(bp, bookmark, arc::Keep::Kept, Priority::AsyncDestroy);
    }
    fn write(&self, write: BlockWrite, done: WriteDone) {
        let (request, keep, then) = self.asked(write, done);
        self.cache.write(request, keep, then);
    }
    fn write_together(&self, writes: Vec<(BlockWrite, WriteDone)>) {
        self.cache.write_together(writes.into_iter().map(|(write, done)| self.asked(write, done)).collect());
    }
    fn write_direct(&self, write: BlockWrite, done: WriteDone) {
        let request = WriteRequest { pass: 1, priority: Priority::SyncWrite, can_fail: true, ..self.request(write) };
        self.cache.zio().write_here(request, Box::new(move |result| done(result.map_err(block_error))));
    }
    fn read_direct(&self, bp: &BlockPtr, bookmark: &Bookmark, target: Vec<AbdPart>, done: LandedDone) {
        let done = move |result: Result<zio::Landed, ZioError>| {
            done(result.map_err(block_error).map(|landed| match landed {
                zio::Landed::InPlace(data) => Landed::InPlace(data),
                zio::Landed::Elsewhere(data) => Landed::Elsewhere(data),
            }));
        };
        self.cache.read_direct(bp, bookmark, target, Box::new(done));
    }
    fn plugged(&self, work: &mut dyn FnMut()) {
        self.cache.zio().plugged(work);
    }
    fn iostats(&self) -> Option<&IoStats> {
        Some(self.cache.zio().iostats())
    }
    fn free(&self, txg: Txg, bp: &BlockPtr) {
        // A look at the tables may wait, which whoever is here may not.
        if bp.is_dedup() && !bp.is_hole() && !bp.is_embedded() {
            return self.dedup.give_up(txg, bp);
        }
        if self.brt.may_be_shared(bp) { self.brt.give_up(txg, bp) } else { self.free_unshared(txg, bp) }
    }
    fn clones(&self) -> Option<&dyn CloneIo> {
        Some(self)
    }
    fn log(&self) -> Option<&dyn LogIo> {
        Some(self)
    }
    fn lookups(&self) -> Option<&dyn LookupIo> {
        Some(self)
    }
    fn claim(&self, txg: Txg, bp: &BlockPtr) -> Result<(), BlockError> {
        let (done, wait) = exec::completion();
        self.cache.zio().claim(txg, bp, Box::new(move |result| done.complete(result)));
        wait.wait(self.exec()).map_err(block_error)
    }
    fn dsize(&self, bp: &BlockPtr) -> u64 {
        self.tree.read().dsize(bp)
    }
}

impl CloneIo for PoolIo {
    /// False also while leaves are resilvered: the walk may have passed the place where a block that a leaf lacks would be, and would not find it where it
    /// was, if that goes meanwhile.
    fn is_enabled(&self) -> bool {
        self.brt.is_enabled() && !is_resilvering(&self.tree.read())
    }
    fn add(&self, txg: Txg, bp: &BlockPtr) {
        self.brt.add(txg, bp);
    }
    fn take_back(&self, txg: Txg, bp: &BlockPtr) {
        self.brt.take_back(txg, bp);
    }
}

impl LookupIo for PoolIo {
    fn attend(&self, poke: Option<Poke>) {
        self.dedup.attend(poke);
    }
    fn is_asked(&self) -> bool {
        self.dedup.is_asked()
    }
    fn answer(&self) {
        self.dedup.answer();
    }
}

/// Level of log blocks in bookmarks (OpenZFS: `ZB_ZIL_LEVEL`, -2).
const LOG_LEVEL: Level = Level(u8::MAX - 1);

/// Name of a log block.
fn log_bookmark(bp: &BlockPtr) -> Bookmark {
    let words = bp.checksum();
    let (objset, block) = (ObjsetId(words[ZIL_ZC_OBJSET]), BlockId(words[ZIL_ZC_SEQ]));
    Bookmark { objset, level: LOG_LEVEL, block, ..Bookmark::default() }
}

impl LogIo for PoolIo {
    fn allocate(&self, txg: Txg, bytes: usize, log: LogOwner) -> Result<LogRoom, BlockError> {
        let most = self.dsl.get().and_then(Weak::upgrade).map_or(0, |dsl| dsl.bytes_with_logs());
        let room = LogBlocks(self.cache.zio()).allocate((txg, log.objset.0), bytes, log.spares_log_devices, most);
        let room = room.map_err(|kind| block_error(ZioError::new(kind, Bookmark::default())))?;
        Ok(LogRoom { dva: room.dva, is_separate: room.is_separate, salt_and_iv: None })
    }
    fn is_slim(&self) -> bool {
        let version = self.cache.zio().version();
        version == 0 || version >= spa_version::SLIM_ZIL
    }
    fn write(&self, bp: &BlockPtr, block: Vec<u8>, used: usize, done: LogDone) -> usize {
        LogBlocks(self.cache.zio()).write(bp, log_bookmark(bp), block, used, Box::new(move |result| done(result.map_err(block_error))))
    }
    fn write_durably(&self, bp: &BlockPtr, block: &mut [u8], used: usize) -> Option<(usize, Result<(), BlockError>)> {
        let (bytes, outcome) = LogBlocks(self.cache.zio()).write_durably(bp, log_bookmark(bp), block, used)?;
        Some((bytes, outcome.map_err(block_error)))
    }
    fn flush(&self, blocks: &[BlockPtr], done: LogDone) {
        LogBlocks(self.cache.zio()).flush(blocks, Box::new(move |result| done(result.map_err(block_error))));
    }
}

impl PoolIo {
    /// Starts the read of a block's bytes as they are stored.
    fn start_stored(&self, bp: &BlockPtr, bookmark: &Bookmark, then: ReadThen) {
        if zio::is_sealed(bp) {
            return self.cache.read_sealed(bp, bookmark, then);
        }
        let flags = ReadFlags { raw: true, ..ReadFlags::default() };
        self.cache.zio().read(ReadRequest { flags, ..ReadRequest::new(*bp, *bookmark) }, then);
    }

    /// A read of the sync that fails because devices do is tried again when somebody says that they work again; until then the pool is
    /// suspended. A block that is wrong in every copy does not get better by waiting: that is an error at once.
    fn patiently(&self, read: impl Fn() -> Result<Abd, ZioError>) -> Result<Abd, BlockError> {
        let zio = self.cache.zio();
        loop {
            let since = zio.resumes();
            let result = read();
            let again = match (&result, WAITS_FOR.get()) {
                (Err(error), WaitsFor::Block) if matches!(error.kind, ErrorKind::Io | ErrorKind::NoDevice) => {
                    zio.suspend_and_wait(since, Some(*error))
                }
                (Err(error), WaitsFor::Devices) if error.kind == ErrorKind::Io => zio.wait_if_down(since, *error),
                _ => false,
            };
            if !again {
                if let (Err(error), true) = (&result, WAITS_FOR.get() != WaitsFor::Nothing) {
                    self.failed.lock().read = Some(*error);
                }
                return result.map_err(block_error);
            }
        }
    }

    /// Write of a sync as the cache wants it: the request, true where the bytes stay in memory, and what follows; a failure is noted.
    fn asked(&self, write: BlockWrite, done: WriteDone) -> (WriteRequest, bool, WriteThen) {
        let failed = self.failed.clone();
        let noted = move |error: ZioError| {
            failed.lock().write.get_or_insert(error);
            block_error(error)
        };
        let keep = write.keep == Keep::Kept;
        (self.request(write), keep, Box::new(move |result: Result<BlockPtr, ZioError>| done(result.map_err(noted))))
    }

    fn request(&self, write: BlockWrite) -> WriteRequest {
        WriteRequest {
            txg: write.txg,
            data: write.data,
            bookmark: write.bookmark,
            object_type: write.object_type,
            level: write.level,
            fill: write.fill,
            checksum: write.checksum,
            compression: write.compression,
            zstd_level: write.zstd_level,
            copies: write.copies,
            small_bytes: write.small_bytes,
            previous: write.previous,
            pass: self.pass.load(Ordering::Relaxed),
            seal: write.seal,
            dedup: match write.dedup {
                dmu::Dedup::Off => zio::Dedup::Off,
                dmu::Dedup::On => zio::Dedup::On,
                dmu::Dedup::Verify => zio::Dedup::Verify,
            },
            priority: Priority::AsyncWrite,
            can_fail: false,
        }
    }
}
