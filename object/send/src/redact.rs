//! Redaction lists: which blocks of a snapshot all of some clones of it have replaced (OpenZFS: `dmu_redact.c`).
//!
//! Who gets the clones' snapshots is not to see what was there before. A walk over each of them finds what changed since the snapshot, as ranges of
//! objects and blocks in order. What is in the ranges of all, and is data in the snapshot, makes the list. The ranges of one walk, and those that all
//! before it have in common, are in memory meanwhile.

use crate::item::{Finds, Item};
use crate::source::dataset_of;
use crate::walk::{Unborn, Walk};
use crate::{SendError, source};
use dmu::{DmuError, DnodeInfo, Objset};
use dsl::{DatasetHandle, RedactedRun};
use ondisk::sa::master_node;
use ondisk::{ObjectId, ObjsetType, Txg};
use std::collections::BTreeSet;
use std::sync::Arc;
use zap::Zap;

/// The object in which a file system's names of other objects are (OpenZFS: `MASTER_NODE_OBJ`).
const MASTER_NODE: ObjectId = ObjectId(1);
/// Most blocks of a run.
const RUN_BLOCKS_MAX: u64 = ondisk::RedactBlockPhys::COUNT_MAX;

/// An object and a block of it.
type Place = (u64, u64);

/// Places from the first to the last, that one among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: Place,
    last: Place,
}

/// Gives a snapshot a bookmark of this name (the part behind `#`) with a list of the blocks that the snapshots `clones` of clones of it have replaced:
/// of all blocks where there are none of these (OpenZFS: `perform_thread_merge`).
///
/// # Errors
/// [`SendError::NotEarlier`] for one that is of no clone, or of the same dataset and not later; [`SendError::Redacted`]; those of reading, and of
/// [`dsl::DslPool::create_redaction`].
pub fn redact(snapshot: &DatasetHandle, bookmark: &str, clones: &[DatasetHandle]) -> Result<(), SendError> {
    let name = snapshot.name();
    for clone in clones {
        if !clone.is_snapshot() || !clone.is_after(dataset_of(&name), snapshot.creation_txg())? {
            return Err(SendError::NotEarlier);
        }
    }
    if clones.iter().chain([snapshot]).any(|one| one.has_feature(dsl::features::REDACTED_DATASETS)) {
        return Err(SendError::Redacted);
    }
    let guids: Vec<u64> = clones.iter().map(DatasetHandle::guid).collect();
    snapshot.pool().check_redaction(&name, bookmark, &guids)?;
    let objset = snapshot.objset()?;
    let mut common: Option<Vec<Span>> = None;
    for clone in clones {
        let changed = changed(clone, snapshot, &objset)?;
        common = Some(match common {
            None => changed,
            Some(before) => in_both(&before, &changed),
        });
    }
    let all = || vec![Span { first: (1, 0), last: (u64::MAX, u64::MAX) }];
    let runs = runs(&objset, &common.unwrap_or_else(all))?;
    Ok(snapshot.pool().create_redaction(&name, bookmark, &guids, runs)?)
}

/// Ranges that a clone's snapshot has replaced of the snapshot that the clone was made of.
fn changed(clone: &DatasetHandle, snapshot: &DatasetHandle, old: &Arc<Objset>) -> Result<Vec<Span>, SendError> {
    let objset = clone.objset()?;
    let after = Txg(snapshot.creation_txg());
    let has_births = clone.feature_enabled_txg(source::HOLE_BIRTH)?.is_some_and(|txg| txg <= after.0);
    // Those of an object were never anything else, but its number may have been another one's, which had data there.
    let unborn = if has_births { Unborn::LeftOutOfDnodes } else { Unborn::Found };
    let found = Changed { old: old.clone(), unlinked: unlinked(&objset)?, at: None, covered: None, spans: Vec::new() };
    Walk::new(&**objset.io(), objset.id(), (after, unborn), None, found).run(&clone.root_block())
}

/// Objects of a file system that have no name any more, and wait to be deleted.
fn unlinked(objset: &Arc<Objset>) -> Result<BTreeSet<u64>, SendError> {
    let mut found = BTreeSet::new();
    if objset.kind() != ObjsetType::ZFS {
        return Ok(found);
    }
    let of_names = |error: zap::ZapError| SendError::Source(error.into());
    let set = Zap::hold(objset, MASTER_NODE).and_then(|master| master.try_lookup_u64(master_node::DELETE_QUEUE)).map_err(of_names)?;
    if let Some(set) = set {
        let each = |entry: &zap::Attribute| {
            found.insert(entry.first_integer);
            Ok(())
        };
        Zap::hold(objset, ObjectId(set)).and_then(|set| set.for_each(each)).map_err(of_names)?;
    }
    Ok(found)
}

