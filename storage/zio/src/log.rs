//! Blocks of intent logs: room for them, their writes, and the flush of what blocks lie on (OpenZFS: `zio_alloc_zil`, `zil_lwb_flush_vdevs_done`).
//!
//! Whoever writes a log waits for it and has another way when it fails: nothing here is tried again, held or made a gang.

use crate::batch::{self, BatchOptions, LeafOp, LeafResult};
use crate::snapshot::Snapshot;
use crate::store::{MadeParity, Store, plan, write_all};
use crate::{ErrorKind, Priority, UnitThen, Zio, ZioError};
use abd::Abd;
use device::{DeviceError, DeviceOp};
use exec::TaskClass;
use kernels::checksum::{Verifier, embed, embed_half};
use leaf::FailedIo;
use metaslab::AllocRequest;
use ondisk::{BlockPtr, Bookmark, Dva, Txg, VdevId};
use std::collections::BTreeSet;
use vdev::{LeafId, TopVdev, WritePlan};
use vdev_queue::IoKind;

/// Unit of a log block's write in bytes: its checksum covers whole ones.
const UNIT_BYTES: usize = 4096;

/// Room for a log block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRoom {
    /// Address of the block.
    pub dva: Dva,
    /// True on a vdev that is for logs alone.
    pub is_separate: bool,
}

/// The pipeline of a pool as those see it who write its intent logs.
#[derive(Clone, Copy, Debug)]
pub struct LogBlocks<'a>(pub &'a Zio);

