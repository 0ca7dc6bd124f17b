//! Moves a pool to a new root: labels and uberblocks, in an order that is safe against a crash at any point (OpenZFS:
//! `vdev_config_sync`).

use super::{ConfigBlock, Device, KnownRings, LabelWrite, do_all, flushed, read_labels, uberblock_writes};
use crate::PoolError;
use device::{DeviceError, DeviceOp};
use exec::{Exec, Mutex};
use nvlist::NvList;
use ondisk::{Guid, Uberblock};
use std::sync::Arc;
use vdev::{LeafId, VdevTree};
use zio::{FaultError, Zio};

/// Top-level vdevs that get an uberblock when the configuration is unchanged (OpenZFS: `SPA_SYNC_MIN_VDEVS`).
const UBERBLOCK_TOPS: usize = 3;

/// The labels of the leaves that can be written, as of one txg.
pub(crate) struct LabelWriter<'a> {
    exec: &'a Exec,
    zio: &'a Zio,
    tree: &'a VdevTree,
    leaves: Vec<(LeafId, Device)>,
    /// Leaves that did not take everything.
    silent: Mutex<Vec<Guid>>,
}

impl<'a> LabelWriter<'a> {
    /// Makes a writer of the leaves of `tree` that can be used, with their devices.
    pub fn new(exec: &'a Exec, zio: &'a Zio, tree: &'a VdevTree, devices: &[Option<Device>]) -> LabelWriter<'a> {
        LabelWriter { exec, zio, tree, leaves: usable_leaves(tree, devices), silent: Mutex::default() }
    }

    /// Writes the uberblock, and first and last the configurations that `config_of` gives for leaves, if there are new ones.
    pub fn commit(&self, ub: &Uberblock, config_of: Option<&dyn Fn(LeafId) -> NvList>) -> Result<(), PoolError> {
        let labels: Vec<ConfigBlock> = match config_of {
            Some(config_of) => self.leaves.iter().map(|(leaf, _)| ConfigBlock::new(&config_of(*leaf))).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let write_configs = |first| -> Result<(), PoolError> {
            let writes = labels.iter().zip(&self.leaves).flat_map(|(label, (_, device))| label.writes(device, first)).collect();
            some_succeeded(&self.write(writes))?;
            some_succeeded(&self.flush(&self.leaves))
        };
        if config_of.is_some() {
            write_configs(0)?;
        }
        let chosen = match config_of {
            Some(_) => self.leaves.clone(),
            None => uberblock_leaves(self.tree, &self.leaves, self.exec.random_u64()),
        };
        let writes = chosen.iter().flat_map(|(leaf, device)| uberblock_writes(device, ub, self.ashift(*leaf))).collect();
        some_succeeded(&self.write(writes))?;
        some_succeeded(&self.flush(&chosen))?;
        if config_of.is_some() { write_configs(1) } else { Ok(()) }
    }

    fn ashift(&self, leaf: LeafId) -> u32 {
        self.tree.tops[self.tree.leaf(leaf).top.0 as usize].ashift
    }

    /// Puts the uberblocks that devices have into all of their labels (OpenZFS: `vdev_copy_uberblocks`). What fails costs copies only.
    pub fn copy_uberblocks(&self) {
        for (leaf, device) in &self.leaves {
            let mut known = read_labels(self.exec, device, &mut KnownRings::default()).uberblocks;
            // A heartbeat has the txg of the uberblock that it repeats, and here its place: one of them goes there.
            known.dedup_by_key(|ub| ub.ub_txg);
            let writes = known.iter().flat_map(|ub| uberblock_writes(device, ub, self.ashift(*leaf))).collect();
            let _ = self.write(writes);
        }
    }

    /// Leaves that did not take everything that was written or flushed since the last call.
    pub fn take_silent(&self) -> Vec<Guid> {
        std::mem::take(&mut *self.silent.lock())
    }

    /// Notes the leaves that failed; gives the results.
    fn note(&self, targets: &[Guid], results: Vec<Result<(), DeviceError>>) -> Vec<Result<(), DeviceError>> {
        let failed = targets.iter().zip(&results).filter(|(_, result)| result.is_err());
        self.silent.lock().extend(failed.map(|(leaf, _)| *leaf));
        results
    }

    fn guid_of(&self, device: &Device) -> Guid {
        let owner = self.leaves.iter().find(|(_, own)| Arc::ptr_eq(own, device));
        owner.map_or(Guid(0), |(leaf, _)| self.tree.leaf(*leaf).guid)
    }

    /// Writes to labels, as simulated faults allow, and nothing to a pool that must not be written; results in any order.
    fn write(&self, mut writes: Vec<LabelWrite>) -> Vec<Result<(), DeviceError>> {
        if !self.zio.may_write() {
            return vec![Err(DeviceError::Gone); writes.len()];
        }
        let (mut injected, mut struck) = (Vec::new(), Vec::new());
        writes.retain(|write| {
            let guid = self.guid_of(&write.device);
            let fault = self.zio.label_fault(guid, write.offset_in_label());
            injected.extend(fault.map(|fault| if fault == FaultError::Noop { Ok(()) } else { Err(DeviceError::Io) }));
            struck.extend(fault.map(|_| guid));
            fault.is_none()
        });
        let targets: Vec<Guid> = writes.iter().map(|write| self.guid_of(&write.device)).chain(struck).collect();
        let ios = writes.into_iter().map(|write| (write.device, write.offset, DeviceOp::Write(write.data)));
        let mut results = do_all(self.exec, ios, &|device, io| self.zio.hand_to(self.guid_of(device), device, io));
        results.extend(injected);
        self.note(&targets, results)
    }

    /// Makes what was written to the labels of leaves durable.
    fn flush(&self, leaves: &[(LeafId, Device)]) -> Vec<Result<(), DeviceError>> {
        let ios = leaves.iter().map(|(_, device)| (device.clone(), 0, DeviceOp::Flush));
        let targets: Vec<Guid> = leaves.iter().map(|(leaf, _)| self.tree.leaf(*leaf).guid).collect();
        self.note(&targets, flushed(do_all(self.exec, ios, &|device, io| self.zio.hand_to(self.guid_of(device), device, io))))
    }
}

/// The leaves that can be written, with their devices.
fn usable_leaves(tree: &VdevTree, devices: &[Option<Device>]) -> Vec<(LeafId, Device)> {
    let usable = |(index, device): (usize, &Option<Device>)| {
        let leaf = LeafId(index as u32);
        device.as_ref().filter(|_| tree.leaf(leaf).state.is_usable()).map(|device| (leaf, device.clone()))
    };
    devices.iter().enumerate().filter_map(usable).collect()
}

/// The leaves of a few top-level vdevs, starting anywhere.
fn uberblock_leaves(tree: &VdevTree, leaves: &[(LeafId, Device)], random: u64) -> Vec<(LeafId, Device)> {
    let data: Vec<_> = tree.tops.iter().filter(|top| top.is_concrete() && !top.is_log).map(|top| top.id).collect();
    if data.is_empty() {
        return leaves.to_vec();
    }
    let first = (random % data.len() as u64) as usize;
    let chosen: Vec<_> = data.iter().cycle().skip(first).take(UBERBLOCK_TOPS.min(data.len())).collect();
    leaves.iter().filter(|(leaf, _)| chosen.contains(&&tree.leaf(*leaf).top)).cloned().collect()
}

/// A write to the labels counts when at least one device took it (OpenZFS: `good_writes`).
fn some_succeeded(results: &[Result<(), DeviceError>]) -> Result<(), PoolError> {
    if results.iter().any(Result::is_ok) {
        return Ok(());
    }
    let first = results.iter().find_map(|result| result.as_ref().err().copied());
    Err(PoolError::Io(first.unwrap_or(DeviceError::Io)))
}
