//! A file system over an object set in memory with a log that keeps what is committed, power cuts, and the replay into what the last sync left.

use crate::seen::inside;
use abd::Abd;
use dmu::testing::{MemBlockIo, TestPool};
use dmu::{BlockIo, DmuError, ObjsetProps, Tx, TxgManager};
use exec::Mutex;
use ondisk::zil::{LrCommon, LrWrite, TX_CI, TxType};
use ondisk::{BlockPtr, Bookmark, ByteOrder, Field, ObjectId, ObjsetType, Txg};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use zil::{Filled, Itx, Log, LogSource, Payload, Record, Source};
use zpl::{CreateOptions, FileReplay, Node, Settings, Space, SpaceSource, Zfs, ZplError};

pub const RECORD: u64 = 16 << 10;

/// Log in memory.
#[derive(Default)]
pub struct MemLog {
    zfs: Mutex<Weak<Zfs>>,
    txgs: Mutex<Option<Arc<TxgManager>>>,
    /// Held by who commits: the next one waits.
    committing: Mutex<()>,
    noted: Mutex<Noted>,
    /// Records that would be on disk, with their txgs.
    pub written: Mutex<Vec<(Txg, Vec<u8>)>>,
    pub commits: AtomicU64,
    pub is_off: AtomicBool,
    /// Kind of record that is left out, to see that it is missed.
    pub loses: Mutex<Option<TxType>>,
    /// Largest number of bytes in a record of a write; 0 for no limit.
    pub bytes_max: AtomicU64,
}

#[derive(Default)]
struct Noted {
    all: Vec<(Txg, Itx)>,
    alone: Vec<(Txg, Itx)>,
}

impl std::fmt::Debug for MemLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemLog")
    }
}

impl Noted {
    fn promote(&mut self, object: Option<ObjectId>) {
        let (moved, kept) = std::mem::take(&mut self.alone).into_iter().partition(|(_, itx)| object.is_none() || itx.only_with == object);
        self.alone = kept;
        self.all.extend::<Vec<_>>(moved);
    }
}

impl Log for MemLog {
    fn is_wanted(&self) -> bool {
        !self.is_off.load(Ordering::Relaxed)
    }
    fn note(&self, itx: Itx, tx: &Tx) {
        let common = LrCommon::decode(&itx.record).expect("a header");
        assert_eq!((common.lrc_reclen as usize, itx.record.len() % 8), (itx.record.len(), 0));
        let mut noted = self.noted.lock();
        if itx.only_with.is_some() { noted.alone.push((tx.txg(), itx)) } else { noted.all.push((tx.txg(), itx)) }
    }
    fn promote(&self, object: ObjectId) {
        self.noted.lock().promote(Some(object));
    }
    fn forget(&self, object: ObjectId) {
        self.noted.lock().alone.retain(|(_, itx)| itx.only_with != Some(object));
    }
    fn commit(&self, object: Option<ObjectId>) -> Result<(), DmuError> {
        let _others = self.committing.lock();
        self.commits.fetch_add(1, Ordering::Relaxed);
        let itxs = {
            let mut noted = self.noted.lock();
            noted.promote(object);
            std::mem::take(&mut noted.all)
        };
        for (txg, itx) in itxs.into_iter().filter(|(txg, _)| *txg > self.synced()) {
            self.write(txg, &itx)?;
        }
        Ok(())
    }
}

impl MemLog {
    fn synced(&self) -> Txg {
        self.txgs.lock().as_ref().expect("a pool").synced_txg()
    }

