//! Replay of intent logs: what their records tell of is done again, dataset by dataset, before anybody uses the pool (OpenZFS:
//! `zil_replay`; docs/adr/0015).
//!
//! A record is replayed in one transaction, and the header says in the same txg that it was: a crash repeats nothing and leaves nothing
//! out. A record that fails is tried once more after a sync, since a number of an object can be used again only then; after that the
//! log ends: what came before stands, and who imports is told.

mod arena;
mod volume;

pub use arena::{ReplayTold, Told, replay_arena, take_told_logs};

use crate::handle::DatasetHandle;
use crate::pool::PendingLogs;
use crate::space::TxSpace;
use crate::{DslError, DslPool};
use dmu::{DmuError, Objset, Tx};
use ondisk::zil::{LrCommon, TX_CI, TxType};
use ondisk::{BlockPtr, Bookmark, ByteOrder, ObjsetId, ObjsetType, VdevId, ZilHeader};
use std::ops::ControlFlow;
use std::sync::Arc;
use volume::Volume;
use zil::{CloneRecord, End, IntentLog, Record, Source, Visit, WriteRecord, kind_name};

/// Reason why a record was not replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The pool takes no more changes: the log stays, and the next import goes on.
    Stopped,
    /// Reason why it cannot be, in words.
    Failed(String),
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Stopped => f.write_str("the pool takes no more changes"),
            ReplayError::Failed(why) => f.write_str(why),
        }
    }
}

/// Replayer of the records of one dataset.
pub trait ReplayRecords {
    /// Does what the record tells, all in this transaction. `data` are the bytes of a write; names are those of any case if `is_caseless`.
    ///
    /// # Errors
    /// [`ReplayError`]; what was done of the record is taken back then, as far as that is possible.
    fn replay(&mut self, record: &Record<'_>, is_caseless: bool, data: &[u8], tx: &Tx) -> Result<(), ReplayError>;
}

/// Whoever knows files.
pub trait ReplayFiles: Send + Sync {
    /// True when it replays the logs of object sets of this kind. Those of volumes are none of its business.
    fn knows(&self, kind: ObjsetType) -> bool {
        kind == ObjsetType::ZFS
    }

    /// Opens a file system whose log is to be replayed; what was deleted before the crash is gone for good.
    ///
    /// # Errors
    /// Those of opening it, in words.
    fn open(&self, dataset: &DatasetHandle) -> Result<Box<dyn ReplayRecords>, ReplayError>;

    /// Opens a file system of which an arena tells, whose users go on: nothing without names is deleted of it.
    ///
    /// # Errors
    /// Those of opening it, in words.
    fn open_told(&self, dataset: &DatasetHandle) -> Result<Box<dyn ReplayTold>, ReplayError> {
        Err(ReplayError::Failed(format!("nobody knows the files of {}", dataset.name())))
    }
}

/// Outcome of one log's replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedLog {
    /// Name of the dataset.
    pub dataset: String,
    /// Number of records that were replayed.
    pub records: u64,
    /// Description of what ended the replay before the log's end, and of what is lost by that; None when all of it was replayed.
    pub failure: Option<String>,
}

/// End of all replays: what was not replayed waits for the next import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayEnded {
    /// Name of the dataset whose log was being replayed; None between two.
    pub dataset: Option<String>,
    /// Reason of the end; [`DslError::Unsupported`] for a dataset that cannot be opened.
    pub error: DslError,
}

/// Replay of one log.
struct Run<'a> {
    dataset: &'a DatasetHandle,
    objset: &'a Arc<Objset>,
    target: Box<dyn ReplayRecords>,
    header: ZilHeader,
    records: u64,
    /// Number of records that were not replayed, the failed one included.
    lost: u64,
    failure: Option<String>,
    is_stopped: bool,
}

