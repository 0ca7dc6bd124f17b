//! User, group and project accounting of what a sync changed.
//!
//! OpenZFS: `dmu_objset_do_userquota_updates`, `do_userquota_update`: an object counts with its allocated bytes and one
//! slot of 512 bytes.

use super::node::{Committed, NodeSync};
use crate::objset::{Objset, special_index};
use crate::state::Tree;
use crate::{DmuError, ObjectOwner, ObjsetHook, OwnerDelta, Tx};
use ondisk::{DNODE_SLOT_BYTES, META_DNODE_OBJECT, Txg, dnode_flags, objset_flags};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Objset {
    /// Marks an ordinary dnode as accounted for, once the object set has a hook.
    pub(super) fn flag_accounted(&self, job: &mut NodeSync) {
        let object = job.dnode.object();
        if object == META_DNODE_OBJECT || special_index(object).is_some() || self.hook.read().is_none() {
            return;
        }
        job.flags |= dnode_flags::USERUSED_ACCOUNTED;
        if self.flags() & objset_flags::USEROBJACCOUNTING_COMPLETE != 0 {
            job.flags |= dnode_flags::USEROBJUSED_ACCOUNTED;
        }
    }

    /// What to charge in a sync: begins with what a failed one left.
    pub(super) fn begin_charges(&self) -> OwnerCharges {
        let hook = self.hook.read().clone();
        OwnerCharges { hook, sums: std::mem::take(&mut *self.unsettled.lock()) }
    }

    /// The sync failed before the changes were settled: the next one does it.
    pub(super) fn keep_charges(&self, charges: OwnerCharges) {
        *self.unsettled.lock() = charges.sums;
    }

    /// Hands the txg's changes to the hook.
    pub(super) fn account(&self, charges: OwnerCharges, txg: Txg) -> Result<(), DmuError> {
        let Some(hook) = &charges.hook else { return Ok(()) };
        let changed = charges.sums.iter().filter(|(_, sum)| **sum != (0, 0));
        let deltas: Vec<OwnerDelta> = changed.map(|(&owner, &(bytes, objects))| OwnerDelta { owner, bytes, objects }).collect();
        match self.shared() {
            Some(objset) if !deltas.is_empty() || hook.has_unsettled() => hook.apply(&objset, &deltas, &Tx::syncing(txg)),
            _ => Ok(()),
        }
    }
}

/// Bytes and objects by owner.
pub(crate) type OwnerSums = BTreeMap<ObjectOwner, (i64, i64)>;

/// What owners used more or less in a txg, summed as dnodes are committed.
pub(super) struct OwnerCharges {
    hook: Option<Arc<dyn ObjsetHook>>,
    sums: OwnerSums,
}

impl OwnerCharges {
    /// Charges nobody.
    pub(super) fn none() -> OwnerCharges {
        OwnerCharges { hook: None, sums: OwnerSums::new() }
    }

    /// A dnode went from one tree to another.
    pub(super) fn add(&mut self, change: &Committed) {
        let Some(hook) = self.hook.clone() else { return };
        let mut charge = |tree: &Tree, sign: i64| {
            let counted = tree.exists && tree.flags & dnode_flags::USERUSED_ACCOUNTED != 0;
            let Some(owner) = counted.then(|| owner(hook.as_ref(), change, tree)).flatten() else { return };
            let sum = self.sums.entry(owner).or_default();
            sum.0 += sign * (tree.used_bytes as i64 + DNODE_SLOT_BYTES as i64);
            sum.1 += sign;
        };
        charge(&change.before, -1);
        charge(&change.after, 1);
    }
}

/// The owner as of a tree; an owner never moves to the spill block, so that is looked at only when the bonus says nothing.
fn owner(hook: &dyn ObjsetHook, change: &Committed, tree: &Tree) -> Option<ObjectOwner> {
    let known = hook.owner(tree.bonus_type, &tree.bonus, None);
    match tree.spill {
        Some(spill) if known.is_none() => {
            let context = &change.dnode.context;
            let bookmark = context.bookmark(change.dnode.object(), 0, crate::dnode::SPILL_BLOCK);
            let data = context.env.io.read_kept(&spill, &bookmark, context.keep(true)).ok()?;
            hook.owner(tree.bonus_type, &tree.bonus, Some(&data))
        }
        _ => known,
    }
}
