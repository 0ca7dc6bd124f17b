//! An in-memory block store that checks its user: every block born once, freed at most once, none leaked, nothing
//! referenced before it was written. For the tests of this crate and of those above it.

use crate::{
    BlockError, BlockIo, BlockLedger, BlockWrite, DmuError, Landed, LandedDone, Objset, ObjsetEnv, ObjsetProps, SyncError, TxgConfig,
};
use crate::{StoredDone, TxgManager, TxgSync, WriteDone};
use abd::{Abd, AbdPart};
use crypt::Guard;
use exec::{Exec, Inline, Mutex, Pool, TaskClass};
use kstat::IoStats;
use ondisk::{
    BlockPtr, Bookmark, Checksum, Compression, DNODE_SLOT_BYTES, DnodePhys, Dva, ObjectType, ObjsetId, ObjsetPhys, ObjsetType, Txg, VdevId,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

pub(crate) mod faults;
mod verify;

pub use faults::ChangeFaults;
pub use verify::{TreeFault, TreeFaultKind, verify_tree};

/// A stored block.
#[derive(Clone, Debug)]
pub struct StoredBlock {
    /// Bytes of the block as they are stored.
    pub data: Abd,
    /// Block pointer that was returned for the block.
    pub bp: BlockPtr,
    /// The ledger says it is referenced.
    pub born: bool,
    /// The txg in which the ledger said that it no longer is. Its bytes stay for two more txgs, as on a real pool.
    pub killed: Option<Txg>,
}

#[derive(Default)]
struct Store {
    blocks: BTreeMap<u64, StoredBlock>,
    next_offset: u64,
    violations: Vec<&'static str>,
    dirtied: BTreeSet<u64>,
}

/// A block store in memory; also the [`BlockLedger`] of whoever uses it.
pub struct MemBlockIo {
    exec: Exec,
    store: Mutex<Store>,
    /// Bytes of a sector: every block occupies whole ones.
    operations: AtomicU64,
    fail_at: AtomicU64,
    fail_for_good: AtomicBool,
    fail_with: Mutex<BlockError>,
    caching: AtomicBool,
    /// True when a reader may be held up, by the machine, for longer than the space of what it reads stays untouched.
    late_readers: AtomicBool,
    /// Number of blocks written directly that find no room.
    full_for: AtomicU64,
    /// Threads that transformed direct writes.
    direct_from: Mutex<HashSet<ThreadId>>,
    /// Hook that runs before the next read.
    before_read: Mutex<Option<Hook>>,
    /// Counters of the store's users.
    pub iostats: IoStats,
}

type Hook = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for MemBlockIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemBlockIo {{ blocks: {} }}", self.store.lock().blocks.len())
    }
}

fn sum(data: &Abd) -> [u64; 4] {
    let length = data.len() as u64;
    [data.chunks().fold(length, abd::fingerprint), length, 3, 4]
}

/// True for a block of which half of the checksum is a MAC.
fn has_mac(bp: &BlockPtr) -> bool {
    bp.uses_crypt() && bp.object_type() != ObjectType::OBJSET
}

/// The half of a checksum that is kept beside a MAC.
fn half([a, b, c, d]: [u64; 4]) -> [u64; 2] {
    [a ^ c, b ^ d]
}

/// Bytes that are stored of a block, with the marks for its pointer.
fn protected(write: &BlockWrite) -> Result<(Abd, Option<Guard>), BlockError> {
    let Some(seal) = &write.seal else { return Ok((write.data.clone(), None)) };
    let mut bytes = write.data.to_vec();
    let Some(key) = seal.key_for(write.level) else { return Ok((write.data.clone(), seal.marks(&bytes))) };
    let guard = key.guard(write.object_type, &mut bytes).map_err(|_| BlockError::Unsupported)?;
    Ok((Abd::from_slice(&bytes), Some(guard)))
}

