//! Lists of block pointers: an array of pointers in an object, sums in its bonus, and references to further lists.
//!
//! Deadlists and the pool's list of blocks to free are made of these (OpenZFS: `bpobj.c`). A list that is merged into
//! another is copied when it is small and referenced otherwise; empty lists of all deadlists share one object whose
//! feature count says how many they are.

use crate::DslError;
use crate::features;
use crate::meta::{LIST_BLOCK_BYTES, Meta, Usage, bump, damaged};
use dmu::{BlockError, DmuError, Dnode, NewObject, Tx};
use ondisk::names::spa_version;
use ondisk::{BPOBJ_BYTES, BlockPtr, BpobjPhys, ObjectType};
use std::sync::Arc;

const POINTER_BYTES: u64 = 128;
/// Lists within lists that are still looked at: references are moved up when lists are merged, so that few nest at all.
const DEPTH_MAX: usize = 1 << 10;
const EMPTY_BPOBJ_NAME: &str = "empty_bpobj";
/// Word of a pointer that has its fill count, which lists do not keep.
const FILL_WORD: usize = 11;
/// Bit of that word which says that the pointer's block was freed, in livelists (OpenZFS: `BP_SET_FREE`).
const FREED: u64 = 1;

/// An open list.
pub(crate) struct Bpobj {
    pub(crate) object: u64,
    dnode: Arc<Dnode>,
    pub(crate) phys: BpobjPhys,
    bonus_len: usize,
}

impl Bpobj {
    pub(crate) fn open(meta: &Meta, object: u64) -> Result<Bpobj, DslError> {
        let dnode = meta.hold(object)?;
        let bonus = dnode.bonus()?;
        let phys = BpobjPhys::decode_bonus(&bonus).map_err(|_| damaged(object, "the bonus of a block pointer list is short"))?;
        if phys.bpo_num_blkptrs > entries(&dnode, POINTER_BYTES)? {
            return Err(damaged(object, "a list claims more block pointers than it has"));
        }
        Ok(Bpobj { object, dnode, phys, bonus_len: bonus.len() })
    }

    fn store(&self, tx: &Tx) -> Result<(), DslError> {
        let raw = self.phys.encode();
        Ok(self.dnode.set_bonus(&raw[..self.bonus_len.min(raw.len())], tx)?)
    }

    /// True when sums of pointers and of contents are kept, as since version 3.
    pub(crate) fn has_sums(&self) -> bool {
        self.bonus_len > BPOBJ_BYTES[0]
    }
    pub(crate) fn has_subobjs(&self) -> bool {
        self.bonus_len > BPOBJ_BYTES[1]
    }
    fn counts_frees(&self) -> bool {
        self.bonus_len > BPOBJ_BYTES[2]
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.phys.bpo_num_blkptrs == 0 && self.phys.bpo_num_subobjs == 0
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage::new(self.phys.bpo_bytes, self.phys.bpo_comp, self.phys.bpo_uncomp)
    }

    fn add_usage(&mut self, delta: Usage) {
        bump(&mut self.phys.bpo_bytes, delta.used);
        if self.has_sums() {
            bump(&mut self.phys.bpo_comp, delta.comp);
            bump(&mut self.phys.bpo_uncomp, delta.uncomp);
        }
    }

    /// Bytes of so many of its pointers, as they are.
    fn raw_pointers(&self, first: u64, count: u64) -> Result<Vec<u8>, DslError> {
        let mut raw = vec![0; (count * POINTER_BYTES) as usize];
        self.dnode.read(first * POINTER_BYTES, &mut raw)?;
        Ok(raw)
    }

    /// An empty list that still counts space lost some of its pointers: forgets it.
    fn forget_lost(&mut self, tx: &Tx) -> Result<(), DslError> {
        if self.is_empty() && !self.usage().is_zero() {
            (self.phys.bpo_bytes, self.phys.bpo_comp, self.phys.bpo_uncomp) = (0, 0, 0);
            self.store(tx)?;
        }
        Ok(())
    }

    /// Appends pointers with one write and one change of the sums (OpenZFS: `bpobj_enqueue`).
    pub(crate) fn enqueue(&mut self, meta: &Meta, bps: &[BlockPtr], tx: &Tx) -> Result<(), DslError> {
        self.append(meta, bps, false, tx)
    }

