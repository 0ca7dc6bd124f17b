//! What objects hold, read through the layers that read it: intent logs, name tables, files' attributes.

use abd::Abd;
use dmu::testing::{MemBlockIo, TestPool};
use dmu::{BlockError, BlockIo, BlockWrite, NewObject, ObjsetProps, Tx, WriteDone};
use exec::{Exec, Inline};
use ondisk::{BlockPtr, Bookmark, Checksum, Dva, Field, ObjectId, ObjectType, ObjsetType, Txg, VdevId, ZilChain, ZilHeader, ZioEck, zil};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zap::{Match, Value, Zap};
use zpl::{CreateOptions, NewNode, Settings, Zfs};

const LOG_BYTES: usize = 4096;
/// Number of blocks that a log may have: one whose links all fit would have no end in a store without places.
const LOG_BLOCKS_MAX: u64 = 64;
/// Number of inputs that share a pool in memory.
const INPUTS_PER_POOL: u64 = 200;
const OBJSET: u64 = 54;

/// Store whose blocks are pieces of the input, with links that fit.
struct LogStore<'a> {
    exec: Exec,
    data: &'a [u8],
    reads: AtomicU64,
}

impl BlockIo for LogStore<'_> {
    fn exec(&self) -> &Exec {
        &self.exec
    }
    fn read(&self, bp: &BlockPtr, _: &Bookmark) -> Result<Abd, BlockError> {
        if self.reads.fetch_add(1, Ordering::Relaxed) >= LOG_BLOCKS_MAX {
            return Err(BlockError::Checksum);
        }
        let at = (bp.dva(0).offset as usize) % self.data.len().max(1);
        let mut block = self.data[at.min(self.data.len())..].to_vec();
        block.resize(LOG_BYTES, 0);
        let is_new = bp.checksum_kind() == Checksum::ZILOG2;
        let link = if is_new { 0 } else { LOG_BYTES - ZilChain::SIZE };
        // What a checksum would have proven.
        let mut next = bp.checksum();
        next[zil::ZIL_ZC_SEQ] = next[zil::ZIL_ZC_SEQ].wrapping_add(1);
        for (place, word) in block[link + 8 + 96..].chunks_exact_mut(8).zip(next) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        block[link + 144..link + 152].copy_from_slice(&ZioEck::MAGIC.to_le_bytes());
        Ok(Abd::from_slice(&block))
    }
    fn prefetch(&self, _: &BlockPtr, _: &Bookmark) {}
    fn write(&self, _: BlockWrite, done: WriteDone) {
        done(Err(BlockError::Io));
    }
    fn free(&self, _: Txg, _: &BlockPtr) {}
    fn dsize(&self, _: &BlockPtr) -> u64 {
        0
    }
}

fn log_pointer(seq: u64, kind: Checksum) -> BlockPtr {
    let mut bp = BlockPtr::HOLE;
    bp.set_dva(0, Dva { vdev: VdevId(0), offset: 512 * seq, asize: LOG_BYTES as u64, gang: false });
    bp.set_lsize(LOG_BYTES);
    bp.set_psize(LOG_BYTES);
    bp.set_checksum_kind(kind);
    bp.set_object_type(ObjectType::INTENT_LOG);
    bp.set_birth(Txg(5), Txg(5));
    bp.set_checksum([1, 2, OBJSET, seq]);
    bp
}

/// Seeds of headers with a block of records behind each.
pub fn intent_log_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for kind in [Checksum::ZILOG2, Checksum::ZILOG] {
        for claim_txg in [0, 4] {
            let mut header = ZilHeader { zh_log: log_pointer(1, kind), zh_claim_txg: claim_txg, ..ZilHeader::default() };
            (header.zh_claim_blk_seq, header.zh_claim_lr_seq, header.zh_flags) = (20, 30, ZilHeader::CLAIM_LR_SEQ_VALID);
            let mut write: zil::LrWrite = Field::ZERO;
            write.lr_blkptr = log_pointer(3, kind);
            write.lr_common.lrc_txtype = zil::TxType::WRITE.0;
            (write.lr_common.lrc_reclen, write.lr_common.lrc_txg, write.lr_common.lrc_seq) = (zil::LrWrite::SIZE as u64, 5, 1);
            let mut link: ZilChain = Field::ZERO;
            link.zc_next_blk = log_pointer(2, kind);
            link.zc_nused = (ZilChain::SIZE + 2 * zil::LrWrite::SIZE) as u64;
            let second = zil::LrWrite { lr_common: zil::LrCommon { lrc_seq: 2, ..write.lr_common }, ..write.clone() };
            seeds.push([&header.encode()[..], &link.encode(), &write.encode(), &second.encode()].concat());
        }
    }
    seeds
}

