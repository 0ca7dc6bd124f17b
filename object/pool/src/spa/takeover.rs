//! Taking over what another process did and did not bring to disk: the arena that it left (docs/adr/0018).

use super::Spa;
use crate::PoolError;
use dsl::{PendingLogs, ReplayError, ReplayFiles, replay_arena, take_told_logs};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use zil::{Arena, Heritage};

/// Outcome of an import with an arena that another process left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ArenaOutcome {
    /// None was given.
    #[default]
    None,
    /// All that was answered is there again, and on disk.
    TakenOver {
        /// Number of records that were replayed.
        records: u64,
    },
    /// One was given and not used: the pool is as after a crash, and its mounts must not go on. In words.
    Refused(String),
}

/// Inheritance that an import was given.
pub(crate) enum Inherited {
    None,
    Arena(Arc<Arena>, Heritage),
    Refused(String),
}

/// Takes the arena, before anything is written to the pool.
pub(crate) fn adopt(spa: &Spa, file: Option<&OwnedFd>) -> Inherited {
    let Some(file) = file else { return Inherited::None };
    let file = match file.as_fd().try_clone_to_owned() {
        Ok(file) => file,
        Err(error) => return Inherited::Refused(error.to_string()),
    };
    match Arena::adopt(file, spa.guid().0, spa.txgs.synced_txg()) {
        Ok((arena, heritage)) => Inherited::Arena(arena, heritage),
        Err(error) => {
            tracing::warn!("what the process before left of pool '{}' is not used: {error}", spa.name());
            Inherited::Refused(error.to_string())
        }
    }
}

/// Takes the intent logs that the arena has more than.
///
/// # Errors
/// Those of looking at the datasets.
pub(crate) fn take_logs(spa: &Spa, pending: &mut PendingLogs, inherited: &Inherited) -> Result<PendingLogs, PoolError> {
    match inherited {
        Inherited::Arena(_, heritage) => Ok(take_told_logs(&spa.dsl, pending, heritage)?),
        Inherited::None | Inherited::Refused(_) => Ok(PendingLogs::default()),
    }
}

/// Does again what the arena tells, in one txg, and goes on with it.
///
/// # Errors
/// [`PoolError::Takeover`] when that cannot be: nothing of it is on disk, and nothing more can be written.
pub(crate) fn replay(
    spa: &Spa,
    inherited: Inherited,
    logs: &PendingLogs,
    files: Option<&dyn ReplayFiles>,
) -> Result<ArenaOutcome, PoolError> {
    let (arena, heritage) = match inherited {
        Inherited::None => return Ok(ArenaOutcome::None),
        Inherited::Refused(why) => return Ok(ArenaOutcome::Refused(why)),
        Inherited::Arena(arena, heritage) => (arena, heritage),
    };
    let files = files.ok_or_else(|| PoolError::Takeover(ReplayError::Failed("nobody knows its files".to_string())))?;
    let records = replay_arena(&spa.dsl, (&arena, &heritage), logs, files).map_err(|error| {
        tracing::warn!("what the process before did to pool '{}' cannot be done again: {error}", spa.name());
        PoolError::Takeover(error)
    })?;
    tracing::info!("pool '{}' goes on where the process before ended: {records} records of it were replayed", spa.name());
    if heritage.left_out > 0 {
        let left_out = heritage.left_out;
        tracing::info!(
            "pool '{}': {left_out} changes that nobody was answered are left out, since what came before them is not known",
            spa.name()
        );
    }
    spa.dsl.set_arena(arena, spa.guid().0);
    Ok(ArenaOutcome::TakenOver { records })
}
