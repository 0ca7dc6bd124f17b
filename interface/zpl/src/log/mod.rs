//! The file system's side of its intent log: what operations note in it, and what no record tells of (OpenZFS: `zfs_log.c`).
//!
//! An operation is noted when all of it succeeded, in its transaction, and under the locks that order it among others: names under
//! `names` of the directories, bytes under their range, attributes under the node's state. Nothing is noted of what has no links.
//!
//! What no record can tell of is remembered with its txg instead: commits end after that txg is on disk. Such a change is remembered
//! before anything that builds on it can be noted, and commits look for one after they wrote the log. So nobody is promised what lies
//! behind a record that cannot be replayed.
//!
//! Where mounts outlive the process, the pool's arena hears of everything, also where the log wants nothing, and of nodes without links too: there is
//! little of which no entry can tell (docs/adr/0018).

mod notes;
mod told;

pub(crate) use notes::{Moved, switches};

use dmu::Tx;
use exec::Mutex;
use ondisk::{ObjectId, Txg};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use told::Teller;
use zil::{Done, Log};

/// Number of txgs that are alive at a time, at most: what is older is on disk.
const TXGS_ALIVE: u64 = 4;

static LOGS_XATTRS: AtomicBool = AtomicBool::new(true);

/// Sets whether logs that can tell of extended attributes in system attributes do so; else these become durable with their txg (OpenZFS:
/// `zfs_zil_saxattr`).
pub fn set_logs_xattrs(logs: bool) {
    LOGS_XATTRS.store(logs, Ordering::Relaxed);
}

/// Log that the pool keeps for the file system.
struct Port {
    log: Arc<dyn Log>,
    /// Number of the object set.
    objset: u64,
    /// True when the log can tell of extended attributes in system attributes (feature `zilsaxattr`).
    tells_xattrs: bool,
}

impl Port {
    /// True when the log is told of extended attributes in system attributes.
    fn tells_xattrs(&self) -> bool {
        self.tells_xattrs && LOGS_XATTRS.load(Ordering::Relaxed)
    }
}

/// Whoever hears of a change.
#[derive(Clone, Copy)]
struct Listeners<'a> {
    /// Log, where it wants changes and there are links to what was changed.
    log: Option<&'a dyn Log>,
    /// Arena of the pool.
    teller: Option<Teller<'a>>,
}

/// Notes of the changes of a file system.
#[derive(Default)]
pub(crate) struct Journal {
    port: OnceLock<Port>,
    /// Txg of the last change that no record tells of and that records of others may build on.
    unlogged: AtomicU64,
    /// Txgs of the last changes that no record tells of and nobody builds on, by their objects.
    unlogged_alone: Mutex<BTreeMap<ObjectId, Txg>>,
}

impl Journal {
    /// Names the log of an object set; nothing up to the txg `open` is in it.
    pub(crate) fn connect(&self, (log, objset): (Arc<dyn Log>, u64), tells_xattrs: bool, open: Txg) {
        if self.port.set(Port { log, objset, tells_xattrs }).is_ok() {
            self.unlogged.fetch_max(open.0, Ordering::AcqRel);
        }
    }

    /// Log of the file system, None while changes become durable only with their txg.
    pub(crate) fn log(&self) -> Option<&Arc<dyn Log>> {
        self.port.get().map(|port| &port.log)
    }

