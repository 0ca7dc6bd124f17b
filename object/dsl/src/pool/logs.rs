//! Intent logs of all datasets at import: which hold what must be replayed, claiming those, and giving up the others (OpenZFS:
//! `zil_claim`, `zil_clear_log_block`). Those of encrypted datasets are claimed as the others, and wait for their keys.

use super::tree::Tree;
use super::waiting::WaitingLog;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::{DslError, keys};
use dmu::{Objset, Tx};
use ondisk::{BlockPtr, ObjsetType, Txg, VdevId, ZilHeader, ds_flags};
use std::collections::BTreeSet;
use std::sync::Arc;
use zil::{IntentLog, Obstacle};

/// Log with something to be replayed.
struct Pending {
    name: String,
    /// Object of the dataset, which is the object set's number.
    head: u64,
    objset: Arc<Objset>,
    /// Header that the log has from the first txg on.
    header: ZilHeader,
    /// Description of what cut it short, if anything did.
    cut: Option<String>,
    /// The dataset is encrypted: the log waits for its key.
    is_locked: bool,
    /// Blocks of one that waits for a key, once it is claimed.
    blocks: Vec<BlockPtr>,
}

/// Question whether somebody replays the logs of object sets of a kind.
pub type Knows<'a> = &'a dyn Fn(ObjsetType) -> bool;

/// Vdevs for logs that are not in use: what logs have there is given up, and perhaps more (OpenZFS: `SPA_LOG_CLEAR`).
#[derive(Clone, Debug, Default)]
pub struct LostLogs {
    /// Vdevs that cannot be read.
    pub unreadable: BTreeSet<VdevId>,
    /// Vdevs among these that nobody knows the space of.
    pub missing: BTreeSet<VdevId>,
    /// True when logs go that were not claimed: the pool went back to a checkpoint, and their blocks may have been written since (OpenZFS:
    /// `zil_claim`).
    pub unclaimed: bool,
}

/// Intent logs of a pool that is being opened.
#[derive(Default)]
pub struct IntentLogs {
    /// Logs that have nothing to replay, with the blocks that they occupy.
    empty: Vec<(Arc<Objset>, IntentLog)>,
    pending: Vec<Pending>,
    /// Names of datasets whose logs go, with what is in them, because they end on a device that was lost.
    given_up: Vec<String>,
    newest: Txg,
}

/// Logs that wait for their replay, all claimed.
#[derive(Clone, Debug, Default)]
pub struct PendingLogs {
    /// Objects of the datasets, each with what cut its log short.
    pub(crate) datasets: Vec<(u64, Option<String>)>,
    /// Objects of encrypted datasets, whose logs wait for their keys.
    pub(crate) locked: Vec<(u64, WaitingLog)>,
    /// Newest block of these logs.
    pub(crate) newest: Txg,
}

