//! Replay of intent logs at import, and telling of what it could not do.

use super::Spa;
use crate::PoolError;
use dsl::{DslError, PendingLogs, ReplayFiles, ReplayedLog};

/// Replays what was claimed; everything is on disk when it returns.
///
/// # Errors
/// Those of the devices and of txgs; [`PoolError::IntentLogs`] for a file system that cannot be opened. What was not replayed stays.
pub(crate) fn replay_logs(spa: &Spa, pending: &PendingLogs, files: Option<&dyn ReplayFiles>) -> Result<Vec<ReplayedLog>, PoolError> {
    let replayed = spa.dsl.replay_logs(pending, files).map_err(|ended| match (ended.dataset, ended.error) {
        (Some(dataset), DslError::Unsupported) => PoolError::IntentLogs(vec![dataset]),
        (_, error) => PoolError::Dsl(error),
    })?;
    for log in &replayed {
        let Some(why) = &log.failure else { continue };
        let event = spa.services.event("ereport.fs.zfs.log_replay").with("dataset", log.dataset.as_str()).with("why", why.as_str());
        spa.services.events.event(event);
        let text = format!("{}: {} records were replayed; {why}", log.dataset, log.records);
        spa.services.log_now("intent log", &text, spa.txgs.open_txg());
    }
    Ok(replayed)
}