/// The blocks that a block of metadata refers to.
fn references(write: &BlockWrite) -> Vec<BlockPtr> {
    let bytes = write.data.to_vec();
    let mut found = Vec::new();
    if write.level > 0 {
        found.extend(bytes.chunks_exact(BlockPtr::BYTES).filter_map(<[u8]>::first_chunk).map(|raw| BlockPtr::decode(raw, true)));
    } else if write.object_type == ObjectType::DNODE {
        let mut index = 0;
        while let Some(slots) = bytes.get(index * DNODE_SLOT_BYTES..).filter(|slots| !slots.is_empty()) {
            let dnode = DnodePhys::decode(slots).ok().flatten();
            index += dnode.as_ref().map_or(1, DnodePhys::slots);
            found.extend(dnode.iter().flat_map(|dnode| dnode.ptrs().iter().chain(&dnode.spill)));
        }
    } else if write.object_type == ObjectType::OBJSET
        && let Ok(phys) = ObjsetPhys::decode(&bytes)
    {
        found.extend(phys.meta_dnode.ptrs());
    }
    found.retain(|bp| !bp.is_hole() && !bp.is_embedded());
    found
}

impl MemBlockIo {
    /// An empty store whose jobs run on `exec`.
    pub fn new(exec: Exec) -> Arc<MemBlockIo> {
        Arc::new(MemBlockIo {
            exec,
            store: Mutex::new(Store { next_offset: 1 << 20, ..Store::default() }),
            operations: AtomicU64::new(0),
            fail_at: AtomicU64::new(u64::MAX),
            fail_for_good: AtomicBool::new(false),
            fail_with: Mutex::new(BlockError::Io),
            caching: AtomicBool::new(true),
            late_readers: AtomicBool::new(false),
            full_for: AtomicU64::new(0),
            direct_from: Mutex::default(),
            before_read: Mutex::new(None),
            iostats: IoStats::default(),
        })
    }

    /// A store under a deterministic executor.
    pub fn inline(seed: u64) -> Arc<MemBlockIo> {
        Self::new(Arc::new(Inline::new(seed)))
    }

    /// A store under a pool of threads.
    pub fn threaded(threads: usize) -> Arc<MemBlockIo> {
        Self::new(Arc::new(Pool::new(threads)))
    }

    /// Takes readers that come two txgs too late for nobody's mistake: they get wrong bytes, as from a device, and look again.
    pub fn allow_late_readers(&self) {
        self.late_readers.store(true, Ordering::Relaxed);
    }

    /// True when a direct write was transformed on the calling thread.
    pub fn has_transformed_here(&self) -> bool {
        self.direct_from.lock().contains(&std::thread::current().id())
    }

    /// Reads and writes so far.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Lets the `count`-th operation from now fail (1 is the next one); with `for_good` all after it, too.
    pub fn fail_after(&self, count: u64, for_good: bool) {
        self.fail_for_good.store(for_good, Ordering::Relaxed);
        self.fail_at.store(self.operations() + count, Ordering::Relaxed);
    }

    /// Sets the error of operations that fail; [`BlockError::Io`] without.
    pub fn fail_with(&self, error: BlockError) {
        *self.fail_with.lock() = error;
    }

    /// The next `count` blocks that are written directly find no room.
    pub fn full_for(&self, count: u64) {
        self.full_for.store(count, Ordering::Relaxed);
    }

    /// Sets whether blocks are at hand; else every direct read is an operation.
    pub fn set_caching(&self, on: bool) {
        self.caching.store(on, Ordering::Relaxed);
    }

    /// The executor of its jobs.
    pub fn exec_of(&self) -> &Exec {
        &self.exec
    }

    /// Does something in the middle of whoever reads next.
    pub fn before_next_read(&self, hook: impl FnOnce() + Send + 'static) {
        *self.before_read.lock() = Some(Box::new(hook));
    }

    /// No more failures.
    pub fn heal(&self) {
        self.fail_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// Counts an operation, and fails when its turn has come.
    fn count(&self) -> Result<(), BlockError> {
        let now = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        let at = self.fail_at.load(Ordering::Relaxed);
        let fails = now == at || (now > at && self.fail_for_good.load(Ordering::Relaxed));
        if fails { Err(*self.fail_with.lock()) } else { Ok(()) }
    }

    /// Faults of the store's users so far: double births, double frees, reads of unwritten blocks.
    pub fn violations(&self) -> Vec<&'static str> {
        self.store.lock().violations.clone()
    }

