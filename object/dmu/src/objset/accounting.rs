//! User, group and project accounting of what a sync changed.
//!
//! OpenZFS: `dmu_objset_do_userquota_updates`, `do_userquota_update`: an object counts with its allocated bytes and one
//! slot of 512 bytes.

use super::Objset;
use crate::dnode::{SPILL_BLOCK, Tree};
use crate::{DmuError, Dnode, Tx};
use abd::Abd;
use exec::{Mutex, RwLock};
use ondisk::{DNODE_SLOT_BYTES, ObjectType, dnode_flags, objset_flags};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Owner that an object's space is charged to (OpenZFS: `zfs_file_info_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectOwner {
    /// User id.
    pub uid: u64,
    /// Group id.
    pub gid: u64,
    /// Project id, when the object has one.
    pub project: Option<u64>,
}

/// A change of what an owner uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerDelta {
    /// Owner whose usage changed.
    pub owner: ObjectOwner,
    /// Change in bytes, one slot of 512 B for each dnode included.
    pub bytes: i64,
    /// Change in the number of objects.
    pub objects: i64,
}

/// Hook of the file system layer that tells the owners of objects and keeps their usage (OpenZFS: `zpl_get_file_info`,
/// `dmu_objset_do_userquota_updates`).
pub trait ObjsetHook: Send + Sync {
    /// The owner that `bonus` (and the spill block, when there is one) tells; `None` when the object isn't charged.
    fn owner(&self, bonus_type: ObjectType, bonus: &[u8], spill: Option<&Abd>) -> Option<ObjectOwner>;
    /// Applies the txg's changes to the accounting objects (-1, -2, -3), in syncing context. When it fails it keeps what it did
    /// not apply and does so when it is called again ([`ObjsetHook::has_unsettled`]).
    fn apply(&self, objset: &Arc<Objset>, deltas: &[OwnerDelta], tx: &Tx) -> Result<(), DmuError>;
    /// The last call of [`ObjsetHook::apply`] failed and left something.
    fn has_unsettled(&self) -> bool {
        false
    }
    /// Flags of an object set all of whose objects it has accounted for (see `ondisk::objset_flags`). With that of counts of objects, only
    /// those are counted, as such and for their projects, whose records have the mark of it (OpenZFS: `DNODE_FLAG_USEROBJUSED_ACCOUNTED`).
    fn counts(&self) -> u64 {
        objset_flags::USERACCOUNTING_COMPLETE
    }
}

/// Bytes and objects by owner.
type OwnerSums = BTreeMap<ObjectOwner, (i64, i64)>;

/// Marks in the records of dnodes that are accounted for in this way, by flags of object sets.
fn marks(counts: u64) -> u8 {
    let marks = [
        (objset_flags::USERACCOUNTING_COMPLETE, dnode_flags::USERUSED_ACCOUNTED),
        (objset_flags::USEROBJACCOUNTING_COMPLETE, dnode_flags::USEROBJUSED_ACCOUNTED),
    ];
    marks.into_iter().filter(|(counted, _)| counts & counted != 0).fold(0, |all, (_, mark)| all | mark)
}

/// Way in which what is synced is accounted for.
#[derive(Clone, Default)]
struct Way {
    hook: Option<Arc<dyn ObjsetHook>>,
    /// Flags of object sets whose marks records lose.
    forgets: u64,
}

impl Way {
    fn counts(&self) -> u64 {
        self.hook.as_ref().map_or(0, |hook| hook.counts())
    }

    /// Flags that a record gets that had these.
    fn flags(&self, flags: u8) -> u8 {
        (flags | marks(self.counts())) & !marks(self.forgets)
    }
}

/// Hook that accounts for the objects of an object set, and the changes that are not accounted for yet.
#[derive(Default)]
pub(crate) struct Accounting {
    way: RwLock<Way>,
    /// Change of what owners use by dnodes of a sync that failed later on: the repeated sync settles it.
    unsettled: Mutex<OwnerSums>,
}