    /// Arena of the pool, as the file system tells it of changes.
    fn teller(&self) -> Option<Teller<'_>> {
        let port = self.port.get()?;
        port.log.arena().map(|arena| Teller { arena, objset: port.objset })
    }

    /// Returns who is to hear of changes of this transaction. A log that does not want them now may want later ones that build on them.
    fn listeners(&self, tx: &Tx) -> Option<Listeners<'_>> {
        let (log, teller) = (self.log()?, self.teller());
        if log.is_wanted() {
            return Some(Listeners { log: Some(&**log), teller });
        }
        self.leave_out_of_log(tx);
        teller.map(|teller| Listeners { log: None, teller: Some(teller) })
    }

    /// Remembers a change that no record of the log tells of: every commit waits for its txg.
    fn leave_out_of_log(&self, tx: &Tx) {
        if self.port.get().is_some() {
            self.unlogged.fetch_max(tx.txg().0, Ordering::AcqRel);
        }
    }

    /// Remembers a change that nothing tells of.
    fn leave_out(&self, done: Done, tx: &Tx) {
        self.leave_out_of_log(tx);
        if let Some(teller) = self.teller() {
            teller.leave_out(done, tx);
        }
    }

    /// Remembers a change of one object that nothing tells of and nobody builds on: commits of the object wait for its txg.
    pub(crate) fn leave_out_alone(&self, object: ObjectId, tx: &Tx) {
        self.leave_alone_out_of_log(object, tx);
        if let Some(teller) = self.teller() {
            teller.leave_out(Done::default(), tx);
        }
    }

    /// Remembers a change of one object that no record of the log tells of.
    fn leave_alone_out_of_log(&self, object: ObjectId, tx: &Tx) {
        if self.port.get().is_some() {
            let mut alone = self.unlogged_alone.lock();
            alone.retain(|_, txg| txg.0 + TXGS_ALIVE > tx.txg().0);
            let txg = alone.entry(object).or_insert(tx.txg());
            *txg = tx.txg().max(*txg);
        }
    }

    /// Txg that has to be on disk before a commit of this object is done, of all objects without one.
    pub(crate) fn unlogged(&self, object: Option<ObjectId>) -> Txg {
        let alone = self.unlogged_alone.lock();
        let alone = match object {
            Some(object) => alone.get(&object).copied(),
            None => alone.values().max().copied(),
        };
        // A takeover does nothing again that came after what the arena has no entry of, whatever the log has.
        let untold = self.teller().map_or(Txg(0), |teller| teller.arena.unsettled());
        Txg(self.unlogged.load(Ordering::Acquire)).max(alone.unwrap_or(Txg(0))).max(untold)
    }
}

#[cfg(test)]
mod tests {
    use crate::{CreateOptions, NewNode, SetAttrs, Settings, Zfs, posix_acl};
    use dmu::testing::{MemBlockIo, TestPool};
    use dmu::{DmuError, ObjsetProps, Tx};
    use exec::Mutex;
    use ondisk::zil::{LrCommon, TxType};
    use ondisk::{ObjectId, ObjsetType};
    use std::sync::Arc;
    use zil::{Itx, Log};

    /// Kinds of the records that were noted.
    #[derive(Debug, Default)]
    struct Kinds(Mutex<Vec<TxType>>);

    impl Log for Kinds {
        fn is_wanted(&self) -> bool {
            true
        }
        fn note(&self, itx: Itx, _: &Tx) {
            self.0.lock().push(TxType(LrCommon::decode(&itx.record).expect("a header").lrc_txtype));
        }
        fn promote(&self, _: ObjectId) {}
        fn forget(&self, _: ObjectId) {}
        fn commit(&self, _: Option<ObjectId>) -> Result<(), DmuError> {
            Ok(())
        }
    }

    fn file_system() -> (TestPool, Arc<Zfs>, Arc<Kinds>) {
        file_system_with(true)
    }

    fn file_system_with(tells_xattrs: bool) -> (TestPool, Arc<Zfs>, Arc<Kinds>) {
        let pool = TestPool::create(MemBlockIo::inline(5), ObjsetType::ZFS, ObjsetProps::default()).expect("create");
        Zfs::create(&pool.objset, &CreateOptions::default(), &pool.txgs.assign(0).expect("assign")).expect("a file system");
        let zfs = Zfs::open(&pool.objset, Some(pool.txgs.clone()), Settings { posix_acl: true, ..Settings::default() }).expect("opens");
        let log = Arc::new(Kinds::default());
        zfs.set_log(log.clone(), tells_xattrs);
        pool.sync().expect("synced");
        (pool, zfs, log)
    }

