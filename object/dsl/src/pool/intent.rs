//! Intent logs that are being written: one of each dataset that somebody wants durable (docs/adr/0016). That of an encrypted one is written with its key,
//! and has to be gone before the key is.

use super::waiting::WaitingLogs;
use crate::dataset::Dataset;
use crate::meta::Meta;
use crate::{DslError, features};
use dmu::{BlockError, DmuError, Objset, SyncMode, Tx, TxgManager};
use exec::Mutex;
use ondisk::{ObjectId, ObjsetType, Txg};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use zil::{Arena, Itx, Log, LogName, LogSource, LogWriter, Payload};

/// Intent log that cannot be written: what is to be durable waits for the txg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedLog {
    /// Name of the dataset.
    pub dataset: String,
    /// Reason of the last failure.
    pub error: BlockError,
}

/// Log of a dataset, with the object set whose header names it.
struct Live {
    dataset: Arc<Dataset>,
    objset: Arc<Objset>,
    writer: LogWriter,
    /// The dataset is encrypted: no arena has its changes, they would be there in the clear.
    is_secret: bool,
    /// Number of those who have the log.
    users: AtomicUsize,
}

impl Live {
    /// True when the log may tell of extended attributes once the dataset is counted among those whose log does. Volumes have none.
    fn may_tell_xattrs(&self, meta: &Meta) -> bool {
        self.objset.kind() != ObjsetType::ZVOL && meta.services.feature_enabled(features::ZILSAXATTR)
    }

    /// Counts the dataset among those whose log may tell of extended attributes, as long as it has a log: with the header that begins the log, so
    /// that no record of them is on disk without (OpenZFS: `zil_create`, `zil_sync`).
    fn count_feature(&self, meta: &Meta, tx: &Tx) -> Result<(), DslError> {
        match self.writer.is_begun() {
            false => self.dataset.deactivate(meta, features::ZILSAXATTR, tx),
            true if self.may_tell_xattrs(meta) => self.dataset.activate(meta, features::bit(features::ZILSAXATTR), tx),
            true => Ok(()),
        }
    }

    /// Has a log begin anew that began before its pool had the feature: nothing is in it until the dataset is counted.
    fn catch_up(&self, meta: &Meta) {
        if self.may_tell_xattrs(meta) && self.dataset.features() & features::bit(features::ZILSAXATTR) == 0 {
            self.writer.restart();
        }
    }
}

/// Logs of a pool, by the object of their datasets.
pub(crate) struct LiveLogs {
    meta: Arc<Meta>,
    txgs: Arc<TxgManager>,
    logs: Mutex<BTreeMap<u64, Arc<Live>>>,
    /// Logs of an earlier import that wait for keys.
    waiting: Arc<WaitingLogs>,
    /// Logs of an earlier import are being replayed: nothing is logged.
    is_replaying: AtomicBool,
    is_closed: AtomicBool,
    /// Percentage of the usual time of a batch for which one waits for others.
    gather_percent: AtomicU64,
    /// Arena of the pool.
    arena: OnceLock<Arc<Arena>>,
}

impl LiveLogs {
    pub(super) fn new(meta: Arc<Meta>, txgs: Arc<TxgManager>, waiting: Arc<WaitingLogs>) -> LiveLogs {
        LiveLogs {
            meta,
            txgs,
            logs: Mutex::default(),
            waiting,
            is_replaying: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            gather_percent: AtomicU64::new(0),
            arena: OnceLock::new(),
        }
    }

    /// Names the arena of the pool; of those who opened their logs before, nothing is in it. False when there is one already.
    pub(super) fn set_arena(&self, arena: Arc<Arena>) -> bool {
        self.arena.set(arena).is_ok()
    }

