//! The expansions' part of a txg's sync: they begin, move a part, and end (OpenZFS: `raidz_reflow_scratch_sync`, `raidz_reflow_sync`,
//! `raidz_reflow_complete_sync`).
//!
//! Writes of blocks go on while sectors are moved. Before a window is moved, all that is written of it goes to both places ([`vdev::Reflow::set_next`]), and
//! every I/O that was planned before that is done. What is written meanwhile may be overtaken by what was read before it: so the window's parts of which
//! something was written are moved again, until there are none.

use super::carry::{Site, carry};
use super::run::{Expansions, Phys, is_whole};
use crate::PoolError;
use crate::spa::Spa;
use crate::spa::features::RAIDZ_EXPANSION;
use crate::sync::changes::Edited;
use crate::sync::step::{SyncStep, Syncing};
use crate::sync::tree::TreeWriter;
use device::DeviceError;
use dmu::Tx;
use ondisk::names::top_zap;
use ondisk::{Txg, VdevId, reflow_state, scan_state};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::{BOOT_BYTES, LeafId, Reflow, Scratch, TopVdev, VdevTree};
use zap::{Value, Zap, ZapError};

/// Nanoseconds that a txg's part may take, about: whoever waits for the txg waits as long.
const STEP_NS: u64 = 500_000_000;
/// Bytes of the vdev's space that are moved together at most, all of which are in memory then.
const PIECE_BYTES: u64 = 16 << 20;
/// Windows have so many bytes at most.
const WINDOW_BYTES: u64 = 64 << 20;
/// Txgs after the one in which an expansion ends, of which somebody may be writing (OpenZFS: `TXG_CONCURRENT_STATES`).
const CONCURRENT_TXGS: u64 = 3;

/// The expansions' place in the sync, behind everything that frees.
pub(crate) struct ExpandStep {
    expansions: Arc<Expansions>,
    spa: Arc<Spa>,
    tree: Arc<TreeWriter>,
    /// Bytes of the vdev's space that were moved, with those of this txg.
    moved: u64,
    /// True when the last try failed: that was told.
    has_failed: bool,
}

/// Part of the work, as of one txg.
struct Work<'a> {
    tree: &'a VdevTree,
    top: &'a TopVdev,
    reflow: &'a Reflow,
}

impl SyncStep for ExpandStep {
    fn name(&self) -> &'static str {
        "expansion of a vdev"
    }

    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let tree = self.spa.tree();
        let Some((top, reflow)) = tree.tops.iter().find_map(|top| Some((top, top.widths.reflow.clone()?))) else { return Ok(()) };
        let (state, synced) = {
            let config = self.spa.config.lock();
            (config.uberblock.raidz_reflow_state(), config.uberblock.raidz_reflow_offset())
        };
        settle(&reflow, state, synced);
        if self.expansions.phys(top.id).state != scan_state::SCANNING {
            return self.begin(top, at);
        }
        if state != reflow_state::SCRATCH_VALID && synced >= end_of(top) {
            return self.complete(top, at);
        }
        if self.expansions.is_paused(&tree, top) || !self.spa.zio().may_write() {
            return Ok(());
        }
        let work = Work { tree: &tree, top, reflow: &reflow };
        // What was not written down counts as not moved.
        self.moved = synced;
        let done = match (state, synced) {
            (reflow_state::SCRATCH_VALID, _) => self.overwrite(&work),
            (_, 0) => self.fill(&work),
            _ => self.go_on(&work, synced),
        };
        let was_failing = std::mem::replace(&mut self.has_failed, done.is_err());
        match done {
            Ok(bytes) if bytes > 0 => self.count(top.id, bytes, at.tx),
            Ok(_) => {
                // The txg is to be written, and its uberblock with it.
                let zap = Zap::hold(&self.spa.mos, top.zap)?;
                zap.update(top_zap::RAIDZ_EXPAND_STATE, &Value::U64(vec![scan_state::SCANNING]), at.tx)?;
                Ok(())
            }
            Err(error) => {
                if !was_failing {
                    let text = format!("offset={} failed_offset={}", reflow.next(), self.moved);
                    self.spa.services.log_internal("reflow pause", &text, at.tx);
                }
                tracing::warn!("expansion of vdev {}: {error}; it goes on when all devices are whole", top.id);
                self.expansions.put_off();
                Ok(())
            }
        }
    }
}

/// Goes on by what the uberblock on disk says.
fn settle(reflow: &Reflow, state: u16, synced: u64) {
    if state == reflow_state::SCRATCH_VALID {
        reflow.set_scratch(Scratch::Valid);
    } else if reflow.scratch() == Scratch::Valid {
        reflow.set_scratch(Scratch::Unused);
    }
    if synced > reflow.synced() {
        reflow.set_synced(synced);
    }
}

/// Bytes of the vdev's space that are moved: its metaslabs.
fn end_of(top: &TopVdev) -> u64 {
    top.metaslab_count() << top.ms_shift
}

