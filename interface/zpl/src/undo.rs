//! Operations of several steps that happen as a whole or not at all.
//!
//! A transaction is not taken back when one of its steps fails (a damaged block of a directory, names that share a hash, no
//! number left for a layout): its txg is synced with what was done. So each step notes here how it was before, and who fails
//! puts that back, newest first, in the same transaction. What is put back was made dirty by the step itself: that needs no
//! disk. OpenZFS reads what a transaction may touch before it is assigned (`dmu_tx_hold_*`) and relies on the rest working.

use crate::ZplError;
use crate::store::Store;
use crate::znode::{Fields, Time, Znode};
use dmu::Tx;
use ondisk::ObjectId;
use std::cell::OnceCell;
use std::sync::Arc;
use zap::Zap;

/// Step of an operation, with how it was before.
enum Step {
    /// Entry that was added: there was none of this name.
    Added { directory: Arc<Znode>, name: Vec<u8> },
    /// Entry that was removed, with the value that it had.
    Removed { directory: Arc<Znode>, name: Vec<u8>, value: u64 },
    /// Entry whose value was replaced, with the value that it had.
    Replaced { directory: Arc<Znode>, name: Vec<u8>, value: u64 },
    /// Attributes that were changed, and what they became.
    Changed { node: Arc<Znode>, before_and_after: Box<(Fields, Fields)> },
    /// Node whose links were changed, and whether it counted as one without links.
    Links { node: Arc<Znode>, unlinked: bool },
    /// Object that entered the unlinked set.
    Queued(ObjectId),
    /// Object that left the unlinked set.
    Dequeued(ObjectId),
    /// Object that was made.
    Made(ObjectId),
}

impl Step {
    /// Puts back how it was before the step.
    fn take_back(self, store: &Store, tx: &Tx) -> Result<(), ZplError> {
        let zap = |directory: &Arc<Znode>| Zap::open(directory.dnode.clone());
        match self {
            Step::Added { directory, name } => Ok(zap(&directory)?.remove(name, tx)?),
            Step::Removed { directory, name, value } => Ok(zap(&directory)?.add_u64(name, value, tx)?),
            Step::Replaced { directory, name, value } => Ok(zap(&directory)?.update_u64(name, value, tx)?),
            Step::Changed { node, before_and_after } => {
                node.update(&store.sa, tx, |fields| fields.take_back(&before_and_after.0, &before_and_after.1))
            }
            Step::Links { node, unlinked } => {
                node.state.lock().unlinked = unlinked;
                Ok(())
            }
            Step::Queued(object) => Ok(store.unlinked.zap()?.remove_int(object.0, tx)?),
            Step::Dequeued(object) => Ok(store.unlinked.zap()?.add_int(object.0, tx)?),
            Step::Made(object) => Ok(store.objset.free_object(object, tx)?),
        }
    }
}

/// Steps of an operation so far.
pub(crate) struct Undo<'a> {
    pub(crate) store: &'a Store,
    tx: &'a Tx,
    steps: Vec<Step>,
    /// Time of the operation, once somebody asked for it.
    now: OnceCell<Time>,
}

impl<'a> Undo<'a> {
    /// Does all of `act` or nothing: what it did before it failed is taken back. No lock of a node's state may be held.
    pub(crate) fn run<R>(store: &'a Store, tx: &'a Tx, act: impl FnOnce(&mut Undo<'a>) -> Result<R, ZplError>) -> Result<R, ZplError> {
        let mut undo = Undo { store, tx, steps: Vec::new(), now: OnceCell::new() };
        let result = act(&mut undo);
        if result.is_err() {
            // What cannot be put back stays: there is nobody left to tell, and the rest is better put back.
            while let Some(step) = undo.steps.pop() {
                let _ = step.take_back(store, tx);
            }
        }
        result
    }

    /// Transaction of the operation.
    pub(crate) fn tx(&self) -> &'a Tx {
        self.tx
    }

    /// Time that the operation leaves on all that it changes: the same, so that it can be done again as it was.
    pub(crate) fn now(&self) -> Time {
        *self.now.get_or_init(|| self.store.now())
    }

    /// Notes that an object was made.
    pub(crate) fn made(&mut self, object: ObjectId) {
        self.steps.push(Step::Made(object));
    }

