//! What the pool lends to datasets: features, space, history ([`dsl::PoolServices`]).

use super::bootfs;
use super::brt::Brt;
use super::checkpoint::Checkpoint;
use super::config::VERSION;
use super::dedup::Dedup;
use super::features::{Features, HEAD_ERRLOG};
use super::history::History;
use super::news::{RebuildNews, ScanNews};
use crate::PoolError;
use dmu::{Objset, ObjsetProps, Tx};
use dsl::{DslError, HistoryEvent, Inheritance, PoolServices, PoolSpace};
use exec::{Exec, Mutex, RwLock};
use kstat::{Event, EventSink};
use metaslab::{Allocator, ClassSpace};
use nvlist::NvList;
use ondisk::{Compression, ObjsetId, Txg, VdevId};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vdev::Leaf;
use zio::Zio;

/// Share of the pool that is kept back, as a shift (OpenZFS: `spa_slop_shift`).
const SLOP_SHIFT: u32 = 5;
/// Least bytes that are kept back … (OpenZFS: `spa_min_slop`).
const SLOP_MIN: u64 = 128 << 20;
/// … and most bytes (OpenZFS: `spa_max_slop`).
const SLOP_MAX: u64 = 128 << 30;

/// The pool as datasets see it.
pub(crate) struct Services {
    pub exec: Exec,
    pub name: RwLock<String>,
    pub features: Arc<Features>,
    pub history: Arc<History>,
    pub allocator: Arc<Allocator>,
    /// References of shared blocks.
    pub brt: Arc<Brt>,
    /// Blocks that tables of deduplication have.
    pub dedup: Arc<Dedup>,
    /// The checkpoint, if there is one.
    pub checkpoint: Checkpoint,
    pub writeable: bool,
    /// Receiver of events about vdevs.
    pub events: Arc<dyn EventSink>,
    /// The scan that runs, or ended last, is a resilver.
    pub scan_is_resilver: AtomicBool,
    /// The pipeline, to ask whether it is suspended.
    pub zio: Zio,
    /// News of scans that the dirty time logs don't have yet.
    pub scan_news: Mutex<ScanNews>,
    /// News of sequential rebuilds that the dirty time logs don't have yet.
    pub rebuild_news: Mutex<Vec<RebuildNews>>,
    /// A resilver began: rebuilds that ended are no longer told of.
    pub forget_rebuilds: AtomicBool,
}

/// Bytes kept back of what is for data: less by what is set aside for intent logs, which is not for data either, but at least half of it
/// (OpenZFS: `spa_get_slop_space`).
fn slop(class: &ClassSpace) -> u64 {
    let (usable, logs) = (class.deflated_capacity, class.deflated_logs);
    let slop = (usable >> SLOP_SHIFT).min(SLOP_MAX);
    (slop - logs.min(slop >> 1)).max((usable >> 1).min(SLOP_MIN))
}

impl Services {
    /// Logs what the engine did itself (OpenZFS: `spa_history_log_internal`).
    pub fn log_internal(&self, name: &str, text: &str, tx: &Tx) {
        self.log_now(name, text, tx.txg());
    }
    /// Logs it outside of a sync.
    pub fn log_now(&self, name: &str, text: &str, txg: Txg) {
        let mut record = NvList::new();
        record.add("history internal str", text).add("internal_name", name).add("history txg", txg.0);
        record.add("history time", self.exec.wall_clock().0 as u64);
        self.history.log(record);
    }
}

impl Services {
    /// Bytes, as datasets count them, that are allocated for the sake of a checkpoint, where datasets could have them.
    fn checkpoint_bytes(&self) -> u64 {
        let Some(known) = self.checkpoint.status() else { return 0 };
        let tree = self.zio.view().tree;
        let dsize = |(vdev, bytes): (&VdevId, &u64)| tree.top(*vdev).filter(|top| !top.is_log).map_or(0, |top| top.dsize(*bytes));
        known.vdev_bytes.iter().map(dsize).sum()
    }

    /// True when destroyed datasets are to keep their blocks: while there is a checkpoint freeing them takes space and gives none, and there is next
    /// to none left (OpenZFS: `spa_suspend_async_destroy`).
    pub fn suspends_frees(&self, used_bytes: u64) -> bool {
        if !self.checkpoint.exists() {
            return false;
        }
        let PoolSpace { usable_bytes, slop_bytes, deferred_bytes } = self.space();
        usable_bytes.saturating_sub(slop_bytes / 4).saturating_sub(deferred_bytes) <= used_bytes
    }
}

/// Names in a record of the history, and those of the same parts in an event (OpenZFS: `spa_history_log_notify`).
const HISTORY_FIELDS: [(&str, &str); 7] = [
    ("internal_name", "history_internal_name"),
    ("history hostname", "history_hostname"),
    ("dsname", "history_dsname"),
    ("history internal str", "history_internal_str"),
    ("dsid", "history_dsid"),
    ("history txg", "history_txg"),
    ("history time", "history_time"),
];

impl Services {
    /// Posts an event about the pool.
    pub fn tell(&self, class: &'static str) {
        self.events.event(self.event(class));
    }

    /// Posts an event about a leaf.
    pub fn tell_leaf(&self, class: &'static str, leaf: &Leaf) {
        self.events.event(self.event(class).with("vdev_guid", leaf.guid.0).with("vdev_path", leaf.path.as_str()));
    }

    /// An event about the pool, to be told more.
    pub fn event(&self, class: &'static str) -> Event {
        Event::new(class).with("pool", self.name.read().as_str()).with("pool_guid", self.zio.view().facts.guid.0)
    }