    /// Arena of the pool.
    pub(super) fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.get()
    }

    /// Sets for how many percent of the usual time of a batch the next ones wait for others.
    pub(super) fn set_gather_percent(&self, percent: u64) {
        self.gather_percent.store(percent, Ordering::Relaxed);
    }

    /// Log of a head and its object set, which is encrypted if it is `is_secret`; `hold` keeps the dataset from being destroyed as long as somebody has the
    /// log.
    pub(crate) fn open(
        self: &Arc<Self>,
        hold: Box<dyn Any + Send + Sync>,
        (dataset, objset, is_secret): (Arc<Dataset>, Arc<Objset>, bool),
        source: Weak<dyn LogSource>,
    ) -> Arc<dyn Log> {
        let object = objset.id().0;
        let make = || {
            let named = dataset.clone();
            let name: LogName = Box::new(move || named.dir.full_name());
            // The object set's own store encrypts what is encrypted.
            let writer = LogWriter::new(objset.io().clone(), self.txgs.clone(), (object, name), source.clone());
            Arc::new(Live { dataset, objset, writer, is_secret, users: AtomicUsize::new(0) })
        };
        let mut logs = self.logs.lock();
        let live = logs.entry(object).or_insert_with(make).clone();
        live.users.fetch_add(1, Ordering::AcqRel);
        if self.is_closed.load(Ordering::Acquire) {
            live.writer.close();
        }
        drop(logs);
        live.catch_up(&self.meta);
        live.writer.set_source(source);
        Arc::new(DatasetLog { logs: self.clone(), live, _hold: hold })
    }

    /// Ends the logs of these heads: the next sync frees them. Error: [`DslError::Busy`] while somebody has one; none is ended then.
    pub(super) fn end(&self, heads: &[u64]) -> Result<(), DslError> {
        let logs = self.logs.lock();
        let own: Vec<&Arc<Live>> = heads.iter().filter_map(|head| logs.get(head)).collect();
        if own.iter().any(|live| live.users.load(Ordering::Acquire) > 0) {
            return Err(DslError::Busy);
        }
        own.iter().for_each(|live| live.writer.close());
        Ok(())
    }

    /// Forgets logs that were ended and synced, with what they have of keys; true when there were some. Those that somebody has again meanwhile begin anew.
    pub(super) fn forget(&self, heads: &[u64]) -> bool {
        let mut logs = self.logs.lock();
        let (before, is_closed) = (logs.len(), self.is_closed.load(Ordering::Acquire));
        logs.retain(|object, live| {
            let is_used = live.users.load(Ordering::Acquire) > 0;
            let stays = !heads.contains(object) || is_used || live.writer.is_begun();
            if stays && is_used && heads.contains(object) && !is_closed {
                live.writer.reopen();
            }
            stays
        });
        logs.len() < before
    }

    /// Says whether logs are being replayed.
    pub(crate) fn set_replaying(&self, is_replaying: bool) {
        self.is_replaying.store(is_replaying, Ordering::Release);
    }

    /// Does the logs' part of the sync of `txg`, before the object sets are synced.
    pub(super) fn sync(&self, txg: Txg) -> Result<(), DslError> {
        let all: Vec<Arc<Live>> = self.logs.lock().values().cloned().collect();
        let tx = Tx::syncing(txg);
        for live in all {
            if let Some(header) = live.writer.sync(txg) {
                live.objset.set_zil_header(header, &tx)?;
            }
            live.count_feature(&self.meta, &tx)?;
        }
        Ok(())
    }

    /// Logs in use that cannot be written, by the names of their datasets.
    pub(super) fn failed(&self) -> Vec<FailedLog> {
        let all: Vec<Arc<Live>> = self.logs.lock().values().cloned().collect();
        let failed = all.iter().filter_map(|live| Some(FailedLog { error: live.writer.failure()?, dataset: live.dataset.dir.full_name() }));
        failed.collect()
    }

    /// Forgets why logs could not be written.
    pub(super) fn forget_failures(&self) {
        self.logs.lock().values().for_each(|live| live.writer.forget_failure());
    }

    /// Ends all logs: the syncs to come free them.
    pub(super) fn close(&self) {
        let logs = self.logs.lock();
        self.is_closed.store(true, Ordering::Release);
        logs.values().for_each(|live| live.writer.close());
    }

    /// Gives up what there is of all logs: they begin anew, perhaps elsewhere.
    pub(super) fn restart(&self) {
        self.logs.lock().values().for_each(|live| live.writer.restart());
    }

    /// Begins all logs with the open txg.
    pub(super) fn begin(&self) {
        let logs: Vec<_> = self.logs.lock().values().cloned().collect();
        logs.iter().for_each(|live| live.writer.begin_ahead());
    }

    /// Lets logs begin anew.
    pub(super) fn reopen(&self) {
        let logs = self.logs.lock();
        self.is_closed.store(false, Ordering::Release);
        logs.values().for_each(|live| live.writer.reopen());
    }

    /// Frees the log of the head with this object, whose contents go; also one that waits for a key.
    pub(super) fn destroy(&self, head: u64, tx: &Tx) {
        let live = self.logs.lock().remove(&head);
        if let Some(live) = live {
            live.writer.destroy(tx.txg());
        }
        self.waiting.give_up(head).iter().for_each(|bp| self.meta.io.free(tx.txg(), bp));
    }
}

/// Log of a dataset as those see it who change the dataset.
struct DatasetLog {
    logs: Arc<LiveLogs>,
    live: Arc<Live>,
    /// Hold on the dataset: it is not destroyed while somebody may commit.
    _hold: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for DatasetLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.live.writer, f)
    }
}

impl Drop for DatasetLog {
    fn drop(&mut self) {
        self.live.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl DatasetLog {
    fn is_replaying(&self) -> bool {
        self.logs.is_replaying.load(Ordering::Acquire)
    }
    fn is_disabled(&self) -> bool {
        self.live.objset.props().sync == SyncMode::Disabled
    }
}

impl Log for DatasetLog {
    fn is_wanted(&self) -> bool {
        let is_wanted = !self.is_replaying() && !self.is_disabled();
        if !is_wanted {
            self.live.writer.note_gap();
        }
        is_wanted
    }
    fn note(&self, itx: Itx, tx: &Tx) {
        if self.is_replaying() {
            return self.live.writer.note_gap();
        }
        self.live.writer.note(itx, tx);
    }
    fn note_write(&self, payload: Payload, only_with: Option<ObjectId>, tx: &Tx) {
        if self.is_replaying() {
            return self.live.writer.note_gap();
        }
        self.live.writer.note_write(payload, only_with, tx);
    }
    fn promote(&self, object: ObjectId) {
        self.live.writer.promote(object);
    }
    fn forget(&self, object: ObjectId) {
        self.live.writer.forget(object);
    }
    fn commit(&self, object: Option<ObjectId>) -> Result<(), DmuError> {
        if self.is_disabled() {
            return Ok(());
        }
        if self.is_replaying() {
            return self.logs.txgs.wait_synced(self.logs.txgs.open_txg()).map_err(|_| DmuError::Stopped);
        }
        self.live.writer.set_spares_log_devices(self.live.objset.props().spares_log_devices);
        self.live.writer.set_gather_percent(self.logs.gather_percent.load(Ordering::Relaxed));
        self.live.writer.commit(object)
    }
    fn arena(&self) -> Option<&Arc<Arena>> {
        self.logs.arena().filter(|_| !self.live.is_secret)
    }
    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.live.writer.counts()
    }
}