    /// Offsets of all blocks that were written and neither freed nor killed.
    pub fn live_blocks(&self) -> BTreeSet<u64> {
        self.store.lock().blocks.iter().filter(|(_, block)| block.killed.is_none()).map(|(&offset, _)| offset).collect()
    }

    /// `txg` is on disk: what was killed two txgs earlier is gone now.
    pub fn commit(&self, txg: Txg) {
        self.store.lock().blocks.retain(|_, block| block.killed.is_none_or(|killed| killed.0 + 2 > txg.0));
    }

    /// Power was cut before `txg` was on disk: its writes are gone and its kills never happened.
    pub fn crash(&self, txg: Txg) {
        let mut store = self.store.lock();
        store.blocks.retain(|_, block| block.bp.birth() < txg);
        for block in store.blocks.values_mut().filter(|block| block.killed.is_some_and(|killed| killed >= txg)) {
            block.killed = None;
        }
    }

    /// The block at an offset, when it is live.
    pub fn block(&self, offset: u64) -> Option<StoredBlock> {
        self.store.lock().blocks.get(&offset).cloned()
    }

    /// Changes a stored block behind its user's back: the next read fails its checksum.
    pub fn corrupt(&self, bp: &BlockPtr) {
        if let Some(block) = self.store.lock().blocks.get_mut(&bp.dva(0).offset) {
            block.data.make_mut()[0] ^= 1;
        }
    }

    fn fetch(&self, bp: &BlockPtr) -> Result<Abd, BlockError> {
        let mut store = self.store.lock();
        let Some(block) = store.blocks.get(&bp.dva(0).offset) else {
            if !self.late_readers.load(Ordering::Relaxed) {
                store.violations.push("read of a block that is not live");
            }
            return Err(BlockError::Checksum);
        };
        let data = block.data.clone();
        drop(store);
        let (sum, stored) = (sum(&data), bp.checksum());
        let is_right = if has_mac(bp) { half(sum) == stored[..2] } else { sum == stored };
        if is_right { Ok(data) } else { Err(BlockError::Checksum) }
    }

    /// As a device would: in place when the target is as long as the block.
    fn fetch_into(&self, bp: &BlockPtr, mut target: Vec<AbdPart>) -> Result<Landed, BlockError> {
        self.count()?;
        let data = self.fetch(bp)?;
        if target.is_empty() || target.iter().map(AbdPart::len).sum::<usize>() != data.len() {
            return Ok(Landed::Elsewhere(data));
        }
        let mut at = 0;
        for part in &mut target {
            part.copy_from_abd(&data.slice(at..at + part.len()));
            at += part.len();
        }
        Ok(Landed::InPlace(Abd::join(target)))
    }

    fn place(&self, write: &BlockWrite) -> Result<BlockPtr, BlockError> {
        let is_zero = write.data.is_zero();
        if is_zero && write.compression != Compression::OFF && !write.seal.as_ref().is_some_and(crypt::Seal::is_stored) {
            return Ok(BlockPtr::HOLE);
        }
        let (data, guard) = protected(write)?;
        let size = write.data.len();
        let mut bp = BlockPtr::HOLE;
        let asize = size.next_multiple_of(4096) as u64;
        let references = references(write);
        let mut store = self.store.lock();
        if references.iter().any(|bp| store.blocks.get(&bp.dva(0).offset).is_none_or(|block| block.bp.0[..6] != bp.0[..6])) {
            store.violations.push("a block refers to one that was not written yet");
        }
        let rewrites = write.previous.birth() == write.txg && !write.previous.is_hole() && write.previous.psize() == size;
        for copy in 0..write.copies.max(1) as usize {
            let offset = if rewrites { write.previous.dva(copy).offset } else { store.next_offset };
            if !rewrites {
                store.next_offset += asize;
            }
            bp.set_dva(copy, Dva { vdev: VdevId(0), offset, asize, gang: false });
        }
        let stored = write.seal.as_ref().filter(|seal| seal.is_stored());
        bp.set_lsize(stored.map_or(size, |seal| seal.logical_bytes(size)));
        bp.set_psize(size);
        bp.set_compression(if stored.is_some() { write.compression } else { Compression::OFF });
        bp.set_checksum_kind(if write.checksum == Checksum::OFF { Checksum::OFF } else { write.checksum });
        bp.set_object_type(write.object_type);
        bp.set_level(write.level);
        bp.set_little_endian(true);
        bp.set_birth(write.txg, write.txg);
        bp.set_fill(write.fill);
        let sum = sum(&data);
        bp.set_checksum(sum);
        if let Some(guard) = guard {
            guard.put(&mut bp, half(sum));
        }
        let born = rewrites && store.blocks.get(&bp.dva(0).offset).is_some_and(|old| old.born);
        store.blocks.insert(bp.dva(0).offset, StoredBlock { data, bp, born, killed: None });
        Ok(bp)
    }
}

