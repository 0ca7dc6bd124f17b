//! User, group and project accounting of what a sync changed.
//!
//! OpenZFS: `dmu_objset_do_userquota_updates`, `do_userquota_update`: an object counts with its allocated bytes and one
//! slot of 512 bytes.

use super::Objset;
use crate::dnode::{SPILL_BLOCK, Tree};
use crate::special::is_own;
use crate::{DmuError, Dnode, Tx};
use abd::Abd;
use exec::{Mutex, RwLock};
use ondisk::{DNODE_SLOT_BYTES, ObjectId, ObjectType, dnode_flags, objset_flags};
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
}

/// Bytes and objects by owner.
type OwnerSums = BTreeMap<ObjectOwner, (i64, i64)>;

/// Hook that accounts for the objects of an object set, and the changes that are not accounted for yet.
#[derive(Default)]
pub(crate) struct Accounting {
    hook: RwLock<Option<Arc<dyn ObjsetHook>>>,
    /// Change of what owners use by dnodes of a sync that failed later on: the repeated sync settles it.
    unsettled: Mutex<OwnerSums>,
}

impl Accounting {
    /// Objects synced from now on are accounted for.
    pub(super) fn set_hook(&self, hook: Arc<dyn ObjsetHook>) {
        *self.hook.write() = Some(hook);
    }

    /// The flags that a dnode gets which is synced: an ordinary one is accounted for, once the object set has a hook.
    pub(crate) fn dnode_flags(&self, object: ObjectId, objset_flags: u64) -> u8 {
        if is_own(object) || self.hook.read().is_none() {
            return 0;
        }
        let counts_objects = objset_flags & objset_flags::USEROBJACCOUNTING_COMPLETE != 0;
        dnode_flags::USERUSED_ACCOUNTED | if counts_objects { dnode_flags::USEROBJUSED_ACCOUNTED } else { 0 }
    }

    /// Changes to charge in a sync: begins with those that a failed one left.
    pub(crate) fn begin(&self) -> OwnerCharges {
        let hook = self.hook.read().clone();
        OwnerCharges { hook, sums: std::mem::take(&mut *self.unsettled.lock()) }
    }

    /// The sync failed before the changes were settled: the next one does it.
    pub(crate) fn keep(&self, charges: OwnerCharges) {
        *self.unsettled.lock() = charges.sums;
    }
}

/// Changes of the owners' usage in a txg, summed as dnodes are committed.
pub(crate) struct OwnerCharges {
    hook: Option<Arc<dyn ObjsetHook>>,
    sums: OwnerSums,
}

impl OwnerCharges {
    /// Charges of no owner: there is no hook.
    pub(crate) fn none() -> OwnerCharges {
        OwnerCharges { hook: None, sums: OwnerSums::new() }
    }

    /// A dnode went from one tree to another.
    pub(crate) fn add(&mut self, dnode: &Dnode, before: &Tree, after: &Tree) {
        let Some(hook) = self.hook.clone() else { return };
        let mut charge = |tree: &Tree, sign: i64| {
            let counted = tree.exists && tree.flags & dnode_flags::USERUSED_ACCOUNTED != 0;
            let Some(owner) = counted.then(|| owner(hook.as_ref(), dnode, tree)).flatten() else { return };
            let sum = self.sums.entry(owner).or_default();
            sum.0 += sign * (tree.used_bytes as i64 + DNODE_SLOT_BYTES as i64);
            sum.1 += sign;
        };
        charge(before, -1);
        charge(after, 1);
    }

    /// Hands the changes to the hook.
    pub(crate) fn settle(self, objset: Option<Arc<Objset>>, tx: &Tx) -> Result<(), DmuError> {
        let Some(hook) = &self.hook else { return Ok(()) };
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
