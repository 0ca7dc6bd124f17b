//! Whose stages a pool's blocks go through: software's, or those of somebody who was given to it; and which blocks may leave the host at all.

use crate::software::Software;
use crate::stage::{FirstRound, Packed, Stage};
use crate::view::PoolView;
use crate::{ErrorKind, Landed, WriteRequest};
use exec::RwLock;
use ondisk::{BlockPtr, Bookmark, Compression, ObjectType, ObjsetId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vdev::{ComputedRow, LostRow};

/// True for blocks that may leave the host: contents of files and volumes. What the pool and its file systems consist of stays.
pub(crate) fn may_leave(bookmark: &Bookmark, level: u8, kind: ObjectType) -> bool {
    bookmark.objset != ObjsetId(0) && level == 0 && !kind.is_metadata()
}

/// The stages of a pool. Where nobody was given any, asking costs one relaxed load.
#[derive(Default)]
pub(crate) struct Stages {
    is_set: AtomicBool,
    stage: RwLock<Option<Arc<dyn Stage>>>,
}

impl Stages {
    /// Gives the stages to somebody, or back to software; blocks on their way end as they began.
    pub(crate) fn set(&self, stage: Option<Arc<dyn Stage>>) {
        let mut current = self.stage.write();
        self.is_set.store(stage.is_some(), Ordering::Relaxed);
        *current = stage;
    }

    /// Stage that has them, if it is not software.
    pub(crate) fn get(&self) -> Option<Arc<dyn Stage>> {
        if self.is_set.load(Ordering::Relaxed) { self.stage.read().clone() } else { None }
    }

    /// First round of a write, by whoever computes its stages.
    pub(crate) fn write(&self, view: &PoolView, request: &WriteRequest) -> Box<dyn FirstRound> {
        let leaves = request.seal.is_none() && may_leave(&request.bookmark, request.level, request.object_type);
        let stage = if leaves { self.get() } else { None };
        stage.and_then(|stage| stage.write(view, request)).unwrap_or_else(|| Box::new(Software))
    }

    /// Delivers the logical bytes of a block that was verified.
    pub(crate) fn decompress<F>(&self, bookmark: &Bookmark, block: Packed, then: F)
    where
        F: FnOnce(Result<Landed, ErrorKind>) + Send + 'static,
    {
        let bp = &block.bp;
        let is_hosts = bp.compression() == Compression::OFF || !may_leave(bookmark, bp.level(), bp.object_type());
        let answer = match if is_hosts { None } else { self.get() } {
            Some(stage) => stage.decompress(block),
            None => Software.decompress(block),
        };
        answer.then(then);
    }

    /// True when lost columns are computed by somebody else than the vdev.
    pub(crate) fn reconstructs(&self) -> bool {
        self.get().is_some_and(|stage| stage.reconstructs())
    }

    /// Computes what rows lack whose block nobody knows, or whose data are all there: no checksum will judge it. `then` gets the rows that went well.
    pub(crate) fn solve<F>(&self, rows: Vec<LostRow>, then: F)
    where
        F: FnOnce(Vec<ComputedRow>) + Send + 'static,
    {
        self.reconstruct(rows, false, then);
    }

    /// Computes the lost columns of the rows of one block, whose checksum will judge its data, but not its parity.
    pub(crate) fn solve_block<F>(&self, bookmark: &Bookmark, bp: &BlockPtr, rows: Vec<LostRow>, then: F)
    where
        F: FnOnce(Vec<ComputedRow>) + Send + 'static,
    {
        if !may_leave(bookmark, bp.level(), bp.object_type()) {
            return then(Vec::new());
        }
        let is_judged = rows.iter().all(|row| row.wanted_parity.is_empty());
        self.reconstruct(rows, is_judged, then);
    }

    fn reconstruct<F>(&self, rows: Vec<LostRow>, judged: bool, then: F)
    where
        F: FnOnce(Vec<ComputedRow>) + Send + 'static,
    {
        match self.get().filter(|_| !rows.is_empty()) {
            Some(stage) => stage.reconstruct(rows, judged).then(then),
            None => then(Vec::new()),
        }
    }
}
