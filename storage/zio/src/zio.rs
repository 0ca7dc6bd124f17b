//! The pipeline as its users have it: reading, writing and freeing blocks, and what they are read and written with.

use crate::core::{Core, Earlier};
use crate::dedup::DedupTables;
use crate::feed::ResilverFeed;
use crate::host::HostLeaves;
use crate::rebuild::{self, RebuildRequest, RebuildThen};
use crate::stage::{Packed, Stage};
use crate::stats::ZioStats;
use crate::verify::block_is_right;
use crate::view::PoolView;
use crate::{
    ErrorKind, Landed, LandedThen, ReadRequest, ReadThen, UnitThen, WriteRequest, WriteThen, ZioError, free, heal, read, transform, verify,
    write,
};
use abd::{Abd, AbdPart};
use exec::{Exec, completion};
use kstat::{EventSink, IoStats};
use ondisk::{BlockPtr, Bookmark, Checksum, Txg, VdevId};
use std::ops::Range;
use std::sync::Arc;

/// The pipeline of one pool; a cheap handle.
#[derive(Clone)]
pub struct Zio {
    pub(crate) core: Arc<Core>,
}

impl std::fmt::Debug for Zio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zio").field("pool", &self.core.snapshot().view.facts.name).finish_non_exhaustive()
    }
}

impl Zio {
    /// A pipeline over the devices of `view`, telling `events` what goes wrong.
    pub fn new(exec: Exec, view: PoolView, events: Arc<dyn EventSink>) -> Zio {
        Zio { core: Core::new(exec, view, events) }
    }

    /// The executor that the pipeline runs on.
    pub fn exec(&self) -> &Exec {
        &self.core.exec
    }

    /// Has degraded reads feed a resilver, for good; false when they feed one already.
    pub fn set_feed(&self, feed: Arc<dyn ResilverFeed>) -> bool {
        self.core.feed.set(feed).is_ok()
    }

    /// Has writes that want it look up whether their block is stored already, for good; false when they do so already.
    pub fn set_dedup(&self, tables: Arc<dyn DedupTables>) -> bool {
        self.core.dedup.set(tables).is_ok()
    }

    /// The view that new I/Os use.
    pub fn view(&self) -> PoolView {
        self.core.snapshot().view.clone()
    }

    /// The pool's version, as its facts have it; 0 where nobody said.
    pub fn version(&self) -> u64 {
        self.core.snapshot().view.facts.version
    }

    /// Replaces the view; I/Os in flight finish with the one they began with.
    pub fn set_view(&self, view: PoolView) {
        self.core.set_view(view);
    }

    /// The I/Os that began with a view before the current one.
    pub fn earlier(&self) -> Earlier {
        self.core.earlier()
    }

    /// Ranges of vdevs that are being expanded of which something was written to several places, or is about to be, since the last call.
    pub fn take_shadowed(&self) -> Vec<(VdevId, Range<u64>)> {
        self.core.shadowed.take()
    }

    /// Totals of the pool.
    pub fn stats(&self) -> &ZioStats {
        &self.core.stats
    }

    /// Counters of the ways in which the pool's data is read and written; bumped by the layers that know.
    pub fn iostats(&self) -> &Arc<IoStats> {
        &self.core.iostats
    }

    /// Reads one block; `then` gets its logical bytes (or the physical ones with [`crate::ReadFlags::raw`]).
    ///
    /// Errors: `Checksum`, `Io` or `NoDevice` when no copy can be had, `Corrupt` and `Unsupported` for what cannot be decoded.
    /// With [`crate::FailMode::Wait`] a read that failed because devices are gone is held until [`Zio::resume`].
    pub fn read(&self, request: ReadRequest, then: ReadThen) {
        read::read(&self.core, request, then);
    }

    /// Reads blocks that are neighbours on their devices: their I/Os go out in one go, and then what their verification found to be
    /// repaired. Each `then` runs when its block was verified and repaired. Nobody may wait in between.
    pub fn read_together(&self, reads: Vec<(ReadRequest, ReadThen)>) {
        read::read_together(&self.core, reads);
    }

    /// Reads one block and waits.
    pub fn read_wait(&self, request: ReadRequest) -> Result<Abd, ZioError> {
        let (done, wait) = completion();
        self.read(request, Box::new(move |result| done.complete(result)));
        wait.wait(self.exec())
    }

    /// Reads one block into the caller's memory, without a copy where that is possible: an uncompressed block whose every
    /// data column comes back right. `target` are consecutive parts, as long as the block in sum; parts that nobody wants may
    /// be scratch. Errors are those of [`Zio::read`].
    ///
    /// When the target is memory that others write to and its bytes do not match the checksum, nothing is concluded about the
    /// devices: it is counted ([`Zio::dio_verify_errors`]) and the block is read again into a buffer of its own.
    pub fn read_into(&self, request: ReadRequest, target: Vec<AbdPart>, then: LandedThen) {
        read::read_into(&self.core, request, target, then);
    }

