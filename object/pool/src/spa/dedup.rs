//! Deduplication as far as the writes of a sync have to do with it: entries of tables that the txg changes, blocks that wait for a look at a table, and
//! blocks that were given up (OpenZFS: `ddt.c`, `ddt_tree`). The tables themselves are those of `sync::dedup`.
//!
//! Invariants: an entry is read from its table once a txg, and written back once all data of the txg is; in between it is the truth. Of an entry's variant
//! only one block is being written at a time, and those that are equal wait for it. Only the sync reads tables: it answers while it waits for its writes.

use dmu::Poke;
use exec::Mutex;
use ondisk::ddt::{DdtKey, DdtPhysTrad, DdtTradEntry};
use ondisk::{BlockPtr, Checksum, ObjectId, Txg};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use zio::{Asked, DedupTables, ListedThen, Stored, Verdict, VerdictThen};

/// Name of a block: which tables have it, and the words of its key there.
pub(crate) type BlockKey = (u8, [u64; 5]);

/// Name of the block that a pointer leads to.
pub(crate) fn key_of(bp: &BlockPtr) -> BlockKey {
    (bp.checksum_kind().0, DdtKey::of(bp).words())
}

/// Tables that have an entry, as `ondisk::ddt::ddt_class` names them, and the entry as it is there.
pub(crate) type InTable = Option<(u8, DdtTradEntry)>;

/// Extent to which an entry is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    /// Nobody has looked yet.
    #[default]
    Nothing,
    /// As its table has it, or has it not.
    Entry,
    /// Tables could not be read: nobody knows who refers to the block.
    Damaged,
}

/// A block that waits for its verdict.
struct Waiting {
    copies: usize,
    txg: Txg,
    then: VerdictThen,
}

/// An entry that the txg has to do with.
#[derive(Default)]
struct Live {
    known: Known,
    before: InTable,
    now: DdtTradEntry,
    /// Variants of which a block is being written.
    written: [bool; 4],
    waiting: Vec<Waiting>,
}

/// An entry that the txg may have changed, on its way back to the tables.
#[derive(Debug)]
pub(crate) struct Changed {
    pub key: BlockKey,
    pub before: InTable,
    pub now: DdtTradEntry,
}

/// Outcome of giving up a reference, or of adding some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// An entry counts it.
    Yes,
    /// No entry has the block: it is as one without deduplication (OpenZFS: an entry that was pruned).
    NoEntry,
    /// Nobody knows: the tables could not be read.
    Unknown,
}

/// Space of blocks that tables have, as of the last sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupSpace {
    /// Deflated bytes of all blocks, each counted once.
    pub stored_bytes: u64,
    /// Deflated bytes of all blocks, each counted as often as it is referred to.
    pub referenced_bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Bytes that the tables take on the devices (the property `dedup_table_size`).
    pub table_bytes: u64,
}

impl DedupSpace {
    /// Hundredths of bytes referenced for each byte stored; 100 without tables (the property `dedupratio`; OpenZFS: `ddt_get_pool_dedup_ratio`).
    pub fn ratio_percent(&self) -> u64 {
        let all = u128::from(self.referenced_bytes) * 100;
        all.checked_div(u128::from(self.stored_bytes)).map_or(100, |ratio| u64::try_from(ratio).unwrap_or(u64::MAX))
    }
    /// Deflated bytes that further references would take, were they copies (OpenZFS: `ddt_get_dedup_dspace`).
    pub fn saved_bytes(&self) -> u64 {
        self.referenced_bytes.saturating_sub(self.stored_bytes)
    }
}

/// A table of deduplication, as of the last sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DedupTable {
    /// Name of its object: `DDT-sha256-zap-duplicate`.
    pub name: String,
    /// Number of that in the MOS.
    pub object: ObjectId,
    /// Number of entries.
    pub entries: u64,
    /// Bytes that it takes on the devices.
    pub disk_bytes: u64,
    /// Bytes of its blocks in memory.
    pub memory_bytes: u64,
    /// Sums of its entries by the highest bit of the number of references: blocks, their logical, physical and deflated bytes, and the same four counted
    /// as often as they are referred to (OpenZFS: `ddt_histogram_t`).
    pub histogram: Vec<[u64; 8]>,
}

