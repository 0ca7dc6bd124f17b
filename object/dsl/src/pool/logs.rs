//! Intent logs of all datasets at import: which hold what must be replayed, and giving up the others (OpenZFS: `zil_claim`,
//! `zil_clear_log_block`).

use super::tree::Tree;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::{DslError, IntentLog};
use dmu::{Objset, Tx};
use ondisk::{Txg, ZilHeader, ds_flags};
use std::sync::Arc;

/// Intent logs that have nothing to replay, with the blocks that they occupy.
#[derive(Default)]
pub struct EmptyLogs(Vec<(Arc<Objset>, IntentLog)>);

impl EmptyLogs {
    /// Looks at the logs of all datasets of a pool whose last txg on disk is `synced`.
    ///
    /// # Errors
    /// The names of the datasets that have something to be replayed.
    pub(super) fn look(tree: &Tree, synced: Txg) -> Result<EmptyLogs, Vec<String>> {
        let (mut empty, mut pending) = (EmptyLogs::default(), Vec::new());
        let mut waiting = vec![tree.root_dir.clone()];
        while let Some(dir) = waiting.pop() {
            waiting.extend(readable_children(tree, &dir));
            let Ok(head) = tree.head(&dir) else { continue };
            let Some((objset, header)) = log_of(tree, &head) else {
                head.set_objset(None);
                continue;
            };
            let log = IntentLog::read(&*tree.meta.io, &header, head.object, synced);
            if log.is_pending {
                pending.push(dir.full_name());
            } else {
                empty.0.push((objset, log));
            }
        }
        if pending.is_empty() { Ok(empty) } else { Err(pending) }
    }

    /// Takes the logs off their datasets and frees their blocks.
    pub(super) fn give_up(self, tree: &Tree, tx: &Tx) -> Result<(), DslError> {
        for (objset, log) in &self.0 {
            objset.set_zil_header(ZilHeader::default(), tx)?;
            log.blocks.iter().for_each(|bp| tree.meta.io.free(tx.txg(), bp));
        }
        Ok(())
    }
}

/// The directories below one, as far as they can be read.
fn readable_children(tree: &Tree, dir: &Arc<Dir>) -> Vec<Arc<Dir>> {
    let mut children = Vec::new();
    let Ok(table) = tree.meta.zap(dir.phys().dd_child_dir_zapobj) else { return Vec::new() };
    let read = table.for_each(|entry| {
        children.push((entry.first_integer, String::from_utf8_lossy(&entry.name).into_owned()));
        Ok(())
    });
    // What could be read before the damage counts.
    drop(read);
    children.retain(|(_, name)| !name.starts_with('$'));
    children.into_iter().filter_map(|(object, name)| tree.dir_known(object, dir.clone(), name).ok()).collect()
}

/// The object set of a dataset that has a log, with the log's header.
fn log_of(tree: &Tree, head: &Dataset) -> Option<(Arc<Objset>, ZilHeader)> {
    let phys = head.phys();
    // What a receive left half done was never mounted.
    if phys.ds_bp.is_hole() || phys.ds_flags & ds_flags::INCONSISTENT != 0 {
        return None;
    }
    let objset = tree.objset(head).ok()?;
    let header = objset.zil_header();
    (header != ZilHeader::default()).then_some((objset, header))
}

/// A clone starts with its origin's object set; the log named there belongs to the origin's dataset (OpenZFS:
/// `dsl_dataset_zero_zil`).
pub(super) fn disown(tree: &Tree, clone: &Dataset, tx: &Tx) -> Result<(), DslError> {
    match log_of(tree, clone) {
        Some((objset, _)) => Ok(objset.set_zil_header(ZilHeader::default(), tx)?),
        None => Ok(()),
    }
}