impl BlockIo for Arc<MemBlockIo> {
    fn exec(&self) -> &Exec {
        &self.exec
    }
    fn read(&self, bp: &BlockPtr, _bookmark: &Bookmark) -> Result<Abd, BlockError> {
        let hook = self.before_read.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        self.count()?;
        self.fetch(bp)
    }
    fn read_stored(&self, bp: &BlockPtr, _bookmark: &Bookmark, done: StoredDone) {
        done(self.count().and_then(|()| self.fetch(bp)));
    }
    fn prefetch(&self, _bp: &BlockPtr, _bookmark: &Bookmark) {}
    fn write(&self, write: BlockWrite, done: WriteDone) {
        let store = self.clone();
        let job = move || {
            done(store.count().and_then(|()| store.place(&write)));
        };
        self.exec.spawn(TaskClass::Write, Box::new(job));
    }
    fn write_direct(&self, write: BlockWrite, done: WriteDone) {
        let is_full = self.full_for.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok();
        if is_full {
            return self.exec.spawn(TaskClass::Write, Box::new(move || done(Err(BlockError::NoSpace))));
        }
        self.direct_from.lock().insert(std::thread::current().id());
        // The bytes are the caller's own.
        let data = Abd::from_slice(&write.data.to_vec());
        self.write(BlockWrite { data, ..write }, done);
    }
    fn cached(&self, bp: &BlockPtr) -> Option<Abd> {
        if !self.caching.load(Ordering::Relaxed) {
            return None;
        }
        let store = self.store.lock();
        store.blocks.get(&bp.dva(0).offset).filter(|block| block.bp == *bp).map(|block| block.data.clone())
    }
    fn read_direct(&self, bp: &BlockPtr, _bookmark: &Bookmark, target: Vec<AbdPart>, done: LandedDone) {
        let (store, bp) = (self.clone(), *bp);
        let job = move || done(store.fetch_into(&bp, target));
        self.exec.spawn(TaskClass::Read, Box::new(job));
    }
    fn free(&self, txg: Txg, bp: &BlockPtr) {
        let mut store = self.store.lock();
        match store.blocks.get_mut(&bp.dva(0).offset) {
            None => store.violations.push("free of a block that is not live"),
            Some(block) if block.killed.is_some() => store.violations.push("free of a block for the second time"),
            Some(block) if block.born => store.violations.push("free of a block that is referenced"),
            Some(block) => block.killed = Some(txg),
        }
    }
    fn iostats(&self) -> Option<&IoStats> {
        Some(&self.iostats)
    }
    fn dsize(&self, bp: &BlockPtr) -> u64 {
        bp.asize()
    }
}

impl BlockLedger for MemBlockIo {
    fn born(&self, txg: Txg, bp: &BlockPtr) {
        let mut store = self.store.lock();
        match store.blocks.get_mut(&bp.dva(0).offset) {
            Some(block) if !block.born && bp.birth() == txg => block.born = true,
            _ => store.violations.push("birth of a block that was not written, or twice"),
        }
    }
    fn kill(&self, txg: Txg, bp: &BlockPtr) {
        let mut store = self.store.lock();
        match store.blocks.get_mut(&bp.dva(0).offset) {
            None => store.violations.push("kill of a block that is not live"),
            Some(block) if block.killed.is_some() => store.violations.push("kill of a block for the second time"),
            Some(block) if !block.born => store.violations.push("kill of a block that was never born"),
            Some(block) => block.killed = Some(txg),
        }
    }
    fn dirtied(&self, txg: Txg) {
        self.store.lock().dirtied.insert(txg.0);
    }
}