impl DslPool {
    /// Replays what waits, once the claim is on disk, and frees the logs. Everything is on disk when it returns. Logs of encrypted datasets wait on for
    /// their keys.
    ///
    /// # Errors
    /// Those of the devices and of txgs, and of a file system that can't be opened: what was not replayed waits for the next import then.
    pub fn replay_logs(self: &Arc<Self>, pending: &PendingLogs, files: Option<&dyn ReplayFiles>) -> Result<Vec<ReplayedLog>, ReplayEnded> {
        pending.locked.iter().for_each(|(object, log)| self.tree.waiting.add(*object, log.clone()));
        if pending.datasets.is_empty() && pending.locked.is_empty() {
            return Ok(Vec::new());
        }
        let of_pool = |error: DslError| ReplayEnded { dataset: None, error };
        // Blocks of the logs are younger than what the pool has seen: they must not be from the future.
        while self.txgs().synced_txg() < pending.newest {
            self.txgs().wait_synced(self.txgs().open_txg()).map_err(|error| of_pool(error.into()))?;
        }
        if pending.datasets.is_empty() {
            return Ok(Vec::new());
        }
        self.live_logs.set_replaying(true);
        let mut replayed = Vec::new();
        for (object, cut) in &pending.datasets {
            let dataset = self.hold_object(*object).map_err(of_pool)?;
            let name = dataset.name();
            replayed.push(replay_one(&dataset, cut.clone(), files).map_err(|error| ReplayEnded { dataset: Some(name), error })?);
        }
        self.txgs().wait_synced(self.txgs().open_txg()).map_err(|error| of_pool(error.into()))?;
        self.live_logs.set_replaying(false);
        Ok(replayed)
    }

    /// Objects of the encrypted datasets whose logs wait though their keys are there.
    pub fn unlocked_logs(self: &Arc<Self>) -> Vec<u64> {
        let is_unlocked = |object: &u64| self.hold_object(*object).and_then(|dataset| dataset.is_locked()) == Ok(false);
        self.tree.waiting.all().into_iter().filter(is_unlocked).collect()
    }

    /// Names of the encrypted datasets whose logs wait for their keys and lie, also in part, on a vdev.
    pub fn waiting_logs_on(self: &Arc<Self>, vdev: VdevId) -> Vec<String> {
        let name = |object: u64| self.hold_object(object).ok().map(|dataset| dataset.name());
        self.tree.waiting.on(vdev).into_iter().filter_map(name).collect()
    }

    /// Replays a log of [`DslPool::unlocked_logs`] and frees it; everything is on disk when it returns. Until then nobody has what is in the dataset. None
    /// where somebody else does so, or for what cannot be written: its log waits on.
    ///
    /// # Errors
    /// As of [`DslPool::replay_logs`]: the log waits on.
    pub fn replay_unlocked(self: &Arc<Self>, object: u64, files: Option<&dyn ReplayFiles>) -> Result<Option<ReplayedLog>, ReplayEnded> {
        let Some(waiting) = self.tree.waiting.take(object) else { return Ok(None) };
        let result = self.replay_waiting(object, waiting.cut, files);
        self.tree.waiting.give_back(object, matches!(result, Ok(Some(_))));
        result
    }

    fn replay_waiting(
        self: &Arc<Self>,
        object: u64,
        cut: Option<String>,
        files: Option<&dyn ReplayFiles>,
    ) -> Result<Option<ReplayedLog>, ReplayEnded> {
        let of_pool = |error: DslError| ReplayEnded { dataset: None, error };
        let dataset = self.hold_object(object).map_err(of_pool)?.replaying();
        let name = dataset.name();
        let ended = |error| ReplayEnded { dataset: Some(name.clone()), error };
        let objset = dataset.objset().map_err(ended)?;
        if objset.is_read_only() {
            return Ok(None);
        }
        // Without the key nobody could look for what cannot be replayed.
        let log = IntentLog::read(&**objset.io(), &objset.zil_header(), object, self.txgs().synced_txg());
        if let Some(obstacle) = log.obstacle {
            tracing::warn!("the intent log of {name} cannot be replayed: {obstacle}");
            return Err(ended(DslError::Unsupported));
        }
        let replayed = replay_one(&dataset, cut, files).map_err(ended)?;
        self.txgs().wait_synced(self.txgs().open_txg()).map_err(|error| of_pool(error.into()))?;
        Ok(Some(replayed))
    }
}

