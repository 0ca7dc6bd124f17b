//! Replay of a file system's intent log: the records' operations, done again with the numbers and times of the first time
//! (OpenZFS: `zfs_replay.c`; docs/adr/0015).
//!
//! Nothing else uses the file system meanwhile. A record is one transaction: whatever an operation does, the deletion of a file that
//! lost its last name included, happens in the txg of the record ([`RecordRoom`]).

mod attributes;
mod data;
mod names;

use crate::inherited::Unknown;
use crate::{Settings, Space, SpaceSource, TxKind, Zfs, ZplError};
use dmu::{Tx, TxgManager};
use dsl::{DatasetHandle, ReplayError, ReplayFiles, ReplayRecords, ReplayTold, Told};
use exec::Mutex;
use ondisk::{ObjectId, objset_flags};
use std::sync::Arc;
use zil::Record;

/// Replayer of file systems, for whoever imports pools.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileReplay;

/// Source of transactions that are all the record's, while there is one.
struct RecordRoom {
    beyond: Arc<dyn SpaceSource>,
    record: Mutex<Option<Tx>>,
}

/// File system whose log is replayed.
struct Replay {
    zfs: Arc<Zfs>,
    room: Arc<RecordRoom>,
    /// Files without names are there, since somebody has them open.
    keeps_nameless: bool,
}

impl SpaceSource for RecordRoom {
    fn space(&self) -> Space {
        self.beyond.space()
    }

    fn assign(&self, txgs: &Arc<TxgManager>, bytes: u64, kind: TxKind) -> Result<Tx, ZplError> {
        let of_record = self.record.lock().as_ref().map(Tx::again);
        of_record.map_or_else(|| self.beyond.assign(txgs, bytes, kind), Ok)
    }
}

/// Error in the words of the replay.
fn failed(error: ZplError) -> ReplayError {
    match error {
        ZplError::Stopped(_) => ReplayError::Stopped,
        error => ReplayError::Failed(error.to_string()),
    }
}

/// Settings that keep to what records say: nothing follows from what they don't.
fn settings(flags: u64) -> Settings {
    Settings {
        atime: false,
        project_quota: flags & objset_flags::PROJECTQUOTA_COMPLETE != 0,
        posix_acl: false,
        longname: true,
        ..Settings::default()
    }
}

impl FileReplay {
    /// Replayer of records in a file system that is open, and that nobody else uses; `beyond` has transactions for what is no record's.
    pub fn records(zfs: Arc<Zfs>, beyond: Arc<dyn SpaceSource>) -> Box<dyn ReplayRecords> {
        let room = Arc::new(RecordRoom { beyond, record: Mutex::new(None) });
        zfs.set_space_source(room.clone());
        Box::new(Replay { zfs, room, keeps_nameless: false })
    }

    /// Replayer of what an arena tells of a file system that is open, and that nobody else uses.
    pub fn told(zfs: Arc<Zfs>, beyond: Arc<dyn SpaceSource>) -> Box<dyn ReplayTold> {
        let room = Arc::new(RecordRoom { beyond, record: Mutex::new(None) });
        zfs.set_space_source(room.clone());
        zfs.nodes.inherited.set_unknown(Unknown::All);
        Box::new(Replay { zfs, room, keeps_nameless: true })
    }
}

impl ReplayFiles for FileReplay {
    fn open(&self, dataset: &DatasetHandle) -> Result<Box<dyn ReplayRecords>, ReplayError> {
        let zfs = open(dataset)?;
        let replay = FileReplay::records(zfs.clone(), Arc::new(dataset.clone()));
        // Numbers of what was deleted before the crash may be those of files in the log.
        zfs.drain_unlinked().map_err(failed)?;
        zfs.sync().map_err(failed)?;
        Ok(replay)
    }

    fn open_told(&self, dataset: &DatasetHandle) -> Result<Box<dyn ReplayTold>, ReplayError> {
        Ok(FileReplay::told(open(dataset)?, Arc::new(dataset.clone())))
    }
}

/// Opens the file system of a dataset, for writing.
fn open(dataset: &DatasetHandle) -> Result<Arc<Zfs>, ReplayError> {
    let objset = dataset.objset().map_err(|error| ReplayError::Failed(error.to_string()))?;
    let txgs = dataset.pool().txgs().clone();
    let zfs = Zfs::open(&objset, Some(txgs), settings(objset.flags())).map_err(failed)?;
    if zfs.is_read_only() {
        return Err(ReplayError::Failed("file systems of its version cannot be written".to_string()));
    }
    Ok(zfs)
}

impl ReplayRecords for Replay {
    fn replay(&mut self, record: &Record<'_>, is_caseless: bool, data: &[u8], tx: &Tx) -> Result<(), ReplayError> {
        *self.room.record.lock() = Some(tx.again());
        let result = self.apply(record, is_caseless, data, tx);
        *self.room.record.lock() = None;
        result.map_err(failed)
    }
}

impl ReplayTold for Replay {
    fn replay_told(&mut self, told: &Told<'_>, time: (i64, u32), tx: &Tx) -> Result<(), ReplayError> {
        self.zfs.store.set_replayed_time(Some(time));
        *self.room.record.lock() = Some(tx.again());
        let result = match told {
            Told::Record(record, data, is_caseless) => self.apply(record, *is_caseless, data, tx),
            Told::Nameless(create) => self.make_nameless(create, tx),
            Told::Gone(object) => self.let_go(*object),
        };
        *self.room.record.lock() = None;
        self.zfs.store.set_replayed_time(None);
        result.map_err(|error| match (failed(error), told) {
            (ReplayError::Failed(why), told) => ReplayError::Failed(format!("{why}, of {}", described(told))),
            (stopped, _) => stopped,
        })
    }
}

/// Short words for what failed.
fn described(told: &Told<'_>) -> String {
    match told {
        Told::Record(record, data, _) if !data.is_empty() => format!("a write to {:?}", record.may_be_gone()),
        other => format!("{other:?}"),
    }
}

impl Replay {
    fn apply(&self, record: &Record<'_>, is_caseless: bool, data: &[u8], tx: &Tx) -> Result<(), ZplError> {
        if let Some(object) = record.may_be_gone()
            && self.is_gone(object)?
        {
            return Ok(());
        }
        match record {
            Record::Create(create) => self.create(create, tx),
            Record::Remove(remove) => self.remove(remove, is_caseless),
            Record::Link(link) => self.link(link),
            Record::Rename(rename) => self.rename(rename, is_caseless),
            Record::Write(write) => self.write(write, data, tx),
            // Its bytes come as writes.
            Record::Clone(_) => Err(ZplError::NotSupported),
            Record::Extend { object, end } => self.extend(*object, *end, tx),
            Record::Truncate { object, offset, length } => self.truncate(*object, *offset, *length),
            Record::SetAttributes(set) => self.set_attributes(set, tx),
            Record::SetXattr { object, name, value } => self.set_xattr(*object, name, value, tx),
        }
    }

    /// True for a file that is no more, or that only waits to be deleted and nobody has open.
    fn is_gone(&self, object: ObjectId) -> Result<bool, ZplError> {
        match self.zfs.node(object) {
            Ok(node) => Ok(node.fields().links == 0 && !self.keeps_nameless),
            Err(ZplError::NotFound) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