    /// Appends pointers to blocks that are freed: each takes back one that is on the list (OpenZFS: `bpobj_enqueue` with `bp_freed`).
    pub(crate) fn enqueue_freed(&mut self, meta: &Meta, bps: &[BlockPtr], tx: &Tx) -> Result<(), DslError> {
        self.append(meta, bps, true, tx)
    }

    fn append(&mut self, meta: &Meta, bps: &[BlockPtr], freed: bool, tx: &Tx) -> Result<(), DslError> {
        if bps.is_empty() {
            return Ok(());
        }
        if freed && !self.counts_frees() {
            return Err(damaged(self.object, "a list has no room for the number of its frees"));
        }
        let mut raw = Vec::with_capacity(bps.len() * POINTER_BYTES as usize);
        let mut sum = Usage::default();
        for bp in bps {
            let mut kept = stripped(bp);
            if freed {
                kept.0[FILL_WORD] = FREED;
            }
            raw.extend_from_slice(&kept.encode());
            sum += meta.usage(bp);
        }
        self.dnode.write(self.phys.bpo_num_blkptrs * POINTER_BYTES, &raw, tx)?;
        self.phys.bpo_num_blkptrs += bps.len() as u64;
        if freed {
            self.phys.bpo_num_freed = self.phys.bpo_num_freed.saturating_add(bps.len() as u64);
        }
        self.add_usage(if freed { -sum } else { sum });
        self.store(tx)
    }

    /// Calls `each` on the list's own pointers, the last first, with true for those to blocks that are freed.
    pub(crate) fn for_each_backwards(&self, mut each: impl FnMut(BlockPtr, bool) -> Result<(), DslError>) -> Result<(), DslError> {
        let per_block = LIST_BLOCK_BYTES as u64 / POINTER_BYTES;
        let mut end = self.phys.bpo_num_blkptrs;
        while end > 0 {
            let start = (end - 1) / per_block * per_block;
            let raw = self.raw_pointers(start, end - start)?;
            for chunk in raw.as_chunks::<{ POINTER_BYTES as usize }>().0.iter().rev() {
                let mut bp = BlockPtr::decode(chunk, true);
                let freed = bp.0[FILL_WORD] & FREED != 0;
                bp.0[FILL_WORD] = 0;
                each(bp, freed)?;
            }
            end = start;
        }
        Ok(())
    }
}

/// Number of entries of `bytes` bytes that the object has room for.
fn entries(dnode: &Dnode, bytes: u64) -> Result<u64, DslError> {
    let info = dnode.info()?;
    Ok((info.max_block.0.saturating_add(1)).saturating_mul(info.block_size as u64) / bytes)
}

/// Pointer as a list keeps it: no checksum (it compresses better), no payload, no fill.
fn stripped(bp: &BlockPtr) -> BlockPtr {
    let mut kept = *bp;
    if bp.is_embedded() {
        kept = BlockPtr::HOLE;
        kept.0[6] = bp.0[6];
        kept.0[10] = bp.0[10];
        return kept;
    }
    if !bp.is_dedup() {
        kept.0[12..16].fill(0);
    }
    kept.0[FILL_WORD] = 0;
    kept
}

impl Meta {
    /// A new list, with what lists of the pool's version have; it counts frees where the pool has livelists (OpenZFS: `bpobj_alloc`).
    pub(crate) fn bpobj_alloc(&self, tx: &Tx) -> Result<u64, DslError> {
        let version = self.services.version();
        let has_livelists = self.services.feature_refs(features::LIVELIST) != 0;
        let steps = [version >= spa_version::BPOBJ_ACCOUNT, version >= spa_version::DEADLISTS, has_livelists];
        self.bpobj_alloc_of(steps.into_iter().take_while(|step| *step).count(), tx)
    }

    /// A new list of one of the forms in [`BPOBJ_BYTES`].
    pub(crate) fn bpobj_alloc_of(&self, form: usize, tx: &Tx) -> Result<u64, DslError> {
        let new = NewObject {
            block_size: LIST_BLOCK_BYTES,
            bonus_type: ObjectType::BPOBJ_HDR,
            bonus_len: BPOBJ_BYTES[form],
            ..NewObject::new(ObjectType::BPOBJ)
        };
        Ok(self.allocate(new, tx)?.object().0)
    }