fn replay_one(dataset: &DatasetHandle, cut: Option<String>, files: Option<&dyn ReplayFiles>) -> Result<ReplayedLog, DslError> {
    let (objset, name) = (dataset.objset()?, dataset.name());
    let opened = match (objset.kind(), files) {
        (ObjsetType::ZVOL, _) => Ok(Box::new(Volume::open(&objset)?) as Box<dyn ReplayRecords>),
        (kind, Some(files)) if files.knows(kind) => files.open(dataset),
        _ => return Err(DslError::Unsupported),
    };
    let target = opened.map_err(|error| match error {
        ReplayError::Stopped => DslError::Dmu(DmuError::Stopped),
        ReplayError::Failed(why) => {
            tracing::warn!("{name} cannot be opened for the replay of its intent log: {why}");
            DslError::Unsupported
        }
    })?;
    let header = objset.zil_header();
    let mut run = Run { dataset, objset: &objset, target, header: header.clone(), records: 0, lost: 0, failure: None, is_stopped: false };
    let walked = zil::walk(&**objset.io(), &header, dataset.object(), dataset.pool().txgs().synced_txg(), &mut run);
    if run.is_stopped {
        return Err(DslError::Dmu(DmuError::Stopped));
    }
    if walked.end == End::Unreadable {
        return Err(DslError::Dmu(dmu::BlockError::Io.into()));
    }
    let malformed = (walked.end == End::Malformed)
        .then(|| format!("block {} of its intent log has a record of a wrong length or number", walked.last_block));
    let Run { records, lost, failure, target, .. } = run;
    // It may have something to do at its end, which is part of the replay.
    drop(target);
    let failure = match (failure, cut.or(malformed)) {
        (Some(why), _) => Some(format!("{why}; {lost} of the log's records are lost")),
        (None, Some(why)) => Some(format!("the log ends too early: {why}; what came after that is lost")),
        (None, None) => None,
    };
    give_up(dataset, &objset)?;
    match &failure {
        None => tracing::info!("replayed {records} records of the intent log of {name}"),
        Some(why) => tracing::error!("the intent log of {name} was replayed in part, {records} records: {why}"),
    }
    Ok(ReplayedLog { dataset: name, records, failure })
}

/// Takes a log off its dataset and frees what was its own.
fn give_up(dataset: &DatasetHandle, objset: &Arc<Objset>) -> Result<(), DslError> {
    let log = log_of(dataset, objset)?;
    give_up_in(objset, &log, &dataset.assign(TxSpace::Frees)?)
}

/// Log of a dataset, all of which could be read.
fn log_of(dataset: &DatasetHandle, objset: &Arc<Objset>) -> Result<IntentLog, DslError> {
    let (pool, header) = (dataset.pool(), objset.zil_header());
    // What is the log's own is known without its key, and more surely: whatever is wrong with what the key shows.
    let log = IntentLog::read(&*pool.tree.meta.io, &header, dataset.object(), pool.txgs().synced_txg());
    if log.obstacle == Some(zil::Obstacle::Unreadable) {
        return Err(DslError::Dmu(dmu::BlockError::Io.into()));
    }
    Ok(log)
}

fn give_up_in(objset: &Arc<Objset>, log: &IntentLog, tx: &Tx) -> Result<(), DslError> {
    objset.set_zil_header(ZilHeader::default(), tx)?;
    log.blocks.iter().for_each(|bp| objset.io().free(tx.txg(), bp));
    Ok(())
}