    /// Adds an entry to a directory.
    pub(crate) fn add_entry(&mut self, directory: &Arc<Znode>, name: &[u8], value: u64) -> Result<(), ZplError> {
        if name.len() > crate::NAME_BYTES_MAX {
            self.store.objset.note_long_name();
        }
        Zap::open(directory.dnode.clone())?.add_u64(name, value, self.tx)?;
        self.steps.push(Step::Added { directory: directory.clone(), name: name.to_vec() });
        Ok(())
    }

    /// Removes the entry with this spelling and value.
    pub(crate) fn remove_entry(&mut self, directory: &Arc<Znode>, name: Vec<u8>, value: u64) -> Result<(), ZplError> {
        Zap::open(directory.dnode.clone())?.remove(&name, self.tx)?;
        self.steps.push(Step::Removed { directory: directory.clone(), name, value });
        Ok(())
    }

    /// Gives the entry with this spelling and value another value.
    pub(crate) fn replace_entry(&mut self, directory: &Arc<Znode>, name: Vec<u8>, old: u64, new: u64) -> Result<(), ZplError> {
        Zap::open(directory.dnode.clone())?.update_u64(&name, new, self.tx)?;
        self.steps.push(Step::Replaced { directory: directory.clone(), name, value: old });
        Ok(())
    }

    /// Changes attributes of a node.
    pub(crate) fn change(&mut self, node: &Arc<Znode>, change: impl FnOnce(&mut Fields)) -> Result<(), ZplError> {
        let before_and_after = node.update(&self.store.sa, self.tx, |fields| {
            let before = *fields;
            change(fields);
            Box::new((before, *fields))
        })?;
        self.steps.push(Step::Changed { node: node.clone(), before_and_after });
        Ok(())
    }

    /// Lets a node count as one without links, or as one with some again.
    pub(crate) fn set_unlinked(&mut self, node: &Arc<Znode>, unlinked: bool) {
        let before = std::mem::replace(&mut node.state.lock().unlinked, unlinked);
        self.steps.push(Step::Links { node: node.clone(), unlinked: before });
    }

    /// Enters an object in the unlinked set.
    pub(crate) fn queue(&mut self, object: ObjectId) -> Result<(), ZplError> {
        self.store.unlinked.zap()?.add_int(object.0, self.tx)?;
        self.steps.push(Step::Queued(object));
        Ok(())
    }

    /// Takes an object out of the unlinked set.
    pub(crate) fn dequeue(&mut self, object: ObjectId) -> Result<(), ZplError> {
        self.store.unlinked.zap()?.remove_int(object.0, self.tx)?;
        self.steps.push(Step::Dequeued(object));
        Ok(())
    }
}

impl Undo<'_> {
    /// Takes the links away and puts the node into the unlinked set (OpenZFS: `zfs_unlinked_add`).
    pub(crate) fn mark_unlinked(&mut self, node: &Arc<Znode>) -> Result<(), ZplError> {
        self.set_unlinked(node, true);
        self.change(node, |fields| fields.links = 0)?;
        self.queue(node.object)?;
        self.store.counts.unlinked(1);
        Ok(())
    }

    /// Removes a node made linked again from the unlinked set (OpenZFS: `zfs_link_create` of an O_TMPFILE).
    pub(crate) fn unmark_unlinked(&mut self, node: &Arc<Znode>) -> Result<(), ZplError> {
        self.dequeue(node.object)?;
        self.set_unlinked(node, false);
        Ok(())
    }
}

impl Fields {
    /// Puts back what a change made of `before`; what others changed since stays.
    fn take_back(&mut self, before: &Fields, after: &Fields) {
        // Counts move by what the change moved them.
        self.size = self.size.wrapping_sub(after.size).wrapping_add(before.size);
        self.links = self.links.wrapping_sub(after.links).wrapping_add(before.links);
        let put = |now: &mut u64, before: u64, after: u64| {
            if *now == after {
                *now = before;
            }
        };
        put(&mut self.mode, before.mode, after.mode);
        put(&mut self.uid, before.uid, after.uid);
        put(&mut self.gid, before.gid, after.gid);
        put(&mut self.parent, before.parent, after.parent);
        put(&mut self.flags, before.flags, after.flags);
        put(&mut self.xattr, before.xattr, after.xattr);
        for ((now, before), after) in self.times.iter_mut().zip(before.times).zip(after.times) {
            if *now == after {
                *now = before;
            }
        }
    }
}