    fn write(&self, txg: Txg, itx: &Itx) -> Result<(), DmuError> {
        let zfs = self.zfs.lock().upgrade().expect("a file system");
        let kind = TxType(LrCommon::decode(&itx.record).expect("a header").lrc_txtype);
        if *self.loses.lock() == Some(kind) {
            return Ok(());
        }
        let (Payload::Copied(range) | Payload::Block(range)) = &itx.payload else {
            self.written.lock().push((txg, itx.record.clone()));
            return Ok(());
        };
        let max = match (&itx.payload, self.bytes_max.load(Ordering::Relaxed)) {
            (Payload::Copied(_), max) if max > 0 => max,
            _ => range.length,
        };
        let mut at = range.offset;
        while at < range.offset + range.length {
            let part = zil::Range { offset: at, length: max.min(range.offset + range.length - at), ..*range };
            at += part.length;
            let payload = if let Payload::Copied(_) = itx.payload { Payload::Copied(part) } else { Payload::Block(part) };
            let mut record = zil::write_header(part.object, part.offset, part.length);
            match zfs.fill(&payload, txg)? {
                Filled::Bytes(bytes) => {
                    assert_eq!(bytes.len() as u64, part.length);
                    record.extend_from_slice(&bytes);
                    record.resize(record.len().next_multiple_of(8), 0);
                }
                Filled::Block(bp) => {
                    let fixed = LrWrite { lr_blkptr: bp, ..LrWrite::decode(&record).expect("a write") };
                    record.copy_from_slice(&fixed.encode());
                }
                Filled::Nothing => continue,
            }
            let common = LrCommon { lrc_reclen: record.len() as u64, ..LrCommon::decode(&record).expect("a header") };
            common.put(&mut record[..LrCommon::SIZE], ByteOrder::Little);
            self.written.lock().push((txg, record));
        }
        Ok(())
    }

    /// Kinds of the records that are written.
    pub fn kinds(&self) -> Vec<TxType> {
        let kind = |record: &[u8]| TxType(LrCommon::decode(record).expect("a header").lrc_txtype & !TX_CI);
        self.written.lock().iter().map(|(_, record)| kind(record)).collect()
    }

    /// Number of operations that are noted, and neither committed nor on disk.
    pub fn waiting(&self) -> usize {
        let noted = self.noted.lock();
        noted.all.iter().chain(&noted.alone).filter(|(txg, _)| *txg > self.synced()).count()
    }
}

pub struct World {
    pub pool: TestPool,
    pub zfs: Arc<Zfs>,
    pub log: Arc<MemLog>,
}

struct Anything;

impl SpaceSource for Anything {
    fn space(&self) -> Space {
        Space { available: 1 << 40, ..Space::default() }
    }
}

pub fn settings() -> Settings {
    // Looking must not change anything.
    Settings { atime: false, posix_acl: true, project_quota: true, longname: true, ..Settings::default() }
}

impl World {
    /// An empty file system, whose log knows extended attributes if `tells_xattrs`.
    pub fn new(tells_xattrs: bool) -> World {
        Self::with(MemBlockIo::inline(3), CreateOptions { project_quota: true, ..CreateOptions::default() }, tells_xattrs)
    }

    pub fn with(io: Arc<MemBlockIo>, options: CreateOptions, tells_xattrs: bool) -> World {
        let props = ObjsetProps { record_size: RECORD as usize, ..ObjsetProps::default() };
        let pool = TestPool::create(io, ObjsetType::ZFS, props).expect("an object set");
        Zfs::create(&pool.objset, &options, &pool.txgs.assign(0).expect("a transaction")).expect("a file system");
        let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), settings()).expect("it opens");
        let log = Arc::new(MemLog::default());
        zfs.set_log(log.clone(), tells_xattrs);
        *log.zfs.lock() = Arc::downgrade(&zfs);
        *log.txgs.lock() = Some(pool.txgs.clone());
        pool.sync().expect("synced");
        World { pool, zfs, log }
    }

    /// Cuts the power; gives the file system after the next import, and what its replay complained about.
    pub fn crashed(&self) -> (TestPool, Arc<Zfs>, Option<String>) {
        let synced = self.pool.txgs.synced_txg();
        let records: Vec<Vec<u8>> =
            self.log.written.lock().iter().filter(|(txg, _)| *txg > synced).map(|(_, record)| record.clone()).collect();
        // Blocks that the log names are claimed before anything else is written.
        let data: Vec<Vec<u8>> = records.iter().map(|record| self.data(record)).collect();
        let pool = self.pool.crashed().expect("it opens after the crash");
        let replayed = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings { posix_acl: false, ..settings() }).expect("it opens");
        let mut replay = FileReplay::records(replayed.clone(), Arc::new(Anything));
        replayed.drain_unlinked().expect("drained");
        pool.sync().expect("synced");
        let mut complaint = None;
        for (index, (record, data)) in records.iter().zip(&data).enumerate() {
            let decoded = Record::decode(&LrCommon::decode(record).expect("a header"), record, ByteOrder::Little).expect("a sound record");
            let mut once = || replay.replay(&decoded, false, data, &pool.txgs.assign(0).expect("a transaction"));
            let result = once().or_else(|_| {
                pool.sync().expect("synced");
                once()
            });
            if let Err(error) = result {
                complaint = Some(format!("record {index} of {}, {decoded:?}: {error:?}", records.len()));
                break;
            }
        }
        drop(replay);
        drop(replayed);
        pool.sync().expect("synced");
        pool.sync().expect("what it freed rests no more");
        let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), settings()).expect("it opens");
        (pool, zfs, complaint)
    }

    /// Bytes of a record of a write.
    fn data(&self, record: &[u8]) -> Vec<u8> {
        let decoded = Record::decode(&LrCommon::decode(record).expect("a header"), record, ByteOrder::Little).expect("a sound record");
        let Record::Write(write) = decoded else { return Vec::new() };
        match write.source {
            Source::Record(data) => data.to_vec(),
            Source::Block(bp) if bp.is_hole() => vec![0; write.length() as usize],
            Source::Block(bp) => self.block(&bp),
        }
    }

    fn block(&self, bp: &BlockPtr) -> Vec<u8> {
        self.pool.io.read(bp, &Bookmark::default()).expect("a block that the log names").to_vec()
    }
}

