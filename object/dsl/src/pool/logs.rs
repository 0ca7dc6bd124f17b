//! Intent logs of all datasets at import: which hold what must be replayed, and giving up the others (OpenZFS: `zil_claim`,
//! `zil_clear_log_block`).

use super::DslPool;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::{DslError, IntentLog};
use dmu::{Objset, Tx};
use ondisk::{ZilHeader, ds_flags};
use std::sync::Arc;

/// Intent logs that have nothing to replay, with the blocks that they occupy.
#[derive(Default)]
pub struct EmptyLogs(Vec<(Arc<Objset>, IntentLog)>);

impl DslPool {
    /// Looks at the logs of all datasets of a pool that is being opened: those to be given up with its first txg.
    ///
    /// # Errors
    /// The names of the datasets that have something to be replayed. The log of a dataset that can't be read can't be told; nothing can
    /// be written there either.
    pub fn look_at_logs(&self) -> Result<EmptyLogs, Vec<String>> {
        let _config = self.config();
        let (mut empty, mut pending) = (EmptyLogs::default(), Vec::new());
        let mut waiting = vec![self.root_dir.clone()];
        while let Some(dir) = waiting.pop() {
            waiting.extend(self.children_of(&dir));
            let Ok(head) = self.head(&dir) else { continue };
            let Some((objset, header)) = self.log_of(&head) else {
                head.set_objset(None);
                continue;
            };
            let log = IntentLog::read(&*self.meta.io, &header, head.object, self.txgs.synced_txg());
            if log.is_pending {
                pending.push(dir.full_name());
            } else {
                empty.0.push((objset, log));
            }
        }
        if pending.is_empty() { Ok(empty) } else { Err(pending) }
    }

    /// The directories below one, as far as they can be read.
    fn children_of(&self, dir: &Arc<Dir>) -> Vec<Arc<Dir>> {
        let mut children = Vec::new();
        let Ok(table) = self.meta.zap(dir.phys().dd_child_dir_zapobj) else { return Vec::new() };
        let read = table.for_each(|entry| {
            children.push((entry.first_integer, String::from_utf8_lossy(&entry.name).into_owned()));
            Ok(())
        });
        // What could be read before the damage counts.
        drop(read);
        children.retain(|(_, name)| !name.starts_with('$'));
        children.into_iter().filter_map(|(object, name)| self.dir_known(object, dir.clone(), name).ok()).collect()
    }

    /// The object set of a dataset that has a log, with the log's header.
    fn log_of(&self, head: &Dataset) -> Option<(Arc<Objset>, ZilHeader)> {
        let phys = head.phys();
        // What a receive left half done was never mounted.
        if phys.ds_bp.is_hole() || phys.ds_flags & ds_flags::INCONSISTENT != 0 {
            return None;
        }
        let objset = head.objset(&self.meta, || self.objset_props(head)).ok()?;
        let header = objset.zil_header();
        (header != ZilHeader::default()).then_some((objset, header))
    }

    /// Gives logs up, in the first txg after the pool was opened.
    ///
    /// # Errors
    /// Those of the object sets.
    pub fn give_up_logs(&self, logs: EmptyLogs, tx: &Tx) -> Result<(), DslError> {
        for (objset, log) in &logs.0 {
            objset.set_zil_header(ZilHeader::default(), tx)?;
            log.blocks.iter().for_each(|bp| self.meta.io.free(tx.txg(), bp));
        }
        Ok(())
    }

    /// A clone starts with its origin's object set; the log named there belongs to the origin's dataset (OpenZFS:
    /// `dsl_dataset_zero_zil`).
    pub(super) fn disown_log(&self, clone: &Dataset, tx: &Tx) -> Result<(), DslError> {
        match self.log_of(clone) {
            Some((objset, _)) => Ok(objset.set_zil_header(ZilHeader::default(), tx)?),
            None => Ok(()),
        }
    }
}
