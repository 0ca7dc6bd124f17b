//! What a log consists of: the blocks that are its own, whether something waits in it, and what keeps it from being replayed.

use crate::chain::{End, Limits, Visit, walk};
use crate::record::{Record, RecordError, kind_name, shared_blocks};
use dmu::BlockIo;
use ondisk::zil::{LrCommon, LrWrite, TX_CI, TxType};
use ondisk::{BlockPtr, ByteOrder, Txg, ZilHeader};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;

/// Obstacle to the replay of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A device failed: part of the log could not be read.
    Unreadable,
    /// A record asks for what this release cannot do.
    Unsupported {
        /// Number of the record.
        seq: u64,
        /// Operation of the record.
        kind: TxType,
        /// Description of what cannot be done.
        what: &'static str,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Unreadable => f.write_str("part of it cannot be read"),
            Obstacle::Unsupported { seq, kind, what } => write!(f, "record {seq} ({}) has {what}", kind_name(*kind)),
        }
    }
}

/// Contents of a dataset's intent log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntentLog {
    /// Allocated blocks that belong to the log alone.
    pub blocks: Vec<BlockPtr>,
    /// True when the log has records that were not replayed, or may have: part of it could not be read.
    pub is_pending: bool,
    /// First obstacle to a replay of what is pending. That of an encrypted log, read without its key, means nothing unless it is unreadable.
    pub obstacle: Option<Obstacle>,
    /// Block that could not be read, where a device failed.
    pub unreadable: Option<BlockPtr>,
    /// Txg of the first block of the chain that the space maps do not know; None when they know all that were looked at.
    pub first_unknown: Option<Txg>,
}

/// Gatherer of the contents.
struct Gather {
    log: IntentLog,
    limits: Limits,
    /// Data blocks that were seen, by their first address.
    written: BTreeSet<[u64; 2]>,
    /// Last block of the chain that was looked at.
    last: Option<BlockPtr>,
}

impl IntentLog {
    /// Reads the log of the object set with this number; `synced` is the last txg on disk when the pool was opened, or else the one that the root on
    /// disk is of.
    pub fn read(io: &dyn BlockIo, header: &ZilHeader, objset: u64, synced: Txg) -> IntentLog {
        let mut gather = Gather { log: IntentLog::default(), limits: Limits::of(header, synced), written: BTreeSet::new(), last: None };
        let walked = walk(io, header, objset, synced, &mut gather);
        let mut log = gather.log;
        if walked.end == End::Unreadable {
            log.unreadable = gather.last;
            (log.is_pending, log.obstacle) = (true, Some(Obstacle::Unreadable));
        }
        log
    }
}

impl Visit for Gather {
    fn block(&mut self, bp: &BlockPtr) -> ControlFlow<()> {
        self.last = Some(*bp);
        if self.limits.is_allocated(bp) {
            self.log.blocks.push(*bp);
        } else {
            self.log.first_unknown = self.log.first_unknown.or(Some(bp.birth()));
        }
        ControlFlow::Continue(())
    }

    fn record(&mut self, common: &LrCommon, record: &[u8], order: ByteOrder, is_wanted: bool) -> ControlFlow<()> {
        let kind = TxType(common.lrc_txtype & !TX_CI);
        if is_wanted {
            self.log.is_pending = true;
            if let (None, Err(RecordError::Unsupported(what))) = (self.log.obstacle, Record::decode(common, record, order)) {
                self.log.obstacle = Some(Obstacle::Unsupported { seq: common.lrc_seq, kind, what });
            }
        }
        if self.limits.is_claimed && kind == TxType::CLONE_RANGE {
            // A reference for each time that a block is named.
            let Ok(shared) = shared_blocks(record, order) else { return ControlFlow::Break(()) };
            self.log.blocks.extend(shared);
        }
        // What an import claimed with the log is the log's own.
        if self.limits.is_claimed && kind == TxType::WRITE {
            let Ok(write) = LrWrite::decode_order(record, order) else { return ControlFlow::Break(()) };
            let bp = write.lr_blkptr;
            let own = !bp.is_hole() && !bp.is_embedded() && bp.birth().0 >= self.limits.first_txg;
            if own && self.written.insert([bp.0[0], bp.0[1]]) {
                self.log.blocks.push(bp);
            }
        }
        ControlFlow::Continue(())
    }
}
