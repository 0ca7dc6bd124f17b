//! The persistent error log: which blocks are damaged for good (OpenZFS: `spa_errlog.c`).
//!
//! There are two logs, named in the pool's directory: of the scrub that runs, and of the last one. Without the feature
//! `head_errlog` a log is a ZAP with a name per block; with it, it maps head datasets to such ZAPs. The datasets tell when snapshots change
//! hands and when heads go: the entries of their blocks follow.

use crate::ScanError;
use crate::record::DIRECTORY;
use dmu::{Objset, Tx};
use dsl::Inheritance;
use ondisk::{Bookmark, DslDatasetPhys, DslDirPhys, ErrorBlock, ObjectId, ObjectType, ObjsetId, Txg, bookmark_from_name, bookmark_name};
use std::sync::Arc;
use zap::{Value, Zap};

/// The log of the scrub that runs (OpenZFS: `DMU_POOL_ERRLOG_SCRUB`).
const SCRUB: &str = "errlog_scrub";
/// The log of the last scrub (OpenZFS: `DMU_POOL_ERRLOG_LAST`).
const LAST: &str = "errlog_last";

/// One of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Which {
    /// Log of the scrub that runs; ordinary reads add to it, too.
    Scrub,
    /// Log of the last scrub, and of what ordinary reads found since.
    Last,
}

/// All logs that there are.
const BOTH: [Which; 2] = [Which::Scrub, Which::Last];

impl Which {
    fn name(self) -> &'static str {
        match self {
            Which::Scrub => SCRUB,
            Which::Last => LAST,
        }
    }
}

/// A block in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LoggedBlock {
    /// Block without `head_errlog`: nobody knows its birth.
    At(Bookmark),
    /// Block of a head dataset with it, and of whoever shares it.
    OfHead(ObjsetId, ErrorBlock),
}

impl LoggedBlock {
    /// Place of the block in the object sets that have it.
    pub(crate) fn place(&self) -> Bookmark {
        match self {
            LoggedBlock::At(at) => *at,
            LoggedBlock::OfHead(head, block) => Bookmark { objset: *head, object: block.object, level: block.level, block: block.block },
        }
    }
}

/// An entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LogEntry {
    pub(crate) which: Which,
    pub(crate) block: LoggedBlock,
}

impl LogEntry {
    /// True for an entry from before the feature `head_errlog`.
    pub(crate) fn is_old(&self) -> bool {
        matches!(self.block, LoggedBlock::At(_))
    }
}

fn remove_name(log: &Zap, name: &str, tx: &Tx) -> Result<(), ScanError> {
    if log.try_lookup(name)?.is_some() {
        log.remove(name, tx)?;
    }
    Ok(())
}

/// Name of a head dataset in a log.
fn head_name(head: ObjsetId) -> String {
    format!("{:x}", head.0)
}

/// Value of a block in a log: nobody gives it a name.
fn no_name() -> Value {
    Value::U8(vec![0])
}

/// Answer whether the error log took a change. Where it is damaged itself, lists in memory must do: losing it is no reason to stop the pool.
pub(crate) fn unless_damaged(what: &str, result: Result<(), ScanError>) -> Result<bool, ScanError> {
    match result {
        Ok(()) => Ok(true),
        Err(ScanError::Sync(error)) => Err(ScanError::Sync(error)),
        Err(error) => {
            tracing::warn!("error log: cannot {what}: {error}");
            Ok(false)
        }
    }
}

/// Has the error log follow snapshots that change hands, so that their damage is known for as long as they are there, whoever had them
/// before (OpenZFS: `spa_swap_errlog`). In syncing context, of a pool with the feature `head_errlog`. A log that is damaged itself is no
/// error.
pub fn errors_inherited(mos: &Arc<Objset>, inheritance: &Inheritance, tx: &Tx) -> Result<(), ScanError> {
    unless_damaged("follow snapshots that change hands", ErrorLog::new(mos).inherit(inheritance, tx))?;
    Ok(())
}

/// Has the error log forget a dataset that is about to be destroyed, before its number becomes another's (OpenZFS:
/// `spa_delete_dataset_errlog`); the snapshot that it was cloned from keeps what it may have. Context and errors are those of
/// [`errors_inherited`].
pub fn errors_destroyed(mos: &Arc<Objset>, dataset: ObjsetId, tx: &Tx) -> Result<(), ScanError> {
    unless_damaged("forget what is destroyed", ErrorLog::new(mos).destroyed(dataset, tx))?;
    Ok(())
}

/// Both logs of a pool.
pub(crate) struct ErrorLog<'a> {
    mos: &'a Arc<Objset>,
}

