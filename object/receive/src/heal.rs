//! Corrective receives: damaged blocks of a snapshot are written again from a stream that has it (OpenZFS: `receive_write` with `rwa->heal`).
//!
//! Contents of objects are healed. What leads to them is not: dnodes, indirect blocks, attributes in spill blocks. The stream has these in another
//! form than the devices.

use crate::apply::ordinary;
use crate::receiver::{check_features, each_record};
use crate::{ReceiveError, payload};
use abd::Abd;
use dmu::{BlockError, DmuError, Objset};
use dsl::{DatasetHandle, DslPool};
use ondisk::{BlockId, BlockPtr, Bookmark, ByteOrder, Compression, Level, ObjectId};
use std::io::Read;
use std::sync::Arc;
use stream::{Begin, Features, Reader, Record, Write};

/// Levels of zstd at which blocks may have been compressed.
const ZSTD_LEVELS: std::ops::RangeInclusive<u8> = 1..=19;

/// Outcome of a corrective receive, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// Number of damaged blocks that were written again.
    pub blocks: u64,
    /// Bytes of these, as they are stored.
    pub bytes: u64,
    /// Number of damaged blocks of which the stream does not bring what was stored.
    pub lost: u64,
    /// Number of damaged blocks that the stream brings, and that could not be written where they are.
    pub unwritten: u64,
    /// Number of records whose blocks could not be looked at, since what leads to them is damaged.
    pub unreachable: u64,
}

/// A corrective receive that goes on.
pub struct Healer {
    snapshot: DatasetHandle,
    objset: Arc<Objset>,
    healed: Healed,
}

impl Healer {
    /// Begins to heal the snapshot of this full name from the substream with this head.
    ///
    /// # Errors
    /// A stream of another kind, or of another snapshot; an encrypted dataset; those of [`DslPool::hold`].
    pub fn begin(dsl: &Arc<DslPool>, begin: &Begin, snapshot: &str) -> Result<Healer, ReceiveError> {
        let features = Features::of_versioninfo(begin.versioninfo);
        check_features(features)?;
        if features.has(Features::RAW) {
            return Err(ReceiveError::Unsupported("corrective receives of raw streams"));
        }
        let snapshot = dsl.hold(snapshot)?;
        if snapshot.guid() != begin.toguid {
            return Err(ReceiveError::Invalid("it is of another snapshot than the one that is to be healed"));
        }
        if snapshot.is_encrypted()? {
            return Err(ReceiveError::Unsupported("corrective receives into encrypted datasets"));
        }
        let objset = snapshot.objset()?;
        Ok(Healer { snapshot, objset, healed: Healed::default() })
    }

    /// The snapshot that is healed.
    pub fn snapshot(&self) -> &DatasetHandle {
        &self.snapshot
    }

    /// Looks at the blocks of which the rest of a substream tells, up to its END, and heals those that are damaged, all that can be (OpenZFS: with
    /// `zfs_recv_best_effort_corrective`).
    ///
    /// # Errors
    /// Those of [`Reader::read_record`], a record that contradicts the format, a pool that is suspended. What was healed stays healed.
    pub fn run<R: Read>(mut self, reader: &mut Reader<R>) -> Result<Healed, ReceiveError> {
        each_record(reader, &mut |record, payload, order, _| match record {
            Record::Write(write) => self.look_at(write, payload, order),
            _ => Ok(()),
        })?;
        Ok(self.healed)
    }

    fn look_at(&mut self, write: &Write, payload: &[u8], order: ByteOrder) -> Result<(), ReceiveError> {
        let (bp, at) = match self.damaged(ordinary(write.object)?, write.offset) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            // The snapshot had the object, and its blocks, when it was sent.
            Err(DmuError::Block(..) | DmuError::Corrupt | DmuError::Record(_) | DmuError::NoSuchObject) => {
                self.healed.unreachable += 1;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for candidate in candidates(write, payload, order, &bp)? {
            match self.objset.io().heal(&bp, &at, &candidate) {
                Ok(()) => {
                    self.healed.blocks += 1;
                    self.healed.bytes += bp.psize() as u64;
                    return Ok(());
                }
                // Other bytes, or a place where none can be written again.
                Err(BlockError::Checksum | BlockError::Unsupported) => {}
                // Other blocks lie on other devices, or elsewhere.
                Err(BlockError::Io | BlockError::Corrupt) => {
                    self.healed.unwritten += 1;
                    return Ok(());
                }
                Err(error) => return Err(DmuError::of_block(error, at).into()),
            }
        }
        self.healed.lost += 1;
        Ok(())
    }

    /// The block of an object at an offset, if it is damaged.
    fn damaged(&self, object: ObjectId, offset: u64) -> Result<Option<(BlockPtr, Bookmark)>, DmuError> {
        let dnode = self.objset.hold(object)?;
        let block = offset / dnode.info()?.block_size as u64;
        let pointers = dnode.settled_blocks(block..block.saturating_add(1))?.unwrap_or_default();
        let Some(bp) = pointers.first().copied().filter(|bp| !bp.is_hole() && !bp.is_embedded()) else { return Ok(None) };
        let at = Bookmark { objset: self.objset.id(), object, level: Level(0), block: BlockId(block) };
        match self.objset.io().read_stored_now(&bp, &at) {
            Ok(_) => Ok(None),
            Err(BlockError::Checksum | BlockError::Io) => Ok(Some((bp, at))),
            Err(error) => Err(DmuError::of_block(error, at)),
        }
    }
}

/// Bytes that may have been stored of a block, by the record that brings it; none for a part of one.
fn candidates(write: &Write, payload: &[u8], order: ByteOrder, bp: &BlockPtr) -> Result<Vec<Abd>, ReceiveError> {
    let logical = payload::block(payload, write.logical_size, write.compressiontype, (bp.object_type(), order))?;
    if logical.len() != bp.lsize() || !write.offset.is_multiple_of(bp.lsize() as u64) {
        return Ok(Vec::new());
    }
    let kind = bp.compression();
    if kind == Compression::OFF {
        return Ok(vec![Abd::from_slice(&logical)]);
    }
    if kind == Compression(write.compressiontype) && payload.len() == bp.psize() {
        return Ok(vec![Abd::from_slice(payload)]);
    }
    let levels = if kind == Compression::ZSTD { ZSTD_LEVELS } else { 0..=0 };
    let packed = |level| {
        let mut stored = vec![0; bp.psize()];
        let length = kernels::compress(kind, level, &logical, &mut stored)?;
        stored[length..].fill(0);
        Some(Abd::from_slice(&stored))
    };
    Ok(levels.filter_map(packed).collect())
}