impl Run<'_> {
    /// Replays a record.
    fn replay(&mut self, common: &LrCommon, record: &Record<'_>) -> Result<(), ReplayError> {
        match record {
            Record::Write(write) => {
                let data = self.data_of(write)?;
                self.replay_with(common, record, &data, true)
            }
            Record::Clone(clone) => self.copy(common, clone),
            _ => self.replay_with(common, record, &[], true),
        }
    }

    /// Writes what a range shares with another one, block for block: nothing comes to be shared while logs are replayed, and the blocks are there as long as
    /// the log is. The record counts as replayed with its last block.
    fn copy(&mut self, common: &LrCommon, clone: &CloneRecord<'_>) -> Result<(), ReplayError> {
        let mut offset = clone.offset;
        for bp in clone.pointers() {
            let end = clone.end.min(offset + clone.block);
            let write = WriteRecord { object: clone.object, offset, end, source: Source::Block(bp) };
            let mut data = self.data_of(&write)?;
            data.truncate((end - offset) as usize);
            let write = WriteRecord { source: Source::Record(&data), ..write };
            self.replay_with(common, &Record::Write(write), &data, end == clone.end)?;
            offset = end;
        }
        Ok(())
    }

    /// Replays a record, if need be in the second attempt; `is_whole` says that nothing of it is left then.
    fn replay_with(&mut self, common: &LrCommon, record: &Record<'_>, data: &[u8], is_whole: bool) -> Result<(), ReplayError> {
        match self.attempt((common, is_whole), record, data) {
            Err(ReplayError::Failed(why)) => {
                tracing::debug!("record {} of an intent log failed, and is tried again: {why}", common.lrc_seq);
                let txgs = self.dataset.pool().txgs();
                txgs.wait_synced(txgs.open_txg()).map_err(|_| ReplayError::Stopped)?;
                self.attempt((common, is_whole), record, data)
            }
            result => result,
        }
    }

    fn attempt(&mut self, (common, is_whole): (&LrCommon, bool), record: &Record<'_>, data: &[u8]) -> Result<(), ReplayError> {
        // The limits counted when the record was made.
        let tx = self.dataset.assign(TxSpace::Frees).map_err(replay_error)?;
        self.target.replay(record, common.lrc_txtype & TX_CI != 0, data, &tx)?;
        if !is_whole {
            return Ok(());
        }
        self.header.zh_replay_seq = common.lrc_seq;
        self.objset.set_zil_header(self.header.clone(), &tx).map_err(|error| replay_error(error.into()))
    }

    /// Bytes that a write wrote.
    fn data_of(&self, write: &WriteRecord<'_>) -> Result<Vec<u8>, ReplayError> {
        match write.source {
            Source::Record(data) => Ok(data.to_vec()),
            Source::Block(bp) if bp.is_hole() => Ok(vec![0; write.length() as usize]),
            Source::Block(bp) => {
                let at = Bookmark { objset: ObjsetId(self.dataset.object()), object: write.object, ..Bookmark::default() };
                match self.objset.io().read(&bp, &at) {
                    Ok(data) => Ok(data.to_vec()),
                    Err(dmu::BlockError::Suspended) => Err(ReplayError::Stopped),
                    Err(error) => Err(ReplayError::Failed(format!("its data cannot be read: {error}"))),
                }
            }
        }
    }
}

/// Error of a transaction, or of an object set.
fn replay_error(error: DslError) -> ReplayError {
    match error {
        DslError::Dmu(DmuError::Stopped) | DslError::Sync(_) | DslError::Suspended => ReplayError::Stopped,
        error => ReplayError::Failed(error.to_string()),
    }
}

impl Visit for Run<'_> {
    fn block(&mut self, _: &BlockPtr) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn record(&mut self, common: &LrCommon, record: &[u8], order: ByteOrder, is_wanted: bool) -> ControlFlow<()> {
        if !is_wanted {
            return ControlFlow::Continue(());
        }
        if self.failure.is_some() {
            self.lost += 1;
            return ControlFlow::Continue(());
        }
        let decoded = Record::decode(common, record, order).map_err(|error| ReplayError::Failed(error.to_string()));
        match decoded.and_then(|record| self.replay(common, &record)) {
            Ok(()) => self.records += 1,
            Err(ReplayError::Stopped) => {
                self.is_stopped = true;
                return ControlFlow::Break(());
            }
            Err(ReplayError::Failed(why)) => {
                let kind = kind_name(TxType(common.lrc_txtype));
                self.failure = Some(format!("record {} ({kind}) cannot be replayed: {why}", common.lrc_seq));
                self.lost = 1;
            }
        }
        ControlFlow::Continue(())
    }
}