    /// True when `physical` are the bytes that `bp` points to, by its checksum; false also for a block without one.
    pub fn is_intact(&self, bp: &BlockPtr, physical: &Abd) -> bool {
        let is_checked = bp.checksum_kind() != Checksum::OFF && !bp.is_embedded() && !bp.is_hole();
        is_checked && physical.len() == bp.psize() && block_is_right(self.core.snapshot().view.facts.salt.as_deref(), bp, physical)
    }

    /// Bytes on disk of a compressed block, made of the `logical` ones that were read or written; None where they come out otherwise.
    pub fn pack_again(&self, bp: &BlockPtr, logical: &Abd) -> Option<Abd> {
        transform::pack_again(bp, logical).filter(|physical| self.is_intact(bp, physical))
    }

    /// Writes one block; `then` gets its pointer. Nothing is freed: that is up to the caller.
    ///
    /// Compression, checksum, parity and device I/O happen in a job. Errors: `NoSpace`, `ReadOnly`, `Unsupported`, and `Io` or
    /// `NoDevice` when no copy could be written (with [`crate::FailMode::Wait`] such a write is held until [`Zio::resume`]).
    pub fn write(&self, request: WriteRequest, then: WriteThen) {
        write::write(&self.core, request, then);
    }

    /// Writes blocks as [`Zio::write`] does, all of them in one job, so that neighbours on a device become one request: for small blocks.
    pub fn write_together(&self, writes: Vec<(WriteRequest, WriteThen)>) {
        write::write_together(&self.core, writes);
    }

    /// As [`Zio::write`], starting on this thread: for somebody who would wait for a job anyway.
    pub fn write_here(&self, request: WriteRequest, then: WriteThen) {
        write::write_here(&self.core, request, then);
    }

    /// Runs `work`, which must not wait: device I/Os that it starts on this thread go out when it is done, neighbours on a
    /// device as one.
    pub fn plugged(&self, work: impl FnOnce()) {
        leaf::plugged(work);
    }

    /// Writes one block and waits.
    pub fn write_wait(&self, request: WriteRequest) -> Result<BlockPtr, ZioError> {
        let (done, wait) = completion();
        self.write(request, Box::new(move |result| done.complete(result)));
        wait.wait(self.exec())
    }

    /// Writes the physical bytes of a damaged block, which came from elsewhere, to all its addresses. Whoever asks knows that it is not freed meanwhile.
    ///
    /// Errors: `Checksum` for bytes that are not the block's: nothing is written then; `Unsupported` for gangs, and for what has no checksum;
    /// `ReadOnly`; `Io` when a device did not take them.
    pub fn heal(&self, bp: &BlockPtr, bookmark: Bookmark, physical: &Abd, then: UnitThen) {
        heal::heal(&self.core, bp, bookmark, physical, then);
    }

    /// Gives the block's space back in `txg`; a gang's members too. Holes and embedded pointers cost nothing.
    ///
    /// A gang's headers are read first: [`Zio::wait_frees`] before the txg's space is counted.
    pub fn free(&self, txg: Txg, bp: &BlockPtr) {
        free::free(&self.core, txg, bp);
    }

    /// Takes the space of a block found at import that no space map knows yet (intent log; OpenZFS: `zio_claim`).
    ///
    /// Errors: `Corrupt` when the space is taken or does not exist, and those of reading a gang's headers.
    pub fn claim(&self, txg: Txg, bp: &BlockPtr, then: UnitThen) {
        free::claim(&self.core, txg, bp, then);
    }

    /// Waits until the space of every block freed so far has reached the allocator.
    pub fn wait_frees(&self) {
        self.core.pending_frees.wait(&self.core.exec);
    }

    /// Rebuilds one part of a vdev with the view as of now. Nobody may write to it meanwhile.
    pub fn rebuild(&self, request: RebuildRequest, then: RebuildThen) {
        rebuild::rebuild(&self.core, request, then);
    }

    /// The logical bytes of a block from its verified physical bytes (what a raw read delivered), from whoever has the stages. `then` runs once, at once or on any thread, and must not wait.
    ///
    /// Errors as of [`crate::decompress`].
    pub fn unpack<F>(&self, bp: &BlockPtr, bookmark: Bookmark, physical: Abd, then: F)
    where
        F: FnOnce(Result<Abd, ZioError>) + Send + 'static,
    {
        if verify::is_sealed(bp) {
            return then(Err(ZioError::new(ErrorKind::Unsupported, bookmark)));
        }
        let block = Packed { bp: *bp, physical, near: Vec::new() };
        self.core.stages.decompress(&bookmark, block, move |result| {
            then(result.map(Landed::into_abd).map_err(|kind| ZioError::new(kind, bookmark)));
        });
    }

    /// Gives the stages of the pipeline to somebody, or, with None, back to software; blocks on their way end as they began. Where he is to write to
    /// devices by himself, [`Zio::open_stores`] comes next.
    pub fn set_stage(&self, stage: Option<Arc<dyn Stage>>) {
        self.core.stages.set(stage);
    }

    /// Opens the devices of the current view for writes past the host, where whoever has the stages is asked for them and able to; those that he does
    /// not open, or that come later, are written by the host. Waits: for operations only.
    pub fn open_stores(&self) {
        if let Some(stage) = self.core.stages.get() {
            stage.open_stores(&self.view(), HostLeaves::of(&self.core));
        }
    }
}
