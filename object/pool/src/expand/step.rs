//! The expansions' part of a txg's sync: they begin, move a part, and end (OpenZFS: `raidz_reflow_scratch_sync`, `raidz_reflow_sync`,
//! `raidz_reflow_complete_sync`).
//!
//! Reads and writes of blocks go on while sectors are moved, so that a window takes some steps ([`Stage`]), between which every I/O that was planned before
//! the last one has to end. None of them is waited for longer than a moment: the next txg looks again.
//! ```text
//!  Closed ──► Settled ──────────────► Open ────────────────► moved ──nothing was written──► the uberblock tells
//!             none reads or writes    all is written to       │  ▲
//!             by the last uberblock   both places             ▼  │ once more, when those writes are done
//!                                                            Again
//! ```
//! What is written while a window is moved may be overtaken by what was read before it: such parts are moved again, until there are none.

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
use ondisk::{Txg, reflow_state, scan_state};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::{BOOT_BYTES, LeafId, Reflow, Scratch, TopVdev, VdevTree};
use zap::{Value, Zap, ZapError};
use zio::Earlier;

/// Nanoseconds that a txg's part may take, about: whoever waits for the txg waits as long.
const STEP_NS: u64 = 500_000_000;
/// Bytes of the vdev's space that are moved together at most, all of which are in memory then.
const PIECE_BYTES: u64 = 16 << 20;
/// Windows have so many bytes at most: what is written of one is written twice until it was moved.
const WINDOW_BYTES: u64 = 256 << 20;
/// Looks whether earlier I/Os are done before it is left to the next txg, and nanoseconds between them.
const LOOKS: usize = 20;
const LOOK_NS: u64 = 1_000_000;
/// Steps of a window in a txg at most: whoever writes the same part again and again does not keep the sync from ending.
const STEPS_MAX: usize = 16;
/// Txgs after the one in which an expansion ends, of which somebody may be writing (OpenZFS: `TXG_CONCURRENT_STATES`).
const CONCURRENT_TXGS: u64 = 3;

/// The expansions' place in the sync, behind everything that frees.
pub(crate) struct ExpandStep {
    expansions: Arc<Expansions>,
    spa: Arc<Spa>,
    tree: Arc<TreeWriter>,
    stage: Stage,
    /// End of what of the window was moved, in bytes of the vdev's space; and bytes of it that were copied.
    moved: u64,
    copied: u64,
    /// True when the last try failed: that was told.
    has_failed: bool,
}

/// State of a window; each step begins when the I/Os are done that are earlier than the stage.
#[derive(Debug, Default)]
enum Stage {
    /// Nothing was done since the uberblock.
    #[default]
    Closed,
    /// All that begins goes by the uberblock on disk.
    Settled(Earlier),
    /// Writes go to both places.
    Open(Earlier),
    /// Moved, and these parts were written meanwhile.
    Again(Earlier, Vec<Range<u64>>),
}

/// Parts of an expansion, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Copies the first part to the boot area.
    Fill,
    /// Copies it from there to its new place: the uberblock on disk says that it is read there.
    Overwrite,
    /// Moves what follows.
    Move,
}

impl Phase {
    fn way(self) -> (Site, Site) {
        match self {
            Phase::Fill => (Site::Old, Site::Scratch),
            Phase::Overwrite => (Site::Scratch, Site::New),
            Phase::Move => (Site::Old, Site::New),
        }
    }

    /// State that the uberblock tells afterwards.
    fn state(self) -> u16 {
        match self {
            Phase::Fill => reflow_state::SCRATCH_VALID,
            Phase::Overwrite => reflow_state::SCRATCH_INVALID_SYNCED,
            Phase::Move => reflow_state::SCRATCH_INVALID_SYNCED_REFLOW,
        }
    }
}

/// Part of the work, as of one txg.
struct Work<'a> {
    tree: &'a VdevTree,
    top: &'a TopVdev,
    reflow: &'a Reflow,
    phase: Phase,
    /// The window, in bytes of the vdev's space.
    window: Range<u64>,
}