/// Reads and claims an intent log: the header, then what the store is made of.
pub fn intent_log(data: &[u8]) {
    let Ok(mut header) = ZilHeader::decode(data) else { return };
    let mut sum = header.zh_log.checksum();
    sum[zil::ZIL_ZC_OBJSET] = OBJSET;
    header.zh_log.set_checksum(sum);
    let store = LogStore { exec: Arc::new(Inline::new(1)), data: &data[ZilHeader::SIZE..], reads: AtomicU64::new(0) };
    let log = ::zil::IntentLog::read(&store, &header, OBJSET, Txg(9));
    store.reads.store(0, Ordering::Relaxed);
    let claimed = ::zil::claim(&store, &header, OBJSET, Txg(9), &mut |_| Ok(()));
    assert!(claimed.newest >= Txg(9), "no claim makes the pool older");
    store.reads.store(0, Ordering::Relaxed);
    let _ = ::zil::IntentLog::read(&store, &claimed.header, OBJSET, Txg(10));
    assert!(log.blocks.len() as u64 <= (LOG_BLOCKS_MAX + 1) * (1 + LOG_BYTES as u64 / zil::LrWrite::SIZE as u64));
}

// ---- name tables ----

fn new_pool() -> TestPool {
    TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("an object set in memory")
}

thread_local! {
    static POOL: RefCell<Option<TestPool>> = const { RefCell::new(None) };
    static INPUTS: Cell<u64> = const { Cell::new(0) };
    static FILES: RefCell<Option<Files>> = const { RefCell::new(None) };
}

/// True now and then: what inputs leave in memory is forgotten.
fn is_time_to_begin_again() -> bool {
    INPUTS.set(INPUTS.get() + 1);
    INPUTS.get().is_multiple_of(INPUTS_PER_POOL)
}

/// Seeds of tables of several kinds, as the engine writes them: the block size's logarithm, then the blocks.
pub fn zap_seeds() -> Vec<Vec<u8>> {
    let pool = new_pool();
    let tx = pool.txgs.assign(0).expect("a transaction");
    let mut seeds = Vec::new();
    for (count, long) in [(0, false), (3, false), (40, false), (3, true), (200, true)] {
        let object = zap::create(&pool.objset, ObjectType::DIRECTORY_CONTENTS, &tx).expect("a table");
        let table = Zap::hold(&pool.objset, object).expect("it opens");
        for index in 0..count {
            let name = if long { format!("{index:0100}") } else { format!("n{index}") };
            if long {
                table.add(&name, &Value::from_str_with_nul(&name), &tx).expect("a name");
            } else {
                table.add_u64(&name, index, &tx).expect("a name");
            }
        }
        let dnode = pool.objset.hold(object).expect("the object");
        let info = dnode.info().expect("its facts");
        let mut bytes = vec![0; (info.block_size * (info.max_block.0 as usize + 1)).min(60 << 10)];
        dnode.read(0, &mut bytes).expect("its bytes");
        seeds.push([&[info.block_size.trailing_zeros() as u8][..], &bytes].concat());
    }
    seeds
}

/// Uses a table in every way.
pub fn zap(data: &[u8]) {
    let [shift, content @ ..] = data else { return };
    let begins = is_time_to_begin_again();
    POOL.with_borrow_mut(|slot| {
        if begins {
            *slot = None;
        }
        let pool = slot.get_or_insert_with(new_pool);
        let Ok(tx) = pool.txgs.assign(0) else { return };
        let new = NewObject { block_size: 1 << (9 + shift % 8), ..NewObject::new(ObjectType::DIRECTORY_CONTENTS) };
        let Ok(dnode) = pool.objset.allocate_object(new, &tx) else { return };
        let _ = dnode.write(0, content, &tx);
        let _ = use_table(pool, dnode.object(), &tx);
        drop(dnode);
    });
}

fn use_table(pool: &TestPool, object: ObjectId, tx: &Tx) -> Result<(), zap::ZapError> {
    let table = Zap::hold(&pool.objset, object)?;
    let mut names = Vec::new();
    let listed = table.for_each(|entry| {
        names.push(entry.name.to_vec());
        Ok(())
    });
    let _ = (listed.is_ok(), table.count());
    for name in ["n1", "nobody", &format!("{:0100}", 7)] {
        let _ = (table.lookup_u64(name).is_ok(), table.lookup_norm(name, Match::Normalize).is_ok(), table.value_search(1, 0).is_ok());
    }
    for name in names.iter().take(20) {
        let name = String::from_utf8_lossy(name).into_owned();
        let _ = (table.update_u64(&name, 9, tx).is_ok(), table.remove(&name, tx).is_ok());
    }
    for index in 0..20 {
        let _ = (table.add_u64(format!("new{index}"), index, tx).is_ok(), table.add_int(index, tx).is_ok());
    }
    let _ = table.for_each(|_| Ok(()));
    zap::destroy(&pool.objset, object, tx)
}

