//! Lists of what was redacted: which blocks of a snapshot are not for those who get its clones (OpenZFS: `dsl_bookmark.c`, `dmu_redact.c`).
//!
//! A list is an object of the MOS. Its contents are runs of blocks, in order of object and block; its bonus, or a spill block where that has no
//! room, says how many they are, whether they are all, and by which snapshots the list was made.

use crate::meta::{LIST_BLOCK_BYTES, Meta, damaged};
use crate::{DslError, features};
use abd::Abd;
use dmu::{Dnode, NewObject, Tx};
use ondisk::{ObjectType, RedactBlockPhys, RedactionListPhys, SECTOR_BYTES, bonus_bytes_max};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the longest spill block that is made here.
const SPILL_BYTES_MAX: usize = 128 << 10;
/// Most snapshots that a dataset can be redacted by: their guids are one value of its ZAP.
pub(crate) const OF_DATASET_MAX: usize = zap::VALUE_BYTES_MAX / size_of::<u64>();
/// Word of the last place of a list that is whole.
const WHOLE: u64 = u64::MAX;
const RUN_BYTES: u64 = RedactBlockPhys::SIZE as u64;

/// Facts of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redaction {
    /// Globally unique ids of the snapshots by which the list was made.
    pub snapshots: Vec<u64>,
    /// False while the list is being made, or when that was interrupted.
    pub is_whole: bool,
    /// Number of its runs.
    pub runs: u64,
}

impl Redaction {
    /// Value of the property `redact_snaps`.
    pub fn shown(&self) -> String {
        words_of(&self.snapshots)
    }
}

/// True for the same guids of snapshots, in any order (libzfs: `redact_snaps_equal`).
pub fn same_snapshots(guids: &[u64], others: &[u64]) -> bool {
    guids.len() == others.len() && guids.iter().all(|guid| others.contains(guid))
}

/// Guids as the property `redact_snaps` shows them (libzfs: `get_rsnaps_string`).
pub(crate) fn words_of(guids: &[u64]) -> String {
    if guids.is_empty() { "none".to_string() } else { guids.iter().map(u64::to_string).collect::<Vec<_>>().join(",") }
}

/// Neighbouring blocks of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedactedRun {
    /// Number of the object.
    pub object: u64,
    /// First of the blocks.
    pub block: u64,
    /// Number of blocks, at least one.
    pub count: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// True when what was redacted may be used by force.
static IS_ALLOWED: AtomicBool = AtomicBool::new(false);

/// Sets whether datasets that lack what was redacted may be used by force (OpenZFS: `zfs_allow_redacted_dataset_mount`).
pub fn set_allows_redacted(is_allowed: bool) {
    IS_ALLOWED.store(is_allowed, Ordering::Relaxed);
}

/// True when datasets that lack what was redacted may be used by force.
pub fn allows_redacted() -> bool {
    IS_ALLOWED.load(Ordering::Relaxed)
}

/// Most snapshots that a list of this pool can be of.
pub(crate) fn snapshots_max(meta: &Meta) -> usize {
    let spills = meta.services.feature_enabled(features::REDACTION_LIST_SPILL);
    let bytes = if spills { SPILL_BYTES_MAX } else { bonus_bytes_max(1) };
    (bytes - RedactionListPhys::SIZE) / size_of::<u64>()
}

/// Makes an empty list; gives its object.
pub(crate) fn create(meta: &Meta, snapshots: &[u64], tx: &Tx) -> Result<u64, DslError> {
    let head = encoded(&RedactionListPhys { rlp_num_snaps: snapshots.len() as u64, ..RedactionListPhys::default() }, snapshots);
    let is_spilled = head.len() > bonus_bytes_max(1);
    let kind = ObjectType::OTN_UINT64_METADATA;
    let room = NewObject { block_size: LIST_BLOCK_BYTES, bonus_type: kind, ..NewObject::new(kind) };
    let new = if is_spilled { NewObject { block_ptr_count: 1, ..room } } else { NewObject { bonus_len: head.len(), ..room } };
    let dnode = meta.allocate(new, tx)?;
    store(&dnode, head, is_spilled, tx)?;
    meta.services.feature_add(features::REDACTION_BOOKMARKS, 1, tx)?;
    if is_spilled {
        meta.services.feature_add(features::REDACTION_LIST_SPILL, 1, tx)?;
    }
    Ok(dnode.object().0)
}

/// Frees a list. Features are its caller's to count.
pub(crate) fn free(meta: &Meta, object: u64, tx: &Tx) -> Result<(), DslError> {
    meta.free_object(object, tx)
}

/// True for a list whose head lies in a spill block.
pub(crate) fn is_spilled(meta: &Meta, object: u64) -> Result<bool, DslError> {
    Ok(open(meta, object)?.info()?.has_spill)
}