/// Bytes of the vdev's space that are moved by way of the boot area.
fn scratch_bytes(top: &TopVdev) -> u64 {
    (BOOT_BYTES >> top.ashift << top.ashift) * top.columns() as u64
}

impl ExpandStep {
    /// Makes the step, which makes changes of the tree by `tree`.
    pub fn new(expansions: Arc<Expansions>, spa: Arc<Spa>, tree: Arc<TreeWriter>) -> ExpandStep {
        ExpandStep { expansions, spa, tree, moved: 0, has_failed: false }
    }

    fn now(&self) -> u64 {
        self.spa.exec().wall_clock().0 as u64
    }

    /// Has the uberblock of this txg say how far it is, if all devices of the vdev flush.
    fn propose(&self, state: u16, offset: u64) {
        self.spa.config.lock().reflow = Some((state, offset));
    }

    /// Waits until everything is done that was planned before now.
    fn fence(&self) {
        {
            let config = self.spa.config.lock();
            self.spa.publish(&config);
        }
        self.spa.zio().wait_retired();
    }

    /// Writes down that an expansion began (OpenZFS: `vdev_raidz_attach_sync`).
    fn begin(&mut self, top: &TopVdev, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let tx = at.tx;
        self.spa.services.features.add(RAIDZ_EXPANSION, 1, tx)?;
        let phys = Phys { state: scan_state::SCANNING, start_time: self.now(), ..Phys::default() };
        let zap = Zap::hold(&self.spa.mos, top.zap)?;
        zap.update(top_zap::RAIDZ_EXPAND_STATE, &Value::U64(vec![phys.state]), tx)?;
        zap.update(top_zap::RAIDZ_EXPAND_START_TIME, &Value::U64(vec![phys.start_time]), tx)?;
        for name in [top_zap::RAIDZ_EXPAND_END_TIME, top_zap::RAIDZ_EXPAND_BYTES_COPIED] {
            match zap.remove(name, tx) {
                Ok(()) | Err(ZapError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.moved = 0;
        self.propose(reflow_state::SCRATCH_NOT_IN_USE, 0);
        self.expansions.set_phys(top.id, phys);
        self.log("raidz vdev expansion started", top, tx);
        Ok(())
    }

    fn log(&self, what: &str, top: &TopVdev, tx: &Tx) {
        let text = format!("{} vdev {} new width {}", self.spa.name(), top.id.0, top.columns());
        self.spa.services.log_internal(what, &text, tx);
    }

    fn count(&self, vdev: VdevId, bytes: u64, tx: &Tx) -> Result<(), PoolError> {
        let phys = self.expansions.phys(vdev);
        let phys = Phys { copied: phys.copied + bytes, ..phys };
        let tree = self.spa.tree();
        let Some(top) = tree.top(vdev) else { return Ok(()) };
        Zap::hold(&self.spa.mos, top.zap)?.update(top_zap::RAIDZ_EXPAND_BYTES_COPIED, &Value::U64(vec![phys.copied]), tx)?;
        self.expansions.set_phys(vdev, phys);
        Ok(())
    }

    /// Copies the first part to the boot area.
    fn fill(&mut self, work: &Work<'_>) -> Result<u64, DeviceError> {
        let bytes = scratch_bytes(work.top);
        work.reflow.set_scratch(Scratch::Filling);
        work.reflow.set_next(bytes);
        self.spa.zio().take_shadowed();
        self.fence();
        let all = 0..bytes;
        self.carry_all(work, &[all], (Site::Old, Site::Scratch))?;
        self.propose(reflow_state::SCRATCH_VALID, bytes);
        Ok(0)
    }

    /// Copies the first part from the boot area to its new place: the uberblock on disk says that it is read there.
    fn overwrite(&mut self, work: &Work<'_>) -> Result<u64, DeviceError> {
        let bytes = work.reflow.synced();
        self.spa.zio().take_shadowed();
        self.fence();
        let all = 0..bytes;
        self.carry_all(work, &[all], (Site::Scratch, Site::New))?;
        self.propose(reflow_state::SCRATCH_INVALID_SYNCED, bytes);
        Ok(0)
    }

    /// Moves what follows, up to where a place would be overwritten from which something is read; gives the bytes that were moved.
    fn go_on(&mut self, work: &Work<'_>, synced: u64) -> Result<u64, DeviceError> {
        let (top, ashift) = (work.top, work.top.ashift);
        let (sector, old) = (synced >> ashift, top.columns() as u64 - 1);
        let limit = ((sector + sector / old).saturating_sub(old) << ashift).min(end_of(top));
        let begun_ns = self.spa.exec().now_ns();
        let mut bytes = 0;
        while self.moved < limit && self.spa.exec().now_ns().saturating_sub(begun_ns) < STEP_NS {
            let metaslab = (self.moved >> top.ms_shift) as u32;
            let window = self.window_bytes(top, bytes);
            if window == 0 {
                break;
            }
            let stop = ((u64::from(metaslab) + 1) << top.ms_shift).min(self.moved + window).min(limit);
            work.reflow.set_next(stop);
            self.spa.zio().take_shadowed();
            self.fence();
            let within = |range: Range<u64>| range.start.max(self.moved)..range.end.min(stop);
            let occupied = self.spa.services.allocator.occupied(top.id, metaslab).into_iter().map(within);
            let ranges: Vec<Range<u64>> = occupied.filter(|range| !range.is_empty()).collect();
            match self.carry_all(work, &ranges, (Site::Old, Site::New)) {
                Ok(()) => {}
                // What was moved before is as good as ever.
                Err(error) if bytes == 0 => return Err(error),
                Err(_) => break,
            }
            bytes += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            self.moved = stop;
        }
        self.propose(reflow_state::SCRATCH_INVALID_SYNCED_REFLOW, self.moved);
        Ok(bytes)
    }

    /// Bytes of the next window, a whole number of sectors; 0 when no more may be moved.
    fn window_bytes(&self, top: &TopVdev, bytes: u64) -> u64 {
        let parameters = &self.expansions.parameters;
        let copied = self.expansions.phys(top.id).copied + bytes;
        let left = match parameters.reflow_bytes_max.load(Ordering::Relaxed) {
            0 => u64::MAX,
            most => most.saturating_sub(copied),
        };
        if left == 0 {
            return 0;
        }
        let window = parameters.copy_bytes_max.load(Ordering::Relaxed).min(WINDOW_BYTES).min(left);
        (window >> top.ashift).max(1) << top.ashift
    }

    /// Moves ranges, and again what of them was written meanwhile, until nothing was.
    fn carry_all(&self, work: &Work<'_>, ranges: &[Range<u64>], way: (Site, Site)) -> Result<(), DeviceError> {
        let zio = self.spa.zio();
        let mut left = ranges.to_vec();
        while !left.is_empty() {
            for range in &left {
                self.carry(work, range, way)?;
            }
            // Until here writes may have been planned that were not noted when it was looked.
            self.fence();
            let written = zio.take_shadowed();
            let of_vdev = written.iter().filter(|(vdev, _)| *vdev == work.top.id).map(|(_, range)| range);
            let both = |range: &Range<u64>| left.iter().map(|of| of.start.max(range.start)..of.end.min(range.end)).collect::<Vec<_>>();
            let again: Vec<Range<u64>> = of_vdev.flat_map(both).filter(|range| !range.is_empty()).collect();
            left = again;
        }
        // A device that did not take a write of a block is known to lack it only now.
        let tree = self.spa.tree();
        let lacks = |id: LeafId| zio.is_noted_missing(tree.leaf(id).guid);
        let is_sound = tree.top(work.top.id).is_some_and(|top| is_whole(&tree, top) && !top.leaves().any(lacks));
        if is_sound { Ok(()) } else { Err(DeviceError::Gone) }
    }

    fn carry(&self, work: &Work<'_>, range: &Range<u64>, way: (Site, Site)) -> Result<(), DeviceError> {
        let ashift = work.top.ashift;
        let mut start = range.start >> ashift;
        let end = range.end >> ashift;
        while start < end {
            let stop = end.min(start + (PIECE_BYTES >> ashift));
            carry(self.spa.zio(), (work.tree, work.top), &(start..stop), way)?;
            start = stop;
        }
        Ok(())
    }

    /// Writes down that everything was moved (OpenZFS: `raidz_reflow_complete_sync`), and lets the vdev use what its devices have.
    fn complete(&mut self, top: &TopVdev, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        let phys = Phys { state: scan_state::FINISHED, end_time: self.now(), ..self.expansions.phys(top.id) };
        let devices = self.spa.config.lock().devices.clone();
        let bytes = |id: LeafId| vdev::leaf_asize(devices.get(id.0 as usize)?.as_ref()?.size_bytes());
        let next = self.spa.tree().with_expanded_raidz(top.id, Txg(at.tx.txg().0 + CONCURRENT_TXGS));
        let next = next.expanded(Some(top.id), &bytes).unwrap_or(next);
        self.tree.take_edit(Edited { tree: next.into(), ..Edited::default() }, at.maps, at.tx)?;
        let zap = Zap::hold(&self.spa.mos, top.zap)?;
        zap.update(top_zap::RAIDZ_EXPAND_STATE, &Value::U64(vec![phys.state]), at.tx)?;
        zap.update(top_zap::RAIDZ_EXPAND_END_TIME, &Value::U64(vec![phys.end_time]), at.tx)?;
        self.propose(reflow_state::SCRATCH_NOT_IN_USE, 0);
        self.moved = 0;
        self.log("raidz vdev expansion completed", top, at.tx);
        self.expansions.set_phys(top.id, phys);
        self.spa.notify("sysevent.fs.zfs.vdev_autoexpand", None);
        Ok(())
    }
}
