//! The states of sweeps in the leaves' ZAPs (OpenZFS: `vdev_initialize_zap_update_sync`, `vdev_trim_zap_update_sync`).

use super::{LeafSweep, Shared, SweepKind, SweepState, Sweeps};
use crate::PoolError;
use crate::spa::adapter::WaitsFor;
use crate::sync::step::{SyncStep, Syncing};
use dmu::{Objset, Tx};
use ondisk::names::leaf_zap;
use ondisk::{Guid, ObjectId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::{LABEL_START_BYTES, LeafState, VdevTree};
use zap::{Zap, ZapError};

/// The names of last offset, state and time.
fn names(kind: SweepKind) -> [&'static str; 3] {
    match kind {
        SweepKind::Initialize => [leaf_zap::INITIALIZE_LAST_OFFSET, leaf_zap::INITIALIZE_STATE, leaf_zap::INITIALIZE_ACTION_TIME],
        SweepKind::Trim => [leaf_zap::TRIM_LAST_OFFSET, leaf_zap::TRIM_STATE, leaf_zap::TRIM_ACTION_TIME],
    }
}

/// The sweeps that the MOS knows. What cannot be read is taken for none: it must not keep a pool from being opened.
pub(super) fn load(mos: &Arc<Objset>, tree: &VdevTree) -> Shared {
    let mut shared = Shared::default();
    for leaf in tree.leaves.iter().filter(|leaf| leaf.zap.0 != 0) {
        for kind in [SweepKind::Initialize, SweepKind::Trim] {
            if let Ok(Some(sweep)) = load_leaf(mos, leaf.zap, kind) {
                shared.leaves.insert((kind, leaf.guid), sweep);
            }
        }
    }
    shared
}

fn load_leaf(mos: &Arc<Objset>, object: ObjectId, kind: SweepKind) -> Result<Option<LeafSweep>, ZapError> {
    let zap = Zap::hold(mos, object)?;
    let [offset, state, time] = names(kind);
    let number = |name: &str| zap.try_lookup_u64(name).map(|found| found.unwrap_or(0));
    let Some(state) = SweepState::from_number(number(state)?) else { return Ok(None) };
    Ok(Some(LeafSweep {
        zap: object,
        state: Some(state),
        // OpenZFS counts from the beginning of the device, or from behind its labels: the earlier is safe.
        last_offset: number(offset)?.saturating_sub(LABEL_START_BYTES),
        action_time: number(time)?,
        rate: if kind == SweepKind::Trim { number(leaf_zap::TRIM_RATE)? } else { 0 },
        secure: kind == SweepKind::Trim && number(leaf_zap::TRIM_SECURE)? != 0,
        ..LeafSweep::default()
    }))
}

/// The sweeps' place in the sync.
pub(crate) struct SweepStep(pub Arc<Sweeps>);

impl SyncStep for SweepStep {
    fn name(&self) -> &'static str {
        "sweeps"
    }
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Devices
    }
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        self.0.sync(at.tx)
    }
}

impl Sweeps {
    /// Writes the changes since the last txg.
    fn sync(&self, tx: &Tx) -> Result<(), PoolError> {
        if self.autotrim.load(Ordering::Relaxed) {
            self.shared.lock().auto_txgs.insert(tx.txg().0);
            self.changed.notify_all();
        }
        self.follow_guids();
        self.cancel_ended();
        self.sync_leaves(tx)
    }

    /// A leaf that was part of a mirror and is a top-level vdev now has another guid: its sweeps go on (OpenZFS: `vdev_remove_parent`).
    fn follow_guids(&self) {
        let tree = self.zio.view().tree;
        let mut shared = self.shared.lock();
        let is_gone = |guid: Guid| tree.leaf_by_guid(guid).is_none();
        let gone: Vec<_> = shared.leaves.keys().filter(|(_, guid)| is_gone(*guid)).copied().collect();
        for key in gone {
            let Some(sweep) = shared.leaves.remove(&key) else { continue };
            if let Some(leaf) = tree.leaves.iter().find(|leaf| sweep.zap.0 != 0 && leaf.zap == sweep.zap) {
                shared.leaves.insert((key.0, leaf.guid), sweep);
            }
        }
    }