    /// An empty list: the shared one when the feature allows (OpenZFS: `bpobj_alloc_empty`).
    pub(crate) fn bpobj_alloc_empty(&self, tx: &Tx) -> Result<u64, DslError> {
        if !self.services.feature_enabled(features::EMPTY_BPOBJ) {
            return self.bpobj_alloc(tx);
        }
        if self.services.feature_refs(features::EMPTY_BPOBJ) == 0 {
            let object = self.bpobj_alloc(tx)?;
            self.directory()?.add_u64(EMPTY_BPOBJ_NAME, object, tx)?;
            *self.empty_bpobj.lock() = object;
        }
        self.services.feature_add(features::EMPTY_BPOBJ, 1, tx)?;
        Ok(*self.empty_bpobj.lock())
    }

    /// One user of the shared empty list less (OpenZFS: `bpobj_decr_empty`).
    pub(crate) fn bpobj_release_empty(&self, tx: &Tx) -> Result<(), DslError> {
        self.services.feature_add(features::EMPTY_BPOBJ, -1, tx)?;
        if self.services.feature_refs(features::EMPTY_BPOBJ) == 0 {
            self.directory()?.remove(EMPTY_BPOBJ_NAME, tx)?;
            let object = std::mem::take(&mut *self.empty_bpobj.lock());
            self.free_object(object, tx)?;
        }
        Ok(())
    }

    /// Reads which object is the shared empty list.
    pub(crate) fn load_empty_bpobj(&self) -> Result<(), DslError> {
        *self.empty_bpobj.lock() = self.directory()?.try_lookup_u64(EMPTY_BPOBJ_NAME)?.unwrap_or(0);
        Ok(())
    }

    pub(crate) fn is_empty_bpobj(&self, object: u64) -> bool {
        object != 0 && *self.empty_bpobj.lock() == object
    }

    /// Gives up a reference to a list: the shared one's count, or the list itself with all that it references.
    pub(crate) fn bpobj_release(&self, object: u64, tx: &Tx) -> Result<(), DslError> {
        if self.is_empty_bpobj(object) { self.bpobj_release_empty(tx) } else { self.bpobj_free(object, tx) }
    }

    /// Frees a list and the lists it references, not the blocks (OpenZFS: `bpobj_free`).
    pub(crate) fn bpobj_free(&self, object: u64, tx: &Tx) -> Result<(), DslError> {
        let mut waiting = vec![object];
        while let Some(object) = waiting.pop() {
            let list = Bpobj::open(self, object)?;
            if list.has_subobjs() && list.phys.bpo_subobjs != 0 {
                waiting.extend(self.subobjs(&list)?);
                self.free_object(list.phys.bpo_subobjs, tx)?;
            }
            self.free_object(object, tx)?;
        }
        Ok(())
    }

