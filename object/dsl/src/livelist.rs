//! Livelists: the blocks that a clone got since it was made, so that it can be destroyed without a walk through it.
//!
//! The object is that of a deadlist, named in the ZAP of the clone's directory. Its lists, which are called sublists, have a pointer for each
//! block that was born, and one that is marked for each of them that was freed again; both are in the sublist of the txg that the block was
//! born in. What a sublist has without a mark is live. Embedded blocks are on none (OpenZFS: `dsl_deadlist.c`, "Livelist Overview").
//!
//! Nothing depends on a livelist: one that is damaged is given up, and the clone's blocks are found by a walk, as before.

use crate::bpobj::{Bpobj, passes};
use crate::deadlist::Deadlist;
use crate::dir::Dir;
use crate::meta::{Meta, Usage, damaged};
use crate::{DslError, features};
use dmu::Tx;
use ondisk::{BlockPtr, Checksum, DslDatasetPhys, ObjectType, Txg};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Name of the livelist in a directory's ZAP (OpenZFS: `DD_FIELD_LIVELIST`).
const NAME: &str = "com.delphix:livelist";

/// Changes of a clone by one sync.
pub(crate) struct Changes<'a> {
    pub(crate) born: &'a [BlockPtr],
    pub(crate) freed: &'a [BlockPtr],
    /// True for the first of the txg: blocks of one txg are in one sublist.
    pub(crate) is_first: bool,
}

/// Object of a directory's livelist.
pub(crate) fn of(meta: &Meta, dir: &Dir) -> Result<Option<u64>, DslError> {
    if meta.hold(dir.object)?.info()?.kind != ObjectType::OTN_ZAP_METADATA {
        return Ok(None);
    }
    Ok(meta.zap(dir.object)?.try_lookup_u64(NAME)?)
}

/// Txg of the snapshot that a clone was made from: what was born later is on its livelist.
pub(crate) fn origin_txg(meta: &Meta, dir: &Dir) -> Result<u64, DslError> {
    let origin = dir.phys().dd_origin_obj;
    let bonus = meta.hold(origin)?.bonus()?;
    Ok(DslDatasetPhys::decode(&bonus).map_err(|_| damaged(origin, "the record of a clone's origin is short"))?.ds_creation_txg)
}

/// Begins a livelist of a clone that was just made, where the pool has the feature; gives its object.
pub(crate) fn create(meta: &Meta, dir: &Dir, tx: &Tx) -> Result<Option<u64>, DslError> {
    if [features::LIVELIST, features::EXTENSIBLE_DATASET].iter().any(|guid| !meta.services.feature_enabled(guid)) {
        return Ok(None);
    }
    meta.zapify(&meta.hold(dir.object)?, tx)?;
    let list = Deadlist::alloc(meta, tx)?;
    meta.zap(dir.object)?.add_u64(NAME, list, tx)?;
    meta.services.feature_add(features::LIVELIST, 1, tx)?;
    Ok(Some(list))
}

/// Takes a livelist off its directory; it still counts.
pub(crate) fn detach(meta: &Meta, dir: &Dir, tx: &Tx) -> Result<(), DslError> {
    Ok(meta.zap(dir.object)?.remove(NAME, tx)?)
}

/// Frees a livelist, not the blocks, and takes it off the count, which damaged pools have too low.
pub(crate) fn free(meta: &Meta, list: u64, tx: &Tx) -> Result<(), DslError> {
    Deadlist::open_keyed(meta, list).and_then(|list| list.free(tx)).or_else(passes)?;
    if meta.services.feature_refs(features::LIVELIST) == 0 {
        return Ok(());
    }
    meta.services.feature_add(features::LIVELIST, -1, tx)
}

/// Notes what a sync did, and makes one sublist out of two where that is possible (OpenZFS: `dsl_flush_pending_livelist`).
pub(crate) fn note(meta: &Meta, list: u64, changes: &Changes<'_>, tx: &Tx) -> Result<(), DslError> {
    let mut list = Deadlist::open_keyed(meta, list)?;
    let is_full = match list.entries().last() {
        None => true,
        Some((_, last)) if changes.is_first => {
            let (all, freed) = counts(meta, *last)?;
            all.saturating_sub(freed) > meta.livelists.entries_max()
        }
        Some(_) => false,
    };
    if is_full {
        list.add_key(tx.txg().0.saturating_sub(1), tx)?;
    }
    list.insert(changes.born, tx)?;
    list.insert_freed(changes.freed, tx)?;
    condense(meta, &mut list, tx)
}