    /// Tells of a record of what the engine did, in the sync of `txg`; of commands only the log of debug messages is told.
    pub fn tell_history(&self, record: &NvList, txg: Txg) {
        if let Some(command) = record.get_str("history command") {
            tracing::debug!("txg {txg} command: {command}");
        }
        let Some(name) = record.get_str("internal_name") else { return };
        let (text, dataset) = (record.get_str("history internal str").unwrap_or_default(), record.get_str("dsname"));
        let about = dataset.map_or_else(String::new, |dataset| format!(" {dataset} (id {})", record.get_u64("dsid").unwrap_or_default()));
        tracing::debug!("txg {txg} {name}{about} {text}");
        let mut event = self.event("sysevent.fs.zfs.history_event");
        for (name, field) in HISTORY_FIELDS {
            event = match (record.get_str(name), record.get_u64(name)) {
                (Some(text), _) => event.with(field, text),
                (None, Some(number)) => event.with(field, number),
                (None, None) => event,
            };
        }
        self.events.event(event);
    }
}

/// The error of a change of the MOS in the terms of sync tasks.
pub(crate) fn dsl_error(error: PoolError) -> DslError {
    match error {
        PoolError::Dmu(error) => DslError::Dmu(error),
        PoolError::Zap(error) => error.into(),
        PoolError::Dsl(error) => error,
        PoolError::Sync(error) => error.into(),
        PoolError::Object(object, what) => DslError::Corrupt { object, what },
        PoolError::ReadOnly => DslError::ReadOnly,
        _ => DslError::Unsupported,
    }
}

impl PoolServices for Services {
    fn pool_name(&self) -> String {
        self.name.read().clone()
    }
    fn version(&self) -> u64 {
        match self.zio.version() {
            0 => VERSION,
            version => version,
        }
    }
    fn feature_enabled(&self, guid: &str) -> bool {
        self.features.is_enabled(guid)
    }
    fn feature_refs(&self, guid: &str) -> u64 {
        self.features.refs(guid)
    }
    fn feature_add(&self, guid: &'static str, delta: i64, tx: &Tx) -> Result<(), DslError> {
        self.features.add(guid, delta, tx).map_err(dsl_error)
    }
    fn space(&self) -> PoolSpace {
        let class = self.allocator.class_space();
        // Datasets count a shared block as often as they refer to it, and what lies on vdevs for some blocks only (OpenZFS: `spa_update_dspace`).
        let saved_bytes = self.brt.space().saved_bytes.saturating_add(self.dedup.saved_bytes());
        let elsewhere = class.deflated_elsewhere.saturating_add(saved_bytes);
        // What a checkpoint keeps is nobody's, and no room (OpenZFS: `dsl_pool_adjustedsize`).
        let usable_bytes = class.deflated_capacity.saturating_add(elsewhere).saturating_sub(self.checkpoint_bytes());
        PoolSpace { usable_bytes, slop_bytes: slop(&class), deferred_bytes: class.deferred }
    }
    fn worst_dsize(&self, block_bytes: u64) -> u64 {
        self.allocator.worst_dsize(block_bytes)
    }
    fn history(&self, event: HistoryEvent, tx: &Tx) {
        let mut record = NvList::new();
        record.add("dsname", event.dataset.as_str()).add("dsid", event.dataset_object);
        record.add("history internal str", event.text.as_str()).add("internal_name", event.name);
        record.add("history txg", tx.txg().0).add("history time", self.exec.wall_clock().0 as u64);
        self.history.log(record);
    }
    fn dataset_destroyed(&self, mos: &Arc<Objset>, object: u64, tx: &Tx) -> Result<(), DslError> {
        if self.features.is_enabled(HEAD_ERRLOG) {
            scan::errors_destroyed(mos, ObjsetId(object), tx).map_err(scan::ScanError::into_sync)?;
        }
        bootfs::forget(mos, object, tx).map_err(dsl_error)
    }
    fn snapshots_inherited(&self, mos: &Arc<Objset>, inheritance: &Inheritance, tx: &Tx) -> Result<(), DslError> {
        if self.features.is_enabled(HEAD_ERRLOG) {
            scan::errors_inherited(mos, inheritance, tx).map_err(scan::ScanError::into_sync)?;
        }
        Ok(())
    }
    fn objset_props(&self) -> ObjsetProps {
        let lz4 = self.features.refs("org.illumos:lz4_compress") != 0;
        let props = ObjsetProps {
            hole_birth: self.features.refs("com.delphix:hole_birth") != 0,
            large_micro_zaps: self.features.is_enabled(dsl::features::LARGE_MICROZAP),
            metadata_compression: if lz4 { Compression::LZ4 } else { Compression::LZJB },
            ..ObjsetProps::default()
        };
        props.of_version(self.version())
    }
    fn refuses_writes(&self) -> bool {
        self.zio.refuses_writes()
    }
    fn is_writeable(&self) -> bool {
        self.writeable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, `zfs list` shows another room than with OpenZFS where a metaslab is set aside for logs, or too little is kept to remove files with.
    #[test]
    fn what_is_set_aside_for_logs_is_part_of_what_is_kept_back() {
        let class = |usable: u64, logs: u64| ClassSpace { deflated_capacity: usable, deflated_logs: logs, ..ClassSpace::default() };
        const GIB: u64 = 1 << 30;
        assert_eq!([0, 8, 20].map(|logs| slop(&class(1024 * GIB, logs * GIB))), [32 * GIB, 24 * GIB, 16 * GIB], "half of it at least");
        assert_eq!([GIB, GIB / 8].map(|usable| slop(&class(usable, 0))), [GIB / 8, GIB / 16], "small pools");
    }
}