impl Accounting {
    /// Objects of syncs that begin from now on are accounted for by this hook, and records lose the marks of what is forgotten.
    pub(super) fn set_way(&self, hook: Option<Arc<dyn ObjsetHook>>, forgets: u64) {
        *self.way.write() = Way { hook, forgets };
    }

    /// Flags of what is accounted for.
    pub(super) fn counts(&self) -> u64 {
        let way = self.way.read();
        way.counts() & !way.forgets
    }

    /// True when a record with these flags is as a sync would leave it.
    pub(super) fn is_marked(&self, flags: u8) -> bool {
        self.way.read().flags(flags) == flags
    }

    /// Changes to charge in a sync: begins with those that a failed one left.
    pub(crate) fn begin(&self) -> OwnerCharges {
        let way = self.way.read().clone();
        OwnerCharges { way, sums: std::mem::take(&mut *self.unsettled.lock()) }
    }

    /// The sync failed before the changes were settled: the next one does it.
    pub(crate) fn keep(&self, charges: OwnerCharges) {
        *self.unsettled.lock() = charges.sums;
    }
}

/// Changes of the owners' usage in a txg, summed as dnodes are committed.
pub(crate) struct OwnerCharges {
    /// Way that counts for the whole sync.
    way: Way,
    sums: OwnerSums,
}

impl OwnerCharges {
    /// Charges of no owner: there is no hook.
    pub(crate) fn none() -> OwnerCharges {
        OwnerCharges { way: Way::default(), sums: OwnerSums::new() }
    }

    /// Flags that the record of a dnode gets that had these.
    pub(crate) fn flags(&self, flags: u8) -> u8 {
        self.way.flags(flags)
    }

    /// A dnode went from one tree to another.
    pub(crate) fn add(&mut self, dnode: &Dnode, before: &Tree, after: &Tree) {
        let Some(hook) = self.way.hook.clone() else { return };
        let counts_objects = hook.counts() & objset_flags::USEROBJACCOUNTING_COMPLETE != 0;
        let mut charge = |tree: &Tree, sign: i64| {
            let counted = tree.exists && tree.flags & dnode_flags::USERUSED_ACCOUNTED != 0;
            let Some(owner) = counted.then(|| owner(hook.as_ref(), dnode, tree)).flatten() else { return };
            let is_whole = !counts_objects || tree.flags & dnode_flags::USEROBJUSED_ACCOUNTED != 0;
            let owner = if is_whole { owner } else { ObjectOwner { project: None, ..owner } };
            let sum = self.sums.entry(owner).or_default();
            sum.0 += sign * (tree.used_bytes as i64 + DNODE_SLOT_BYTES as i64);
            sum.1 += if is_whole { sign } else { 0 };
        };
        charge(before, -1);
        charge(after, 1);
    }

    /// Hands the changes to the hook.
    pub(crate) fn settle(self, objset: Option<Arc<Objset>>, tx: &Tx) -> Result<(), DmuError> {
        let Some(hook) = &self.way.hook else { return Ok(()) };
        let changed = self.sums.iter().filter(|(_, sum)| **sum != (0, 0));
        let deltas: Vec<OwnerDelta> = changed.map(|(&owner, &(bytes, objects))| OwnerDelta { owner, bytes, objects }).collect();
        match objset {
            Some(objset) if !deltas.is_empty() || hook.has_unsettled() => hook.apply(&objset, &deltas, tx),
            _ => Ok(()),
        }
    }
}

/// The owner as of a tree; an owner never moves to the spill block, so that is looked at only when the bonus says nothing.
fn owner(hook: &dyn ObjsetHook, dnode: &Dnode, tree: &Tree) -> Option<ObjectOwner> {
    let known = hook.owner(tree.bonus_type, &tree.bonus, None);
    match tree.spill {
        Some(spill) if known.is_none() => {
            let blocks = &dnode.context.blocks;
            let bookmark = blocks.bookmark(dnode.object(), 0, SPILL_BLOCK);
            let data = blocks.io().read_kept(&spill, &bookmark, blocks.keep(true)).ok()?;
            hook.owner(tree.bonus_type, &tree.bonus, Some(&data))
        }
        _ => known,
    }
}
