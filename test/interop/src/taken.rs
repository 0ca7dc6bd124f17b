//! Pools that a crash left with intent logs, taken over by both engines: what the real one claims, what we replay, and what its own tool lists.

use crate::damage::copy_pool;
use crate::manifest::{self, Lines};
use crate::oracle::{LogListed, Oracle};
use crate::{Failure, driver};
use dsl::{DatasetHandle, ReplayError, ReplayFiles, ReplayRecords, ReplayedLog};
use exec::Exec;
use ondisk::ObjsetType;
use pool::Pool;
use std::collections::BTreeMap;
use std::path::Path;

/// Counts of what could be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Number of pools.
    pub pools: u64,
    /// Number of pools with logs that held something.
    pub pending: u64,
    /// Number of records in these logs.
    pub records: u64,
}

impl Taken {
    /// Adds the counts of others.
    pub fn add(&mut self, other: Taken) {
        self.pools += other.pools;
        self.pending += other.pending;
        self.records += other.records;
    }
}

/// Records that wait in the logs of datasets, as the real engine's `zdb` lists them; `synced` is the last txg on disk.
pub fn waiting(listed: &BTreeMap<String, LogListed>, synced: u64) -> BTreeMap<String, u64> {
    let count = |log: &LogListed| {
        let is_claimed = log.claim_txg != 0;
        let first = if is_claimed { log.claim_txg } else { synced + 1 };
        let waits = |(txg, seq): &&(u64, u64)| *txg >= first && *seq > log.replay_seq && (!is_claimed || *seq <= log.claim_lr_seq);
        log.records.iter().filter(waits).count() as u64
    };
    listed.iter().map(|(name, log)| (name.clone(), count(log))).filter(|(_, count)| *count > 0).collect()
}

/// Fails unless each log was replayed whole, with as many records as the real engine lists.
pub fn same_records(waiting: &BTreeMap<String, u64>, replayed: &[ReplayedLog]) -> Result<(), Failure> {
    if let Some(why) = replayed.iter().find_map(|log| log.failure.as_ref()) {
        return Err(why.clone().into());
    }
    let found: BTreeMap<String, u64> =
        replayed.iter().filter(|log| log.records > 0).map(|log| (log.dataset.clone(), log.records)).collect();
    if found == *waiting { Ok(()) } else { Err(format!("{found:?} records were replayed, zdb lists {waiting:?}").into()) }
}

/// Replayer that leaves out what records tell, of object sets of every kind: the logs are claimed, read and freed.
pub struct Reader;

impl ReplayFiles for Reader {
    fn knows(&self, _: ObjsetType) -> bool {
        true
    }
    fn open(&self, _: &DatasetHandle) -> Result<Box<dyn ReplayRecords>, ReplayError> {
        Ok(Box::new(Reader))
    }
}

impl ReplayRecords for Reader {
    fn replay(&mut self, _: &zil::Record<'_>, _: bool, _: &[u8], _: &dmu::Tx) -> Result<(), ReplayError> {
        Ok(())
    }
}

/// Replayer whose machine stops before it begins.
pub struct Stops;

impl ReplayFiles for Stops {
    fn knows(&self, _: ObjsetType) -> bool {
        true
    }
    fn open(&self, _: &DatasetHandle) -> Result<Box<dyn ReplayRecords>, ReplayError> {
        Err(ReplayError::Stopped)
    }
}

/// Lines without the times of modification: those of what a replay wrote are its own.
pub fn timeless(lines: &Lines) -> Lines {
    let strip = |line: &String| line.split('\t').filter(|part| !part.starts_with("mtime=")).collect::<Vec<_>>().join("\t");
    lines.iter().map(strip).collect()
}

fn listed(exec: &Exec, folder: &Path, pool: &str) -> Result<(Lines, u64), Failure> {
    let pool = driver::import(exec, folder, pool, true)?;
    let lines = manifest::of_pool(&pool)?;
    let txg = pool.txg().0;
    pool.export()?;
    Ok((lines, txg))
}

/// Replays the logs in a folder, and lists what is there then; the real engine finds the pool clean, and lists the same.
fn replayed(exec: &Exec, oracle: &Oracle, (folder, name): (&Path, &str), waiting: &BTreeMap<String, u64>) -> Result<Lines, Failure> {
    let pool: Pool = driver::import(exec, folder, name, false)?;
    same_records(waiting, pool.replayed())?;
    pool.export()?;
    let (lines, _) = listed(exec, folder, name)?;
    oracle.zdb_clean(folder, name)?;
    if let Some(theirs) = oracle.looked_at(folder, name)? {
        manifest::compare("the real engine's, after our replay", &lines, &theirs)?;
    }
    Ok(lines)
}

/// Takes over a pool of ours that crashed and lies in `folder`. The real engine imports a copy of it, which claims the logs, and finds it clean and as
/// of the last txg; then our replay of what it claimed, and that of what nobody claimed, give the same. `work` is a folder for the copy.
///
/// # Errors
/// What differs.
pub fn by_both(oracle: &Oracle, (folder, name): (&Path, &str), work: &Path) -> Result<Taken, Failure> {
    let exec = driver::executor();
    let logs = oracle.logs(folder, name)?.ok_or("zdb is missing")?;
    let (before, synced) = listed(&exec, folder, name)?;
    let waits = waiting(&logs, synced);
    copy_pool(folder, work)?;
    if let Some(theirs) = oracle.resilver(work, name)? {
        manifest::compare("the real engine's, with claimed logs", &before, &theirs)?;
    }
    oracle.zdb_clean(work, name)?;
    let claimed = replayed(&exec, oracle, (work, name), &waits).map_err(|error| format!("what the real engine claimed: {error}"))?;
    let own = replayed(&exec, oracle, (folder, name), &waits)?;
    manifest::compare("ours, of what the real engine claimed", &timeless(&own), &timeless(&claimed))?;
    let _ = std::fs::remove_dir_all(work);
    Ok(Taken { pools: 1, pending: u64::from(!waits.is_empty()), records: waits.values().sum() })
}