impl Objset {
    /// Lets the `count`-th change from now fail (1 is the next one); 0 lets none fail any more. True when one did since the last call.
    pub fn fail_change_after(&self, count: u64) -> bool {
        self.context().faults.fail_after(count)
    }
}

/// One object set over a [`MemBlockIo`] with a [`TxgManager`] that syncs it: all that a test of an upper layer needs.
pub struct TestPool {
    /// Block store in memory.
    pub io: Arc<MemBlockIo>,
    /// The object set.
    pub objset: Arc<Objset>,
    /// Transaction groups of the object set.
    pub txgs: Arc<TxgManager>,
}

struct SyncOne(Arc<Objset>, Arc<MemBlockIo>);

impl TxgSync for SyncOne {
    fn sync_txg(&self, txg: Txg) -> Result<(), SyncError> {
        self.0.sync(txg)?;
        self.1.commit(txg);
        Ok(())
    }
}

impl TestPool {
    /// An empty object set of `kind` over `io`.
    pub fn create(io: Arc<MemBlockIo>, kind: ObjsetType, props: ObjsetProps) -> Result<TestPool, DmuError> {
        Self::create_with(io, kind, props, TxgConfig::default())
    }

    /// As [`TestPool::create`] with other tunables.
    pub fn create_with(io: Arc<MemBlockIo>, kind: ObjsetType, props: ObjsetProps, config: TxgConfig) -> Result<TestPool, DmuError> {
        let env = Self::env(&io);
        let txgs = TxgManager::new(io.exec.clone(), Txg(3), config);
        let objset = Objset::create(env, kind, props, &txgs.assign(0)?)?;
        txgs.start(Arc::new(SyncOne(objset.clone(), io.clone())));
        Ok(TestPool { io, objset, txgs })
    }

    /// The store and the accounting of [`TestPool`], for object sets without a [`TxgManager`].
    pub fn env(io: &Arc<MemBlockIo>) -> ObjsetEnv {
        ObjsetEnv { io: Arc::new(io.clone()), ledger: Some(io.clone()), id: ObjsetId(54) }
    }

    /// Everything that should hold after a sync: the tree adds up, nothing leaked, nothing was freed twice.
    pub fn check(&self) -> Result<(), TreeFault> {
        verify_tree(&self.io, self.objset.root_bp())
    }

    /// Syncs what is open.
    pub fn sync(&self) -> Result<(), SyncError> {
        self.txgs.wait_synced(self.txgs.open_txg())
    }

    /// Power is cut: what was not synced is gone. Opens the object set as of the last sync; who still has the old one can change nothing.
    pub fn crashed(&self) -> Result<TestPool, DmuError> {
        let synced = self.txgs.synced_txg();
        self.txgs.abandon();
        self.io.crash(Txg(synced.0 + 1));
        let objset = Objset::open(Self::env(&self.io), self.objset.root_bp(), self.objset.props())?;
        let txgs = TxgManager::new(self.io.exec.clone(), synced, TxgConfig::default());
        txgs.start(Arc::new(SyncOne(objset.clone(), self.io.clone())));
        Ok(TestPool { io: self.io.clone(), objset, txgs })
    }

    /// Syncs, forgets everything in memory and opens the object set from its root pointer.
    pub fn reopen(self) -> Result<TestPool, SyncError> {
        let synced = self.txgs.open_txg();
        self.txgs.stop()?;
        let objset = Objset::open(Self::env(&self.io), self.objset.root_bp(), self.objset.props())?;
        let txgs = TxgManager::new(self.io.exec.clone(), synced, TxgConfig::default());
        txgs.start(Arc::new(SyncOne(objset.clone(), self.io.clone())));
        Ok(TestPool { io: self.io, objset, txgs })
    }
}