impl DedupSpace {
    /// Sums of all tables.
    fn of(tables: &[DedupTable]) -> DedupSpace {
        const DSIZE: usize = 3;
        const REF_DSIZE: usize = 7;
        let mut space = DedupSpace::default();
        for table in tables {
            for sums in &table.histogram {
                space.stored_bytes = space.stored_bytes.saturating_add(sums[DSIZE]);
                space.referenced_bytes = space.referenced_bytes.saturating_add(sums[REF_DSIZE]);
            }
            space.entries = space.entries.saturating_add(table.entries);
            space.table_bytes = space.table_bytes.saturating_add(table.disk_bytes);
        }
        space
    }
}

#[derive(Default)]
struct State {
    live: BTreeMap<BlockKey, Live>,
    /// Entries to be looked at.
    asked: Vec<BlockKey>,
    given_up: Vec<(Txg, BlockPtr)>,
    tables: Vec<DedupTable>,
}

/// Whoever reads tables for writes that ask.
pub(crate) trait Answers: Send + Sync {
    /// Looks up all entries that writes asked for. Waits; what cannot be read is answered, too.
    fn answer(&self);
}

/// Blocks of one pool that may have several references.
pub(crate) struct Dedup {
    this: Weak<Dedup>,
    state: Mutex<State>,
    poke: Mutex<Option<Poke>>,
    /// Not held: who reads tables has the MOS, which has its blocks from here.
    answers: Mutex<Option<Weak<dyn Answers>>>,
    /// Leaves are being resilvered.
    is_resilvering: AtomicBool,
    saved_bytes: AtomicU64,
    table_bytes: AtomicU64,
    /// Bytes that tables may take; 0: without limit, the largest number: as vdevs that are for them have room.
    quota: AtomicU64,
    /// Vdevs that are for tables are nearly full.
    is_class_full: AtomicBool,
}

/// Verdicts to be given once no lock is held.
type Verdicts = Vec<(VerdictThen, Verdict)>;

fn give(verdicts: Verdicts) {
    verdicts.into_iter().for_each(|(then, verdict)| then(verdict));
}

impl Dedup {
    pub fn new() -> Arc<Dedup> {
        Arc::new_cyclic(|this| Dedup {
            this: this.clone(),
            state: Mutex::default(),
            poke: Mutex::default(),
            answers: Mutex::default(),
            is_resilvering: AtomicBool::new(false),
            saved_bytes: AtomicU64::new(0),
            table_bytes: AtomicU64::new(0),
            quota: AtomicU64::new(u64::MAX),
            is_class_full: AtomicBool::new(false),
        })
    }

    /// Says whether leaves are being resilvered: the walk may have passed the place where a block that a leaf lacks would be, and would not find it where
    /// it was, if that goes meanwhile. Blocks of older txgs come to be shared later.
    pub fn set_resilvering(&self, is_resilvering: bool) {
        self.is_resilvering.store(is_resilvering, Ordering::Relaxed);
    }

    /// Space of the blocks that tables have.
    pub fn space(&self) -> DedupSpace {
        DedupSpace::of(&self.state.lock().tables)
    }

    /// Tables as they are.
    pub fn tables(&self) -> Vec<DedupTable> {
        self.state.lock().tables.clone()
    }

    /// Bytes that datasets count and the pool does not.
    pub fn saved_bytes(&self) -> u64 {
        self.saved_bytes.load(Ordering::Relaxed)
    }

    /// Says how the tables are now.
    pub fn set_tables(&self, tables: Vec<DedupTable>) {
        let space = DedupSpace::of(&tables);
        self.saved_bytes.store(space.saved_bytes(), Ordering::Relaxed);
        self.table_bytes.store(space.table_bytes, Ordering::Relaxed);
        self.state.lock().tables = tables;
    }

    /// Limits what tables take, as the property `dedup_table_quota` is stored.
    pub fn set_quota(&self, quota: u64) {
        self.quota.store(quota, Ordering::Relaxed);
    }

    /// Says whether vdevs that are for tables are nearly full.
    pub fn set_class_full(&self, is_full: bool) {
        self.is_class_full.store(is_full, Ordering::Relaxed);
    }

    /// True when tables get no new entries (OpenZFS: `ddt_over_quota`).
    fn is_over_quota(&self) -> bool {
        match self.quota.load(Ordering::Relaxed) {
            0 => false,
            u64::MAX => self.is_class_full.load(Ordering::Relaxed),
            quota => self.table_bytes.load(Ordering::Relaxed) > quota,
        }
    }