impl LogBlocks<'_> {
    /// Room for a block of so many bytes in one piece (OpenZFS: `zio_alloc_zil`): on a log vdev that works where there is one and these are not spared,
    /// else where data vdevs set something aside for logs, else among data; blocks of logs with other hints may go elsewhere. Among data it is had
    /// only as long as no more than `most` bytes of the data vdevs are taken then.
    ///
    /// # Errors
    /// `NoSpace`, and `ReadOnly` for a pool that is not written.
    pub fn allocate(&self, (txg, hint): (Txg, u64), bytes: usize, spares_log_devices: bool, most: u64) -> Result<LogRoom, ErrorKind> {
        let view = &self.0.core.snapshot().view;
        if !view.facts.writeable {
            return Err(ErrorKind::ReadOnly);
        }
        let request = AllocRequest { psize: bytes as u64, copies: 1, txg, hint };
        let works = |top: &TopVdev| view.tree.lost_slots(top) <= top.parity();
        let logs = view.tree.tops.iter().filter(|top| top.is_log && top.is_concrete());
        let (all, any_works) = logs.fold((0, false), |(all, any), top| (all + 1, any || works(top)));
        // Each is asked in its turn: a dead one only passes it on.
        for _ in 0..if any_works && !spares_log_devices { all } else { 0 } {
            let Ok([dva, ..]) = view.allocator.alloc_log(&request) else { break };
            if view.tree.top(dva.vdev).is_some_and(works) {
                return Ok(LogRoom { dva, is_separate: true });
            }
            view.allocator.unalloc(txg, &dva);
        }
        if let Ok([dva, ..]) = view.allocator.alloc_embedded_log(&request) {
            return Ok(LogRoom { dva, is_separate: false });
        }
        let class = view.allocator.class_space();
        let taken = class.deflated_allocated.saturating_add(class.deflated_elsewhere);
        if taken.saturating_add(view.allocator.worst_dsize(bytes as u64)) > most {
            return Err(ErrorKind::NoSpace);
        }
        let [dva, ..] = view.allocator.alloc(&request).map_err(|_| ErrorKind::NoSpace)?;
        Ok(LogRoom { dva, is_separate: false })
    }

    /// Writes a block of which `used` bytes count, after its checksum was put in; gives the number of bytes that the devices get. `then` gets an error when
    /// no copy of it is on a device.
    pub fn write(&self, bp: &BlockPtr, bookmark: Bookmark, mut block: Vec<u8>, used: usize, then: UnitThen) -> usize {
        let (core, snapshot) = (&self.0.core, self.0.core.snapshot());
        let fail = move |kind| ZioError::new(kind, bookmark);
        if core.keeps_writes_back() {
            then(Err(fail(ErrorKind::Suspended)));
            return 0;
        }
        let Some(top) = snapshot.view.tree.top(bp.dva(0).vdev) else {
            then(Err(fail(ErrorKind::NoDevice)));
            return 0;
        };
        if block.len() != bp.psize() || !put_sum(bp, &mut block) {
            then(Err(fail(ErrorKind::Corrupt)));
            return 0;
        }
        // Columns of RAID-Z follow from the length of the whole block.
        let length = if top.parity() == 0 { used.next_multiple_of(UNIT_BYTES).min(block.len()) } else { block.len() };
        let stores = [Store { data: Abd::from_slice(&block[..length]), dvas: [bp.dva(0), Dva::default(), Dva::default()] }];
        let (planned, _) = plan((core, &snapshot), (&stores, bp.birth()), false, &MadeParity { columns: &[], is_trusted: false });
        let done = move |result: Result<(), ErrorKind>| then(result.map_err(fail));
        write_all(core, &snapshot, (bp.birth(), Priority::SyncWrite), planned, done);
        length
    }

    /// Writes a block as [`LogBlocks::write`] does, and makes it durable, on this thread, which waits for the device; gives the number of bytes that
    /// the device gets, and the outcome. None where a block lies on more than one leaf, or its leaf has no such way: then it is written and
    /// flushed.
    pub fn write_durably(&self, bp: &BlockPtr, bookmark: Bookmark, block: &mut [u8], used: usize) -> Option<(usize, Result<(), ZioError>)> {
        let (core, snapshot) = (&self.0.core, self.0.core.snapshot());
        if core.keeps_writes_back() {
            return Some((0, Err(ZioError::new(ErrorKind::Suspended, bookmark))));
        }
        let top = snapshot.view.tree.top(bp.dva(0).vdev)?;
        let length = used.next_multiple_of(UNIT_BYTES).min(block.len());
        let plan = WritePlan::new(&snapshot.view.tree, top, bp.dva(0).offset, length, bp.birth());
        let [io] = &plan.ios[..] else { return None };
        let is_other = top.parity() > 0 || !plan.skipped.is_empty() || plan.length != length || block.len() != bp.psize();
        if is_other || !put_sum(bp, block) {
            return None;
        }
        let (leaf, planned_ns) = (io.leaf, core.exec.now_ns());
        let result = snapshot.leaf(leaf)?.write_durably(io.offset, &Abd::from_slice(&block[..length]), planned_ns)?;
        let outcome = result.map_err(|error| {
            let class = Priority::SyncWrite.class(IoKind::Write);
            let io = FailedIo { kind: IoKind::Write, class, offset: io.offset, bytes: length as u64 };
            core.leaf_failed(&snapshot, leaf, &io, error);
            core.note_missing(&snapshot, leaf, bp.birth());
            // What others wrote may be lost as well, and a flush that comes after this one need not say so.
            core.lacking.note_unflushed(std::iter::once(snapshot.guid(leaf)));
            ZioError::new(if error == DeviceError::Gone { ErrorKind::NoDevice } else { ErrorKind::Io }, bookmark)
        });
        Some((length, outcome))
    }

    /// Makes durable what was written to the vdevs that these blocks lie on; `then` gets an error when one of them has more leaves that did not flush
    /// than it can lose.
    pub fn flush(&self, blocks: &[BlockPtr], then: UnitThen) {
        let snapshot = self.0.core.snapshot();
        let tops: BTreeSet<VdevId> = blocks.iter().flat_map(|bp| bp.dvas()).map(|dva| dva.vdev).collect();
        let is_meant = |leaf: &LeafId| tops.contains(&snapshot.view.tree.leaf(*leaf).top);
        let leaves: Vec<LeafId> = snapshot.open_leaves().into_iter().filter(is_meant).collect();
        let ops = leaves.iter().map(|&leaf| LeafOp { leaf, offset: 0, op: DeviceOp::Flush }).collect();
        let options = BatchOptions { class: TaskClass::Interrupt, priority: Priority::SyncWrite, speculative: false };
        let (owner, view) = (self.0.core.clone(), snapshot.clone());
        batch::issue(&self.0.core, &snapshot, options, ops, move |results| {
            let flushed = |result: &LeafResult| matches!(result, Ok(_) | Err(DeviceError::Unsupported));
            let (good, bad): (Vec<_>, Vec<_>) = leaves.into_iter().zip(results).partition(|(_, result)| flushed(result));
            owner.lacking.note_unflushed(bad.iter().map(|(leaf, _)| view.guid(*leaf)));
            let good: BTreeSet<LeafId> = good.into_iter().map(|(leaf, _)| leaf).collect();
            let is_durable = tops.iter().all(|top| is_durable(&view, *top, &good));
            then(if is_durable { Ok(()) } else { Err(ZioError::new(ErrorKind::Io, Bookmark::default())) });
        });
    }
}

/// Puts its checksum into a block; one of an encrypted dataset has its MAC in the place of half of it. False for what is no log block.
fn put_sum(bp: &BlockPtr, block: &mut [u8]) -> bool {
    let embed = if bp.uses_crypt() { embed_half } else { embed };
    embed(bp.checksum_kind(), block, Verifier::log_block(bp.checksum())).is_ok()
}

/// True when what was written to a vdev can be read back from the leaves that flushed.
fn is_durable(snapshot: &Snapshot, top: VdevId, flushed: &BTreeSet<LeafId>) -> bool {
    let Some(top) = snapshot.view.tree.top(top) else { return false };
    let dead = top.slots.iter().filter(|slot| !slot.is_empty() && !slot.iter().any(|leaf| flushed.contains(leaf))).count();
    dead <= top.parity()
}