/// True for a list that can grow here: OpenZFS's longer ones have their head where the blocks of a longer list would be pointed to.
pub(crate) fn can_grow(meta: &Meta, object: u64) -> Result<bool, DslError> {
    let info = open(meta, object)?.info()?;
    Ok(!info.has_spill || info.bonus_max > 0)
}

/// Facts of a list.
pub(crate) fn read(meta: &Meta, object: u64) -> Result<Redaction, DslError> {
    let dnode = open(meta, object)?;
    let (phys, snapshots) = head(&dnode)?;
    let info = dnode.info()?;
    let room = info.max_block.0.saturating_add(1).saturating_mul(info.block_size as u64) / RUN_BYTES;
    if phys.rlp_num_entries > room {
        return Err(damaged(object, "a redaction list claims more blocks than it has"));
    }
    let is_whole = (phys.rlp_last_object, phys.rlp_last_blkid) == (WHOLE, WHOLE);
    Ok(Redaction { snapshots, is_whole, runs: phys.rlp_num_entries })
}

/// Runs of a list, so many from this one on; fewer at its end.
pub(crate) fn runs(meta: &Meta, object: u64, first: u64, count: u64) -> Result<Vec<RedactedRun>, DslError> {
    let count = count.min(read(meta, object)?.runs.saturating_sub(first));
    let mut raw = vec![0; (count * RUN_BYTES) as usize];
    open(meta, object)?.read(first * RUN_BYTES, &mut raw)?;
    let decoded = raw.chunks_exact(RedactBlockPhys::SIZE).map(RedactBlockPhys::decode);
    let run = |phys: RedactBlockPhys| RedactedRun {
        object: phys.rbp_object,
        block: phys.rbp_blkid,
        count: phys.count(),
        block_bytes: phys.block_bytes(),
    };
    let decoded = decoded.map(|found| found.map(run).map_err(|_| damaged(object, "a redaction list is short")));
    decoded.collect()
}

/// Writes runs into a list behind the `first` ones that it has; with the last of them it is whole.
pub(crate) fn append(meta: &Meta, object: u64, (first, runs): (u64, &[RedactedRun]), is_last: bool, tx: &Tx) -> Result<(), DslError> {
    let dnode = open(meta, object)?;
    let raw: Vec<u8> =
        runs.iter().flat_map(|run| RedactBlockPhys::new(run.object, run.block, run.count, run.block_bytes).encode()).collect();
    if !raw.is_empty() {
        dnode.write(first * RUN_BYTES, &raw, tx)?;
    }
    let (mut phys, snapshots) = head(&dnode)?;
    phys.rlp_num_entries = first + runs.len() as u64;
    (phys.rlp_last_object, phys.rlp_last_blkid) = match (is_last, runs.last()) {
        (true, _) => (WHOLE, WHOLE),
        (false, Some(run)) => (run.object, run.block.saturating_add(run.count.saturating_sub(1))),
        (false, None) => (0, 0),
    };
    let is_spilled = dnode.info()?.has_spill;
    store(&dnode, encoded(&phys, &snapshots), is_spilled, tx)
}

fn open(meta: &Meta, object: u64) -> Result<Arc<Dnode>, DslError> {
    let dnode = meta.hold(object)?;
    let info = dnode.info()?;
    let is_list = info.kind == ObjectType::OTN_UINT64_METADATA && info.bonus_type == ObjectType::OTN_UINT64_METADATA;
    if is_list { Ok(dnode) } else { Err(damaged(object, "a redaction list is none")) }
}

/// Head of a list, and the snapshots behind it.
fn head(dnode: &Dnode) -> Result<(RedactionListPhys, Vec<u64>), DslError> {
    let object = dnode.object().0;
    let raw = match dnode.spill()? {
        Some(spill) => spill.to_vec(),
        None => dnode.bonus()?.to_vec(),
    };
    let short = || damaged(object, "the head of a redaction list is short");
    let phys = RedactionListPhys::decode(&raw).map_err(|_| short())?;
    let words = raw[RedactionListPhys::SIZE..].as_chunks::<8>().0;
    let count = usize::try_from(phys.rlp_num_snaps).map_err(|_| short())?;
    let snapshots = words.get(..count).ok_or_else(short)?.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Ok((phys, snapshots))
}

fn encoded(phys: &RedactionListPhys, snapshots: &[u64]) -> Vec<u8> {
    let mut raw = phys.encode().to_vec();
    raw.extend(snapshots.iter().flat_map(|guid| guid.to_le_bytes()));
    raw
}

fn store(dnode: &Dnode, mut head: Vec<u8>, is_spilled: bool, tx: &Tx) -> Result<(), DslError> {
    if is_spilled {
        head.resize(head.len().next_multiple_of(SECTOR_BYTES), 0);
        return Ok(dnode.set_spill(Abd::from_slice(&head), tx)?);
    }
    Ok(dnode.set_bonus(&head, tx)?)
}
