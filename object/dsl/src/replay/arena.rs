//! Replay of an arena: what the process before did in the txgs that are not on disk is done again, in one txg for all datasets (docs/adr/0018).
//!
//! In several, a power cut between two of them would have logs on disk replayed onto what is newer. The logs of what is replayed are emptied in the
//! same txg: before it is on disk they are as they were, after it they have nothing that the datasets lack. The txg is held open until the arena
//! knows it; one in which something failed never reaches the disk.

use super::{ReplayError, ReplayFiles, give_up_in, log_of, replay_error};
use crate::pool::PendingLogs;
use crate::{DslError, DslPool};
use dmu::Tx;
use ondisk::zil::{LrCommon, TX_CI};
use ondisk::{ByteOrder, ObjectId, ObjsetType};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::sync::Arc;
use zil::{Arena, Create, Entry, EntryKind, Heritage, Record};

/// Entry of an arena, as far as files are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// Operation as logs have it, with the bytes of a write; names are those of any case if the flag says so.
    Record(Record<'a>, &'a [u8], bool),
    /// New file without a name.
    Nameless(Create<'a>),
    /// File without names that was deleted.
    Gone(ObjectId),
}

/// Replayer of what an arena tells of one dataset.
pub trait ReplayTold {
    /// Does what is told, all in this transaction, as if it happened at this time.
    ///
    /// # Errors
    /// [`ReplayError`]; nothing of the txg counts then.
    fn replay_told(&mut self, told: &Told<'_>, time: (i64, u32), tx: &Tx) -> Result<(), ReplayError>;
}

/// Failure of a replay.
fn failed(what: impl std::fmt::Display) -> ReplayError {
    ReplayError::Failed(what.to_string())
}

/// Takes those of the logs that wait which the arena has more of: they are not to be replayed, but emptied with it.
///
/// # Errors
/// Those of looking at the datasets.
pub fn take_told_logs(pool: &Arc<DslPool>, pending: &mut PendingLogs, heritage: &Heritage) -> Result<PendingLogs, DslError> {
    let mut told = PendingLogs { newest: pending.newest, ..PendingLogs::default() };
    for (object, cut) in std::mem::take(&mut pending.datasets) {
        let is_told = heritage.entries.iter().any(|entry| entry.objset == object);
        let is_of_files = || Ok::<_, DslError>(pool.hold_object(object)?.objset()?.kind() == ObjsetType::ZFS);
        let logs = if is_told || (heritage.is_cut && is_of_files()?) { &mut told } else { &mut *pending };
        logs.datasets.push((object, cut));
    }
    Ok(told)
}

/// Does again what an arena tells, and empties the logs that it has more than; all of it is on disk when this returns. On an error the txgs are
/// given up, and nothing of it is.
///
/// # Errors
/// [`ReplayError`].
pub fn replay_arena(
    pool: &Arc<DslPool>,
    (arena, heritage): (&Arc<Arena>, &Heritage),
    logs: &PendingLogs,
    files: &dyn ReplayFiles,
) -> Result<u64, ReplayError> {
    let txgs = pool.txgs();
    // Blocks of the logs must not be from the future when they are freed.
    while !logs.datasets.is_empty() && txgs.synced_txg() < logs.newest {
        txgs.wait_synced(txgs.open_txg()).map_err(|_| ReplayError::Stopped)?;
    }
    let tx = txgs.assign_now().map_err(|error| replay_error(error.into()))?;
    let txg = tx.txg();
    if let Err(error) = replay_in(pool, (arena, heritage), files, &tx).and_then(|()| empty(pool, logs, &tx)) {
        txgs.give_up();
        return Err(error);
    }
    arena.inherit(heritage, &tx);
    drop(tx);
    txgs.wait_synced(txg).map_err(|_| ReplayError::Stopped)?;
    Ok(heritage.entries.len() as u64)
}

fn replay_in(
    pool: &Arc<DslPool>,
    (arena, heritage): (&Arc<Arena>, &Heritage),
    files: &dyn ReplayFiles,
    tx: &Tx,
) -> Result<(), ReplayError> {
    let mut targets: BTreeMap<u64, Box<dyn ReplayTold>> = BTreeMap::new();
    for entry in &heritage.entries {
        let target = match targets.entry(entry.objset) {
            Occupied(known) => known.into_mut(),
            Vacant(place) => {
                let dataset = pool.hold_object(entry.objset).map_err(replay_error)?;
                place.insert(files.open_told(&dataset)?)
            }
        };
        replay_entry(target.as_mut(), entry, &arena.payload(entry).map_err(failed)?, tx)?;
    }
    Ok(())
}

/// Takes logs off their datasets.
fn empty(pool: &Arc<DslPool>, logs: &PendingLogs, tx: &Tx) -> Result<(), ReplayError> {
    for (object, _) in &logs.datasets {
        let dataset = pool.hold_object(*object).map_err(replay_error)?;
        let objset = dataset.objset().map_err(replay_error)?;
        log_of(&dataset, &objset).and_then(|log| give_up_in(&objset, &log, tx)).map_err(replay_error)?;
    }
    Ok(())
}

fn replay_entry(target: &mut dyn ReplayTold, entry: &Entry, payload: &[u8], tx: &Tx) -> Result<(), ReplayError> {
    if entry.kind == EntryKind::Gone {
        return target.replay_told(&Told::Gone(ObjectId(entry.object)), entry.time, tx);
    }
    let common = LrCommon::decode(payload).map_err(failed)?;
    let record = Record::decode(&common, payload, ByteOrder::Little).map_err(failed)?;
    let data = match &record {
        Record::Write(write) => match write.source {
            zil::Source::Record(data) => data,
            zil::Source::Block(_) => return Err(failed("an arena names a block")),
        },
        _ => &[],
    };
    let told = match (entry.kind, record) {
        (EntryKind::Nameless, Record::Create(create)) => Told::Nameless(create),
        (EntryKind::Record, record) => Told::Record(record, data, common.lrc_txtype & TX_CI != 0),
        _ => return Err(failed("an arena has a record that is none of its kind")),
    };
    target.replay_told(&told, entry.time, tx)
}