    /// If this fails, a record makes a file that may be on disk already: its replay fails, and with it all that was made durable later.
    #[test]
    fn a_value_that_was_synced_before_it_got_its_name_is_left_out() {
        for is_synced in [false, true] {
            let (pool, zfs, log) = file_system();
            let root = zfs.node(zfs.root()).expect("root");
            let node = zfs.create_node(&root, b"f", &NewNode { mode: 0o100_644, ..NewNode::default() }).expect("create");
            let change = zfs.xattrs.stage_xattr(&node, b"user.a", Some(&[7; 40_000])).expect("prepared");
            if is_synced {
                pool.sync().expect("synced");
            }
            zfs.xattrs.carry_out_xattr(&node, &change).expect("set");
            let (is_left_out, open) = (zfs.store.journal.unlogged(None), pool.txgs.open_txg());
            let all = [TxType::CREATE, TxType::MKXATTR, TxType::CREATE, TxType::WRITE];
            assert_eq!((is_left_out == open, &log.0.lock()[..]), (is_synced, if is_synced { &all[..2] } else { &all[..] }));
        }
    }

    /// If this fails, a new file is open after a crash to its group, which its list shut out: somebody made another file durable, and it came along
    /// without its list.
    #[test]
    fn no_new_node_is_logged_without_its_list() {
        // Linux's encoding of u::rwx,g::---,m::rwx,o::---.
        let words = [2_u32, 0x0007_0001, u32::MAX, 0x0000_0004, u32::MAX, 0x0007_0010, u32::MAX, 0x0000_0020, u32::MAX];
        let list: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for tells_xattrs in [true, false] {
            let (pool, zfs, log) = file_system_with(tells_xattrs);
            let root = zfs.node(zfs.root()).expect("root");
            zfs.set_xattr(&root, posix_acl::DEFAULT, &list, crate::SetMode::Any).expect("a default list");
            pool.sync().expect("synced");
            let before = log.0.lock().len();
            let new = NewNode { mode: 0o100_666, umask: Some(0), ..NewNode::default() };
            zfs.create_node(&root, b"f", &new).expect("create");
            let waits_for_all = zfs.store.journal.unlogged(Some(ObjectId(u64::MAX))) == pool.txgs.open_txg();
            let kinds: &[TxType] = if tells_xattrs { &[TxType::CREATE, TxType::SETSAXATTR] } else { &[TxType::CREATE] };
            assert_eq!((&log.0.lock()[before..], waits_for_all), (kinds, !tells_xattrs));
        }
    }

    /// If this fails, whom the owner shut out with chmod gets in again after a crash.
    #[test]
    fn a_list_that_follows_the_mode_is_noted_with_it() {
        for (xattr_sa, wanted) in [(true, &[TxType::SETSAXATTR][..]), (false, &[TxType::REMOVE, TxType::CREATE, TxType::WRITE])] {
            let (_pool, zfs, log) = file_system();
            zfs.set_settings(Settings { xattr_sa, ..zfs.settings() });
            let root = zfs.node(zfs.root()).expect("root");
            let node = zfs.create_node(&root, b"f", &NewNode { mode: 0o100_677, ..NewNode::default() }).expect("create");
            // Linux's encoding of what others may do.
            let list = [&[2, 0, 0, 0][..], &[0x20, 0, 7, 0, 0xFF, 0xFF, 0xFF, 0xFF]].concat();
            let change = zfs.xattrs.stage_xattr(&node, posix_acl::ACCESS, Some(&list)).expect("prepared");
            zfs.xattrs.carry_out_xattr(&node, &change).expect("as the kernel would");
            let before = log.0.lock().len();
            zfs.set_attrs(&node, &SetAttrs { mode: Some(0o600), ..SetAttrs::default() }).expect("chmod");
            assert_eq!(log.0.lock()[before..], [&[TxType::SETATTR], wanted].concat());
        }
    }
}
