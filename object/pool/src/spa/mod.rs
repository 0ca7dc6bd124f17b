//! An open pool's own state (OpenZFS: `spa_t`): its configuration as of now, and what it lends to everything that works on it. Features,
//! properties and history have files of their own; who changes vdevs, syncs, or reads everything is above, and not known here.

pub(crate) mod adapter;
mod ahead;
pub(crate) mod aux_devices;
pub(crate) mod bootfs;
pub(crate) mod brt;
pub(crate) mod checkpoint;
pub(crate) mod config;
pub(crate) mod dedup;
pub(crate) mod feature_table;
pub(crate) mod features;
pub(crate) mod history;
pub(crate) mod latency;
pub(crate) mod mos_objects;
pub(crate) mod multihost;
pub(crate) mod news;
pub(crate) mod props;
pub(crate) mod replay;
pub(crate) mod salt;
pub(crate) mod services;
mod settings;
pub(crate) mod state;
pub(crate) mod takeover;
pub(crate) mod vdev_props;
pub(crate) mod version;

pub(crate) use settings::Follow;

use crate::PoolError;
use adapter::PoolIo;
use dmu::{Objset, TxgManager};
use dsl::DslPool;
use exec::{Exec, Mutex};
use kstat::Event;
use multihost::Multihost;
use ondisk::Guid;
use services::Services;
use state::Config;
use std::sync::Arc;
use vdev::VdevTree;
use zio::Zio;

/// Time and step in nanoseconds of watching a sync that may not end, because the pool is suspended again.
const SYNC_NS: u64 = 10_000_000_000;
const SYNC_STEP_NS: u64 = 5_000_000;
const FIRST_SYNC_STEP_NS: u64 = 1_000_000;

/// See the module's header.
pub(crate) struct Spa {
    pub services: Arc<Services>,
    pub io: Arc<PoolIo>,
    pub mos: Arc<Objset>,
    pub dsl: Arc<DslPool>,
    pub txgs: Arc<TxgManager>,
    pub config: Mutex<Config>,
    pub multihost: Multihost,
}

impl Spa {
    /// The executor that everything of the pool runs on.
    pub fn exec(&self) -> &Exec {
        &self.services.exec
    }
    /// The I/O pipeline.
    pub fn zio(&self) -> &Zio {
        self.io.cache().zio()
    }
    /// Name of the pool.
    pub fn name(&self) -> String {
        self.services.name.read().clone()
    }
    /// Guid of the pool.
    pub fn guid(&self) -> Guid {
        self.config.lock().facts.guid
    }
    /// The vdevs as of now.
    pub fn tree(&self) -> Arc<VdevTree> {
        self.config.lock().tree.clone()
    }

    /// Refuses what a pool that was imported read-only cannot do.
    pub fn check_writeable(&self) -> Result<(), PoolError> {
        if self.services.writeable { Ok(()) } else { Err(PoolError::ReadOnly) }
    }

    /// Refuses what would change the vdevs that a checkpoint has.
    pub fn check_no_checkpoint(&self) -> Result<(), PoolError> {
        self.services.checkpoint.check_none()
    }

    /// Gives the configuration that the caller changed to the pipeline.
    pub fn publish(&self, config: &Config) {
        self.io.set_view(config.view(&self.services));
    }

    /// A guid that no vdev of the pool has (OpenZFS: `spa_generate_guid`).
    pub fn new_guid(&self, tree: &VdevTree) -> Guid {
        loop {
            let guid = Guid(self.exec().random_u64());
            if guid.0 != 0 && !tree.has_guid(guid) {
                return guid;
            }
        }
    }

    /// Posts an event about the pool or one of its leaves (OpenZFS: `spa_event_notify`).
    pub fn notify(&self, class: &'static str, leaf: Option<Guid>) {
        let (tree, name) = (self.tree(), self.name());
        let event = Event::new(class).with("pool", name.as_str()).with("pool_guid", self.guid().0);
        let event = match leaf.and_then(|guid| tree.leaf_by_guid(guid)).map(|id| tree.leaf(id)) {
            Some(leaf) => event.with("vdev_guid", leaf.guid.0).with("vdev_path", leaf.path.as_str()),
            None => leaf.into_iter().fold(event, |event, guid| event.with("vdev_guid", guid.0)),
        };
        self.services.events.event(event);
    }

    /// Waits until everything done so far is on disk.
    pub fn sync(&self) -> Result<(), PoolError> {
        if !self.services.writeable {
            return Ok(());
        }
        Ok(self.txgs.wait_synced(self.txgs.open_txg())?)
    }

    /// Waits for the first sync of a pool that is being opened: nobody could bring it back if that waited suspended.
    pub fn first_sync(&self) -> Result<(), PoolError> {
        let (exec, until) = (self.exec(), self.txgs.open_txg());
        self.txgs.kick();
        while !exec.is_inline() && self.txgs.synced_txg() < until && !self.txgs.has_failed() {
            if self.zio().is_suspended() {
                return Err(PoolError::Unwritable);
            }
            exec.sleep_ns(FIRST_SYNC_STEP_NS);
        }
        // This txg, not the one that is open by now: that would be a sync more, for which nobody looks after the pool.
        Ok(self.txgs.wait_synced(until)?)
    }

    /// Waits for a sync, or until the pool is suspended.
    pub fn sync_unless_suspended(&self) -> Result<(), PoolError> {
        // What takes so long works, or can't be synced for other reasons.
        if self.sync_within(SYNC_NS) || self.zio().is_suspended() { Ok(()) } else { self.sync() }
    }

    /// Begins a sync and waits for it so long, in nanoseconds, or until the pool is suspended; whether either came.
    pub fn sync_within(&self, longest_ns: u64) -> bool {
        let (exec, until) = (self.exec(), self.txgs.open_txg());
        let begun = exec.now_ns();
        while !exec.is_inline() && exec.now_ns().saturating_sub(begun) < longest_ns {
            if self.zio().is_suspended() || self.txgs.synced_txg() >= until {
                return true;
            }
            self.txgs.kick();
            exec.sleep_ns(SYNC_STEP_NS);
        }
        false
    }
}