/// Object that a walk is at.
struct At {
    object: u64,
    block_bytes: u64,
    /// Largest number of a block that the object has there.
    max_block: u64,
}

/// Ranges that a walk finds.
struct Changed {
    /// The snapshot that others came out of.
    old: Arc<Objset>,
    unlinked: BTreeSet<u64>,
    /// None before the first object, and in one of which nothing more is to be found.
    at: Option<At>,
    /// First and last of the numbers whose slots the object has, too: what had them is gone.
    covered: Option<(u64, u64)>,
    spans: Vec<Span>,
}

impl Changed {
    fn add(&mut self, span: Span) {
        match self.spans.last_mut() {
            Some(before) if next(before.last).is_none_or(|behind| behind >= span.first) => before.last = before.last.max(span.last),
            _ => self.spans.push(span),
        }
    }

    /// Blocks of one object.
    fn add_blocks(&mut self, object: u64, first: u64, last: u64) {
        self.add(Span { first: (object, first), last: (object, last) });
    }

    /// Leaves the object that the walk was at: what it had behind its end is gone, and so are objects where its dnode lies.
    fn leave(&mut self) {
        if let Some(At { object, max_block, .. }) = self.at.take()
            && let Some(first) = max_block.checked_add(1)
        {
            self.add_blocks(object, first, u64::MAX);
        }
        if let Some((first, last)) = self.covered.take() {
            self.add(Span { first: (first, 0), last: (last, u64::MAX) });
        }
    }

    /// Comes to an object that changed. One that was not there, or holds metadata, has nothing to redact; one without a name, or with blocks of another
    /// size, which makes it another file or one of a single block, is replaced as a whole.
    fn enter(&mut self, object: u64, dnode: &ondisk::DnodePhys) -> Result<(), SendError> {
        let Some(old) = data_object(&self.old, ObjectId(object))? else { return Ok(()) };
        if self.unlinked.contains(&object) || old.block_size != dnode.data_block_bytes() {
            self.add_blocks(object, 0, u64::MAX);
            return Ok(());
        }
        self.at = Some(At { object, block_bytes: (old.block_size as u64).max(1), max_block: dnode.max_block.0 });
        Ok(())
    }

    /// Comes to changed bytes of the object that the walk is at.
    fn bytes(&mut self, object: u64, offset: u64, length: u64) {
        let Some(at) = self.at.as_ref().filter(|at| at.object == object && length > 0) else { return };
        let (first, last) = (offset / at.block_bytes, (offset.saturating_add(length) - 1) / at.block_bytes);
        self.add_blocks(object, first, last);
    }
}

impl Finds for Changed {
    type Made = Vec<Span>;