/// Pointers of a sublist, and how many of them are marked.
fn counts(meta: &Meta, sublist: u64) -> Result<(u64, u64), DslError> {
    let phys = Bpobj::open(meta, sublist)?.phys;
    Ok((phys.bpo_num_blkptrs, phys.bpo_num_freed))
}

/// Makes one sublist out of the first two neighbours whose live blocks fit in one, the newest left out: of pairs of which most was freed again
/// little is left (OpenZFS: `spa_livelist_condense_sync`, there prepared in the background).
fn condense(meta: &Meta, list: &mut Deadlist<'_>, tx: &Tx) -> Result<(), DslError> {
    let entries = list.entries();
    let older = &entries[..entries.len().saturating_sub(1)];
    for pair in older.windows(2) {
        let [(first, first_list), (next, next_list)] = [pair[0], pair[1]];
        let ((some, some_freed), (more, more_freed)) = (counts(meta, first_list)?, counts(meta, next_list)?);
        let live = some.saturating_add(more).saturating_sub(some_freed.saturating_add(more_freed).saturating_mul(2));
        if live >= meta.livelists.entries_max() {
            continue;
        }
        let mut kept = live_blocks(meta, first_list)?;
        kept.extend(live_blocks(meta, next_list)?);
        list.remove_entry(next, tx)?;
        list.remove_entry(first, tx)?;
        list.add_key(first, tx)?;
        return list.insert(&kept, tx);
    }
    Ok(())
}

/// Facts about a block that all pointers to it agree in; logical births and the mark of deduplication may differ.
type Traits = (usize, Checksum, Txg);

/// Blocks of a sublist that were born and not freed again (OpenZFS: `dsl_process_sub_livelist`).
///
/// # Errors
/// Those of reading the list; [`DslError::Corrupt`] for one that cannot be true, of which nothing is safe to free.
pub(crate) fn live_blocks(meta: &Meta, sublist: u64) -> Result<Vec<BlockPtr>, DslError> {
    let list = Bpobj::open(meta, sublist)?;
    if list.phys.bpo_num_subobjs != 0 {
        return Err(damaged(sublist, "a part of a livelist refers to other lists"));
    }
    // Deduplicated and cloned blocks are born and freed several times at one place.
    let mut freed: HashMap<(u32, u64), (Traits, u64)> = HashMap::new();
    let mut live = Vec::new();
    list.for_each_backwards(|bp, is_freed| {
        // A list that claims to be longer than it is has holes at its end.
        if bp.is_hole() || bp.is_embedded() {
            return Err(damaged(sublist, "a livelist has what is no block"));
        }
        let dva = bp.dva(0);
        let traits: Traits = (bp.psize(), bp.checksum_kind(), bp.physical_birth());
        match freed.entry((dva.vdev.0, dva.offset)) {
            Entry::Occupied(mut known) => {
                let (other, count) = known.get_mut();
                if *other != traits {
                    return Err(damaged(sublist, "a livelist frees a block that it does not have"));
                }
                *count = if is_freed { *count + 1 } else { *count - 1 };
                if *count == 0 {
                    known.remove();
                }
            }
            Entry::Vacant(place) if is_freed => {
                place.insert((traits, 1));
            }
            Entry::Vacant(_) => live.push(bp),
        }
        Ok(())
    })?;
    if freed.is_empty() { Ok(live) } else { Err(damaged(sublist, "a livelist frees more than it has")) }
}

/// Space of a livelist's live blocks and the txg that its first sublist begins after, for a clone of so much of its own; None when both do not
/// agree, so that the livelist cannot be believed. It does not count embedded blocks (OpenZFS: `dsl_clone_destroy_assert`).
pub(crate) fn believed(meta: &Meta, list: u64, own: Usage) -> Result<Option<(Usage, u64)>, DslError> {
    let listed = Deadlist::usage_of(meta, list)?;
    let agrees = listed.used == own.used && listed.comp == own.comp && listed.uncomp <= own.uncomp;
    let first = Deadlist::open_keyed(meta, list)?.entries().first().map_or(0, |(mintxg, _)| *mintxg);
    Ok(agrees.then_some((listed, first)))
}