impl<'a> Work<'a> {
    fn new(tree: &'a VdevTree, top: &'a TopVdev, reflow: &'a Reflow, (state, synced): (u16, u64)) -> Work<'a> {
        let (phase, window) = match (state, synced) {
            (reflow_state::SCRATCH_VALID, _) => (Phase::Overwrite, 0..synced),
            (_, 0) => (Phase::Fill, 0..scratch_bytes(top)),
            _ => (Phase::Move, synced..limit(top, synced).min(synced + WINDOW_BYTES)),
        };
        Work { tree, top, reflow, phase, window }
    }
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
        // An uberblock that tells of one knows better than a state that could not be read.
        if self.expansions.phys(top.id).state != scan_state::SCANNING && (state, synced) == (reflow_state::SCRATCH_NOT_IN_USE, 0) {
            return self.begin(top, at);
        }
        if settle(&reflow, (state, synced), end_of(top)) {
            self.stage = Stage::Closed;
        }
        if reflow.synced() == u64::MAX {
            return self.complete(top, at);
        }
        if self.expansions.is_paused(&tree, top) || !self.spa.zio().may_write() {
            // Devices may be others when it goes on: the window is moved anew.
            self.stage = Stage::Closed;
            return Ok(());
        }
        let done = self.advance(&Work::new(&tree, top, &reflow, (state, synced)));
        let was_failing = std::mem::replace(&mut self.has_failed, done.is_err());
        match done {
            // Something is still under way: the next txg looks again.
            Ok(false) => Ok(()),
            Ok(true) => self.count(top, at.tx),
            Err(error) => {
                if !was_failing {
                    let text = format!("offset={} failed_offset={synced}", reflow.next());
                    self.spa.services.log_internal("reflow pause", &text, at.tx);
                }
                tracing::warn!("expansion of vdev {}: {error}; it goes on when all devices are whole", top.id);
                self.expansions.put_off();
                Ok(())
            }
        }
    }
}

/// Goes on by what the uberblock on disk says; true when that is something new. At the `end` everything counts as moved, also last rows that would be
/// longer than the space.
fn settle(reflow: &Reflow, (state, synced): (u16, u64), end: u64) -> bool {
    let before = (reflow.scratch(), reflow.synced());
    if state == reflow_state::SCRATCH_VALID {
        if reflow.scratch() != Scratch::Leaving {
            reflow.set_scratch(Scratch::Valid);
        }
    } else if matches!(reflow.scratch(), Scratch::Valid | Scratch::Leaving) {
        reflow.set_scratch(Scratch::Unused);
    }
    let synced = if synced >= end && state != reflow_state::SCRATCH_VALID { u64::MAX } else { synced };
    if synced > reflow.synced() {
        reflow.set_synced(synced);
    }
    before != (reflow.scratch(), reflow.synced())
}

/// Bytes of the vdev's space that are moved: its metaslabs.
fn end_of(top: &TopVdev) -> u64 {
    top.metaslab_count() << top.ms_shift
}

/// Bytes of the vdev's space that are moved by way of the boot area.
fn scratch_bytes(top: &TopVdev) -> u64 {
    (BOOT_BYTES >> top.ashift << top.ashift) * top.columns() as u64
}

/// End of what may be moved when `synced` bytes were: what is behind it would overwrite a row that is still read at its old place.
fn limit(top: &TopVdev, synced: u64) -> u64 {
    let (sector, old) = (synced >> top.ashift, top.columns() as u64 - 1);
    ((sector + sector / old).saturating_sub(old) << top.ashift).min(end_of(top))
}

impl ExpandStep {
    /// Makes the step, which makes changes of the tree by `tree`.
    pub fn new(expansions: Arc<Expansions>, spa: Arc<Spa>, tree: Arc<TreeWriter>) -> ExpandStep {
        ExpandStep { expansions, spa, tree, stage: Stage::Closed, moved: 0, copied: 0, has_failed: false }
    }

    fn now(&self) -> u64 {
        self.spa.exec().wall_clock().0 as u64
    }

    /// Has the uberblock of this txg say how far it is, if all devices of the vdev flush.
    fn propose(&self, state: u16, offset: u64) {
        self.spa.config.lock().reflow = Some((state, offset));
    }

    /// The I/Os that were planned before now, for who looks whether they are done.
    fn earlier(&self) -> Earlier {
        {
            let config = self.spa.config.lock();
            self.spa.publish(&config);
        }
        self.spa.zio().earlier()
    }