impl<'a> ErrorLog<'a> {
    pub(crate) fn new(mos: &'a Arc<Objset>) -> ErrorLog<'a> {
        ErrorLog { mos }
    }

    fn log(&self, name: &str) -> Result<Option<ObjectId>, ScanError> {
        let object = Zap::hold(self.mos, DIRECTORY)?.try_lookup_u64(name)?;
        Ok(object.filter(|object| *object != 0).map(ObjectId))
    }

    /// Logs damaged blocks (OpenZFS: `sync_error_list`).
    pub(crate) fn add(&self, which: Which, blocks: &[(Bookmark, Txg)], by_head: bool, tx: &Tx) -> Result<(), ScanError> {
        if blocks.is_empty() {
            return Ok(());
        }
        let log = match self.log(which.name())? {
            Some(log) => log,
            None => {
                let log = zap::create(self.mos, ObjectType::ERROR_LOG, tx)?;
                Zap::hold(self.mos, DIRECTORY)?.update_u64(which.name(), log.0, tx)?;
                log
            }
        };
        let log = Zap::hold(self.mos, log)?;
        for (at, birth) in blocks {
            if !by_head {
                log.update(bookmark_name(at), &no_name(), tx)?;
                continue;
            }
            let block = ErrorBlock { object: at.object, level: at.level, block: at.block, birth: *birth };
            self.add_of_head(&log, (self.head_of(at.objset), &block), tx)?;
        }
        Ok(())
    }

    /// Adds a block of a head dataset to a log.
    fn add_of_head(&self, log: &Zap, (head, block): (ObjsetId, &ErrorBlock), tx: &Tx) -> Result<(), ScanError> {
        let head = head_name(head);
        let blocks = match log.try_lookup_u64(&head)? {
            Some(blocks) => ObjectId(blocks),
            None => {
                let blocks = zap::create(self.mos, ObjectType::ERROR_LOG, tx)?;
                log.update_u64(&head, blocks.0, tx)?;
                blocks
            }
        };
        Ok(Zap::hold(self.mos, blocks)?.update(block.name(), &no_name(), tx)?)
    }

    fn bonus(&self, object: u64) -> Option<Arc<[u8]>> {
        self.mos.hold(ObjectId(object)).and_then(|dnode| dnode.bonus()).ok()
    }

    /// Record of a dataset's directory; None when it can't be told.
    fn dir_of(&self, objset: ObjsetId) -> Option<DslDirPhys> {
        let bonus = self.bonus(objset.0).filter(|_| objset.0 != 0)?;
        let dataset = DslDatasetPhys::decode(&bonus).ok()?;
        DslDirPhys::decode(&self.bonus(dataset.ds_dir_obj)?).ok()
    }

    /// The head of a dataset's directory; the object set itself when that can't be told (OpenZFS: `get_head_ds`).
    fn head_of(&self, objset: ObjsetId) -> ObjsetId {
        self.dir_of(objset).map_or(objset, |dir| ObjsetId(dir.dd_head_dataset_obj))
    }

    /// Logs that have blocks of a head dataset, each with the ZAP of these blocks.
    fn logs_of(&self, head: ObjsetId) -> Result<Vec<(Which, Zap, ObjectId)>, ScanError> {
        let mut found = Vec::new();
        for which in BOTH {
            let Some(log) = self.log(which.name())? else { continue };
            let log = Zap::hold(self.mos, log)?;
            if let Some(blocks) = log.try_lookup_u64(head_name(head))? {
                found.push((which, log, ObjectId(blocks)));
            }
        }
        Ok(found)
    }

    /// Snapshots change hands: so do the blocks that they may have (OpenZFS: `swap_errlog`).
    fn inherit(&self, inheritance: &Inheritance, tx: &Tx) -> Result<(), ScanError> {
        for (which, log, blocks) in self.logs_of(inheritance.from)? {
            let mut moved: Vec<ErrorBlock> = Vec::new();
            self.each_name(blocks, &mut |name| {
                // A birth of 0 stands for one that could not be told.
                let known = ErrorBlock::from_name(name).ok().filter(|block| block.birth != Txg(0));
                moved.extend(known.filter(|block| block.birth <= inheritance.until));
            })?;
            for block in &moved {
                self.add_of_head(&log, (inheritance.to, block), tx)?;
            }
            let entry = |block| LogEntry { which, block: LoggedBlock::OfHead(inheritance.from, block) };
            self.remove(&moved.into_iter().map(entry).collect::<Vec<_>>(), tx)?;
        }
        Ok(())
    }

    /// Snapshots that a clone came from, for the head that has them; None where that can't be told, or for no clone.
    fn origin_of(&self, clone: ObjsetId) -> Option<Inheritance> {
        let origin = ObjsetId(self.dir_of(clone)?.dd_origin_obj);
        let bonus = self.bonus(origin.0).filter(|_| origin.0 != 0)?;
        let until = Txg(DslDatasetPhys::decode(&bonus).ok()?.ds_creation_txg);
        Some(Inheritance { from: clone, to: self.head_of(origin), until })
    }

    /// A head dataset goes (OpenZFS: `delete_dataset_errlog`).
    fn destroyed(&self, head: ObjsetId, tx: &Tx) -> Result<(), ScanError> {
        if self.logs_of(head)?.is_empty() {
            return Ok(());
        }
        if let Some(inheritance) = self.origin_of(head) {
            self.inherit(&inheritance, tx)?;
        }
        for (_, log, blocks) in self.logs_of(head)? {
            log.remove(head_name(head), tx)?;
            zap::destroy(self.mos, blocks, tx)?;
        }
        Ok(())
    }

    /// Makes entries of blocks that were logged without `head_errlog` entries of head datasets; blocks that are no longer there are left
    /// out (OpenZFS: `spa_upgrade_errlog`). `birth_at` tells the birth of the block that is at a place now.
    pub(crate) fn upgrade(&self, birth_at: &dyn Fn(&Bookmark) -> Option<Txg>, tx: &Tx) -> Result<(), ScanError> {
        let old: Vec<LogEntry> = self.entries()?.into_iter().filter(LogEntry::is_old).collect();
        for which in BOTH {
            let places = old.iter().filter(|entry| entry.which == which).map(|entry| entry.block.place());
            let blocks: Vec<_> = places.filter_map(|at| Some((at, birth_at(&at)?))).collect();
            self.add(which, &blocks, true, tx)?;
        }
        self.remove(&old, tx)
    }

    /// A scrub ended: its log becomes the last one, and the last one is forgotten (OpenZFS: `spa_errlog_rotate`).
    pub(crate) fn rotate(&self, tx: &Tx) -> Result<(), ScanError> {
        let (scrub, last) = (self.log(SCRUB)?, self.log(LAST)?);
        if scrub.is_none() && last.is_none() {
            return Ok(());
        }
        if let Some(last) = last {
            for (_, blocks) in self.heads(last)? {
                zap::destroy(self.mos, blocks, tx)?;
            }
            zap::destroy(self.mos, last, tx)?;
        }
        let directory = Zap::hold(self.mos, DIRECTORY)?;
        directory.update_u64(LAST, scrub.map_or(0, |scrub| scrub.0), tx)?;
        directory.update_u64(SCRUB, 0, tx)?;
        Ok(())
    }

    /// Head datasets of a log with their ZAPs; none when the log is of blocks.
    fn heads(&self, log: ObjectId) -> Result<Vec<(ObjsetId, ObjectId)>, ScanError> {
        let mut heads = Vec::new();
        Zap::hold(self.mos, log)?.for_each(|entry| {
            let name = std::str::from_utf8(&entry.name).unwrap_or_default();
            if let (8, Ok(head)) = (entry.integer_size, u64::from_str_radix(name, 16)) {
                heads.push((ObjsetId(head), ObjectId(entry.first_integer)));
            }
            Ok(())
        })?;
        Ok(heads)
    }

    /// All entries of both logs.
    pub(crate) fn entries(&self) -> Result<Vec<LogEntry>, ScanError> {
        let mut found = Vec::new();
        for which in BOTH {
            let Some(log) = self.log(which.name())? else { continue };
            let heads = self.heads(log)?;
            self.each_name(log, &mut |name| {
                if let Ok(at) = bookmark_from_name(name) {
                    found.push(LogEntry { which, block: LoggedBlock::At(at) });
                }
            })?;
            for (head, blocks) in heads {
                self.each_name(blocks, &mut |name| {
                    if let Ok(block) = ErrorBlock::from_name(name) {
                        found.push(LogEntry { which, block: LoggedBlock::OfHead(head, block) });
                    }
                })?;
            }
        }
        Ok(found)
    }

    /// Number of entries in the log of the last scrub.
    pub(crate) fn last_count(&self) -> Result<u64, ScanError> {
        Ok(self.entries()?.iter().filter(|entry| entry.which == Which::Last).count() as u64)
    }

    /// Takes entries out of their logs: the blocks are right again, or gone.
    pub(crate) fn remove(&self, entries: &[LogEntry], tx: &Tx) -> Result<(), ScanError> {
        for entry in entries {
            let Some(object) = self.log(entry.which.name())? else { continue };
            let log = Zap::hold(self.mos, object)?;
            match entry.block {
                LoggedBlock::At(at) => remove_name(&log, &bookmark_name(&at), tx)?,
                LoggedBlock::OfHead(head, block) => {
                    let head = head_name(head);
                    let Some(blocks) = log.try_lookup_u64(&head)? else { continue };
                    let names = Zap::hold(self.mos, ObjectId(blocks))?;
                    remove_name(&names, &block.name(), tx)?;
                    if names.count() == 0 {
                        log.remove(&head, tx)?;
                        zap::destroy(self.mos, ObjectId(blocks), tx)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The entry that a block of an object set has, or would have.
    pub(crate) fn entry_of(&self, which: Which, (at, birth): &(Bookmark, Txg), by_head: bool) -> LogEntry {
        let block = match by_head {
            false => LoggedBlock::At(*at),
            true => {
                let block = ErrorBlock { object: at.object, level: at.level, block: at.block, birth: *birth };
                LoggedBlock::OfHead(self.head_of(at.objset), block)
            }
        };
        LogEntry { which, block }
    }

    fn each_name(&self, log: ObjectId, each: &mut dyn FnMut(&str)) -> Result<(), ScanError> {
        Zap::hold(self.mos, log)?.for_each(|entry| {
            each(std::str::from_utf8(&entry.name).unwrap_or_default());
            Ok(())
        })?;
        Ok(())
    }
}