    fn subobjs(&self, list: &Bpobj) -> Result<Vec<u64>, DslError> {
        let count = list.phys.bpo_num_subobjs;
        if list.phys.bpo_subobjs == 0 || count == 0 {
            return Ok(Vec::new());
        }
        let array = self.hold(list.phys.bpo_subobjs)?;
        if count > entries(&array, 8)? {
            return Err(damaged(list.object, "a list claims to reference more lists than it does"));
        }
        let mut raw = vec![0; count as usize * 8];
        array.read(0, &mut raw)?;
        Ok(raw.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Sums of lists, which are to be readable.
    fn usages(&self, lists: &[u64]) -> Result<Vec<Usage>, DslError> {
        lists.iter().map(|list| Ok(Bpobj::open(self, *list)?.usage())).collect()
    }

    fn add_subobjs(&self, list: &mut Bpobj, objects: &[u64], tx: &Tx) -> Result<(), DslError> {
        if list.phys.bpo_subobjs == 0 {
            let new = NewObject { block_size: LIST_BLOCK_BYTES, ..NewObject::new(ObjectType::BPOBJ_SUBOBJ) };
            list.phys.bpo_subobjs = self.allocate(new, tx)?.object().0;
        }
        let raw: Vec<u8> = objects.iter().flat_map(|object| object.to_le_bytes()).collect();
        self.hold(list.phys.bpo_subobjs)?.write(list.phys.bpo_num_subobjs * 8, &raw, tx)?;
        list.phys.bpo_num_subobjs += objects.len() as u64;
        Ok(())
    }

    /// Moves the contents of list `sub` to `object`, by copy when it is small, by reference otherwise; `sub` belongs to
    /// `object` (or is gone) afterwards (OpenZFS: `bpobj_enqueue_subobj`).
    pub(crate) fn bpobj_enqueue_subobj(&self, object: u64, sub: u64, tx: &Tx) -> Result<(), DslError> {
        if self.is_empty_bpobj(sub) {
            return self.bpobj_release_empty(tx);
        }
        let mut from = Bpobj::open(self, sub)?;
        if from.is_empty() {
            return self.bpobj_free(sub, tx);
        }
        let mut list = Bpobj::open(self, object)?;
        if !list.has_subobjs() {
            return Err(DslError::Unsupported);
        }
        let usage = from.usage();
        let block_pointers = LIST_BLOCK_BYTES as u64 / POINTER_BYTES;
        let copy_subs = from.phys.bpo_num_subobjs <= LIST_BLOCK_BYTES as u64 / 8;
        let copy_pointers = copy_subs && from.phys.bpo_num_blkptrs <= block_pointers;
        // What can't be read can't be copied: such a list is referenced whole.
        let subs = if copy_subs { self.subobjs(&from) } else { Ok(Vec::new()) };
        let subs = subs.and_then(|subs| Ok((self.usages(&subs)?, subs)));
        let pointers = if copy_pointers { from.raw_pointers(0, from.phys.bpo_num_blkptrs) } else { Ok(Vec::new()) };
        let (copy_subs, copy_pointers) = (copy_subs && subs.is_ok(), copy_pointers && subs.is_ok() && pointers.is_ok());
        if let (true, Ok((moved, subs))) = (copy_subs && from.phys.bpo_subobjs != 0, subs) {
            if !subs.is_empty() {
                self.add_subobjs(&mut list, &subs, tx)?;
            }
            // What the moved lists hold is no longer this one's.
            moved.into_iter().for_each(|usage| from.add_usage(-usage));
            self.free_object(from.phys.bpo_subobjs, tx)?;
            from.phys.bpo_subobjs = 0;
            from.phys.bpo_num_subobjs = 0;
            from.store(tx)?;
        }
        if let (true, Ok(raw)) = (copy_pointers, pointers) {
            list.dnode.write(list.phys.bpo_num_blkptrs * POINTER_BYTES, &raw, tx)?;
            list.phys.bpo_num_blkptrs += from.phys.bpo_num_blkptrs;
            self.free_object(sub, tx)?;
        } else {
            self.add_subobjs(&mut list, &[sub], tx)?;
        }
        list.add_usage(usage);
        list.store(tx)
    }

    /// Takes up to `most` pointers off the end of the list and of the lists it references, deepest first, and hands
    /// them to `each`; lists that became empty are freed. Returns how many (OpenZFS: `bpobj_iterate`).
    ///
    /// What of the lists can't be read is given up: were it an error, no txg could be synced any more. Its blocks leak.
    pub(crate) fn bpobj_drain(
        &self,
        object: u64,
        most: u64,
        tx: &Tx,
        mut each: impl FnMut(&BlockPtr) -> Result<(), DslError>,
    ) -> Result<u64, DslError> {
        // The path from the list to the one being drained; each is the last sublist of its parent.
        let mut path = match Bpobj::open(self, object) {
            Ok(list) => vec![list],
            Err(error) => return passes(error).map(|()| 0),
        };
        let mut done = 0;
        while let Some(current) = path.last_mut() {
            let take = current.phys.bpo_num_blkptrs.min(most - done);
            if take > 0 {
                let usage = drain_pointers(self, current, take, tx, &mut each)?;
                done += take;
                for list in &mut path {
                    list.add_usage(-usage);
                    list.store(tx)?;
                }
                continue;
            }
            if done >= most && !current.is_empty() {
                break;
            }
            if current.phys.bpo_num_subobjs > 0 {
                match self.last_subobj(current) {
                    Ok(last) => match Bpobj::open(self, last) {
                        Ok(last) if path.len() <= DEPTH_MAX && path.iter().all(|list| list.object != last.object) => path.push(last),
                        lost => {
                            lost.map(drop).or_else(passes)?;
                            done += 1;
                            self.lose_subobjs(&mut path, 1, tx)?;
                        }
                    },
                    // Nobody knows how many the array had.
                    Err(error) => {
                        passes(error)?;
                        self.lose_subobjs(&mut path, u64::MAX, tx)?;
                    }
                }
                continue;
            }
            let subobjs = std::mem::take(&mut current.phys.bpo_subobjs);
            if subobjs != 0 {
                // A damaged list may name an object that does not exist.
                self.free_object(subobjs, tx).or_else(passes)?;
                current.store(tx)?;
            }
            let emptied = current.object;
            if emptied == object {
                current.forget_lost(tx)?;
                break;
            }
            path.pop();
            self.free_object(emptied, tx).or_else(passes)?;
            if let Some(parent) = path.last_mut() {
                parent.phys.bpo_num_subobjs -= 1;
                self.clear_subobj(parent, tx).or_else(passes)?;
                parent.store(tx)?;
            }
        }
        Ok(done)
    }

    /// Writes zeros over the reference after the last one.
    fn clear_subobj(&self, list: &Bpobj, tx: &Tx) -> Result<(), DslError> {
        Ok(self.hold(list.phys.bpo_subobjs)?.write(list.phys.bpo_num_subobjs * 8, &[0; 8], tx)?)
    }

    /// Forgets the last so many references of the last list of the path.
    fn lose_subobjs(&self, path: &mut [Bpobj], count: u64, tx: &Tx) -> Result<(), DslError> {
        let Some(list) = path.last_mut() else { return Ok(()) };
        list.phys.bpo_num_subobjs = list.phys.bpo_num_subobjs.saturating_sub(count);
        list.store(tx)
    }

    fn last_subobj(&self, list: &Bpobj) -> Result<u64, DslError> {
        let array = self.hold(list.phys.bpo_subobjs)?;
        if list.phys.bpo_num_subobjs > entries(&array, 8)? {
            return Err(damaged(list.object, "a list claims to reference more lists than it does"));
        }
        let mut raw = [0; 8];
        array.read((list.phys.bpo_num_subobjs - 1) * 8, &mut raw)?;
        match u64::from_le_bytes(raw) {
            0 => Err(damaged(list.object, "a list references no list")),
            object => Ok(object),
        }
    }
}

/// An error that may end is one still; what is lost for good is passed over.
pub(crate) fn passes(error: DslError) -> Result<(), DslError> {
    match error {
        DslError::Dmu(DmuError::Block(BlockError::Suspended, _) | DmuError::Stopped) | DslError::Sync(_) => Err(error),
        _ => Ok(()),
    }
}

/// Takes the last `take` pointers off `list` itself; its sums are the caller's.
fn drain_pointers(
    meta: &Meta,
    list: &mut Bpobj,
    take: u64,
    tx: &Tx,
    each: &mut impl FnMut(&BlockPtr) -> Result<(), DslError>,
) -> Result<Usage, DslError> {
    let per_block = (list.dnode.info()?.block_size as u64 / POINTER_BYTES).max(1);
    let mut first = list.phys.bpo_num_blkptrs - take;
    let mut usage = Usage::default();
    let mut end = list.phys.bpo_num_blkptrs;
    while end > first {
        let block = (end - 1) / per_block * per_block;
        let start = first.max(block);
        match list.raw_pointers(start, end - start) {
            Ok(raw) => {
                for chunk in raw.as_chunks::<{ POINTER_BYTES as usize }>().0.iter().rev() {
                    let bp = BlockPtr::decode(chunk, true);
                    usage += meta.usage(&bp);
                    each(&bp)?;
                }
                end = start;
            }
            // A part of a block can't be freed without reading the rest.
            Err(error) => {
                passes(error)?;
                (first, end) = (first.min(block), block);
            }
        }
    }
    list.phys.bpo_num_blkptrs = first;
    // A block of which a part is left has to be read once more; what is behind the end is nobody's.
    list.dnode.free_range(first * POINTER_BYTES, u64::MAX, tx).or_else(|error| passes(error.into()))?;
    Ok(usage)
}