    /// True when the I/Os that are earlier than the stage are done, or are in a moment.
    fn may_step(&self) -> bool {
        let earlier = match &self.stage {
            Stage::Closed => return true,
            Stage::Settled(earlier) | Stage::Open(earlier) | Stage::Again(earlier, _) => earlier,
        };
        for _ in 0..LOOKS {
            if earlier.are_done() {
                return true;
            }
            self.spa.exec().sleep_ns(LOOK_NS);
        }
        earlier.are_done()
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
        self.stage = Stage::Closed;
        self.propose(reflow_state::SCRATCH_NOT_IN_USE, 0);
        self.expansions.set_phys(top.id, phys);
        self.log("raidz vdev expansion started", top, tx);
        Ok(())
    }

    fn log(&self, what: &str, top: &TopVdev, tx: &Tx) {
        let text = format!("{} vdev {} new width {}", self.spa.name(), top.id.0, top.columns());
        self.spa.services.log_internal(what, &text, tx);
    }

    /// Writes down what was copied. The txg is to be written in any case, and its uberblock with it.
    fn count(&self, top: &TopVdev, tx: &Tx) -> Result<(), PoolError> {
        let phys = self.expansions.phys(top.id);
        let phys = Phys { copied: phys.copied + self.copied, ..phys };
        let zap = Zap::hold(&self.spa.mos, top.zap)?;
        zap.update(top_zap::RAIDZ_EXPAND_BYTES_COPIED, &Value::U64(vec![phys.copied]), tx)?;
        self.expansions.set_phys(top.id, phys);
        Ok(())
    }