pub fn at(zfs: &Arc<Zfs>, path: &str) -> Result<Node, ZplError> {
    let mut node = zfs.node(zfs.root())?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        node = zfs.lookup(&node, name.as_bytes())?;
    }
    Ok(node)
}

/// A node as it is seen: by its path what goes with every commit (object, type, links), and all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub object: ObjectId,
    pub names: String,
    pub whole: String,
}

pub type Tree = BTreeMap<String, Seen>;

pub fn seen(zfs: &Arc<Zfs>) -> Tree {
    let mut tree = Tree::new();
    look(zfs, &zfs.node(zfs.root()).expect("the root"), "/", &mut tree);
    tree
}

fn look(zfs: &Arc<Zfs>, node: &Node, path: &str, tree: &mut Tree) {
    let fields = node.fields();
    let names = format!("{:o} links {} generation {} born {:?}", fields.mode >> 12, fields.links, fields.generation, fields.times[3]);
    let mut whole = format!(
        "{names} {:o} {}:{} size {} flags {:x} rdev {} project {}",
        fields.mode, fields.uid, fields.gid, fields.size, fields.flags, fields.rdev, fields.project
    );
    whole += &inside(zfs, node);
    tree.insert(path.to_string(), Seen { object: node.object(), names, whole });
    if fields.is_directory() {
        let mut entries = Vec::new();
        zfs.list(node, 3, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.dirent.object));
            true
        })
        .expect("a listing");
        for (name, object) in entries {
            let child = zfs.lookup(node, &name).expect("a listed name leads somewhere");
            assert_eq!(child.object(), object);
            look(zfs, &child, &format!("{path}{}/", String::from_utf8_lossy(&name)), tree);
        }
    }
}

/// State that is promised and not there: `strict` says of which nodes all is.
pub fn missing(promised: &Tree, found: &Tree, strict: &dyn Fn(&Seen) -> bool) -> Vec<String> {
    let mut differing = Vec::new();
    for path in promised.keys().chain(found.keys().filter(|path| !promised.contains_key(*path))) {
        let (one, other) = (promised.get(path), found.get(path));
        let is_there = match (one, other) {
            (Some(one), Some(other)) => {
                one.object == other.object && one.names == other.names && (!strict(one) || one.whole == other.whole)
            }
            _ => false,
        };
        if !is_there {
            differing.push(format!("{path}: promised {one:?}, found {other:?}"));
        }
    }
    differing
}

/// Reads a node whole, as a program would.
pub fn contents(zfs: &Arc<Zfs>, path: &str) -> Vec<u8> {
    zfs.read(&at(zfs, path).expect("a file"), 0, 1 << 30).expect("data").to_vec()
}

pub fn abd(data: &[u8]) -> Abd {
    Abd::from_slice(data)
}