    fn push(&mut self, item: Item) -> Result<(), SendError> {
        match item {
            Item::Dnodes { .. } => {}
            Item::Object { object, dnode, .. } => {
                self.leave();
                self.enter(object, &dnode)?;
                let last = object.saturating_add(dnode.slots() as u64 - 1);
                self.covered = (last > object).then_some((object.saturating_add(1), last));
            }
            Item::FreeObjects { first, count } => {
                self.leave();
                if let Some(last) = count.checked_sub(1) {
                    self.add(Span { first: (first, 0), last: (first.saturating_add(last), u64::MAX) });
                }
            }
            Item::Free { object, offset, length } | Item::Redact { object, offset, length } => self.bytes(object, offset, length),
            Item::Block(block) if block.is_spill => {}
            Item::Block(block) => self.bytes(block.at.object.0, block.offset, block.bp.lsize() as u64),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Span>, SendError> {
        self.leave();
        Ok(self.spans)
    }
}

/// The place behind another one; None behind all.
fn next((object, block): Place) -> Option<Place> {
    match block.checked_add(1) {
        Some(block) => Some((object, block)),
        None => object.checked_add(1).map(|object| (object, 0)),
    }
}

/// Ranges that both have (OpenZFS: `perform_thread_merge`).
fn in_both(a: &[Span], b: &[Span]) -> Vec<Span> {
    let (mut left, mut right, mut found) = (a.iter().peekable(), b.iter().peekable(), Vec::new());
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        let (first, last) = (one.first.max(other.first), one.last.min(other.last));
        if first <= last {
            found.push(Span { first, last });
        }
        if one.last <= other.last {
            left.next()
        } else {
            right.next()
        };
    }
    found
}

/// Facts of an object of the snapshot that holds data; None without one.
fn data_object(objset: &Objset, object: ObjectId) -> Result<Option<DnodeInfo>, SendError> {
    let info = match objset.hold(object).and_then(|dnode| dnode.info()) {
        Ok(info) => info,
        Err(DmuError::NoSuchObject) => return Ok(None),
        Err(error) => return Err(SendError::Source(error.into())),
    };
    Ok((!info.kind.is_metadata()).then_some(info))
}

/// Blocks of data of the snapshot that lie in these ranges (OpenZFS: `perform_redaction`).
fn runs(objset: &Arc<Objset>, spans: &[Span]) -> Result<Vec<RedactedRun>, SendError> {
    let mut runs: Vec<RedactedRun> = Vec::new();
    for Span { first, last } in spans {
        let mut before = first.0.saturating_sub(1);
        while let Some(object) = objset.next_object(ObjectId(before)).map_err(|error| SendError::Source(error.into()))? {
            if object.0 > last.0 {
                break;
            }
            before = object.0;
            let Some(info) = data_object(objset, object)? else { continue };
            let start = if object.0 == first.0 { first.1 } else { 0 };
            let end = if object.0 == last.0 { last.1.min(info.max_block.0) } else { info.max_block.0 };
            if start <= end {
                add_run(&mut runs, object.0, (start, end), info.block_size as u64);
            }
        }
    }
    Ok(runs)
}

/// Adds blocks from the first to the last to runs, of which the last goes on where they are neighbours.
fn add_run(runs: &mut Vec<RedactedRun>, object: u64, (mut first, last): Place, block_bytes: u64) {
    if let Some(run) = runs.last_mut()
        && run.object == object
        && run.block + run.count == first
    {
        let count = (last - first).saturating_add(1).min(RUN_BLOCKS_MAX - run.count);
        run.count += count;
        first += count;
    }
    while first <= last {
        let count = (last - first).saturating_add(1).min(RUN_BLOCKS_MAX);
        runs.push(RedactedRun { object, block: first, count, block_bytes });
        let Some(behind) = first.checked_add(count) else { return };
        first = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: Place, last: Place) -> Span {
        Span { first, last }
    }

    /// If this fails, what one of the clones still has of a snapshot is kept from others, or what none has is sent to them.
    #[test]
    fn only_what_all_replaced_is_common() {
        let whole = |object| span((object, 0), (object, u64::MAX));
        let a = [span((2, 0), (2, 9)), whole(3), span((4, 5), (7, 2))];
        let b = [span((2, 5), (3, 1)), span((3, 8), (3, 8)), span((6, 0), (6, 3)), span((7, 2), (7, 2)), whole(9)];
        let both = vec![span((2, 5), (2, 9)), span((3, 0), (3, 1)), span((3, 8), (3, 8)), span((6, 0), (6, 3)), span((7, 2), (7, 2))];
        assert_eq!((in_both(&a, &b), in_both(&b, &a)), (both.clone(), both));
        assert_eq!(in_both(&a, &[]), Vec::new());
        assert_eq!(in_both(&[span((0, 0), (u64::MAX, u64::MAX))], &b), b);
    }

    /// If this fails, lists of files that were rewritten have a record for each block.
    #[test]
    fn neighbours_are_one_run() {
        let mut runs = Vec::new();
        for (object, first, last) in [(2, 0, 3), (2, 4, 4), (2, 6, 7), (3, 8, 8), (3, 9, 9)] {
            add_run(&mut runs, object, (first, last), 512);
        }
        let run = |object, block, count| RedactedRun { object, block, count, block_bytes: 512 };
        assert_eq!(runs, [run(2, 0, 5), run(2, 6, 2), run(3, 8, 2)]);
        let mut long = Vec::new();
        add_run(&mut long, 5, (0, RUN_BLOCKS_MAX + 1), 512);
        assert_eq!(long, [run(5, 0, RUN_BLOCKS_MAX), run(5, RUN_BLOCKS_MAX, 2)]);
    }
}