// ---- files ----

/// File system in memory with a few files.
pub struct Files {
    pub pool: TestPool,
    pub zfs: Arc<Zfs>,
}

impl Files {
    pub fn new() -> Files {
        let pool = new_pool();
        {
            let tx = pool.txgs.assign(0).expect("a transaction");
            Zfs::create(&pool.objset, &CreateOptions::default(), &tx).expect("a file system");
        }
        pool.sync().expect("it syncs");
        let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings::default()).expect("it opens");
        let root = zfs.node(zfs.root()).expect("its root");
        let new = NewNode { mode: 0o100_644, ..NewNode::default() };
        for name in [&b"a"[..], b"b"] {
            zfs.create_node(&root, name, &new).expect("a file");
        }
        drop(root);
        Files { pool, zfs }
    }
}

/// Seeds of what real files, directories and links have.
pub fn znode_seeds() -> Vec<Vec<u8>> {
    let files = Files::new();
    let root = files.zfs.node(files.zfs.root()).expect("its root");
    let file = files.zfs.lookup(&root, b"a").expect("a file");
    let _ = files.zfs.set_xattr(&file, b"user.name", b"value", zpl::SetMode::Any);
    let bonus = |object| files.pool.objset.hold(object).and_then(|dnode| dnode.bonus()).map(|bonus| bonus.to_vec()).unwrap_or_default();
    let mut old = vec![0; 264 + 8];
    (old[72], old[73], old[264]) = (0xA4, 0x81, b'x');
    let mut directory = old.clone();
    (directory[72], directory[73]) = (0xED, 0x41);
    let forms = [(0, bonus(file.object())), (0, bonus(root.object())), (1, old)];
    let forms = forms.into_iter().chain([3, 5, 7].map(|form| (form, directory.clone())));
    forms.map(|(form, attributes)| [&[form][..], &attributes].concat()).collect()
}

/// Bytes before the number of the hidden directory in attributes of the old form (`zp_xattr`).
const OLD_XATTR_AT: usize = 104;

/// Reads attributes: the first byte says whether they are of the old form, and then whether the hidden directory is the node
/// itself, the root or the node before; the rest are the attributes.
pub fn znode(data: &[u8]) {
    let [form, bonus @ ..] = data else { return };
    let begins = is_time_to_begin_again();
    FILES.with_borrow_mut(|slot| {
        if begins {
            *slot = None;
        }
        let files = slot.get_or_insert_with(Files::new);
        let bonus = &bonus[..bonus.len().min(320)];
        let bonus_type = if form % 2 == 0 { ObjectType::SA } else { ObjectType::ZNODE };
        let object = {
            let Ok(tx) = files.pool.txgs.assign(0) else { return };
            let new = NewObject { bonus_type, bonus_len: bonus.len(), ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
            let Ok(dnode) = files.pool.objset.allocate_object(new, &tx) else { return };
            let link = match form / 2 % 4 {
                1 => Some(dnode.object()),
                2 => Some(files.zfs.root()),
                3 => Some(ObjectId(dnode.object().0.saturating_sub(1))),
                _ => None,
            };
            let mut bonus = bonus.to_vec();
            if let (Some(object), Some(field)) = (link, bonus.get_mut(OLD_XATTR_AT..OLD_XATTR_AT + 8)) {
                field.copy_from_slice(&object.0.to_le_bytes());
            }
            if dnode.set_bonus(&bonus, &tx).is_err() {
                return;
            }
            dnode.object()
        };
        let Ok(node) = files.zfs.node(object) else { return };
        let _ = (node.fields(), files.zfs.read_link(&node).is_ok(), files.zfs.read(&node, 0, 4096).is_ok());
        for name in files.zfs.list_xattrs(&node).unwrap_or_default() {
            let _ = files.zfs.get_xattr(&node, &name);
        }
        let _ = (files.zfs.get_xattr(&node, b"system.posix_acl_access"), files.zfs.list(&node, 0, &mut |_| true));
        let _ = files.zfs.set_xattr(&node, b"user.new", b"value", zpl::SetMode::Any);
    });
}