    // ---- questions ----

    /// Names whoever answers questions. A pool that is looked at more than once while it is opened goes by what was found last.
    pub fn set_answers(&self, answers: Weak<dyn Answers>) {
        *self.answers.lock() = Some(answers);
    }

    /// Has what was asked answered.
    pub fn answer(&self) {
        let answers = self.answers.lock().as_ref().and_then(Weak::upgrade);
        match answers {
            Some(answers) => answers.answer(),
            None => self.take_asked().into_iter().for_each(|key| self.looked_up(key, None)),
        }
    }

    /// Has `poke` called with every question.
    pub fn attend(&self, poke: Option<Poke>) {
        *self.poke.lock() = poke;
    }

    /// True when entries are to be looked at.
    pub fn is_asked(&self) -> bool {
        !self.state.lock().asked.is_empty()
    }

    /// Takes the entries that are to be looked at.
    pub fn take_asked(&self) -> Vec<BlockKey> {
        std::mem::take(&mut self.state.lock().asked)
    }

    /// Entries, of these, that nobody has looked at, each once: somebody is about to.
    pub fn unknown_of(&self, keys: impl Iterator<Item = BlockKey>) -> Vec<BlockKey> {
        let mut state = self.state.lock();
        let mut unknown = Vec::new();
        for key in keys {
            if state.live.entry(key).or_default().known == Known::Nothing {
                unknown.push(key);
            }
        }
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// An entry was looked up: as its table has it, or None where tables could not be read.
    pub fn looked_up(&self, key: BlockKey, found: Option<InTable>) {
        let verdicts = {
            let mut state = self.state.lock();
            let live = state.live.entry(key).or_default();
            if live.known != Known::Nothing {
                return;
            }
            live.known = if found.is_some() { Known::Entry } else { Known::Damaged };
            live.before = found.flatten();
            live.now = live.before.as_ref().map_or_else(DdtTradEntry::default, |(_, entry)| entry.clone());
            self.settle(key, live)
        };
        give(verdicts);
    }

    /// Takes the verdicts about blocks that need not wait any more.
    fn settle(&self, key: BlockKey, live: &mut Live) -> Verdicts {
        if live.known == Known::Nothing {
            return Verdicts::new();
        }
        let mut verdicts = Verdicts::new();
        for waiting in std::mem::take(&mut live.waiting) {
            match self.verdict(key, live, &waiting) {
                Some(verdict) => verdicts.push((waiting.then, verdict)),
                None => live.waiting.push(waiting),
            }
        }
        verdicts
    }

    /// Verdict about a block of a known entry; None while an equal one is being written.
    fn verdict(&self, key: BlockKey, live: &mut Live, waiting: &Waiting) -> Option<Verdict> {
        let is_in_none = live.before.is_none() && live.now.references() == 0 && live.written == [false; 4];
        let Some(phys) = live.now.ddp_trad.get_mut(waiting.copies).filter(|_| live.known == Known::Entry) else {
            return Some(Verdict::Plain);
        };
        if live.written[waiting.copies] {
            return None;
        }
        if phys.ddp_phys_birth == 0 {
            if is_in_none && self.is_over_quota() {
                return Some(Verdict::Plain);
            }
            live.written[waiting.copies] = true;
            return Some(Verdict::List(self.listed(key, waiting.copies)));
        }
        let is_new = phys.ddp_phys_birth == waiting.txg.0;
        let is_whole = phys.copies(false) >= waiting.copies;
        if !is_whole || (!is_new && self.is_resilvering.load(Ordering::Relaxed)) {
            return Some(Verdict::Plain);
        }
        let Some(more) = phys.ddp_refcnt.checked_add(1) else { return Some(Verdict::Plain) };
        phys.ddp_refcnt = more;
        Some(Verdict::Share(Stored { dvas: phys.dvas(), birth: Txg(phys.ddp_phys_birth) }))
    }

    /// Receiver of the pointer of a block that is being written.
    fn listed(&self, key: BlockKey, copies: usize) -> ListedThen {
        let this = self.this.clone();
        Box::new(move |bp| this.upgrade().is_some_and(|dedup| dedup.written(key, copies, bp)))
    }

    /// A block was written, or could not be: those that are equal share it, or one of them is written. A gang is its own: OpenZFS takes one with more copies
    /// than were asked for to be another (`ddt_entry_lookup_is_valid`).
    fn written(&self, key: BlockKey, copies: usize, bp: Option<BlockPtr>) -> bool {
        let (is_listed, verdicts) = {
            let mut state = self.state.lock();
            let Some(live) = state.live.get_mut(&key) else { return false };
            live.written[copies] = false;
            let fits =
                |bp: &BlockPtr| !bp.is_hole() && !bp.is_embedded() && !bp.is_gang() && key_of(bp) == key && bp.dvas().count() == copies;
            let listed = bp.filter(fits);
            if let Some(bp) = &listed {
                live.now.ddp_trad[copies] = DdtPhysTrad::of(bp);
            }
            (listed.is_some(), self.settle(key, live))
        };
        give(verdicts);
        is_listed
    }

    // ---- references ----

    /// Notes a block that was given up, until the sync looks.
    pub fn give_up(&self, txg: Txg, bp: &BlockPtr) {
        self.state.lock().given_up.push((txg, *bp));
    }

    /// Takes the blocks that were given up in a txg: those of later ones are referred to on disk until then.
    pub fn take_given_up(&self, txg: Txg) -> Vec<(Txg, BlockPtr)> {
        self.state.lock().given_up.extract_if(.., |(at, _)| *at <= txg).collect()
    }

    /// Changes the number of references of a block whose entry was looked up: by so many more, or one less.
    fn count(&self, bp: &BlockPtr, change: impl FnOnce(u64) -> Option<u64>) -> Counted {
        let mut state = self.state.lock();
        let Some(live) = state.live.get_mut(&key_of(bp)) else { return Counted::Unknown };
        if live.known != Known::Entry {
            return Counted::Unknown;
        }
        let Some(variant) = live.now.variant_of(bp) else { return Counted::NoEntry };
        let phys = &mut live.now.ddp_trad[variant];
        match change(phys.ddp_refcnt) {
            Some(count) => {
                phys.ddp_refcnt = count;
                Counted::Yes
            }
            None => Counted::Unknown,
        }
    }

    /// Takes a reference off a block that was given up (OpenZFS: `zio_ddt_free`).
    pub fn release(&self, bp: &BlockPtr) -> Counted {
        self.count(bp, |count| count.checked_sub(1))
    }

    /// Adds references to a block (OpenZFS: `ddt_addref`).
    pub fn reference(&self, bp: &BlockPtr, count: u64) -> Counted {
        self.count(bp, |before| before.checked_add(count))
    }

    /// Takes the entries that the txg had to do with; those of tables that cannot be read stay as they are there.
    pub fn take_changed(&self) -> Vec<Changed> {
        let live = std::mem::take(&mut self.state.lock().live);
        let known = live.into_iter().filter(|(_, live)| live.known == Known::Entry);
        known.map(|(key, live)| Changed { key, before: live.before, now: live.now }).collect()
    }

    /// True when the txg had to do with an entry, or may have.
    pub fn is_touched(&self, txg: Txg) -> bool {
        let state = self.state.lock();
        !state.live.is_empty() || state.given_up.iter().any(|(at, _)| *at <= txg)
    }
}

impl DedupTables for Dedup {
    fn look_up(&self, asked: Asked, then: VerdictThen) {
        let key = (asked.checksum.0, asked.key.words());
        if !ondisk::ddt::DDT_CHECKSUMS.iter().any(|(known, _)| *known == Checksum(key.0)) {
            return then(Verdict::Plain);
        }
        let (is_new, verdicts) = {
            let mut state = self.state.lock();
            let is_new = !state.live.contains_key(&key);
            if is_new {
                state.asked.push(key);
            }
            let live = state.live.entry(key).or_default();
            live.waiting.push(Waiting { copies: usize::from(asked.copies), txg: asked.txg, then });
            (is_new, self.settle(key, live))
        };
        give(verdicts);
        let poke = if is_new { self.poke.lock().clone() } else { None };
        if let Some(poke) = poke {
            poke();
        }
    }

    fn take_back(&self, txg: Txg, bp: &BlockPtr) {
        if self.release(bp) != Counted::Yes {
            // Cannot be: the entry was there a moment ago.
            tracing::warn!("txg {txg}: a reference of a block that was not shared stays");
        }
    }
}

#[cfg(test)]
mod tests;
