//! Replay of what an arena tells: the kernel goes on with all of it, so that nothing without names is deleted before its time, and everything has
//! the times of the first time.

use super::{Replay, failed};
use crate::ZplError;
use crate::undo::Undo;
use dmu::Tx;
use dsl::{ReplayError, ReplayTold, Told};
use ondisk::ObjectId;
use zil::Create;

impl ReplayTold for Replay {
    fn replay_told(&mut self, told: &Told<'_>, time: (i64, u32), tx: &Tx) -> Result<(), ReplayError> {
        self.zfs.store.set_replayed_time(Some(time));
        *self.room.record.lock() = Some(tx.again());
        let result = match told {
            Told::Record(record, data, is_caseless) => self.apply(record, *is_caseless, data, tx),
            Told::Nameless(create) => self.make_nameless(create, tx),
            Told::Gone(object) => self.let_go(*object),
        };
        *self.room.record.lock() = None;
        self.zfs.store.set_replayed_time(None);
        result.map_err(|error| match (failed(error), told) {
            (ReplayError::Failed(why), told) => ReplayError::Failed(format!("{why}, of {}", described(told))),
            (stopped, _) => stopped,
        })
    }
}

/// Short words for what failed.
fn described(told: &Told<'_>) -> String {
    match told {
        Told::Record(record, data, _) if !data.is_empty() => format!("a write to {:?}", record.may_be_gone()),
        other => format!("{other:?}"),
    }
}

impl Replay {
    /// Makes a file without a name.
    fn make_nameless(&self, create: &Create<'_>, tx: &Tx) -> Result<(), ZplError> {
        let (store, nodes) = (&self.zfs.store, &self.zfs.nodes);
        let above = self.zfs.node(create.directory)?;
        let new = crate::NewNode { nameless: true, ..super::names::new_node(create) };
        let made = Undo::run(store, tx, |undo| {
            let node = nodes.make_node(Some(&above), &new, undo)?;
            undo.mark_unlinked(&node.znode)?;
            Ok(node)
        })?;
        drop(made);
        Ok(())
    }

    /// Deletes a file without names, which nobody has open any more. One with names is a value of a file that is to be deleted: it goes with that.
    fn let_go(&self, object: ObjectId) -> Result<(), ZplError> {
        match self.zfs.node(object) {
            Ok(node) if node.fields().links == 0 => {
                node.state.lock().unlinked = true;
                self.zfs.release(object, u64::MAX);
                Ok(())
            }
            Ok(_) | Err(ZplError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