impl IntentLogs {
    /// Looks at the logs of all datasets of a pool whose last txg on disk is `synced`, with a root of the txg `root`. Those of file systems can be
    /// replayed only with somebody who knows them; those that end on a device that was lost are given up, and so are those that went on in txgs
    /// which the pool left behind when it went back to an older root: their space may be another's since (OpenZFS: `zil_clear_log_block`).
    ///
    /// # Errors
    /// The names of the datasets that have something to be replayed which cannot be.
    pub(super) fn look(tree: &Tree, (synced, root): (Txg, Txg), knows: Knows<'_>, lost: &LostLogs) -> Result<IntentLogs, Vec<String>> {
        let (mut logs, mut refused) = (IntentLogs { newest: synced, ..IntentLogs::default() }, Vec::new());
        let mut waiting = vec![tree.root_dir.clone()];
        while let Some(dir) = waiting.pop() {
            waiting.extend(readable_children(tree, &dir));
            let Ok(head) = tree.head(&dir) else { continue };
            let Some((objset, header)) = log_of(tree, &head) else {
                head.set_objset(None);
                continue;
            };
            // Whatever was allocated after the root's txg is free in its space maps.
            let mut log = IntentLog::read(&*tree.meta.io, &header, head.object, root);
            if log.first_unknown.is_some_and(|born| born <= synced) {
                tracing::warn!("the intent log of {} is given up: it goes on in txgs that the pool left behind", dir.full_name());
                log.is_pending = false;
            }
            if log.unreadable.is_some_and(|bp| lost.unreadable.contains(&bp.dva(0).vdev)) {
                logs.given_up.push(dir.full_name());
                log.blocks.retain(|bp| !lost.missing.contains(&bp.dva(0).vdev));
                log.is_pending = false;
            }
            log.is_pending &= !(lost.unclaimed && header.zh_claim_txg == 0);
            if !log.is_pending {
                logs.empty.push((objset, log));
                continue;
            }
            let name = dir.full_name();
            let is_known = objset.kind() == ObjsetType::ZVOL || knows(objset.kind());
            // What cannot be known may be. Its records are not looked at before its key is there.
            let is_locked = !matches!(keys::object_of(&tree.meta, &dir), Ok(None));
            let obstacle = log.obstacle.filter(|obstacle| !is_locked || *obstacle == Obstacle::Unreadable);
            if let Some(obstacle) = obstacle {
                tracing::warn!("the intent log of {name} cannot be replayed: {obstacle}");
            }
            match is_known && obstacle.is_none() {
                true => logs.pending.push(Pending { name, head: head.object, objset, header, cut: None, is_locked, blocks: Vec::new() }),
                false => refused.push(name),
            }
        }
        if refused.is_empty() { Ok(logs) } else { Err(refused) }
    }

    /// Claims what waits, in the first txg after `synced`, before anything else is allocated.
    ///
    /// # Errors
    /// The names of the datasets whose logs could not be read.
    pub(super) fn claim(&mut self, tree: &Tree, synced: Txg) -> Result<(), Vec<String>> {
        for name in &self.given_up {
            tracing::warn!("the intent log of {name} is given up: its log device is missing, or not in use");
        }
        let io = &*tree.meta.io;
        let mut unreadable = Vec::new();
        for log in &mut self.pending {
            let claim = zil::claim(io, &log.header, log.head, synced, &mut |bp| io.claim(synced.next(), bp));
            if claim.is_unreadable {
                unreadable.push(log.name.clone());
            }
            self.newest = self.newest.max(claim.newest);
            (log.header, log.cut) = (claim.header, claim.cut);
            if log.is_locked {
                // Of the same reading: another one might end early, and what lies behind its end would be nobody's for good.
                log.blocks = claim.blocks;
            }
            let (name, header) = (&log.name, &log.header);
            tracing::info!("claimed the intent log of {name} up to block {}, record {}", header.zh_claim_blk_seq, header.zh_claim_lr_seq);
        }
        if unreadable.is_empty() { Ok(()) } else { Err(unreadable) }
    }

    /// True when logs go because they end on a device that was lost.
    pub fn have_losses(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Logs that are to be replayed once the claim is on disk, or once their keys are there.
    pub fn pending(&self) -> PendingLogs {
        let (locked, open): (Vec<&Pending>, Vec<&Pending>) = self.pending.iter().partition(|log| log.is_locked);
        let waiting = |log: &Pending| WaitingLog { blocks: log.blocks.clone(), cut: log.cut.clone() };
        PendingLogs {
            datasets: open.iter().map(|log| (log.head, log.cut.clone())).collect(),
            locked: locked.iter().map(|log| (log.head, waiting(log))).collect(),
            newest: self.newest,
        }
    }

    /// Writes down what was claimed; takes logs without anything to replay off their datasets and frees their blocks.
    pub(super) fn settle(self, tree: &Tree, tx: &Tx) -> Result<(), DslError> {
        for log in self.pending {
            log.objset.set_zil_header(log.header, tx)?;
        }
        for (objset, log) in &self.empty {
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