    /// Cancels the sweeps of faulted leaves, which do not go on when the leaf is back (OpenZFS: `vdev_initialize_thread`), and those of a vdev that is
    /// being removed, which do not go on when it stays (OpenZFS: `spa_vdev_remove_top`).
    fn cancel_ended(&self) {
        let tree = self.zio.view().tree;
        let is_over = |state: Option<SweepState>, guid: Guid| {
            let Some(leaf) = tree.leaf_by_guid(guid).map(|id| tree.leaf(id)) else { return false };
            let leaves = tree.top(leaf.top).is_some_and(|top| top.is_leaving);
            match state {
                Some(SweepState::Active) => leaves || leaf.state == LeafState::Faulted,
                Some(SweepState::Suspended) => leaves,
                _ => false,
            }
        };
        let mut ended = Vec::new();
        for ((kind, guid), sweep) in &mut self.shared.lock().leaves {
            if is_over(sweep.state, *guid) {
                let before = sweep.state.replace(SweepState::Canceled);
                sweep.dirty = true;
                ended.extend(tree.leaf_by_guid(*guid).map(|id| (*kind, id, before)));
            }
        }
        for (kind, id, before) in ended {
            self.log(kind, tree.leaf(id), before, Some(SweepState::Canceled));
        }
    }

    fn sync_leaves(&self, tx: &Tx) -> Result<(), PoolError> {
        let dirty: Vec<(SweepKind, Guid, LeafSweep)> = {
            let mut shared = self.shared.lock();
            let dirty = shared.leaves.iter_mut().filter(|(_, sweep)| sweep.dirty);
            dirty
                .map(|((kind, guid), sweep)| {
                    sweep.dirty = false;
                    (*kind, *guid, sweep.clone())
                })
                .collect()
        };
        if dirty.is_empty() {
            return Ok(());
        }
        let tree = self.zio.view().tree;
        for (kind, guid, sweep) in dirty {
            let zap = tree.leaf_by_guid(guid).map_or(ObjectId(0), |id| tree.leaf(id).zap);
            if zap.0 != 0 {
                self.store(kind, zap, &sweep, tx)?;
            }
            if zap.0 == 0 || sweep.state.is_none() {
                let mut shared = self.shared.lock();
                if shared.leaves.get(&(kind, guid)).is_some_and(|known| zap.0 == 0 || known.state.is_none()) {
                    shared.leaves.remove(&(kind, guid));
                }
            }
        }
        Ok(())
    }

    fn store(&self, kind: SweepKind, object: ObjectId, sweep: &LeafSweep, tx: &Tx) -> Result<(), PoolError> {
        let zap = Zap::hold(&self.mos, object)?;
        let [offset, state, time] = names(kind);
        let Some(number) = sweep.state.map(SweepState::number) else {
            for name in [offset, state, time] {
                if zap.contains(name)? {
                    zap.remove(name, tx)?;
                }
            }
            return Ok(());
        };
        if sweep.last_offset > 0 || zap.contains(offset)? {
            let from_start = if sweep.last_offset > 0 { sweep.last_offset + LABEL_START_BYTES } else { 0 };
            zap.update_u64(offset, from_start, tx)?;
        }
        zap.update_u64(time, sweep.action_time, tx)?;
        if kind == SweepKind::Trim {
            if sweep.rate > 0 || zap.contains(leaf_zap::TRIM_RATE)? {
                zap.update_u64(leaf_zap::TRIM_RATE, sweep.rate, tx)?;
            }
            zap.update_u64(leaf_zap::TRIM_PARTIAL, 0, tx)?;
            zap.update_u64(leaf_zap::TRIM_SECURE, u64::from(sweep.secure), tx)?;
        }
        Ok(zap.update_u64(state, number, tx)?)
    }
}