    /// Goes on with the window; true when the next uberblock is to tell of it.
    fn advance(&mut self, work: &Work<'_>) -> Result<bool, DeviceError> {
        for _ in 0..STEPS_MAX {
            if !self.may_step() {
                return Ok(false);
            }
            match std::mem::take(&mut self.stage) {
                Stage::Closed => self.stage = Stage::Settled(self.earlier()),
                Stage::Settled(_) => {
                    self.open(work);
                    self.stage = Stage::Open(self.earlier());
                }
                Stage::Open(_) => {
                    self.move_window(work)?;
                    if self.is_moved(work)? {
                        return Ok(true);
                    }
                }
                Stage::Again(_, ranges) => {
                    ranges.iter().try_for_each(|range| carry_all(&self.spa, work, range))?;
                    if self.is_moved(work)? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Has all that is written of the window go to both places. None reads or writes any more where the uberblock before said.
    fn open(&self, work: &Work<'_>) {
        match work.phase {
            Phase::Fill => work.reflow.set_scratch(Scratch::Filling),
            Phase::Overwrite => work.reflow.set_scratch(Scratch::Leaving),
            Phase::Move => {}
        }
        work.reflow.set_next(work.window.end);
        // What was noted before now is written before anything is moved.
        self.spa.zio().take_shadowed();
    }

    /// Moves the window, or as much of it as a txg has time for: all but what is free, where nothing is that anybody needs.
    fn move_window(&mut self, work: &Work<'_>) -> Result<(), DeviceError> {
        (self.moved, self.copied) = (work.window.start, 0);
        if work.phase != Phase::Move {
            carry_all(&self.spa, work, &work.window)?;
            self.moved = work.window.end;
            return Ok(());
        }
        let (top, begun_ns) = (work.top, self.spa.exec().now_ns());
        while self.moved < work.window.end {
            let metaslab = self.moved >> top.ms_shift;
            let end = ((metaslab + 1) << top.ms_shift).min(work.window.end);
            for range in self.spa.services.allocator.occupied(top.id, metaslab as u32) {
                let stop = range.end.min(end);
                let mut start = range.start.max(self.moved);
                while start < stop {
                    let most = self.piece_bytes(top);
                    if most == 0 || (self.copied > 0 && self.spa.exec().now_ns().saturating_sub(begun_ns) >= STEP_NS) {
                        self.moved = start;
                        return Ok(());
                    }
                    let next = stop.min(start + most);
                    if let Err(error) = carry_all(&self.spa, work, &(start..next)) {
                        self.moved = start;
                        // What was moved before is as good as ever.
                        return if self.copied == 0 { Err(error) } else { Ok(()) };
                    }
                    (self.copied, self.moved) = (self.copied + next - start, next);
                    start = next;
                }
            }
            self.moved = end;
        }
        Ok(())
    }

    /// Bytes that are moved at once, a whole number of sectors; 0 when no more may be moved.
    fn piece_bytes(&self, top: &TopVdev) -> u64 {
        let parameters = &self.expansions.parameters;
        let copied = self.expansions.phys(top.id).copied + self.copied;
        let left = match parameters.reflow_bytes_max.load(Ordering::Relaxed) {
            0 => u64::MAX,
            most => most.saturating_sub(copied),
        };
        if left == 0 {
            return 0;
        }
        let piece = parameters.copy_bytes_max.load(Ordering::Relaxed).min(PIECE_BYTES).min(left);
        (piece >> top.ashift).max(1) << top.ashift
    }

    /// True when nothing of what was moved was written meanwhile, and the uberblock is to tell of it; else that is to be moved again.
    fn is_moved(&mut self, work: &Work<'_>) -> Result<bool, DeviceError> {
        let zio = self.spa.zio();
        // Those who note something later write later, too: to both places.
        let within = |range: Range<u64>| range.start.max(work.window.start)..range.end.min(self.moved);
        let written = zio.take_shadowed().into_iter().filter(|(vdev, _)| *vdev == work.top.id).map(|(_, range)| within(range));
        let again: Vec<Range<u64>> = written.filter(|range| !range.is_empty()).collect();
        if !again.is_empty() {
            self.stage = Stage::Again(self.earlier(), again);
            return Ok(false);
        }
        // A device that did not take a write of a block is known to lack it only now.
        let tree = self.spa.tree();
        let lacks = |id: LeafId| zio.is_noted_missing(tree.leaf(id).guid);
        if !tree.top(work.top.id).is_some_and(|top| is_whole(&tree, top) && !top.leaves().any(lacks)) {
            return Err(DeviceError::Gone);
        }
        self.propose(work.phase.state(), self.moved);
        Ok(true)
    }

    /// Writes down that everything was moved (OpenZFS: `raidz_reflow_complete_sync`), and lets the vdev use what its devices have.
    fn complete(&mut self, top: &TopVdev, at: &mut Syncing<'_>) -> Result<(), PoolError> {
        if matches!(self.stage, Stage::Closed) {
            self.stage = Stage::Settled(self.earlier());
        }
        // What is written to an old place may lie where there is new space in a moment.
        if !self.may_step() {
            // Devices may have grown meanwhile: what is written there goes to its new place already.
            self.propose(reflow_state::SCRATCH_INVALID_SYNCED_REFLOW, end_of(top));
            return Ok(());
        }
        let phys = Phys { state: scan_state::FINISHED, end_time: self.now(), ..self.expansions.phys(top.id) };
        let next = {
            let config = self.spa.config.lock();
            let bytes = |id: LeafId| vdev::leaf_asize(config.devices.get(id.0 as usize)?.as_ref()?.size_bytes());
            let next = config.tree.with_expanded_raidz(top.id, Txg(at.tx.txg().0 + CONCURRENT_TXGS));
            next.expanded(Some(top.id), &bytes).unwrap_or(next)
        };
        self.tree.take_edit(Edited { tree: next.into(), ..Edited::default() }, at.maps, at.tx)?;
        let zap = Zap::hold(&self.spa.mos, top.zap)?;
        zap.update(top_zap::RAIDZ_EXPAND_STATE, &Value::U64(vec![phys.state]), at.tx)?;
        zap.update(top_zap::RAIDZ_EXPAND_END_TIME, &Value::U64(vec![phys.end_time]), at.tx)?;
        self.propose(reflow_state::SCRATCH_NOT_IN_USE, 0);
        self.stage = Stage::Closed;
        self.log("raidz vdev expansion completed", top, at.tx);
        self.expansions.set_phys(top.id, phys);
        self.spa.notify("sysevent.fs.zfs.vdev_autoexpand", None);
        Ok(())
    }
}

/// Moves a range of a window, in pieces, and waits until that is written.
fn carry_all(spa: &Spa, work: &Work<'_>, range: &Range<u64>) -> Result<(), DeviceError> {
    let ashift = work.top.ashift;
    let (mut start, end) = (range.start >> ashift, range.end >> ashift);
    while start < end {
        let stop = end.min(start + (PIECE_BYTES >> ashift));
        carry(spa.zio(), (work.tree, work.top), &(start..stop), work.phase.way())?;
        start = stop;
    }
    Ok(())
}
